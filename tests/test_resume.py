"""Searches that are killed and continued, end to end in real processes: they end as if nothing had happened."""

from __future__ import annotations

import json
import os
import pty
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from typer.testing import CliRunner, Result

from conftest import blobs
from s2e.cli import app
from s2e.runs import Run

TRIALS = 8
EPOCHS = 40  # long enough that a run cannot end before it is stopped
SEARCH = ["digits", "--noise", "pair:0.45", "--sampler", "newton", "--trials", str(TRIALS), "--generation", "4"]
SEARCH += ["--epochs", str(EPOCHS), "--restarts", "1", "--no-baselines"]
SHORT_SEARCH = [*SEARCH, "--trials", "4", "--generation", "2", "--epochs", "1"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
PATIENCE_S = 60
LOADED_FOR_A_SEARCH = "s2e.commands pandas sklearn.datasets alembic.command"
"""What is imported before every call is watched, since imports take several times as long when they are."""

CTRL_C_WITHIN = """
import importlib, signal, sys

for module in sys.argv.pop(1).split():
    importlib.import_module(module)
path = sys.argv.pop(1).split(" > ")
entered = []


def press_once_there(frame, event, function):
    if not event.endswith("call"):
        del entered[-1:]
        return
    entered.append(function.__name__ if event == "c_call" else frame.f_code.co_name)
    outwards = iter(entered)
    if entered[-1] == path[-1] and all(name in outwards for name in path):
        sys.setprofile(None)
        signal.raise_signal(signal.SIGINT)


sys.setprofile(press_once_there)
from s2e.cli import main

main()
"""
"""Runs s2e and presses Ctrl-C where "outer > inner" are first entered in this order, others in between or not."""

CTRL_C_AS_PYTHON_ENDS = """
import os, signal
from s2e.cli import main


class Last:
    def __del__(self, kill=os.kill, process=os.getpid(), by=signal.SIGINT):
        kill(process, by)


last = Last()
main()
"""


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


def here(*arguments: str) -> Result:
    """Run a command in this process, which has loaded torch already."""
    return CliRunner().invoke(app, arguments)


def finish(path: Path) -> Result:
    """Continue a run to its end."""
    done = here("search", "--resume", "--out", str(path))
    assert done.exit_code == 0, done.stderr
    return done


def stop(process: subprocess.Popen[str], when: Callable[[], bool], by: signal.Signals = signal.SIGKILL) -> str:
    """Stop a process as soon as something holds, and return what it said."""
    deadline = time.monotonic() + PATIENCE_S
    while not when():
        assert process.poll() is None, "it ended before it could be stopped"
        assert time.monotonic() < deadline
        time.sleep(0.001)
    process.send_signal(by)
    return process.communicate(timeout=PATIENCE_S)[1]


def complete(path: Path) -> int:
    """Trials told so far, seen from outside while the search goes on."""
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


def trials(path: Path) -> list[tuple[Any, ...]]:
    study = optuna.load_study(study_name="search", storage=Run(path).storage)
    return [(t.number, t.params, t.values, t.user_attrs, t.state) for t in study.trials]


def result(path: Path) -> dict[str, Any]:
    content = json.loads((path / "result.json").read_text())
    del content["seconds"]
    return content


def arrays(path: Path) -> dict[str, bytes]:
    return {
        f"{name}/{key}": array.tobytes()
        for name in ("curves.npz", "dynamics.npz")
        for key, array in np.load(path / name).items()
    }


def assert_same_run(one: Path, other: Path) -> None:
    assert trials(one) == trials(other)
    assert result(one) == result(other)
    assert arrays(one) == arrays(other)
    for name in ("schedule.json", "model.safetensors", "config.json"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    assert {entry.name for entry in one.iterdir()} == {entry.name for entry in other.iterdir()}


@pytest.fixture(scope="module")
def never_killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("never_killed") / "run"
    assert here("search", *SEARCH, "--out", str(path)).exit_code == 0
    return path


@pytest.fixture(scope="module")
def never_interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("never_interrupted") / "run"
    assert here("search", *SHORT_SEARCH, "--out", str(path)).exit_code == 0
    return path


@pytest.fixture
def copied(never_killed: Path, tmp_path: Path) -> Path:
    """A finished run to play with."""
    return Path(shutil.copytree(never_killed, tmp_path / "copied"))


# Killed


def test_a_search_killed_at_every_stage_ends_as_one_never_killed(never_killed: Path, tmp_path: Path) -> None:
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


def test_a_search_killed_at_random_moments_ends_as_one_never_killed(never_killed: Path, tmp_path: Path) -> None:
    path, moments = tmp_path / "run", random.Random(0)
    for start_or_resume in (begin, resume):
        process = start_or_resume(path)
        assert process.stderr is not None
        assert process.stderr.readline().startswith("search: ")  # it has begun to work
        stop(process, after(moments.uniform(0, 0.6)))
    finish(path)
    assert_same_run(path, never_killed)


# Interrupted


Ended = subprocess.CompletedProcess[str]


class CtrlC:
    """Runs s2e, by a module as `python -m s2e` does, and has Ctrl-C pressed at some point."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "within.py").write_text(CTRL_C_WITHIN)
        (folder / "as_python_ends.py").write_text(CTRL_C_AS_PYTHON_ENDS)

    def within(self, where: str, *arguments: str, once_loaded: str = "s2e") -> Ended:
        return self._run("within", once_loaded, where, *arguments)

    def as_python_ends(self, *arguments: str) -> Ended:
        return self._run("as_python_ends", *arguments)

    def _run(self, *arguments: str) -> Ended:
        command = [sys.executable, "-m", *arguments]
        return subprocess.run(
            command, cwd=self._folder, capture_output=True, text=True, env=ENVIRONMENT, timeout=PATIENCE_S
        )


@pytest.fixture
def ctrl_c(tmp_path_factory: pytest.TempPathFactory) -> CtrlC:
    return CtrlC(tmp_path_factory.mktemp("ctrl_c"))


def continued_by(path: Path) -> str:
    return f"s2e: interrupted; continue with: s2e search --resume --out {path}"


def test_an_interrupted_search_says_how_to_continue_it(never_killed: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    process = begin(path)
    assert process.stderr is not None
    while not process.stderr.readline().startswith("generation 1/2"):
        assert process.poll() is None
    said = stop(process, after(0.2), signal.SIGINT)  # while the second generation trains
    assert process.returncode == 130
    assert said == f"{continued_by(path)}\n"
    assert here(*said.rpartition("s2e ")[2].split()).exit_code == 0
    assert_same_run(path, never_killed)


WRITES = [  # and what becomes of a KeyboardInterrupt there:
    "create_new_trial > _flush > commit > close > values",  # SQLAlchemy raises another error, Optuna tries again
    "set_trial_state_values > _flush > commit > close > values",  # SQLAlchemy raises another error, Optuna a third
    "set_trial_state_values > _do_commit",  # SQLAlchemy raises an AssertionError instead
    "set_trial_state_values > _finalize_fairy > _reset",  # SQLAlchemy logs it with a traceback
    "set_trial_state_values > _cleanup",  # it is dropped: this is called back by a weak reference
    "write_arrays > _write > fsync",
]


@pytest.fixture(scope="module")
def interrupted_writes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Ended]]:
    """Searches that were interrupted in each of these writes; two at a time, since each is a process of one thread."""
    root = tmp_path_factory.mktemp("interrupted_writes")
    ctrl_c, paths = CtrlC(root), {where: root / str(place) for place, where in enumerate(WRITES)}

    def interrupt(where: str) -> tuple[Path, Ended]:
        arguments = ["search", *SHORT_SEARCH, "--out", str(paths[where])]
        return paths[where], ctrl_c.within(where, *arguments, once_loaded=LOADED_FOR_A_SEARCH)

    with ThreadPoolExecutor(2) as side_by_side:
        return dict(zip(WRITES, side_by_side.map(interrupt, WRITES), strict=True))


@pytest.mark.parametrize("where", WRITES)
def test_a_search_interrupted_in_the_middle_of_a_write_can_be_continued(
    interrupted_writes: dict[str, tuple[Path, Ended]], never_interrupted: Path, where: str
) -> None:
    path, interrupted = interrupted_writes[where]
    *progress, last = interrupted.stderr.splitlines()
    assert (interrupted.returncode, last) == (130, continued_by(path))
    assert all(line.startswith(("search: ", "generation ", "final training: ")) for line in progress)
    finish(path)
    assert_same_run(path, never_interrupted)


@pytest.mark.parametrize(
    "where",
    [
        "get_command",  # before typer minds exceptions
        "parse_args",  # typer exits without a word
        "search > cb",  # it is dropped: this is what a weak reference to the lock of an import calls back
        "search > namedtuple > <module>",  # in text that is evaluated: Python kills itself when it ends, come what may
    ],
)
def test_a_search_interrupted_as_it_starts_says_so_in_one_line(ctrl_c: CtrlC, tmp_path: Path, where: str) -> None:
    interrupted = ctrl_c.within(where, "search", *SHORT_SEARCH, "--out", str(tmp_path / "run"))
    assert (interrupted.returncode, interrupted.stderr) == (130, "s2e: interrupted\n")
    assert not (tmp_path / "run").exists()


def test_an_interrupt_after_all_is_done_changes_nothing(ctrl_c: CtrlC) -> None:
    done = ctrl_c.as_python_ends("datasets")
    assert (done.returncode, done.stderr) == (0, "")


def test_an_interrupt_that_is_ignored_stays_ignored(ctrl_c: CtrlC) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # processes started now ignore it, as behind an & in a script
    try:
        listed = ctrl_c.within("available", "datasets")
    finally:
        signal.signal(signal.SIGINT, before)
    assert (listed.returncode, listed.stderr) == (0, "")


def test_on_a_terminal_an_interrupt_is_told_below_the_bar_and_shows_the_cursor(tmp_path: Path) -> None:
    path = tmp_path / "run"
    ours, its = pty.openpty()
    command = [sys.executable, "-m", "s2e", "search", *SEARCH, "--out", str(path)]
    process = subprocess.Popen(command, stderr=its, env={**ENVIRONMENT, "TERM": "xterm"})
    os.close(its)
    shown = b""
    while b"generation 1/2" not in shown:
        shown += os.read(ours, 4096)
    process.send_signal(signal.SIGINT)
    while not shown.endswith(continued_by(path).encode() + b"\r\n"):
        shown += os.read(ours, 4096)  # fails when nothing more can come
    assert process.wait(PATIENCE_S) == 130
    os.close(ours)
    assert shown.rindex(b"\x1b[?25h\r\ns2e: interrupted") > shown.rindex(b"\x1b[?25l")


# Continued with other settings, or without need


def test_resuming_a_finished_run_trains_the_final_part_again_with_the_same_result(
    never_killed: Path, copied: Path
) -> None:
    (copied / "result.json").unlink()
    said = finish(copied).stderr
    assert "search: 0 epochs" in said
    assert f"final training: {EPOCHS} epochs" in said
    assert "trial" not in said
    assert_same_run(copied, never_killed)


def test_resuming_with_the_same_settings_spelt_out_is_the_same(never_killed: Path, copied: Path) -> None:
    assert here("search", *SEARCH, "--resume", "--out", str(copied)).exit_code == 0
    assert_same_run(copied, never_killed)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (["--epochs", "7"], f"epochs was {EPOCHS} and is now 7"),
        (["--noise", "pair:0.4"], "noise was 'pair:0.45' and is now 'pair:0.4'"),
        (["--sampler", "random"], "sampler was 'newton' and is now 'random'"),
        (["--seed", "1"], "seed was 0 and is now 1"),
        (["--generation", "8"], "generation was 4 and is now 8"),
        (["--validation-share", "0.1"], "validation_share was None and is now 0.1"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_resuming_with_another_setting_is_refused_by_its_name(
    never_killed: Path, copied: Path, setting: list[str], said: str
) -> None:
    refused = here("search", "--resume", "--out", str(copied), *setting)
    assert refused.exit_code == 2
    assert refused.stderr == f"s2e: {str(copied)!r} was made with other settings: {said}.\n"
    assert_same_run(copied, never_killed)


def test_resuming_with_several_other_settings_names_them_all(copied: Path) -> None:
    said = here("search", "--resume", "--out", str(copied), "--epochs", "7", "--batch-size", "64").stderr
    assert f"epochs was {EPOCHS} and is now 7; batch_size was 128 and is now 64" in said


def test_resuming_with_more_trials_goes_on_where_a_longer_search_would_be(copied: Path, tmp_path: Path) -> None:
    before = trials(copied)
    more = here("search", "--resume", "--out", str(copied), "--trials", "12")
    assert more.exit_code == 0
    assert [line.partition(":")[0] for line in more.stderr.splitlines() if line.startswith("generation")] == [
        "generation 3/3, trial 12/12"
    ]
    assert trials(copied)[:TRIALS] == before
    at_once = tmp_path / "at_once"
    assert here("search", *SEARCH, "--trials", "12", "--out", str(at_once)).exit_code == 0
    assert_same_run(copied, at_once)


def test_resuming_may_change_what_comes_after_the_search(copied: Path) -> None:
    assert here("search", "--resume", "--out", str(copied), "--baselines", "--restarts", "2").exit_code == 0
    rows = result(copied)["methods"]
    assert [row["name"] for row in rows] == ["Standard", "Co-teaching", "S2E"]
    assert [len(row["validation_of_restarts"]) for row in rows] == [2, 2, 2]
    assert len(trials(copied)) == TRIALS


def test_resuming_on_other_data_of_the_same_name_is_refused(tmp_path: Path) -> None:
    data, path = tmp_path / "own.npz", tmp_path / "run"
    own = blobs()
    np.savez(data, X=own.inputs, y=own.labels)
    tiny = ["--trials", "2", "--generation", "2", "--epochs", "2", "--batch-size", "64", "--restarts", "1"]
    assert here("search", str(data), *tiny, "--out", str(path)).exit_code == 0
    np.savez(data, X=own.inputs + 1, y=own.labels)
    refused = here("search", "--resume", "--out", str(path))
    assert refused.exit_code == 2
    assert "the data have changed since" in refused.stderr


# Nothing to resume


def refusal(*arguments: str) -> str:
    refused = here("search", "--resume", *arguments)
    assert refused.exit_code == 2
    assert refused.stderr.startswith("s2e: ")
    assert refused.stderr.count("\n") == 1
    return refused.stderr


def test_resuming_without_out_is_refused() -> None:
    assert "must come with --out" in refusal()
    assert "must come with --out" in refusal("digits")


def test_resuming_what_is_no_run_is_refused(tmp_path: Path) -> None:
    assert "holds no run" in refusal("--out", str(tmp_path))
    assert "holds no run" in refusal("--out", str(tmp_path / "nowhere"))
    assert not (tmp_path / "nowhere").exists()


def test_resuming_a_run_made_by_train_is_refused(tmp_path: Path) -> None:
    assert here("train", "digits", "--method", "standard", "--epochs", "1", "--out", str(tmp_path)).exit_code == 0
    before = {entry.name for entry in tmp_path.iterdir()}
    assert "was made by s2e train" in refusal("--out", str(tmp_path))
    assert {entry.name for entry in tmp_path.iterdir()} == before


def test_resuming_a_run_another_process_works_on_is_refused(copied: Path) -> None:
    with Run(copied).locked():  # a second handle on the file is refused within a process as between two
        assert "another process is working on" in refusal("--out", str(copied))


def test_a_damaged_study_is_refused(copied: Path) -> None:
    (copied / "study.db").write_bytes(b"no database" * 1000)
    assert "could not be opened" in refusal("--out", str(copied))


def test_a_damaged_config_is_refused(copied: Path) -> None:
    (copied / "config.json").write_text('{"command": "sea')
    assert "config.json' could not be read" in refusal("--out", str(copied))
