"""The paper's convergence claims hold, or fail, as the docstring of the module states."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial

import numpy as np
import pytest
from numpy.polynomial.legendre import leggauss
from scipy import stats

from s2e.experiments import convergence as module
from s2e.experiments.convergence import (
    Polynomial,
    bound,
    conditions,
    convergence,
    counterexample,
    derivatives,
    estimation_errors,
    expectation,
    proposition_1,
    quadratic,
    rates,
    relaxed_bound,
)
from s2e.samplers.relaxation import Layout, fisher, sample, score


def test_expectations_over_a_box_equal_quadrature() -> None:
    layout, theta = Layout(0, 1), np.array([3.0, 4.0])
    f = Polynomial(layout, np.array([0.7, -2.0, 1.5]), np.array([[0.0, 0.0], [1.0, 2.0], [3.0, 0.0]]))
    nodes, node_weights = leggauss(200)
    x = (nodes[:, None] + 1) / 2  # (200, 1)
    mass = node_weights / 2 * stats.beta(3.0, 4.0).pdf(x[:, 0]) * f(x)
    scores = score(theta, layout, x)
    exact = derivatives(f, theta)
    np.testing.assert_allclose(expectation(f, theta), mass.sum(), rtol=1e-10)
    np.testing.assert_allclose(exact.gradient, mass @ scores, rtol=1e-8)
    hessian = np.einsum("k,ki,kj->ij", mass, scores, scores) - mass.sum() * fisher(theta, layout)
    np.testing.assert_allclose(exact.hessian, hessian, rtol=1e-8)


def test_expectations_over_a_simplex_equal_monte_carlo() -> None:
    layout, theta = Layout(3, 1), np.array([1.5, 2.0, 3.0, 2.0, 4.0])
    f = Polynomial(layout, np.array([1.0, 2.0]), np.array([[1.0, 2.0, 0.0, 0.0, 1.0], [0.0, 0.0, 1.0, 2.0, 0.0]]))
    values = f(sample(theta, layout, 100_000, np.random.default_rng(0)))
    assert abs(values.mean() - expectation(f, theta)) < 5 * values.std() / np.sqrt(len(values))


def test_proposition_1_equals_finite_differences() -> None:
    for seed in range(5):
        found = proposition_1(seed)
        assert found.gradient < 1e-7
        assert found.hessian < 1e-6


def test_newton_is_superlinear_and_gradient_descent_linear() -> None:
    found = rates()
    assert found.newton_errors[-1] < 1e-6
    assert all(later < earlier for earlier, later in zip(found.newton_ratios, found.newton_ratios[1:], strict=False))
    assert found.newton_ratios[-1] < 1e-3
    assert 0.5 < found.predicted_gradient_ratio < 1
    np.testing.assert_allclose(found.gradient_ratios[40:90], found.predicted_gradient_ratio, atol=1e-3)


def test_estimation_errors_fall_with_the_square_root_of_the_count() -> None:
    found = estimation_errors(0)
    assert abs(found.gradient_slope + 0.5) < 0.05
    assert abs(found.hessian_slope + 0.5) < 0.05


def test_gradient_stays_within_the_bound_and_the_worst_case_attains_it() -> None:
    found = bound(0)
    assert min(conditions(found.eta, found.smoothness)) > 0
    limit = found.constant * np.array(found.epsilons)
    for norms in (found.random, found.adversarial, found.worst):
        assert (np.array(norms) <= limit * (1 + 1e-9) + 1e-12).all()
    np.testing.assert_allclose(found.worst, limit, rtol=1e-6, atol=1e-12)
    assert np.mean(found.adversarial) > np.mean(found.random)


def test_newton_steps_on_a_relaxed_objective_stay_within_the_bound() -> None:
    found = relaxed_bound(0)
    for eta, smoothness in zip(found.eta, found.smoothness, strict=True):
        assert min(conditions(eta, smoothness)) > 0
    norms, epsilons = np.array(found.gradient_norms), np.array(found.epsilons)
    assert (norms <= np.array(found.constants) * epsilons).all()
    assert (norms > 0.5 * epsilons).all()  # the bound is not vacuous


def test_theorem_1_as_printed_has_a_counterexample() -> None:
    found = counterexample()
    assert min(found.conditions[:2]) >= 0  # the paper's conditions
    assert found.conditions[2] <= 0  # the condition its proof needs
    np.testing.assert_array_equal(found.gradient_norms, 2.0)


def test_a_bounded_objective_is_not_coercive() -> None:
    f = quadratic((0.5, 0.6), 0.2)
    far = 10.0 ** np.arange(1, 9)[:, None] * np.array([0.25, 0.25, 0.75, 0.75])
    values = expectation(f, far)
    assert values.max() < 1
    spread = np.linalg.norm([derivatives(f, theta).gradient for theta in far], axis=1)
    assert (np.diff(spread) < 0).all()  # the gradient vanishes although no minimum is near


def test_all_checks_are_json_and_repeat_with_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "estimation_errors", partial(estimation_errors, repeats=5))
    checks = json.loads(json.dumps(convergence(3), allow_nan=False))
    assert checks["proposition_1"] == asdict(proposition_1(3))
    assert checks["bound"] == asdict(bound(3))
    assert set(checks) == {
        "seed",
        "proposition_1",
        "rates",
        "estimation_errors",
        "bound",
        "relaxed_bound",
        "counterexample",
    }
