"""Full disks, deleted directories, too little memory and failing databases: one line that says how to continue."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from command_line import ENVIRONMENT, TINY_SEARCH, s2e, save
from s2e.cli.environment_faults import environment_fault
from stopped_searches import SEARCH, SHORT_SEARCH, TIMEOUT_S, assert_same_run, finish


def caught(fail: Callable[[], object]) -> Exception:
    try:
        fail()
    except Exception as problem:
        return problem
    raise AssertionError("it did not fail")


def disk_full() -> None:
    with open("/dev/full", "w") as file:
        file.write("content")


def disk_full_in_an_archive() -> None:
    with open("/dev/full", "wb", buffering=0) as file:
        np.savez_compressed(file, array=np.zeros(1000))


def closed_after_a_full_disk() -> None:
    try:
        disk_full()
    except OSError:
        raise ValueError("Can't close the file")  # noqa: B904  # as archives do


def failing_database() -> None:
    with sqlalchemy.create_engine("sqlite:////no/such/directory/study.db").connect():
        pass


def failing_database_of_optuna() -> None:
    problem = caught(failing_database)
    raise RuntimeError("An exception is raised during the commit.") from problem


@pytest.mark.parametrize(
    ("fail", "fault"),
    [
        (disk_full, "No space left on device"),
        (disk_full_in_an_archive, "No space left on device"),
        (closed_after_a_full_disk, "No space left on device"),
        (lambda: Path("/no/such/file").read_text(), "No such file or directory: '/no/such/file'"),
        (lambda: np.empty(10**15), "out of memory (Unable to allocate"),
        (lambda: torch.empty(10**15), "out of memory ("),
        (failing_database, "the database of the study failed: unable to open database file"),
        (failing_database_of_optuna, "the database of the study failed: unable to open database file"),
        (lambda: sqlite3.connect("/no/such/study.db"), "the database of the study failed: unable to open"),
        (lambda: save_file({"x": torch.zeros(9)}, "/no/such/file"), "No such file or directory"),
    ],
)
def test_faults_of_the_environment_are_named(fail: Callable[[], object], fault: str) -> None:
    found = environment_fault(caught(fail))
    assert found is not None
    assert fault in found
    assert "\n" not in found


@pytest.mark.parametrize(
    "problem",
    [ValueError("a bug"), RuntimeError("shapes differ"), SafetensorError("header"), BrokenPipeError(errno.EPIPE)],
)
def test_other_errors_are_none(problem: Exception) -> None:
    assert environment_fault(problem) is None


def test_an_error_after_a_handled_one_is_none() -> None:
    def bug() -> None:
        try:
            Path("/no/such/file").read_text()
        except OSError:
            raise KeyError("a bug")  # noqa: B904

    assert environment_fault(caught(bug)) is None


HUGE = ["--network", "mlp:widths=900000-900000"]
"""Weights of three terabytes."""


def test_out_of_memory_is_one_line(work: Path) -> None:
    failed = s2e("search", save(), *TINY_SEARCH, *HUGE, "--out", "run")
    assert failed.exit_code == 1
    assert failed.stderr.startswith("s2e: out of memory (")
    assert failed.stderr.count("\n") == 1


def test_debug_shows_the_traceback(work: Path) -> None:
    failed = s2e("search", save(), *TINY_SEARCH, *HUGE, "--out", "run", "--debug")
    assert isinstance(failed.exception, (RuntimeError, MemoryError))
    assert failed.stderr == ""


# ---------------------------------------------------------------------------------------------------- in real processes


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("undisturbed") / "run"
    assert s2e("search", *SHORT_SEARCH, "--out", str(path)).exit_code == 0
    return path


def start(*arguments: str, before: Callable[[], None] | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "s2e", *arguments], stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, preexec_fn=before
    )


def last_line(process: subprocess.Popen[str]) -> str:
    printed = process.communicate(timeout=TIMEOUT_S)[1]
    assert process.returncode == 1, printed
    assert "Traceback" not in printed
    return printed.splitlines()[-1]


@pytest.mark.parametrize("arguments", [("datasets",), ("search", "--help"), ("--version",)])
def test_a_full_disk_behind_standard_output_is_one_line(arguments: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "s2e", *arguments], stdout=full, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
        )
    assert (ended.returncode, ended.stderr) == (1, "s2e: No space left on device\n")


def test_text_that_the_encoding_of_the_terminal_lacks_is_written_as_escapes() -> None:
    imports = "from s2e.cli import app, main; from s2e.cli.terminal import say"
    program = f"{imports}; app.command('names')(lambda: say('猫 5 µs')); main()"
    environment = {**ENVIRONMENT, "PYTHONIOENCODING": "latin-1"}
    ended = subprocess.run([sys.executable, "-c", program, "names"], capture_output=True, env=environment)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, rb"\u732b 5 " + "µs\n".encode("latin-1"), b"")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system that search fills while it writes its results."""
    path = tmp_path / "disk"
    path.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", path], capture_output=True).returncode:
        pytest.skip("only root can make a file system")
    yield path
    subprocess.run(["umount", "--lazy", path], check=True)  # a process that was ended may not have closed all files


@pytest.mark.slow
def test_a_full_or_read_only_disk_leaves_a_run_to_continue(small_disk: Path, undisturbed: Path) -> None:
    path = small_disk / "run"
    hint = f"; continue with: s2e search --resume --out {path}"
    printed = last_line(start("search", *SHORT_SEARCH, "--out", str(path)))
    assert "No space left on device" in printed or "disk is full" in printed  # of a file, or of the database
    assert printed.endswith(hint)
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    printed = last_line(start("search", "--resume", "--out", str(path)))
    assert printed == f"s2e: Read-only file system: {str(path / '.lock')!r}{hint}"
    subprocess.run(["mount", "-o", "remount,rw,size=10m", small_disk], check=True)
    finish(path)
    assert_same_run(path, undisturbed)


@pytest.mark.slow
def test_a_limit_on_the_size_of_files_leaves_a_run_to_continue(tmp_path: Path, undisturbed: Path) -> None:
    path = tmp_path / "run"
    limited = start(
        "search",
        *SHORT_SEARCH,
        "--out",
        str(path),
        before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (120_000, 120_000)),
    )
    assert last_line(limited).endswith(f"; continue with: s2e search --resume --out {path}")
    finish(path)
    assert_same_run(path, undisturbed)


@pytest.mark.slow
def test_a_deleted_directory_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "run"
    process = start("search", *SEARCH, "--out", str(path))
    assert process.stderr is not None
    while not process.stderr.readline().startswith("generation 1/2"):
        assert process.poll() is None
    shutil.rmtree(path)
    printed = last_line(process)
    assert printed.startswith("s2e: ")
    assert "--resume" not in printed
    assert not os.path.exists(path)
