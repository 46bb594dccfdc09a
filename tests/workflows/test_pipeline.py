"""The pipeline that every workflow calls: its parts by hand, relabelling, and the test part kept out of the search."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from numpy.typing import NDArray

from listeners import Log
from populations import call_before_search_training
from s2e.audit.cross_fitting import FOLDS
from s2e.audit.evidence import Evidence
from s2e.audit.label_model import AMBIGUOUS, LabelAudit, audit
from s2e.audit.relabelling import relabelled_validation
from s2e.engine.inference import predictions
from s2e.engine.restarts import FinalTraining, SelectedRestart
from s2e.engine.task import VALIDATION, Member, Task
from s2e.engine.training import train_population
from s2e.errors import InvalidInput
from s2e.methods import METHODS, SEARCHABLE, Coteaching
from s2e.networks.factories import default_network
from s2e.runs.directory import Run
from s2e.schedules import Space
from s2e.seeds import derive
from s2e.specs import ClassifierSpec, Execution, SearchSpec, TrainingSpec
from s2e.studies import Search, SearchPlan, open_study
from s2e.workflows.pipeline import (
    RELABELLED,
    SEARCHED,
    TEST,
    _voting,
    build_task,
    check_choices,
    find_schedules,
    folds_of,
    method_for,
    plan_for,
    search_and_train,
    train_final,
    trained_on_audited_labels,
    training_on_audited_labels,
)
from s2e.workflows.run_files import classifier_row, network_name
from small_tasks import blobs

pytestmark = pytest.mark.usefixtures("few_trees")

TRAINING = TrainingSpec(epochs=3, batch_size=32, learning_rate=1e-2)
SEARCH = SearchSpec(space="coteaching", sampler="random", trials=4, generation_size=2)
TRAIN, VALID, UNSEEN = blobs(), blobs(96, seed=1), blobs(96, wrong=0.0, seed=2)
SEED = 5
TRAIN_TRUTH, VALID_TRUTH = TRAIN.clean_labels, VALID.clean_labels


def a_task(**changes: Any) -> Task:
    given = {"seed": SEED, "execution": Execution("cpu"), **changes}
    return build_task(TRAIN, {VALIDATION: VALID}, TRAINING, "coteaching", **given)


def a_plan(task: Task) -> SearchPlan:
    return plan_for(task, SEARCH, TRAINING, SEED, method="coteaching")


def in_memory() -> optuna.Study:
    return open_study(None, "search", {})


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", {})


def test_task_has_the_values_of_the_spec() -> None:
    task = a_task()
    assert (task.epochs, task.batch_size, task.method.name, task.device.type) == (3, 32, "coteaching", "cpu")
    assert (task.seed, a_task(order="comparison").seed) == (derive(SEED, "batches"), derive(SEED, "comparison"))


def test_network_is_the_given_one_or_the_default_for_the_data() -> None:
    assert network_name("cifar10-cnn", TRAIN) == "cifar10-cnn"
    assert network_name("auto", TRAIN) == default_network(TRAIN.sample_shape, TRAIN.classes)


def test_task_that_cannot_be_trained_is_refused() -> None:
    too_large = replace(TRAINING, batch_size=100_000)
    with pytest.raises(InvalidInput, match="`batch_size` must not exceed"):
        build_task(TRAIN, {VALIDATION: VALID}, too_large, "coteaching", seed=0, execution=Execution("cpu"))


def test_only_methods_with_a_keep_rate_can_be_searched() -> None:
    for name in METHODS:
        check_choices(TRAINING, name, Execution("cpu"))
        if name in SEARCHABLE:
            check_choices(TRAINING, name, Execution("cpu"), SEARCH)
        else:
            with pytest.raises(InvalidInput, match=f"`method` must have a keep rate .* but got {name}"):
                check_choices(TRAINING, name, Execution("cpu"), SEARCH)


@pytest.mark.parametrize("validation", ["clean", "noisy"])
def test_pipeline_equals_its_parts_by_hand(validation: str) -> None:
    task, restarts = a_task(), 2
    plan = a_plan(task)
    outcome = search_and_train(task, plan, in_memory(), validation=validation, restarts=restarts, test=UNSEEN)
    (found,), compared_on = find_schedules(task, [Search(plan, in_memory())], relabel=validation == "noisy")
    np.testing.assert_array_equal(outcome.found.schedule, found.schedule)
    training = FinalTraining(SEARCHED, task.method, found.schedule, restarts, folds=folds_of(task, FOLDS, SEED))
    (expected,) = train_final(compared_on, [training], learning_rate=1e-2, seed=SEED, test=UNSEEN)
    (selected,) = outcome.selected
    assert selected.index == expected.index
    for part in (VALIDATION, TEST):
        found = selected.trained.curves.accuracy[part][list(selected.restarts)]
        np.testing.assert_array_equal(found, expected.trained.curves.accuracy[part][list(expected.restarts)])
    held_out = VALID.labels if validation == "noisy" else []  # the given ones, not the relabelled ones
    np.testing.assert_array_equal(outcome.records["labels"], [*TRAIN.labels, *held_out])
    assert outcome.validation == ("relabelled" if validation == "noisy" else "clean")
    assert outcome.records["out_of_fold"].shape == (len(TRAIN) + len(held_out), TRAIN.classes)


def test_folds_change_neither_the_restarts_nor_the_selected_one() -> None:
    task = a_task()
    plan = a_plan(task)
    with_folds, without = (
        search_and_train(task, plan, in_memory(), validation="clean", restarts=2, folds=folds) for folds in (3, 0)
    )
    (one,), (other,) = with_folds.selected, without.selected
    assert one.index == other.index
    assert one.fold_members == (2, 3, 4)
    assert other.fold_members == ()
    for name, tensor in one.state.items():
        np.testing.assert_array_equal(tensor, other.state[name])
    np.testing.assert_array_equal(one.validation_accuracies, other.validation_accuracies)
    assert "out_of_fold" not in without.records


def test_predictions_out_of_fold_are_those_of_networks_not_trained_on_the_sample() -> None:
    task = a_task()
    one = ClassifierSpec(ensemble=1)  # no models, and no training on audited labels, vote
    outcome = search_and_train(task, a_plan(task), in_memory(), validation="noisy", restarts=1, folds=3, classifier=one)
    (selected,) = outcome.selected
    assert (np.sum(list(selected.held_out.values()), axis=0) == 1).all(), "every sample is held out once"
    for turn, (member, held_out) in enumerate(selected.held_out.items()):
        assert (selected.trained.dynamics.kept[member, held_out] == 0).all()
        state = {name: tensor[selected.trained.rows(member)] for name, tensor in selected.trained.state.items()}
        for part, rows in ((TRAIN, np.flatnonzero(held_out)), (VALID, np.arange(turn, len(VALID), 3))):
            expected = predictions(selected.task, state, part.inputs[rows]).mean(axis=0)
            first = 0 if part is TRAIN else len(TRAIN)
            np.testing.assert_allclose(outcome.records["out_of_fold"][first + rows], expected, atol=1e-3)


def test_methods_that_cannot_hold_out_have_no_folds() -> None:
    assert folds_of(replace(a_task(), method=METHODS["decoupling"]), 5, SEED) is None
    assert folds_of(a_task(), 0, SEED) is None
    assert folds_of(replace(a_task(), train=TRAIN.take(np.arange(3))), 5, SEED) is None


def test_relabelling_can_be_switched_off() -> None:
    task, log = a_task(), Log()
    plan = a_plan(task)
    outcome = search_and_train(task, plan, in_memory(), validation="noisy", restarts=1, relabel=False, listener=log)
    assert outcome.validation == "noisy"
    assert log.stage_names == ["search", "final training"]


def test_relabelled_labels_are_stored_and_read_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    task, log = a_task(), Log()
    searches = [Search(a_plan(task), in_memory())]
    _, first = find_schedules(task, searches, relabel=True, run=run, listener=log)
    expected = relabelled_validation(task, learning_rate=1e-2, seed=SEED)
    assert (expected != VALID.labels).any()
    np.testing.assert_array_equal(first.evaluate[VALIDATION].labels, expected)
    np.testing.assert_array_equal(run.read_arrays(RELABELLED)["labels"], expected)
    assert log.stages[0] == ("relabelling validation", 3)
    monkeypatch.setattr("s2e.workflows.pipeline.relabelled_validation", lambda *_, **__: pytest.fail("trained again"))
    _, again = find_schedules(task, searches, relabel=True, run=run, listener=log)
    np.testing.assert_array_equal(again.evaluate[VALIDATION].labels, expected)


def test_networks_are_chosen_by_given_and_new_labels() -> None:
    task = a_task()
    outcome = search_and_train(task, a_plan(task), in_memory(), validation="noisy", restarts=1)
    new = outcome.task.evaluate[VALIDATION].labels
    assert (new != VALID.labels).any()
    np.testing.assert_array_equal(outcome.chosen_by.labels, np.concatenate([VALID.labels, new]))
    np.testing.assert_array_equal(outcome.chosen_by.inputs, np.concatenate([VALID.inputs] * 2))
    clean = search_and_train(task, a_plan(task), in_memory(), validation="clean", restarts=1)
    assert clean.chosen_by is task.evaluate[VALIDATION]


def test_one_member_is_the_selected_restart_and_trains_nothing_else() -> None:
    task = a_task()
    one = ClassifierSpec(ensemble=1)
    outcome = search_and_train(task, a_plan(task), in_memory(), validation="clean", restarts=2, folds=0, classifier=one)
    (selected,) = outcome.selected
    assert len(selected.trained.networks_per_member) == 2
    assert outcome.models is None
    for name, tensor in selected.state.items():
        assert (outcome.ensemble.state[name] == tensor).all()


def test_test_part_never_reaches_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Task] = []
    call_before_search_training(lambda task, _: seen.append(task), monkeypatch)
    task = a_task()
    outcome = search_and_train(task, a_plan(task), in_memory(), validation="clean", restarts=1, test=UNSEEN)
    assert [each.evaluate.keys() for each in seen] == [{VALIDATION}] * 2
    assert outcome.selected[0].task.evaluate.keys() == {VALIDATION, TEST}


def test_final_training_draws_other_weights_and_batches_than_the_search() -> None:
    task = a_task()
    (final,) = train_final(task, [FinalTraining("x", task.method, np.ones(3))], learning_rate=1e-2, seed=SEED)
    assert final.task.seed not in (task.seed, SEED)


def test_schedule_is_written_before_the_final_training(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Any] = []
    monkeypatch.setattr(
        "s2e.workflows.pipeline.train_restarts", lambda *_, **__: written.append(run.read_json("schedule.json")) or []
    )
    task = a_task()
    with pytest.raises(IndexError):  # there is no restart to record
        search_and_train(task, a_plan(task), in_memory(), validation="clean", restarts=1, run=run)
    assert len(written[0]["keep_rates"]) == 3


def test_stages_announce_the_epochs_that_are_trained() -> None:
    task, log = a_task(), Log()
    search_and_train(task, a_plan(task), in_memory(), validation="noisy", restarts=2, listener=log)
    assert log.stages == [("relabelling validation", 3), ("search", 6), ("final training", 3)]
    assert len(log.epochs) == 12
    assert [(done.finished, done.trials) for done in log.generations] == [(2, 4), (4, 4)]


def test_samples_are_selected_within_labels_where_these_are_imbalanced() -> None:
    rare = replace(TRAIN, labels=np.where(np.arange(len(TRAIN)) < 6, 1, 0), class_names=("a", "b"), clean_labels=None)
    assert method_for("coteaching", TRAIN) == METHODS["coteaching"]
    assert method_for("coteaching", rare) == Coteaching(by_class=True)
    assert method_for("coteaching:by_class=false", rare) == METHODS["coteaching"]
    assert method_for(Coteaching(), rare) == METHODS["coteaching"]
    assert method_for("standard", rare) is METHODS["standard"]


@pytest.mark.parametrize("seed", range(3))
def test_misleading_new_labels_do_not_discard_a_better_baseline(seed: int) -> None:
    task = replace(a_task(), epochs=20)
    good, bad = (
        train_population(task, [Member(np.ones(20), seed, 1e-2, labels)]).state
        for labels in (TRAIN_TRUTH, (TRAIN_TRUTH + 1) % 4)
    )
    given = replace(VALID, labels=VALID_TRUTH)
    misleading = replace(VALID, labels=(VALID_TRUTH + 1) % 4)
    chosen = _voting(task, [bad, good], misleading, None, None, most=2, seed=seed)
    safe = _voting(task, [bad, good], misleading, good, given, most=2, seed=seed)
    accuracies = [
        (each.probabilities(task, UNSEEN.inputs).argmax(axis=1) == UNSEEN.labels).mean() for each in (chosen, safe)
    ]
    assert accuracies[0] < 0.3
    assert accuracies[1] > 0.8


def test_methods_compete_and_the_final_training_has_the_method_that_was_found() -> None:
    task = a_task()
    plan = plan_for(task, replace(SEARCH, trials=8, generation_size=8), TRAINING, SEED, method="auto")
    study = in_memory()
    outcome = search_and_train(task, plan, study, validation="clean", restarts=1)
    trained = {method.name for method in plan.space.methods_of(points_of(study, plan.space))}
    assert len(trained) > 1
    assert outcome.found.method is not None
    assert outcome.selected[-1].training.method == outcome.found.method == outcome.task.method


def points_of(study: optuna.Study, space: Space) -> NDArray[np.float64]:
    return np.array([[trial.params[name] for name in space.names] for trial in study.trials])


def predicted_as(classes: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """Return records of the training samples, each held out and predicted as a class with a probability of 0.97."""
    return {"labels": TRAIN.labels, "out_of_fold": np.full((len(TRAIN), 4), 0.01) + 0.96 * np.eye(4)[classes]}


def audited(records: dict[str, NDArray[Any]]) -> LabelAudit:
    return audit(Evidence.from_records(records))


def test_networks_are_trained_again_on_the_labels_that_the_audit_suggests() -> None:
    assert TRAIN_TRUTH is not None
    training = training_on_audited_labels(a_task(), audited(predicted_as(TRAIN_TRUTH)))
    assert training is not None
    assert training.labels is not None
    assert (training.labels == TRAIN_TRUTH).mean() > 0.95
    assert 0.7 < training.schedule[-1] <= 1.0
    (selected,) = train_final(replace(a_task(), epochs=3), [training], learning_rate=1e-2, seed=SEED)
    by_hand = replace(a_task(), train=replace(TRAIN, labels=training.labels, clean_labels=None))
    (expected,) = train_final(by_hand, [replace(training, labels=None)], learning_rate=1e-2, seed=SEED)
    for name, tensor in selected.state.items():
        np.testing.assert_array_equal(tensor, expected.state[name])


def test_labels_that_the_audit_leaves_as_they_are_are_not_trained_on_again() -> None:
    assert training_on_audited_labels(a_task(), audited(predicted_as(TRAIN.labels))) is None


def test_networks_that_predict_alone_are_trained_on_audited_labels_too() -> None:
    task, log = a_task(), Log()
    alone = ClassifierSpec(models=False)
    search_and_train(task, a_plan(task), in_memory(), validation="clean", restarts=1, classifier=alone, listener=log)
    rounds = [f"training on audited labels, round {number}" for number in (1, 2)]
    stages = [name for name, _ in log.stages]
    assert stages[:2] == ["search", "final training"]
    assert stages[2:] in (rounds, rounds[:1])


def test_labels_are_audited_by_the_networks_of_every_round_until_these_explain_them_less_well() -> None:
    """The first audit is by predictions that are worse than those of networks trained on its suggestions."""
    assert TRAIN_TRUTH is not None
    drawn = np.random.default_rng(0)
    guessed = np.where(drawn.random(len(TRAIN)) < 0.25, drawn.integers(0, 4, len(TRAIN)), TRAIN_TRUTH)
    task, before = replace(a_task(), epochs=8), predicted_as(guessed)
    folds = np.arange(len(TRAIN)) % 3

    def train(training: FinalTraining, number: int) -> SelectedRestart:
        return train_final(task, [training], learning_rate=1e-2, seed=number)[0]

    trained, after = trained_on_audited_labels(task, before, folds, train)
    assert 1 <= len(trained) <= 2
    assert all(len(one.states) == 2 and len(one.fold_members) == 3 for one in trained)
    assert audited(after).log_likelihood > audited(before).log_likelihood
    assert (audited(after).suggested == TRAIN_TRUTH).mean() > (audited(before).suggested == TRAIN_TRUTH).mean()
    untrained, same = trained_on_audited_labels(task, predicted_as(TRAIN.labels), folds, train)
    assert untrained == []
    assert same.keys() == before.keys()


def test_no_round_is_trained_without_time_or_where_classes_may_be_exchanged() -> None:
    assert TRAIN_TRUTH is not None
    task, before, folds = a_task(), predicted_as(TRAIN_TRUTH), np.arange(len(TRAIN)) % 3
    asked = []

    def train(training: FinalTraining, number: int) -> None:
        asked.append((training.name, number))

    trained, after = trained_on_audited_labels(task, before, folds, train)
    assert trained == []
    assert after.keys() == before.keys()
    assert asked == [("audited labels", 0)]

    exchanged = np.where(np.arange(len(TRAIN)) % 20 < 9, (TRAIN_TRUTH + 1) % 4, TRAIN_TRUTH)
    task = replace(task, train=replace(TRAIN, labels=exchanged))
    records = {"labels": exchanged, "out_of_fold": predicted_as(TRAIN_TRUTH)["out_of_fold"]}
    assert audited(records).message == AMBIGUOUS
    assert trained_on_audited_labels(task, records, folds, train)[0] == []
    assert len(asked) == 1


def test_a_round_whose_networks_diverge_leaves_the_audit_as_it_was() -> None:
    assert TRAIN_TRUTH is not None
    task, before = a_task(), predicted_as(TRAIN_TRUTH)

    def train(training: FinalTraining, number: int) -> SelectedRestart:
        return train_final(task, [training], learning_rate=1e30, seed=number)[0]

    trained, after = trained_on_audited_labels(task, before, np.arange(len(TRAIN)) % 3, train)
    assert len(trained) == 1
    np.testing.assert_array_equal(after["out_of_fold"], before["out_of_fold"])


def test_a_validation_part_that_models_are_fitted_to_is_predicted_by_others() -> None:
    """Labels that are drawn at random cannot be predicted by classifiers that were not trained on them."""
    drawn = np.random.default_rng(0).integers(0, 4, len(VALID))
    guesses = replace(VALID, labels=drawn, clean_labels=None)
    task = replace(a_task(), evaluate={VALIDATION: guesses})
    outcome = search_and_train(task, a_plan(task), in_memory(), validation="clean", restarts=1)
    assert outcome.models is not None
    assert outcome.held_out is not None
    assert outcome.held_out.shape == (len(VALID), 4)
    assert (outcome.held_out.argmax(axis=1) == drawn).mean() < 0.5
    row = classifier_row(outcome, None)
    assert row["valid"] == pytest.approx((outcome.held_out.argmax(axis=1) == drawn).mean())
