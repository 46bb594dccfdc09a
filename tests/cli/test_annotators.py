"""Tables that several annotators labelled: wide and long, the consensus in the run and its audit, refusals."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from command_line import TINY_SEARCH, assert_refused, s2e
from crowds import confusion_of, labelled_by
from small_tasks import blobs

pytestmark = pytest.mark.usefixtures("work")

ANNOTATORS = ["ann1", "ann2", "ann3", "ann4"]
ACCURACIES = (0.9, 0.8, 0.7, 0.6)
DATA = blobs(240, wrong=0.0)
LABELS = labelled_by(DATA.labels, np.stack([confusion_of(each, 4) for each in ACCURACIES]), gaps=0.25, seed=1)
LABELS[(LABELS < 0).all(axis=1), 0] = 0
LABELS[7] = -1
COUNTS = (LABELS >= 0).sum(axis=1)


@pytest.fixture
def tables(work: Path) -> None:
    """Write a wide table, and the same labels as a table of items and a long table."""
    names = np.array([*DATA.class_names, ""])
    items = pd.DataFrame(DATA.inputs, columns=list("abcdef")).assign(key=[f"k{row}" for row in range(240)])
    labels = pd.DataFrame(names[LABELS], columns=ANNOTATORS)
    pd.concat([items, labels], axis=1).to_csv("wide.csv", index=False)
    items.to_csv("items.csv", index=False)
    long = labels.assign(key=items["key"]).melt("key", var_name="worker", value_name="answer")
    long = long[long["answer"] != ""].sample(frac=1, random_state=0)
    long.to_csv("labels.csv", index=False)
    long.to_parquet("labels.parquet")


def rows(path: str) -> list[dict[str, str]]:
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


def searched(*arguments: str, out: str) -> None:
    done = s2e("search", *arguments, "--id", "key", *TINY_SEARCH, "--no-baselines", "--out", out)
    assert done.exit_code == 0, done.stderr
    assert s2e("audit", out).exit_code == 0


@pytest.mark.usefixtures("tables")
def test_wide_and_long_tables_give_the_same_run_with_annotators_and_agreement(
    caplog: pytest.LogCaptureFixture,
) -> None:
    searched("wide.csv", "--annotators", "ann1, ann2,ann3,ann4", out="wide")
    assert "1 of 240 rows have no label and are left out: row 8" in caplog.text
    searched("items.csv", "--annotations", "labels.parquet", out="long")
    assert Path("wide/label_issues.csv").read_bytes() == Path("long/label_issues.csv").read_bytes()
    assert Path("wide/annotators.csv").read_bytes() == Path("long/annotators.csv").read_bytes()
    annotators = rows("wide/annotators.csv")
    assert [row["annotator"] for row in annotators] == ANNOTATORS
    assert [int(row["labels"]) for row in annotators] == (LABELS >= 0).sum(axis=0).tolist()
    for row, accuracy in zip(annotators, ACCURACIES, strict=True):
        assert float(row["accuracy_low"]) < float(row["accuracy"]) < float(row["accuracy_high"])
        assert float(row["accuracy"]) == pytest.approx(accuracy, abs=0.12)
    audited = rows("wide/label_issues.csv")
    assert len(audited) == 239  # held-out rows too
    assert all(int(row["annotators"]) == COUNTS[int(row["id"].removeprefix("k"))] for row in audited)
    assert {float(row["agreement"]) for row in audited if row["annotators"] == "1"} == {1.0}
    with np.load("wide/dynamics.npz") as records:
        np.testing.assert_array_equal(np.bincount(records["annotations"][:, 0]), COUNTS[records["rows"]])
        for sample, annotator, label in records["annotations"]:
            assert LABELS[records["rows"][sample], annotator] == label


@pytest.mark.usefixtures("tables")
def test_a_run_is_resumed_and_predicts_with_its_own_columns() -> None:
    searched("items.csv", "--annotations", "labels.csv", "--annotation-columns", "key,worker,answer", out="run")
    stored = json.loads(Path("run/config.json").read_text())["options"]
    assert stored["annotation_columns"] == ["key", "worker", "answer"]
    resumed = s2e("search", "--resume", "--trials", "6", "--out", "run")
    assert resumed.exit_code == 0, resumed.stderr
    assert s2e("predict", "run", "items.csv", "-o", "out.csv").exit_code == 0
    assert len(rows("out.csv")) == 240


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize(
    ("arguments", "mention"),
    [
        (["wide.csv", "--annotators", "ann1"], "`annotators` must be two or more different columns, but got ann1"),
        (["wide.csv", "--annotators", "ann1,annn"], "`annotators` must be one of"),
        (["wide.csv", "--annotators", "ann1,ann2", "--annotations", "labels.csv"], "must not both be given"),
        (["wide.csv", "--annotators", "ann1,ann2", "--label", "ann3"], "`label` must be the name of a new column"),
        (["items.csv", "--annotations", "labels.csv"], "`annotations` must be used with `id_column` (--id)"),
        (["items.csv", "--annotations", "none.csv", "--id", "key"], "`annotations` must be a file that exists"),
        (
            ["items.csv", "--annotations", "labels.csv", "--id", "a", "--annotation-columns", "key,worker,answer"],
            "must be IDs of the rows",
        ),
        (["items.csv", "--annotations", "items.csv", "--id", "key"], "`annotation_columns` must name the columns"),
        (
            ["items.csv", "--annotations", "labels.csv", "--id", "key", "--annotation-columns", "key,worker,x"],
            "`annotation_columns` must be one of",
        ),
        (["wide.csv", "--annotators", "ann1,ann2", "--noise", "symmetric:0.2"], "`noise` must be none for labels of"),
        (["digits", "--annotators", "ann1,ann2"], "`annotators` must be given for tables only"),
    ],
    ids=lambda value: " ".join(value[:4]) if isinstance(value, list) else "",
)
def test_annotators_that_do_not_fit_are_refused(arguments: list[str], mention: str) -> None:
    assert_refused(s2e("search", *arguments, *TINY_SEARCH, "--out", "run"), mention)


def test_labels_of_one_annotator_or_in_other_spellings_are_refused() -> None:
    frame = pd.DataFrame({"x": range(20), "p": ["a", "b"] * 10, "q": ["A", "B"] * 10, "r": [None] * 20})
    frame.to_csv("own.csv", index=False)
    refused = s2e("search", "own.csv", "--annotators", "p,q", *TINY_SEARCH, "--out", "run")
    assert_refused(refused, "must use the same labels, but no label is used by two of them: 'p' uses 'a', 'b'")
    refused = s2e("search", "own.csv", "--annotators", "p,r", *TINY_SEARCH, "--out", "run")
    assert_refused(refused, "must hold labels of at least two annotators, but got only 'p'")


@pytest.mark.usefixtures("tables")
def test_a_cleaned_table_has_the_consensus_and_suggestions() -> None:
    searched("wide.csv", "--annotators", ",".join(ANNOTATORS), out="wide")
    searched("items.csv", "--annotations", "labels.csv", out="long")
    for run, data in (("wide", "wide.csv"), ("long", "items.csv")):
        done = s2e("audit", run, "--cleaned", "cleaned.csv")
        assert done.exit_code == 0, done.stderr
        found, issues = rows("cleaned.csv"), {row["id"]: row for row in rows(f"{run}/label_issues.csv")}
        added = ["given_label", "sample_weight", "suggested_label", "suggested_weight"]
        assert list(found[0]) == [*rows(data)[0], *added]
        assert len(found) == 240
        for row in found:
            issue = issues.get(row["key"], {"given_label": "", "suggested_label": "", "label_quality": "1.0"})
            assert (row["given_label"], row["suggested_label"]) == (issue["given_label"], issue["suggested_label"])
            assert float(row["sample_weight"]) == pytest.approx(float(issue["label_quality"]), abs=1e-6)
        assert found[7]["given_label"] == ""  # no annotator labelled this row
