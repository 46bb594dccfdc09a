"""Searches that are interrupted in the middle of a write or an import: one line is printed, and nothing is lost."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from command_line import ENVIRONMENT, s2e
from stopped_searches import SEARCH, SHORT_SEARCH, TIMEOUT_S, assert_same_run, finish, resume_message

pytestmark = pytest.mark.slow

LOADED_FOR_A_SEARCH = "s2e.workflows.search pandas sklearn.datasets alembic.command"
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


Ended = subprocess.CompletedProcess[str]


class CtrlC:
    """Runs s2e in a process and presses Ctrl-C at some point."""

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
            command, cwd=self._folder, capture_output=True, text=True, env=ENVIRONMENT, timeout=TIMEOUT_S
        )


@pytest.fixture
def ctrl_c(tmp_path_factory: pytest.TempPathFactory) -> CtrlC:
    return CtrlC(tmp_path_factory.mktemp("ctrl_c"))


@pytest.fixture(scope="module")
def never_interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("never_interrupted") / "run"
    assert s2e("search", *SHORT_SEARCH, "--out", str(path)).exit_code == 0
    return path


WRITES = [  # and what becomes of a KeyboardInterrupt there:
    "create_new_trial > _flush > commit > close > values",  # SQLAlchemy raises another error, Optuna tries again
    "set_trial_state_values > _flush > commit > close > values",  # SQLAlchemy raises another error, Optuna a third
    "set_trial_state_values > _do_commit",  # SQLAlchemy raises an AssertionError instead
    "set_trial_state_values > _finalize_fairy > _reset",  # SQLAlchemy logs it with a traceback
    "set_trial_state_values > _cleanup",  # dropped: called by a weak reference
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
def test_a_search_interrupted_during_a_write_can_be_resumed(
    interrupted_writes: dict[str, tuple[Path, Ended]], never_interrupted: Path, where: str
) -> None:
    path, interrupted = interrupted_writes[where]
    *progress, last = interrupted.stderr.splitlines()
    assert (interrupted.returncode, last) == (130, resume_message(path))
    assert all(line.startswith(("search: ", "generation ", "final training: ")) for line in progress)
    finish(path)
    assert_same_run(path, never_interrupted)


@pytest.mark.parametrize(
    "where",
    [
        "get_command",  # before typer handles exceptions
        "parse_args",  # typer exits silently
        "search > cb",  # dropped: called by a weak reference to an import lock
        "search > namedtuple > <module>",  # in text that is evaluated: Python ends by the signal in any case
    ],
)
def test_an_interruption_at_the_start_prints_one_line(ctrl_c: CtrlC, tmp_path: Path, where: str) -> None:
    interrupted = ctrl_c.within(where, "search", *SHORT_SEARCH, "--out", str(tmp_path / "run"))
    assert (interrupted.returncode, interrupted.stderr) == (130, "s2e: interrupted\n")
    assert not (tmp_path / "run").exists()


def test_an_interruption_after_the_end_changes_nothing(ctrl_c: CtrlC) -> None:
    done = ctrl_c.as_python_ends("datasets")
    assert (done.returncode, done.stderr) == (0, "")


def test_an_ignored_interruption_stays_ignored(ctrl_c: CtrlC) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # processes started now ignore it, as behind an & in a script
    try:
        listed = ctrl_c.within("available", "datasets")
    finally:
        signal.signal(signal.SIGINT, before)
    assert (listed.returncode, listed.stderr) == (0, "")


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_on_a_terminal_the_line_is_below_the_bar_and_the_cursor_is_shown(tmp_path: Path, by: signal.Signals) -> None:
    path = tmp_path / "run"
    ours, its = pty.openpty()
    command = [sys.executable, "-m", "s2e", "search", *SEARCH, "--out", str(path)]
    process = subprocess.Popen(command, stderr=its, env={**ENVIRONMENT, "TERM": "xterm"})
    os.close(its)
    shown = b""
    while b"generation 1/2" not in shown:
        shown += os.read(ours, 4096)
    process.send_signal(by)
    while not shown.endswith(resume_message(path, by).encode() + b"\r\n"):
        shown += os.read(ours, 4096)  # fails when nothing more can come
    assert process.wait(TIMEOUT_S) == 128 + by
    os.close(ours)
    assert shown.rindex(b"\x1b[?25h\r\ns2e: interrupted") > shown.rindex(b"\x1b[?25l")
