"""`--reviewed` on the command line: decisions are trusted labels of a run, also of one that is resumed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from command_line import assert_refused, s2e
from s2e.audit.run_audit import audit_run
from s2e.runs.directory import Run

HEADER = "id,row,given_label,decision,label\n"
QUICK = ["--epochs", "3", "--batch-size", "16", "--trials", "2", "--generation-size", "2", "--restarts", "1"]
SEARCH = [
    "search",
    "table.csv",
    "--label",
    "kind",
    "--id",
    "key",
    "--no-baselines",
    "--no-models",
    "--out",
    "run",
    *QUICK,
]


@pytest.fixture(autouse=True)
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"k{row},{row % 2 + row / 1000},{row % 5},{'ab'[row % 2]}" for row in range(80)]
    Path("table.csv").write_text("key,x,z,kind\n" + "\n".join(rows) + "\n")
    Path("first.csv").write_text(HEADER + "k3,3,b,wrong,a\nk4,4,a,right,a\n")
    Path("second.csv").write_text(HEADER + "k4,4,a,right,a\nk5,5,b,unsure,\nk9,9,b,wrong,a\n")


def test_decisions_of_several_files_are_trusted_in_a_search_and_its_audit() -> None:
    done = s2e(*SEARCH, "--reviewed", "first.csv", "--reviewed", "second.csv")
    assert done.exit_code == 0, done.output
    run = Run.open("run")
    assert run.read_json("config.json")["options"]["reviewed"] == ["first.csv", "second.csv"]
    audited = audit_run(run)
    reviewed = np.flatnonzero(audited.reviewed)
    assert {audited.ids[index]: audited.class_names[audited.labels[index]] for index in reviewed} == {
        "k3": "a",
        "k4": "a",
        "k9": "a",
    }
    assert (audited.audit.quality[reviewed] == 1).all()
    assert s2e("report", "run").exit_code == 0
    assert "3 reviewed labels are trusted" in Path("run/report.html").read_text()
    assert (
        "--reviewed first.csv --reviewed second.csv --reviewed reviewed-run.csv" in Path("run/report.html").read_text()
    )
    again = s2e("search", "--resume", "--out", "run", "--restarts", "2")
    assert again.exit_code == 0, again.output
    assert audit_run(Run.open("run")).reviewed.sum() == 3


def test_a_run_cannot_be_resumed_with_other_decisions() -> None:
    assert s2e(*SEARCH, "--reviewed", "first.csv").exit_code == 0
    other = s2e(*SEARCH, "--resume", "--reviewed", "second.csv")
    Path("first.csv").write_text(HEADER + "k3,3,b,right,b\n")
    changed = s2e("search", "--resume", "--out", "run")
    for refused in (other, changed):
        assert refused.exit_code == 2
        assert "was made with other settings" in refused.stderr


def test_a_training_takes_decisions_and_a_comparison_does_not() -> None:
    train = ["train", "table.csv", "--label", "kind", "--id", "key", "--method", "standard", *QUICK[:4], "--out", "run"]
    assert s2e(*train, "--reviewed", "first.csv").exit_code == 0
    assert audit_run(Run.open("run")).reviewed.sum() == 2
    assert "there is no option --reviewed" in s2e("compare", "table.csv", "--reviewed", "first.csv").output


@pytest.mark.parametrize(
    ("text", "mention"),
    [
        ("k3,3,b,wrong,c\n", "`label` must be one of"),
        ("k99,99,b,wrong,a\n", "is it a file of another data set?"),
        ("k4,4,b,wrong,a\nk3,3,a,right,a\n", "must be about the given label"),
        ("k3,3,b,wrong,a\nk3,3,b,right,b\n", "decisions on one sample must agree"),
    ],
)
def test_unusable_decisions_are_refused(text: str, mention: str) -> None:
    Path("bad.csv").write_text(HEADER + text)
    assert_refused(s2e(*SEARCH, "--reviewed", "bad.csv"), mention)
    assert not Path("run").exists()


def test_files_without_decisions_are_refused_before_data_are_loaded() -> None:
    command = ["search", "nowhere.csv", "--label", "kind", "--out", "run"]
    assert_refused(s2e(*command, "--reviewed", "table.csv"), "must hold decisions with the columns")
    assert_refused(s2e(*command, "--reviewed", "missing.csv"), "does not exist")
