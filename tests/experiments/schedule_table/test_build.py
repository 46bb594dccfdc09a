"""`s2e reproduce table`: trainings equal those alone, interruptions repeat none, bad options are refused."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from listeners import Log
from populations import replace_trainer
from s2e.data import Splits, prepare
from s2e.engine import VALIDATION, Member, Task, Trained, train_population
from s2e.errors import InvalidInput, RunConflict, UnreadableData
from s2e.experiments.schedule_table import propose
from s2e.experiments.schedule_table.build import build_table
from s2e.experiments.schedule_table.propose import propose_points
from s2e.experiments.schedule_table.table import ScheduleTable, draw_points, last_error, round_points
from s2e.runs.directory import Run
from s2e.runs.session import RunLocation
from s2e.schedules import space
from s2e.seeds import derive
from s2e.specs import DataSpec, Execution, TableOptions
from s2e.workflows import shared_inputs
from s2e.workflows.pipeline import build_task
from small_runs import options_of, save_clusters

SPACE, EPOCHS, SEED = space("s2e"), 2, 5
NOISES = ("symmetric:0.2", "pair:0.45")
SIZE, CHUNKS, ROUNDS = 3, 6, 2  # 10 draws and 3 · 2 repeats, 3 under each noise setting at a time

pytestmark = pytest.mark.usefixtures("work")


@pytest.fixture(scope="module", autouse=True)
def _fewer_candidates() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(propose, "CANDIDATES", 500)
        yield


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> TableOptions:
    data = save_clusters(tmp_path_factory.mktemp("data") / "own.npz")
    entries = {"draws": 10, "again": 3, "times": 2, "rounds": ROUNDS, "together": SIZE * len(NOISES)}
    training = {"epochs": EPOCHS, "batch_size": 64, "learning_rate": 2e-3, "seed": SEED}
    return options_of(TableOptions, data=data, noises=NOISES, **entries, **training)


def build(options: TableOptions, path: Path | str, *, resume: bool = False) -> Run:
    return build_table(options, RunLocation(Path(path), device="cpu"), Log(), resume=resume)


@pytest.fixture(scope="module")
def whole(options: TableOptions, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return build(options, tmp_path_factory.mktemp("runs") / "whole")


def table_of(run: Run) -> ScheduleTable:
    return ScheduleTable.read(run.path / "table.npz")


def contents(run: Run) -> dict[str, Any]:
    """Everything in the table to the bit, except the seconds."""
    arrays = run.read_arrays("table.npz")
    about = json.loads(arrays.pop("about").tobytes())
    del about["seconds"]
    return {"about": about, **{name: (array.dtype, array.shape, array.tobytes()) for name, array in arrays.items()}}


class Trainings(list[int]):
    """The size of each trained population; the one at `stop_at` is interrupted."""

    stop_at: int | None = None


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> Trainings:
    trainings = Trainings()

    def record(task: Task, members: Sequence[Member], **named: Any) -> Trained:
        if len(trainings) == trainings.stop_at:
            raise KeyboardInterrupt
        trainings.append(len(members))
        return train_population(task, members, **named)

    replace_trainer(shared_inputs, record, monkeypatch)
    return trainings


# ------------------------------------------------------------------------------------------------------------ trainings


def splits_of(options: TableOptions, noise: str) -> Splits:
    return prepare(DataSpec(options.data, validation="clean"), noise, SEED, Path("data")).splits


def train_alone(options: TableOptions, noise: str, point: NDArray[np.float64], *path: int | str) -> Any:
    """Train one schedule under one noise setting alone; return its validation accuracies (T,)."""
    splits = splits_of(options, noise)
    evaluate = {VALIDATION: splits.valid}
    task = build_task(splits.train, evaluate, options.training, "coteaching", seed=SEED, execution=Execution("cpu"))
    member = Member(SPACE.decode(point[None], EPOCHS)[0], derive(SEED, *path), 2e-3)
    return train_population(task, [member]).curves.accuracy[VALIDATION][0]


def test_table_has_the_requested_shapes(whole: Run) -> None:
    table = table_of(whole)
    assert table.noises == NOISES
    np.testing.assert_array_equal(table.points, draw_points(10, SPACE.dimension, derive(SEED, "draws")))
    assert table.accuracy.shape == (2, 10, EPOCHS)
    assert table.again.shape == (2, 3, 2, EPOCHS)
    assert table.found.shape == (2, ROUNDS * SIZE, SPACE.dimension)
    assert table.found_accuracy.shape == (2, ROUNDS * SIZE, EPOCHS)


@pytest.mark.parametrize("setting", [0, 1])
def test_draws_and_repeats_equal_trainings_alone(options: TableOptions, whole: Run, setting: int) -> None:
    table, noise = table_of(whole), NOISES[setting]
    first = train_alone(options, noise, table.points[9], "table", 9, 0)
    np.testing.assert_allclose(table.accuracy[setting, 9], first, atol=1e-12)
    again = train_alone(options, noise, table.points[1], "table", 1, 2)
    np.testing.assert_allclose(table.again[setting, 1, 1], again, atol=1e-12)


def test_rounds_train_proposals_from_all_previous_trainings(options: TableOptions, whole: Run) -> None:
    table, setting = table_of(whole), 1
    # The table stores counts; proposals depend on the last bit of the accuracies they were computed from.
    chunks = [whole.read_arrays(f"part-{index:04}.npz")["accuracy"][setting] for index in range(CHUNKS)]
    points, accuracy = table.points, np.concatenate(chunks)[:10]
    for index in range(ROUNDS):
        generator = np.random.default_rng(derive(SEED, "promising", index, setting))
        expected = round_points(propose_points(points, last_error(accuracy), SPACE, EPOCHS, SIZE, generator))
        own = slice(index * SIZE, (index + 1) * SIZE)
        np.testing.assert_array_equal(table.found[setting, own], expected)
        alone = train_alone(options, NOISES[setting], expected[-1], "found", index, SIZE - 1)
        np.testing.assert_allclose(table.found_accuracy[setting, own][-1], alone, atol=1e-12)
        points = np.concatenate([points, expected])
        accuracy = np.concatenate([accuracy, whole.read_arrays(f"found-{index}.npz")["accuracy"][setting]])


def test_metadata_describe_the_build(options: TableOptions, whole: Run) -> None:
    about, config = table_of(whole).about, whole.read_json("config.json")
    assert about["versions"] == config["versions"]
    stored = {name: value for name, value in config["options"].items() if name not in ("space", "noises", "network")}
    assert {name: about[name] for name in stored} == stored
    assert (about["device"], about["network"]) == ("cpu", "mlp")
    splits = splits_of(options, NOISES[0])
    assert about["samples"] == len(splits.train)
    assert about["judged"] == 2 * len(splits.valid)  # Co-teaching trains two networks


def test_population_size_changes_no_draw(options: TableOptions, whole: Run, trained: Trainings) -> None:
    other = table_of(build(replace(options, together=40, rounds=0), "other"))
    assert trained == [32]
    np.testing.assert_array_equal(other.accuracy, table_of(whole).accuracy)
    np.testing.assert_array_equal(other.again, table_of(whole).again)
    assert other.found.shape == (2, 0, SPACE.dimension)


def test_diverged_members_have_an_error_of_1(options: TableOptions) -> None:
    training = replace(options.training, learning_rate=1e30, epochs=2)
    few = replace(options, draws=3, again=1, rounds=1, together=2, noises=NOISES[:1], training=training)
    assert (last_error(table_of(build(few, "other")).accuracy) == 1).all()


# ------------------------------------------------------------------------------------------------------------- resuming


def test_interruptions_change_nothing_and_repeat_no_training(
    options: TableOptions, whole: Run, trained: Trainings
) -> None:
    for stop_at in (3, CHUNKS + 1):
        trained.stop_at = stop_at
        with pytest.raises(KeyboardInterrupt):
            build(options, "other", resume=True)
        assert not Path("other/table.npz").exists()
    trained.stop_at = None
    assert contents(build(options, "other", resume=True)) == contents(whole)
    assert len(trained) == CHUNKS + ROUNDS


def test_only_missing_chunks_are_trained_again(options: TableOptions, whole: Run, trained: Trainings) -> None:
    before = contents(whole)
    for name in ("part-0002.npz", "part-0005.npz", "table.npz"):
        (whole.path / name).unlink()
    assert contents(build(options, whole.path, resume=True)) == before
    assert trained == [6, 2]  # 16 entries in chunks of 3: the last has one, under two noise settings


def test_population_size_is_fixed_on_resume(options: TableOptions, whole: Run) -> None:
    with pytest.raises(RunConflict, match="other settings: together was 6 and is now 8"):
        build(replace(options, together=8), whole.path, resume=True)


def test_damaged_chunk_is_named(options: TableOptions, whole: Run) -> None:
    path = whole.path / "part-0001.npz"
    before = path.read_bytes()
    try:
        path.write_bytes(b"damaged")
        with pytest.raises(UnreadableData, match=r"part-0001\.npz"):
            build(options, whole.path, resume=True)
    finally:
        path.write_bytes(before)


# ------------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"again": 11}, "again=11, draws=10"),
        ({"together": 1}, "`together` must be at least 2, but got 1"),
        ({"space": "s3e"}, "s3e"),
        ({"noises": ("pair:0.45", "pair:0.45")}, "each noise setting once"),
    ],
    ids=str,
)
def test_bad_options_are_refused(options: TableOptions, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        build(replace(options, **changes), "run")
    assert not Path("run").exists()
