"""A Gaussian process for a handful to a few thousand points: Matérn 5/2, a length scale for each coordinate, noise.

Notation and shapes:

============  =========  ======================================================================================
`inputs` X    (n, F)     where values were observed
`values` y    (n, ...)   observed values, (n,) or (n, O): O outputs over the same inputs
r             (n, m)     distance of two inputs in length scales, r² = Σ_j (x_j − x'_j)² / ℓ_j²
k             (n, m)     s² (1 + √5 r + 5r²/3) e^{−√5 r}
K             (n, n)     k(X, X) + σ² I = L Lᵀ
============  =========  ======================================================================================

Hyperparameters are logarithms λ = (ln s, ln ℓ_1 … ln ℓ_F, ln σ) and have independent normal priors, so that a few
points do not lead to far-fetched ones; `fitted` maximises the likelihood times the prior.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve_triangular
from scipy.optimize import minimize

Floats = NDArray[np.float64]

ROOT5 = 5.0**0.5
JITTER = 1e-8
"""Added to the diagonal in units of s², so that equal inputs do not make K singular."""


@dataclass(frozen=True)
class Prior:
    """Normal priors on the logarithms of the hyperparameters, for values of unit spread: means and deviations."""

    scale: tuple[float, float] = (0.0, 1.0)
    length: tuple[float, float] = (0.0, 1.0)
    noise: tuple[float, float] = (-2.5, 1.0)

    def means(self, coordinates: int) -> Floats:
        """(F + 2,)."""
        return np.array([self.scale[0], *[self.length[0]] * coordinates, self.noise[0]])

    def deviations(self, coordinates: int) -> Floats:
        """(F + 2,)."""
        return np.array([self.scale[1], *[self.length[1]] * coordinates, self.noise[1]])


@dataclass(frozen=True, eq=False)
class Hyperparameters:
    """s, ℓ (F,) and σ."""

    scale: float
    lengths: Floats
    noise: float

    @classmethod
    def of(cls, logarithms: Floats) -> Hyperparameters:
        """From λ (F + 2,)."""
        exact = np.exp(logarithms)
        return cls(float(exact[0]), exact[1:-1], float(exact[-1]))


def kernel(first: Floats, second: Floats, how: Hyperparameters) -> Floats:
    """k(X, X') (n, m) of inputs (n, F) and (m, F)."""
    r = _distance(first / how.lengths, second / how.lengths)
    return np.asarray(how.scale**2 * (1 + ROOT5 * r + 5 / 3 * r**2) * np.exp(-ROOT5 * r))


def _distance(first: Floats, second: Floats) -> Floats:
    origin = second[:1]  # squares of what is far from 0 would leave nothing of their differences
    first, second = first - origin.sum(axis=0), second - origin.sum(axis=0)
    squares = (first**2).sum(axis=1)[:, None] + (second**2).sum(axis=1) - 2 * first @ second.T
    return np.asarray(np.sqrt(np.maximum(squares, 0.0)))


def fitted(inputs: Floats, values: Floats, prior: Prior) -> Hyperparameters:
    """Return the most probable hyperparameters for values (n,) of unit spread and mean 0 at inputs (n, F)."""
    coordinates = inputs.shape[1]
    means, deviations = prior.means(coordinates), prior.deviations(coordinates)

    def loss(logarithms: Floats) -> tuple[float, Floats]:
        value, gradient = negative_log_likelihood(logarithms, inputs, values)
        away = (logarithms - means) / deviations
        return value + 0.5 * float(away @ away), gradient + away / deviations

    bounds = [(mean - 4 * deviation, mean + 4 * deviation) for mean, deviation in zip(means, deviations, strict=True)]
    found = minimize(loss, means, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 60})
    return Hyperparameters.of(found.x)


def negative_log_likelihood(logarithms: Floats, inputs: Floats, values: Floats) -> tuple[float, Floats]:
    """−ln p(y | X, λ), and its gradient by λ (F + 2,).

    With α = K⁻¹y and M = K⁻¹ − ααᵀ, the derivative by λ_j is ½ Σ M ∘ ∂K/∂λ_j, where ∂k/∂ln s = 2k,
    ∂k/∂ln ℓ_j = s² (5/3)(1 + √5 r) e^{−√5 r} (x_j − x'_j)²/ℓ_j², and ∂K/∂ln σ = 2σ² I.
    """
    how = Hyperparameters.of(logarithms)
    scaled = (inputs - inputs[:1].sum(axis=0)) / how.lengths  # as in `_distance`
    r = _distance(scaled, scaled)
    decay = how.scale**2 * np.exp(-ROOT5 * r)
    smooth = decay * (1 + ROOT5 * r + 5 / 3 * r**2)
    lower = np.linalg.cholesky(smooth + (how.noise**2 + JITTER * how.scale**2) * np.eye(len(values)))
    alpha = cho_solve((lower, True), values)
    away = cho_solve((lower, True), np.eye(len(values))) - np.outer(alpha, alpha)  # M
    value = 0.5 * values @ alpha + np.log(np.diag(lower)).sum() + 0.5 * len(values) * np.log(2 * np.pi)
    weights = away * decay * (5 / 3) * (1 + ROOT5 * r)  # symmetric, so Σ_ab w_ab (x_a − x_b)² = 2 (Σ_a w_a x_a² − xᵀWx)
    by_length = weights.sum(axis=1) @ scaled**2 - (scaled * (weights @ scaled)).sum(axis=0)
    jitter = JITTER * how.scale**2 * np.trace(away)
    by_scale = (away * smooth).sum() + jitter
    by_noise = how.noise**2 * np.trace(away)
    return float(value), np.array([by_scale, *by_length, by_noise])


class Process:
    """What is known after observing values (n, ...) at inputs (n, F); the mean before is 0.

    Args:
        inputs: X.
        values: y, with the noise of an observation.
        how: hyperparameters.
    """

    def __init__(self, inputs: Floats, values: Floats, how: Hyperparameters) -> None:
        self.how = how
        self._inputs = inputs
        noisy = kernel(inputs, inputs, how) + (how.noise**2 + JITTER * how.scale**2) * np.eye(len(inputs))
        self._lower = np.linalg.cholesky(noisy)
        self._alpha = cho_solve((self._lower, True), values)  # (n, ...)

    def mean(self, inputs: Floats) -> Floats:
        """Return the expected values without noise at inputs (m, F), (m, ...)."""
        return np.asarray(kernel(inputs, self._inputs, self.how) @ self._alpha)

    def predict(self, inputs: Floats) -> tuple[Floats, Floats]:
        """Return the expected values without noise, (m, ...), and the standard deviation of what is expected, (m,)."""
        across = kernel(inputs, self._inputs, self.how)  # (m, n)
        solved = solve_triangular(self._lower, across.T, lower=True)  # (n, m)
        variance = self.how.scale**2 - (solved**2).sum(axis=0)
        return np.asarray(across @ self._alpha), np.sqrt(np.maximum(variance, 0.0))
