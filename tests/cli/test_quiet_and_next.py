"""What commands print around their results: less with --quiet, and what to do next."""

from __future__ import annotations

import gzip
import shlex
from pathlib import Path

import numpy as np
import pytest

from command_line import TINY, TINY_SEARCH, s2e, save
from s2e.errors import class_title
from s2e.workflows import time_budget
from small_tasks import blobs

pytestmark = pytest.mark.usefixtures("work")

TRAIN = ["train", *TINY, "--method", "standard"]


@pytest.mark.parametrize("command", [["search", *TINY_SEARCH], TRAIN, ["compare", *TINY, "--methods", "standard"]])
def test_quiet_prints_only_the_run(command: list[str]) -> None:
    seeds = ["--seeds", "1"] if command[0] == "compare" else []
    done = s2e(command[0], save(), *command[1:], *seeds, "--quiet", "--out", "run")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "run\n", "")
    reported = s2e("report", "run", "-q")
    assert (reported.exit_code, reported.stdout) == (0, "run/report.html\n")


def test_quiet_audit_and_predict_print_only_the_file() -> None:
    s2e(*TRAIN, save(), "--out", "run")
    assert s2e("audit", "run", "-q").stdout == "run/label_issues.csv\n"
    np.savez("new.npz", x=blobs().inputs[:9])
    assert s2e("predict", "run", "new.npz", "-q").stdout == "predictions.csv\n"


def test_next_commands_work_with_the_path_of_the_run() -> None:
    out = "my runs/first"
    done = s2e(*TRAIN, save(), "--out", out)
    lines = done.stdout.splitlines()
    commands = [line.partition("#")[0].split(maxsplit=1)[1] for line in lines[lines.index("next:") + 1 :]]
    assert [shlex.split(command)[:2] for command in commands] == [["audit", out], ["report", out], ["predict", out]]
    np.savez("NEW.npz", x=blobs().inputs[:9])
    for command in commands:
        assert s2e(*shlex.split(command)).exit_code == 0, command


@pytest.mark.parametrize(
    ("data", "options", "new"),
    [
        ("own.csv", ["--label", "kind"], "NEW.csv"),
        ("own.csv.gz", ["--annotators", "kind,second"], "NEW.csv.gz"),
        ("own.npz", [], "NEW.npz"),
    ],
)
def test_new_data_are_of_the_kind_of_the_run(data: str, options: list[str], new: str) -> None:
    save()
    rows = [f"{number},{label},{label}" for number, label in zip(blobs().inputs[:, 0], blobs().labels, strict=True)]
    Path("own.csv").write_text("\n".join(["size,kind,second", *rows]))
    Path("own.csv.gz").write_bytes(gzip.compress(Path("own.csv").read_bytes()))
    assert f"s2e predict run {new} " in s2e(*TRAIN, data, *options, "--out", "run").stdout


def test_a_search_ended_by_its_budget_says_how_to_continue(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(time_budget.LimitedListener, "_finishes_in_time", lambda *_: False)
        done = s2e("search", save(), *TINY_SEARCH, "--time-budget", "1h", "--out", "run")
    assert done.exit_code == 0, done.stderr
    assert "2 of 4 schedules searched" in done.stdout
    advice = "after 2 of 4 trials; continue with: s2e search --resume --out run --time-budget TIME\n"
    assert f"the time budget ended the search {advice}" in done.stdout
    more = s2e("search", "--resume", "--out", "run", "--time-budget", "none")
    assert "4 schedules searched" in more.stdout
    assert "time budget" not in more.stdout


def test_expected_time_is_a_line_on_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_budget, "LONG_SECONDS", 0.0)
    for command in (["search", *TINY_SEARCH], TRAIN, ["compare", *TINY, "--methods", "standard", "--seeds", "1"]):
        done = s2e(command[0], save(), *command[1:], "--json")
        assert any(line.startswith("about 1 s on 1 core") for line in done.stderr.splitlines()[:2]), done.stderr


def test_classes_that_are_numbers_are_called_classes() -> None:
    assert [class_title(name) for name in ("3", "-1", "2.5", "cat", "3rd")] == [
        "class 3",
        "class -1",
        "class 2.5",
        "cat",
        "3rd",
    ]
