"""A model of the score as a function of the curve R(·), not of the numbers behind it.

Many points of a space decode to nearly the same schedule, and training sees the schedule alone; so a few dozen
trainings are enough to model the score over schedules, where they would be lost in a space of twenty dimensions.

| name | shape | what |
|---|---|---|
| curves | (n, F) | keep rates at the F epochs of `landmarks` |
| values | (n,) | scores, smaller is better |
"""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

Floats = NDArray[np.float64]

LANDMARKS = 10


def landmarks(epochs: int) -> NDArray[np.int64]:
    """Epochs at which a curve is looked at, (F,), F ≤ 10: dense early, where curves differ most."""
    return np.unique(np.round(np.geomspace(1, max(1, epochs - 1), LANDMARKS)).astype(np.int64)).clip(max=epochs - 1)


class CurveModel:
    """A Gaussian process over curves, fitted by maximum likelihood."""

    def __init__(self, curves: Floats, values: Floats, *, seed: int = 0) -> None:
        self._curves, self._values = curves, values
        kernel = ConstantKernel(1.0, (1e-2, 1e2)) * Matern(np.full(curves.shape[1], 0.5), (0.1, 10.0), nu=2.5)
        kernel += WhiteKernel(1e-2, (1e-4, 1.0))
        self._process = self._fit(GaussianProcessRegressor(kernel, normalize_y=True, random_state=seed % 2**32))

    def given(self, curves: Floats) -> CurveModel:
        """Return the model that takes these curves as scored just as predicted; what it knows of scales stays."""
        believed = object.__new__(CurveModel)
        believed._curves = np.concatenate([self._curves, curves])
        believed._values = np.concatenate([self._values, self.predict(curves)[0]])
        kernel = self._process.kernel_
        believed._process = believed._fit(GaussianProcessRegressor(kernel, optimizer=None, normalize_y=True))
        return believed

    def predict(self, curves: Floats) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of the expected score of each curve, (n,) and (n,).

        The chance of a single training is left out of the deviation: there is nothing to gain from it.
        """
        mean, deviation = self._process.predict(curves, return_std=True)
        chance = self._process.kernel_.k2.noise_level * self._process._y_train_std**2
        return mean, np.sqrt(np.maximum(deviation**2 - chance, 0.0))

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

    def _fit(self, process: GaussianProcessRegressor) -> GaussianProcessRegressor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a scale at its bound is an answer, not a failure
            return process.fit(self._curves, self._values)
