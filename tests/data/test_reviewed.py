"""Decisions are read, matched with their samples, and replace the given labels."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from s2e.data import LabelledData, prepare
from s2e.data.reviewed import (
    MIN_REVIEWED,
    Decision,
    hold_out_with_decisions,
    matched,
    read_decisions,
    with_decisions,
)
from s2e.errors import S2EError
from s2e.specs import DataSpec

HEADER = "id,row,given_label,decision,label\n"
NAMES = ("cat", "dog", "=horse, 'small'")
IDS = tuple(f"P-{row}" for row in range(6))


def data(labels: tuple[int, ...] = (0, 1, 2, 0, 1, 2)) -> LabelledData:
    inputs = np.arange(2 * len(labels), dtype=np.float32).reshape(-1, 2)
    return LabelledData(inputs, np.array(labels), NAMES)


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., str]:
    def write(text: str, header: str = HEADER, name: str = "reviewed.csv") -> str:
        path = tmp_path / name
        path.write_text(header + text, encoding="utf-8")
        return str(path)

    return write


def reviewed(*paths: str, ids: tuple[str, ...] | None = IDS, samples: LabelledData | None = None) -> LabelledData:
    samples = data() if samples is None else samples
    return with_decisions(samples, matched(read_decisions(paths), samples, ids))


def test_decisions_replace_labels_and_are_marked(file) -> None:
    found = reviewed(file("P-0,0,cat,right,cat\nP-1,1,dog,wrong,cat\nP-2,2,\"'=horse, 'small'\",unsure,\n"))
    assert found.labels.tolist() == [0, 0, 2, 0, 1, 2]
    assert found.reviewed.tolist() == [True, True, False, False, False, False]
    taken = found.take(np.array([1, 3]))
    assert taken.reviewed.tolist() == [True, False]


def test_no_decisions_change_nothing(file) -> None:
    samples = data()
    assert reviewed(samples=samples) is samples
    unsure = reviewed(file("P-0,0,cat,unsure,\n"), samples=samples)
    assert unsure is samples


def test_names_that_a_spreadsheet_would_execute_are_read(file) -> None:
    found = reviewed(file("P-1,1,dog,wrong,\"'=horse, 'small'\"\n"))
    assert found.labels[1] == 2


@pytest.mark.parametrize(
    ("header", "text"),
    [
        ("row,label\n", "1,cat\n"),
        ("id,label\n", "P-1,cat\n"),
        ("Label;ID\n", "cat;P-1\n"),
        ("\ufeffid,row,given_label,decision,label\n", "P-1,1,dog,Wrong,cat\n\n"),
        (HEADER, "P-1,4,dog,wrong,cat\n"),  # rows have moved: the ID counts
    ],
)
def test_samples_are_found_by_row_or_id(file, header, text) -> None:
    assert np.flatnonzero(reviewed(file(text, header)).reviewed).tolist() == [1]


def test_several_files_are_merged_and_equal_decisions_agree(file) -> None:
    first = file("P-0,0,cat,right,cat\nP-1,1,dog,unsure,\n", name="a.csv")
    found = reviewed(first, file("P-1,1,dog,wrong,cat\nP-0,0,cat,right,cat\n", name="b.csv"))
    assert found.labels.tolist()[:2] == [0, 0]
    assert found.reviewed.sum() == 2


def test_a_source_that_was_corrected_meanwhile_is_accepted(file) -> None:
    corrected = data((0, 0, 2, 0, 1, 2))
    assert reviewed(file("P-1,1,dog,wrong,cat\n"), samples=corrected).labels[1] == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("P-9,9,dog,wrong,cat\n", "there is none 'P-9'; is it a file of another data set?"),
        ("P-1,1,dog,wrong,cow\n", "`label` must be one of "),
        (
            "P-1,1,cat,wrong,dog\nP-2,2,dog,right,dog\n",
            "must be about the given label \"=horse, 'small'\", but is about",
        ),
        ("P-1,1,dog,wrong,\n", "`label` must be the correct class, but is empty"),
        ("P-1,1,dog,wrong,dog\n", "`label` must differ from the given label"),
        ("P-1,1,dog,right,cat\n", "`label` must be the given label 'dog' where the decision is right"),
        ("P-1,1,dog,maybe,cat\n", "`decision` must be right, wrong or unsure, but got 'maybe'"),
        ("P-1,-1,dog,wrong,cat\n", "`row` must be an integer of at least 0, but got '-1'"),
        (",,dog,wrong,cat\n", "`id` or `row` must name the sample"),
        ("P-1,1,dog,wrong\n", "row 2 of "),
        ("P-1,1,dog,right,dog\nP-1,1,dog,wrong,cat\n", "decisions on one sample must agree, but row 2 of "),
        ('P-1,1,"dog\n', "is not comma-separated text"),
    ],
)
def test_decisions_that_cannot_be_used_are_refused_in_one_line(file, text, message) -> None:
    with pytest.raises(S2EError, match=re.escape(message)) as raised:
        reviewed(file(text))
    assert "\n" not in str(raised.value)


def test_files_that_hold_no_decisions_are_refused(file, tmp_path) -> None:
    with pytest.raises(S2EError, match="must hold decisions with the columns id, row"):
        read_decisions([file("1,2\n", "weight,height\n")])
    with pytest.raises(S2EError, match="does not exist"):
        read_decisions([str(tmp_path / "missing.csv")])
    (tmp_path / "binary.csv").write_bytes(b"id,label\n\xff\xfe")
    with pytest.raises(S2EError, match="must be UTF-8 text"):
        read_decisions([str(tmp_path / "binary.csv")])


def test_an_id_that_is_not_unique_needs_its_row() -> None:
    ids = ("a", "a", "b", "c", "d", "e")
    with pytest.raises(S2EError, match="there is none 'a'"):
        matched([Decision("cat", "here", id="a")], data(), ids)
    assert list(matched([Decision("cat", "here", row=1, id="a")], data(), ids)) == [1]


def test_names_that_are_not_utf_8_or_have_line_breaks_are_found(file) -> None:
    samples = replace(data(), class_names=("cat", "d\udcffg", "a\r\nb"))
    ids = ("x\udc80", "y\rz", *IDS[2:])
    text = 'x\\udc80,0,cat,wrong,d\\udcffg\n"y\nz",1,d\\udcffg,wrong,"a\nb"\n'
    assert reviewed(file(text), ids=ids, samples=samples).labels.tolist()[:2] == [1, 2]


def test_with_enough_decisions_half_of_those_left_in_training_are_held_out() -> None:
    samples = data((0, 1, 2) * 100)
    wrong = {row: Decision(NAMES[(row + 1) % 3], "here", row) for row in range(3 * MIN_REVIEWED)}

    def split(decisions: dict[int, Decision]) -> tuple[LabelledData, LabelledData]:
        return hold_out_with_decisions(samples, decisions, 0.1, np.random.default_rng(0))

    (train, valid), (plain, held) = split(wrong), split({})
    assert sorted([*train.rows, *valid.rows]) == list(range(300))
    assert set(held.rows) <= set(valid.rows)
    more = set(valid.rows) - set(held.rows)
    left = [row for row in plain.rows if row in wrong]
    assert more <= set(left)
    assert abs(len(more) - len(left) / 2) <= 1.5
    assert (np.bincount(train.labels[train.reviewed]) > 0).all()
    for part in (train, valid):
        np.testing.assert_array_equal(part.labels[part.reviewed], (part.rows[part.reviewed] + 1) % 3)
        assert set(part.rows[part.reviewed]) == set(part.rows) & set(wrong)
    wrong.popitem()
    few_train, few_valid = split(wrong)
    assert (few_train.rows.tolist(), few_valid.rows.tolist()) == (plain.rows.tolist(), held.rows.tolist())


def test_reviewed_labels_are_in_the_prepared_parts(tmp_path) -> None:
    rows = [f"{row},{row % 7},{NAMES[row % 2]}" for row in range(60)]
    (tmp_path / "table.csv").write_text("key,x,kind\n" + "\n".join(rows) + "\n")
    (tmp_path / "reviewed.csv").write_text(HEADER + "3,3,dog,wrong,cat\n4,4,cat,right,cat\n")
    spec = DataSpec(str(tmp_path / "table.csv"), "kind", "key", reviewed=(str(tmp_path / "reviewed.csv"),))
    parts = prepare(spec, "none", 0, Path()).splits
    found = {
        int(row): (int(label), bool(known))
        for part in (parts.train, parts.valid)
        for row, label, known in zip(part.rows, part.labels, part.reviewed, strict=True)
    }
    assert len(found) == 60
    assert {row: label for row, (label, known) in found.items() if known} == {3: 0, 4: 0}
    assert all(label == row % 2 for row, (label, known) in found.items() if not known)


def test_decisions_on_noisy_labels_of_another_seed_are_refused(tmp_path) -> None:
    spec = DataSpec("digits", validation="noisy")
    train = prepare(spec, "symmetric:0.5", 0, Path()).splits.train
    wrong = np.flatnonzero(train.labels != train.clean_labels)[:20]
    lines = [f"{train.rows[i]},{train.rows[i]},{train.labels[i]},wrong,{train.clean_labels[i]}" for i in wrong]
    (tmp_path / "reviewed.csv").write_text(HEADER + "\n".join(lines) + "\n")
    spec = replace(spec, reviewed=(str(tmp_path / "reviewed.csv"),))
    parts = prepare(spec, "symmetric:0.5", 0, Path()).splits
    assert parts.train.reviewed.sum() + parts.valid.reviewed.sum() == 20
    assert (parts.train.labels == parts.train.clean_labels)[parts.train.reviewed].all()
    with pytest.raises(S2EError, match="is it a file of another data set, noise or seed"):
        prepare(spec, "symmetric:0.5", 1, Path())
