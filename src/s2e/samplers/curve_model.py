"""A model of the score as a function of the curve R(·) instead of the point in the cube.

Many points of a space decode to nearly the same schedule, and training depends on the schedule alone. A few dozen
trainings are therefore enough to model the score over schedules, but too few for a space of twenty dimensions.

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

from s2e.samplers.gaussian_process import GaussianProcess, Hyperparameters, Prior, fit_hyperparameters

Floats = NDArray[np.float64]

LANDMARKS = 6
"""Number of landmarks in equal ratios, and again at equal distances."""

PRIOR = Prior(length=(-0.5, 0.7))
"""Scores change over about half of the range of a keep rate; the length scale may differ at each epoch."""


def landmarks(epochs: int, each: int = LANDMARKS) -> NDArray[np.int64]:
    """Return the epochs at which curves are compared, (F,), F ≤ 2 · each: dense early, where curves differ most."""
    last = max(1, epochs - 1)
    chosen = np.concatenate([np.geomspace(1, last, each), np.linspace(max(1, epochs / 5), last, each)])
    return np.unique(np.round(chosen).astype(np.int64)).clip(max=epochs - 1)


class CurveModel:
    """A Gaussian process over curves.

    Args:
        curves: (n, F) scored curves.
        values: (n,) their scores.
    """

    def __init__(self, curves: Floats, values: Floats) -> None:
        self._mean, deviation = float(values.mean()), float(values.std())
        # The mean of equal scores may differ from them by rounding, which is no difference between curves.
        self._deviation = deviation if deviation > 1e-12 * float(np.abs(values).max()) else 1.0
        self._curves, self._values = curves, (values - self._mean) / self._deviation
        hyperparameters = _fit(curves.tobytes(), self._values.tobytes(), curves.shape[1])
        self._process = GaussianProcess(self._curves, self._values, hyperparameters)

    def assuming_predictions(self, curves: Floats) -> CurveModel:
        """Return the model after observing its own predictions at these curves, with the same hyperparameters."""
        extended = object.__new__(CurveModel)
        extended._mean, extended._deviation = self._mean, self._deviation
        extended._curves = np.concatenate([self._curves, curves])
        extended._values = np.concatenate([self._values, self._process.mean(curves)])
        extended._process = GaussianProcess(extended._curves, extended._values, self._process.hyperparameters)
        return extended

    def predict(self, curves: Floats) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of the expected score of each curve, (n,) and (n,).

        The deviation does not include the noise of a single training, which a better schedule does not change.
        """
        mean, deviation = self._process.predict(curves)
        return self._mean + self._deviation * mean, self._deviation * deviation

    def expected_improvement(self, curves: Floats) -> Floats:
        """Return the expected improvement of each curve over the best score, (n,).

        The best score is the smallest mean over the scored curves: a measured score may be low by chance.
        """
        best = self.predict(self._curves)[0].min()
        mean, deviation = self.predict(curves)
        gap = best - mean
        z = gap / np.maximum(deviation, 1e-12)
        density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
        improvement: Floats = gap * ndtr(z) + deviation * density
        return improvement


@lru_cache(maxsize=256)
def _fit(curves: bytes, values: bytes, landmarks: int) -> Hyperparameters:
    """Fit once for all points of a generation, which are asked with the same complete trials."""
    return fit_hyperparameters(np.frombuffer(curves).reshape(-1, landmarks), np.frombuffer(values), PRIOR)
