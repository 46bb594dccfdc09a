"""A model of the score as a function of the curve R(·) instead of the point in the cube.

Many points of a space decode to nearly the same schedule, and training depends on the schedule alone. A few dozen
trainings are therefore enough to model the score over schedules, but too few for a space of twenty dimensions.

| name | shape | what |
|---|---|---|
| curves | (n, F) | keep rates at the F epochs of `landmarks` |
| values | (n,) | scores, smaller is better |

With more than `MAX_EXACT` trials the model is approximate, so that its time grows slowly with their number. All scores
are used, but functions are represented at `MAX_EXACT` of the curves, and hyperparameters are fitted to as many.
"""

from __future__ import annotations

import copy
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from s2e.samplers.gaussian_process import (
    GaussianProcess,
    Hyperparameters,
    Prior,
    Process,
    SparseGaussianProcess,
    fit_hyperparameters,
)
from s2e.samplers.one_thread import one_thread_for_products

Floats = NDArray[np.float64]

LANDMARKS = 6
"""Number of landmarks in equal ratios, and again at equal distances."""

PRIOR = Prior(length=(-0.5, 0.7))
"""Scores change over about half of the range of a keep rate; the length scale may differ at each epoch."""

MAX_EXACT = 400
"""Largest number of scored curves for which the model is exact: its time grows with their cube."""
BEST_SHARE = 0.5
"""Share of the best curves among those at which an approximate model represents functions."""
REFIT_GROWTH = 1.25
"""Factor by which the number of trials grows until an approximate model fits hyperparameters again."""


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
        offsets: (n,) what another model expects of these curves; the process models the differences. None for zeros.
            Wherever curves are predicted, their offsets are needed, too.
        prior: of the hyperparameters.
    """

    def __init__(self, curves: Floats, values: Floats, offsets: Floats | None = None, *, prior: Prior = PRIOR) -> None:
        differences = values if offsets is None else values - offsets
        self._mean, self._deviation = _moments(differences)
        self._curves = curves
        self._offsets = np.zeros(len(values)) if offsets is None else offsets
        self._process = _process(curves.tobytes(), differences.tobytes(), curves.shape[1], prior)

    def assuming_predictions(self, curves: Floats, offsets: Floats | None = None) -> CurveModel:
        """Return the model after observing its own predictions at these curves, with the same hyperparameters."""
        extended = copy.copy(self)
        extended._curves = np.concatenate([self._curves, curves])
        extended._offsets = np.concatenate([self._offsets, np.zeros(len(curves)) if offsets is None else offsets])
        with one_thread_for_products():
            extended._process = self._process.assuming_predictions(curves)
        return extended

    def mean(self, curves: Floats, offsets: Floats | None = None) -> Floats:
        """Return the mean of the expected score of each curve, (n,)."""
        with one_thread_for_products():
            mean = self._mean + self._deviation * self._process.mean(curves)
        return np.asarray(mean if offsets is None else mean + offsets)

    def predict(self, curves: Floats, offsets: Floats | None = None) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of the expected score of each curve, (n,) and (n,).

        The deviation does not include the noise of a single training, which a better schedule does not change.
        """
        with one_thread_for_products():
            mean, deviation = self._process.predict(curves)
        mean = self._mean + self._deviation * mean
        return mean if offsets is None else mean + offsets, self._deviation * deviation

    def expected_improvement(self, curves: Floats, offsets: Floats | None = None) -> Floats:
        """Return the expected improvement of each curve over the best score, (n,).

        The best score is the smallest mean over the scored curves: a measured score may be low by chance.
        """
        best = self.mean(self._curves, self._offsets).min()
        mean, deviation = self.predict(curves, offsets)
        gap = best - mean
        z = gap / np.maximum(deviation, 1e-12)
        density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
        improvement: Floats = gap * ndtr(z) + deviation * density
        return improvement


def _moments(values: Floats) -> tuple[float, float]:
    """Return the mean and the standard deviation by which scores are standardised."""
    deviation = float(values.std())
    # The mean of equal scores may differ from them by rounding, which is no difference between curves.
    return float(values.mean()), deviation if deviation > 1e-12 * float(np.abs(values).max()) else 1.0


def _standardised(values: Floats) -> Floats:
    mean, deviation = _moments(values)
    return np.asarray((values - mean) / deviation)


@lru_cache(maxsize=32)
def _process(curves: bytes, values: bytes, landmarks: int, prior: Prior = PRIOR) -> Process:
    """Return the process of standardised scores, computed once for all points of a generation.

    They are asked with the same complete trials.
    """
    inputs, scores = np.frombuffer(curves).reshape(-1, landmarks), np.frombuffer(values)
    with one_thread_for_products():
        fitted = _rows_to_fit(len(scores))
        own = scores[fitted]
        hyperparameters = _fit(inputs[fitted].tobytes(), _standardised(own).tobytes(), landmarks, prior)
        if len(scores) <= MAX_EXACT:
            return GaussianProcess(inputs, _standardised(scores), hyperparameters)
        inducing = inputs[_representative_rows(inputs, scores)]
        return SparseGaussianProcess(inputs, _standardised(scores), inducing, hyperparameters)


@lru_cache(maxsize=256)
def _fit(curves: bytes, values: bytes, landmarks: int, prior: Prior = PRIOR) -> Hyperparameters:
    """Fit hyperparameters to standardised scores."""
    return fit_hyperparameters(np.frombuffer(curves).reshape(-1, landmarks), np.frombuffer(values), prior)


def _rows_to_fit(count: int) -> NDArray[np.int64]:
    """Return the trials to which hyperparameters are fitted: all, or `MAX_EXACT` evenly spread over the first ones.

    They are independent of the scores, whose noise would be underestimated from the best ones only. They change when
    the number of trials has grown by `REFIT_GROWTH`.
    """
    if count <= MAX_EXACT:
        return np.arange(count)
    first = MAX_EXACT
    while first * REFIT_GROWTH <= count:
        first = int(first * REFIT_GROWTH)
    return np.linspace(0, first - 1, MAX_EXACT).round().astype(np.int64)


def _representative_rows(curves: Floats, values: Floats) -> NDArray[np.int64]:
    """Return `MAX_EXACT` rows: the best ones, and then one by one the curve farthest from all those chosen."""
    chosen = np.argsort(values, kind="stable")[: int(BEST_SHARE * MAX_EXACT)].tolist()
    nearest = np.min([((curves - curves[row]) ** 2).sum(axis=1) for row in chosen], axis=0)  # (n,)
    while len(chosen) < MAX_EXACT:
        chosen.append(int(nearest.argmax()))
        nearest = np.minimum(nearest, ((curves - curves[chosen[-1]]) ** 2).sum(axis=1))
    return np.array(chosen)
