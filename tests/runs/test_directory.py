"""The run directory: whole files or none, one run in a directory, one process at work in it."""

from __future__ import annotations

import gc
import json
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

HOLD_THE_LOCK = """
import sys
from s2e.runs.directory import Run
with Run(sys.argv[1]).locked():
    print("locked", flush=True)
    sys.stdin.readline()
print("released", flush=True)
sys.stdin.readline()
"""

TRY_THE_LOCK = """
import sys
from s2e.errors import RunConflict
from s2e.runs.directory import Run
try:
    with Run(sys.argv[1]).locked():
        print("admitted")
except RunConflict as problem:
    print("refused:", problem)
"""


def names(run: Run) -> set[str]:
    return {entry.name for entry in run.path.iterdir()}


def python(script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def say_on(process: subprocess.Popen[str]) -> str:
    """Let a process that waits for a line go on, and return what it says next."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


@contextmanager
def another_process_holding(run: Run) -> Iterator[subprocess.Popen[str]]:
    with python(HOLD_THE_LOCK, str(run.path)) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline().strip() == "locked"
            yield holder
        finally:
            holder.kill()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", {"command": "search"})


# Writing


class Crash(Exception):
    """What stands for a process that dies."""


@pytest.mark.parametrize("death", [Crash, KeyboardInterrupt, SystemExit])
def test_a_crash_while_writing_leaves_the_old_file_and_no_temporary(run: Run, death: type[BaseException]) -> None:
    run.write_json("result.json", {"old": True})
    before = names(run)

    def fill(handle) -> None:
        handle.write(b'{"new": ')
        handle.flush()
        raise death

    with pytest.raises(death):
        run._write("result.json", fill)
    assert run.read_json("result.json") == {"old": True}
    assert names(run) == before


def test_a_crash_while_writing_a_new_file_leaves_no_file(run: Run) -> None:
    def fill(handle) -> None:
        handle.write(b"half")
        raise Crash

    with pytest.raises(Crash):
        run._write("curves.npz", fill)
    assert names(run) == {CONFIG}


def test_the_old_file_is_there_until_the_new_one_is_whole(run: Run) -> None:
    run.write_json("result.json", {"old": True})
    seen = []

    def fill(handle) -> None:
        handle.write(b'{"new": true}')
        handle.flush()
        seen.append(run.read_json("result.json"))

    run._write("result.json", fill)
    assert seen == [{"old": True}]
    assert run.read_json("result.json") == {"new": True}


def test_content_that_is_no_json_leaves_the_old_file(run: Run) -> None:
    run.write_json("result.json", {"old": True})
    with pytest.raises(TypeError):
        run.write_json("result.json", {"new": object()})
    assert run.read_json("result.json") == {"old": True}


def test_files_can_be_read_by_others(run: Run) -> None:
    run.write_json("result.json", {})
    assert stat.S_IMODE((run.path / "result.json").stat().st_mode) == 0o644


def test_json_comes_back_as_it_was_written(run: Run) -> None:
    content = {"rate": 0.1 + 0.2, "none": None, "name": "Übung, 4 × 4", "list": [1, 2.5, True]}
    run.write_json("result.json", content)
    assert run.read_json("result.json") == content


@pytest.mark.parametrize("content", ["", '{"half": ', "\udcff"])
def test_a_damaged_json_file_is_unreadable_data_and_named(run: Run, content: str) -> None:
    (run.path / "result.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(UnreadableData, match=r"result\.json"):
        run.read_json("result.json")


def test_a_missing_json_file_is_unreadable_data(run: Run) -> None:
    with pytest.raises(UnreadableData, match=r"result\.json"):
        run.read_json("result.json")


def test_arrays_come_back_without_pickle_under_their_own_names_only(run: Run) -> None:
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


def right_or_unreadable(run: Run, content: bytes) -> str:
    """Read damaged arrays: they are the right ones, or an error that names the file, but never others."""
    (run.path / "curves.npz").write_bytes(content)
    try:
        read = run.read_arrays("curves.npz")
    except UnreadableData as problem:
        return "unreadable" if "curves.npz' could not be read" in str(problem) else f"no good message: {problem}"
    assert read.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(read[name], array, strict=True)
    return "right"


def test_a_byte_that_is_flipped_anywhere_gives_the_right_arrays_or_an_error(run: Run) -> None:
    run.write_arrays("curves.npz", ARRAYS)
    whole = (run.path / "curves.npz").read_bytes()
    assert right_or_unreadable(run, whole) == "right"
    found = set()
    for place in range(len(whole)):
        for flipped in {1 << place % 8, 255, whole[place]} - {0}:  # a bit, all bits, and those that are set
            changed = bytes([whole[place] ^ flipped])
            found.add(right_or_unreadable(run, whole[:place] + changed + whole[place + 1 :]))
    assert found == {"right", "unreadable"}  # some bytes, such as those of dates, mean nothing here


LARGE = np.random.default_rng(0).normal(size=(1, 30000))
"""Larger than what the reader of an archive takes at once."""


def large(run: Run, save: Callable[..., None], old: bytes, new: bytes) -> Path:
    """Write a large array with something in the file replaced, in the last place where it stands."""
    path = run.path / "curves.npz"
    with path.open("wb") as handle:
        save(handle, loss=LARGE)
    np.testing.assert_array_equal(run.read_arrays("curves.npz")["loss"], LARGE)
    before, found, after = path.read_bytes().rpartition(old)
    assert found
    path.write_bytes(before + new + after)
    return path


def test_an_array_said_to_be_smaller_than_it_is_is_found_by_its_checksum(run: Run) -> None:
    path = large(run, np.savez, b"(1, 30000)", b"(1, 10000)")
    with np.load(path) as stored:
        assert stored["loss"].shape == (1, 10000)  # NumPy alone does not notice
    with pytest.raises(UnreadableData, match=r"curves\.npz"):
        run.read_arrays("curves.npz")


@pytest.mark.parametrize("kind", [9, 12, 14, 93, 99])
def test_a_kind_of_compression_that_numpy_does_not_use_is_an_error(run: Run, kind: int) -> None:
    listed = b"PK\x01\x02\x2d\x03\x2d\x00\x00\x00"
    large(run, np.savez_compressed, listed + b"\x08", listed + bytes([kind]))
    with pytest.raises(UnreadableData, match=r"curves\.npz"):
        run.read_arrays("curves.npz")


def test_an_array_that_is_missing_from_the_list_is_missed(run: Run) -> None:
    """The first entry of the list is given a comment as long as the second entry, which it swallows."""
    run.write_arrays("curves.npz", ARRAYS)
    whole = bytearray((run.path / "curves.npz").read_bytes())
    first = whole.index(b"PK\x01\x02")
    second = whole.index(b"PK\x01\x02", first + 4)
    whole[first + 32] = whole.index(b"PK\x01\x02", second + 4) - second
    assert right_or_unreadable(run, bytes(whole)) == "unreadable"


def test_arrays_that_are_cut_short_are_an_error_and_the_file_is_closed(run: Run) -> None:
    run.write_arrays("curves.npz", ARRAYS)
    whole = (run.path / "curves.npz").read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        assert {right_or_unreadable(run, whole[:length]) for length in range(len(whole))} == {"unreadable"}
        gc.collect()


def test_one_array_alone_is_not_taken_for_a_file_of_arrays(run: Run) -> None:
    with (run.path / "curves.npz").open("wb") as handle:
        np.save(handle, ARRAYS["loss"])
    assert right_or_unreadable(run, (run.path / "curves.npz").read_bytes()) == "unreadable"


def test_arrays_that_are_not_there_yet_and_a_file_without_any_are_both_none(run: Run) -> None:
    assert run.read_arrays("curves.npz") == {}
    run.write_arrays("curves.npz", {})
    assert run.read_arrays("curves.npz") == {}


def test_arrays_that_need_pickle_are_refused_and_leave_nothing(run: Run) -> None:
    with pytest.raises(InvalidInput, match="Python objects in bad"):
        run.write_arrays("curves.npz", {"bad": np.array([{}], dtype=object)})
    assert names(run) == {CONFIG}


def test_weights_come_back_from_safetensors(run: Run) -> None:
    stacked = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4)
    state = {"network0.w": stacked[0].T, "network1.w": stacked[1], "network0.steps": torch.tensor(3)}
    run.write_weights("model.safetensors", state, {"classes": "a\nb"})
    loaded = load_file(run.path / "model.safetensors")
    assert loaded.keys() == state.keys()
    for name, tensor in state.items():
        assert torch.equal(loaded[name], tensor), name
    with safe_open(run.path / "model.safetensors", "pt") as stored:
        assert stored.metadata() == {"classes": "a\nb"}


# Creating and opening


def test_create_writes_the_config_into_a_new_directory_and_its_parents(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "a" / "b", {"command": "train"})
    assert run.exists
    assert names(run) == {CONFIG}
    assert json.loads((tmp_path / "a" / "b" / CONFIG).read_text()) == {"command": "train"}


def test_create_takes_an_empty_directory(tmp_path: Path) -> None:
    assert Run.create(tmp_path, {}).exists


def test_create_refuses_a_directory_with_another_run_and_says_how_to_go_on(run: Run) -> None:
    with pytest.raises(RunConflict, match=r"already holds a run.*--resume"):
        Run.create(run.path, {"command": "train"})
    assert run.read_json(CONFIG) == {"command": "search"}


def test_create_refuses_a_directory_with_something_else_in_it(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(RunConflict, match="new or an empty directory"):
        Run.create(tmp_path, {})
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


def test_create_refuses_a_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("precious")
    with pytest.raises(InvalidInput, match="must be a directory to write to"):
        Run.create(file, {})
    assert file.read_text() == "precious"


@pytest.mark.parametrize("what", ["missing", "empty", "file"])
def test_open_refuses_what_holds_no_run(tmp_path: Path, what: str) -> None:
    path = tmp_path / "run"
    if what == "empty":
        path.mkdir()
    elif what == "file":
        path.write_text("")
    with pytest.raises(UnreadableData, match="holds no run"):
        Run.open(path)


def test_open_finds_what_create_made(run: Run) -> None:
    assert Run.open(str(run.path)).read_json(CONFIG) == {"command": "search"}


def test_the_study_lies_in_the_directory_wherever_the_process_works(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.path.parent)
    assert Run("run").storage == f"sqlite:///{run.path.resolve()}/study.db"


# The lock


def test_a_second_process_is_refused_while_the_first_works_and_admitted_afterwards(run: Run) -> None:
    with another_process_holding(run) as holder:
        assert python(TRY_THE_LOCK, str(run.path)).communicate()[0].startswith("refused: another process is working on")
        with pytest.raises(RunConflict, match="another process"), run.locked():
            pass
        assert say_on(holder) == "released"
        assert python(TRY_THE_LOCK, str(run.path)).communicate()[0].strip() == "admitted"
        with run.locked():
            pass


def test_the_lock_of_a_killed_process_is_free(run: Run) -> None:
    with another_process_holding(run) as holder:
        holder.kill()
        holder.wait()
        with run.locked():
            pass


def test_the_lock_is_free_after_an_exception(run: Run) -> None:
    with pytest.raises(Crash), run.locked():
        raise Crash
    with run.locked():
        pass
