"""A Gaussian process for up to a few thousand points: Matérn 5/2 kernel, a length scale per coordinate, noise.

Notation and shapes:

============  =========  ======================================================================================
`inputs` X    (n, F)     inputs of the observed values
`values` y    (n, ...)   observed values, (n,) or (n, O): O outputs over the same inputs
r             (n, m)     distance of two inputs in length scales, r² = Σ_j (x_j − x'_j)² / ℓ_j²
k             (n, m)     s² (1 + √5 r + 5r²/3) e^{−√5 r}
K             (n, n)     k(X, X) + σ² I = L Lᵀ
============  =========  ======================================================================================

Hyperparameters are logarithms λ = (ln s, ln ℓ_1 … ln ℓ_F, ln σ) with independent normal priors, which keep them
moderate when there are few points; `fit_hyperparameters` maximises the likelihood times the prior.
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
"""Added to the diagonal, in units of s², so that K is not singular for equal inputs."""


@dataclass(frozen=True)
class Prior:
    """Means and deviations of the normal priors on ln s, ln ℓ_j and ln σ, for values with unit standard deviation."""

    scale: tuple[float, float] = (0.0, 1.0)
    length: tuple[float, float] = (0.0, 1.0)
    noise: tuple[float, float] = (-2.5, 1.0)

    def means(self, coordinates: int) -> Floats:
        """Return the means, (F + 2,)."""
        return np.array([self.scale[0], *[self.length[0]] * coordinates, self.noise[0]])

    def deviations(self, coordinates: int) -> Floats:
        """Return the standard deviations, (F + 2,)."""
        return np.array([self.scale[1], *[self.length[1]] * coordinates, self.noise[1]])


@dataclass(frozen=True, eq=False)
class Hyperparameters:
    """s, ℓ (F,) and σ."""

    scale: float
    lengths: Floats
    noise: float

    @property
    def diagonal(self) -> float:
        """Added to the diagonal of k(X, X)."""
        return self.noise**2 + JITTER * self.scale**2

    @classmethod
    def from_logarithms(cls, logarithms: Floats) -> Hyperparameters:
        """Return the hyperparameters of λ (F + 2,)."""
        values = np.exp(logarithms)
        return cls(float(values[0]), values[1:-1], float(values[-1]))


def kernel(first: Floats, second: Floats, hyperparameters: Hyperparameters) -> Floats:
    """Return k(X, X') (n, m) of inputs (n, F) and (m, F)."""
    r = _distance(first / hyperparameters.lengths, second / hyperparameters.lengths)
    return np.asarray(hyperparameters.scale**2 * (1 + ROOT5 * r + 5 / 3 * r**2) * np.exp(-ROOT5 * r))


def _distance(first: Floats, second: Floats) -> Floats:
    origin = second[:1]  # squares of numbers far from 0 would cancel their differences
    first, second = first - origin.sum(axis=0), second - origin.sum(axis=0)
    squares = (first**2).sum(axis=1)[:, None] + (second**2).sum(axis=1) - 2 * first @ second.T
    return np.asarray(np.sqrt(np.maximum(squares, 0.0)))


def fit_hyperparameters(inputs: Floats, values: Floats, prior: Prior) -> Hyperparameters:
    """Return the most probable hyperparameters for values (n,) with mean 0 and deviation 1 at inputs (n, F)."""
    coordinates = inputs.shape[1]
    means, deviations = prior.means(coordinates), prior.deviations(coordinates)

    def loss(logarithms: Floats) -> tuple[float, Floats]:
        value, gradient = negative_log_likelihood(logarithms, inputs, values)
        z = (logarithms - means) / deviations
        return value + 0.5 * float(z @ z), gradient + z / deviations

    bounds = [(mean - 4 * deviation, mean + 4 * deviation) for mean, deviation in zip(means, deviations, strict=True)]
    found = minimize(loss, means, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 60})
    return Hyperparameters.from_logarithms(found.x)


def negative_log_likelihood(logarithms: Floats, inputs: Floats, values: Floats) -> tuple[float, Floats]:
    """Return −ln p(y | X, λ) and its gradient with respect to λ (F + 2,).

    With α = K⁻¹y and M = K⁻¹ − ααᵀ, the derivative with respect to λ_j is ½ Σ M ∘ ∂K/∂λ_j, where ∂k/∂ln s = 2k,
    ∂k/∂ln ℓ_j = s² (5/3)(1 + √5 r) e^{−√5 r} (x_j − x'_j)²/ℓ_j², and ∂K/∂ln σ = 2σ² I.
    """
    hyperparameters = Hyperparameters.from_logarithms(logarithms)
    scaled = (inputs - inputs[:1].sum(axis=0)) / hyperparameters.lengths  # as in `_distance`
    r = _distance(scaled, scaled)
    decay = hyperparameters.scale**2 * np.exp(-ROOT5 * r)
    smooth = decay * (1 + ROOT5 * r + 5 / 3 * r**2)
    lower = np.linalg.cholesky(smooth + hyperparameters.diagonal * np.eye(len(values)))
    alpha = cho_solve((lower, True), values)
    M = cho_solve((lower, True), np.eye(len(values))) - np.outer(alpha, alpha)
    value = 0.5 * values @ alpha + np.log(np.diag(lower)).sum() + 0.5 * len(values) * np.log(2 * np.pi)
    weights = M * decay * (5 / 3) * (1 + ROOT5 * r)  # symmetric, so Σ_ab w_ab (x_a − x_b)² = 2 (Σ_a w_a x_a² − xᵀWx)
    by_length = weights.sum(axis=1) @ scaled**2 - (scaled * (weights @ scaled)).sum(axis=0)
    jitter = JITTER * hyperparameters.scale**2 * np.trace(M)
    by_scale = (M * smooth).sum() + jitter
    by_noise = hyperparameters.noise**2 * np.trace(M)
    return float(value), np.array([by_scale, *by_length, by_noise])


class GaussianProcess:
    """The posterior after observing values (n, ...) at inputs (n, F); the prior mean is 0.

    Args:
        inputs: X.
        values: y, with observation noise.
        hyperparameters: s, ℓ and σ.
    """

    def __init__(self, inputs: Floats, values: Floats, hyperparameters: Hyperparameters) -> None:
        self.hyperparameters = hyperparameters
        self._inputs = inputs
        noisy = kernel(inputs, inputs, hyperparameters) + hyperparameters.diagonal * np.eye(len(inputs))
        self._lower = np.linalg.cholesky(noisy)
        self._alpha = cho_solve((self._lower, True), values)  # (n, ...)

    def mean(self, inputs: Floats) -> Floats:
        """Return the posterior mean at inputs (m, F), as (m, ...)."""
        return np.asarray(kernel(inputs, self._inputs, self.hyperparameters) @ self._alpha)

    def predict(self, inputs: Floats) -> tuple[Floats, Floats]:
        """Return the posterior mean (m, ...) and standard deviation without noise (m,) at inputs (m, F)."""
        across = kernel(inputs, self._inputs, self.hyperparameters)  # (m, n)
        solved = solve_triangular(self._lower, across.T, lower=True)  # (n, m)
        variance = self.hyperparameters.scale**2 - (solved**2).sum(axis=0)
        return np.asarray(across @ self._alpha), np.sqrt(np.maximum(variance, 0.0))
