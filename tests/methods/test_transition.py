"""Transition matrices estimated from predictions."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from s2e.data import noise
from s2e.errors import InvalidInput
from s2e.methods.transition import default_percentile, estimate_transition

MATRICES = pytest.mark.parametrize(
    "matrix",
    [noise.pair(4, 0.45), noise.check_transition_matrix([[0.7, 0.3, 0.0], [0.0, 1.0, 0.0], [0.25, 0.25, 0.5]])],
)


def slow_estimate(probabilities, percent=None):
    """Sort, bound and select for each class, with integers for the index of the percentile."""
    rows = []
    for label in range(len(probabilities[0])):
        values = [prediction[label] for prediction in probabilities]
        candidates = list(range(len(values)))
        if percent is not None:
            bound = sorted(values)[-(-percent * (len(values) - 1) // 100)]  # rounded up: the next sample above
            candidates = [sample for sample in candidates if 0 < values[sample] < bound] or candidates
        best = candidates[0]
        for sample in candidates:
            if values[sample] > values[best]:
                best = sample
        rows.append([value / sum(probabilities[best]) for value in probabilities[best]])
    return rows


@pytest.mark.parametrize(("samples", "classes"), [(101, 3), (3, 7), (1, 3)])
def test_estimate_equals_a_loop_over_classes(samples, classes):
    drawn = np.random.default_rng(samples).dirichlet(np.full(classes, 0.7), size=samples).astype(np.float32)
    coarse = np.round(drawn + 0.05, 1).astype(np.float32)  # many ties
    for probabilities, percent in itertools.product((drawn, coarse), (None, 0, 97, 100)):
        found = estimate_transition(probabilities, percentile=percent)
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, slow_estimate(probabilities.astype(np.float64).tolist(), percent), rtol=1e-12)
        np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-12)


def test_most_confident_predictions_are_outliers():
    share = np.linspace(0.01, 0.99, 101)
    probabilities = np.stack([share, 1 - share], axis=1)
    assert estimate_transition(probabilities)[0, 0] == pytest.approx(share[96])  # below the bound, share[97]
    assert estimate_transition(probabilities, percentile=None)[0, 0] == pytest.approx(share[100])


def test_equal_predictions_are_every_row():
    row = np.array([0.2, 0.5, 0.3])
    for percentile in (97.0, None):
        np.testing.assert_allclose(
            estimate_transition(np.tile(row, (50, 1)), percentile=percentile), np.tile(row, (3, 1))
        )


def test_ties_go_to_the_first_sample():
    probabilities = np.array([[0.1, 0.8, 0.1], [0.6, 0.3, 0.1], [0.6, 0.1, 0.3], [0.2, 0.4, 0.4]])
    np.testing.assert_allclose(estimate_transition(probabilities, percentile=None)[0], probabilities[1])


@pytest.mark.parametrize("shown", [5, 6])  # up to 5 of 200 the 97th percentile is 0; with 6 only zeros lie below it
def test_rare_class_uses_its_best_sample(shown):
    probabilities = np.tile([0.6, 0.4, 0.0], (200, 1))
    probabilities[:100] = [0.4, 0.6, 0.0]
    for k in range(shown):
        probabilities[7 + k] = [0.1, 0.2 + 0.1 * k, 0.7 - 0.1 * k]
    np.testing.assert_allclose(estimate_transition(probabilities)[2], [0.1, 0.2, 0.7])


def test_class_with_probability_0_uses_the_first_sample():
    probabilities = np.array([[0.3, 0.7, 0.0], [0.6, 0.4, 0.0], [0.5, 0.5, 0.0]])
    for percentile in (97.0, None):
        np.testing.assert_allclose(estimate_transition(probabilities, percentile=percentile)[2], [0.3, 0.7, 0.0])


def test_predictions_are_normalised_and_unchanged():
    probabilities = np.random.default_rng(0).dirichlet(np.ones(4), size=200)
    before = probabilities.copy()
    scaled = estimate_transition(0.5 * probabilities)
    np.testing.assert_allclose(scaled, estimate_transition(probabilities), rtol=1e-12)
    np.testing.assert_array_equal(probabilities, before)


def test_leading_dimensions_are_separate_estimates_also_with_nan():
    probabilities = np.random.default_rng(0).dirichlet(np.ones(4), size=(2, 3, 100))
    probabilities[1, 0] = math.nan  # a network that diverged
    for percentile in (97.0, None):
        found = estimate_transition(probabilities, percentile=percentile)
        assert found.shape == (2, 3, 4, 4)
        assert np.isnan(found[1, 0]).all()
        for at in [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2)]:
            np.testing.assert_array_equal(found[at], estimate_transition(probabilities[at], percentile=percentile))


@MATRICES
def test_posterior_with_a_certain_sample_of_each_class_gives_the_noise_matrix(matrix):
    classes = len(matrix)
    posterior = np.random.default_rng(0).dirichlet(np.ones(classes), size=300)  # of the true class
    posterior[::60][:classes] = np.eye(classes)
    found = estimate_transition(posterior @ matrix, percentile=None)
    np.testing.assert_allclose(found, matrix, atol=1e-12)


@MATRICES
def test_posterior_with_the_percentile_is_close_to_the_noise_matrix(matrix):
    classes = len(matrix)
    posterior = np.random.default_rng(0).dirichlet(np.full(classes, 0.05), size=20_000)  # most samples almost certain
    found = estimate_transition(posterior @ matrix, percentile=97.0)
    np.testing.assert_allclose(found, matrix, atol=0.01)


def test_outliers_are_dropped_with_fewer_than_a_hundred_classes():
    assert (default_percentile(99), default_percentile(100)) == (97.0, None)


@pytest.mark.parametrize("shape", [(4,), (0, 4), (5, 1)])
def test_predictions_of_the_wrong_shape_are_refused(shape):
    with pytest.raises(InvalidInput, match=r"`probabilities` must be \(N, C\) .* but got the shape"):
        estimate_transition(np.zeros(shape))


@pytest.mark.parametrize("bad", [[-0.1, 1.1], [math.inf, 0.0], [0.0, 0.0]])
def test_invalid_probabilities_are_refused(bad):
    with pytest.raises(InvalidInput, match="`probabilities` must hold a prediction for each sample, but got"):
        estimate_transition(np.array([[0.4, 0.6], bad]))


@pytest.mark.parametrize("percentile", [-1.0, math.nan])
def test_percentile_out_of_range_is_refused(percentile):
    with pytest.raises(InvalidInput, match=r"`percentile` must lie in \[0, 100\] or be None, but got"):
        estimate_transition(np.full((3, 2), 0.5), percentile=percentile)
