"""Accelerated fixed points against solutions of linear equations, and against the plain iteration."""

from __future__ import annotations

import numpy as np
import pytest

from s2e.audit.fixed_points import fixed_point

SLOW = np.diag([0.99, 0.9, 0.5]) + 0.01 * np.triu(np.ones((3, 3)), 1)
SHIFT = np.array([1.0, -2.0, 3.0])
SOLUTION = np.linalg.solve(np.eye(3) - SLOW, SHIFT)


def counted(step):
    calls = []

    def counting(point):
        calls.append(point)
        return step(point)

    return counting, calls


def linear(point):
    return SLOW @ point + SHIFT, -float(np.linalg.norm(point - SOLUTION))


def test_solution_of_linear_equations_is_found_in_few_steps():
    step, calls = counted(linear)
    found = fixed_point(step, np.zeros(3), memory=5, iterations=50, tolerance=1e-9)
    np.testing.assert_allclose(found, SOLUTION, rtol=1e-6)
    assert len(calls) < 20


def test_without_memory_it_is_the_plain_iteration():
    found = fixed_point(linear, np.zeros(3), memory=0, iterations=4, tolerance=0.0)
    point = np.zeros(3)
    for _ in range(4):
        point = SLOW @ point + SHIFT
    np.testing.assert_array_equal(found, point)


@pytest.mark.parametrize("start", [0.1, 3.0])
def test_worse_points_are_replaced_by_plain_steps(start):
    # x ← √x has the fixed point 1; its objective is NaN for the negative numbers that a combination may reach.
    def step(point):
        with np.errstate(invalid="ignore"):
            return np.sqrt(point), -float(np.abs(np.log(point)).sum())

    found = fixed_point(step, np.array([start]), memory=3, iterations=100, tolerance=1e-9)
    np.testing.assert_allclose(found, 1, atol=1e-6)
