"""Stochastic relaxation: a Dirichlet × Beta distribution over the cube, its derivatives, and steps of its parameters.

The search minimises J(θ) = E[f̄(x)], x ~ p_θ (paper, eq. 6), instead of f̄ itself, so that a derivative exists. Here p_θ
is a Dirichlet on the weights α of a simplex times independent Betas on the coordinates β of a box; θ = 1 is uniform.

Notation and shapes (`...` are leading batch dimensions, which every function accepts):

=============  ============  =========================================================================================
`layout`                     number of coordinates that are simplex weights (s = 0 or s ≥ 2) and that are boxed (m)
D = s + m                    dimensions of the cube
n = s + 2m                   entries of θ
`theta` θ      (..., n)      the Dirichlet's s entries, then the Betas' a_1..a_m, then their b_1..b_m
`points` u     (..., K, D)   in the cube: α = g/Σg with g_i = −ln(1−u_i) for the first s, β = u for the others
`values` f̄     (..., K)      measured at the points; smaller is better
`score` s      (..., K, n)   ∇_θ log p_θ(x)
`fisher` F     (..., n, n)   E[s sᵀ] = −∇²_θ log p_θ(x), which does not depend on x
`gradient` ĝ   (..., n)      estimate of ∇J(θ)
`hessian` Ĥ    (..., n, n)   estimate of ∇²J(θ)
`control` g                  optional predictions of the values at the points and at V more draws of p_θ
=============  ============  =========================================================================================

`Layout`, `State`, `Control`, `Settings`, `estimate` and `advance` validate their arguments; the other functions do not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, digamma, gammaincinv, polygamma

from s2e.errors import InvalidInput, unknown_name
from s2e.schedules import simplex_weights

Array: TypeAlias = NDArray[np.float64]
Baseline: TypeAlias = Literal["leave-one-out"] | None

LOG_FLOOR = 1e-9
"""Logarithms are taken of max(·, LOG_FLOOR): on the boundary they are about −21 instead of −∞. A uniform coordinate is
below it once in 10⁹ draws, so expectations hardly change."""

LARGEST_BELOW_ONE = 1.0 - 2.0**-53

LARGEST_GAMMA = 20.0
"""Above it u = 1 − e^{−g} loses digits of g, so the point's g are rescaled, which does not change α = g/Σg. At 20 two
errors are balanced: α is recovered from the cube to 3·10⁻⁹, and a uniform draw is rescaled with probability 2·10⁻⁹ per
coordinate."""


@dataclass(frozen=True)
class Layout:
    """The first `simplex` coordinates of a point are simplex weights, the remaining `boxed` ones are in a box."""

    simplex: int
    boxed: int

    def __post_init__(self) -> None:
        if self.simplex < 0 or self.simplex == 1:
            raise InvalidInput(
                f"`simplex` must be 0 or at least 2, but got {self.simplex}: one weight alone is always 1."
            )
        if self.boxed < 0:
            raise InvalidInput(f"`boxed` must be at least 0, but got {self.boxed}.")
        if self.dimensions == 0:
            raise InvalidInput("`simplex` + `boxed` must be at least 1, but got 0: there is nothing to search.")

    @property
    def dimensions(self) -> int:
        """D, the length of a point."""
        return self.simplex + self.boxed

    @property
    def size(self) -> int:
        """n, the length of θ."""
        return self.simplex + 2 * self.boxed

    def split(self, theta: Array) -> tuple[Array, Array, Array]:
        """Return views of θ (..., n): the Dirichlet's entries (..., s), the Betas' a (..., m) and b (..., m)."""
        first, second = self.simplex, self.simplex + self.boxed
        return theta[..., :first], theta[..., first:second], theta[..., second:]


# --- The distribution -------------------------------------------------------------------------------------------------


def weights(points: Array, layout: Layout) -> Array:
    """Return simplex weights α (..., s) of points (..., D); uniform weights where all u of a point are 0."""
    return simplex_weights(points[..., : layout.simplex])


def sample(theta: Array, layout: Layout, count: int, generator: np.random.Generator) -> Array:
    """Draw `count` points (..., count, D) from p_θ, inside [0, 1)."""
    alphas, firsts, seconds = layout.split(theta[..., None, :])  # each (..., 1, ·)
    shape = (*theta.shape[:-1], count)
    gammas = generator.standard_gamma(alphas, size=(*shape, layout.simplex))
    return _in_cube(gammas, generator.beta(firsts, seconds, size=(*shape, layout.boxed)))


def transport(theta: Array, layout: Layout, noise: Array) -> Array:
    """Map uniform noise (..., D) to points (..., D) of p_θ: each coordinate by its own quantile function.

    Slower than `sample`, but every coordinate is a function of its own noise only, and θ = 1 is the identity.
    """
    alphas, firsts, seconds = layout.split(theta)
    gammas: Array = np.asarray(gammaincinv(alphas, noise[..., : layout.simplex]), dtype=np.float64)
    betas: Array = np.asarray(betaincinv(firsts, seconds, noise[..., layout.simplex :]), dtype=np.float64)
    return _in_cube(gammas, betas)


def _in_cube(gammas: Array, betas: Array) -> Array:
    """Return points (..., D) with simplex weights gammas/Σ (..., s) and boxed coordinates betas (..., m)."""
    largest = gammas.max(axis=-1, keepdims=True, initial=0.0)
    gammas = np.where(largest > LARGEST_GAMMA, gammas / np.maximum(largest, 1.0), gammas)
    return np.concatenate([-np.expm1(-gammas), np.minimum(betas, LARGEST_BELOW_ONE)], axis=-1)


def score(theta: Array, layout: Layout, points: Array) -> Array:
    """Return s_θ(x) = ∇_θ log p_θ(x) at points (..., K, D), as (..., K, n)."""
    alphas, firsts, seconds = layout.split(theta[..., None, :])  # each (..., 1, ·)
    betas = points[..., layout.simplex :]
    both = digamma(firsts + seconds)
    return np.concatenate(
        [
            _log(weights(points, layout)) + digamma(alphas.sum(axis=-1, keepdims=True)) - digamma(alphas),
            _log(betas) + both - digamma(firsts),
            _log(1.0 - betas) + both - digamma(seconds),
        ],
        axis=-1,
    )


def _log(x: Array) -> Array:
    return np.log(np.maximum(x, LOG_FLOOR))


def fisher(theta: Array, layout: Layout) -> Array:
    """Return F = E[s sᵀ] = −∇² log p_θ (..., n, n): diag ψ'(θ) minus ψ'(Σ) within the Dirichlet and each Beta."""
    alphas, firsts, seconds = layout.split(theta)
    matrix: Array = polygamma(1, theta)[..., None] * np.eye(layout.size)
    s, m = layout.simplex, layout.boxed
    matrix[..., :s, :s] -= polygamma(1, alphas.sum(axis=-1))[..., None, None] if s else 0.0
    both = polygamma(1, firsts + seconds)[..., None] * np.eye(m)
    matrix[..., s:, s:] -= np.tile(both, (2, 2))  # (a,a), (a,b), (b,a), (b,b)
    return matrix


# --- Estimates --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class State:
    """The distribution p_θ, which a step replaces by another. θ (..., n) is finite and at least 1."""

    layout: Layout
    theta: Array

    def __post_init__(self) -> None:
        if self.theta.ndim == 0 or self.theta.shape[-1] != self.layout.size:
            raise InvalidInput(
                f"`theta` must have shape (..., {self.layout.size}) for {self.layout}, but got {self.theta.shape}."
            )
        if not (np.isfinite(self.theta).all() and (self.theta >= 1).all()):
            raise InvalidInput(f"`theta` must be finite and at least 1, but got {self.theta}.")

    @classmethod
    def uniform(cls, layout: Layout) -> State:
        """Return θ = 1, the start of a search (first line of the paper's S2E algorithm)."""
        return cls(layout, np.ones(layout.size))


@dataclass(frozen=True, eq=False)
class Estimate:
    """∇J (..., n) and ∇²J (..., n, n) at a state, exact or estimated."""

    gradient: Array
    hessian: Array


@dataclass(frozen=True, eq=False)
class Control:
    """A control variate: predictions of a model g of the values at the points, and at V ≥ 2 more draws of p_θ.

    The model must not be fitted to the values at these points; the estimates are then unbiased for any model.

    Attributes:
        at_points: (..., K) g at the points that were measured.
        draws: (..., V, D) of p_θ; without leading dimensions, the draws are shared by a whole batch.
        at_draws: (..., V) g at the draws.
    """

    at_points: Array
    draws: Array
    at_draws: Array

    def __post_init__(self) -> None:
        if self.draws.ndim < 2 or self.draws.shape[:-1] != self.at_draws.shape or self.at_draws.shape[-1] < 2:
            raise InvalidInput(
                "`draws` must have shape (..., V, D) and `at_draws` (..., V), V at least 2, "
                f"but got {self.draws.shape} and {self.at_draws.shape}."
            )
        if not (np.isfinite(self.at_points).all() and np.isfinite(self.at_draws).all()):
            raise InvalidInput("`at_points` and `at_draws` must be finite, but got NaN or infinity.")


def estimate(
    state: State,
    points: ArrayLike,
    values: ArrayLike,
    *,
    baseline: Baseline = "leave-one-out",
    scaled: bool = True,
    control: Control | None = None,
) -> Estimate:
    """Estimate ∇J (paper, eq. 7) and ∇²J (Proposition 1) from K ≥ 2 points (..., K, D) of p_θ and values (..., K).

    Since E[s] = 0 and E[s sᵀ − F] = 0, `baseline="leave-one-out"` subtracts from each value the mean of the others,
    which reduces the variance without bias. `scaled` divides both estimates by the values' standard deviation: one set
    of constants then suits values of any unit, and (∇²J)⁻¹∇J does not change. Where all values are equal, scaled
    estimates are 0.

    With a `control` g, f̄ = g + (f̄ − g), so ∇J = E[g s] + E[(f̄ − g) s], and ∇²J likewise. The first term needs no
    measurements and is averaged over many draws. Only the second has the variance of K points, and it is small where g
    is good. `scaled` divides both by the deviation of f̄, not of g or f̄ − g: they are terms of one derivative, whose
    unit must not depend on how good g is.
    """
    u, f = _checked(state, points, values, control)
    if f.shape[-1] < 2:
        raise InvalidInput(f"`values` must hold at least 2 values, but got {f.shape[-1]}.")
    return _estimate(state, u, f, baseline, scaled, control)


def _checked(state: State, points: ArrayLike, values: ArrayLike, control: Control | None = None) -> tuple[Array, Array]:
    """Return points (..., K, D) and values (..., K) as arrays; raise `InvalidInput` if they are invalid."""
    u, f = np.asarray(points, dtype=np.float64), np.asarray(values, dtype=np.float64)
    if f.ndim == 0 or u.shape != (*f.shape, state.layout.dimensions):
        raise InvalidInput(
            f"`points` must have shape (..., K, {state.layout.dimensions}) and `values` (..., K), "
            f"but got {u.shape} and {f.shape}."
        )
    if not np.isfinite(f).all():
        raise InvalidInput("`values` must be finite, but got NaN or infinity: leave these points out.")
    if not ((u >= 0) & (u <= 1)).all():
        raise InvalidInput("`points` must lie in the cube [0, 1], but some do not.")
    if control is not None:
        batch, D = f.shape[:-1], state.layout.dimensions
        drawn = control.draws.shape
        if control.at_points.shape != f.shape or drawn[-1] != D or drawn[:-2] not in ((), batch):
            raise InvalidInput(
                f"`control` must be for values of shape {f.shape} and draws (V, {D}) or (..., V, {D}), "
                f"but got {control.at_points.shape} and {drawn}."
            )
    return u, f


def _estimate(
    state: State, points: Array, values: Array, baseline: Baseline, scaled: bool, control: Control | None
) -> Estimate:
    unit = values if scaled else None
    if control is None:
        return _weighted_mean(state, points, _coefficients(values, baseline, unit))
    modelled = _weighted_mean(state, control.draws, _coefficients(control.at_draws, baseline, unit))  # E[g ·]
    residual = _weighted_mean(state, points, _coefficients(values - control.at_points, baseline, unit))  # E[(f̄ − g) ·]
    return Estimate(modelled.gradient + residual.gradient, modelled.hessian + residual.hessian)


def _weighted_mean(state: State, points: Array, coefficients: Array) -> Estimate:
    """Return the estimates of eq. 7 and Proposition 1 with coefficients (..., K) for f̄ at points (..., K, D)."""
    scores = score(state.theta, state.layout, points)  # (..., K, n)
    count = coefficients.shape[-1]
    gradient = np.einsum("...k,...kn->...n", coefficients, scores) / count  # eq. 7
    outer = np.swapaxes(scores * coefficients[..., None], -1, -2) @ scores / count  # E[f̄ s sᵀ]
    curvature = coefficients.mean(axis=-1)[..., None, None] * -fisher(state.theta, state.layout)  # E[f̄ ∇² log p]
    return Estimate(gradient, curvature + outer)  # Proposition 1


def _coefficients(values: Array, baseline: Baseline, unit: Array | None) -> Array:
    """Return the factors of the scores (..., K): values minus the mean of the others, over the deviation of `unit`."""
    count = values.shape[-1]
    coefficients = values if baseline is None else values - values.min(axis=-1, keepdims=True)  # 0 for equal values
    if unit is not None:  # divided by the range first, so that the deviation neither overflows nor underflows
        lowest = unit.min(axis=-1, keepdims=True)  # (..., 1)
        spread = unit.max(axis=-1, keepdims=True) - lowest
        spread = np.where(spread > 0, spread, np.inf)
        deviation = ((unit - lowest) / spread).std(axis=-1, ddof=1, keepdims=True)
        coefficients = coefficients / spread / np.where(deviation > 0, deviation, 1.0)
    if baseline == "leave-one-out":
        centred = coefficients - coefficients.mean(axis=-1, keepdims=True)
        coefficients = centred * (count / (count - 1))  # f_k − mean of the others
    return coefficients


# --- Steps ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Settings:
    """Constants of a step; the defaults suit estimates scaled to unit deviation from a few points."""

    rate: float = 3.0
    """ρ in θ ← θ − ρ Δ⁻¹ ĝ: the length of a step where the trust region does not limit it."""
    floor: float = 0.1
    """η: smaller curvatures are replaced by η in Newton's step, which limits steps in flat directions."""
    ceiling: float = 10.0
    """L: larger curvatures are replaced by L in Newton's step, so that steep directions still move."""
    radius: float = 1.0
    """Trust region: the largest relative change of an entry of θ in one step; 1 lets an entry at most double."""
    theta_max: float = 100.0
    """Largest entry of θ, so that the distribution does not collapse to a point."""

    def __post_init__(self) -> None:
        if not self.rate > 0:
            raise InvalidInput(f"`rate` must be positive, but got {self.rate}.")
        if not 0 < self.floor <= self.ceiling:
            raise InvalidInput(f"`0 < floor <= ceiling` must hold, but got floor={self.floor}, ceiling={self.ceiling}.")
        if not self.radius > 0:
            raise InvalidInput(f"`radius` must be positive, but got {self.radius}.")
        if not self.theta_max >= 1:
            raise InvalidInput(f"`theta_max` must be at least 1, but got {self.theta_max}.")


Step: TypeAlias = Callable[[State, Estimate, Settings], State]


def gradient_step(state: State, at: Estimate, settings: Settings) -> State:
    """Gradient descent: Δ = I."""
    return _descend(state, at.gradient, settings)


def natural_step(state: State, at: Estimate, settings: Settings) -> State:
    """Natural gradient descent: Δ = F, the Fisher matrix of p_θ in closed form."""
    metric = fisher(state.theta, state.layout)
    direction: Array = np.linalg.solve(metric, at.gradient[..., None])[..., 0].astype(np.float64, copy=False)
    return _descend(state, direction, settings)


def newton_step(state: State, at: Estimate, settings: Settings) -> State:
    """Newton: Δ = Q diag(clip(|λ|, η, L)) Qᵀ from ∇²J = Q diag(λ) Qᵀ; positive definite, so the step descends."""
    eigenvalues, vectors = np.linalg.eigh((at.hessian + np.swapaxes(at.hessian, -1, -2)) / 2)
    curvature = np.clip(np.abs(eigenvalues), settings.floor, settings.ceiling)
    along = np.swapaxes(vectors, -1, -2) @ at.gradient[..., None] / curvature[..., None]
    return _descend(state, (vectors @ along)[..., 0], settings)


STEPS: dict[str, Step] = {"newton": newton_step, "natural": natural_step, "gradient": gradient_step}


def _descend(state: State, direction: Array, settings: Settings) -> State:
    """Return θ − ρ Δ⁻¹ ĝ (paper, eq. 8, with the sign of eq. 9), inside the trust region and [1, θ_max]."""
    change = -settings.rate * direction
    relative = np.abs(change / state.theta).max(axis=-1, keepdims=True)
    change = change / np.maximum(1.0, relative / settings.radius)
    return State(state.layout, np.clip(state.theta + change, 1.0, settings.theta_max))


def advance(
    state: State,
    points: ArrayLike,
    values: ArrayLike,
    *,
    step: str,
    settings: Settings,
    control: Control | None = None,
) -> State:
    """Return the state after one generation of points (..., K, D) drawn from it, with values (..., K).

    θ does not change where there are fewer than 2 values, or where all values are equal.
    """
    if step not in STEPS:
        raise unknown_name("step", step, STEPS)
    u, f = _checked(state, points, values, control)
    if f.shape[-1] < 2:
        return state
    return STEPS[step](state, _estimate(state, u, f, "leave-one-out", True, control), settings)
