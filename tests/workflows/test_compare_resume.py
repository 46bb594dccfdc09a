"""Comparisons that are killed, continued and joined by more methods: they end as if nothing had happened."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comparisons import (
    EPOCHS,
    NOISES,
    Death,
    Log,
    Trainings,
    compared,
    files,
    labels_of_users,
    options,
    outcomes,
    result,
    right_labels,
    rows,
    save,
    without_figures,
)
from s2e.errors import InvalidInput, RunConflict, UnreadableData
from s2e.methods import METHODS, JoCoR
from s2e.runs.directory import Run
from s2e.workflows import compare as comparison
from s2e.workflows.compare import CompareOptions
from small_tasks import blobs

_quick = pytest.fixture(without_figures, scope="module", autouse=True)
data = pytest.fixture(right_labels, scope="module")
own = pytest.fixture(labels_of_users, scope="module")


# Death and return


DYING = ("standard", "mentornet", "f-correction", "s2e")


@pytest.fixture(scope="module")
def never_killed(data: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return compared(options(data, *DYING, noises=NOISES), tmp_path_factory.mktemp("never_killed") / "run")


@pytest.fixture
def copied(never_killed: Run, tmp_path: Path) -> Run:
    """A finished comparison to play with."""
    return Run(shutil.copytree(never_killed.path, tmp_path / "copied"))


def assert_same_comparison(one: Run, other: Run) -> None:
    assert {**result(one), "seconds": 0} == {**result(other), "seconds": 0}
    assert files(one) == files(other)
    for name in (name for name in files(one) if name.endswith((".csv", ".json")) and name != "result.json"):
        assert (one.path / name).read_bytes() == (other.path / name).read_bytes(), name
    matrices = [run.read_arrays("transitions.npz") for run in (one, other)]
    assert matrices[0].keys() == matrices[1].keys()
    for name, matrix in matrices[0].items():
        np.testing.assert_array_equal(matrix, matrices[1][name])


def killed(given: CompareOptions, path: Path, after: int, *, resume: bool = False) -> list[int]:
    """Let a comparison die instead of the population after so many; return the sizes of those it trained."""
    with pytest.MonkeyPatch.context() as patched:
        trainings = Trainings(patched, after)
        with pytest.raises(Death):
            compared(given, path, resume=resume)
        return trainings.sizes


@pytest.mark.parametrize(
    ("after", "left"),
    [(0, [8, 4]), (1, [4, 4])],  # what gives forward correction its matrices is trained again, and nothing else
)
def test_a_comparison_killed_in_a_population_ends_as_one_never_killed(
    data: str, tmp_path: Path, after: int, left: list[int]
) -> None:
    given = options(data, "standard", "mentornet", "f-correction", noises=NOISES)
    expected = compared(given, tmp_path / "whole")
    assert len(killed(given, tmp_path / "run", after)) == after
    assert not (tmp_path / "run" / "result.json").exists()
    with pytest.MonkeyPatch.context() as patched:
        trainings = Trainings(patched)
        run = compared(given, tmp_path / "run", resume=True)
    assert trainings.sizes == left
    assert_same_comparison(run, expected)


def test_what_the_first_population_finished_is_not_lost_with_the_second(data: str, tmp_path: Path) -> None:
    killed(options(data, *DYING, noises=NOISES), tmp_path / "run", 1)
    finished = outcomes(Run(tmp_path / "run"))
    assert {method for _, method, _ in finished} == {"standard", "mentornet"}
    assert len(finished) == 8


def test_a_comparison_that_dies_after_every_population_ends_as_one_never_killed_and_trains_nothing_again(
    never_killed: Run, data: str, tmp_path: Path
) -> None:
    given, path = options(data, *DYING, noises=NOISES), tmp_path / "run"
    assert killed(given, path, 2) == [8, 4]
    assert killed(given, path, 0, resume=True) == []
    assert killed(given, path, 1, resume=True) == [2]  # a trial of each setting
    assert killed(given, path, 1, resume=True) == [2]
    assert not (path / "result.json").exists()
    with pytest.MonkeyPatch.context() as patched:
        trainings = Trainings(patched)
        run = compared(given, path, resume=True)
    assert trainings.sizes == [4]
    assert_same_comparison(run, never_killed)


def test_noisy_validation_goes_on_with_the_setting_it_died_in(data: str, tmp_path: Path) -> None:
    given = options(data, "standard", "s2e", validation="noisy")
    expected = compared(given, tmp_path / "whole")
    assert killed(given, tmp_path / "run", 4) == [1, 1, 1, 1]
    with pytest.MonkeyPatch.context() as patched:
        trainings = Trainings(patched)
        run = compared(given, tmp_path / "run", resume=True)
    assert trainings.sizes == [1, 1]
    assert_same_comparison(run, expected)


@pytest.mark.parametrize("moment", ["figures", "result.json"])
def test_a_death_while_the_tables_are_written_costs_no_training(
    never_killed: Run, data: str, tmp_path: Path, moment: str
) -> None:
    given, write = options(data, *DYING, noises=NOISES), Run._write

    def dying(run: Run, name: str, fill: Callable[..., object]) -> None:
        if name == moment:
            raise Death
        write(run, name, fill)

    def no_figures(_: Any) -> None:
        raise Death

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Run, "_write", dying)
        if moment == "figures":
            patched.setattr(comparison, "figure_files", no_figures)
        with pytest.raises(Death):
            compared(given, tmp_path / "run")
    with pytest.MonkeyPatch.context() as patched:
        trainings = Trainings(patched)
        run = compared(given, tmp_path / "run", resume=True)
    assert not trainings.sizes
    assert_same_comparison(run, never_killed)


def test_continuing_what_is_finished_trains_nothing_and_changes_nothing(
    never_killed: Run, copied: Run, data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainings, log = Trainings(monkeypatch), Log()
    compared(options(data, *DYING, noises=NOISES), copied.path, log, resume=True)
    assert not trainings.sizes
    assert log.stages == [("search", 0)]
    assert_same_comparison(copied, never_killed)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seeds": 3}, "seeds was 2 and is now 3"),
        ({"epochs": 5}, f"epochs was {EPOCHS} and is now 5"),
        ({"noises": NOISES[:1]}, "noises was ['pair:0.4', 'symmetric:0.3'] and is now ['pair:0.4']"),
        ({"noise_rate": 0.3}, "noise_rate was None and is now 0.3"),
        ({"trials": 6, "sampler": "curve"}, "sampler was 'random' and is now 'curve'; trials was 2 and is now 6"),
        ({"validation": "noisy"}, "validation was 'auto' and is now 'noisy'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_continuing_with_other_options_is_refused_by_their_names(
    never_killed: Run, copied: Run, data: str, changes: dict[str, Any], said: str
) -> None:
    given = replace(options(data, *DYING, noises=NOISES), **changes)
    with pytest.raises(RunConflict) as refused:
        compared(given, copied.path, resume=True)
    assert str(refused.value) == f"{str(copied.path)!r} was made with other settings: {said}."
    assert_same_comparison(copied, never_killed)


@pytest.mark.parametrize("part", ["x_train", "y_train", "x_valid", "y_valid", "x_test", "y_test"])
def test_continuing_on_data_that_have_changed_is_refused(tmp_path: Path, part: str) -> None:
    trusted = blobs(96, wrong=0.0, seed=1)
    arrays: dict[str, Any] = {"x_valid": trusted.inputs, "y_valid": trusted.labels}
    file = save(tmp_path / "own.npz", **arrays)
    given = options(file, "standard", noises=("none",), seeds=1, epochs=1)
    compared(given, tmp_path / "run")
    with np.load(file) as stored:
        arrays = dict(stored)
    arrays[part] = arrays[part][::-1]
    np.savez(file, **arrays)
    with pytest.raises(RunConflict, match="the data have changed since"):
        compared(replace(given, methods=("standard", "decoupling")), tmp_path / "run", resume=True)


def test_a_second_comparison_in_the_same_place_is_refused(never_killed: Run, copied: Run, data: str) -> None:
    with pytest.raises(RunConflict, match="already holds a run"):
        compared(options(data, "standard"), copied.path)
    assert_same_comparison(copied, never_killed)


# numpy leaves the file of a truncated archive open until it is collected
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("damage", ["truncated", "not an archive", "of another kind"])
def test_a_damaged_record_of_finished_trainings_is_refused_and_left_alone(copied: Run, data: str, damage: str) -> None:
    record = copied.path / "outcomes.npz"
    if damage == "truncated":
        record.write_bytes(record.read_bytes()[:-100])
    elif damage == "not an archive":
        record.write_bytes(b"nothing to be read" * 50)
    else:
        np.savez(record, accuracy=np.zeros(3))
    left = record.read_bytes()
    with pytest.raises(UnreadableData, match=r"outcomes\.npz' could not be read"):
        compared(options(data, *DYING, noises=NOISES), copied.path, resume=True)
    assert record.read_bytes() == left


# More methods


def test_methods_that_join_are_trained_and_the_finished_ones_are_not_trained_again(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = compared(options(data, "jocor", "s2e", "standard"), tmp_path / "at_once")
    joined = compared(options(data, "standard", "s2e"), tmp_path / "joined")
    trainings = Trainings(monkeypatch)
    compared(options(data, "jocor", "s2e", "standard"), joined.path, resume=True)
    assert [[each.method for each in members] for members in trainings.members] == [[JoCoR()] * 2]
    assert_same_comparison(joined, at_once)


def test_a_search_that_joins_leaves_the_finished_one_alone(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = compared(options(data, "s2e"), tmp_path / "run")
    before = rows(run, "curves.csv")
    trainings = Trainings(monkeypatch)
    compared(options(data, "s2e", "s2e:mentornet"), run.path, resume=True)
    assert trainings.sizes == [1, 1, 2]
    assert {each.method for members in trainings.members for each in members} == {METHODS["mentornet"]}
    assert rows(run, "curves.csv")[: len(before)] == before


def test_methods_that_are_no_longer_asked_for_stay_in_the_tables(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = compared(options(data, "standard", "f-correction"), tmp_path / "run")
    before = rows(run, "curves.csv")
    trainings = Trainings(monkeypatch)
    compared(options(data, "jocor"), run.path, resume=True)
    assert trainings.sizes == [2]
    assert [row["method"] for row in result(run)["summary"]] == ["jocor", "standard", "f-correction"]
    assert rows(run, "curves.csv")[2 * EPOCHS :] == before
    assert run.read_arrays("transitions.npz").keys() == {"pair:0.4/f-correction/0", "pair:0.4/f-correction/1"}


def test_a_joining_method_that_cannot_take_part_costs_nothing(own: str, tmp_path: Path) -> None:
    run = compared(options(own, "standard", noises=("none",)), tmp_path / "run")
    before = {name: (run.path / name).read_bytes() for name in files(run)}
    with pytest.raises(InvalidInput, match="coteaching needs a noise rate"):
        compared(options(own, "standard", "coteaching", noises=("none",)), run.path, resume=True)
    assert {name: (run.path / name).read_bytes() for name in files(run)} == before
