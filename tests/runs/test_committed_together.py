"""Files of a result that are committed together: a process killed at any time leaves all old or all new ones."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from s2e.errors import UnreadableData
from s2e.runs.directory import COMMITTED, UNFINISHED, Run

FILES = ("curves.npz", "model.safetensors", "result.json")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run.create(tmp_path / "run", {"command": "search"})
    write(run, "old")
    return run


def write(run: Run, content: str) -> None:
    run.mark_unfinished()
    with run.committed_together():
        for name in FILES:
            run.write_text(name, content)


def contents(run: Run) -> set[str]:
    return {(run.path / name).read_text() for name in FILES}


def killed_at(operation: int, body: Callable[[], None]) -> bool:
    """Run the body in another process that ends at its nth rename, made directory or removed file; return if it did."""
    process = os.fork()
    if process == 0:
        left = operation

        def counted(real: Callable[..., None]) -> Callable[..., None]:
            def call(*arguments: object, **options: object) -> None:
                nonlocal left
                left -= 1
                if left < 0:
                    os._exit(9)
                real(*arguments, **options)

            return call

        os.replace, os.mkdir, os.unlink, os.rmdir = map(counted, (os.replace, os.mkdir, os.unlink, os.rmdir))  # type: ignore[assignment]
        body()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 9


@pytest.mark.parametrize("recovered", ["opened", "locked"])
def test_a_process_killed_at_any_operation_leaves_all_old_or_all_new_files(run: Run, recovered: str) -> None:
    seen, operation = [], 0
    while killed_at(operation, lambda: write(run, "new")):
        if recovered == "opened":
            Run.open(run.path)
        with run.locked():
            found = contents(run)
        assert len(found) == 1
        assert (run.path / UNFINISHED).exists() == (found == {"old"})
        seen += found
        operation += 1
        write(run, "old")
    assert contents(run) == {"new"}
    assert seen == sorted(seen, reverse=True), "the old files before the commit, the new ones after it"
    assert set(seen) == {"old", "new"}
    assert {entry.name for entry in run.path.iterdir()} == {*FILES, ".lock", "config.json"}


def test_an_error_leaves_the_old_files(run: Run) -> None:
    with suppress(TypeError), run.committed_together():
        run.write_text("curves.npz", "new")
        run.write_json("result.json", {"new": object()})
    assert contents(run) == {"old"}
    run.write_text("curves.npz", "other")
    assert (run.path / "curves.npz").read_text() == "other"


def test_a_resumed_run_that_is_not_finished_is_reported(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    Run.open(run.path)
    assert caplog.records == []
    run.mark_unfinished()
    Run.open(run.path, resuming=True)
    assert caplog.records == []
    Run.open(run.path)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "was resumed and is not finished" in caplog.text


def test_results_that_cannot_be_moved_are_reported(run: Run) -> None:
    (run.path / COMMITTED).mkdir()
    (run.path / COMMITTED / "figures").write_text("new")
    (run.path / "figures").mkdir()
    with pytest.raises(UnreadableData, match="is not finished"):
        Run.open(run.path)
