"""Comparisons: every outcome equals that of a training alone, and the files contain it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
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
    Trainings,
    assert_outcome,
    compared,
    correct_labels,
    coteaching_schedule,
    options,
    outcomes,
    prepared,
    rows,
    save,
    train_alone,
    unknown_noise,
    without_figures,
)
from listeners import Log
from s2e.data.preparing import prepare
from s2e.data.samples import LabelledData
from s2e.engine.task import Task
from s2e.errors import InvalidInput
from s2e.methods import METHODS, Batch, Objective, Reweight, Standard
from s2e.networks.factories import reference_network
from s2e.runs.directory import CONFIG, Run
from s2e.runs.session import RunLocation
from s2e.seeds import derive
from s2e.specs import CompareOptions, DataSpec, assemble
from s2e.studies import SearchPlan, open_study
from s2e.workflows import compare as comparison
from s2e.workflows.compare import compare
from s2e.workflows.defaults import network_for
from s2e.workflows.entrants import Setting
from searches import search_schedule
from small_runs import file_names, result
from small_tasks import blobs

_quick = pytest.fixture(without_figures, scope="module", autouse=True)
data = pytest.fixture(correct_labels, scope="module")
own = pytest.fixture(unknown_noise, scope="module")

WHOLE: dict[str, Any] = {"noises": NOISES, "space": "s2e", "trials": 4, "generation_size": 2}
NAMES = [*METHODS, "s2e", "s2e:jocor"]
NEEDS_RATE = "needs a noise rate for its schedule; give an estimate with --noise-rate, or search with s2e"
NEEDS_CLEAN = "needs clean validation samples to train with; give some with --validation FILE"


@pytest.fixture(scope="module")
def whole(data: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Log, Trainings]:
    """All methods, two searches, two noise settings, two seeds."""
    log = Log()
    with pytest.MonkeyPatch.context() as patched:
        trainings = Trainings(patched)
        given = options(data, "all", "s2e:jocor", **WHOLE)
        return compared(given, tmp_path_factory.mktemp("whole") / "run", log), log, trainings


@pytest.fixture
def run(whole: tuple[Run, Log, Trainings]) -> Run:
    return whole[0]


def found_schedule(run: Run, name: str, noise: str) -> dict[str, Any]:
    content: dict[str, Any] = run.read_json(f"schedule-{name}-{noise}.json".replace(":", "-"))
    return content


# ------------------------------------------------------------------------------------------------ populations


@pytest.mark.parametrize("name", NAMES)
def test_outcome_in_a_comparison_equals_that_of_a_training_alone(run: Run, data: str, name: str) -> None:
    base = {"s2e": "coteaching", "s2e:jocor": "jocor"}.get(name, name)
    for noise, draw in ((NOISES[0], 1), (NOISES[1], 0)):
        made = prepared(data, noise, draw)
        schedule = [1.0] * EPOCHS
        if name in KEEP_RATE:
            schedule = coteaching_schedule(made.noise_rate or 0)
        elif name.startswith("s2e"):
            schedule = found_schedule(run, name, noise)["keep_rates"]
        one = outcomes(run)[noise, name, draw]
        assert_outcome(one, train_alone(made, base, draw, schedule))
        if base in KEEP_RATE:
            assert one.keep_rates is not None
            np.testing.assert_allclose(one.keep_rates, schedule, rtol=1e-15)
        else:
            assert one.keep_rates is None


def test_all_settings_share_as_few_populations_as_possible(whole: tuple[Run, Log, Trainings]) -> None:
    """8 methods, 2 settings, 2 seeds, forward correction second; 2 searches in 2 settings by generations; S2E."""
    _, log, trainings = whole
    assert trainings.sizes == [7 * 4, 4, 2 * 2 * 2, 2 * 2 * 2, 2 * 4]
    assert {each.method for each in trainings.members[1]} == {METHODS["f-correction"]}
    assert log.stages == [("8 methods", 2 * EPOCHS), ("search", 2 * EPOCHS), ("s2e, s2e:jocor", EPOCHS)]
    assert len(log.epochs) == 5 * EPOCHS
    assert [(done.finished, done.trials, len(done.best)) for done in log.generations] == [(8, 16, 4), (16, 16, 4)]


def test_settings_share_a_population_if_only_the_given_labels_differ(data: str) -> None:
    first = Setting("pair:0.4", 0, prepared(data, "pair:0.4", 0))
    train, valid = first.prepared.splits.train, first.prepared.splits.valid
    assert train.clean_labels is not None

    def other(**changes: LabelledData) -> Setting:
        return replace(first, prepared=replace(first.prepared, splits=replace(first.prepared.splits, **changes)))

    apart = [
        other(train=replace(train, rows=train.rows[::-1].copy())),
        other(train=replace(train, clean_labels=None)),
        other(train=replace(train, clean_labels=train.clean_labels[::-1].copy())),
        other(valid=replace(valid, labels=valid.labels[::-1].copy())),
    ]
    alike = other(train=replace(train, labels=train.labels[::-1].copy()))
    groups = comparison._groups(options(data), options(data).training, [first, *apart, alike], RunLocation(Path()))
    assert [group.settings for group in groups] == [[first, alike], *([each] for each in apart)]


# ------------------------------------------------------------------------------------------------ seeds


def test_seeds_differ_in_weights_and_noise_only(whole: tuple[Run, Log, Trainings]) -> None:
    trainings = whole[2]
    assert len({task.train.rows.tobytes() for task in trainings.tasks}) == 1
    plain = {each.labels.tobytes(): each.seed for each in trainings.members[0] if each.method == Standard()}
    assert (len(plain), len(set(plain.values()))) == (4, 2)
    for members in (trainings.members[0], trainings.members[-1]):
        assert {(each.labels.tobytes(), each.seed) for each in members} == set(plain.items())


def test_first_seed_has_the_noise_of_a_search(whole: tuple[Run, Log, Trainings], data: str) -> None:
    first = [each for each in whole[2].members[0] if each.seed == derive(0, "compared", 0)]
    labels = {each.labels.tobytes() for each in first if each.labels is not None}
    assert labels == {prepare(DataSpec(data), noise, 0, Path()).splits.train.labels.tobytes() for noise in NOISES}


def test_seed_of_the_comparison_changes_noise_split_weights_batches_and_search(data: str, tmp_path: Path) -> None:
    one, other = (compared(options(data, "standard", "s2e", seed=seed), tmp_path / str(seed)) for seed in (0, 7))
    assert found_schedule(one, "s2e", NOISES[0])["point"] != found_schedule(other, "s2e", NOISES[0])["point"]
    made = prepared(data, NOISES[0], 1, seed=7)
    expected = train_alone(made, "standard", 1, [1.0] * EPOCHS, seed=7)
    assert_outcome(outcomes(other)[NOISES[0], "standard", 1], expected)


def test_more_seeds_leave_the_earlier_ones_unchanged(run: Run, data: str, tmp_path: Path) -> None:
    three = outcomes(compared(options(data, "standard", seeds=3), tmp_path / "run"))
    for seed in range(2):
        key = (NOISES[0], "standard", seed)
        np.testing.assert_array_equal(three[key].accuracy, outcomes(run)[key].accuracy)


# ------------------------------------------------------------------------------------------------ searches


def test_search_gets_no_test_part(whole: tuple[Run, Log, Trainings]) -> None:
    parts, trained = [set(task.evaluate) for task in whole[2].tasks], {"valid", "test", "unused"}
    assert parts == [trained, trained, {"valid"}, {"valid"}, trained]


@pytest.mark.parametrize("name", ["s2e", "s2e:jocor"])
def test_schedule_is_searched_on_the_first_draw_as_alone(run: Run, data: str, name: str) -> None:
    noise = NOISES[1]
    splits = prepared(data, noise, 0).splits
    method = METHODS["jocor" if name == "s2e:jocor" else "coteaching"]
    network, order = reference_network(network_for(splits.train), (6,), 4), derive(0, "comparison")
    task = Task(splits.train, network, method, {"valid": splits.valid}, EPOCHS, BATCH, order)
    plan = SearchPlan.named("s2e", "random", epochs=EPOCHS, trials=4, generation_size=2, learning_rate=RATE)
    expected = search_schedule(task, plan, open_study(None, "alone", {}))
    assert found_schedule(run, name, noise) == {
        "keep_rates": expected.schedule.tolist(),
        "point": expected.point.tolist(),
    }
    (row,) = [each for each in result(run)["search"] if (each["noise"], each["method"]) == (noise, name)]
    assert (row["trials"], row["generation_size"]) == (4, 2)
    assert (row["best_trial"], row["validation_accuracy"]) == (expected.trial, expected.validation_accuracy)


def test_study_in_another_storage_has_the_name_of_the_run(data: str, tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/elsewhere.db"
    run = compare(options(data, "s2e", seeds=1, epochs=1), RunLocation(tmp_path / "run", storage=storage))
    assert "study.db" not in file_names(run)
    assert optuna.get_all_study_names(storage) == ["run/pair:0.4/s2e"]


# ------------------------------------------------------------------------------------------------ files


def test_files_are_the_documented_ones(run: Run) -> None:
    schedules = {
        f"schedule-{name}-{noise}.json" for name in ("s2e", "s2e-jocor") for noise in ("pair-0.4", "symmetric-0.3")
    }
    written = {"config.json", "study.db", "outcomes.npz", "results.csv", "curves.csv", "transitions.npz", "result.json"}
    assert file_names(run) == {*schedules, *written, "accuracy.svg", "columns.json", ".lock"}


def test_config_repeats_the_command(run: Run, data: str) -> None:
    config = run.read_json(CONFIG)
    assert (config["command"], config["network"]) == ("compare", "mlp:widths=64")
    given = options(data, "all", "s2e:jocor", **WHOLE)
    decided = replace(given, training=replace(given.training, network="mlp:widths=64"))
    assert assemble(CompareOptions, config["options"]) == decided


def test_result_describes_what_was_compared(run: Run, data: str) -> None:
    found = result(run)
    keys = {"summary", "evaluated_on", "validation", "epochs", "seeds", "noise_rates", "samples", "left_out", "search"}
    keys |= {"searches", "test_part"}
    assert found.keys() == keys | {"status", "device", "seconds"}
    assert found["status"] == "complete"
    assert found["noise_rates"] == {noise: prepared(data, noise, 0).noise_rate for noise in NOISES}
    assert found["samples"].keys() == {"train", "valid", "test"}
    assert (found["evaluated_on"], found["validation"], found["device"]) == ("test", "clean", "cpu")
    assert (found["epochs"], found["seeds"], found["left_out"]) == (EPOCHS, 2, [])
    order = [(noise, name) for noise in NOISES for name in NAMES]
    assert [(row["noise"], row["method"]) for row in found["summary"]] == order


def test_tables_have_a_row_for_each_training_and_epoch(run: Run) -> None:
    order = [(noise, name, str(seed)) for noise in NOISES for name in NAMES for seed in range(2)]
    results, curves = rows(run, "results.csv"), rows(run, "curves.csv")
    assert [(row["noise"], row["method"], row["seed"]) for row in results] == order
    assert [(row["noise"], row["method"], row["seed"], row["epoch"]) for row in curves] == [
        (*one, str(epoch)) for one in order for epoch in range(EPOCHS)
    ]
    found = outcomes(run)
    for row in results:
        one = found[row["noise"], row["method"], int(row["seed"])]
        assert float(row["last_10_epochs"]) == pytest.approx(one.accuracy.mean(), abs=1e-6)
        assert row["evaluated_on"] == "test"


def test_estimated_matrices_are_stored_by_training(whole: tuple[Run, Log, Trainings]) -> None:
    stored = whole[0].read_arrays("transitions.npz")
    names = [f"{noise}/f-correction/{draw}" for noise in NOISES for draw in range(2)]
    assert set(stored) == set(names)
    for name, each in zip(names, whole[2].members[1], strict=True):
        np.testing.assert_array_equal(stored[name], each.transition)


def test_noise_matrix_may_have_a_long_path(data: str, tmp_path: Path) -> None:
    """The path is part of the names of files and arrays."""
    deep = tmp_path / ("ü" * 100) / ("y" * 200)
    deep.mkdir(parents=True)
    np.save(deep / "m.npy", np.eye(4) * 0.6 + 0.1)
    noise = f"asymmetric:{deep / 'm.npy'}"
    run = compared(options(data, "s2e", "f-correction", noises=(noise,), seeds=1, epochs=1), tmp_path / "run")
    (name,) = (name for name in file_names(run) if name.startswith("schedule-s2e-"))
    assert name.endswith("yyy-m.npy.json")
    assert [row["noise"] for row in rows(run, "results.csv")] == [noise] * 2
    assert run.read_arrays("transitions.npz").keys() == {f"{noise}/f-correction/0"}


# ------------------------------------------------------------------------------------------------ validation


def test_noisy_validation_trains_each_setting_on_its_own_split(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainings, log = Trainings(monkeypatch), Log()
    names = ("standard", "f-correction", "s2e")
    run = compared(options(data, *names, validation="noisy"), tmp_path / "run", log)
    assert trainings.sizes == [1, 1, 1, 1, 1, 1, 1, 1]  # only the first draw has a search
    fixed, searched = ("standard, f-correction", 2 * EPOCHS), ("s2e", EPOCHS)
    relabelling = ("relabelling validation", EPOCHS)
    assert log.stages == [fixed, relabelling, ("search", 2 * EPOCHS), searched, fixed, searched]
    assert result(run)["validation"] == "noisy"
    assert {task.clean for task in trainings.tasks} == {None}  # noisy samples are not used as clean ones
    schedule = found_schedule(run, "s2e", NOISES[0])["keep_rates"]
    for draw in range(2):
        made = prepared(data, NOISES[0], draw, validation="noisy")
        for name, base, rates in (
            ("standard", "standard", [1.0] * EPOCHS),
            ("f-correction", "f-correction", [1.0] * EPOCHS),
            ("s2e", "coteaching", schedule),
        ):
            assert_outcome(outcomes(run)[NOISES[0], name, draw], train_alone(made, base, draw, rates))


def test_label_precision_is_unknown_only_where_true_labels_are(data: str, tmp_path: Path) -> None:
    run = compared(options(data, "standard", noises=("none", "pair:0.4")), tmp_path / "run")
    precision = {row["noise"]: row["label_precision"]["mean"] for row in result(run)["summary"]}
    assert precision["none"] is None
    assert precision["pair:0.4"] == pytest.approx(0.6, abs=0.15)


def test_validation_file_provides_clean_samples(own: str, tmp_path: Path) -> None:
    trusted = blobs(96, wrong=0.0, seed=1)
    np.savez(tmp_path / "trusted.npz", X=trusted.inputs, y=trusted.labels)
    file = str(tmp_path / "trusted.npz")
    run = compared(options(own, "reweight", noises=("none",), validation=file), tmp_path / "run")
    assert result(run)["validation"] == "clean"
    made = comparison._with_unseen_part(prepared(own, "none", 1, validation=file), 0)
    one = outcomes(run)["none", "reweight", 1]
    assert_outcome(one, train_alone(made, "reweight", 1, [1.0] * EPOCHS))


def test_without_a_test_part_half_of_clean_validation_is_the_test_part(tmp_path: Path) -> None:
    data, log = save(tmp_path / "x.npz", x_test=None, y_test=None), Log()
    given = options(data, "standard", "reweight", "s2e")
    run = compared(given, tmp_path / "run", log)
    found = result(run)
    assert found["evaluated_on"] == "test"
    held = prepared(data, given.noises[0], 0).splits.valid
    assert found["samples"]["valid"] + found["samples"]["test"] == len(held)
    assert abs(found["samples"]["valid"] - found["samples"]["test"]) <= held.classes
    (note,) = [note for note in log.notes if note.startswith("no test part")]
    assert note.endswith(f"{found['samples']['test']} samples that none of them uses")
    made = comparison._with_unseen_part(prepared(data, given.noises[0], 1), given.seed)
    assert made.splits.test is not None
    assert not set(made.splits.test.rows) & {*made.splits.valid.rows, *made.splits.train.rows}
    assert_outcome(outcomes(run)[given.noises[0], "reweight", 1], train_alone(made, "reweight", 1, [1.0] * EPOCHS))


def test_without_a_test_part_and_clean_labels_the_evaluated_part_is_noisy_and_named_so(
    own: str, tmp_path: Path
) -> None:
    log = Log()
    run = compared(options(own, "standard", "s2e", noises=("none",)), tmp_path / "run", log)
    found = result(run)
    assert found["evaluated_on"] == "held-out"
    assert found["samples"].keys() == {"train", "valid", "held-out"}
    assert all(one.evaluated_on == "held-out" for one in outcomes(run).values())
    assert any(note.endswith("none of them uses, with their noisy labels") for note in log.notes)
    assert all(row["chosen_epoch"]["mean"] is not None for row in found["summary"])


def test_too_few_samples_to_evaluate_are_refused(own: str) -> None:
    made = prepared(own, "none", 0)
    first = [int(np.flatnonzero(made.splits.valid.labels == label)[0]) for label in np.unique(made.splits.valid.labels)]
    few = replace(made, splits=replace(made.splits, valid=made.splits.valid.take(np.array(first))))
    with pytest.raises(InvalidInput, match="a comparison needs a test part, or at least two validation samples"):
        comparison._with_unseen_part(few, 0)


# ------------------------------------------------------------------------------------------------ noise rates


def test_all_leaves_out_impossible_methods_with_the_reason(own: str, tmp_path: Path) -> None:
    run = compared(options(own, noises=("none",), seeds=1, epochs=1), tmp_path / "run")
    left_out = {row["method"]: row["reason"] for row in result(run)["left_out"]}
    assert left_out == {**dict.fromkeys(KEEP_RATE, NEEDS_RATE), "reweight": NEEDS_CLEAN}
    assert [row["method"] for row in result(run)["summary"]] == ["standard", "decoupling", "f-correction", "s2e"]
    assert result(run)["noise_rates"] == {"none": None}


@pytest.mark.parametrize("known", [False, True])
def test_given_noise_rate_makes_the_schedules(own: str, data: str, tmp_path: Path, known: bool) -> None:
    source, noise = (data, NOISES[0]) if known else (own, "none")
    run = compared(options(source, "mentornet", "jocor", noises=(noise,), seeds=1, noise_rate=0.2), tmp_path / "run")
    for one in outcomes(run).values():
        assert one.keep_rates is not None
        np.testing.assert_allclose(one.keep_rates, coteaching_schedule(0.2))
    assert result(run)["noise_rates"][noise] != 0.2  # a given rate is not reported as the true one


def test_schedule_is_made_from_the_noise_rate_of_its_own_draw(data: str, tmp_path: Path) -> None:
    run = compared(options(data, "mentornet", epochs=12), tmp_path / "run")
    shares = [prepared(data, NOISES[0], draw).noise_rate for draw in range(2)]
    assert shares[0] != shares[1]
    for draw, one in enumerate(outcomes(run).values()):
        assert one.keep_rates is not None
        assert one.keep_rates[-1] == pytest.approx(1 - (shares[draw] or 0))


# ------------------------------------------------------------------------------------------------ divergence


def diverging(objective: Callable[[Any, Batch], Objective], members: slice) -> Callable[[Any, Batch], Objective]:
    def broken(self: Any, batch: Batch) -> Objective:
        sound = objective(self, batch)
        loss = sound.loss.clone()
        loss[members] *= torch.nan
        return sound._replace(loss=loss)

    return broken


def test_diverging_method_leaves_the_others_unchanged(
    run: Run, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Standard, "objective", diverging(Standard.objective, slice(None)))
    made = compared(options(data, "standard", "f-correction", "coteaching", "reweight"), tmp_path / "run")
    lost = {"standard", "f-correction"}  # forward correction estimates its matrix with Standard
    for key, one in outcomes(made).items():
        assert one.diverged == (key[1] in lost)
        if not one.diverged:
            np.testing.assert_array_equal(one.accuracy, outcomes(run)[key].accuracy)
    for row in result(made)["summary"]:
        assert row["diverged"] == (2 if row["method"] in lost else 0)
        assert (row["last_10_epochs"]["mean"] == 0) == (row["method"] in lost)
    assert "NaN" not in json.dumps(result(made))


def test_diverging_seed_leaves_the_others_unchanged(
    run: Run, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Reweight, "objective", diverging(Reweight.objective, slice(1)))
    made = compared(options(data, "reweight"), tmp_path / "run")
    first, second = outcomes(made).values()
    assert (first.diverged, second.diverged) == (True, False)
    np.testing.assert_array_equal(second.accuracy, outcomes(run)["pair:0.4", "reweight", 1].accuracy)
    assert (result(made)["summary"][0]["diverged"], result(made)["status"]) == (1, "some members diverged")
