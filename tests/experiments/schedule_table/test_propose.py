"""Proposed points: smallest lower confidence bounds, apart from each other, repeatable."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from s2e.experiments.schedule_table import propose
from s2e.experiments.schedule_table.propose import MIN_DISTANCE, propose_points
from s2e.experiments.schedule_table.table import draw_points
from s2e.samplers import landmarks
from s2e.schedules import space

Floats = NDArray[np.float64]

EPOCHS = 20
SPACE = space("s2e")
POINTS = draw_points(90, SPACE.dimension, 3)


def synthetic_error(points: Floats) -> Floats:
    """Lowest where half of a batch is kept around the middle of training."""
    return np.asarray(np.abs(SPACE.decode(points, EPOCHS)[:, 8:12].mean(axis=1) - 0.5) + 0.05)


ERRORS = synthetic_error(POINTS)


def proposed(count: int = 12, seed: int = 0, errors: Floats = ERRORS, epochs: int = EPOCHS) -> Floats:
    return propose_points(POINTS, errors, SPACE, epochs, count, np.random.default_rng(seed))


def decoded(points: Floats) -> Floats:
    return SPACE.decode(points, EPOCHS, at=landmarks(EPOCHS))


def greedily_apart(curves: Floats, order: Floats, count: int) -> Floats:
    """Take curves in an order, leaving out those too close to one taken before."""
    taken: list[Floats] = []
    for curve in curves[np.argsort(order, kind="stable")]:
        if all(np.sqrt(np.mean((curve - other) ** 2)) > MIN_DISTANCE for other in taken):
            taken.append(curve)
    return np.array(taken[:count])


@pytest.fixture(autouse=True)
def _fewer_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(propose, "CANDIDATES", 1000)
    monkeypatch.setattr(propose, "SHORTLIST", 500)


def test_proposals_have_low_errors() -> None:
    errors = synthetic_error(proposed())
    assert errors.mean() < np.quantile(ERRORS, 0.1)
    assert errors.max() < np.median(ERRORS)
    assert synthetic_error(proposed(errors=-ERRORS)).min() > np.median(ERRORS)  # the opposite for negated errors


def test_scale_of_errors_does_not_matter() -> None:
    np.testing.assert_array_equal(proposed(errors=1024.0 * ERRORS), proposed())  # a power of two: no rounding


def test_proposals_are_distinct_points_with_curves_apart() -> None:
    points = proposed(40)
    assert points.shape == (40, SPACE.dimension)
    assert 0 <= points.min() <= points.max() <= 1
    curves = decoded(points)
    distances = np.sqrt(((curves[:, None] - curves) ** 2).mean(axis=2))
    assert distances[~np.eye(40, dtype=bool)].min() > MIN_DISTANCE


def test_proposals_depend_on_the_generator_and_extend_with_the_count() -> None:
    np.testing.assert_array_equal(proposed(9, seed=1)[:4], proposed(4, seed=1))
    assert (proposed(seed=1) != proposed(seed=2)).any()


class StandIn:
    """A model with mean R(T) and a standard deviation proportional to R(0); records what it predicts."""

    def __init__(self, seen: list[Floats], factor: float) -> None:
        self.seen, self.factor = seen, factor

    def mean(self, curves: Floats) -> Floats:
        return np.asarray(curves[:, -1])

    def predict(self, curves: Floats) -> tuple[Floats, Floats]:
        self.seen.append(curves)
        return self.mean(curves), self.factor * curves[:, 0]


@pytest.mark.parametrize("factor", [0.0, 5.0])
def test_proposals_minimise_the_lower_confidence_bound(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    seen: list[Floats] = []
    monkeypatch.setattr(propose, "GaussianProcess", lambda *_: StandIn(seen, factor))
    points = proposed(15)
    bound = seen[0][:, -1] - factor * seen[0][:, 0]
    np.testing.assert_array_equal(decoded(points), greedily_apart(seen[0], bound, 15))


def test_deviations_are_computed_for_the_lowest_means(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Floats] = []
    monkeypatch.setattr(propose, "GaussianProcess", lambda *_: StandIn(seen, 1.0))
    proposed()
    monkeypatch.setattr(propose, "SHORTLIST", 2000)
    proposed()
    shortlist, everything = (np.sort(curves[:, -1]) for curves in seen)
    assert len(everything) == 2000
    np.testing.assert_array_equal(shortlist, everything[:500])


def test_neighbours_of_the_best_point_are_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    centre = POINTS[7]
    curve = decoded(centre[None])
    monkeypatch.setattr(propose, "CENTRES", 1)
    monkeypatch.setattr(propose, "GaussianProcess", lambda *_: StandIn([], 0.0))
    monkeypatch.setattr(StandIn, "mean", lambda _, curves: np.abs(curves - curve).mean(axis=1))
    near = np.abs(proposed(20) - centre).mean(axis=1) < 0.1  # uniform draws are about a third away
    assert near[0]
    assert near.sum() >= 5


def test_count_is_kept_without_enough_distant_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(np.unique(proposed(6, epochs=1), axis=0)) == 6  # all schedules of one epoch are equal
    monkeypatch.setattr(propose, "SHORTLIST", 5)
    assert len(np.unique(proposed(30), axis=0)) == 30


def test_equal_errors_are_accepted() -> None:
    points = proposed(6, errors=np.full(len(POINTS), 0.1))
    assert points.shape == (6, SPACE.dimension)
    assert np.isfinite(points).all()
