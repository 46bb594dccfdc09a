"""The curve model as a control variate: it reduces the variance of the paper's step when K is small.

| name | shape | what |
|---|---|---|
| points | (n, D) | in the cube, coordinates in the order of `names`, which may differ from that of `space.names` |
| values | (n,) | scores, smaller is better |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from s2e.errors import InvalidInput
from s2e.samplers.curve_model import CurveModel, landmarks
from s2e.samplers.relaxation import Array, Control, State, sample
from s2e.schedules import Space, check_epochs
from s2e.seeds import derive

SEED = 0
"""Seed of the virtual draws in every search: θ is a function of the trials only, but each trial's sampler has its own
seed."""


class Observations(NamedTuple):
    """Points (n, D) and values (n,) of complete trials, as tuples because they are keys of a cache."""

    points: tuple[tuple[float, ...], ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class CurveControl:
    """Predicts the values of one generation from the decoded curves of all earlier generations.

    The model is not fitted to the trials of the generation itself: it would follow their noise, and bias the step.

    Args:
        space: decodes points into curves; its coordinates are parameters of the study, floats in [0, 1]. Steps are
            cached by this object: give all samplers of a search the same one.
        epochs: T, epochs of the scored trainings.
        startup: complete trials needed to fit a model.
        draws: V, virtual points over which the model is averaged.
    """

    space: Space
    epochs: int
    startup: int = 12
    draws: int = 2**13

    def __post_init__(self) -> None:
        check_epochs(self.epochs)
        if self.startup < 2:
            raise InvalidInput(f"`startup` must be at least 2, but got {self.startup}: a model needs two trials.")
        if self.draws < 2:
            raise InvalidInput(f"`draws` must be at least 2, but got {self.draws}.")

    def predict(
        self, state: State, names: Sequence[str], points: ArrayLike, *, generation: int, earlier: Observations
    ) -> Control | None:
        """Return the predictions of a model of `earlier` trials, or None while there are too few of them.

        Args:
            state: distribution from which the generation was drawn.
            names: names of the coordinates.
            points: (K, D) points of the generation.
            generation: its number; seeds the virtual draws.
            earlier: trials of the earlier generations.
        """
        if len(earlier.values) < self.startup:
            return None
        model = CurveModel(self._features(names, earlier.points), np.array(earlier.values))
        generator = np.random.default_rng(derive(SEED, "virtual", generation))
        draws = sample(state.theta, state.layout, self.draws, generator)  # (V, D)
        at_points, at_draws = (model.mean(self._features(names, each)) for each in (points, draws))
        return Control(at_points, draws, at_draws)

    def _features(self, names: Sequence[str], points: ArrayLike) -> Array:
        """Return the features (n, F) of points (n, D): keep rates at the landmarks, and others that a space adds."""
        order = [names.index(name) for name in self.space.names]
        return self.space.features(np.asarray(points)[:, order], self.epochs, at=landmarks(self.epochs))
