"""Trainings that are stopped early: members of a generation are pruned as Optuna prunes trials one after another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
import torch
from numpy.typing import NDArray
from optuna.pruners import HyperbandPruner
from optuna.trial import FrozenTrial, TrialState

from frequent_checkpoints import Killed as KilledWithinGeneration
from frequent_checkpoints import every_epoch, kill_at
from s2e.engine.curves import Curves
from s2e.engine.task import VALIDATION, EpochFinished, Member, Task
from s2e.engine.training import train_population
from s2e.methods import Coteaching
from s2e.seeds import derive
from s2e.studies import (
    VALIDATION_ACCURACY,
    GenerationFinished,
    Search,
    SearchPlan,
    epochs_left,
    finished_trials,
    run_generations,
    search_schedules,
)
from s2e.studies.loop import ask, next_generation
from s2e.studies.optuna_internals import pruner_attributes, set_user_attribute
from s2e.studies.pruning import GenerationPruner
from s2e.studies.trials import full_trainings
from searches import Killed, make_plan, make_study, make_task, search_schedule, simulated_training, trial_records
from small_tasks import blobs

EPOCHS, K = 27, 6
RUNGS = (1, 3, 9)
SHORT = 9
"""Epochs of real trainings; these are stopped after 1 or 3."""


def hyperband_plan(trials: int = 8, *, epochs: int = EPOCHS, sampler: str = "hyperband", seed: int = 0) -> SearchPlan:
    return make_plan(sampler, trials, K, space="coteaching", epochs=epochs, seed=seed)


def drawn_accuracies(seed: int, trials: int = 60) -> NDArray[np.float64]:
    """Accuracies by trial and epoch, (n, T): rising, crossing, and some of them equal."""
    generator = np.random.default_rng(seed)
    ends = generator.choice([0.5, 0.6, 0.7, 0.8], size=(trials, 1)) + generator.choice([0, 0.05], size=(trials, 1))
    speeds = generator.uniform(0.5, 0.95, size=(trials, 1))
    return np.asarray(np.round(ends * (1 - speeds ** np.arange(1, EPOCHS + 1)), 3))


def curves_after(epoch: int, errors: Sequence[float], *, diverged: Sequence[bool] | None = None) -> Curves:
    """Curves of members with these errors after this epoch."""
    curves = Curves.empty(len(errors), EPOCHS, [VALIDATION])
    curves.accuracy[VALIDATION][:, epoch - 1] = 1.0 - np.array(errors)
    curves.epochs[:] = epoch
    curves.diverged[:] = False if diverged is None else diverged
    return curves


def pruner_of(study: optuna.Study, trials: Sequence[FrozenTrial]) -> GenerationPruner:
    spec = hyperband_plan().sampler
    assert spec.pruner is not None
    return GenerationPruner(study, trials, spec.pruner, spec.rungs)


def asked_pruner(study: optuna.Study, count: int = K) -> GenerationPruner:
    return pruner_of(study, ask(study, hyperband_plan(), count))


def outcomes(study: optuna.Study) -> list[tuple[TrialState, int]]:
    """How each trial ended, and after which epoch."""
    return [(trial.state, len(trial.user_attrs[VALIDATION_ACCURACY])) for trial in study.trials]


# Which members stop


def one_after_another(accuracy: NDArray[np.float64], name: str, trials: int) -> list[tuple[TrialState, int]]:
    """Use Optuna's pruner as its documentation does."""
    pruner = HyperbandPruner(min_resource=1, max_resource=EPOCHS, reduction_factor=3)
    study = optuna.create_study(study_name=name, pruner=pruner, direction="minimize")
    ends = []
    for number in range(trials):
        trial, stopped = study.ask(), EPOCHS
        for epoch in range(1, EPOCHS + 1):
            trial.report(1.0 - accuracy[number, epoch - 1], epoch)
            if trial.should_prune() and epoch < EPOCHS:
                stopped = epoch
                break
        if stopped < EPOCHS:
            study.tell(trial, state=TrialState.PRUNED)
        else:
            study.tell(trial, 1.0 - accuracy[number, -10:].mean())
        ends.append((study.trials[number].state, stopped))
    return ends


@pytest.mark.parametrize("seed", range(2))
def test_members_are_stopped_as_optuna_stops_trials_one_after_another(seed: int) -> None:
    study, plan, accuracy = make_study(name=f"study {seed}"), hyperband_plan(), drawn_accuracies(seed)
    number_of = {derive(plan.seed, "trial", number): number for number in range(len(accuracy))}
    train = simulated_training(lambda member: accuracy[number_of[member.seed]])
    run_generations(train, EPOCHS, [Search(plan, study)])
    ends = outcomes(study)
    assert ends == one_after_another(accuracy, f"study {seed}", len(ends))
    assert {epoch for state, epoch in ends if state == TrialState.PRUNED} >= {1, 3}


def test_order_of_the_members_does_not_matter() -> None:
    generator = np.random.default_rng(0)
    errors, order = generator.random(12), generator.permutation(12)
    for epoch in RUNGS:
        stopped = asked_pruner(make_study(), 12).stopped(epoch, range(12), curves_after(epoch, errors.tolist()))
        shuffled = asked_pruner(make_study(), 12).stopped(
            epoch, order.tolist(), curves_after(epoch, errors[order].tolist())
        )
        assert stopped == shuffled
        assert stopped


@pytest.mark.parametrize("first", [1, 5])
def test_chunks_are_stopped_as_all_members_at_once(first: int) -> None:
    errors = {epoch: np.random.default_rng(epoch).random(12) for epoch in RUNGS}
    whole, chunked = asked_pruner(make_study(), 12), asked_pruner(make_study(), 12)

    def stopped(pruner: GenerationPruner, epoch: int, members: range) -> list[int]:
        return pruner.stopped(epoch, members, curves_after(epoch, errors[epoch][list(members)].tolist()))

    together = {(epoch, member) for epoch in (1, 3) for member in stopped(whole, epoch, range(12))}
    apart = {
        (epoch, member)
        for members in (range(first), range(first, 12))
        for epoch in (1, 3)  # the first chunk is finished before the second begins
        for member in stopped(chunked, epoch, members)
    }
    assert together == apart


def test_members_stop_at_rungs_only() -> None:
    study = make_study()
    pruner = asked_pruner(study)
    for epoch in range(1, EPOCHS + 1):
        stopped = pruner.stopped(epoch, range(K), curves_after(epoch, np.linspace(0.1, 0.9, K).tolist()))
        assert bool(stopped) <= (epoch in RUNGS)
    pruner.write_reports(0)
    assert list(study.trials[0].intermediate_values) == list(RUNGS)


def test_diverged_member_reports_an_error_of_1() -> None:
    study = make_study()
    pruner = asked_pruner(study)
    diverged = [False, True, False, True, False, False]
    pruner.stopped(1, range(K), curves_after(1, [0.3, 0.1, math.nan, math.nan, 0.2, 0.3], diverged=diverged))
    for member in range(K):
        pruner.write_reports(member)
    reported = [trial.intermediate_values[1] for trial in study.trials]
    assert reported == pytest.approx([0.3, 1.0, 1.0, 1.0, 0.2, 0.3])


@pytest.mark.parametrize("stored", [False, True])
def test_reports_are_written_for_one_member_on_request(stored: bool, tmp_path: Path) -> None:
    study = make_study(tmp_path / "study.db" if stored else None)
    pruner, before = asked_pruner(study), trial_records(study)
    for epoch in (1, 3):
        pruner.stopped(epoch, range(K), curves_after(epoch, [0.9, *(0.1 * epoch,) * (K - 1)]))
    assert trial_records(study) == before
    oracle = optuna.create_study(study_name="search", pruner=HyperbandPruner(1, EPOCHS, 3))
    for member in range(K):
        trial = oracle.ask()
        for epoch in (1, 3):
            trial.report(0.9 if member == 0 else 0.1 * epoch, epoch)
            trial.should_prune()
    for member in (2, 0):
        pruner.write_reports(member)
    for number, trial in enumerate(study.trials):
        written = number in (0, 2)
        assert trial.intermediate_values == pytest.approx(oracle.trials[number].intermediate_values if written else {})
        assert pruner_attributes(trial) == pytest.approx(oracle.trials[number].system_attrs if written else {})
        assert trial.state == TrialState.RUNNING


def test_reports_of_a_killed_process_are_ignored() -> None:
    errors = np.random.default_rng(3).random(K).tolist()
    study = make_study()
    asked = ask(study, hyperband_plan(), K)
    first = pruner_of(study, asked)
    stopped = first.stopped(1, range(K), curves_after(1, errors))
    first.write_reports(0)
    first.write_reports(1)  # killed here
    second = pruner_of(study, asked)
    assert second.stopped(1, range(K), curves_after(1, errors)) == stopped
    second.write_reports(0)
    assert study.trials[0].intermediate_values == pytest.approx({1: errors[0]})


@pytest.mark.parametrize("epochs", [27, 100])
def test_hyperband_has_four_brackets_and_the_last_stops_no_member(epochs: int) -> None:
    spec = hyperband_plan(epochs=epochs).sampler
    study = make_study(name=f"brackets of {epochs}")
    for number in range(60):  # each worse than all before it, so every comparison stops it
        trial = study.ask()
        for rung in spec.rungs:
            trial.report(number, rung)
            if spec.pruner is not None and spec.pruner.prune(study, study.get_trials(deepcopy=False)[number]):
                break
        study.tell(trial, float(number))
    assert len(spec.rungs) == 3
    assert spec.rungs[-1] < epochs / 2
    assert {trial.last_step for trial in study.trials[12:]} == {*spec.rungs}
    whole = [trial for trial in study.trials[12:] if len(trial.intermediate_values) == 3]
    assert any(not pruner_attributes(trial) for trial in whole)


# The budget


def add_trials(study: optuna.Study, plan: SearchPlan, epochs: Sequence[int]) -> None:
    """Tell trials that were trained for these numbers of epochs."""
    for trial, trained in zip(ask(study, plan, len(epochs)), epochs, strict=True):
        set_user_attribute(study, trial, VALIDATION_ACCURACY, [0.5] * trained)
        if trained < EPOCHS:
            study.tell(trial.number, state=TrialState.PRUNED)
        else:
            study.tell(trial.number, 0.5)


@pytest.mark.parametrize(
    ("budget", "epochs", "asked"),
    [
        (8, [27, 27, 1, 1, 1, 1], 6),  # 8 - 2.15 are left: a whole generation
        (3, [27, 27, 1, 1, 1, 1], 1),  # 0.85 of a training is left: one more
        (4, [27, 1, 1], 3),  # 2.93 are left, and half of the generation
        (3, [27, 27, 9, 9, 9], 0),  # exactly 3
    ],
)
def test_generation_is_as_large_as_the_budget_left(budget: int, epochs: list[int], asked: int) -> None:
    study, plan = make_study(), hyperband_plan(budget)
    add_trials(study, plan, epochs)
    assert len(next_generation(Search(plan, study), EPOCHS)) == asked


def test_epochs_left_are_estimated_from_the_cost_of_trials_so_far() -> None:
    study = make_study()
    assert epochs_left([Search(hyperband_plan(7), study)], EPOCHS) == 2 * EPOCHS
    add_trials(study, hyperband_plan(), [27, 9, 9, 9, 9, 18])  # 3 of 8, half a training each: 10 more
    assert epochs_left([Search(hyperband_plan(8), study)], EPOCHS) == 2 * EPOCHS
    assert epochs_left([Search(hyperband_plan(3), study)], EPOCHS) == 0


# Real trainings


def short_task(**changes: Any) -> Task:
    return make_task(epochs=SHORT, **changes)


Searched = tuple[optuna.Study, list[EpochFinished], list[GenerationFinished]]


@pytest.fixture(scope="module")
def searched() -> Searched:
    study, epochs, progress = make_study(), list[EpochFinished](), list[GenerationFinished]()
    plan = hyperband_plan(7, epochs=SHORT)
    search_schedule(short_task(), plan, study, on_epoch=epochs.append, on_generation=progress.append)
    return study, epochs, progress


def test_stopped_trials_hold_their_reports(searched: Searched) -> None:
    study, _, _ = searched
    ends = outcomes(study)
    assert {state for state, _ in ends} == {TrialState.PRUNED, TrialState.COMPLETE}
    for (state, epochs), trial in zip(ends, study.trials, strict=True):
        assert epochs in ((1, 3) if state == TrialState.PRUNED else (SHORT,))
        accuracy = trial.user_attrs[VALIDATION_ACCURACY]
        reported = {epoch: 1.0 - accuracy[epoch - 1] for epoch in (1, 3) if epoch <= epochs}
        assert trial.intermediate_values == pytest.approx(reported, abs=1e-6)
        if state == TrialState.COMPLETE:
            assert trial.values[0] == pytest.approx(1.0 - np.mean(accuracy), abs=1e-6)


def test_budget_is_spent_in_full_trainings(searched: Searched) -> None:
    study, _, progress = searched
    epochs = [trained for _, trained in outcomes(study)]
    assert full_trainings(finished_trials(study), SHORT) == pytest.approx(sum(epochs) / SHORT)
    assert len(epochs) > 7
    assert sum(epochs) >= 7 * SHORT
    assert sum(epochs[:-K]) < 7 * SHORT
    assert [each.trials for each in progress] == [7] * len(progress)
    assert progress[0].finished == sum(epochs[:K]) // SHORT
    assert progress[-1].finished == sum(epochs) // SHORT
    complete = [1.0 - trial.values[0] for trial in study.trials if trial.state == TrialState.COMPLETE]
    assert progress[-1].best == (max(complete),)


def test_stopped_members_leave_the_population(searched: Searched) -> None:
    study, epochs, _ = searched
    first = [progress for progress in epochs if len(progress.indices) == K][:SHORT]
    ends = np.array([trained for _, trained in outcomes(study)])[:K]
    np.testing.assert_array_equal(first[-1].curves.epochs, ends)
    trained = np.isfinite(first[-1].curves.loss)  # (K, T)
    np.testing.assert_array_equal(trained, np.arange(SHORT) < ends[:, None])
    assert 0 < trained[:, -1].sum() < K


def test_complete_trial_equals_its_training_alone(searched: Searched) -> None:
    plan = hyperband_plan(7, epochs=SHORT)
    trial = next(trial for trial in searched[0].trials if trial.state == TrialState.COMPLETE)
    point = np.array([[trial.params[name] for name in plan.space.names]])
    member = Member(plan.space.decode(point, SHORT)[0], derive(plan.seed, "trial", trial.number), plan.learning_rate)
    assert trial.values[0] == 1.0 - train_population(short_task(), [member]).curves.last(VALIDATION)[0]


@pytest.fixture
def _threads_for_small_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let threads share a population however small its networks are."""
    monkeypatch.setattr("s2e.engine.threads.FLOPS_PER_THREAD", 1.0)


@pytest.mark.parametrize(("threads", "chunk"), [pytest.param(2, None, marks=pytest.mark.slow), (1, 3)])
@pytest.mark.usefixtures("_threads_for_small_networks")
def test_threads_and_chunks_stop_the_same_trials(threads: int, chunk: int | None, searched: Searched) -> None:
    study, epochs = make_study(), list[EpochFinished]()
    torch.set_num_threads(threads)
    try:
        search_schedule(short_task(chunk=chunk), hyperband_plan(7, epochs=SHORT), study, on_epoch=epochs.append)
    finally:
        torch.set_num_threads(1)
    assert {(0, 1, 2), (3, 4, 5)} <= {progress.indices for progress in epochs}
    assert trial_records(study) == trial_records(searched[0])


def test_pruned_search_together_with_others_equals_it_alone() -> None:
    def searches() -> list[Search]:
        return [
            Search(hyperband_plan(3, epochs=SHORT, sampler="random"), make_study(name="a")),
            Search(hyperband_plan(8, epochs=SHORT, seed=1), make_study(name="b"), method=Coteaching()),
            Search(hyperband_plan(9, epochs=SHORT, seed=2), make_study(name="c"), labels=blobs(wrong=0.5).labels),
        ]

    together, alone = searches(), searches()
    found = search_schedules(short_task(), together)
    for one, other, best in zip(together, alone, found, strict=True):
        (best_alone,) = search_schedules(short_task(), [other])
        assert trial_records(one.study) == trial_records(other.study)
        assert best.trial == best_alone.trial
    assert any(trial.state == TrialState.PRUNED for one in together[1:] for trial in one.study.trials)
    assert all(trial.state == TrialState.COMPLETE for trial in together[0].study.trials)


def test_killed_search_with_pruning_has_the_same_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, every = hyperband_plan(), 4
    train = simulated_training(
        lambda member: np.random.default_rng(member.seed).uniform(0.3, 1.0) * (1 - 0.5 ** np.arange(1.0, EPOCHS + 1))
    )
    whole = make_study()
    run_generations(train, EPOCHS, [Search(plan, whole)])
    assert {trial.state for trial in whole.trials} == {TrialState.PRUNED, TrialState.COMPLETE}
    tells, tell = 0, optuna.Study.tell

    def tell_then_kill(study: optuna.Study, *args: Any, **named: Any) -> FrozenTrial:
        nonlocal tells
        tells += 1
        result = tell(study, *args, **named)
        if tells % every == 0:
            raise Killed
        return result

    monkeypatch.setattr(optuna.Study, "tell", tell_then_kill)
    for _ in range(len(whole.trials) // every + 1):
        try:
            run_generations(train, EPOCHS, [Search(plan, make_study(tmp_path / "study.db"))])
            break
        except Killed:
            continue
    assert trial_records(make_study(tmp_path / "study.db")) == trial_records(whole)
    assert tells == len(whole.trials)


@pytest.mark.parametrize(("threads", "call"), [(1, 3), (1, 5), pytest.param(2, 9, marks=pytest.mark.slow)])
@pytest.mark.usefixtures("_threads_for_small_networks")
def test_search_resumed_within_a_generation_has_the_same_trials(
    threads: int, call: int, searched: Searched, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plan, path = hyperband_plan(7, epochs=SHORT), tmp_path / "study.db"
    task = short_task(checkpoints=every_epoch(tmp_path / "checkpoints"))
    torch.set_num_threads(threads)
    try:
        with pytest.raises(KilledWithinGeneration):
            search_schedule(task, plan, make_study(path), on_epoch=kill_at(call))
        search_schedule(task, plan, make_study(path))
    finally:
        torch.set_num_threads(1)
    assert caplog.text.count("continuing") == threads
    assert trial_records(make_study(path)) == trial_records(searched[0])
