"""The relaxation: densities against autograd and Monte Carlo, steps against hand-worked and degenerate cases."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy import stats

from s2e.errors import InvalidInput
from s2e.samplers.relaxation import (
    STEPS,
    Array,
    Estimate,
    Layout,
    Settings,
    State,
    advance,
    estimate,
    fisher,
    sample,
    score,
    transport,
    weights,
)

LAYOUTS = [Layout(4, 3), Layout(0, 2), Layout(3, 0)]
UNBOUNDED = Settings(rate=0.1, floor=1e-12, ceiling=1e12, radius=math.inf, theta_max=math.inf)


def some_theta(layout: Layout, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(1.0, 5.0, layout.size)


def log_density(theta: torch.Tensor, layout: Layout, point: Array) -> torch.Tensor:
    """log p_θ(x) from torch.distributions, with the weights computed from their definition."""
    alphas, firsts, seconds = torch.split(theta, [layout.simplex, layout.boxed, layout.boxed])
    total = torch.zeros((), dtype=torch.float64)
    if layout.simplex:
        gammas = -torch.log1p(-torch.from_numpy(point[: layout.simplex]))
        total = total + torch.distributions.Dirichlet(alphas, validate_args=False).log_prob(gammas / gammas.sum())
    if layout.boxed:
        betas = torch.from_numpy(point[layout.simplex :])
        total = total + torch.distributions.Beta(firsts, seconds).log_prob(betas).sum()
    return total


def assert_mean(draws: Array, expected: Array | float, deviations: float = 5.0) -> None:
    """The mean over the first axis is within this many standard errors of the expected value."""
    error = draws.std(axis=0, ddof=1) / math.sqrt(len(draws))
    assert (np.abs(draws.mean(axis=0) - expected) <= deviations * error + 1e-12).all()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_score_and_fisher_equal_autograd(layout: Layout) -> None:
    theta = some_theta(layout)
    points = sample(theta, layout, 5, np.random.default_rng(1))
    scores, minus_hessian = score(theta, layout, points), fisher(theta, layout)
    for point, row in zip(points, scores, strict=True):
        leaf = torch.from_numpy(theta).requires_grad_()
        (slope,) = torch.autograd.grad(log_density(leaf, layout, point), leaf)
        np.testing.assert_allclose(row, slope.numpy(), rtol=1e-10, atol=1e-11)
        curvature = torch.autograd.functional.hessian(
            lambda t, at=point: log_density(t, layout, at), torch.from_numpy(theta)
        )
        np.testing.assert_allclose(-minus_hessian, curvature.numpy(), rtol=1e-8, atol=1e-11)  # torch's ψ' has 9 digits


def test_mean_score_is_zero_and_its_covariance_is_fisher() -> None:
    layout = LAYOUTS[0]
    theta = some_theta(layout)
    scores = score(theta, layout, sample(theta, layout, 30_000, np.random.default_rng(2)))
    assert_mean(scores, 0.0)
    assert_mean(np.einsum("ki,kj->kij", scores, scores), fisher(theta, layout))  # E[∇² log p + s sᵀ] = 0


@pytest.mark.parametrize("large", [1.0, 100.0])  # 100: every draw is rescaled
def test_draws_are_dirichlet_and_beta(large: float) -> None:
    layout = Layout(3, 2)
    theta = some_theta(layout) * large
    points = sample(theta, layout, 20_000, np.random.default_rng(3))
    alphas, firsts, seconds = layout.split(theta)
    for i, (drawn, entry) in enumerate(zip(weights(points, layout).T, alphas, strict=True)):
        assert stats.kstest(drawn, stats.beta(entry, alphas.sum() - entry).cdf).pvalue > 1e-3, i
    for drawn, a, b in zip(points[:, 3:].T, firsts, seconds, strict=True):
        assert stats.kstest(drawn, stats.beta(a, b).cdf).pvalue > 1e-3
    exact = stats.dirichlet(alphas)
    centred = weights(points, layout) - exact.mean()
    assert_mean(np.einsum("ki,kj->kij", centred, centred), exact.cov())
    assert (points >= 0).all()
    assert (points < 1).all()


def test_theta_1_is_uniform_on_the_cube() -> None:
    layout = Layout(4, 2)
    points = sample(np.ones(layout.size), layout, 20_000, np.random.default_rng(4))
    for drawn in points.T:
        assert stats.kstest(drawn, "uniform").pvalue > 1e-3
    centred = points - 0.5
    assert_mean(np.einsum("ki,kj->kij", centred, centred), np.eye(6) / 12)


def test_transport_is_the_identity_at_theta_1() -> None:
    layout, noise = Layout(4, 16), np.random.default_rng(5).random((50, 20))
    np.testing.assert_allclose(transport(np.ones(layout.size), layout, noise), noise, rtol=1e-12, atol=1e-14)


def test_transport_and_sample_have_the_same_distribution() -> None:
    layout = Layout(3, 2)
    theta, generator = some_theta(layout), np.random.default_rng(6)
    transported = transport(theta, layout, generator.random((5_000, 5)))
    for one, other in zip(transported.T, sample(theta, layout, 5_000, generator).T, strict=True):
        assert stats.ks_2samp(one, other).pvalue > 1e-3


def test_weights_are_recovered_from_the_cube_for_any_gammas() -> None:
    layout, noise = Layout(4, 0), np.random.default_rng(7).random((200, 4))
    for entry in (1.0, 8.0, 30.0, 1e4):
        theta = np.full(4, entry)
        gammas = stats.gamma(theta).ppf(noise)
        recovered = weights(transport(theta, layout, noise), layout)
        np.testing.assert_allclose(recovered, gammas / gammas.sum(axis=1, keepdims=True), rtol=1e-8)


def test_points_are_below_1() -> None:
    layout = Layout(2, 2)
    theta = np.array([1e6, 1.0, 1e17, 1.0, 1.0, 1e17])
    points = sample(theta, layout, 1_000, np.random.default_rng(8))
    assert points.max() < 1
    assert transport(theta, layout, np.full(4, 1 - 2.0**-53)).max() < 1


def test_corners_have_weights_and_finite_scores() -> None:
    layout = Layout(3, 1)
    corners = np.array([[0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0], [1.0, 0.0, 0.0, 1.0]])
    np.testing.assert_allclose(weights(corners, layout), np.array([[1 / 3] * 3, [1 / 3] * 3, [1.0, 0.0, 0.0]]))
    assert np.isfinite(score(np.ones(layout.size), layout, corners)).all()


def hand_worked(a: float, b: float) -> tuple[Array, Array]:
    """Derivatives of J(a, b) = E[x] = a/(a+b) for x ~ Beta(a, b), by hand."""
    total = a + b
    gradient = np.array([b, -a]) / total**2
    return gradient, np.array([[-2 * b, a - b], [a - b, 2 * a]]) / total**3


@pytest.mark.parametrize(("baseline", "count"), [(None, 6), ("leave-one-out", 2)])
def test_estimates_are_unbiased(baseline: str | None, count: int) -> None:
    layout, theta = Layout(0, 1), np.array([2.0, 3.0])
    state = State(layout, np.broadcast_to(theta, (60_000, 2)))
    points = sample(state.theta, layout, count, np.random.default_rng(9))
    found = estimate(state, points, points[..., 0], baseline=baseline, scaled=False)  # type: ignore[arg-type]
    gradient, hessian = hand_worked(2.0, 3.0)
    assert_mean(found.gradient, gradient)
    assert_mean(found.hessian, hessian)


def test_baseline_removes_constants_and_reduces_variance() -> None:
    layout = Layout(3, 2)
    state = State(layout, np.broadcast_to(some_theta(layout), (2_000, layout.size)))
    points = sample(state.theta, layout, 6, np.random.default_rng(10))
    values = points[..., 3] + 5.0
    plain = estimate(state, points, values, baseline=None, scaled=False)
    found = estimate(state, points, values, scaled=False)
    shifted = estimate(state, points, values + 7.0, scaled=False)
    np.testing.assert_allclose(found.gradient, shifted.gradient, atol=1e-12)
    np.testing.assert_allclose(found.hessian, shifted.hessian, atol=1e-12)
    assert found.gradient.var(axis=0).max() < plain.gradient.var(axis=0).min()
    assert found.hessian.var(axis=0).sum() < plain.hessian.var(axis=0).sum()


def test_scaled_estimates_do_not_depend_on_the_unit_and_keep_newtons_direction() -> None:
    layout = Layout(0, 2)
    state = State(layout, some_theta(layout))
    points = sample(state.theta, layout, 50, np.random.default_rng(11))
    values = points[:, 0] ** 2 + points[:, 1]
    raw, scaled = estimate(state, points, values, scaled=False), estimate(state, points, values)
    np.testing.assert_allclose(scaled.gradient * values.std(ddof=1), raw.gradient, rtol=1e-9)
    for factor in (1e-250, 3.0, 1e300):
        other = estimate(state, points, factor * values)
        np.testing.assert_allclose(other.gradient, scaled.gradient, rtol=1e-9)
        np.testing.assert_allclose(other.hessian, scaled.hessian, rtol=1e-9)
    np.testing.assert_allclose(
        np.linalg.solve(scaled.hessian, scaled.gradient), np.linalg.solve(raw.hessian, raw.gradient), rtol=1e-8
    )


@pytest.mark.parametrize("scaled", [True, False])
def test_estimates_from_equal_values_are_zero(scaled: bool) -> None:
    layout = Layout(3, 2)
    state = State(layout, some_theta(layout))
    for count, value in ((6, 0.1), (7, 0.3), (3, 1e300)):
        points = sample(state.theta, layout, count, np.random.default_rng(21))
        found = estimate(state, points, [value] * count, scaled=scaled)
        assert not found.gradient.any()
        assert not found.hessian.any()


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_newton_with_fisher_is_natural_and_with_identity_is_gradient(sign: float) -> None:
    layout = Layout(4, 3)
    state = State(layout, some_theta(layout) + 1.0)
    slope = np.random.default_rng(12).normal(size=layout.size) * 0.05
    with_fisher = Estimate(slope, sign * fisher(state.theta, layout))  # the sign of a curvature does not matter
    with_identity = Estimate(slope, sign * np.eye(layout.size))
    np.testing.assert_allclose(
        STEPS["newton"](state, with_fisher, UNBOUNDED).theta, STEPS["natural"](state, with_fisher, UNBOUNDED).theta
    )
    np.testing.assert_allclose(
        STEPS["newton"](state, with_identity, UNBOUNDED).theta, STEPS["gradient"](state, with_identity, UNBOUNDED).theta
    )


def test_newton_minimises_a_quadratic_in_one_step() -> None:
    layout = Layout(0, 2)
    state, best = State(layout, np.full(4, 3.0)), np.array([1.5, 2.5, 3.5, 4.5])
    root = np.random.default_rng(13).normal(size=(4, 4))
    hessian = root @ root.T + np.eye(4)
    found = STEPS["newton"](
        state, Estimate(hessian @ (state.theta - best), hessian), dataclasses.replace(UNBOUNDED, rate=1.0)
    )
    np.testing.assert_allclose(found.theta, best)


@pytest.mark.parametrize("name", STEPS)
def test_steps_descend_within_the_trust_region_and_bounds(name: str) -> None:
    layout, generator = Layout(4, 3), np.random.default_rng(14)
    theta = generator.uniform(1.0, 9.0, (50, layout.size))
    root = generator.normal(size=(50, layout.size, layout.size))
    at = Estimate(generator.normal(size=(50, layout.size)) * 100, root + np.swapaxes(root, -1, -2))
    moved = STEPS[name](State(layout, theta), at, Settings(radius=0.01)).theta
    assert (np.abs(moved / theta - 1) <= 0.01 * (1 + 1e-9)).all()
    assert (np.einsum("rn,rn->r", moved - theta, at.gradient) < 0).all()
    bounded = STEPS[name](State(layout, theta), at, Settings(radius=1e9, theta_max=10.0)).theta
    assert bounded.min() >= 1
    assert bounded.max() <= 10


@pytest.mark.parametrize("name", STEPS)
def test_too_few_or_equal_values_do_not_change_theta(name: str) -> None:
    layout = Layout(4, 3)
    state = State(layout, some_theta(layout))
    points = sample(state.theta, layout, 6, np.random.default_rng(15))
    for count, values in ((0, []), (1, [0.3]), (6, [0.1] * 6), (3, [1e300] * 3), (3, [-0.0, 0.0, 0.0])):
        moved = advance(state, points[:count], values, step=name, settings=Settings())
        np.testing.assert_array_equal(moved.theta, state.theta)


def test_batch_of_states_equals_each_state_alone() -> None:
    layout = Layout(3, 2)
    state = State(layout, np.random.default_rng(16).uniform(1, 4, (5, layout.size)))
    points = sample(state.theta, layout, 6, np.random.default_rng(17))
    values = np.random.default_rng(18).normal(size=(5, 6))
    values[2] = 0.7
    for name in STEPS:
        together = advance(state, points, values, step=name, settings=Settings()).theta
        for one in range(5):
            alone = advance(
                State(layout, state.theta[one]), points[one], values[one], step=name, settings=Settings()
            ).theta
            np.testing.assert_allclose(together[one], alone, rtol=1e-9)


@pytest.mark.parametrize(("name", "curved"), [*((name, True) for name in STEPS), ("newton", False)])
def test_ten_generations_of_six_lower_the_expected_value(name: str, curved: bool) -> None:
    layout, repeats, generator = Layout(4, 16), 60, np.random.default_rng(19)
    target = generator.random((repeats, 1, 20))

    def objective(points: Array) -> Array:
        x = np.concatenate([weights(points, layout), points[..., 4:]], axis=-1)
        return np.asarray(((x - target) ** 2 if curved else x * (target - 0.5)).sum(axis=-1))

    state = State(layout, np.ones((repeats, layout.size)))
    before = objective(sample(state.theta, layout, 200, generator)).mean(axis=1)
    for _ in range(10):
        points = sample(state.theta, layout, 6, generator)
        state = advance(state, points, objective(points), step=name, settings=Settings())
    after = objective(sample(state.theta, layout, 200, generator)).mean(axis=1)
    assert (after < before).mean() > 0.9
    assert stats.ttest_rel(after, before, alternative="less").pvalue < 1e-6


def test_invalid_arguments_are_refused() -> None:
    state = State.uniform(Layout(3, 1))
    points = sample(state.theta, state.layout, 2, np.random.default_rng(20))
    for values in ([1.0, math.nan], [math.inf, 1.0]):
        with pytest.raises(InvalidInput, match="finite"):
            advance(state, points, values, step="newton", settings=Settings())
    with pytest.raises(InvalidInput, match="shape"):
        advance(state, points[:, :3], [1.0, 2.0], step="newton", settings=Settings())
    with pytest.raises(InvalidInput, match="cube"):
        advance(state, points + 1, [1.0, 2.0], step="newton", settings=Settings())
    with pytest.raises(InvalidInput, match="at least 2"):
        estimate(state, points[:1], [1.0])
    with pytest.raises(InvalidInput, match=r"one of newton, natural, gradient|one of newton, gradient, natural"):
        advance(state, points, [1.0, 2.0], step="newtn", settings=Settings())
    for simplex, boxed in ((1, 2), (-1, 2), (0, 0), (2, -1)):
        with pytest.raises(InvalidInput, match="must be"):
            Layout(simplex, boxed)
    for theta in (np.ones(4), np.full(5, 0.5), np.full(5, math.nan)):
        with pytest.raises(InvalidInput, match="theta"):
            State(Layout(3, 1), theta)
    for wrong in ({"rate": 0.0}, {"floor": 2.0, "ceiling": 1.0}, {"radius": -1.0}, {"theta_max": 0.5}):
        with pytest.raises(InvalidInput, match="but got"):
            dataclasses.replace(Settings(), **wrong)
