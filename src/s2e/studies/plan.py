"""What a search is: its space, its sampler, its number of trials and the size of its generations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.samplers import BaseSampler

from s2e.methods import Method
from s2e.samplers import SamplerSpec, sampler_spec
from s2e.schedules import Space, space
from s2e.specs import AUTO, SearchSpec, TrainingSpec, check_all, count_problem
from s2e.studies.generation_size import SIZES, candidate_sizes

DEFAULT_GENERATIONS = 10
"""Generations of a search whose number of trials is not given."""
DEFAULT_GENERATIONS_OF_SHORT_SEARCHES = 5
"""The same for `s2e compare`, which runs several searches, and for `S2EClassifier`.

With six schedules in each, the default sampler has then found what random search finds with 300 trainings.
"""


@dataclass(frozen=True)
class SearchPlan:
    """What a search is, apart from the data and the networks.

    Attributes:
        space: the family of schedules.
        sampler: how points are sampled, and which trainings are stopped early.
        trials: full trainings to spend; as many schedules are trained, and more where some are stopped early.
        generation_size: K, points asked, trained and told together.
        learning_rate: of every member.
        seed: of the points and of the networks' initial weights.
    """

    space: Space
    sampler: SamplerSpec
    trials: int = 60
    generation_size: int = 6
    learning_rate: float = 1e-3
    seed: int = 0

    def __post_init__(self) -> None:
        check_all(*(count_problem(name, getattr(self, name)) for name in ("trials", "generation_size")))

    @classmethod
    def named(
        cls,
        family: str | Space,
        sampler: str | BaseSampler,
        *,
        epochs: int,
        trials: int,
        generation_size: int,
        learning_rate: float = 1e-3,
        seed: int = 0,
    ) -> SearchPlan:
        """Return the plan of a search whose space and sampler are given by name or as objects."""
        known = space(family)
        how = sampler_spec(sampler, known, epochs, generation_size)
        return cls(known, how, trials, generation_size, learning_rate, seed)


def plan_search(
    spec: SearchSpec,
    training: TrainingSpec,
    seed: int,
    *,
    generations: int = DEFAULT_GENERATIONS,
    choose: Callable[[Sequence[int]], int] = min,
) -> SearchPlan:
    """Turn a specification into a plan.

    Args:
        spec: how the schedule is searched.
        training: how every schedule is trained.
        seed: of the points and of the networks' initial weights.
        generations: their number where the number of trials is not given.
        choose: chooses one of several generation sizes where the specification leaves it open.
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
        plan: what is searched and how.
        study: minimised; a new one, or one begun with the same task and plan.
        labels: (N,) the training labels it is for; None for those of the training data.
        method: the method it is for; None for the task's.
    """

    plan: SearchPlan
    study: optuna.Study
    labels: NDArray[np.int64] | None = None
    method: Method | None = None
