"""Gaussian processes, exact and sparse: Matérn 5/2 kernel, a length scale per coordinate, noise.

The exact one needs time of order n³ and suits up to a few hundred points; the sparse one suits many thousand.

Notation and shapes:

============  =========  ======================================================================================
`inputs` X    (n, F)     inputs of the observed values
`values` y    (n, ...)   observed values, (n,) or (n, O): O outputs over the same inputs
r             (n, m)     distance of two inputs in length scales, r² = Σ_j (x_j − x'_j)² / ℓ_j²
k             (n, m)     s² (1 + √5 r + 5r²/3) e^{−√5 r}
K             (n, n)     k(X, X) + σ² I = L Lᵀ
`inducing` Z  (m, F)     inputs at which the sparse process represents functions
============  =========  ======================================================================================

Hyperparameters are logarithms λ = (ln s, ln ℓ_1 … ln ℓ_F, ln σ) with independent normal priors, which keep them
moderate when there are few points; `fit_hyperparameters` maximises the likelihood times the prior.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Protocol

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


class Process(Protocol):
    """The posterior of a Gaussian process; the prior mean is 0."""

    def mean(self, inputs: Floats) -> Floats:
        """Return the posterior mean at inputs (m, F), as (m, ...)."""
        ...

    def predict(self, inputs: Floats) -> tuple[Floats, Floats]:
        """Return the posterior mean (m, ...) and standard deviation without noise (m,) at inputs (m, F)."""
        ...

    def assuming_predictions(self, inputs: Floats) -> Process:
        """Return the posterior after observing the own means at inputs (r, F)."""
        ...


class GaussianProcess:
    """The exact posterior after observing values (n, ...) at inputs (n, F).

    Args:
        inputs: X.
        values: y, with observation noise.
        hyperparameters: s, ℓ and σ.
    """

    def __init__(self, inputs: Floats, values: Floats, hyperparameters: Hyperparameters) -> None:
        self.hyperparameters = hyperparameters
        self._inputs, self._values = inputs, values
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

    def assuming_predictions(self, inputs: Floats) -> GaussianProcess:
        """Return the posterior after observing the own means at inputs (r, F)."""
        return GaussianProcess(
            np.concatenate([self._inputs, inputs]),
            np.concatenate([self._values, self.mean(inputs)]),
            self.hyperparameters,
        )


class SparseGaussianProcess:
    """An approximate posterior in time of order n m²: functions are determined by their values at m inputs Z.

    This is the deterministic training conditional of Quiñonero-Candela and Rasmussen (2005), "A unifying view of sparse
    approximate Gaussian process regression". It uses all n values, and is exact if all inputs are in Z:

        k(Z, Z) = L Lᵀ,  a(x) = L⁻¹ k(Z, x),  I + a(X) a(X)ᵀ/σ² = B Bᵀ,  b(x) = B⁻¹ a(x)
        mean     b(x)ᵀ b(X) y/σ²
        covariance   c(x, x') = k(x, x') − a(x)ᵀ a(x') + b(x)ᵀ b(x')

    An observation that equals its prediction changes no mean. At inputs R, it changes the covariance to
    c(x, x') − c(x, R) (c(R, R) + σ² I)⁻¹ c(R, x').

    Args:
        inputs: X.
        values: y (n,), with observation noise.
        inducing: Z.
        hyperparameters: s, ℓ and σ.
    """

    def __init__(self, inputs: Floats, values: Floats, inducing: Floats, hyperparameters: Hyperparameters) -> None:
        self.hyperparameters = hyperparameters
        self._inducing = inducing
        own = kernel(inducing, inducing, hyperparameters)
        self._lower = np.linalg.cholesky(own + JITTER * hyperparameters.scale**2 * np.eye(len(own)))  # (m, m) L
        features = self._projected(inputs)  # (m, n) a(X)
        precision = features @ features.T / hyperparameters.diagonal  # (m, m)
        self._factor = np.linalg.cholesky(np.eye(len(own)) + precision)  # (m, m) B
        weights = cho_solve((self._factor, True), features @ values / hyperparameters.diagonal)
        self._alpha = solve_triangular(self._lower, weights, lower=True, trans="T")  # (m,): mean k(x, Z) α
        self._assumed = np.zeros((0, inducing.shape[1]))  # (r, F) R

    def mean(self, inputs: Floats) -> Floats:
        """Return the posterior mean at inputs (m, F), as (m,)."""
        return np.asarray(kernel(inputs, self._inducing, self.hyperparameters) @ self._alpha)

    def predict(self, inputs: Floats) -> tuple[Floats, Floats]:
        """Return the posterior mean (m,) and standard deviation without noise (m,) at inputs (m, F)."""
        projected = self._projected(inputs)
        updated = solve_triangular(self._factor, projected, lower=True)
        variance = self.hyperparameters.scale**2 - (projected**2).sum(axis=0) + (updated**2).sum(axis=0)
        if len(self._assumed):
            observed = self._covariance(self._assumed, self._assumed)  # (r, r)
            lower = np.linalg.cholesky(observed + self.hyperparameters.diagonal * np.eye(len(observed)))
            solved = solve_triangular(lower, self._covariance(self._assumed, inputs), lower=True)  # (r, m)
            variance -= (solved**2).sum(axis=0)
        return self.mean(inputs), np.sqrt(np.maximum(variance, 0.0))

    def assuming_predictions(self, inputs: Floats) -> SparseGaussianProcess:
        """Return the posterior after observing the own means at inputs (r, F)."""
        extended = copy.copy(self)
        extended._assumed = np.concatenate([self._assumed, inputs])
        return extended

    def _projected(self, inputs: Floats) -> Floats:
        across = kernel(self._inducing, inputs, self.hyperparameters)
        return np.asarray(solve_triangular(self._lower, across, lower=True))

    def _covariance(self, first: Floats, second: Floats) -> Floats:
        a, other = self._projected(first), self._projected(second)
        b, updated = (solve_triangular(self._factor, each, lower=True) for each in (a, other))
        return np.asarray(kernel(first, second, self.hyperparameters) - a.T @ other + b.T @ updated)
