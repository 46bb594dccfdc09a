"""Trainings that are stopped early: a generation side by side is judged as Optuna judges trials one after the other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
import torch
from numpy.typing import NDArray
from optuna.pruners import HyperbandPruner
from optuna.trial import FrozenTrial, TrialState

from s2e.engine.curves import Curves
from s2e.engine.task import VALIDATION, EpochFinished, Member, Task
from s2e.engine.training import train_population
from s2e.methods import Coteaching, MentorNet
from s2e.seeds import derive
from s2e.studies.loop import (
    TRAINED,
    GenerationFinished,
    Stop,
    Train,
    ask,
    best,
    cost,
    epochs_left,
    next_generation,
    run_generations,
    search_schedule,
    search_schedules,
)
from s2e.studies.plan import Search, SearchPlan
from s2e.studies.pruning import GenerationPruner
from s2e.studies.storage import REPORTED, open_study
from small_tasks import blobs, small_mlp, task

EPOCHS, K = 27, 6
RUNGS = (1, 3, 9)
SHORT = 9
"""Epochs of the trainings that are real; those are stopped after 1 or 3 of them."""


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    yield
    optuna.logging.set_verbosity(before)


def a_plan(trials: int = 8, *, epochs: int = EPOCHS, sampler: str = "hyperband", seed: int = 0) -> SearchPlan:
    return SearchPlan.named(
        "coteaching", sampler, epochs=epochs, trials=trials, generation=K, learning_rate=1e-2, seed=seed
    )


def a_study(name: str = "search", path: Path | None = None) -> optuna.Study:
    return open_study(None if path is None else f"sqlite:///{path}", name, {})


def drawn(seed: int, trials: int = 60) -> NDArray[np.float64]:
    """Accuracies by trial and epoch, (n, T): rising, crossing each other, and some of them equal."""
    generator = np.random.default_rng(seed)
    ends = generator.choice([0.5, 0.6, 0.7, 0.8], size=(trials, 1)) + generator.choice([0, 0.05], size=(trials, 1))
    speeds = generator.uniform(0.5, 0.95, size=(trials, 1))
    return np.asarray(np.round(ends * (1 - speeds ** np.arange(1, EPOCHS + 1)), 3))


def pretended(accuracy: NDArray[np.float64], plan: SearchPlan) -> Train:
    """Train no network: trial n reaches accuracy[n], and stops when it is told to."""
    number_of = {derive(plan.seed, "trial", number): number for number in range(len(accuracy))}

    def train(members: Sequence[Member], stop: Stop) -> Curves:
        curves = Curves.empty(len(members), EPOCHS, [VALIDATION])
        training = np.ones(len(members), dtype=bool)
        for epoch in range(1, EPOCHS + 1):
            for row in np.flatnonzero(training):
                curves.accuracy[VALIDATION][row, epoch - 1] = accuracy[number_of[members[row].seed], epoch - 1]
                curves.epochs[row] = epoch
            training[list(stop(EpochFinished(epoch, EPOCHS, tuple(range(len(members))), len(members), curves)))] = False
        return curves

    return train


def curves_after(epoch: int, errors: Sequence[float], *, diverged: Sequence[bool] | None = None) -> Curves:
    """Curves of members with these errors after this epoch."""
    curves = Curves.empty(len(errors), EPOCHS, [VALIDATION])
    curves.accuracy[VALIDATION][:, epoch - 1] = 1.0 - np.array(errors)
    curves.epochs[:] = epoch
    curves.diverged[:] = False if diverged is None else diverged
    return curves


def begun(study: optuna.Study, count: int = K) -> tuple[GenerationPruner, list[FrozenTrial]]:
    """Ask trials and return their judge."""
    plan = a_plan()
    asked = ask(study, plan, count)
    assert plan.algorithm.pruner is not None
    return GenerationPruner(study, asked, plan.algorithm.pruner, plan.algorithm.rungs), asked


def one_after_the_other(accuracy: NDArray[np.float64], name: str, trials: int) -> list[tuple[TrialState, int]]:
    """Drive Optuna's own pruner as its documentation does; return how each trial ended and after which epoch."""
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


def ends_of(study: optuna.Study) -> list[tuple[TrialState, int]]:
    return [(trial.state, len(trial.user_attrs[TRAINED])) for trial in study.trials]


def everything(study: optuna.Study) -> list[tuple[Any, ...]]:
    return [
        (trial.state, trial.params, trial.values, trial.intermediate_values, trial.user_attrs, trial.system_attrs)
        for trial in study.trials
    ]


# ------------------------------------------------------------------------------------------------------------ the judge


@pytest.mark.parametrize("seed", range(4))
def test_members_side_by_side_are_stopped_as_optuna_stops_trials_one_after_the_other(seed: int) -> None:
    study, plan, accuracy = a_study(f"study {seed}"), a_plan(), drawn(seed)
    run_generations(pretended(accuracy, plan), EPOCHS, [Search(plan, study)])
    ends = ends_of(study)
    assert ends == one_after_the_other(accuracy, f"study {seed}", len(ends))
    assert {epoch for state, epoch in ends if state == TrialState.PRUNED} >= {1, 3}  # brackets with several rungs


@pytest.mark.parametrize("seed", range(6))
def test_members_are_judged_in_the_order_of_their_trials_whatever_order_they_come_in(seed: int) -> None:
    generator = np.random.default_rng(seed)
    errors, order = generator.random(12), generator.permutation(12)
    for epoch in RUNGS:
        sorted_judge, _ = begun(a_study(), 12)
        shuffled_judge, _ = begun(a_study(), 12)
        stopped = sorted_judge.stopped(epoch, range(12), curves_after(epoch, errors.tolist()))
        shuffled = shuffled_judge.stopped(epoch, order.tolist(), curves_after(epoch, errors[order].tolist()))
        assert stopped == shuffled
        assert stopped


@pytest.mark.parametrize("first", range(1, 12))
def test_members_that_come_in_parts_are_judged_as_all_at_once(first: int) -> None:
    errors = {epoch: np.random.default_rng(epoch).random(12) for epoch in RUNGS}
    whole, _ = begun(a_study(), 12)
    parts, _ = begun(a_study(), 12)
    together = {(epoch, member) for epoch in (1, 3) for member in judged(whole, epoch, range(12), errors)}
    apart = {
        (epoch, member)
        for members in (range(first), range(first, 12))
        for epoch in (1, 3)  # the first part is through before the second begins, as with too little memory
        for member in judged(parts, epoch, members, errors)
    }
    assert together == apart


def judged(
    judge: GenerationPruner, epoch: int, members: Sequence[int], errors: dict[int, NDArray[np.float64]]
) -> list[int]:
    return judge.stopped(epoch, members, curves_after(epoch, errors[epoch][list(members)].tolist()))


def test_only_the_pruners_epochs_are_looked_at() -> None:
    study = a_study()
    judge, _ = begun(study)
    for epoch in range(1, EPOCHS + 1):
        stopped = judge.stopped(epoch, range(K), curves_after(epoch, np.linspace(0.1, 0.9, K).tolist()))
        assert bool(stopped) <= (epoch in RUNGS)
    judge.write(study, 0)
    assert list(study.trials[0].intermediate_values) == list(RUNGS)
    assert a_plan().algorithm.rungs == RUNGS


def test_a_member_that_diverged_counts_as_an_error_of_1() -> None:
    study = a_study()
    judge, _ = begun(study)
    broken = [False, True, False, True, False, False]
    errors = [0.3, 0.1, math.nan, math.nan, 0.2, 0.3]
    judge.stopped(1, range(K), curves_after(1, errors, diverged=broken))
    for member in range(K):
        judge.write(study, member)
    reported = [trial.intermediate_values[1] for trial in study.trials]
    assert reported == pytest.approx([0.3, 1.0, 1.0, 1.0, 0.2, 0.3])


@pytest.mark.parametrize("stored", [False, True], ids=["in memory", "in a file"])
def test_nothing_is_written_to_the_study_before_it_is_told(stored: bool, tmp_path: Path) -> None:
    study = a_study(path=tmp_path / "study.db" if stored else None)
    judge, _ = begun(study)
    before = everything(study)
    stopped = judge.stopped(1, range(K), curves_after(1, np.linspace(0.1, 0.9, K).tolist()))
    assert stopped
    assert everything(study) == before
    assert all(not trial.intermediate_values for trial in study.trials)


def test_writing_copies_the_reports_and_rungs_of_one_member_and_of_no_other() -> None:
    study = a_study()
    judge, asked = begun(study)
    for epoch in (1, 3):
        judge.stopped(epoch, range(K), curves_after(epoch, [0.9, *(0.1 * epoch,) * (K - 1)]))
    oracle = optuna.create_study(study_name="search", pruner=HyperbandPruner(1, EPOCHS, 3))
    for member in range(K):
        trial = oracle.ask()
        for epoch in (1, 3):
            trial.report(0.9 if member == 0 else 0.1 * epoch, epoch)
            trial.should_prune()
    for member in (2, 0):
        judge.write(study, member)
    for number, trial in enumerate(study.trials):
        rungs = {name: value for name, value in trial.system_attrs.items() if name.startswith(REPORTED)}
        written = number in (0, 2)
        assert trial.intermediate_values == pytest.approx(oracle.trials[number].intermediate_values if written else {})
        assert rungs == pytest.approx(oracle.trials[number].system_attrs if written else {})
        assert trial.state == TrialState.RUNNING
    assert [trial.params for trial in study.trials] == [trial.params for trial in asked]


def test_what_a_dead_process_has_written_of_running_trials_is_not_held_against_them() -> None:
    errors = np.random.default_rng(3).random(K).tolist()
    study = a_study()
    first, asked = begun(study)
    stopped = first.stopped(1, range(K), curves_after(1, errors))
    first.write(study, 0)
    first.write(study, 1)  # and then it dies
    plan = a_plan()
    assert plan.algorithm.pruner is not None
    second = GenerationPruner(study, asked, plan.algorithm.pruner, plan.algorithm.rungs)
    assert second.stopped(1, range(K), curves_after(1, errors)) == stopped


# ---------------------------------------------------------------------------------------------- what a search may spend


def told(study: optuna.Study, plan: SearchPlan, epochs: Sequence[int]) -> None:
    """Tell trials that were trained for so many epochs."""
    for trial, trained in zip(ask(study, plan, len(epochs)), epochs, strict=True):
        optuna.Trial(study, trial._trial_id).set_user_attr(TRAINED, [0.5] * trained)
        if trained < EPOCHS:
            study.tell(trial.number, state=TrialState.PRUNED)
        else:
            study.tell(trial.number, 0.5)


def test_a_trial_costs_the_epochs_it_was_trained_for() -> None:
    study = a_study()
    told(study, a_plan(), [EPOCHS, 1, 3, EPOCHS, 9])
    assert cost(study, EPOCHS) == pytest.approx(2 + 1 / 27 + 3 / 27 + 9 / 27)
    assert cost(a_study(), EPOCHS) == 0


@pytest.mark.parametrize(
    ("budget", "epochs", "asked"),
    [
        (8, [27, 27, 1, 1, 1, 1], 6),  # 8 - 2.15 are left: a whole generation
        (3, [27, 27, 1, 1, 1, 1], 1),  # 0.85 of a training pays for one more
        (4, [27, 1, 1], 3),  # 2.93 are left, and half of the generation
        (2, [27, 27, 1, 1, 1, 1], 0),
        (2, [27, 27], 0),
        (3, [27, 27, 9, 9, 9], 0),  # exactly three
    ],
)
def test_a_generation_is_as_large_as_what_is_left_pays_for(budget: int, epochs: list[int], asked: int) -> None:
    study, plan = a_study(), a_plan(budget)
    told(study, plan, epochs)
    assert len(next_generation(Search(plan, study), EPOCHS)) == asked


def test_the_epochs_left_are_guessed_from_what_trials_have_cost_so_far() -> None:
    study = a_study()
    assert epochs_left([Search(a_plan(7), study)], EPOCHS) == 2 * EPOCHS
    told(study, a_plan(), [27, 9, 9, 9, 9, 18])  # 3 of 8, half a training each: 10 more are to come
    assert epochs_left([Search(a_plan(8), study)], EPOCHS) == 2 * EPOCHS
    assert epochs_left([Search(a_plan(3), study)], EPOCHS) == 0


def test_the_best_trial_is_never_one_that_was_stopped() -> None:
    study, plan = a_study(), a_plan()
    trials = ask(study, plan, 3)
    for trial, accuracy in zip(trials, ([0.6] * EPOCHS, [0.99], [0.5] * EPOCHS), strict=True):
        optuna.Trial(study, trial._trial_id).set_user_attr(TRAINED, accuracy)
    study.tell(0, 0.4)
    study.tell(1, state=TrialState.PRUNED)
    study.tell(2, 0.5)
    assert best(study, plan.space, EPOCHS).trial == 0


# ------------------------------------------------------------------------------------------------------- real trainings


def a_task(**changes: Any) -> Task:
    evaluate = {"valid": blobs(96, wrong=0.0, seed=1)}
    return task(blobs(), MentorNet(), network=small_mlp, evaluate=evaluate, epochs=SHORT, batch_size=64, **changes)


@pytest.fixture(scope="module")
def searched() -> tuple[optuna.Study, list[EpochFinished], list[GenerationFinished]]:
    study, seen, done = a_study(), list[EpochFinished](), list[GenerationFinished]()
    plan = a_plan(7, epochs=SHORT)
    search_schedule(a_task(), plan, study, on_epoch=seen.append, on_generation=done.append)
    return study, seen, done


def test_stopped_trials_have_fewer_epochs_and_hold_what_was_reported_of_them(searched: Any) -> None:
    study, _, _ = searched
    ends = ends_of(study)
    assert {state for state, _ in ends} == {TrialState.PRUNED, TrialState.COMPLETE}
    for (state, epochs), trial in zip(ends, study.trials, strict=True):
        assert epochs in ((1, 3) if state == TrialState.PRUNED else (SHORT,))
        rungs = [epoch for epoch in (1, 3) if epoch <= epochs]
        assert trial.intermediate_values == pytest.approx(
            {epoch: 1.0 - trial.user_attrs[TRAINED][epoch - 1] for epoch in rungs}, abs=1e-6
        )
        if state == TrialState.COMPLETE:
            assert trial.values[0] == pytest.approx(1.0 - np.mean(trial.user_attrs[TRAINED]), abs=1e-6)


def test_the_budget_is_in_full_trainings_and_is_spent(searched: Any) -> None:
    study, _, done = searched
    epochs = [trained for _, trained in ends_of(study)]
    assert cost(study, SHORT) == pytest.approx(sum(epochs) / SHORT)
    assert len(epochs) > 7
    assert sum(epochs) >= 7 * SHORT
    assert sum(epochs[:-K]) < 7 * SHORT  # before the last generation something was left
    assert [each.trials for each in done] == [7] * len(done)
    assert done[0].finished == sum(epochs[:K]) // SHORT
    assert done[-1].finished == sum(epochs) // SHORT
    assert max(each.finished for each in done[:-1]) < 7
    complete = [1.0 - trial.values[0] for trial in study.trials if trial.state == TrialState.COMPLETE]
    assert done[-1].best == (max(complete),)


def test_the_population_shrinks_by_those_that_are_stopped(searched: Any) -> None:
    study, seen, _ = searched
    first = [progress for progress in seen if len(progress.indices) == K][:SHORT]
    ends = np.array([trained for _, trained in ends_of(study)])[:K]
    np.testing.assert_array_equal(first[-1].curves.epochs, ends)
    trained = np.isfinite(first[-1].curves.loss)  # (K, T)
    np.testing.assert_array_equal(trained, np.arange(SHORT) < ends[:, None])
    assert 0 < trained[:, -1].sum() < K


def test_a_trial_that_was_not_stopped_is_what_it_is_alone(searched: Any) -> None:
    study, _, _ = searched
    plan = a_plan(7, epochs=SHORT)
    for trial in [trial for trial in study.trials if trial.state == TrialState.COMPLETE][:2]:
        point = np.array([[trial.params[name] for name in plan.space.names]])
        schedule = plan.space.decode(point, SHORT)[0]
        alone = Member(schedule, derive(plan.seed, "trial", trial.number), plan.learning_rate)
        assert trial.values[0] == 1.0 - train_population(a_task(), [alone]).curves.last(VALIDATION)[0]


@pytest.mark.parametrize("how", ["two threads", "chunks of 3"])
def test_the_same_trials_are_stopped_however_the_members_are_spread(how: str, searched: Any) -> None:
    study, seen = a_study(), list[EpochFinished]()
    torch.set_num_threads(2 if how == "two threads" else 1)
    try:
        shared = a_task(chunk=3 if how == "chunks of 3" else None)
        search_schedule(shared, a_plan(7, epochs=SHORT), study, on_epoch=seen.append)
    finally:
        torch.set_num_threads(1)
    assert {(0, 1, 2), (3, 4, 5)} <= {progress.indices for progress in seen}
    assert everything(study) == everything(searched[0])


def test_a_search_that_stops_trainings_finds_beside_others_what_it_finds_alone() -> None:
    def searches() -> list[Search]:
        return [
            Search(a_plan(3, epochs=SHORT, sampler="random"), a_study("a")),
            Search(a_plan(8, epochs=SHORT, seed=1), a_study("b"), method=Coteaching()),
            Search(a_plan(9, epochs=SHORT, seed=2), a_study("c"), labels=blobs(wrong=0.5).labels),
        ]

    together, alone = searches(), searches()
    found = search_schedules(a_task(), together)
    for one, other, its in zip(together, alone, found, strict=True):
        (by_itself,) = search_schedules(a_task(), [other])
        assert everything(one.study) == everything(other.study)
        assert its.trial == by_itself.trial
    assert any(trial.state == TrialState.PRUNED for one in together[1:] for trial in one.study.trials)
    assert all(trial.state == TrialState.COMPLETE for trial in together[0].study.trials)


@pytest.mark.parametrize("epochs", [27, 40, 80, 100, 200])
def test_hyperband_has_four_brackets_the_last_of_which_stops_nobody(epochs: int) -> None:
    how = a_plan(epochs=epochs).algorithm
    study = open_study(None, f"brackets of {epochs}", {})
    for number in range(60):  # each worse than all before it: whoever is asked about is stopped
        trial = study.ask()
        for rung in how.rungs:
            trial.report(number, rung)
            if how.pruner is not None and how.pruner.prune(study, study.get_trials(deepcopy=False)[number]):
                break
        study.tell(trial, float(number))
    stopped_after = {trial.last_step for trial in study.trials[12:]}
    assert len(how.rungs) == 3
    assert how.rungs[-1] < epochs / 2
    assert stopped_after == {*how.rungs}
    whole = [trial for trial in study.trials[12:] if len(trial.intermediate_values) == 3]
    assert any("completed_rung_0" not in trial.system_attrs for trial in whole), "the last bracket asks nobody"
