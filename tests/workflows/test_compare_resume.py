"""Comparisons that are killed and resumed, with the same methods or others: the result is that of one never killed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comparisons import (
    EPOCHS,
    NOISES,
    Killed,
    Trainings,
    compared,
    correct_labels,
    options,
    outcomes,
    rows,
    save,
    unknown_noise,
    without_figures,
)
from frequent_checkpoints import Killed as KilledInEpoch
from frequent_checkpoints import in_every_run, kill_at
from listeners import Log
from s2e.callbacks import FunctionCallback
from s2e.errors import InvalidInput, RunConflict, UnreadableData
from s2e.methods import JoCoR, MentorNet
from s2e.runs.directory import Run
from s2e.runs.session import RunLocation
from s2e.specs import CompareOptions
from s2e.workflows.compare import compare
from s2e.workflows.progress import CallbackListener
from small_runs import contents, file_names, result
from small_tasks import blobs

_quick = pytest.fixture(without_figures, scope="module", autouse=True)
data = pytest.fixture(correct_labels, scope="module")
own = pytest.fixture(unknown_noise, scope="module")

METHODS = ("standard", "mentornet", "f-correction", "s2e")


@pytest.fixture(scope="module")
def never_killed(data: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return compared(options(data, *METHODS, noises=NOISES), tmp_path_factory.mktemp("never_killed") / "run")


@pytest.fixture
def copied(never_killed: Run, tmp_path: Path) -> Run:
    return Run(shutil.copytree(never_killed.path, tmp_path / "copied"))


def assert_same_comparison(one: Run, other: Run) -> None:
    assert {**result(one), "seconds": 0} == {**result(other), "seconds": 0}
    assert file_names(one) == file_names(other)
    for name in (name for name in file_names(one) if name.endswith((".csv", ".json")) and name != "result.json"):
        assert (one.path / name).read_bytes() == (other.path / name).read_bytes(), name
    np.testing.assert_equal(one.read_arrays("transitions.npz"), other.read_arrays("transitions.npz"))


def killed(given: CompareOptions, path: Path, after: int, *, resume: bool = False) -> list[int]:
    """Kill a comparison before the population after `after` others; return the sizes of these."""
    with pytest.MonkeyPatch.context() as patched:
        trainings = Trainings(patched, after)
        with pytest.raises(Killed):
            compared(given, path, resume=resume)
        return trainings.sizes


def resumed(given: CompareOptions, path: Path, log: Log | None = None) -> tuple[Run, Trainings]:
    with pytest.MonkeyPatch.context() as patched:
        trainings = Trainings(patched)
        return compared(given, path, log, resume=True), trainings


# ------------------------------------------------------------------------------------------------ killed


def test_comparison_killed_after_every_population_trains_nothing_twice(
    never_killed: Run, data: str, tmp_path: Path
) -> None:
    given, path = options(data, *METHODS, noises=NOISES), tmp_path / "run"
    assert killed(given, path, 2) == [8, 4]
    assert killed(given, path, 0, resume=True) == []
    assert killed(given, path, 1, resume=True) == [2]  # a trial of each setting
    assert killed(given, path, 1, resume=True) == [2]
    assert not (path / "result.json").exists()
    run, trainings = resumed(given, path)
    assert trainings.sizes == [4]
    assert_same_comparison(run, never_killed)


def test_first_population_survives_the_second(never_killed: Run, data: str, tmp_path: Path) -> None:
    given = options(data, *METHODS, noises=NOISES)
    killed(given, tmp_path / "run", 1)
    assert {method for _, method, _ in outcomes(Run(tmp_path / "run"))} == {"standard", "mentornet"}
    run, trainings = resumed(given, tmp_path / "run")
    assert trainings.sizes == [4, 2, 2, 4]  # the transition matrices are stored too
    assert_same_comparison(run, never_killed)


def test_comparison_killed_within_populations_continues_there(
    never_killed: Run, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    in_every_run(monkeypatch)
    given, path = options(data, *METHODS, noises=NOISES), tmp_path / "run"
    for session, call in enumerate([2, 4, 4]):  # in the first stage, in the second, in the search
        with pytest.raises(KilledInEpoch):
            compare(
                given,
                RunLocation(path),
                CallbackListener([FunctionCallback(on_epoch=kill_at(call))]),
                resume=session > 0,
            )
    run = compared(given, path, resume=True)
    assert [record.args for record in caplog.records] == [(8, 1, EPOCHS), (4, 1, EPOCHS), (2, 1, EPOCHS)]
    assert_same_comparison(run, never_killed)


@pytest.mark.slow
def test_noisy_validation_continues_with_the_setting_it_was_killed_in(data: str, tmp_path: Path) -> None:
    given = options(data, "standard", "s2e", validation="noisy")
    expected = compared(given, tmp_path / "whole")
    assert killed(given, tmp_path / "run", 4) == [1, 1, 1, 1]
    run, trainings = resumed(given, tmp_path / "run")
    assert trainings.sizes == [1, 1]
    assert_same_comparison(run, expected)


def test_comparison_killed_while_writing_trains_nothing(never_killed: Run, data: str, tmp_path: Path) -> None:
    given, write = options(data, *METHODS, noises=NOISES), Run._write

    def killed_writing(run: Run, name: str, fill: Callable[..., object]) -> None:
        if name == "result.json":
            raise Killed
        write(run, name, fill)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Run, "_write", killed_writing)
        with pytest.raises(Killed):
            compared(given, tmp_path / "run")
    run, trainings = resumed(given, tmp_path / "run")
    assert not trainings.sizes
    assert_same_comparison(run, never_killed)


def test_resuming_a_finished_comparison_changes_nothing(never_killed: Run, copied: Run, data: str) -> None:
    log = Log()
    _, trainings = resumed(options(data, *METHODS, noises=NOISES), copied.path, log)
    assert not trainings.sizes
    assert log.stages == [("search", 0)]
    assert_same_comparison(copied, never_killed)


# ------------------------------------------------------------------------------------------------ refused


def test_other_options_are_refused(never_killed: Run, copied: Run, data: str) -> None:
    with pytest.raises(RunConflict, match=r"noises was \['pair:0.4', .* and is now \['pair:0.4'\]; seeds was 2 and is"):
        compared(options(data, *METHODS, seeds=3), copied.path, resume=True)
    assert_same_comparison(copied, never_killed)


@pytest.mark.parametrize("part", ["y_train", "x_valid", "y_test"])
def test_changed_data_are_refused(tmp_path: Path, part: str) -> None:
    trusted = blobs(96, wrong=0.0, seed=1)
    arrays: dict[str, Any] = {"x_valid": trusted.inputs, "y_valid": trusted.labels}
    file = save(tmp_path / "own.npz", **arrays)
    given = {"noises": ("none",), "seeds": 1, "epochs": 1}
    compared(options(file, "standard", **given), tmp_path / "run")
    with np.load(file) as stored:
        arrays = dict(stored)
    arrays[part] = arrays[part][::-1]
    np.savez(file, **arrays)
    with pytest.raises(RunConflict, match="the data have changed since"):
        compared(options(file, "standard", "decoupling", **given), tmp_path / "run", resume=True)


@pytest.mark.parametrize("damage", ["truncated", "not an archive", "of another kind"])
def test_damaged_file_of_finished_trainings_is_refused_and_kept(copied: Run, data: str, damage: str) -> None:
    file = copied.path / "outcomes.npz"
    if damage == "truncated":
        file.write_bytes(file.read_bytes()[:-100])
    elif damage == "not an archive":
        file.write_bytes(b"no archive" * 50)
    else:
        np.savez(file, accuracy=np.zeros(3))
    left = file.read_bytes()
    with pytest.raises(UnreadableData, match=r"outcomes\.npz' could not be read"):
        compared(options(data, *METHODS, noises=NOISES), copied.path, resume=True)
    assert file.read_bytes() == left


# ------------------------------------------------------------------------------------------------ other methods


def test_added_methods_are_trained_and_finished_ones_are_not(data: str, tmp_path: Path) -> None:
    at_once = compared(options(data, "jocor", "s2e", "standard"), tmp_path / "at_once")
    path = compared(options(data, "standard", "s2e"), tmp_path / "run").path
    run, trainings = resumed(options(data, "jocor", "s2e", "standard"), path)
    assert [[each.method for each in members] for members in trainings.members] == [[JoCoR()] * 2]
    assert_same_comparison(run, at_once)


def test_added_search_leaves_the_finished_one_unchanged(data: str, tmp_path: Path) -> None:
    path = compared(options(data, "s2e"), tmp_path / "run").path
    before = rows(Run(path), "curves.csv")
    run, trainings = resumed(options(data, "s2e", "s2e:mentornet"), path)
    assert trainings.sizes == [1, 1, 2]
    assert {each.method for members in trainings.members for each in members} == {MentorNet()}
    assert rows(run, "curves.csv")[: len(before)] == before


def test_methods_that_are_no_longer_requested_stay_in_the_tables(data: str, tmp_path: Path) -> None:
    path = compared(options(data, "standard", "f-correction"), tmp_path / "run").path
    before = rows(Run(path), "curves.csv")
    run, trainings = resumed(options(data, "jocor"), path)
    assert trainings.sizes == [2]
    assert [row["method"] for row in result(run)["summary"]] == ["jocor", "standard", "f-correction"]
    assert rows(run, "curves.csv")[2 * EPOCHS :] == before
    assert run.read_arrays("transitions.npz").keys() == {"pair:0.4/f-correction/0", "pair:0.4/f-correction/1"}


def test_added_method_that_is_impossible_changes_nothing(own: str, tmp_path: Path) -> None:
    run = compared(options(own, "standard", noises=("none",)), tmp_path / "run")
    before = contents(run)
    with pytest.raises(InvalidInput, match="coteaching needs a noise rate"):
        compared(options(own, "standard", "coteaching", noises=("none",)), run.path, resume=True)
    assert contents(run) == before
