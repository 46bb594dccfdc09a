"""A model of the score as a function of the curve R(·), not of the numbers behind it.

Many points of a space decode to nearly the same schedule, and training sees the schedule alone; so a few dozen
trainings are enough to model the score over schedules, where they would be lost in a space of twenty dimensions.

| name | shape | what |
|---|---|---|
| curves | (n, F) | keep rates at the F epochs of `landmarks` |
| values | (n,) | scores, smaller is better |
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from s2e.samplers.gaussian_process import Hyperparameters, Prior, Process, fitted

Floats = NDArray[np.float64]

LANDMARKS = 6
"""Epochs that a curve is looked at: so many in equal ratios, and as many at equal distances."""

PRIOR = Prior(length=(-0.5, 0.7))
"""Scores change over a good half of the range of a keep rate; narrower and wider are possible, epoch by epoch."""


def landmarks(epochs: int, each: int = LANDMARKS) -> NDArray[np.int64]:
    """Epochs at which a curve is looked at, (F,), F ≤ 2 · each: dense early, where curves differ most."""
    last = max(1, epochs - 1)
    chosen = np.concatenate([np.geomspace(1, last, each), np.linspace(max(1, epochs / 5), last, each)])
    return np.unique(np.round(chosen).astype(np.int64)).clip(max=epochs - 1)


class CurveModel:
    """A Gaussian process over curves.

    Args:
        curves: that were scored.
        values: their scores.
    """

    def __init__(self, curves: Floats, values: Floats) -> None:
        self._middle, spread = float(values.mean()), float(values.std())
        # The mean of equal scores need not be that score: what is left is rounding, not a difference between curves.
        self._spread = spread if spread > 1e-12 * float(np.abs(values).max()) else 1.0
        self._curves, self._values = curves, (values - self._middle) / self._spread
        how = _fitted(curves.tobytes(), self._values.tobytes(), curves.shape[1])
        self._process = Process(self._curves, self._values, how)

    def given(self, curves: Floats) -> CurveModel:
        """Return the model that takes these curves as scored just as predicted; what it knows of scales stays."""
        believed = object.__new__(CurveModel)
        believed._middle, believed._spread = self._middle, self._spread
        believed._curves = np.concatenate([self._curves, curves])
        believed._values = np.concatenate([self._values, self._process.mean(curves)])
        believed._process = Process(believed._curves, believed._values, self._process.how)
        return believed

    def predict(self, curves: Floats) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of the expected score of each curve, (n,) and (n,).

        The chance of a single training is left out of the deviation: there is nothing to gain from it.
        """
        mean, deviation = self._process.predict(curves)
        return self._middle + self._spread * mean, self._spread * deviation

    def expected_improvement(self, curves: Floats) -> Floats:
        """Return how much below the best score so far each curve can be expected to come, (n,).

        The best so far is the smallest mean over the scored curves: a lucky score is no target.
        """
        best = self.predict(self._curves)[0].min()
        mean, deviation = self.predict(curves)
        gap = best - mean
        z = gap / np.maximum(deviation, 1e-12)
        density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
        improvement: Floats = gap * ndtr(z) + deviation * density
        return improvement


@lru_cache(maxsize=256)
def _fitted(curves: bytes, values: bytes, landmarks: int) -> Hyperparameters:
    """Fit once for all asks of a generation: they see the same finished trials."""
    return fitted(np.frombuffer(curves).reshape(-1, landmarks), np.frombuffer(values), PRIOR)
