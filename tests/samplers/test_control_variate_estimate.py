"""A model as a control variate in the estimates: no bias however wrong it is, less variance when it is right."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from s2e.errors import InvalidInput
from s2e.samplers.relaxation import (
    STEPS,
    Array,
    Control,
    Layout,
    Settings,
    State,
    advance,
    estimate,
    fisher,
    sample,
    score,
    weights,
)

LAYOUT, K = Layout(3, 2), 6
THETA = np.array([1.5, 2.0, 3.0, 2.0, 1.0, 3.0, 2.5])


def measured(points: Array) -> Array:
    """f = α_0 β_0 + β_1, whose expectation has a closed form."""
    return np.asarray(weights(points, LAYOUT)[..., 0] * points[..., 3] + points[..., 4])


def wrong(points: Array) -> Array:
    """A model that has understood nothing, and errs by more than the values differ."""
    return np.asarray(5.0 - 3.0 * points[..., 4] ** 2 + np.sin(9 * points[..., 3]) + weights(points, LAYOUT)[..., 2])


def exact_derivatives() -> tuple[Array, Array]:
    """∇J and ∇²J of J = E[f] = θ_0/Σ · a_0/(a_0+b_0) + a_1/(a_1+b_1), by autograd."""

    def expected(theta: torch.Tensor) -> torch.Tensor:
        alpha, a, b = theta[:3], theta[3:5], theta[5:]
        return alpha[0] / alpha.sum() * a[0] / (a[0] + b[0]) + a[1] / (a[1] + b[1])

    at = torch.from_numpy(THETA)
    gradient = torch.autograd.functional.jacobian(expected, at)
    return gradient.numpy(), torch.autograd.functional.hessian(expected, at).numpy()


def repeated(
    repeats: int, count: int, draws: int, model: Callable[[Array], Array], seed: int = 0
) -> tuple[State, Array, Control]:
    """Independent generations of `count` points, each with `draws` virtual ones of its own."""
    generator = np.random.default_rng(seed)
    state = State(LAYOUT, np.broadcast_to(THETA, (repeats, LAYOUT.size)))
    points = sample(state.theta, LAYOUT, count, generator)
    virtual = sample(state.theta, LAYOUT, draws, generator)
    return state, points, Control(model(points), virtual, model(virtual))


def assert_mean(draws: Array, expected: Array) -> None:
    """The mean over the first axis lies within five standard errors, measured from the draws, of what is expected."""
    error = draws.std(axis=0, ddof=1) / math.sqrt(len(draws))
    assert (np.abs(draws.mean(axis=0) - expected) <= 5 * error + 1e-12).all()


@pytest.mark.parametrize("model", [wrong, measured], ids=["wrong", "right"])
@pytest.mark.parametrize("baseline", [None, "leave-one-out"])
@pytest.mark.parametrize(("count", "draws"), [(2, 9), (6, 2)])
def test_estimates_are_unbiased_for_any_model(
    model: Callable[[Array], Array], baseline: str | None, count: int, draws: int
) -> None:
    state, points, control = repeated(40_000, count, draws, model)
    found = estimate(state, points, measured(points), baseline=baseline, scaled=False, control=control)  # type: ignore[arg-type]
    gradient, hessian = exact_derivatives()
    assert_mean(found.gradient, gradient)
    assert_mean(found.hessian, hessian)


def test_estimates_equal_sums_written_out() -> None:
    state, points, control = State(LAYOUT, THETA), *repeated(1, K, 9, wrong)[1:]
    points, values = points[0], measured(points[0])
    control = Control(control.at_points[0], control.draws[0], control.at_draws[0])
    gradient, hessian = np.zeros(LAYOUT.size), np.zeros((LAYOUT.size, LAYOUT.size))
    for some, said in ((control.draws, control.at_draws), (points, values - control.at_points)):
        for one in range(len(some)):
            others = [said[other] for other in range(len(some)) if other != one]
            share = (said[one] - sum(others) / len(others)) / len(some) / values.std(ddof=1)
            s = score(THETA, LAYOUT, some[one : one + 1])[0]
            gradient += share * s
            hessian += share * (np.outer(s, s) - fisher(THETA, LAYOUT))
    found = estimate(state, points, values, control=control)
    np.testing.assert_allclose(found.gradient, gradient, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.hessian, hessian, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("constant", [0.0, -7.0])
def test_a_constant_model_is_no_model(constant: float) -> None:
    state, points, control = repeated(20, K, 50, lambda some: np.full(some.shape[:-1], constant))
    plain, found = (estimate(state, points, measured(points), control=given) for given in (None, control))
    np.testing.assert_allclose(found.gradient, plain.gradient, atol=0.0 if constant == 0 else 1e-12)
    np.testing.assert_allclose(found.hessian, plain.hessian, atol=0.0 if constant == 0 else 1e-12)


def test_a_perfect_model_leaves_the_virtual_draws_alone_to_speak() -> None:
    state, points, control = repeated(20, K, 500, measured)
    found = estimate(state, points, measured(points), scaled=False, control=control)
    virtual = estimate(state, control.draws, control.at_draws, scaled=False)
    np.testing.assert_array_equal(found.gradient, virtual.gradient)
    np.testing.assert_array_equal(found.hessian, virtual.hessian)


def test_a_model_that_explains_nine_tenths_leaves_a_hundredth_of_the_variance() -> None:
    repeats = 4_000
    state, points, own_draws = repeated(repeats, K, 600, lambda some: 0.9 * measured(some))
    values = measured(points)
    plain = estimate(state, points, values, scaled=False)
    shared = Control(own_draws.at_points, own_draws.draws[0], own_draws.at_draws[0])
    found = estimate(
        state, points, values, scaled=False, control=shared
    )  # the same draws for all: they add no variance
    np.testing.assert_allclose(found.gradient.var(axis=0), 0.01 * plain.gradient.var(axis=0), rtol=1e-6)
    np.testing.assert_allclose(found.hessian.var(axis=0), 0.01 * plain.hessian.var(axis=0), rtol=1e-6)
    found = estimate(state, points, values, scaled=False, control=own_draws)  # these add about 0.81·K/600
    ratio = found.gradient.var(axis=0) / plain.gradient.var(axis=0)
    np.testing.assert_allclose(ratio, 0.01 + 0.81 * K / 600, rtol=0.25)


def test_both_parts_are_scaled_by_the_deviation_of_the_values() -> None:
    state, points, control = repeated(7, K, 50, wrong)
    values = measured(points)
    raw, scaled = (estimate(state, points, values, scaled=scaled, control=control) for scaled in (False, True))
    deviation = values.std(axis=-1, ddof=1)
    np.testing.assert_allclose(scaled.gradient * deviation[:, None], raw.gradient, rtol=1e-9)
    np.testing.assert_allclose(scaled.hessian * deviation[:, None, None], raw.hessian, rtol=1e-9, atol=1e-12)
    for factor in (1e-250, 3.0, 1e300):
        rescaled = Control(factor * control.at_points, control.draws, factor * control.at_draws)
        other = estimate(state, points, factor * values, control=rescaled)
        np.testing.assert_allclose(other.gradient, scaled.gradient, rtol=1e-9)
        np.testing.assert_allclose(other.hessian, scaled.hessian, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", STEPS)
def test_a_batch_of_states_moves_as_each_of_them_alone(name: str) -> None:
    generator = np.random.default_rng(1)
    state = State(LAYOUT, generator.uniform(1, 4, (5, LAYOUT.size)))
    points, draws = (sample(state.theta, LAYOUT, count, generator) for count in (K, 40))
    values = measured(points)
    values[2] = 0.7
    for virtual in (draws, draws[0]):  # of their own, and one set for all
        control = Control(wrong(points), virtual, wrong(virtual))
        together = advance(state, points, values, step=name, settings=Settings(), control=control).theta
        for one in range(5):
            own = virtual[one] if virtual.ndim == 3 else virtual
            given = Control(wrong(points[one]), own, wrong(own))
            lone = State(LAYOUT, state.theta[one])
            alone = advance(lone, points[one], values[one], step=name, settings=Settings(), control=given).theta
            np.testing.assert_allclose(together[one], alone, rtol=1e-9)
        np.testing.assert_array_equal(together[2], state.theta[2])  # equal values say nothing, whatever the model says


@pytest.mark.parametrize("name", STEPS)
def test_values_that_say_nothing_leave_theta_alone_whatever_the_model_says(name: str) -> None:
    state, points, control = State(LAYOUT, THETA), *repeated(1, K, 40, wrong)[1:]
    for count, values in ((0, []), (1, [0.3]), (6, [0.1] * 6), (3, [1e300] * 3)):
        given = Control(control.at_points[0, :count], control.draws[0], control.at_draws[0])
        moved = advance(state, points[0, :count], values, step=name, settings=Settings(), control=given)
        np.testing.assert_array_equal(moved.theta, THETA)


def test_the_door_refuses_a_control_that_does_not_fit() -> None:
    state, draws = State(LAYOUT, THETA), sample(THETA, LAYOUT, 5, np.random.default_rng(0))
    for some, said in (
        (draws, np.ones(4)),
        (draws[:1], np.ones(1)),
        (draws[0], np.ones(())),
        (draws[None], np.ones(5)),
    ):
        with pytest.raises(InvalidInput, match="`draws` must have shape"):
            Control(np.ones(2), some, said)
    for at_points, at_draws in ((np.array([1.0, math.nan]), np.ones(5)), (np.ones(2), np.full(5, math.inf))):
        with pytest.raises(InvalidInput, match="finite"):
            Control(at_points, draws, at_draws)
    for control in (
        Control(np.ones(3), draws, np.ones(5)),
        Control(np.ones(2), draws[:, :4], np.ones(5)),
        Control(np.ones(2), draws[None], np.ones((1, 5))),
    ):
        with pytest.raises(InvalidInput, match="`control` must be for values of shape"):
            estimate(state, draws[:2], [1.0, 2.0], control=control)
        with pytest.raises(InvalidInput, match="`control` must be for values of shape"):
            advance(state, draws[:2], [1.0, 2.0], step="newton", settings=Settings(), control=control)
