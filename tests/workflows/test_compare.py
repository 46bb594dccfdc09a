"""Comparisons: everything packed equals everything alone, and what is written says so."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
import torch

from comparisons import (
    BATCH,
    EPOCHS,
    KEEP_RATE,
    NOISES,
    RATE,
    WHOLE,
    Log,
    Trainings,
    alone,
    assert_outcome,
    compared,
    files,
    options,
    outcomes,
    prepared,
    result,
    right_labels,
    rows,
    told_schedule,
    without_figures,
)
from s2e.data.preparing import DataOptions
from s2e.engine.task import Task
from s2e.methods import METHODS, Batch, Decoupling, Objective, Reweight, Standard
from s2e.networks.factories import reference_network
from s2e.runs.directory import CONFIG, Run
from s2e.runs.session import RunLocation
from s2e.samplers import algorithm
from s2e.schedules.spaces import SPACES
from s2e.seeds import derive
from s2e.studies.loop import search_schedule
from s2e.studies.plan import SearchPlan
from s2e.studies.storage import open_study
from s2e.workflows.compare import CompareOptions, compare
from s2e.workflows.finished import FinishedTrainings

_quick = pytest.fixture(without_figures, scope="module", autouse=True)
data = pytest.fixture(right_labels, scope="module")


@pytest.fixture(scope="module")
def whole(data: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Log, Trainings]:
    """Everything at once: all methods, two searches, two noise settings, two seeds."""
    log = Log()
    with pytest.MonkeyPatch.context() as patched:
        trainings = Trainings(patched)
        given = options(data, "all", "s2e:jocor", **WHOLE)
        return compared(given, tmp_path_factory.mktemp("whole") / "run", log), log, trainings


# Everything packed equals everything alone


@pytest.mark.parametrize("name", [*METHODS, "s2e", "s2e:jocor"])
def test_an_outcome_of_a_packed_comparison_is_that_of_a_training_alone(
    whole: tuple[Run, Log, Trainings], data: str, name: str
) -> None:
    found = outcomes(whole[0])
    for noise in NOISES:
        for draw in range(2):
            made = prepared(data, noise, draw)
            schedule = [1.0] * EPOCHS
            if name in KEEP_RATE:
                assert made.noise_rate is not None
                schedule = told_schedule(made.noise_rate)
            elif name.startswith("s2e"):
                written = f"schedule-{name}-{noise}.json".replace(":", "-")
                schedule = whole[0].read_json(written)["keep_rates"]
            base = {"s2e": "coteaching", "s2e:jocor": "jocor"}.get(name, name)
            one = found[noise, name, draw]
            assert_outcome(one, alone(made, base, draw, schedule))
            if base in KEEP_RATE:
                assert one.keep_rates is not None
                np.testing.assert_allclose(one.keep_rates, schedule, rtol=1e-15)
            else:
                assert one.keep_rates is None


def test_all_settings_ride_in_as_few_populations_as_the_work_allows(whole: tuple[Run, Log, Trainings]) -> None:
    """8 methods, 2 settings, 2 seeds, forward correction second; 2 searches in 2 settings by generations; S2E."""
    assert whole[2].sizes == [7 * 4, 4, 2 * 2 * 2, 2 * 2 * 2, 2 * 4]
    assert {each.method for each in whole[2].members[1]} == {METHODS["f-correction"]}


def test_what_is_announced_is_what_is_trained(whole: tuple[Run, Log, Trainings]) -> None:
    _, log, _ = whole
    assert log.stages == [("8 methods", 2 * EPOCHS), ("search", 2 * EPOCHS), ("s2e, s2e:jocor", EPOCHS)]
    assert len(log.epochs) == 5 * EPOCHS
    assert [(done.finished, done.trials, len(done.best)) for done in log.generations] == [(8, 16, 4), (16, 16, 4)]


def test_a_few_methods_are_announced_by_their_names(data: str, tmp_path: Path) -> None:
    log = Log()
    compared(options(data, "jocor", "standard", seeds=1, epochs=1), tmp_path / "run", log)
    assert log.stages == [("jocor, standard", 1)]


# Seeds, noise and splits


def test_a_seed_has_other_weights_and_other_noise_on_the_same_samples(whole: tuple[Run, Log, Trainings]) -> None:
    trainings = whole[2]
    plain = [each for each in trainings.members[0] if each.method == Standard()]
    assert len({each.seed for each in plain}) == 2
    assert len({each.labels.tobytes() for each in plain if each.labels is not None}) == 4
    rows = {task.train.rows.tobytes() for task in trainings.tasks}
    assert len(rows) == 1
    for members in (trainings.members[0], trainings.members[-1]):  # methods differ in nothing else
        by_setting: dict[bytes, set[int]] = {}
        for each in members:
            assert each.labels is not None
            by_setting.setdefault(each.labels.tobytes(), set()).add(each.seed)
        assert by_setting.keys() == {each.labels.tobytes() for each in plain if each.labels is not None}
        assert all(len(seeds) == 1 for seeds in by_setting.values())


def test_the_first_seed_has_the_noise_of_a_search_of_the_same_data(
    whole: tuple[Run, Log, Trainings], data: str
) -> None:
    from s2e.data.preparing import prepare

    first = [each for each in whole[2].members[0] if each.seed == derive(0, "compared", 0)]
    labels = {each.labels.tobytes() for each in first if each.labels is not None}
    assert labels == {prepare(DataOptions(data, noise), Path()).splits.train.labels.tobytes() for noise in NOISES}


def test_the_seed_of_the_comparison_decides_noise_split_weights_and_batches(data: str, tmp_path: Path) -> None:
    run = compared(options(data, "standard", seed=7), tmp_path / "run")
    for draw in range(2):
        made = prepared(data, NOISES[0], draw, seed=7)
        expected = alone(made, "standard", draw, [1.0] * EPOCHS, seed=7)
        assert_outcome(outcomes(run)[NOISES[0], "standard", draw], expected)


def test_the_seed_of_the_comparison_decides_the_search(data: str, tmp_path: Path) -> None:
    one, other = (compared(options(data, "s2e", seed=seed, seeds=1), tmp_path / str(seed)) for seed in (0, 1))
    points = [run.read_json("schedule-s2e-pair-0.4.json")["point"] for run in (one, other)]
    assert points[0] != points[1]


def test_more_seeds_leave_the_earlier_ones_as_they_were(data: str, tmp_path: Path) -> None:
    two, three = (compared(options(data, "standard", seeds=n), tmp_path / str(n)) for n in (2, 3))
    assert rows(three, "curves.csv")[: 2 * EPOCHS] == rows(two, "curves.csv")


# Searched schedules


def test_a_search_is_handed_train_and_validation_but_never_test(whole: tuple[Run, Log, Trainings]) -> None:
    tasks = whole[2].tasks
    assert [set(task.evaluate) for task in tasks[2:4]] == [{"valid"}, {"valid"}]
    assert [set(task.evaluate) for task in (*tasks[:2], tasks[4])] == [{"valid", "test"}] * 3


@pytest.mark.parametrize("name", ["s2e", "s2e:jocor"])
def test_a_schedule_is_searched_on_the_first_draw_as_if_it_were_searched_alone(
    whole: tuple[Run, Log, Trainings], data: str, name: str
) -> None:
    run = whole[0]
    for noise in NOISES:
        splits = prepared(data, noise, 0).splits
        task = Task(
            splits.train,
            reference_network("mlp", (6,), 4),
            METHODS["jocor" if name == "s2e:jocor" else "coteaching"],
            {"valid": splits.valid},
            EPOCHS,
            BATCH,
            derive(0, "comparison"),
        )
        family = SPACES["s2e"]
        plan = SearchPlan(family, algorithm("random", family, EPOCHS, 2), 4, 2, RATE)
        expected = search_schedule(task, plan, open_study(None, "alone", {}))
        written = run.read_json(f"schedule-{name}-{noise}.json".replace(":", "-"))
        assert written == {"keep_rates": expected.schedule.tolist(), "point": expected.point.tolist()}
        (said,) = [row for row in result(run)["search"] if (row["noise"], row["method"]) == (noise, name)]
        assert said["trials"] == 4
        assert said["best_trial"] == expected.trial
        assert said["validation_accuracy"] == expected.validation_accuracy


def test_a_study_kept_elsewhere_has_the_name_of_the_run(data: str, tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/elsewhere.db"
    run = compare(options(data, "s2e", seeds=1, epochs=1), RunLocation(tmp_path / "run", storage=storage), Log())
    assert "study.db" not in files(run)
    assert optuna.get_all_study_names(storage) == ["run/pair:0.4/s2e"]


# What is written


def test_a_comparison_leaves_exactly_the_documented_files(whole: tuple[Run, Log, Trainings]) -> None:
    found = {
        f"schedule-{name}-{noise}.json" for name in ("s2e", "s2e-jocor") for noise in ("pair-0.4", "symmetric-0.3")
    }
    written = {"config.json", "study.db", "outcomes.npz", "results.csv", "curves.csv", "transitions.npz", "result.json"}
    assert files(whole[0]) == {*found, *written, "accuracy.svg", ".lock"}


def test_a_result_says_what_was_compared_on_what(whole: tuple[Run, Log, Trainings], data: str) -> None:
    found = result(whole[0])
    said = {"summary", "evaluated_on", "validation", "epochs", "seeds", "noise_rates", "samples", "left_out", "search"}
    assert found.keys() == said | {"device", "seconds"}
    first = [prepared(data, noise, 0) for noise in NOISES]
    assert found["noise_rates"] == dict(zip(NOISES, [each.noise_rate for each in first], strict=True))
    splits = first[0].splits
    assert splits.test is not None
    assert found["samples"] == {"train": len(splits.train), "valid": len(splits.valid), "test": len(splits.test)}
    assert (found["evaluated_on"], found["validation"]) == ("test", "clean")
    assert (found["epochs"], found["seeds"], found["left_out"], found["device"]) == (EPOCHS, 2, [], "cpu")
    names = [*METHODS, "s2e", "s2e:jocor"]
    assert [(row["noise"], row["method"]) for row in found["summary"]] == [(n, m) for n in NOISES for m in names]


def test_means_and_deviations_are_those_of_the_trainings(whole: tuple[Run, Log, Trainings]) -> None:
    found = outcomes(whole[0])
    for row in result(whole[0])["summary"]:
        two = [found[row["noise"], row["method"], seed] for seed in range(2)]
        assert (row["seeds"], row["diverged"]) == (2, 0)
        for name, values in (
            ("last_10_epochs", [one.accuracy.mean() for one in two]),  # fewer than ten epochs: all of them
            ("best_epoch", [one.accuracy.max() for one in two]),
            ("label_precision", [np.nanmean(one.label_precision) for one in two]),
        ):
            assert row[name]["mean"] == pytest.approx(sum(values) / 2), (row["method"], name)
            assert row[name]["std"] == pytest.approx(abs(values[0] - values[1]) / 2**0.5, abs=1e-12)


def test_the_tables_have_a_row_for_each_training_and_for_each_of_its_epochs(
    whole: tuple[Run, Log, Trainings],
) -> None:
    names = [*METHODS, "s2e", "s2e:jocor"]
    order = [(noise, name, str(seed)) for noise in NOISES for name in names for seed in range(2)]
    results, curves = rows(whole[0], "results.csv"), rows(whole[0], "curves.csv")
    assert [(row["noise"], row["method"], row["seed"]) for row in results] == order
    assert [(row["noise"], row["method"], row["seed"], row["epoch"]) for row in curves] == [
        (*one, str(epoch)) for one in order for epoch in range(EPOCHS)
    ]
    found = outcomes(whole[0])
    for row in results:
        one = found[row["noise"], row["method"], int(row["seed"])]
        assert float(row["last_10_epochs"]) == pytest.approx(one.accuracy.mean(), abs=1e-6)
        assert float(row["best_epoch"]) == pytest.approx(one.accuracy.max(), abs=1e-6)
        assert row["evaluated_on"] == "test"
    for row in curves:
        one = found[row["noise"], row["method"], int(row["seed"])]
        assert float(row["valid_accuracy"]) == pytest.approx(one.valid_accuracy[int(row["epoch"])], abs=1e-6)


def test_the_estimated_matrices_are_written_under_their_training(
    whole: tuple[Run, Log, Trainings],
) -> None:
    second = whole[2].members[1]
    with np.load(whole[0].path / "transitions.npz", allow_pickle=False) as stored:
        assert set(stored) == {f"{noise}/f-correction/{draw}" for noise in NOISES for draw in range(2)}
        for (noise, draw), each in zip([(n, d) for n in NOISES for d in range(2)], second, strict=True):
            np.testing.assert_array_equal(stored[f"{noise}/f-correction/{draw}"], each.transition)


def test_the_config_says_everything_needed_to_repeat_the_comparison(
    whole: tuple[Run, Log, Trainings], data: str
) -> None:
    config = whole[0].read_json(CONFIG)
    assert config["command"] == "compare"
    stored = {name: tuple(value) if isinstance(value, list) else value for name, value in config["options"].items()}
    assert CompareOptions(**stored) == options(data, "all", "s2e:jocor", **WHOLE)
    assert config["network"] == "mlp"


def test_a_matrix_may_lie_at_the_end_of_any_path(data: str, tmp_path: Path) -> None:
    """Its path is a part of the names of files and of arrays."""
    deep = tmp_path / ("ü" * 100) / ("y" * 200)
    deep.mkdir(parents=True)
    np.save(deep / "m.npy", np.eye(4) * 0.6 + 0.1)
    noise = f"asymmetric:{deep / 'm.npy'}"
    run = compared(options(data, "s2e", "f-correction", noises=(noise,), seeds=1, epochs=1), tmp_path / "run")
    (name,) = (name for name in files(run) if name.startswith("schedule-s2e-"))
    assert name.endswith("yyy-m.npy.json")
    assert [row["noise"] for row in rows(run, "results.csv")] == [noise] * 2
    assert run.read_arrays("transitions.npz").keys() == {f"{noise}/f-correction/0"}
    assert {one.noise for one in FinishedTrainings.of(run).outcomes} == {noise}


# Methods that diverge


def spoiled(objective: Callable[[Any, Batch], Objective]) -> Callable[[Any, Batch], Objective]:
    def broken(self: Any, batch: Batch) -> Objective:
        whole = objective(self, batch)
        return whole._replace(loss=whole.loss * torch.nan)

    return broken


@pytest.mark.parametrize(("broken", "lost"), [(Decoupling, {"decoupling"}), (Standard, {"standard", "f-correction"})])
def test_a_method_that_diverges_does_not_spoil_the_others(
    whole: tuple[Run, Log, Trainings],
    data: str,
    tmp_path: Path,
    broken: type,
    lost: set[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broken, "objective", spoiled(broken.objective))
    names = ("standard", "decoupling", "f-correction", "coteaching", "reweight")
    run = compared(options(data, *names), tmp_path / "run")
    sound, found = outcomes(whole[0]), outcomes(run)
    assert {method for _, method, _ in found} == set(names)
    for key, one in found.items():
        assert one.diverged == (key[1] in lost)
        if not one.diverged:
            np.testing.assert_array_equal(one.accuracy, sound[key].accuracy)
            np.testing.assert_array_equal(one.loss, sound[key].loss)
    for row in result(run)["summary"]:
        assert row["diverged"] == (2 if row["method"] in lost else 0)
        assert (row["last_10_epochs"]["mean"] == 0) == (row["method"] in lost)
    assert "NaN" not in (run.path / "result.json").read_text()
    json.loads((run.path / "result.json").read_text())


def test_one_seed_that_diverges_does_not_spoil_the_other_seeds(
    whole: tuple[Run, Log, Trainings], data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objective = Reweight.objective

    def broken(self: Any, batch: Batch) -> Objective:
        sound = objective(self, batch)
        return sound._replace(loss=torch.cat([sound.loss[:1] * torch.nan, sound.loss[1:]]))

    monkeypatch.setattr(Reweight, "objective", broken)
    run = compared(options(data, "reweight"), tmp_path / "run")
    first, second = outcomes(run).values()
    assert (first.diverged, second.diverged) == (True, False)
    np.testing.assert_array_equal(second.accuracy, outcomes(whole[0])["pair:0.4", "reweight", 1].accuracy)
    assert result(run)["summary"][0]["diverged"] == 1
