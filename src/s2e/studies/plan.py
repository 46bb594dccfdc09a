"""."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import optuna
from numpy.typing import NDArray

from s2e.errors import InvalidInput
from s2e.methods import Method
from s2e.samplers import Algorithm, algorithm
from s2e.schedules.spaces import Space, space


@dataclass(frozen=True)
class SearchPlan:
    """What a search is, apart from the data and the networks.

    Attributes:
        space: the family of schedules.
        algorithm: how points are asked, and who is stopped early.
        trials: how many full trainings to spend; as many schedules are trained, and more where some are stopped early.
        generation: K, how many of them are asked, trained and told together.
        learning_rate: of every member.
        seed: decides the points and the networks' initial weights.
    """

    space: Space
    algorithm: Algorithm
    trials: int = 60
    generation: int = 6
    learning_rate: float = 1e-3
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("trials", "generation"):
            if getattr(self, name) < 1:
                raise InvalidInput(f"`{name}` must be at least 1, but got {getattr(self, name)}.")

    @classmethod
    def named(
        cls,
        family: str,
        sampler: str,
        *,
        epochs: int,
        trials: int,
        generation: int,
        learning_rate: float = 1e-3,
        seed: int = 0,
    ) -> SearchPlan:
        """Return the plan of a search whose space and sampler are given by their names."""
        known = space(family)
        return cls(known, algorithm(sampler, known, epochs, generation), trials, generation, learning_rate, seed)


@dataclass(frozen=True, eq=False)
class Search:
    """One search among several that are trained together.

    Attributes:
        plan: what is searched and how.
        study: minimised; a fresh one or one begun with the same task and plan.
        labels: (N,) the labels it is for; None for those of the training data.
        method: the method it is for; None for the task's.
    """

    plan: SearchPlan
    study: optuna.Study
    labels: NDArray[np.int64] | None = None
    method: Method | None = None
