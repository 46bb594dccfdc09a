"""Searches killed with SIGKILL at random moments and at every file operation, and resumed: `make soak`."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy

import frequent_checkpoints
from command_line import ENVIRONMENT, s2e
from frequent_checkpoints import in_every_run
from stopped_searches import SEARCH, SHORT_SEARCH, assert_same_run, trials

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

KILLS, KILLS_OF_A_RUN = 50, 5
PATIENCE_S = 600
"""Time for a whole search on a busy machine."""

MORE = ["--trials", "6", "--restarts", "3"]
"""Other results of a search that is resumed."""

PROGRAM = """
import pytest
from frequent_checkpoints import in_every_run
from s2e.cli import main

in_every_run(pytest.MonkeyPatch())
main()
"""
"""Runs s2e with checkpoints after every epoch."""


def begin(path: Path) -> subprocess.Popen[bytes]:
    """Start a search or continue it, wherever it was killed; both are the same command."""
    importable = [str(Path(frequent_checkpoints.__file__).parent), ENVIRONMENT.get("PYTHONPATH", "")]
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "search", *SEARCH, "--resume", "--out", str(path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**ENVIRONMENT, "PYTHONPATH": os.pathsep.join(filter(None, importable))},
    )


def stage(path: Path) -> str:
    """Return how far a killed run had got."""
    if not (path / "config.json").exists():
        return "starting"
    if (path / "result.json").exists():
        return "finished"
    if (path / "schedule.json").exists():
        return "final training and writing"
    return "searching" if (path / "study.db").exists() else "making the study"


def test_fifty_kills_at_random_moments(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    began = time.monotonic()
    assert begin(tmp_path / "undisturbed").wait(PATIENCE_S) == 0
    duration = time.monotonic() - began
    moments, stages, runs = random.Random(0), Counter[str](), 0
    while stages.total() < KILLS:
        path = tmp_path / str(runs)
        finished = 0
        for _ in range(KILLS_OF_A_RUN):
            process = begin(path)
            time.sleep(moments.uniform(0, duration))
            if process.poll() is None:
                process.kill()
                stages[stage(path)] += 1
            process.wait()
            told = [t for t in trials(path) if t[-1].is_finished()] if (path / "study.db").exists() else []
            assert len(told) >= finished, "a finished trial was lost"
            finished = len(told)
            if stage(path) == "finished":
                break  # little is left to interrupt
        assert begin(path).wait(PATIENCE_S) == 0
        assert_same_run(path, tmp_path / "undisturbed")
        runs += 1
    by_stage = ", ".join(f"{count} {name}" for name, count in sorted(stages.items()))
    record_property("SIGKILL at random moments", f"{stages.total()} ({by_stage}) in {runs} runs, all equal")


def killed_at(operation: int, arguments: list[str]) -> bool:
    """Run s2e in a forked process that kills itself before its nth file operation; return whether it got there."""
    process = os.fork()
    if process:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL
    left = operation

    def count(*_: object) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def counted(real: Callable[..., object]) -> Callable[..., object]:
        def call(*given: object, **options: object) -> object:
            count()
            return real(*given, **options)

        return call

    for name in ("replace", "link", "mkdir", "unlink", "rmdir", "fsync"):
        setattr(os, name, counted(getattr(os, name)))
    sqlalchemy.event.listen(sqlalchemy.Engine, "commit", count)
    code = s2e(*arguments).exit_code
    os._exit(code)


def test_a_kill_at_every_file_operation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    in_every_run(monkeypatch)
    assert s2e("search", *SHORT_SEARCH, "--out", str(tmp_path / "undisturbed")).exit_code == 0
    operation = 0
    while killed_at(operation, ["search", *SHORT_SEARCH, "--out", str(path := tmp_path / str(operation))]):
        resumed = s2e("search", *SHORT_SEARCH, "--resume", "--out", str(path))
        assert resumed.exit_code == 0, (operation, resumed.stderr, resumed.exception)
        assert_same_run(path, tmp_path / "undisturbed")
        operation += 1
    assert operation > 20
    record_property("SIGKILL before a file operation or a commit", f"{operation}, all equal")


def test_a_longer_search_killed_at_every_rename_shows_old_or_new_results(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, record_property: Callable[[str, object], None]
) -> None:
    short, longer = SHORT_SEARCH, [*SHORT_SEARCH, *MORE]
    for name, arguments in (("old", short), ("new", longer)):
        assert s2e("search", *arguments, "--out", str(tmp_path / name)).exit_code == 0
    expected = {name: (tmp_path / name / "model.safetensors").read_bytes() for name in ("old", "new")}
    assert len(set(expected.values())) == 2
    seen, operation = Counter[str](), 0
    while True:
        path = tmp_path / f"{operation}"
        assert s2e("search", *short, "--out", str(path)).exit_code == 0
        if not killed_at(operation, ["search", "--resume", "--out", str(path), *MORE]):
            break
        caplog.clear()
        audited, reported = s2e("audit", str(path)), s2e("report", str(path))
        assert (audited.exit_code, reported.exit_code) == (0, 0)
        which = next(
            name
            for name in ("old", "new")
            if all(
                (path / file).read_bytes() == (tmp_path / name / file).read_bytes()
                for file in ("model.safetensors", "schedule.json", "encoding.json")
            )
        )
        assert ("was resumed and is not finished" in caplog.text) == (which == "old")
        seen[which] += 1
        operation += 1
    assert set(seen) == {"old", "new"}
    counts = ", ".join(f"{count} with the {name} results" for name, count in seen.items())
    record_property("SIGKILL in a resumed search with more trials", f"{operation}: {counts}, none with both")
