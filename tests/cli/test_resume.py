"""Searches that are stopped and resumed, in real processes: they end with the same run."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import optuna
import pytest
from safetensors.torch import load

import frequent_checkpoints
from command_line import ENVIRONMENT, s2e
from s2e.runs.directory import Run
from small_tasks import blobs
from stopped_searches import (
    EPOCHS,
    TIMEOUT_S,
    TRIALS,
    assert_same_run,
    finish,
    result,
    resume_message,
    trials,
)
from stopped_searches import SEARCH as DIGITS

SEARCH = ["own.npz", *DIGITS[1:], "--batch-size", "32"]
"""A model of the pool is fitted to few samples in a moment."""
SHORT = [*SEARCH, "--epochs", "2"]
"""For tests that stop no process."""


@pytest.fixture(scope="module", autouse=True)
def _data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Change into a directory with the data."""
    data = blobs(600)
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(tmp_path_factory.mktemp("data"))
        np.savez("own.npz", x_train=data.inputs, y_train=data.clean_labels)
        yield


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "s2e", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )


def begin(path: Path) -> subprocess.Popen[str]:
    return start("search", *SEARCH, "--out", str(path))


def resume(path: Path) -> subprocess.Popen[str]:
    return start("search", "--resume", "--out", str(path))


def stop(process: subprocess.Popen[str], when: Callable[[], bool], by: signal.Signals = signal.SIGKILL) -> str:
    """Stop a process as soon as a condition holds, and return its stderr."""
    deadline = time.monotonic() + TIMEOUT_S
    while not when():
        assert process.poll() is None, "it ended before it could be stopped"
        assert time.monotonic() < deadline
        time.sleep(0.001)
    process.send_signal(by)
    return process.communicate(timeout=TIMEOUT_S)[1]


def complete(path: Path) -> int:
    """Trials finished so far, read while the search runs."""
    if not (path / "study.db").exists():
        return 0
    connection = sqlite3.connect(f"file:{path / 'study.db'}?mode=ro", uri=True)
    try:
        return int(connection.execute("SELECT COUNT(*) FROM trials WHERE state = 'COMPLETE'").fetchone()[0])
    except sqlite3.OperationalError:  # locked, or the tables are still being made
        return 0
    finally:
        connection.close()


def after(seconds: float) -> Callable[[], bool]:
    moment = time.monotonic() + seconds
    return lambda: time.monotonic() >= moment


@pytest.fixture(scope="module")
def never_killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("never_killed") / "run"
    assert s2e("search", *SEARCH, "--out", str(path)).exit_code == 0
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("finished") / "run"
    assert s2e("search", *SHORT, "--out", str(path)).exit_code == 0
    return path


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    """A copy of a finished run."""
    return Path(shutil.copytree(finished, tmp_path / "copied"))


# Stopped


@pytest.mark.slow
def test_a_search_killed_at_every_stage_resumes_to_the_same_run(never_killed: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    stop(begin(path), lambda: (path / "study.db").exists())
    assert Run(path).exists
    stop(resume(path), lambda: complete(path) >= 1)
    told = [trial for trial in trials(path) if trial[-1] == optuna.trial.TrialState.COMPLETE]
    assert 1 <= len(told) < TRIALS
    assert not (path / "schedule.json").exists()
    stop(resume(path), lambda: (path / "schedule.json").exists())
    assert len(trials(path)) == TRIALS
    assert not (path / "result.json").exists()
    finish(path)
    assert_same_run(path, never_killed)


@pytest.mark.slow
def test_a_search_killed_at_random_moments_resumes_to_the_same_run(never_killed: Path, tmp_path: Path) -> None:
    path, moments = tmp_path / "run", random.Random(0)
    for start_or_resume in (begin, resume):
        process = start_or_resume(path)
        assert process.stderr is not None
        assert process.stderr.readline().startswith("search: ")  # it has started
        stop(process, after(moments.uniform(0, 0.6)))
    finish(path)
    assert_same_run(path, never_killed)


FREQUENT_CHECKPOINTS = """
import pytest
from frequent_checkpoints import in_every_run
from s2e.cli import main

in_every_run(pytest.MonkeyPatch())
main()
"""
"""Runs s2e with checkpoints after every epoch."""


def stored_epochs(path: Path) -> int:
    """Epochs of the training in the last checkpoint."""
    try:
        return max(
            (int(load(file.read_bytes())["epochs"]) for file in path.glob("checkpoints/*.safetensors")), default=0
        )
    except FileNotFoundError:  # the generation is finished
        return 0


@pytest.mark.slow
def test_a_search_killed_within_a_generation_continues_there(
    never_killed: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, program = tmp_path / "run", [sys.executable, "-c", FREQUENT_CHECKPOINTS, "search"]
    importable = [str(Path(frequent_checkpoints.__file__).parent), ENVIRONMENT.get("PYTHONPATH", "")]
    environment = {**ENVIRONMENT, "PYTHONPATH": os.pathsep.join(importable)}
    for arguments, epochs in ([*SEARCH], 3), (["--resume"], 20):
        command = [*program, *arguments, "--out", str(path)]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        stop(process, lambda least=epochs: stored_epochs(path) >= least)  # type: ignore[misc]
    stored = stored_epochs(path)
    finish(path)
    assert [record.args for record in caplog.records] == [(4, stored, EPOCHS)]
    assert_same_run(path, never_killed)


@pytest.mark.slow
def test_an_interrupted_search_prints_how_to_resume(never_killed: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    process = begin(path)
    assert process.stderr is not None
    while not process.stderr.readline().startswith("generation 1/2"):
        assert process.poll() is None
    printed = stop(process, after(0.2), signal.SIGINT)  # while the second generation trains
    assert process.returncode == 130
    assert printed == f"{resume_message(path)}\n"
    assert s2e(*printed.rpartition("s2e ")[2].split()).exit_code == 0
    assert_same_run(path, never_killed)


# Resumed with other options, or unnecessarily


def test_resuming_a_finished_search_repeats_the_final_training(finished: Path, copied: Path) -> None:
    (copied / "result.json").unlink()
    printed = finish(copied).stderr
    assert "search: 0 epochs" in printed
    assert "final training: 2 epochs" in printed
    assert "trial" not in printed
    assert_same_run(copied, finished)


def test_resuming_with_the_same_options_changes_nothing(finished: Path, copied: Path) -> None:
    assert s2e("search", *SHORT, "--resume", "--out", str(copied)).exit_code == 0
    assert_same_run(copied, finished)


@pytest.mark.parametrize(
    ("setting", "printed"),
    [
        (["--epochs", "7"], "epochs was 2 and is now 7"),
        (["--generation-size", "8"], "generation_size was 4 and is now 8"),
        (["--validation-share", "0.1"], "validation_share was None and is now 0.1"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_resuming_with_another_option_names_it(finished: Path, copied: Path, setting: list[str], printed: str) -> None:
    refused = s2e("search", "--resume", "--out", str(copied), *setting)
    assert refused.exit_code == 2
    assert refused.stderr == f"s2e: {str(copied)!r} was made with other settings: {printed}.\n"
    assert_same_run(copied, finished)


def test_resuming_with_several_other_options_names_all(copied: Path) -> None:
    printed = s2e("search", "--resume", "--out", str(copied), "--epochs", "7", "--batch-size", "64").stderr
    assert "epochs was 2 and is now 7; batch_size was 32 and is now 64" in printed


def test_resuming_with_more_trials_equals_a_longer_search(copied: Path, tmp_path: Path) -> None:
    before = trials(copied)
    more = s2e("search", "--resume", "--out", str(copied), "--trials", "12")
    assert more.exit_code == 0
    assert [line.partition(":")[0] for line in more.stderr.splitlines() if line.startswith("generation")] == [
        "generation 3/3, trial 12/12"
    ]
    assert trials(copied)[:TRIALS] == before
    at_once = tmp_path / "at_once"
    assert s2e("search", *SHORT, "--trials", "12", "--out", str(at_once)).exit_code == 0
    assert_same_run(copied, at_once)


def test_resuming_may_change_the_final_training(copied: Path) -> None:
    assert s2e("search", "--resume", "--out", str(copied), "--baselines", "--restarts", "2").exit_code == 0
    rows = result(copied)["methods"]
    assert [row["name"] for row in rows] == ["Standard", "Co-teaching", "S2E"]
    assert [len(row["validation_of_restarts"]) for row in rows] == [2, 2, 2]
    assert len(trials(copied)) == TRIALS


def test_resuming_on_changed_data_is_refused(tmp_path: Path) -> None:
    data, path = tmp_path / "own.npz", tmp_path / "run"
    own = blobs()
    np.savez(data, X=own.inputs, y=own.labels)
    tiny = ["--trials", "2", "--generation-size", "2", "--epochs", "2", "--batch-size", "64", "--restarts", "1"]
    assert s2e("search", str(data), *tiny, "--out", str(path)).exit_code == 0
    np.savez(data, X=own.inputs + 1, y=own.labels)
    refused = s2e("search", "--resume", "--out", str(path))
    assert refused.exit_code == 2
    assert "the data have changed since" in refused.stderr


# Damaged


def refusal(*arguments: str) -> str:
    refused = s2e("search", "--resume", *arguments)
    assert refused.exit_code == 2
    assert refused.stderr.startswith("s2e: ")
    assert refused.stderr.count("\n") == 1
    return refused.stderr


def test_a_damaged_study_is_refused(copied: Path) -> None:
    (copied / "study.db").write_bytes(b"no database" * 1000)
    assert "could not be opened" in refusal("--out", str(copied))
