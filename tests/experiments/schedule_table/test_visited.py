"""`s2e reproduce table --visited RUN`: the points that samplers visited on data, trained under every noise setting."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState

from listeners import Log
from s2e.data import prepare
from s2e.engine import VALIDATION, Member, train_population
from s2e.errors import InvalidInput, RunConflict, UnreadableData
from s2e.experiments import samplers
from s2e.experiments.schedule_table.build import build_table
from s2e.experiments.schedule_table.table import ScheduleTable, draw_points, round_points
from s2e.experiments.schedule_table.visited import visited_points
from s2e.runs.directory import Run
from s2e.runs.session import RunLocation
from s2e.schedules import space
from s2e.seeds import derive
from s2e.specs import DataSpec, Execution, TableOptions
from s2e.workflows.pipeline import build_task
from sampler_runs import compare, sampler_options, write_table
from searches import quiet
from small_runs import options_of

NOISES = ("pair:0.4", "symmetric:0.2")
TRAINING = {"epochs": 2, "batch_size": 256, "learning_rate": 1e-2}
SPACE = space("coteaching")
TRIALS = 3

_quiet = pytest.fixture(quiet, autouse=True, scope="module")


@pytest.fixture(autouse=True, scope="module")
def _no_figures() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(samplers, "write_figure", lambda *_: None)
        yield


def search(path: Path | str, **changes: Any) -> Run:
    budget = {"noises": NOISES, "repeats": 1, "trials": TRIALS, "random_trials": 2, "samplers": ("random", "hyperband")}
    return compare(sampler_options(on="digits", **{**budget, **TRAINING, **changes}), path)


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return search(tmp_path_factory.mktemp("runs") / "searched")


def table_options(searched: Run, **changes: Any) -> TableOptions:
    small = {"draws": 4, "again": 2, "times": 1, "rounds": 0, "together": 8, "space": "coteaching", "seed": 5}
    own = {"data": "digits", "noises": NOISES, "visited": (str(searched.path),)}
    return options_of(TableOptions, **{**own, **small, **TRAINING, **changes})


def build(options: TableOptions, path: Path | str, *, resume: bool = False) -> Run:
    return build_table(options, RunLocation(Path(path), device="cpu"), Log(), resume=resume)


@pytest.fixture(scope="module")
def whole(searched: Run, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return build(table_options(searched), tmp_path_factory.mktemp("runs") / "whole")


def points_of(run: Run, studies: list[str]) -> list[list[float]]:
    """Return the points of finished trials as they are in the database, rounded."""
    found: list[list[float]] = []
    for name in studies:
        for trial in optuna.load_study(study_name=name, storage=run.storage).trials:
            assert trial.state in (TrialState.COMPLETE, TrialState.PRUNED)
            point = round_points(np.array([trial.params[name] for name in SPACE.names])).tolist()
            found += [] if point in found else [point]
    return found


def test_points_are_those_of_all_studies_without_repetition(searched: Run) -> None:
    studies = [f"{sampler}/{noise}/0" for sampler in ("random", "hyperband") for noise in NOISES]
    expected = points_of(searched, studies)
    assert visited_points([str(searched.path)], "coteaching").tolist() == expected
    assert visited_points([str(searched.path)] * 2, "coteaching").tolist() == expected
    assert len(expected) >= 2 + TRIALS  # the same draws under both noise settings
    assert visited_points([], "coteaching").shape == (0, 3)


def test_table_holds_them_under_every_noise_setting(searched: Run, whole: Run) -> None:
    table, points = ScheduleTable.read(whole.path / "table.npz"), visited_points([str(searched.path)], "coteaching")
    np.testing.assert_array_equal(table.points, draw_points(4, 3, derive(5, "draws")))
    assert table.accuracy.shape == (2, 4, 2)
    for own in table.found:
        np.testing.assert_array_equal(own, points)
    assert table.found_accuracy.shape == (2, len(points), 2)
    assert whole.read_json("result.json")["visited"] == len(points)
    splits = prepare(DataSpec("digits", validation="clean"), NOISES[1], 5, Path("data")).splits
    training, evaluate = table_options(searched).training, {VALIDATION: splits.valid}
    task = build_task(splits.train, evaluate, training, "coteaching", seed=5, execution=Execution("cpu"))
    row = len(points) - 1
    member = Member(SPACE.decode(points[[row]], 2)[0], derive(5, "visited", row), 1e-2)
    alone = train_population(task, [member]).curves.accuracy[VALIDATION][0]
    np.testing.assert_allclose(table.found_accuracy[1, row], alone, atol=1e-12)


def test_proposed_points_follow(searched: Run, whole: Run) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("s2e.experiments.schedule_table.propose.CANDIDATES", 100)
        run = build(table_options(searched, rounds=1), whole.path.with_name("proposed"))
    table, without = (ScheduleTable.read(each.path / "table.npz") for each in (run, whole))
    visited = without.found.shape[1]
    assert table.found.shape[1] == visited + 4
    np.testing.assert_array_equal(table.found_accuracy[:, :visited], without.found_accuracy)


def test_only_missing_points_are_trained_on_resume(searched: Run, whole: Run) -> None:
    before = (whole.path / "table.npz").read_bytes()
    kept = (whole.path / "visited-0000.npz").stat().st_mtime_ns
    for name in ("visited-0001.npz", "table.npz"):
        (whole.path / name).unlink()
    build(table_options(searched), whole.path, resume=True)
    after = (whole.path / "table.npz").read_bytes()
    assert len(after) > 0.9 * len(before)
    assert (whole.path / "visited-0000.npz").stat().st_mtime_ns == kept


@pytest.mark.usefixtures("work")
def test_other_points_are_refused_on_resume(searched: Run) -> None:
    own = search("searched", samplers=("random",), noises=NOISES[:1])
    options = table_options(own, noises=NOISES[:1])
    build(options, "table")
    search_again = sampler_options(
        on="digits",
        noises=NOISES[:1],
        repeats=1,
        trials=TRIALS,
        random_trials=2,
        samplers=("random", "hyperband"),
        **TRAINING,
    )
    compare(search_again, own.path, resume=True)
    with pytest.raises(RunConflict, match="the data have changed"):
        build(options, "table", resume=True)


@pytest.mark.usefixtures("work")
def test_other_runs_are_refused(searched: Run, whole: Run) -> None:
    write_table(Path("table.npz"))
    on_table = sampler_options(on="table:table.npz", samplers=("random",), repeats=1, trials=1, random_trials=1)
    compare(on_table, "on-table")
    for visited, changes, message in (
        ("nowhere", {}, "'nowhere': there is no run"),
        (str(whole.path), {}, "of 'reproduce table'"),
        ("on-table", {}, "on a table of schedules"),
        (str(searched.path), {"space": "s2e"}, "must name runs in the space 's2e'"),
    ):
        options = replace(table_options(searched), visited=(visited,), **changes)
        with pytest.raises(InvalidInput, match=message):
            build(options, "run")
        assert not Path("run").exists()


@pytest.mark.usefixtures("work")
def test_damaged_database_is_named(searched: Run) -> None:
    own = Path("copy")
    own.mkdir()
    (own / "config.json").write_bytes((searched.path / "config.json").read_bytes())
    with pytest.raises(UnreadableData, match="study of the run 'copy' could not be read"):
        visited_points([str(own)], "coteaching")
