"""Plans of searches: trials and generation size, given, by default, or chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import optuna
import pytest

from s2e.errors import InvalidInput
from s2e.schedules.spaces import SPACES, CoteachingSpace
from s2e.specs import SearchSpec, TrainingSpec
from s2e.studies.plan import SearchPlan, plan_search

TRAINING = TrainingSpec(epochs=5, learning_rate=0.25)


def never(_: Sequence[int]) -> int:
    pytest.fail("a generation size was chosen")


def planned(*, generations: int = 10, choose: Any = never, **spec: Any) -> tuple[int, int]:
    plan = plan_search(SearchSpec(sampler="random", **spec), TRAINING, 7, generations=generations, choose=choose)
    return plan.generation_size, plan.trials


def test_given_numbers_are_kept() -> None:
    assert planned(generation_size=12, trials=7) == (12, 7)
    assert planned(generation_size=1, trials=1) == (1, 1)


def test_default_trials_do_not_depend_on_a_given_generation_size() -> None:
    for size in (1, 12):
        assert planned(generation_size=size) == (size, 60)
        assert planned(generation_size=size, generations=5) == (size, 30)


def test_chosen_generation_size_decides_the_default_trials() -> None:
    assert planned(generation_size="auto", choose=min) == (6, 60)
    assert planned(generation_size="auto", choose=max, generations=5) == (32, 160)
    assert planned(generation_size="auto", choose=max, trials=100) == (20, 100)
    assert planned(generation_size="auto", choose=max, trials=3) == (2, 3)


def test_plan_has_the_learning_rate_and_the_seed() -> None:
    plan = plan_search(SearchSpec(), TRAINING, 7)
    assert (plan.space, plan.learning_rate, plan.seed) == (SPACES["s2e"], 0.25, 7)


def test_objects_are_accepted() -> None:
    space, sampler = CoteachingSpace(), optuna.samplers.RandomSampler()
    plan = plan_search(SearchSpec(space, sampler), TRAINING, 0)
    assert plan.space is space
    assert plan.sampler.build(3) is sampler


def test_bad_names_and_numbers_are_refused() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"space": "nowhere"}, "`space` must be one of"),
        ({"sampler": "moon"}, "`sampler` must be one of"),
        ({"sampler": 3}, "`sampler` must be the name of a sampler or"),
        ({"trials": 0, "generation_size": 0}, "`trials` must be .*`generation_size` must be"),
    ]
    for changes, message in cases:
        given = {"space": "s2e", "sampler": "random", "epochs": 5, "trials": 4, "generation_size": 2, **changes}
        with pytest.raises(InvalidInput, match=message):
            SearchPlan.named(**given)
