"""Plans of searches: space, sampler, number of trials and generation size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.samplers import BaseSampler

from s2e.errors import raise_all
from s2e.methods import Method
from s2e.samplers import SamplerSpec, sampler_spec
from s2e.schedules import Space
from s2e.schedules import space as resolve_space
from s2e.specs import AUTO, SearchSpec, SizedTrainingSpec, count_problem
from s2e.studies.generation_size import SIZES, candidate_sizes

DEFAULT_GENERATIONS = 5
"""Generations of a search whose number of trials is not given.

With six schedules in each, the default sampler is then as good as random search with 300 trainings.
"""
GENERATIONS_ON_BENCHMARKS = 10
"""The same for a search on a published data set."""


@dataclass(frozen=True)
class SearchPlan:
    """Settings of a search, apart from the data and the networks.

    Attributes:
        space: the family of schedules.
        sampler: how points are sampled, and which trainings are stopped early.
        trials: budget in full trainings; as many schedules are trained, or more if some are stopped early.
        generation_size: K, points asked, trained and told together.
        learning_rate: initial learning rate of every member.
        seed: seed of the points and of the networks' initial weights.
    """

    space: Space
    sampler: SamplerSpec
    trials: int = 60
    generation_size: int = 6
    learning_rate: float = 1e-3
    seed: int = 0

    def __post_init__(self) -> None:
        raise_all(count_problem(name, getattr(self, name)) for name in ("trials", "generation_size"))

    @classmethod
    def named(
        cls,
        space: str | Space,
        sampler: str | BaseSampler,
        *,
        epochs: int,
        trials: int,
        generation_size: int,
        learning_rate: float = 1e-3,
        seed: int = 0,
    ) -> SearchPlan:
        """Return the plan of a search whose space and sampler are given by name or as objects."""
        resolved = resolve_space(space)
        spec = sampler_spec(sampler, resolved, epochs, generation_size)
        return cls(resolved, spec, trials, generation_size, learning_rate, seed)


def plan_search(
    spec: SearchSpec,
    training: SizedTrainingSpec,
    seed: int,
    *,
    generations: int = DEFAULT_GENERATIONS,
    choose: Callable[[Sequence[int]], int] = min,
) -> SearchPlan:
    """Turn a specification into a plan.

    Args:
        spec: how the schedule is searched.
        training: how every schedule is trained.
        seed: seed of the points and of the networks' initial weights.
        generations: number of generations if the number of trials is not given.
        choose: chooses one of several generation sizes if the specification has none.
    """
    size, trials = spec.generation_size, spec.trials
    if size == AUTO:
        size = choose(candidate_sizes(trials))
        trials = generations * size if trials is None else trials
    return SearchPlan.named(
        spec.space,
        spec.sampler,
        epochs=training.epochs,
        trials=generations * SIZES[0] if trials is None else trials,
        generation_size=size,
        learning_rate=training.learning_rate,
        seed=seed,
    )


@dataclass(frozen=True, eq=False)
class Search:
    """One search among several that are trained together.

    Attributes:
        plan: settings of the search.
        study: study to minimise, new or begun with the same task and plan.
        labels: (N,) training labels of its members; None for those of the training data.
        method: method of its members; None for the method of the task.
    """

    plan: SearchPlan
    study: optuna.Study
    labels: NDArray[np.int64] | None = None
    method: Method | None = None
