"""`s2e compare` on the command line: tables, files and JSON, refusals, and resuming."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from command_line import TINY, assert_refused, s2e, save
from compare_commands import TWO_NOISES, right, tables
from populations import replace_search_trainer
from s2e.engine import two_stage
from s2e.engine.task import Member, Task, Trained
from s2e.engine.training import train_population
from s2e.runs.directory import Run
from s2e.workflows import compare as comparison
from s2e.workflows.comparison_figures import figure_files
from s2e.workflows.finished import FinishedTrainings

pytestmark = pytest.mark.usefixtures("work")

TINY_COMPARISON = [*TINY, "--seeds", "2", "--trials", "2", "--generation-size", "1", "--sampler", "random"]
TINY_COMPARISON += ["--space", "coteaching"]
PATIENCE_S = 60


@pytest.fixture(autouse=True)
def _no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw figures only where they are looked at."""
    monkeypatch.setattr(comparison, "figure_files", lambda _: {})


def compare(data: str, *arguments: str) -> Result:
    return s2e("compare", data, *TINY_COMPARISON, *arguments)


def done(data: str, *arguments: str) -> Result:
    result = compare(data, *arguments)
    assert result.exit_code == 0, result.stderr
    return result


# What is printed and written


def test_a_table_is_printed_for_each_noise_setting() -> None:
    shown = done(right(), *TWO_NOISES, "--methods", "standard,s2e:jocor,coteaching+", "--out", "run").stdout
    first, second = shown.split("symmetric noise, 30%")
    assert "pair noise, 40%" in first
    summary = json.loads(Path("run", "result.json").read_text())["summary"]
    assert len(summary) == 6
    for row in summary:
        table = first if row["noise"] == "pair:0.4" else second
        name = {"standard": "Standard", "s2e:jocor": "S2E (JoCoR)", "coteaching+": "Co-teaching+"}[row["method"]]
        (line,) = [line for line in table.splitlines() if f"│ {name} " in line]
        figures = [cell.strip() for cell in line.split("│")[2:6]]
        assert figures == [
            f"{100 * row[figure]['mean']:.2f} ± {100 * row[figure]['std']:.2f}"
            for figure in ("last_10_epochs", "chosen_epoch", "best_epoch", "label_precision")
        ]
    assert "mean ± standard deviation over 2 seeds" in first
    assert "\nrun: run\nnext:\n" in shown


@pytest.mark.slow  # figures are drawn in `workflows/test_comparison_figures.py`, tables in `workflows/test_compare.py`
def test_tables_and_figures_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "figure_files", figure_files)
    done(right(), *TWO_NOISES, "--methods", "standard,s2e", "--out", "run")
    out = Path("run")
    for name in ("accuracy", "label_precision", "keep_rate"):
        assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (out / f"{name}.svg").read_text().rstrip().endswith("</svg>")
    assert len((out / "results.csv").read_text().splitlines()) == 1 + 2 * 2 * 2
    assert len((out / "curves.csv").read_text().splitlines()) == 1 + 2 * 2 * 2 * 3


def test_json_is_the_result_and_the_run() -> None:
    shown = json.loads(done(right(), "--noise", "pair:0.4", "--methods", "standard", "--json", "--out", "run").stdout)
    assert shown == {**json.loads(Path("run", "result.json").read_text()), "run": "run"}
    assert shown["summary"][0]["last_10_epochs"].keys() == {"mean", "std"}


def test_without_out_the_run_is_under_runs() -> None:
    shown = done(right(), "--methods", "standard", "--seeds", "1")
    (made,) = Path("runs").iterdir()
    assert made.name.startswith("compare-right-")
    assert f"\nrun: {made}\n" in shown.stdout


def test_left_out_methods_are_listed() -> None:
    shown = done(save(), "--out", "run")
    flat = " ".join(shown.stdout.split())
    reason = "needs a noise rate for its schedule; give an estimate with --noise-rate, or search with s2e"
    for name in ("MentorNet", "Co-teaching", "Co-teaching+", "JoCoR"):
        assert f"left out: {name}, {reason}" in flat
    assert "left out: Reweight, needs clean validation samples to train with; give some with --validation" in flat
    assert "share of wrong labels unknown" in flat
    assert "labels as given" in flat
    left = json.loads(Path("run", "result.json").read_text())["left_out"]
    assert {row["method"] for row in left} == {"mentornet", "coteaching", "coteaching+", "jocor", "reweight"}


def test_spaces_around_names_are_ignored() -> None:
    done(right(), "--noise", "pair:0.4", "--methods", " standard , jocor", "--out", "run", "--seeds", "1")
    assert [row["method"] for row in json.loads(Path("run", "result.json").read_text())["summary"]] == [
        "standard",
        "jocor",
    ]


# Refused in one line


@pytest.mark.parametrize(
    ("arguments", "mention"),
    [
        ("--seeds 0", "`seeds` must be an integer of at least 1, but got 0"),
        ("--noise-rate 1", "`noise_rate` must lie in [0, 1), but got 1.0"),
        ("--noise pair:0.4 --noise pair:0.4", "`noise` must name each noise setting once, but got pair:0.4, pair:0.4"),
        ("--methods jocar", "`methods` must be one of jocor, "),
        ("--methods s2e:standard", "`methods` must be one of s2e:"),
        ("--methods ,", "but got ''"),
        ("--methods standard,coteaching", "coteaching needs a noise rate for its schedule"),
        ("--methods reweight", "reweight needs clean validation samples to train with; give some with --validation"),
        ("--batch-size 500", "pass a smaller batch size"),
        ("--sampler newton --generation-size 1", "`generation_size` must be at least 2"),
        ("--network resnet", "`network` must be one of"),
    ],
)
def test_bad_input_is_refused(arguments: str, mention: str) -> None:
    assert_refused(compare(save(), "--out", "run", *shlex.split(arguments)), mention)


# Resumed


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison that was not stopped, next to its data."""
    where = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(where)
        patched.setattr(comparison, "figure_files", lambda _: {})
        done(right(str(where / "right.npz")), *TWO_NOISES, "--methods", "standard,f-correction,s2e", "--out", "run")
    return where / "run"


@pytest.fixture
def copied(finished: Path) -> Path:
    return Path(shutil.copytree(finished, "copied"))


def stopped_in(population: int, patched: pytest.MonkeyPatch) -> None:
    """Press Ctrl-C in the given population, counted from 0."""
    trained = 0

    def train(task: Task, members: Sequence[Member], **named: Any) -> Trained:
        nonlocal trained
        if trained == population:
            raise KeyboardInterrupt
        trained += 1
        return train_population(task, members, **named)

    patched.setattr(two_stage, "train_population", train)
    replace_search_trainer(train, patched)


@pytest.mark.parametrize("population", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_an_interrupted_comparison_resumes_to_the_same_result(finished: Path, population: int) -> None:
    data, out = str(finished.parent / "right.npz"), "my run; it's $HOME"
    with pytest.MonkeyPatch.context() as patched:
        stopped_in(population, patched)
        stopped = compare(data, *TWO_NOISES, "--methods", "standard,f-correction,s2e", "--out", out)
    assert stopped.exit_code == 130
    assert stopped.stdout == ""
    printed = stopped.stderr.splitlines()[-1]
    assert printed.startswith("s2e: interrupted; continue with: s2e compare --resume --out ")
    command = shlex.split(printed.partition("continue with: ")[2])
    assert command == ["s2e", "compare", "--resume", "--out", out]
    continued = s2e(*command[1:])
    assert continued.exit_code == 0, continued.stderr
    assert tables(out) == tables(finished)


def test_an_interruption_before_the_run_exists_offers_no_resume(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(comparison, "entrants_for", interrupt)
    result = compare(right(), "--out", "run")
    assert (result.exit_code, result.stderr) == (130, "s2e: interrupted\n")


def test_resuming_with_more_methods_trains_only_those(finished: Path, copied: Path) -> None:
    more = s2e("compare", "--resume", "--out", "copied", "--methods", "standard,f-correction,s2e,decoupling,jocor")
    assert more.exit_code == 0, more.stderr
    assert more.stderr.splitlines() == ["decoupling, jocor: 3 epochs", "search: 0 epochs"]
    before, after = tables(finished), tables(copied)
    rows = after["results.csv"].splitlines()
    assert len(rows) == 1 + 5 * 2 * 2
    assert set(before["results.csv"].splitlines()) < set(rows)
    assert {"Decoupling", "JoCoR", "Standard"} <= {
        line.split("│")[1].strip() for line in more.stdout.splitlines() if "│" in line
    }


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        ("--seeds 3", "seeds was 2 and is now 3"),
        ("--noise-rate 0.3 --epochs 9", "noise_rate was None and is now 0.3; epochs was 3 and is now 9"),
    ],
)
def test_resuming_with_other_options_names_them(finished: Path, copied: Path, arguments: str, printed: str) -> None:
    refused = s2e("compare", "--resume", "--out", "copied", *arguments.split())
    assert_refused(refused, f"'copied' was made with other settings: {printed}.")
    assert tables(copied) == tables(finished)


def test_bad_input_does_not_change_a_finished_comparison(finished: Path, copied: Path) -> None:
    refused = s2e("compare", "--resume", "--out", "copied", "--methods", "standard,jocar")
    assert_refused(refused, "`methods` must be one of jocor, ")
    assert tables(copied) == tables(finished)


# In a process of its own


LONG = ["--epochs", "25", "--trials", "6"]  # long enough that a process cannot end before it is stopped


def started(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "s2e", "compare", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"},
    )


def stop(process: subprocess.Popen[str], when: Callable[[], bool], by: signal.Signals) -> list[str]:
    """Stop a process as soon as something holds, and return its output."""
    deadline = time.monotonic() + PATIENCE_S
    while not when():
        assert process.poll() is None, "it ended before it could be stopped"
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(by)
    return process.communicate(timeout=PATIENCE_S)[1].splitlines()


@pytest.mark.slow
def test_a_killed_comparison_resumes_to_the_same_result() -> None:
    """First kill -9 once the methods are trained, then Ctrl-C in the search."""
    arguments = [right(), *TINY_COMPARISON, "--noise", "pair:0.4", "--methods", "standard,s2e", "--seeds", "1", *LONG]
    stop(started(*arguments, "--out", "run"), Path("run", "study.db").exists, signal.SIGKILL)
    assert [one.method for one in FinishedTrainings.of(Run("run")).outcomes] == ["standard"]
    process = started("--resume", "--out", "run")
    assert process.stderr is not None
    lines = [process.stderr.readline()]
    while not lines[-1].startswith("generation"):
        assert process.poll() is None, lines
        lines.append(process.stderr.readline())
    printed = stop(process, lambda: True, signal.SIGINT)
    assert process.returncode == 130
    assert printed[-1] == "s2e: interrupted; continue with: s2e compare --resume --out run"
    assert not any("Traceback" in line for line in printed)
    assert not any(line.startswith("standard") for line in lines)  # it is not trained again
    continued = s2e("compare", "--resume", "--out", "run")
    assert continued.exit_code == 0, continued.stderr
    never_stopped = s2e("compare", *arguments, "--out", "never_stopped")
    assert never_stopped.exit_code == 0, never_stopped.stderr
    assert tables("run") == tables("never_stopped")
