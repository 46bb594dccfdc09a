"""What samplers and studies rely on in every space: the registered ones, and one that a user might write."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from s2e.methods import METHODS, SEARCHABLE
from s2e.schedules.spaces import SPACES, Space, simplex_weights, space
from s2e.studies.method_choice import MethodSpace


class TwoRamps(Space):
    """A user's space: a weighted mean of a linear and a quadratic ramp from 1 to a final keep rate."""

    name = "two-ramps"
    simplex = ("linear", "quadratic")
    names = (*simplex, "final")

    def unclipped(self, points, t, epochs):
        weights, x = simplex_weights(points[:, :2]), t / epochs
        return 1 - (1 - points[:, 2:]) * (weights[:, :1] * x + weights[:, 1:] * x**2)


COMPETING = MethodSpace(space("s2e"), [METHODS[name] for name in SEARCHABLE])

CASES = {**SPACES, "a user's space": TwoRamps(), "competing methods": COMPETING}


@pytest.fixture(params=CASES.values(), ids=CASES)
def any_space(request):
    return request.param


def test_space_names_each_coordinate_once(any_space):
    assert space(any_space) is any_space
    assert isinstance(any_space.name, str)
    assert len(set(any_space.names)) == len(any_space.names) == any_space.dimension
    assert set(any_space.simplex) <= set(any_space.names)
    assert len(any_space.simplex) != 1


def test_keep_rates_are_in_the_unit_interval_at_corners(any_space):
    dimension = any_space.dimension
    if dimension < 10:
        points = np.array(list(itertools.product([0.0, 1.0], repeat=dimension)))
    else:
        points = np.random.default_rng(14).integers(0, 2, (1000, dimension)).astype(np.float64)
    for epochs in (1, 20):
        curves = any_space.decode(points, epochs)
        assert curves.shape == (len(points), epochs)
        assert np.isfinite(curves).all()
        assert ((curves >= 0) & (curves <= 1)).all()


@settings(deadline=None, max_examples=50)
@given(data=st.data(), name=st.sampled_from(sorted(CASES)), epochs=st.integers(1, 400))
def test_keep_rates_are_in_the_unit_interval_anywhere(data, name, epochs):
    dimension = CASES[name].dimension
    point = data.draw(st.lists(st.floats(0, 1, allow_subnormal=False), min_size=dimension, max_size=dimension))
    (curve,) = CASES[name].decode([point], epochs)
    assert curve.shape == (epochs,)
    assert ((curve >= 0) & (curve <= 1)).all()


def test_decode_at_some_epochs_equals_columns_of_all(any_space):
    points = np.random.default_rng(6).random((9, any_space.dimension))
    at = np.array([0, 3, 3, 119])
    np.testing.assert_allclose(any_space.decode(points, 120, at=at), any_space.decode(points, 120)[:, at], rtol=1e-13)


def test_point_alone_equals_point_among_others(any_space):
    points = np.random.default_rng(16).random((7, any_space.dimension))
    alone = np.vstack([any_space.decode(point[None], 30) for point in points])
    np.testing.assert_allclose(any_space.decode(points, 30), alone, rtol=1e-14)
    assert any_space.decode(points[:0], 30).shape == (0, 30)
