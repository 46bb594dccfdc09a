"""The generation loop: what a study holds in the end, and which of its trials is the best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import optuna
import pytest
import torch
from optuna.distributions import FloatDistribution
from optuna.trial import TrialState
from torch import nn

from s2e.engine.curves import LAST_EPOCHS
from s2e.engine.training import train_population
from s2e.errors import InvalidInput
from s2e.methods import Coteaching, MentorNet, Method, Standard
from s2e.schedules.spaces import SPACES
from s2e.seeds import derive
from s2e.studies import loop
from s2e.studies.loop import GenerationFinished, best, epochs_left, finished, search_schedule
from s2e.studies.plan import Search
from searches import EPOCHS, SAMPLERS, TRIALS, K, a_plan, a_task, at, in_memory, points, quiet, trials
from small_tasks import small_mlp

_quiet = pytest.fixture(quiet, autouse=True)


# What a search leaves


@pytest.mark.parametrize("method", [MentorNet(), Coteaching()], ids=lambda method: method.name)
def test_a_study_holds_exactly_the_trials_asked_for_all_complete(method: Method) -> None:
    study = in_memory()
    search_schedule(a_task(method), a_plan(trials=2 * K + 1), study)
    assert [trial.number for trial in study.trials] == list(range(2 * K + 1))
    assert {trial.state for trial in study.trials} == {TrialState.COMPLETE}
    assert len(finished(study)) == 2 * K + 1


def test_a_trial_is_scored_by_its_validation_error_over_the_last_epochs() -> None:
    study = in_memory()
    search_schedule(a_task(), a_plan(), study)
    for trial in study.trials:
        curve = trial.user_attrs["validation_accuracy"]
        assert len(curve) == EPOCHS
        assert trial.values[0] == pytest.approx(1 - np.mean(curve[-LAST_EPOCHS:]), abs=1e-6)


def test_a_trial_is_its_point_trained_alone_from_the_seed_of_its_number() -> None:
    study, plan = in_memory(), a_plan()
    search_schedule(a_task(), plan, study)
    for number in (1, K + 1):
        trial = study.trials[number]
        members = loop._members([trial], EPOCHS, Search(plan, study))
        assert members[0].seed == derive(plan.seed, "trial", number)
        alone = train_population(a_task(), members).curves.last("valid")[0]
        assert trial.values[0] == 1 - alone


def test_the_best_trial_is_the_one_with_the_smallest_validation_error() -> None:
    study, plan = in_memory(), a_plan()
    found = search_schedule(a_task(), plan, study)
    errors = [trial.values[0] for trial in study.trials]
    assert found.trial == int(np.argmin(errors))
    assert found.validation_accuracy == pytest.approx(1 - min(errors))
    assert found.point.tolist() == [study.trials[found.trial].params[name] for name in plan.space.names]
    np.testing.assert_array_equal(found.schedule, plan.space.decode(found.point[None], EPOCHS)[0])


@pytest.mark.parametrize("where", ["memory", "file"])
def test_of_equal_trials_the_earliest_is_the_best(where: str, tmp_path: Path) -> None:
    study, plan = in_memory() if where == "memory" else at(tmp_path / "study.db"), a_plan()
    for trial, error in zip(loop.ask(study, plan, 4), [0.5, 0.2, 0.2, 0.3], strict=True):
        study.tell(trial.number, error)
    assert best(study, plan.space, EPOCHS).trial == 1


def test_generations_are_told_with_the_best_so_far() -> None:
    study, told = in_memory(), []
    search_schedule(a_task(), a_plan(trials=2 * K + 1), study, on_generation=told.append)
    errors = [trial.values[0] for trial in study.trials]
    assert told == [GenerationFinished(n, 2 * K + 1, K, (1 - min(errors[:n]),)) for n in (K, 2 * K, 2 * K + 1)]


def test_the_epochs_announced_are_the_epochs_trained() -> None:
    study, plan, epochs = in_memory(), a_plan(trials=2 * K + 1), []
    announced = epochs_left([Search(plan, study)], EPOCHS)
    search_schedule(a_task(), plan, study, on_epoch=epochs.append)
    assert announced == len(epochs) == 3 * EPOCHS
    assert epochs_left([Search(plan, study)], EPOCHS) == 0


# Determinism


@pytest.mark.parametrize("name", SAMPLERS)
def test_equal_seeds_give_equal_points_and_values_wherever_the_study_lies(name: str, tmp_path: Path) -> None:
    one, stored = in_memory(), at(tmp_path / "study.db")
    for study in (one, stored):
        search_schedule(a_task(), a_plan(name, TRIALS - 1), study)
    assert trials(one) == trials(stored) == trials(at(tmp_path / "study.db"))


@pytest.mark.parametrize("name", SAMPLERS)
def test_all_points_of_a_search_differ_and_another_seed_gives_others(name: str) -> None:
    one, other = in_memory(), in_memory()
    for seed, study in enumerate((one, other)):
        search_schedule(a_task(), a_plan(name, TRIALS, seed=seed), study)
    everything = [tuple(params.values()) for study in (one, other) for params in points(study)]
    assert len(set(everything)) == 2 * TRIALS


def test_the_steps_of_the_relaxation_share_their_first_generation_and_then_part() -> None:
    asked = []
    for name in ("newton", "natural", "gradient"):
        study = in_memory()
        search_schedule(a_task(), a_plan(name), study)
        asked.append(points(study))
    assert asked[0][:K] == asked[1][:K] == asked[2][:K]
    assert asked[0][K] != asked[1][K] != asked[2][K] != asked[0][K]


# Members that diverge


def one_in_two_is_broken() -> nn.Module:
    """Not a number anywhere when the first weight that is drawn is positive: as the seed has it."""
    network = small_mlp()
    first = network.get_parameter("0.weight")
    if first[0, 0] > 0:
        nn.init.constant_(first, float("nan"))
    return network


def test_a_member_that_diverges_is_told_with_an_error_of_1_and_the_others_go_on() -> None:
    study, plan = in_memory(), a_plan()
    found = search_schedule(a_task(network=one_in_two_is_broken), plan, study)
    broken = []
    for number in range(plan.trials):
        torch.manual_seed(derive(derive(plan.seed, "trial", number), "network", 0))
        broken.append(bool(one_in_two_is_broken().get_parameter("0.weight").isnan().any()))
    assert 0 < sum(broken) < len(broken)
    assert [trial.values[0] == 1.0 for trial in study.trials] == broken
    assert not broken[found.trial]


def test_a_search_in_which_everything_diverges_still_ends() -> None:
    study = in_memory()
    found = search_schedule(a_task(), a_plan(learning_rate=1e35), study)
    assert [trial.values for trial in study.trials] == [[1.0]] * (2 * K)
    assert found.validation_accuracy == 0
    assert found.trial == 0


# Sizes


def test_a_generation_larger_than_the_search_is_trained_as_one() -> None:
    study, told = in_memory(), []
    search_schedule(a_task(), a_plan(trials=3, generation=8), study, on_generation=told.append)
    assert [done.finished for done in told] == [3]


def test_a_generation_of_one_works_with_a_sampler_that_allows_it() -> None:
    study, told = in_memory(), []
    search_schedule(a_task(), a_plan("random", trials=3, generation=1), study, on_generation=told.append)
    assert [done.finished for done in told] == [1, 2, 3]


def test_random_points_do_not_depend_on_the_size_of_a_generation() -> None:
    asked = []
    for generation in (1, 3, 8):
        study = in_memory()
        search_schedule(a_task(), a_plan("random", trials=4, generation=generation), study)
        asked.append(trials(study))
    assert asked[0] == asked[1] == asked[2]


@pytest.mark.parametrize("name", ["newton", "random"])
def test_more_trials_continue_the_generations_by_number(name: str) -> None:
    """A search of 5 in generations of 3, extended to 8, fills the second generation up and opens a third."""
    whole, extended, told = in_memory(), in_memory(), []
    search_schedule(a_task(), a_plan(name, trials=8), whole)
    search_schedule(a_task(), a_plan(name, trials=5), extended)
    search_schedule(a_task(), a_plan(name, trials=8), extended, on_generation=told.append)
    assert [done.finished for done in told] == [6, 8]
    assert trials(extended) == trials(whole)


def test_fewer_trials_than_there_are_train_nothing_and_forget_nothing() -> None:
    study, epochs = in_memory(), []
    found = search_schedule(a_task(), a_plan(), study)
    again = search_schedule(a_task(), a_plan(trials=2), study, on_epoch=epochs.append)
    assert not epochs
    assert again.trial == found.trial
    assert len(finished(study)) == 2 * K


@pytest.mark.parametrize("name", ["trials", "generation"])
@pytest.mark.parametrize("value", [0, -3])
def test_a_plan_without_trials_or_members_is_refused(name: str, value: int) -> None:
    with pytest.raises(InvalidInput, match=f"`{name}` must be at least 1, but got {value}"):
        replace(a_plan(), **{name: value})


def test_a_generation_of_one_is_refused_for_the_relaxation() -> None:
    with pytest.raises(InvalidInput, match="`generation` must be at least 2"):
        a_plan("newton", generation=1)


def test_a_method_without_a_keep_rate_is_refused_before_anything_is_asked() -> None:
    study = in_memory()
    with pytest.raises(InvalidInput, match=r"keep rate.*standard"):
        search_schedule(a_task(Standard()), a_plan(), study)
    assert not study.trials


# Which trial is the best


LONG = 40
"""Epochs, for curves that differ."""


def scored(schedules: Sequence[tuple[float, float, float]], errors: Sequence[float]) -> optuna.Study:
    """Make a study of schedules of Co-teaching's space, given as points of the cube, with these errors."""
    study, names = in_memory(), SPACES["coteaching"].names
    for point, error in zip(schedules, errors, strict=True):
        params = dict(zip(names, point, strict=True))
        distributions = {name: FloatDistribution(0.0, 1.0) for name in names}
        study.add_trial(optuna.trial.create_trial(params=params, distributions=distributions, value=error))
    return study


GOOD = [(0.50 + 0.002 * step, 0.3, 0.4) for step in range(6)]
BAD = [(0.10 + 0.002 * step, 0.3, 0.4) for step in range(6)]
"""Curves next to each other: about half is dropped, or about a tenth."""
GOOD_ERRORS = [0.21, 0.20, 0.22, 0.21, 0.20, 0.21]
BAD_ERRORS = [0.40, 0.41, 0.40, 0.18, 0.42, 0.39]  # with one lucky training


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_lucky_trial_among_bad_neighbours_is_chosen_only_while_trials_are_few(missing: int) -> None:
    points, errors = BAD + GOOD[missing:], BAD_ERRORS + GOOD_ERRORS[missing:]
    study = scored(points, errors)
    found = best(study, SPACES["coteaching"], LONG)
    if len(points) < 12:
        assert found.trial == 3
    else:
        assert found.trial in range(6, 12)
    assert found.validation_accuracy == 1 - errors[found.trial]  # what was seen, not what is expected
    assert found.point.tolist() == list(points[found.trial])
    np.testing.assert_array_equal(found.schedule, SPACES["coteaching"].decode(found.point[None], LONG)[0])


def test_a_trial_that_is_good_for_a_reason_is_chosen_among_many_too() -> None:
    study = scored(BAD + GOOD, [0.4] * 6 + [0.3, 0.2, 0.1, 0.2, 0.3, 0.3])
    assert best(study, SPACES["coteaching"], LONG).trial in range(6, 12)
    spread = [(0.05 + 0.06 * step, 0.3, 0.4) for step in range(14)]
    study = scored(spread, [0.1 + 0.05 * abs(step - 8) for step in range(14)])
    assert best(study, SPACES["coteaching"], LONG).trial in (7, 8, 9)


@pytest.mark.parametrize("count", [4, 14])
def test_trials_that_are_only_running_or_failed_are_never_the_best(count: int) -> None:
    study, plan = in_memory(), a_plan("random", count)
    asked = loop.ask(study, plan, count)
    study.tell(0, state=TrialState.FAIL)
    for trial in asked[2:]:
        study.tell(trial.number, 0.5 - 0.01 * trial.number)
    assert best(study, plan.space, LONG).trial >= 2


@pytest.mark.parametrize("count", [3, 12, 20])
def test_of_trials_that_are_all_alike_the_first_is_the_best(count: int) -> None:
    study, plan = in_memory(), a_plan("random", count)
    for trial in loop.ask(study, plan, count):
        study.tell(trial.number, 1.0)  # everything diverged
    assert best(study, plan.space, LONG).trial == 0
