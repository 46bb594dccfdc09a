"""The spaces of the paper: Table 1, the simplex, the spaces of the ablation, and what is refused."""

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
from s2e.schedules.fixed import coteaching
from s2e.schedules.spaces import SPACES, CoteachingSpace, S2ESpace, SingleSpace, simplex_weights, space

Floats = NDArray[np.float64]
S2E = S2ESpace()
NETWORKS = pytest.mark.parametrize("name", ["rbf", "mlp"])
BASES = pytest.mark.parametrize("basis", [1, 2, 4])


def table_1(point: list[float], t: int, epochs: int) -> float:
    """R(t) before clipping, one number at a time, from Table 1 of the paper."""
    if t == 0:
        return 1.0
    g = [-math.log(1 - u) if u < 1 else 53 * math.log(2) for u in point[:4]]
    alpha = [x / sum(g) for x in g] if sum(g) > 0 else [0.25] * 4
    return sum(alpha[i] * basis_function(i + 1, point[4 + 4 * i : 8 + 4 * i], t, epochs) for i in range(4))


def basis_function(basis: int, parameters: list[float], t: int, epochs: int) -> float:
    """f_i(t), i in 1..4, before clipping, for t > 0."""
    a1, a2, a3, a4 = parameters
    first = math.exp(-a2 * t**a1) if basis in (1, 2) else 1 / (1 + a2 * t) ** a1
    second = (t / epochs) ** a4 if basis in (1, 3) else math.log(1 + t**a4) / math.log(1 + epochs**a4)
    return first + a3 * second


def rbf(point: list[float], t: int, epochs: int) -> float:
    """One number of a radial basis function network, from its formula and the documented ranges."""
    z = -2 + 4 * point[0]
    for i in range(4):
        weight, centre = -3 + 6 * point[1 + i], point[5 + i]
        width = math.exp(math.log(0.05) + point[9 + i] * (math.log(0.5) - math.log(0.05)))
        z += weight * math.exp(-((t / epochs - centre) ** 2) / (2 * width**2))
    return 1 / (1 + math.exp(-z))


def mlp(point: list[float], t: int, epochs: int) -> float:
    """One number of a perceptron with four hidden units, from its formula and the documented ranges."""
    z = -2 + 4 * point[0]
    for i in range(4):
        output, slope, offset = -6 + 12 * point[1 + i], -1 + 2 * point[5 + i], -0.25 + 0.5 * point[9 + i]
        activation = slope * t / epochs + offset
        if activation > 0:
            z += output * activation
    return 1 / (1 + math.exp(-z))


def corners(generator: np.random.Generator, count: int) -> Floats:
    """Points whose coordinates are 0 or 1."""
    return generator.integers(0, 2, (count, 20)).astype(np.float64)


@pytest.mark.parametrize("epochs", [1, 2, 37])
def test_s2e_space_equals_table_1(epochs: int) -> None:
    generator = np.random.default_rng(0)
    points = np.vstack([generator.random((20, 20)), corners(generator, 30), np.zeros((1, 20)), np.ones((1, 20))])
    expected = [[table_1(point, t, epochs) for t in range(epochs)] for point in points.tolist()]
    np.testing.assert_allclose(S2E.unclipped(points, np.arange(float(epochs)), epochs), expected, rtol=1e-12)
    np.testing.assert_allclose(S2E.decode(points, epochs), np.clip(expected, 0, 1), rtol=1e-12)


def test_first_keep_rate_is_exactly_1() -> None:
    generator = np.random.default_rng(1)
    points = np.vstack([generator.random((2000, 20)), corners(generator, 2000)])
    assert (S2E.decode(points, 50)[:, 0] == 1.0).all()
    assert (S2E.unclipped(points, np.arange(50.0), 50)[:, 0] == 1.0).all()


def test_about_a_fifth_of_uniform_points_exceed_1_before_clipping() -> None:
    points = np.random.default_rng(2).random((5000, 20))
    share = (S2E.unclipped(points, np.arange(200.0), 200) > 1 + 1e-9).any(axis=1).mean()
    assert 0.19 < share < 0.24  # 0.217 measured on 20,000 points


@pytest.mark.parametrize("basis", [0, 3])
def test_one_hot_weights_give_a_single_basis_function(basis: int) -> None:
    a1, a2, a3, a4 = 0.6, 0.3, 0.4, 0.7
    point = np.random.default_rng(3).random(20)
    point[:4] = np.eye(4)[basis]
    point[4 + 4 * basis : 8 + 4 * basis] = a1, a2, a3, a4
    t, epochs = np.arange(1.0, 100.0), 100
    fall = np.exp(-a2 * t**a1) if basis < 2 else (1 + a2 * t) ** -a1
    rise = (t / epochs) ** a4 if basis % 2 == 0 else np.log(1 + t**a4) / np.log(1 + epochs**a4)
    np.testing.assert_allclose(S2E.decode(point[None], epochs)[0, 1:], np.clip(fall + a3 * rise, 0, 1), rtol=1e-12)


def test_parameters_without_weight_have_no_effect() -> None:
    points = np.random.default_rng(4).random((2, 20))
    points[:, :8] = points[0, :8]  # the same weights and the same f1
    points[:, :4] = [0.5, 0, 0, 0]
    np.testing.assert_array_equal(*S2E.decode(points, 30))


@pytest.mark.parametrize(("name", "most"), [("s2e", 0.02), ("rbf", 0.02), ("mlp", 0.035)])
def test_space_fits_the_coteaching_curve(name: str, most: float) -> None:
    chosen, target = space(name), coteaching(0.45, 200)
    t = np.arange(200.0)

    def residual(point: Floats) -> Floats:
        return np.asarray(chosen.unclipped(point[None], t, 200)[0] - target)

    def jacobian(point: Floats) -> Floats:
        step = np.where(point < 0.5, 1e-6, -1e-6)  # all D differences in one decode, inside the cube
        moved: Floats = chosen.unclipped(point + np.diag(step), t, 200) - chosen.unclipped(point[None], t, 200)
        return (moved / step[:, None]).T

    starts = np.random.default_rng(0).uniform(0.05, 0.95, (3, chosen.dimension))
    fits = [optimize.least_squares(residual, u, jacobian, bounds=(0, 1), max_nfev=150) for u in starts]
    best = min(fits, key=lambda fit: float(fit.cost))
    rmse = math.sqrt(np.mean((chosen.decode(best.x[None], 200)[0] - target) ** 2))
    assert rmse <= most


def test_uniform_coordinates_give_dirichlet_1_weights() -> None:
    alpha = simplex_weights(np.random.default_rng(7).random((40_000, 4)))
    np.testing.assert_allclose(alpha.sum(axis=1), 1, rtol=1e-14)
    for i in range(4):  # each weight of Dirichlet(1, 1, 1, 1) is Beta(1, 3)
        assert stats.kstest(alpha[:, i], stats.beta(1, 3).cdf).pvalue > 1e-3
    np.testing.assert_allclose(alpha.mean(axis=0), 1 / 4, atol=0.005)
    np.testing.assert_allclose(np.cov(alpha.T), (np.eye(4) - 1 / 4) / 4 / 5, atol=0.002)


def test_simplex_weights_match_hand_computation() -> None:
    u = 1 - np.exp(-np.array([1.0, 2.0, 5.0]))  # g = 1, 2, 5
    np.testing.assert_allclose(simplex_weights(u), [1 / 8, 2 / 8, 5 / 8])


def test_simplex_weights_are_valid_at_corners() -> None:
    for corner in itertools.product([0.0, 1.0], repeat=4):
        alpha = simplex_weights(np.array(corner))
        ones = sum(corner)
        expected = np.array(corner) / ones if ones else np.full(4, 0.25)
        np.testing.assert_allclose(alpha, expected, rtol=1e-14)


def test_simplex_weights_are_continuous_at_1() -> None:
    near = simplex_weights(np.array([np.nextafter(1.0, 0.0), 0.5, 0.5]))
    np.testing.assert_array_equal(simplex_weights(np.array([1.0, 0.5, 0.5])), near)


@settings(deadline=None, max_examples=50)
@given(u=st.lists(st.floats(0, 1), min_size=2, max_size=6))
def test_simplex_weights_are_on_the_simplex(u: list[float]) -> None:
    alpha = simplex_weights(np.array([[u]]))
    assert alpha.shape == (1, 1, len(u))
    assert (alpha >= 0).all()
    assert abs(alpha.sum() - 1) < 1e-12


def test_coteaching_space_has_the_documented_ranges() -> None:
    chosen = CoteachingSpace()
    curves = chosen.decode([[0.45, 0.5, (10 - 1) / 99], [0.3, 1.0, 0.0], [0.3, 0.25, 1.0]], 200)
    np.testing.assert_allclose(curves[0], coteaching(0.45, 200, ramp=10, exponent=1), rtol=1e-12)
    np.testing.assert_allclose(curves[1], coteaching(0.3, 200, ramp=1, exponent=2), rtol=1e-12)
    np.testing.assert_allclose(curves[2], coteaching(0.3, 200, ramp=100, exponent=0.5), rtol=1e-12)


@pytest.mark.parametrize("epochs", [1, 3, 50])
def test_coteaching_space_starts_at_1_and_never_rises(epochs: int) -> None:
    points = np.vstack([np.random.default_rng(8).random((200, 3)), list(itertools.product([0.0, 1.0], repeat=3))])
    curves = CoteachingSpace().decode(points, epochs)
    assert (curves[:, 0] == 1.0).all()
    assert (np.diff(curves, axis=1) <= 0).all()
    assert curves.min() >= 0


@BASES
def test_single_space_equals_its_basis_function(basis: int) -> None:
    epochs, chosen = 37, space(f"single-{basis}")
    points = np.vstack([np.random.default_rng(9).random((20, 4)), list(itertools.product([0.0, 1.0], repeat=4))])
    expected = [
        [basis_function(basis, point, t, epochs) if t else 1.0 for t in range(epochs)] for point in points.tolist()
    ]
    np.testing.assert_allclose(chosen.unclipped(points, np.arange(float(epochs)), epochs), expected, rtol=1e-12)
    np.testing.assert_allclose(chosen.decode(points, epochs), np.clip(expected, 0, 1), rtol=1e-12)
    assert (chosen.decode(points, epochs)[:, 0] == 1.0).all()


@BASES
def test_single_space_is_the_s2e_space_with_all_weight_on_its_basis(basis: int) -> None:
    single = space(f"single-{basis}")
    points = np.random.default_rng(10).random((50, 20))
    points[:, :4] = np.eye(4)[basis - 1]
    own = points[:, [S2E.names.index(name) for name in single.names]]
    np.testing.assert_array_equal(single.decode(own, 80), S2E.decode(points, 80))
    assert single.names == S2E.names[4 * basis : 4 * basis + 4]
    assert single.simplex == ()


def test_unknown_basis_function_is_refused() -> None:
    with pytest.raises(InvalidInput, match="`basis` must be 1, 2, 3 or 4, but got 5"):
        SingleSpace(5)


@NETWORKS
@pytest.mark.parametrize("epochs", [1, 37])
def test_network_space_equals_its_formula(name: str, epochs: int) -> None:
    generator = np.random.default_rng(11)
    corner = generator.integers(0, 2, (30, 13)).astype(np.float64)
    points = np.vstack([generator.random((30, 13)), corner, np.zeros((1, 13)), np.ones((1, 13))])
    scalar = {"rbf": rbf, "mlp": mlp}[name]
    expected = [[scalar(point, t, epochs) for t in range(epochs)] for point in points.tolist()]
    np.testing.assert_allclose(space(name).decode(points, epochs), expected, rtol=1e-12)


@NETWORKS
def test_network_without_output_weights_is_constant(name: str) -> None:
    chosen = space(name)
    points = np.random.default_rng(12).random((5, 13))
    points[:, [chosen.names.index(f"weight_{i}") for i in (1, 2, 3, 4)]] = 0.5  # the middle of a range around 0
    points[:, chosen.names.index("bias")] = [0.0, 0.25, 0.5, 0.75, 1.0]
    expected = [1 / (1 + math.exp(-b)) for b in (-2, -1, 0, 1, 2)]
    np.testing.assert_allclose(
        chosen.decode(points, 40), np.repeat(np.array(expected)[:, None], 40, axis=1), rtol=1e-13
    )


@NETWORKS
def test_hidden_units_are_interchangeable(name: str) -> None:
    chosen = space(name)
    points = np.random.default_rng(13).random((20, 13))
    order = [3, 1, 4, 2]
    swapped = ["bias", *(f"{coordinate[:-1]}{order[int(coordinate[-1]) - 1]}" for coordinate in chosen.names[1:])]
    exchanged = points[:, [chosen.names.index(coordinate) for coordinate in swapped]]
    np.testing.assert_allclose(chosen.decode(exchanged, 60), chosen.decode(points, 60), rtol=1e-13)


def one_unit(name: str, **coordinates: float) -> Floats:
    """A point (1, 13) with bias 0 and the given coordinates of the first unit; the other units have no weight."""
    chosen = space(name)
    point = np.full((1, chosen.dimension), 0.5)
    for coordinate, value in coordinates.items():
        point[0, chosen.names.index(f"{coordinate}_1")] = value
    return point


def test_rbf_unit_is_a_bell_around_its_centre() -> None:
    (narrow,) = space("rbf").decode(one_unit("rbf", weight=1.0, centre=0.25, width=0.0), 200)
    (wide,) = space("rbf").decode(one_unit("rbf", weight=0.0, centre=0.25, width=1.0), 200)
    for curve, width, weight in ((narrow, 10, 3), (wide, 100, -3)):  # widths in epochs: 0.05·200 and 0.5·200
        np.testing.assert_allclose(curve[50], 1 / (1 + math.exp(-weight)), rtol=1e-13)
        np.testing.assert_allclose(curve[50 + width], 1 / (1 + math.exp(-weight * math.exp(-1 / 2))), rtol=1e-13)
    np.testing.assert_allclose(narrow[:50], narrow[100:50:-1], rtol=1e-12)


def test_mlp_unit_is_flat_and_then_linear() -> None:
    (curve,) = space("mlp").decode(one_unit("mlp", weight=0.0, slope=1.0, offset=0.0), 200)  # max(0, t/T − 1/4)
    logits = np.log(curve / (1 - curve))
    np.testing.assert_allclose(logits[:51], 0, atol=1e-15)
    np.testing.assert_allclose(logits[51:], -6 * (np.arange(51, 200) / 200 - 0.25), rtol=1e-12)


@NETWORKS
def test_networks_need_no_clipping(name: str) -> None:
    points = np.array(list(itertools.product([0.0, 1.0], repeat=13)))
    curves = space(name).unclipped(points, np.arange(20.0), 20)
    assert ((curves > 0) & (curves < 1)).all()


@pytest.mark.parametrize(
    ("name", "constant", "saturated", "spread"),
    [("rbf", 0.015, 0.004, (0.30, 0.33, 0.30)), ("mlp", 0.114, 0.002, (0.26, 0.28, 0.36))],
)
def test_uniform_points_have_the_documented_spread(
    name: str, constant: float, saturated: float, spread: tuple[float, float, float]
) -> None:
    curves = space(name).decode(np.random.default_rng(15).random((8000, 13)), 200)
    assert abs((np.ptp(curves, axis=1) < 0.05).mean() - constant) < 0.015
    assert abs((((curves < 0.02) | (curves > 0.98)).mean(axis=1) > 0.9).mean() - saturated) < 0.003
    np.testing.assert_allclose(curves[:, [0, 50, 199]].mean(axis=0), 0.5, atol=0.02)
    np.testing.assert_allclose(curves[:, [0, 50, 199]].std(axis=0), spread, atol=0.01)


def test_s2e_space_has_20_coordinates() -> None:
    assert S2E.dimension == 20
    assert S2E.names[:4] == S2E.simplex
    assert S2E.names[4:9] == ("f1_a1", "f1_a2", "f1_a3", "f1_a4", "f2_a1")


def test_network_spaces_have_13_coordinates() -> None:
    assert (space("rbf").dimension, space("rbf").simplex) == (13, ())
    assert (space("mlp").dimension, space("mlp").simplex) == (13, ())
    assert space("rbf").names[:6] == ("bias", "weight_1", "weight_2", "weight_3", "weight_4", "centre_1")
    assert space("rbf").names[8:] == ("centre_4", "width_1", "width_2", "width_3", "width_4")
    assert space("mlp").names[4:10] == ("weight_4", "slope_1", "slope_2", "slope_3", "slope_4", "offset_1")


def test_spaces_are_found_by_name() -> None:
    assert list(SPACES) == ["s2e", "coteaching", "single-1", "single-2", "single-3", "single-4", "rbf", "mlp"]
    assert all(space(name) is one and one.name == name for name, one in SPACES.items())


def test_other_objects_are_refused() -> None:
    with pytest.raises(
        TypeError, match=r"`space` must be one of s2e, .*, or an instance of .*, but got 3\."
    ) as refused:
        space(3)  # type: ignore[arg-type]
    assert isinstance(refused.value, InvalidInput)
    with pytest.raises(InvalidInput, match="but got <class"):
        space(S2ESpace)  # type: ignore[arg-type]


def test_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match=r"`space` must be one of s2e, .*coteaching.*, but got 's2'"):
        space("s2")


@pytest.mark.parametrize(
    ("points", "words"),
    [
        (np.zeros((3, 4)), r"shape \(P, 20\) in the space s2e, but got \(3, 4\)"),
        ("text", "must be numbers"),
        (np.full((2, 20), np.nan), "finite and lie in"),
        (np.where(np.arange(40).reshape(2, 20) == 25, 1.5, 0.5), "1.5 for f1_a2 of point 1"),
    ],
)
def test_invalid_points_are_refused(points: object, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        S2E.decode(points, 10)  # type: ignore[arg-type]


@pytest.mark.parametrize("epochs", [0, 2.0])
def test_invalid_epochs_are_refused(epochs: int) -> None:
    with pytest.raises(InvalidInput, match="`epochs` must be a positive integer"):
        S2E.decode(np.zeros((1, 20)), epochs)


@pytest.mark.parametrize("at", [[10], [math.nan], [[1]]])
def test_epoch_indices_out_of_range_are_refused(at: list[float]) -> None:
    with pytest.raises(InvalidInput, match=r"epoch indices in 0\.\.9"):
        S2E.decode(np.zeros((1, 20)), 10, at=at)
