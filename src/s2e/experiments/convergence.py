"""The paper's convergence claims, checked numerically: Proposition 1, Newton's rate, errors of finite K, Theorem 1.

**Exact expectations.** A monomial k(x) = Π α_i^{p_i} Π β_j^{q_j} (1−β_j)^{r_j} times the density p_θ is M(θ) · p_{θ+k},
where the exponents (p, q, r) are laid out as θ is and M(θ) = e^{A(θ+k) − A(θ)} with A the logarithm of p's normaliser.
So for every polynomial f, J(θ) = E_θ[f] is a sum of such M, and the expectations in ∇J and in Proposition 1 have a
closed form: E_θ[k s] = M · E_{θ+k}[s] = M d with d = ∇A(θ+k) − ∇A(θ), and E_θ[k s sᵀ] = M (F(θ+k) + d dᵀ).

**Assumption 2 cannot hold here.** It requires J to be coercive, J(θ) → ∞ as ‖θ‖ → ∞; but inf f ≤ E_θ[f] ≤ sup f, and a
validation error is bounded, hence so is J. The infimum over all Betas is a point mass, reached only as θ → ∞. The
purpose of the assumption, a bounded sequence with a limit point, is achieved instead by keeping θ in [1, θ_max]; but a
limit point on that boundary need not have a small gradient. The examples below have an interior minimum only because
some entries of θ are held fixed.

**Theorem 1 needs another condition.** Its two conditions, 2 − Lη + η² ≥ 0 and 2η² + Lη − 2 ≥ 0, do not suffice:
J(θ) = θ² (so L = 2) with Δ = η = 1 and e = 0 meets them and every assumption, and θ ← θ − Δ⁻¹∇J = −θ alternates between
±θ with |∇J| = 2|θ| (`counterexample`). The mistake is in Proposition 2, where (2 − Lη)/(2η) = 1/η − L/2 should be
η − L/2: with γ = θ₊ − θ, eq. 9 reads ∇J = e − Δγ, and L-smoothness gives

    J − J₊ ≥ −∇Jᵀγ − L/2 ‖γ‖² = γᵀΔγ − eᵀγ − L/2 ‖γ‖² ≥ (η − L/2) ‖γ‖² − ‖e‖ ‖γ‖.

If 2η > L, a J that is bounded below forces lim inf ‖γ‖ ≤ ε̄/(η − L/2), and ‖∇J‖ ≤ ‖e‖ + L‖γ‖ proves the theorem's (i)
with c₁ = (2η + L)/(2η − L), coercive or not. If the Hessians between θ and θ₊ also have eigenvalues in [η, L], with
mean Ā, ∇J₊ = ∇J + Āγ = (I − ĀΔ⁻¹)∇J + ĀΔ⁻¹e. There ‖ĀΔ⁻¹‖ ≤ L/η and
‖I − ĀΔ⁻¹‖ ≤ ‖Δ − Ā‖/η ≤ (L − η)/η, so

    lim sup ‖∇J‖ ≤ (L/η) / (1 − (L − η)/η) · ε̄ = L/(2η − L) · ε̄,

a bound for the whole tail of the sequence, attained by Ā = L, Δ = η and errors always in the worst direction
(`bound`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import digamma, gammaln

from s2e.samplers.relaxation import STEPS, Array, Estimate, Layout, Settings, State, estimate, fisher, sample, weights

# --- Exact expectations -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Polynomial:
    """f(x) = Σ_m c_m Π x^{k_m}: coefficients c (M,) and exponents k (M, n) of α, β and 1−β, laid out as θ is."""

    layout: Layout
    coefficients: Array
    exponents: Array

    def __call__(self, points: Array) -> Array:
        """Values (...,) at points (..., D)."""
        betas = points[..., self.layout.simplex :]
        x = np.concatenate([weights(points, self.layout), betas, 1.0 - betas], axis=-1)
        return np.asarray(np.prod(x[..., None, :] ** self.exponents, axis=-1) @ self.coefficients)

    def scaled(self, factor: float) -> Polynomial:
        """Return the polynomial multiplied by a number."""
        return Polynomial(self.layout, self.coefficients * factor, self.exponents)


def quadratic(targets: Sequence[float], coupling: float) -> Polynomial:
    """f(x) = (x₁ − c₁)² + (x₂ − c₂)² + κ x₁ x₂ over two boxed coordinates."""
    one, two = targets
    coefficients = [one**2 + two**2, -2 * one, 1.0, -2 * two, 1.0, coupling]
    exponents = [(0, 0), (1, 0), (2, 0), (0, 1), (0, 2), (1, 1)]
    return Polynomial(
        Layout(0, 2), np.array(coefficients), np.pad(np.array(exponents, dtype=np.float64), ((0, 0), (0, 2)))
    )


def expectation(f: Polynomial, theta: Array) -> Array:
    """J(θ) = E_θ[f] (...,), exactly, at θ (..., n)."""
    return np.asarray(_moments(f, theta) @ f.coefficients)


def derivatives(f: Polynomial, theta: Array) -> Estimate:
    """∇J = E[f s] and ∇²J = E[f ∇² log p] + E[f s sᵀ] (Proposition 1), exactly, at one θ (n,)."""
    tilted = theta + f.exponents  # (M, n): the parameters of k(x) · p_θ(x)
    share = f.coefficients * _moments(f, theta)  # (M,)
    means = _mean_logs(tilted, f.layout) - _mean_logs(theta, f.layout)  # (M, n): E_{θ+k}[s]
    outer = fisher(tilted, f.layout) + means[:, :, None] * means[:, None, :]  # (M, n, n): E_{θ+k}[s sᵀ]
    hessian = share.sum() * -fisher(theta, f.layout) + np.tensordot(share, outer, axes=1)
    return Estimate(share @ means, hessian)


def _moments(f: Polynomial, theta: Array) -> Array:
    """E_θ of every monomial, (..., M)."""
    return np.exp(
        _log_normaliser(theta[..., None, :] + f.exponents, f.layout) - _log_normaliser(theta, f.layout)[..., None]
    )


def _log_normaliser(theta: Array, layout: Layout) -> Array:
    alphas, firsts, seconds = layout.split(theta)
    dirichlet = gammaln(alphas.sum(axis=-1)) if layout.simplex else 0.0
    return np.asarray(gammaln(theta).sum(axis=-1) - dirichlet - gammaln(firsts + seconds).sum(axis=-1))


def _mean_logs(theta: Array, layout: Layout) -> Array:
    """∇A(θ): the means of ln α, ln β and ln(1−β)."""
    alphas, firsts, seconds = layout.split(theta)
    totals = [np.broadcast_to(alphas.sum(axis=-1, keepdims=True), alphas.shape), firsts + seconds, firsts + seconds]
    return np.asarray(digamma(theta) - digamma(np.concatenate(totals, axis=-1)))


# --- Proposition 1 against finite differences -------------------------------------------------------------------------


@dataclass(frozen=True)
class Agreement:
    """Largest difference between Proposition 1 and finite differences of J, relative to the largest entry."""

    gradient: float
    hessian: float


def proposition_1(seed: int) -> Agreement:
    """A random polynomial over three weights and two boxed coordinates at a random θ."""
    generator = np.random.default_rng(seed)
    layout = Layout(3, 2)
    exponents = generator.integers(0, 3, (12, layout.size)) * (generator.random((12, layout.size)) < 0.4)
    f = Polynomial(layout, generator.normal(size=12), exponents.astype(np.float64))
    theta = generator.uniform(1.5, 4.0, layout.size)
    exact = derivatives(f, theta)
    gradient, hessian = _finite_differences(f, theta)
    return Agreement(
        gradient=float(np.abs(exact.gradient - gradient).max() / np.abs(gradient).max()),
        hessian=float(np.abs(exact.hessian - hessian).max() / np.abs(hessian).max()),
    )


def _finite_differences(f: Polynomial, theta: Array, width: float = 0.02) -> tuple[Array, Array]:
    """Central differences of J at two widths, extrapolated to an error of fourth order in the width."""

    def at(h: float) -> tuple[Array, Array]:
        steps = h * np.eye(len(theta))
        one, other = steps[:, None, :], steps[None, :, :]  # (n, 1, n), (1, n, n)
        gradient = (expectation(f, theta + steps) - expectation(f, theta - steps)) / (2 * h)
        along = expectation(f, theta + one + other) + expectation(f, theta - one - other)
        across = expectation(f, theta + one - other) + expectation(f, theta - one + other)
        return gradient, (along - across) / (4 * h**2)

    wide, narrow = at(width), at(width / 2)
    return (4 * narrow[0] - wide[0]) / 3, (4 * narrow[1] - wide[1]) / 3


# --- Rates with exact expectations ------------------------------------------------------------------------------------

EXACT = Settings(rate=1.0, floor=1e-9, ceiling=1e9, radius=math.inf, theta_max=1e9)
"""Steps as in the theory: no trust region, and bounds that are never active in these examples."""

FREE = (0, 1)
"""The examples move a₁ and a₂ and hold b₁ and b₂: J then has a strict interior minimum, unlike over all θ."""


def restricted(at: Estimate) -> Estimate:
    """Return derivatives with respect to `FREE`; held entries get zero slope and unit curvature: no step moves them."""
    free = list(FREE)
    gradient, hessian = np.zeros_like(at.gradient), np.eye(len(at.gradient))
    gradient[free] = at.gradient[free]
    hessian[np.ix_(free, free)] = at.hessian[np.ix_(free, free)]
    return Estimate(gradient, hessian)


@dataclass(frozen=True)
class Rates:
    """Distances ‖θ^m − θ*‖ to the minimum, and the ratio of each to the previous one."""

    newton_errors: list[float]
    newton_ratios: list[float]
    gradient_errors: list[float]
    gradient_ratios: list[float]
    predicted_gradient_ratio: float
    """1 − λ_min/λ_max of the Hessian at the minimum: the ratio of gradient descent with ρ = 1/λ_max."""


def rates() -> Rates:
    """Newton and gradient descent on f = (x₁ − ½)² + (x₂ − ⅗)² + x₁x₂/5 with x₁ ~ Beta(a₁, 2), x₂ ~ Beta(a₂, 3)."""
    f = quadratic((0.5, 0.6), 0.2)
    start = np.array([1.4, 3.6, 2.0, 3.0])
    best = _path(f, start, "newton", EXACT, 30)[-1]
    curvatures = np.linalg.eigvalsh(derivatives(f, best).hessian[np.ix_(FREE, FREE)])
    descent = Settings(rate=1 / float(curvatures[-1]), radius=math.inf, theta_max=1e9)
    newton = _distances(_path(f, start, "newton", EXACT, 30), best)
    gradient = _distances(_path(f, start, "gradient", descent, 150), best)
    return Rates(
        newton_errors=newton,
        newton_ratios=_ratios(newton),
        gradient_errors=gradient,
        gradient_ratios=_ratios(gradient),
        predicted_gradient_ratio=float(1 - curvatures[0] / curvatures[-1]),
    )


def _path(f: Polynomial, start: Array, step: str, settings: Settings, count: int) -> list[Array]:
    state = State(f.layout, start)
    path = [start]
    for _ in range(count):
        state = STEPS[step](state, restricted(derivatives(f, state.theta)), settings)
        path.append(state.theta)
    return path


def _distances(path: list[Array], best: Array) -> list[float]:
    """Distances to the minimum, down to rounding."""
    errors = [float(np.linalg.norm(theta - best)) for theta in path]
    return [error for error in errors if error > 1e-11]


def _ratios(errors: list[float]) -> list[float]:
    return [later / earlier for earlier, later in pairwise(errors)]


# --- Errors of the estimates ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Errors:
    """Root mean square of ‖ĝ − ∇J‖ and ‖Ĥ − ∇²J‖ over repeats for each K, and the slope of its logarithm in ln K."""

    counts: list[int]
    gradient: list[float]
    hessian: list[float]
    gradient_slope: float
    hessian_slope: float


def estimation_errors(seed: int, counts: Sequence[int] = (8, 32, 128, 512, 2048), repeats: int = 300) -> Errors:
    """ε̄ of Assumption 3 as K grows: the leave-one-out estimates of a quadratic's derivatives."""
    generator = np.random.default_rng(seed)
    f = quadratic((0.5, 0.6), 0.2)
    theta = np.array([1.8, 4.4, 2.0, 3.0])
    exact = derivatives(f, theta)
    state = State(f.layout, np.broadcast_to(theta, (repeats, len(theta))))
    gradient, hessian = [], []
    for count in counts:
        points = sample(state.theta, f.layout, count, generator)  # (repeats, K, D)
        found = estimate(state, points, f(points), scaled=False)
        gradient.append(float(np.sqrt(((found.gradient - exact.gradient) ** 2).sum(axis=-1).mean())))
        hessian.append(float(np.sqrt(((found.hessian - exact.hessian) ** 2).sum(axis=(-1, -2)).mean())))
    return Errors(
        counts=list(counts),
        gradient=gradient,
        hessian=hessian,
        gradient_slope=float(np.polyfit(np.log(counts), np.log(gradient), 1)[0]),
        hessian_slope=float(np.polyfit(np.log(counts), np.log(hessian), 1)[0]),
    )


# --- Theorem 1 --------------------------------------------------------------------------------------------------------


def conditions(eta: float, smoothness: float) -> tuple[float, float, float]:
    """Theorem 1's 2 − Lη + η² and 2η² + Lη − 2, and 2η − L, which its proof needs: the first two ≥ 0, the last > 0."""
    return 2 - smoothness * eta + eta**2, 2 * eta**2 + smoothness * eta - 2, 2 * eta - smoothness


@dataclass(frozen=True)
class Bound:
    """Largest ‖∇J‖ over the tail of a sequence with errors of norm ε̄, for each ε̄, and c₁ = L/(2η − L)."""

    eta: float
    smoothness: float
    constant: float
    epsilons: list[float]
    random: list[float]
    """Random metrics, errors in random directions."""
    adversarial: list[float]
    """Random metrics, every error in the direction that makes the next gradient largest to first order."""
    worst: list[float]
    """The smallest metric allowed, Δ = ηI, with adversarial errors: attains the bound."""


def bound(seed: int, epsilons: Sequence[float] = (0.0, 0.01, 0.1, 1.0)) -> Bound:
    """Eq. 9 on J(θ) = ½ θᵀAθ in five dimensions, A and every Δ with eigenvalues in [η, L] = [0.9, 1.2]."""
    eta, smoothness, size = 0.9, 1.2, 5
    generator = np.random.default_rng(seed)
    hessian = _matrix(np.linspace(eta, smoothness, size), generator)

    def tail(epsilon: float, *, adversarial: bool, worst: bool) -> float:
        slope, norms = hessian @ generator.normal(size=size), []
        for _ in range(400):
            metric = eta * np.eye(size) if worst else _matrix(generator.uniform(eta, smoothness, size), generator)
            gain = np.linalg.solve(metric, hessian).T  # AΔ⁻¹, both symmetric
            push = gain.T @ (slope - gain @ slope) if adversarial else generator.normal(size=size)
            error = epsilon * push / max(float(np.linalg.norm(push)), np.finfo(np.float64).tiny)
            slope = slope - gain @ (slope - error)  # ∇J₊ = (I − AΔ⁻¹)∇J + AΔ⁻¹e
            norms.append(float(np.linalg.norm(slope)))
        return max(norms[200:])

    return Bound(
        eta=eta,
        smoothness=smoothness,
        constant=smoothness / (2 * eta - smoothness),
        epsilons=list(epsilons),
        random=[tail(epsilon, adversarial=False, worst=False) for epsilon in epsilons],
        adversarial=[tail(epsilon, adversarial=True, worst=False) for epsilon in epsilons],
        worst=[tail(epsilon, adversarial=True, worst=True) for epsilon in epsilons],
    )


def _matrix(eigenvalues: Array, generator: np.random.Generator) -> Array:
    vectors = np.linalg.qr(generator.normal(size=(len(eigenvalues), len(eigenvalues))))[0]
    return np.asarray((vectors * eigenvalues) @ vectors.T)


@dataclass(frozen=True)
class RelaxedBound:
    """The same for Newton steps on a relaxed objective; η and L bound the Hessians around the visited points."""

    eta: list[float]
    smoothness: list[float]
    constants: list[float]
    epsilons: list[float]
    gradient_norms: list[float]


def relaxed_bound(seed: int, epsilons: Sequence[float] = (0.003, 0.01, 0.03)) -> RelaxedBound:
    """f = (x₁ − ⅗)² + (x₂ − ⅗)² + x₁x₂/10 with x_j ~ Beta(a_j, 2), scaled so that ∇²J at the minimum is about I."""
    generator = np.random.default_rng(seed)
    raw = quadratic((0.6, 0.6), 0.1)
    best = _path(raw, np.array([3.0, 3.0, 2.0, 2.0]), "newton", EXACT, 30)[-1]
    f = raw.scaled(2 / float(np.trace(derivatives(raw, best).hessian[np.ix_(FREE, FREE)])))
    ranges, norms = [], []
    for epsilon in epsilons:
        state, visited = State(f.layout, best), []
        for _ in range(200):
            at = restricted(derivatives(f, state.theta))
            visited.append((state.theta[list(FREE)], float(np.linalg.norm(at.gradient))))
            error = restricted(Estimate(generator.normal(size=4), at.hessian)).gradient
            pushed = Estimate(at.gradient - epsilon * error / np.linalg.norm(error), at.hessian)
            state = STEPS["newton"](state, pushed, EXACT)  # eq. 9 with Δ = ∇²J
        norms.append(max(norm for _, norm in visited[100:]))
        ranges.append(_curvature_range(f, best, np.array([where for where, _ in visited])))
    return RelaxedBound(
        eta=[eta for eta, _ in ranges],
        smoothness=[smoothness for _, smoothness in ranges],
        constants=[smoothness / (2 * eta - smoothness) for eta, smoothness in ranges],
        epsilons=list(epsilons),
        gradient_norms=norms,
    )


def _curvature_range(f: Polynomial, held: Array, visited: Array) -> tuple[float, float]:
    """Smallest and largest eigenvalue of the Hessian over a grid in the box around the visited (a₁, a₂), (V, 2)."""
    axes = np.linspace(visited.min(axis=0), visited.max(axis=0), 5)  # (5, 2)
    grid = np.stack(np.meshgrid(axes[:, 0], axes[:, 1]), axis=-1).reshape(-1, 2)  # (25, 2)
    curvatures = [
        np.linalg.eigvalsh(derivatives(f, np.array([*where, *held[2:]])).hessian[np.ix_(FREE, FREE)]) for where in grid
    ]
    return float(np.min(curvatures)), float(np.max(curvatures))


@dataclass(frozen=True)
class Counterexample:
    """A sequence without errors that meets Theorem 1's conditions as printed, and whose gradient stays constant."""

    eta: float
    smoothness: float
    conditions: tuple[float, float, float]
    gradient_norms: list[float]


def counterexample(count: int = 20) -> Counterexample:
    """J(θ) = θ², so L = 2, with Δ = η = 1 and e = 0: θ alternates between 1 and −1."""
    eta, smoothness = 1.0, 2.0
    theta, norms = 1.0, []
    for _ in range(count):
        norms.append(abs(smoothness * theta))
        theta = theta - (smoothness * theta) / eta  # eq. 9
    return Counterexample(eta, smoothness, conditions(eta, smoothness), norms)


def convergence(seed: int, repeats: int = 300) -> dict[str, Any]:
    """Return all checks as one JSON-serialisable dictionary; errors of estimates are means over `repeats`."""
    return {
        "seed": seed,
        "proposition_1": asdict(proposition_1(seed)),
        "rates": asdict(rates()),
        "estimation_errors": asdict(estimation_errors(seed, repeats=repeats)),
        "bound": asdict(bound(seed)),
        "relaxed_bound": asdict(relaxed_bound(seed)),
        "counterexample": asdict(counterexample()),
    }
