"""The run directory: atomic files, one run per directory, one process per run."""

from __future__ import annotations

import gc
import os
import stat
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from s2e.errors import InvalidInput, RunConflict, UnreadableData
from s2e.runs.directory import CONFIG, Run

LOCK = """
import sys
from s2e.errors import RunConflict
from s2e.runs.directory import Run
while True:
    try:
        with Run(sys.argv[1]).locked():
            print("locked", flush=True)
            sys.stdin.readline()
        print("released", flush=True)
    except RunConflict as problem:
        print("refused:", problem, flush=True)
    sys.stdin.readline()
"""


def names(run: Run) -> set[str]:
    return {entry.name for entry in run.path.iterdir()} - {".lock"}


def next_line(process: subprocess.Popen[str]) -> str:
    """Let a process that waits for a line continue, and return the next line it prints."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


@contextmanager
def locked_by_another_process(run: Run) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", LOCK, str(run.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline().strip() == "locked"
            yield holder
        finally:
            holder.kill()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", {"command": "search"})


# -------------------------------------------------------------------------------------------------------------- writing


class Crash(Exception):
    """Stands for the end of a process."""


@pytest.mark.parametrize("crash", [Crash, KeyboardInterrupt])
def test_crash_while_writing_leaves_the_old_file(run: Run, crash: type[BaseException]) -> None:
    run.write_json("result.json", {"old": True})
    before = names(run)

    def fill(handle) -> None:
        handle.write(b'{"new": ')
        handle.flush()
        assert run.read_json("result.json") == {"old": True}  # until the new one is complete
        raise crash

    for name in ("result.json", "new.json"):
        with pytest.raises(crash):
            run._write(name, fill)
    assert run.read_json("result.json") == {"old": True}
    assert names(run) == before


def test_content_that_is_not_json_leaves_the_old_file(run: Run) -> None:
    run.write_json("result.json", {"old": True})
    with pytest.raises(TypeError):
        run.write_json("result.json", {"new": object()})
    assert run.read_json("result.json") == {"old": True}


def test_files_are_readable_by_others(run: Run) -> None:
    run.write_json("result.json", {})
    assert stat.S_IMODE((run.path / "result.json").stat().st_mode) == 0o644


def test_stored_json_is_equal(run: Run) -> None:
    content = {"rate": 0.1 + 0.2, "none": None, "name": "Übung, 4 × 4", "list": [1, 2.5, True]}
    run.write_json("result.json", content)
    assert run.read_json("result.json") == content


@pytest.mark.parametrize("content", [None, b"", b'{"half": ', b"\xff"])
def test_missing_or_damaged_json_is_unreadable(run: Run, content: bytes | None) -> None:
    if content is not None:
        (run.path / "result.json").write_bytes(content)
    with pytest.raises(UnreadableData, match=r"result\.json"):
        run.read_json("result.json")


def test_stored_arrays_are_equal_and_need_no_pickle(run: Run) -> None:
    arrays = {
        "S2E/loss": np.linspace(0, 1, 7),
        "S2E/diverged": np.array(False),
        "seen": np.arange(12).reshape(3, 4),
        "names": np.array(["ä", "b"]),
    }
    run.write_arrays("curves.npz", arrays)
    with np.load(run.path / "curves.npz", allow_pickle=False) as stored:
        assert set(stored.files) == set(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(stored[name], array)
            assert stored[name].dtype == array.dtype


ARRAYS = {
    "loss": np.linspace(0, 1, 7).reshape(1, 7),
    "diverged": np.array([True, False]),
    "names": np.array(["x", "yz"]),
    "none": np.zeros((0, 3), dtype=np.float32),
}


every = pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow), 11])


def correct_or_unreadable(run: Run, content: bytes) -> str:
    """Read damaged arrays: they are correct, or an error names the file; other arrays are never returned."""
    (run.path / "curves.npz").write_bytes(content)
    try:
        read = run.read_arrays("curves.npz")
    except UnreadableData as problem:
        return "unreadable" if "curves.npz' could not be read" in str(problem) else f"no good message: {problem}"
    assert read.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(read[name], array, strict=True)
    return "correct"


@every
def test_any_changed_byte_gives_the_correct_arrays_or_an_error(run: Run, step: int) -> None:
    run.write_arrays("curves.npz", ARRAYS)
    whole = (run.path / "curves.npz").read_bytes()
    assert correct_or_unreadable(run, whole) == "correct"
    found = set()
    for index in range(0, len(whole), step):
        for flipped in {1 << index % 8, 255} - {0}:  # one bit, all bits
            changed = bytes([whole[index] ^ flipped])
            found.add(correct_or_unreadable(run, whole[:index] + changed + whole[index + 1 :]))
    assert found == {"correct", "unreadable"}  # some bytes, such as those of dates, are not used


LARGE = np.random.default_rng(0).normal(size=(1, 30000))
"""Larger than the buffer of the archive reader."""


def with_replaced_bytes(run: Run, save: Callable[..., None], old: bytes, new: bytes) -> Path:
    """Write a large array, and replace the last occurrence of some bytes in the file."""
    path = run.path / "curves.npz"
    with path.open("wb") as handle:
        save(handle, loss=LARGE)
    np.testing.assert_array_equal(run.read_arrays("curves.npz")["loss"], LARGE)
    before, found, after = path.read_bytes().rpartition(old)
    assert found
    path.write_bytes(before + new + after)
    return path


def test_array_with_too_small_a_size_is_found_by_its_checksum(run: Run) -> None:
    path = with_replaced_bytes(run, np.savez, b"(1, 30000)", b"(1, 10000)")
    with np.load(path) as stored:
        assert stored["loss"].shape == (1, 10000)  # NumPy alone does not detect it
    with pytest.raises(UnreadableData, match=r"curves\.npz"):
        run.read_arrays("curves.npz")


@pytest.mark.parametrize("kind", [9, 12, 99])
def test_compression_that_numpy_does_not_use_is_unreadable(run: Run, kind: int) -> None:
    listed = b"PK\x01\x02\x2d\x03\x2d\x00\x00\x00"
    with_replaced_bytes(run, np.savez_compressed, listed + b"\x08", listed + bytes([kind]))
    with pytest.raises(UnreadableData, match=r"curves\.npz"):
        run.read_arrays("curves.npz")


def test_array_that_is_missing_from_the_list_is_detected(run: Run) -> None:
    """The first entry of the list gets a comment as long as the second entry, which becomes part of it."""
    run.write_arrays("curves.npz", ARRAYS)
    whole = bytearray((run.path / "curves.npz").read_bytes())
    first = whole.index(b"PK\x01\x02")
    second = whole.index(b"PK\x01\x02", first + 4)
    whole[first + 32] = whole.index(b"PK\x01\x02", second + 4) - second
    assert correct_or_unreadable(run, bytes(whole)) == "unreadable"


@every
def test_truncated_arrays_are_unreadable_and_the_file_is_closed(run: Run, step: int) -> None:
    run.write_arrays("curves.npz", ARRAYS)
    whole = (run.path / "curves.npz").read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        assert {correct_or_unreadable(run, whole[:length]) for length in range(0, len(whole), step)} == {"unreadable"}
        gc.collect()


def test_npy_file_is_not_an_npz_file(run: Run) -> None:
    with (run.path / "curves.npz").open("wb") as handle:
        np.save(handle, ARRAYS["loss"])
    assert correct_or_unreadable(run, (run.path / "curves.npz").read_bytes()) == "unreadable"


def test_missing_or_empty_file_has_no_arrays(run: Run) -> None:
    assert run.read_arrays("curves.npz") == {}
    run.write_arrays("curves.npz", {})
    assert run.read_arrays("curves.npz") == {}


def test_arrays_that_need_pickle_are_refused(run: Run) -> None:
    with pytest.raises(InvalidInput, match="Python objects in bad"):
        run.write_arrays("curves.npz", {"bad": np.array([{}], dtype=object)})
    assert names(run) == {CONFIG}


def test_stored_weights_are_equal(run: Run) -> None:
    stacked = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4)
    state = {"network0.w": stacked[0].T, "network1.w": stacked[1], "network0.steps": torch.tensor(3)}
    run.write_weights("model.safetensors", state, {"classes": "a\nb"})
    loaded = load_file(run.path / "model.safetensors")
    assert loaded.keys() == state.keys()
    for name, tensor in state.items():
        assert torch.equal(loaded[name], tensor), name
    with safe_open(run.path / "model.safetensors", "pt") as stored:
        assert stored.metadata() == {"classes": "a\nb"}


# ------------------------------------------------------------------------------------------------- creating and opening


@pytest.mark.parametrize("path", ["a/b", "."])
def test_create_writes_the_config_into_a_new_or_empty_directory(tmp_path: Path, path: str) -> None:
    run = Run.create(tmp_path / path, {"command": "train"})
    assert names(run) == {CONFIG}
    assert Run.open(str(run.path)).read_json(CONFIG) == {"command": "train"}


def test_create_refuses_a_directory_with_a_run(run: Run) -> None:
    with pytest.raises(RunConflict, match=r"already holds a run.*--resume"):
        Run.create(run.path, {"command": "train"})
    assert run.read_json(CONFIG) == {"command": "search"}


def test_create_refuses_other_files(tmp_path: Path) -> None:
    file = tmp_path / "thesis.tex"
    file.write_text("precious")
    with pytest.raises(RunConflict, match="new or an empty directory"):
        Run.create(tmp_path, {})
    with pytest.raises(InvalidInput, match="must be a directory to write to"):
        Run.create(file, {})
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("thesis.tex", "precious")]


@pytest.mark.parametrize("what", ["missing", "empty", "file"])
def test_open_refuses_a_path_without_a_run(tmp_path: Path, what: str) -> None:
    path = tmp_path / "run"
    if what == "empty":
        path.mkdir()
    elif what == "file":
        path.write_text("")
    with pytest.raises(UnreadableData, match="holds no run"):
        Run.open(path)


def test_storage_is_an_absolute_path(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.path.parent)
    assert Run("run").storage == f"sqlite:///{run.path.resolve()}/study.db"


# ----------------------------------------------------------------------------------------------------------------- lock


def test_lock_excludes_other_processes_until_it_is_released_or_its_process_is_killed(run: Run) -> None:
    with locked_by_another_process(run) as holder:
        with pytest.raises(RunConflict, match="another process"), run.locked():
            pass
        assert next_line(holder) == "released"
        with run.locked():
            assert next_line(holder).startswith("refused: another process is working on")
        assert next_line(holder) == "locked"
        holder.kill()
        holder.wait()
        with run.locked():
            pass


def test_lock_is_released_after_an_error_and_removes_temporary_files(run: Run) -> None:
    with pytest.raises(Crash), run.locked():
        raise Crash
    (run.path / ".curves.npz.x.tmp").write_bytes(b"half")
    with run.locked():
        assert names(run) == {CONFIG}


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_lock_that_is_no_regular_file_is_refused_and_nothing_is_written_through_it(
    run: Run, tmp_path: Path, kind: str
) -> None:
    target, lock = tmp_path / "target", run.path / ".lock"
    target.write_text("kept")
    lock.unlink(missing_ok=True)
    {"link": lambda: lock.symlink_to(target), "pipe": lambda: os.mkfifo(lock), "folder": lock.mkdir}[kind]()
    with pytest.raises(UnreadableData, match="must be a regular file"), run.locked():
        pass
    assert target.read_text() == "kept"


def test_links_in_a_run_neither_move_nor_remove_files_outside(run: Run, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("kept")
    for name in (".left.tmp", ".unfinished"):
        (run.path / name).symlink_to(outside)
    with run.locked():
        run.mark_unfinished()
    (run.path / ".results").symlink_to(outside)
    with pytest.raises(UnreadableData, match="is a link"):
        Run.open(run.path)
    (run.path / "checkpoints").symlink_to(outside)
    with pytest.raises(UnreadableData, match="is a link"), run.locked():
        pass
    assert [path.name for path in outside.iterdir()] == ["file"]
