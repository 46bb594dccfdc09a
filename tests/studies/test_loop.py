"""The generation loop: the trials of one search, of several searches together, and of members that diverge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
import torch
from optuna.samplers import NSGAIISampler, QMCSampler, RandomSampler
from optuna.trial import FrozenTrial, TrialState
from torch import nn

from populations import call_before_search_training
from s2e.engine.curves import LAST_EPOCHS, Curves
from s2e.engine.task import VALIDATION, EpochFinished, Member
from s2e.engine.training import train_population
from s2e.errors import InvalidInput, TrainingDiverged
from s2e.methods import Coteaching, JoCoR, Standard
from s2e.seeds import derive
from s2e.studies import (
    BestTrial,
    GenerationFinished,
    Search,
    Stop,
    diverged_trials,
    epochs_left,
    finished_trials,
    run_generations,
    search_schedules,
)
from s2e.studies.loop import ask
from searches import (
    EPOCHS,
    TRIALS,
    K,
    Killed,
    kill_search,
    make_plan,
    make_study,
    make_task,
    search_schedule,
    simulated_training,
    trial_points,
    trial_records,
)
from small_tasks import blobs, small_mlp

# One search


def test_study_has_the_requested_trials_all_complete() -> None:
    study = make_study()
    search_schedule(make_task(Coteaching()), make_plan(trials=2 * K + 1), study)
    assert [trial.number for trial in study.trials] == list(range(2 * K + 1))
    assert {trial.state for trial in study.trials} == {TrialState.COMPLETE}


def test_trial_is_its_point_trained_alone_with_the_seed_of_its_number() -> None:
    study, plan = make_study(), make_plan()
    search_schedule(make_task(), plan, study)
    for number in (1, K + 1):
        trial = study.trials[number]
        point = np.array([[trial.params[name] for name in plan.space.names]])
        member = Member(plan.space.decode(point, EPOCHS)[0], derive(plan.seed, "trial", number), plan.learning_rate)
        assert trial.values[0] == 1 - train_population(make_task(), [member]).curves.last("valid")[0]
        accuracy = trial.user_attrs["validation_accuracy"]
        assert len(accuracy) == EPOCHS
        assert trial.values[0] == pytest.approx(1 - np.mean(accuracy[-LAST_EPOCHS:]), abs=1e-6)


def test_result_is_the_best_trial() -> None:
    study, plan = make_study(), make_plan()
    found = search_schedule(make_task(), plan, study)
    errors = [trial.values[0] for trial in study.trials]
    assert found.trial == int(np.argmin(errors))
    assert found.validation_accuracy == pytest.approx(1 - min(errors))
    assert found.point.tolist() == [study.trials[found.trial].params[name] for name in plan.space.names]
    np.testing.assert_array_equal(found.schedule, plan.space.decode(found.point[None], EPOCHS)[0])


def test_progress_is_reported_after_every_generation() -> None:
    study, plan, progress, epochs = make_study(), make_plan(trials=2 * K + 1), [], []
    expected_epochs = epochs_left([Search(plan, study)], EPOCHS)
    search_schedule(make_task(), plan, study, on_generation=progress.append, on_epoch=epochs.append)
    errors = [trial.values[0] for trial in study.trials]
    assert progress == [GenerationFinished(n, 2 * K + 1, K, (1 - min(errors[:n]),)) for n in (K, 2 * K, 2 * K + 1)]
    assert [each.position for each in progress] == [f"generation {number}/3" for number in (1, 2, 3)]
    assert expected_epochs == len(epochs) == 3 * EPOCHS
    assert epochs_left([Search(plan, study)], EPOCHS) == 0


def test_callback_that_returns_true_ends_the_search_with_the_best_so_far() -> None:
    whole, ended = make_study(), make_study()
    search_schedule(make_task(), make_plan(trials=TRIALS), whole)
    found = search_schedule(
        make_task(), make_plan(trials=TRIALS), ended, on_generation=lambda done: done.finished == 2 * K
    )
    assert trial_records(ended) == trial_records(whole)[: 2 * K]
    assert found.trial == int(np.argmin([trial.values[0] for trial in ended.trials]))
    search_schedule(make_task(), make_plan(trials=TRIALS), ended, on_generation=lambda _: False)
    assert trial_records(ended) == trial_records(whole)


def test_equal_seeds_give_equal_trials_in_memory_and_in_a_file(tmp_path: Path) -> None:
    in_memory, stored, other_seed = make_study(), make_study(tmp_path / "study.db"), make_study()
    for study, seed in ((in_memory, 0), (stored, 0), (other_seed, 1)):
        search_schedule(make_task(), make_plan("newton", TRIALS - 1, seed=seed), study)
    assert trial_records(in_memory) == trial_records(stored) == trial_records(make_study(tmp_path / "study.db"))
    assert not any(point in trial_points(in_memory) for point in trial_points(other_seed))


@pytest.mark.parametrize(("trials", "generation_size", "expected"), [(3, 8, [3]), (3, 1, [1, 2, 3]), (4, 3, [3, 4])])
def test_random_points_do_not_depend_on_the_generation_size(
    trials: int, generation_size: int, expected: list[int]
) -> None:
    study, reference, progress = make_study(), make_study(), []
    search_schedule(make_task(), make_plan("random", trials, generation_size), study, on_generation=progress.append)
    search_schedule(make_task(), make_plan("random", trials, 2), reference)
    assert [done.finished for done in progress] == expected
    assert trial_records(study) == trial_records(reference)


@pytest.mark.parametrize("sampler", ["newton", "random"])
def test_extended_search_fills_its_last_generation_first(sampler: str) -> None:
    whole, extended, progress = make_study(), make_study(), []
    search_schedule(make_task(), make_plan(sampler, 8), whole)
    search_schedule(make_task(), make_plan(sampler, 5), extended)
    search_schedule(make_task(), make_plan(sampler, 8), extended, on_generation=progress.append)
    assert [done.finished for done in progress] == [6, 8]
    assert trial_records(extended) == trial_records(whole)


def test_fewer_trials_than_finished_train_nothing() -> None:
    study, epochs = make_study(), []
    found = search_schedule(make_task(), make_plan(), study)
    again = search_schedule(make_task(), make_plan(trials=2), study, on_epoch=epochs.append)
    assert not epochs
    assert again.trial == found.trial
    assert len(finished_trials(study)) == 2 * K


@pytest.mark.parametrize("name", ["trials", "generation_size"])
def test_plan_without_trials_or_points_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match=f"`{name}` must be .*but got 0"):
        replace(make_plan(), **{name: 0})


# Contents of a trial


def searched_with_two(*evaluated: str, stopped_after: int | None = None, diverged: bool = False) -> optuna.Study:
    """Two trials; the second may be stopped or diverge."""

    def train(members: Sequence[Member], _: Stop) -> Curves:
        curves = Curves.empty(len(members), 12, evaluated)
        for index, name in enumerate(evaluated):
            curves.accuracy[name][:] = 0.2 * (1 + index) + np.arange(12 * len(members)).reshape(-1, 12) / 3000
        curves.epochs[:] = 12
        curves.epochs[1:] = stopped_after or 12
        curves.diverged[1:] = diverged
        return curves

    study = make_study()
    run_generations(train, 12, [Search(make_plan("random", 2, 2, space="coteaching"), study)])
    return study


def test_trial_has_its_accuracy_on_every_evaluated_data_set() -> None:
    for member, trial in enumerate(searched_with_two("test", VALIDATION).trials):
        names = ["accuracy_test", "validation_accuracy"]
        assert list(trial.user_attrs) == names
        for index, name in enumerate(names):
            expected = 0.2 * (1 + index) + np.arange(12 * member, 12 * (member + 1)) / 3000
            assert trial.user_attrs[name] == [round(value, 6) for value in expected.tolist()]
        assert trial.values[0] == pytest.approx(1 - np.mean(trial.user_attrs["validation_accuracy"][-LAST_EPOCHS:]))


def test_points_and_scores_do_not_depend_on_other_data_sets() -> None:
    alone, both = searched_with_two(VALIDATION), searched_with_two(VALIDATION, "test")
    assert [(t.params, t.values) for t in alone.trials] == [(t.params, t.values) for t in both.trials]


def test_stopped_trial_has_the_epochs_it_was_trained_for() -> None:
    trials = searched_with_two(VALIDATION, "test", stopped_after=5).trials
    assert [trial.state == TrialState.PRUNED for trial in trials] == [False, True, False]
    for name in ("validation_accuracy", "accuracy_test"):
        assert [len(trial.user_attrs[name]) for trial in trials] == [12, 5, 12]


# Members that diverge


@pytest.mark.parametrize("stopped_after", [None, 5])
def test_diverged_trials_are_marked_and_counted(stopped_after: int | None) -> None:
    study = searched_with_two(VALIDATION, diverged=True, stopped_after=stopped_after)
    assert [trial.user_attrs.get("diverged") for trial in study.trials[:2]] == [None, True]
    assert diverged_trials(study) == 1
    assert diverged_trials(searched_with_two(VALIDATION)) == 0


def broken_for_half_of_the_seeds() -> nn.Module:
    """A network whose weights are NaN where the first weight drawn is positive."""
    network = small_mlp()
    first = network.get_parameter("0.weight")
    if first[0, 0] > 0:
        nn.init.constant_(first, float("nan"))
    return network


def test_diverged_member_has_an_error_of_1_and_the_others_are_trained() -> None:
    study, plan = make_study(), make_plan()
    found = search_schedule(make_task(network=broken_for_half_of_the_seeds), plan, study)
    broken = []
    for number in range(plan.trials):
        torch.manual_seed(derive(derive(plan.seed, "trial", number), "network", 0))
        broken.append(bool(broken_for_half_of_the_seeds().get_parameter("0.weight").isnan().any()))
    assert 0 < sum(broken) < len(broken)
    assert [trial.values[0] == 1.0 for trial in study.trials] == broken
    assert [trial.user_attrs.get("diverged", False) for trial in study.trials] == broken
    assert not broken[found.trial]


def test_search_whose_members_all_diverge_ends_after_a_generation_with_advice() -> None:
    study = make_study()
    with pytest.raises(TrainingDiverged, match=f"all {K} trainings diverged.* lower the learning rate"):
        search_schedule(make_task(), make_plan(learning_rate=1e35), study)
    assert [trial.values for trial in study.trials] == [[1.0]] * K
    assert diverged_trials(study) == K


def test_generation_that_diverges_after_a_good_one_does_not_end_the_search() -> None:
    study, plan = make_study(), make_plan()
    search_schedule(make_task(), replace(plan, trials=K), study)
    found = search_schedule(make_task(), replace(plan, learning_rate=1e35), study)
    assert diverged_trials(study) == K
    assert found.trial < K


def test_diverging_search_does_not_end_another_one() -> None:
    good, bad = Search(make_plan(), make_study()), Search(make_plan(learning_rate=1e35), make_study())
    search_schedules(make_task(), [bad, good])
    assert [diverged_trials(search.study) for search in (bad, good)] == [2 * K, 0]


# Sampler objects


class HookedSampler(RandomSampler):
    """Records the trials its hooks are called for."""

    def __init__(self) -> None:
        super().__init__(seed=0)
        self.before: list[int] = []
        self.after: list[tuple[int, TrialState, Sequence[float] | None]] = []

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        super().before_trial(study, trial)
        self.before.append(trial.number)

    def after_trial(
        self, study: optuna.Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        super().after_trial(study, trial, state, values)
        self.after.append((trial.number, state, values))


@pytest.mark.parametrize("stored", [False, True])
def test_sampler_object_receives_every_trial_before_and_after(stored: bool, tmp_path: Path) -> None:
    study, sampler = make_study(tmp_path / "study.db" if stored else None), HookedSampler()
    run_generations(simulated_training(lambda _: np.full(EPOCHS, 0.5)), EPOCHS, [Search(make_plan(sampler), study)])
    assert sampler.before == list(range(2 * K))
    assert sampler.after == [(number, TrialState.COMPLETE, [0.5]) for number in range(2 * K)]


def test_sampler_object_of_a_resumed_search_receives_the_trials_left_running(tmp_path: Path) -> None:
    ask(make_study(tmp_path / "study.db"), make_plan(HookedSampler()), K)
    study, sampler = make_study(tmp_path / "study.db"), HookedSampler()
    run_generations(
        simulated_training(lambda _: np.full(EPOCHS, 0.5)), EPOCHS, [Search(make_plan(sampler, trials=K), study)]
    )
    assert [number for number, *_ in sampler.after] == list(range(K))


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.parametrize("make", [lambda: QMCSampler(seed=1), lambda: NSGAIISampler(population_size=4, seed=1)])
def test_sampler_that_stores_its_state_in_the_study_asks_equal_points_in_memory_and_in_a_file(
    make: Any, tmp_path: Path
) -> None:
    studies = [make_study(), make_study(tmp_path / "study.db")]
    for study in studies:
        train = simulated_training(lambda member: np.full(EPOCHS, member.schedule.mean()))
        run_generations(train, EPOCHS, [Search(make_plan(make(), TRIALS, space="coteaching"), study)])
    assert trial_points(studies[0]) == trial_points(studies[1])
    assert len({tuple(point.values()) for point in trial_points(studies[1])}) > TRIALS // 2


# Several searches together


LABELS = (None, (blobs().labels + 1) % 4, blobs(seed=5).labels)
Alone = tuple[list[BestTrial], list[list[tuple[Any, ...]]]]


def three_searches(studies: Sequence[optuna.Study]) -> list[Search]:
    """Searches that differ in labels, method, sampler and length."""
    kinds = [("newton", TRIALS, None), ("random", 2 * K + 1, JoCoR()), ("curve", TRIALS, Coteaching())]
    return [
        Search(make_plan(sampler, trials, seed=index), study, labels, method)
        for index, ((sampler, trials, method), study, labels) in enumerate(zip(kinds, studies, LABELS, strict=True))
    ]


def assert_equal_results(found: Sequence[BestTrial], expected: Sequence[BestTrial]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert (one.trial, one.validation_accuracy) == (other.trial, other.validation_accuracy)
        np.testing.assert_array_equal(one.point, other.point)
        np.testing.assert_array_equal(one.schedule, other.schedule)


@pytest.fixture(scope="module")
def alone() -> Alone:
    """Each search by itself: on its labels, with its method."""
    searches, found = three_searches([make_study() for _ in range(3)]), []
    for search in searches:
        own = make_task(search.method)
        if search.labels is not None:
            own = replace(own, train=replace(own.train, labels=search.labels))
        found.append(search_schedule(own, search.plan, search.study))
    return found, [trial_records(search.study) for search in searches]


def test_searches_in_one_population_equal_searches_alone(alone: Alone, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    call_before_search_training(lambda _, members: sizes.append(len(members)), monkeypatch)
    progress: list[GenerationFinished] = []
    epochs: list[EpochFinished] = []
    searches = three_searches([make_study() for _ in range(3)])
    expected_epochs = epochs_left(searches, EPOCHS)
    found = search_schedules(make_task(), searches, on_generation=progress.append, on_epoch=epochs.append)
    assert_equal_results(found, alone[0])
    assert [trial_records(search.study) for search in searches] == alone[1]
    assert sizes == [3 * K, 3 * K, 2 * K + 1, 2 * K, 2 * K]  # one search ends early, with part of a generation
    assert expected_epochs == len(epochs) == 5 * EPOCHS
    errors = [[trial.values[0] for trial in search.study.trials] for search in searches]
    assert progress == [
        GenerationFinished(
            sum(min(len(own), K * number) for own in errors),
            2 * TRIALS + 2 * K + 1,
            3 * K,
            tuple(1 - min(own[: K * number]) for own in errors),
        )
        for number in range(1, 6)
    ]


@pytest.mark.parametrize(
    ("where", "after"),
    [("tell", 4), *(pytest.param(*moment, marks=pytest.mark.slow) for moment in [("train", 3), ("ask", 7)])],
)
def test_searches_together_that_are_killed_continue_to_the_same_result(
    alone: Alone, where: str, after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    studies = [make_study(tmp_path / f"{index}.db") for index in range(3)]
    with monkeypatch.context() as patched:
        kill_search(patched, where, after, studies[0])  # all three have the same name
        with pytest.raises(Killed):
            search_schedules(make_task(), three_searches(studies))
    searches, epochs = three_searches(studies), []
    left = epochs_left(searches, EPOCHS)
    assert_equal_results(search_schedules(make_task(), searches, on_epoch=epochs.append), alone[0])
    assert [trial_records(search.study) for search in searches] == alone[1]
    assert left == len(epochs)


def test_search_added_to_finished_ones_is_trained_without_them(alone: Alone, monkeypatch: pytest.MonkeyPatch) -> None:
    searches = three_searches([make_study() for _ in range(3)])
    search_schedules(make_task(), searches[:2])
    sizes: list[int] = []
    call_before_search_training(lambda _, members: sizes.append(len(members)), monkeypatch)
    assert_equal_results(search_schedules(make_task(), searches), alone[0])
    assert sizes == 5 * [K]


def test_method_without_a_keep_rate_is_refused_before_any_trial() -> None:
    searches = [Search(make_plan(), make_study()), Search(make_plan(), make_study(), method=Standard())]
    with pytest.raises(InvalidInput, match=r"keep rate.*standard"):
        search_schedules(make_task(), searches)
    with pytest.raises(InvalidInput, match=r"keep rate.*standard"):
        search_schedule(make_task(Standard()), make_plan(), searches[0].study)
    assert not any(search.study.trials for search in searches)
