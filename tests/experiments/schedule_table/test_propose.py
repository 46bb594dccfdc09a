"""Promising points: low where a model of the trained ones is low or unsure, apart from each other, and repeatable."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from numpy.typing import NDArray

from s2e.experiments.schedule_table import propose as module
from s2e.experiments.schedule_table.propose import APART, promising
from s2e.experiments.schedule_table.table import drawn
from s2e.samplers.curve_model import landmarks
from s2e.schedules.spaces import Space, space

Floats = NDArray[np.float64]

EPOCHS = 20
FAMILY = space("s2e")
POINTS = drawn(90, FAMILY.dimension, 3)


def made_up(points: Floats) -> Floats:
    """Lowest where half of a batch is kept around the middle of training."""
    return np.asarray(np.abs(FAMILY.decode(points, EPOCHS)[:, 8:12].mean(axis=1) - 0.5) + 0.05)


def looked_for(count: int = 12, seed: int = 0, errors: Floats | None = None, known: Space = FAMILY) -> Floats:
    errors = made_up(POINTS) if errors is None else errors
    return promising(POINTS, errors, known, EPOCHS, count, np.random.default_rng(seed))


def apart(points: Floats, epochs: int = EPOCHS) -> float:
    """Smallest root mean square between any two curves at the epochs looked at."""
    curves = FAMILY.decode(points, epochs, at=landmarks(epochs))
    pairs = [(i, j) for i in range(len(curves)) for j in range(i)]
    return min(float(np.sqrt(np.mean((curves[i] - curves[j]) ** 2))) for i, j in pairs)


@pytest.fixture(autouse=True)
def fewer_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is claimed does not depend on how many there are."""
    monkeypatch.setattr(module, "CANDIDATES", 2000)
    monkeypatch.setattr(module, "LIKELY", 1000)


def test_points_are_found_where_a_made_up_error_is_low() -> None:
    found = made_up(looked_for())
    assert found.mean() < np.quantile(made_up(POINTS), 0.1)
    assert found.max() < np.median(made_up(POINTS))


def test_the_mirrored_error_leads_elsewhere() -> None:
    away = made_up(looked_for(errors=-made_up(POINTS)))
    assert away.min() > np.median(made_up(POINTS))


def test_the_scale_of_the_errors_is_of_no_matter() -> None:
    scaled = looked_for(errors=1024.0 * made_up(POINTS))  # a power of two rounds nothing
    np.testing.assert_array_equal(scaled, looked_for())


@pytest.mark.parametrize("count", [1, 2, 40])
def test_as_many_points_of_the_cube_are_returned_as_were_asked_for(count: int) -> None:
    found = looked_for(count)
    assert found.shape == (count, FAMILY.dimension)
    assert found.min() >= 0
    assert found.max() <= 1
    assert len(np.unique(found, axis=0)) == count


def test_chosen_curves_lie_apart() -> None:
    assert apart(looked_for(40)) > APART


def test_what_is_found_follows_from_the_generator() -> None:
    np.testing.assert_array_equal(looked_for(seed=1), looked_for(seed=1))
    assert (looked_for(seed=1) != looked_for(seed=2)).any()


def test_more_points_begin_with_those_that_fewer_would_be() -> None:
    np.testing.assert_array_equal(looked_for(9)[:4], looked_for(4))


class Believed:
    """Stands for the model: expects more of a curve the lower it ends, and is the less sure the higher it begins."""

    how = SimpleNamespace()

    def __init__(self, seen: list[Floats], unsure: float) -> None:
        self.seen, self.unsure = seen, unsure

    def mean(self, curves: Floats) -> Floats:
        return np.asarray(curves[:, -1])

    def predict(self, curves: Floats) -> tuple[Floats, Floats]:
        self.seen.append(curves)
        return self.mean(curves), self.unsure * curves[:, 0]


@pytest.mark.parametrize("unsure", [0.0, 1.0, 5.0])
def test_the_best_are_one_deviation_below_what_is_expected(monkeypatch: pytest.MonkeyPatch, unsure: float) -> None:
    seen: list[Floats] = []
    monkeypatch.setattr(module, "GaussianProcess", lambda *_: Believed(seen, unsure))
    found = FAMILY.decode(looked_for(15), EPOCHS, at=landmarks(EPOCHS))
    expected: list[Floats] = []
    for curve in sorted(seen[0], key=lambda curve: float(curve[-1] - unsure * curve[0])):
        if all(np.sqrt(np.mean((curve - taken) ** 2)) > APART for taken in expected):
            expected.append(curve)
        if len(expected) == 15:
            break
    np.testing.assert_array_equal(found, np.array(expected))


def test_only_the_likely_ones_are_looked_at_closely(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Floats] = []
    monkeypatch.setattr(module, "GaussianProcess", lambda *_: Believed(seen, 1.0))
    looked_for()
    monkeypatch.setattr(module, "LIKELY", 4000)
    looked_for()
    closely, everything = (np.sort(curves[:, -1]) for curves in seen)
    assert len(everything) == 4000
    np.testing.assert_array_equal(closely, everything[:1000])


def test_what_lies_near_the_best_is_looked_at_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A narrow valley that uniform draws hardly meet, around a trained point."""
    bottom = POINTS[7]
    errors = np.sqrt(((POINTS - bottom) ** 2).mean(axis=1))
    monkeypatch.setattr(module, "NEAR", 1)
    monkeypatch.setattr(module, "GaussianProcess", lambda *_: Believed([], 0.0))
    monkeypatch.setattr(Believed, "mean", lambda _, curves: np.abs(curves - decoded).mean(axis=1))
    decoded = FAMILY.decode(bottom[None], EPOCHS, at=landmarks(EPOCHS))
    found = looked_for(20, errors=errors)
    near = np.abs(found - bottom).mean(axis=1) < 0.1  # uniform draws are about a third away
    assert near[0]
    assert near.sum() >= 5


def test_the_count_is_kept_where_fewer_curves_lie_apart() -> None:
    """All schedules of one epoch are the same one."""
    points = promising(POINTS, made_up(POINTS), FAMILY, 1, 6, np.random.default_rng(0))
    assert len(np.unique(points, axis=0)) == 6


def test_the_count_is_kept_where_it_exceeds_the_likely_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LIKELY", 5)
    assert len(np.unique(looked_for(30), axis=0)) == 30


@pytest.mark.parametrize("error", [1.0, 0.1])
def test_equal_errors_say_nothing_and_do_no_harm(error: float) -> None:
    found = looked_for(6, errors=np.full(len(POINTS), error))
    assert found.shape == (6, FAMILY.dimension)
    assert np.isfinite(found).all()
