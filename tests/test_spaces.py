"""Claims about the searched spaces: Table 1 of the paper, the simplex, Co-teaching's family, and the door."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import optimize, stats

from s2e.errors import InvalidInput
from s2e.schedules import coteaching
from s2e.spaces import SPACES, CoteachingSpace, S2ESpace, Space, simplex_weights, space

Floats = NDArray[np.float64]
S2E = S2ESpace()
unit = st.floats(0, 1, allow_subnormal=False)


def table_1(point: list[float], t: int, epochs: int) -> float:
    """R(t) before clipping, one number at a time, straight from the paper's Table 1 and the decisions on it."""
    if t == 0:
        return 1.0
    g = [-math.log(1 - u) if u < 1 else 53 * math.log(2) for u in point[:4]]
    alpha = [x / sum(g) for x in g] if sum(g) > 0 else [0.25] * 4
    total = 0.0
    for i in range(4):
        a1, a2, a3, a4 = point[4 + 4 * i : 8 + 4 * i]
        first = math.exp(-a2 * t**a1) if i < 2 else 1 / (1 + a2 * t) ** a1
        second = (t / epochs) ** a4 if i % 2 == 0 else math.log(1 + t**a4) / math.log(1 + epochs**a4)
        total += alpha[i] * (first + a3 * second)
    return total


def corners(generator: np.random.Generator, count: int) -> Floats:
    """Points whose coordinates are 0 or 1."""
    return generator.integers(0, 2, (count, 20)).astype(np.float64)


@pytest.mark.parametrize("epochs", [1, 2, 37, 200])
def test_decode_equals_the_scalar_table_1(epochs: int) -> None:
    generator = np.random.default_rng(0)
    points = np.vstack([generator.random((20, 20)), corners(generator, 30), np.zeros((1, 20)), np.ones((1, 20))])
    expected = [[table_1(point, t, epochs) for t in range(epochs)] for point in points.tolist()]
    np.testing.assert_allclose(S2E.unclipped(points, np.arange(float(epochs)), epochs), expected, rtol=1e-12)
    np.testing.assert_allclose(S2E.decode(points, epochs), np.clip(expected, 0, 1), rtol=1e-12)


def test_r_at_0_is_exactly_1_for_random_points_and_corners() -> None:
    generator = np.random.default_rng(1)
    points = np.vstack([generator.random((2000, 20)), corners(generator, 2000)])
    assert (S2E.decode(points, 50)[:, 0] == 1.0).all()
    assert (S2E.unclipped(points, np.arange(50.0), 50)[:, 0] == 1.0).all()


@settings(deadline=None, max_examples=50)
@given(point=st.lists(unit, min_size=20, max_size=20), epochs=st.integers(1, 400))
def test_keep_rates_start_at_1_and_stay_in_the_unit_interval(point: list[float], epochs: int) -> None:
    (curve,) = S2E.decode([point], epochs)
    assert curve.shape == (epochs,)
    assert curve[0] == 1.0
    assert np.isfinite(curve).all()
    assert ((curve >= 0) & (curve <= 1)).all()


def test_about_a_fifth_of_uniform_points_exceed_1_before_clipping() -> None:
    points = np.random.default_rng(2).random((5000, 20))
    share = (S2E.unclipped(points, np.arange(200.0), 200) > 1 + 1e-9).any(axis=1).mean()
    assert 0.19 < share < 0.24  # 0.217 measured on 20,000 points


@pytest.mark.parametrize("basis", [0, 1, 2, 3])
def test_one_hot_weights_give_the_single_basis_function(basis: int) -> None:
    a1, a2, a3, a4 = 0.6, 0.3, 0.4, 0.7
    point = np.random.default_rng(3).random(20)
    point[:4] = np.eye(4)[basis]
    point[4 + 4 * basis : 8 + 4 * basis] = a1, a2, a3, a4
    t, epochs = np.arange(1.0, 100.0), 100
    fall = np.exp(-a2 * t**a1) if basis < 2 else (1 + a2 * t) ** -a1
    rise = (t / epochs) ** a4 if basis % 2 == 0 else np.log(1 + t**a4) / np.log(1 + epochs**a4)
    np.testing.assert_allclose(S2E.decode(point[None], epochs)[0, 1:], np.clip(fall + a3 * rise, 0, 1), rtol=1e-12)


def test_parameters_of_a_basis_without_weight_do_not_matter() -> None:
    points = np.random.default_rng(4).random((2, 20))
    points[:, :8] = points[0, :8]  # the same weights and the same f1
    points[:, :4] = [0.5, 0, 0, 0]
    np.testing.assert_array_equal(*S2E.decode(points, 30))


def test_a_point_decodes_the_same_alone_and_among_others() -> None:
    points = np.random.default_rng(5).random((17, 20))
    together = S2E.decode(points, 40)
    alone = np.vstack([S2E.decode(point[None], 40) for point in points])
    np.testing.assert_allclose(together, alone, rtol=1e-14)
    assert S2E.decode(np.empty((0, 20)), 40).shape == (0, 40)


@pytest.mark.parametrize("name", sorted(SPACES))
def test_decode_at_some_epochs_equals_those_columns_of_the_whole(name: str) -> None:
    chosen = space(name)
    points = np.random.default_rng(6).random((9, chosen.dimension))
    at = np.array([0, 3, 3, 119])
    np.testing.assert_allclose(chosen.decode(points, 120, at=at), chosen.decode(points, 120)[:, at], rtol=1e-13)


@pytest.mark.parametrize("tau", [0.45, 0.2])
def test_the_space_fits_coteachings_curve(tau: float) -> None:
    target = coteaching(tau, 200)
    t = np.arange(200.0)

    def residual(point: Floats) -> Floats:
        return np.asarray(S2E.unclipped(point[None], t, 200)[0] - target)

    def jacobian(point: Floats) -> Floats:
        step = np.where(point < 0.5, 1e-6, -1e-6)  # all 20 differences in one decode, inside the cube
        moved: Floats = S2E.unclipped(point + np.diag(step), t, 200) - S2E.unclipped(point[None], t, 200)
        return (moved / step[:, None]).T

    starts = np.random.default_rng(0).uniform(0.05, 0.95, (6, 20))
    fits = [optimize.least_squares(residual, u, jacobian, bounds=(0, 1), max_nfev=150) for u in starts]
    best = min(fits, key=lambda fit: float(fit.cost))
    rmse = math.sqrt(np.mean((S2E.decode(best.x[None], 200)[0] - target) ** 2))
    assert rmse <= 0.02


def test_uniform_coordinates_give_dirichlet_1_weights() -> None:
    alpha = simplex_weights(np.random.default_rng(7).random((40_000, 4)))
    np.testing.assert_allclose(alpha.sum(axis=1), 1, rtol=1e-14)
    for i in range(4):  # each weight of Dirichlet(1, 1, 1, 1) is Beta(1, 3)
        assert stats.kstest(alpha[:, i], stats.beta(1, 3).cdf).pvalue > 1e-3
    np.testing.assert_allclose(alpha.mean(axis=0), 1 / 4, atol=0.005)
    np.testing.assert_allclose(np.cov(alpha.T), (np.eye(4) - 1 / 4) / 4 / 5, atol=0.002)


def test_simplex_weights_match_values_worked_by_hand() -> None:
    u = 1 - np.exp(-np.array([1.0, 2.0, 5.0]))  # g = 1, 2, 5
    np.testing.assert_allclose(simplex_weights(u), [1 / 8, 2 / 8, 5 / 8])


def test_simplex_weights_survive_the_corners_of_the_cube() -> None:
    for corner in itertools.product([0.0, 1.0], repeat=4):
        alpha = simplex_weights(np.array(corner))
        ones = sum(corner)
        expected = np.array(corner) / ones if ones else np.full(4, 0.25)
        np.testing.assert_allclose(alpha, expected, rtol=1e-14)


def test_simplex_weights_are_continuous_up_to_the_far_corner() -> None:
    near = simplex_weights(np.array([np.nextafter(1.0, 0.0), 0.5, 0.5]))
    np.testing.assert_array_equal(simplex_weights(np.array([1.0, 0.5, 0.5])), near)


@settings(deadline=None, max_examples=50)
@given(u=st.lists(st.floats(0, 1), min_size=2, max_size=6))
def test_simplex_weights_lie_on_the_simplex_for_any_row(u: list[float]) -> None:
    alpha = simplex_weights(np.array([[u]]))
    assert alpha.shape == (1, 1, len(u))
    assert (alpha >= 0).all()
    assert abs(alpha.sum() - 1) < 1e-12


def test_coteaching_space_covers_its_documented_ranges() -> None:
    chosen = CoteachingSpace()
    curves = chosen.decode([[0.45, 0.5, (10 - 1) / 99], [0.3, 1.0, 0.0], [0.3, 0.25, 1.0]], 200)
    np.testing.assert_allclose(curves[0], coteaching(0.45, 200, ramp=10, exponent=1), rtol=1e-12)
    np.testing.assert_allclose(curves[1], coteaching(0.3, 200, ramp=1, exponent=2), rtol=1e-12)
    np.testing.assert_allclose(curves[2], coteaching(0.3, 200, ramp=100, exponent=0.5), rtol=1e-12)


@pytest.mark.parametrize("epochs", [1, 2, 3, 50])
def test_coteaching_space_starts_at_1_and_never_rises(epochs: int) -> None:
    points = np.vstack([np.random.default_rng(8).random((200, 3)), list(itertools.product([0.0, 1.0], repeat=3))])
    curves = CoteachingSpace().decode(points, epochs)
    assert (curves[:, 0] == 1.0).all()
    assert (np.diff(curves, axis=1) <= 0).all()
    assert curves.min() >= 0


@pytest.mark.parametrize("name", sorted(SPACES))
def test_every_space_names_each_coordinate_once(name: str) -> None:
    chosen = space(name)
    assert isinstance(chosen, Space)
    assert chosen.name == name
    assert len(set(chosen.names)) == chosen.dimension == len(chosen.names)
    assert set(chosen.simplex) <= set(chosen.names)


def test_the_s2e_space_has_20_coordinates_the_first_four_on_the_simplex() -> None:
    assert S2E.dimension == 20
    assert S2E.names[:4] == S2E.simplex
    assert S2E.names[4:9] == ("f1_a1", "f1_a2", "f1_a3", "f1_a4", "f2_a1")


def test_an_unknown_space_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match=r"`space` must be one of s2e, coteaching, but got 's2'"):
        space("s2")


@pytest.mark.parametrize(
    ("points", "words"),
    [
        (np.zeros(20), r"shape \(P, 20\)"),
        (np.zeros((3, 4)), r"shape \(P, 20\) in the space s2e, but got \(3, 4\)"),
        (np.zeros((1, 1, 20)), r"shape \(P, 20\)"),
        ("text", "must be numbers"),
        ([[0.0], [0.0, 1.0]], "must be numbers"),
        (np.full((2, 20), np.nan), "finite and lie in"),
        (np.full((2, 20), -1e-9), "finite and lie in"),
        (np.where(np.arange(40).reshape(2, 20) == 25, 1.5, 0.5), "1.5 for f1_a2 of point 1"),
    ],
)
def test_decode_refuses_points_outside_the_cube(points: object, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        S2E.decode(points, 10)  # type: ignore[arg-type]


@pytest.mark.parametrize("epochs", [0, -1, 2.0])
def test_decode_refuses_a_number_of_epochs_that_is_not_a_positive_integer(epochs: int) -> None:
    with pytest.raises(InvalidInput, match="`epochs` must be a positive integer"):
        S2E.decode(np.zeros((1, 20)), epochs)


@pytest.mark.parametrize("at", [[10], [-1], [math.nan], [[1]]])
def test_decode_refuses_epochs_outside_the_run(at: list[float]) -> None:
    with pytest.raises(InvalidInput, match=r"epoch indexes in 0\.\.9"):
        S2E.decode(np.zeros((1, 20)), 10, at=at)
