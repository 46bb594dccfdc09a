"""`s2e reproduce table`: members equal those trained alone, interruptions leave no trace, bad options are refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import Result

from command_line import assert_refused, s2e, save
from populations import replace_trainer
from s2e.data import loading
from s2e.data.preparing import DataOptions, corrupt_and_split
from s2e.engine.task import VALIDATION, Member, Task, Trained
from s2e.engine.training import train_population
from s2e.experiments.schedule_table import build as module
from s2e.experiments.schedule_table import propose as promising_module
from s2e.experiments.schedule_table.build import TableOptions
from s2e.experiments.schedule_table.propose import promising
from s2e.experiments.schedule_table.table import ScheduleTable, drawn, rounded, score
from s2e.runs.directory import Run
from s2e.schedules.spaces import space
from s2e.seeds import derive
from s2e.workflows import bench
from s2e.workflows.bench import TrainingOptions, task_of
from small_tasks import blobs

pytestmark = pytest.mark.usefixtures("work")

FAMILY, EPOCHS, SEED = space("s2e"), 4, 5
NOISES = ("symmetric:0.2", "pair:0.45")
TOGETHER, PARTS, ROUNDS = 6, 6, 2  # 10 draws and 3 · 2 repeats, 3 under each noise at a time
SMALL = ["--draws", "10", "--again", "3", "--times", "2", "--rounds", str(ROUNDS), "--together", str(TOGETHER)]
SMALL += ["--epochs", str(EPOCHS), "--batch-size", "32", "--learning-rate", "0.002", "--seed", str(SEED)]
SMALL += ["--device", "cpu", "--noise", NOISES[0], "--noise", NOISES[1]]


def made(*arguments: str) -> Result:
    return s2e("reproduce", "table", *arguments)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save(str(tmp_path_factory.mktemp("data") / "own.npz"), y_train=blobs().clean_labels)


@pytest.fixture(scope="module", autouse=True)
def fewer_candidates() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(promising_module, "CANDIDATES", 500)
        yield


@pytest.fixture(scope="module")
def whole(data: str, tmp_path_factory: pytest.TempPathFactory, fewer_candidates: None) -> Run:
    """A run that nothing stopped."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    result = made("--data", data, *SMALL, "--out", str(out))
    assert result.exit_code == 0, result.exception
    assert result.stdout == f"run: {out}\n"
    return Run(out)


def table(run: Run) -> ScheduleTable:
    return ScheduleTable.read(run.path / "table.npz")


def contents(run: Run) -> dict[str, Any]:
    """Everything in the table, bit for bit, but for how long it took."""
    arrays = run.read_arrays("table.npz")
    about = json.loads(arrays.pop("about").tobytes())
    del about["seconds"]
    return {"about": about, **{name: (array.dtype, array.shape, array.tobytes()) for name, array in arrays.items()}}


class Trainings(list[int]):
    """How many members each population had; the one at `stop_at` is interrupted."""

    stop_at: int | None = None


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> Trainings:
    seen = Trainings()

    def record(task: Task, members: Sequence[Member], **rest: Any) -> Trained:
        if len(seen) == seen.stop_at:
            raise KeyboardInterrupt
        seen.append(len(members))
        return train_population(task, members, **rest)

    replace_trainer(bench, record, monkeypatch)
    return seen


# ------------------------------------------------------------------------------------------------------ what is trained


def alone(data: str, noise: str, point: NDArray[np.float64], *path: int | str) -> NDArray[np.float64]:
    """Train one schedule on data with one noise, apart from all others: its validation accuracies (T,)."""
    source = loading.load(data, Path("data"))
    prepared = corrupt_and_split(source, DataOptions(data, noise, "clean", None, SEED), Path("data"))
    task = task_of(TrainingOptions(data, seed=SEED, epochs=EPOCHS, batch_size=32), prepared, "cpu")
    member = Member(FAMILY.decode(point[None], EPOCHS)[0], derive(SEED, *path), 2e-3)
    return np.asarray(train_population(task, [member]).curves.accuracy[VALIDATION][0])


def test_a_table_has_the_shapes_that_were_asked_for(whole: Run) -> None:
    made_up = table(whole)
    assert made_up.noises == NOISES
    assert made_up.points.shape == (10, FAMILY.dimension)
    assert made_up.accuracy.shape == (2, 10, EPOCHS)
    assert made_up.again.shape == (2, 3, 2, EPOCHS)
    assert made_up.found.shape == (2, ROUNDS * TOGETHER // 2, FAMILY.dimension)
    assert made_up.found_accuracy.shape == (2, ROUNDS * TOGETHER // 2, EPOCHS)
    np.testing.assert_array_equal(made_up.points, drawn(10, FAMILY.dimension, derive(SEED, "draws")))


@pytest.mark.parametrize("place", [0, 1])
def test_a_draw_is_what_training_it_alone_gives(data: str, whole: Run, place: int) -> None:
    made_up = table(whole)
    for draw in (0, 4, 9):
        expected = alone(data, NOISES[place], made_up.points[draw], "table", draw, 0)
        np.testing.assert_allclose(made_up.accuracy[place, draw], expected, atol=1e-12)


@pytest.mark.parametrize("place", [0, 1])
def test_a_repeat_is_the_same_draw_from_other_initial_weights(data: str, whole: Run, place: int) -> None:
    made_up = table(whole)
    for draw, time in ((0, 0), (1, 1), (2, 0)):
        expected = alone(data, NOISES[place], made_up.points[draw], "table", draw, 1 + time)
        np.testing.assert_allclose(made_up.again[place, draw, time], expected, atol=1e-12)
    assert (made_up.again[:, :, 0] != made_up.again[:, :, 1]).any()


@pytest.mark.parametrize("place", [0, 1])
def test_each_round_trains_what_was_promising_after_all_before_it(data: str, whole: Run, place: int) -> None:
    made_up, each = table(whole), TOGETHER // 2
    points, accuracy = made_up.points, made_up.accuracy[place]
    for turn in range(ROUNDS):
        generator = np.random.default_rng(derive(SEED, "promising", turn, place))
        expected = rounded(promising(points, score(accuracy), FAMILY, EPOCHS, each, generator))
        its_own = slice(turn * each, (turn + 1) * each)
        np.testing.assert_array_equal(made_up.found[place, its_own], expected)
        last = alone(data, NOISES[place], expected[-1], "found", turn, each - 1)
        np.testing.assert_allclose(made_up.found_accuracy[place, its_own][-1], last, atol=1e-12)
        points = np.concatenate([points, expected])
        accuracy = np.concatenate([accuracy, made_up.found_accuracy[place, its_own]])


def test_what_a_table_holds_of_a_found_point_is_what_was_trained(whole: Run) -> None:
    kept = [whole.read_arrays(f"found-{turn}.npz")["points"] for turn in range(ROUNDS)]
    np.testing.assert_array_equal(table(whole).found, np.concatenate(kept, axis=1))


def test_a_table_says_what_made_it(data: str, whole: Run) -> None:
    about, config = table(whole).about, whole.read_json("config.json")
    assert about["versions"] == config["versions"]
    assert config["command"] == "reproduce table"
    options = {name: value for name, value in config["options"].items() if name not in ("space", "noises", "network")}
    assert {name: about[name] for name in options} == options
    assert (about["device"], about["network"], about["data"], about["draws"]) == ("cpu", "mlp", data, 10)
    prepared = corrupt_and_split(
        loading.load(data, Path("data")), DataOptions(data, NOISES[0], "clean", None, SEED), Path("data")
    )
    assert about["samples"] == len(prepared.splits.train)
    assert about["judged"] == 2 * len(prepared.splits.valid)  # Co-teaching trains two networks


def test_a_seed_changes_the_table(data: str, whole: Run) -> None:
    assert made("--data", data, *SMALL, "--seed", "6", "--rounds", "0", "--out", "other").exit_code == 0
    other = table(Run("other"))
    assert (other.points != table(whole).points).all()
    assert other.found.shape == (2, 0, FAMILY.dimension)
    assert other.found_accuracy.shape == (2, 0, EPOCHS)


def test_how_many_train_together_changes_no_draw(data: str, whole: Run, trained: Trainings) -> None:
    assert made("--data", data, *SMALL, "--together", "40", "--rounds", "0", "--out", "other").exit_code == 0
    assert trained == [32]
    np.testing.assert_array_equal(table(Run("other")).accuracy, table(whole).accuracy)
    np.testing.assert_array_equal(table(Run("other")).again, table(whole).again)


def test_members_that_diverge_count_as_wrong_about_everything(data: str) -> None:
    tiny = ["--draws", "3", "--again", "1", "--rounds", "1", "--together", "2", "--epochs", "2", "--batch-size", "32"]
    result = made("--data", data, *tiny, "--noise", "pair:0.4", "--learning-rate", "1e30", "--out", "other")
    assert result.exit_code == 0, result.exception
    assert (table(Run("other")).errors("pair:0.4") == 1).all()


def test_a_table_of_three_epochs_on_digits_has_all_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few epochs leave few curves that differ; there are promising points all the same."""
    monkeypatch.setattr(promising_module, "CANDIDATES", 20_000)
    small = ["--draws", "10", "--again", "3", "--times", "2", "--rounds", "1", "--together", "6", "--epochs", "3"]
    result = made("--data", "digits", *small, "--noise", NOISES[0], "--noise", NOISES[1], "--out", "digits")
    assert result.exit_code == 0, result.exception
    assert table(Run("digits")).found.shape == (2, 3, FAMILY.dimension)


# ------------------------------------------------------------------------------------------------------- interruptions


@pytest.mark.parametrize("stop_at", [0, 3, PARTS, PARTS + 1])
def test_an_interrupted_table_ends_as_if_nothing_had_happened(
    data: str, whole: Run, trained: Trainings, stop_at: int
) -> None:
    trained.stop_at = stop_at
    stopped = made("--data", data, *SMALL, "--out", "other")
    assert stopped.exit_code == 130
    assert stopped.stderr.splitlines()[-1].endswith("continue with: s2e reproduce table --resume --out other")
    assert not Path("other/table.npz").exists()
    trained.stop_at = None
    resumed = made("--resume", "--out", "other")
    assert resumed.exit_code == 0, resumed.exception
    assert len(trained) == PARTS + ROUNDS  # nothing twice
    assert contents(Run("other")) == contents(whole)


def test_a_finished_table_trains_nothing_when_it_is_continued(data: str, whole: Run, trained: Trainings) -> None:
    before = contents(whole)
    assert made("--resume", "--out", str(whole.path)).exit_code == 0
    assert trained == []
    assert contents(whole) == before


def test_only_a_part_that_is_missing_is_trained_again(data: str, whole: Run, trained: Trainings) -> None:
    before = contents(whole)
    for name in ("part-0002.npz", "part-0005.npz", "table.npz"):
        (whole.path / name).unlink()
    assert made("--resume", "--out", str(whole.path)).exit_code == 0
    assert trained == [6, 2]  # 16 entries in parts of 3: the last part holds one, under two noise settings
    assert contents(whole) == before


@pytest.mark.parametrize(
    ("changed", "mention"),
    [
        (["--draws", "11"], "draws was 10 and is now 11"),
        (["--together", "8"], "together was 6 and is now 8"),
        (["--noise", "pair:0.45"], "noises was"),
        (["--epochs", "5"], "epochs was 4 and is now 5"),
    ],
)
def test_changed_options_are_refused(whole: Run, trained: Trainings, changed: list[str], mention: str) -> None:
    before = (whole.path / "table.npz").read_bytes()
    assert_refused(made("--resume", "--out", str(whole.path), *changed), "other settings", mention)
    assert trained == []
    assert (whole.path / "table.npz").read_bytes() == before


def test_a_directory_that_holds_a_table_is_not_begun_again(data: str, whole: Run, trained: Trainings) -> None:
    assert_refused(made("--data", data, *SMALL, "--out", str(whole.path)), "already holds a run")
    assert trained == []


def test_a_damaged_part_is_named(data: str) -> None:
    assert made("--data", data, *SMALL, "--rounds", "0", "--out", "other").exit_code == 0
    Path("other/part-0001.npz").write_bytes(b"damaged")
    result = made("--resume", "--out", "other")
    assert result.exit_code == 2
    assert "part-0001.npz" in result.stderr.splitlines()[-1]


# --------------------------------------------------------------------------------------------------------- bad options


@pytest.mark.parametrize(
    ("bad", "mention"),
    [
        (["--draws", "0", "--again", "0"], "draws=0"),
        (["--again", "-1"], "again=-1"),
        (["--again", "11"], "again=11, draws=10"),
        (["--times", "0"], "`times`"),
        (["--times", "-1"], "`times`"),
        (["--rounds", "-1"], "`rounds`"),
        (["--together", "1"], "`together` must be at least 2, but got 1"),
        (["--together", "0"], "`together`"),
        (["--noise", "pair:0.45"], "each noise setting once"),
        (["--noise", "pear:0.45"], "pear"),
        (["--space", "s3e"], "s3e"),
        (["--network", "mpl"], "mpl"),
        (["--epochs", "0"], "epochs"),
        (["--batch-size", "0"], "batch"),
        (["--learning-rate", "0"], "learning_rate"),
        (["--data", "missing.npz"], "missing.npz"),
        (["--resume"], "--out"),
    ],
)
def test_bad_options_are_refused_in_one_line(data: str, trained: Trainings, bad: list[str], mention: str) -> None:
    assert_refused(made("--data", data, *SMALL, *bad), mention)
    assert trained == []


def test_the_defaults_of_the_command_are_those_of_the_experiment(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[TableOptions] = []

    def note(options: TableOptions, *_: object, **__: object) -> Run:
        seen.append(options)
        return Run("somewhere")

    monkeypatch.setattr(module, "build_table", note)
    assert made().exit_code == 0
    assert seen == [TableOptions()]
