"""Pools by likelihood: the better classifier gets the votes, without a label known to be correct."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import softmax

from s2e.ensembles import audit_predictions, calibrate, geometric_mean, pool_by_likelihood

SAMPLES, CLASSES = 1500, 4


def given(rate: float = 0.3, seed: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return true and given labels under symmetric noise."""
    generator = np.random.default_rng(seed)
    true = generator.integers(0, CLASSES, SAMPLES)
    other = (true + generator.integers(1, CLASSES, SAMPLES)) % CLASSES
    return true, np.where(generator.random(SAMPLES) < rate, other, true)


def predictions(true: NDArray[np.int64], strength: float, seed: int) -> NDArray[np.float64]:
    """Return the probabilities of a classifier of some strength that has not seen the given labels."""
    logits = np.random.default_rng(seed).normal(size=(len(true), CLASSES))
    logits[np.arange(len(true)), true] += strength
    return np.asarray(softmax(strength * logits, axis=1))


def accuracy(probabilities: NDArray[np.float64], true: NDArray[np.int64]) -> float:
    return float((probabilities.argmax(axis=1) == true).mean())


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.45])
def test_votes_go_to_the_classifier_that_knows_the_true_classes(rate: float) -> None:
    true, labels = given(rate)
    weak, strong = predictions(true, 0.7, 1), predictions(true, 2.5, 2)
    pool = pool_by_likelihood(labels, [weak, strong])
    assert pool.weights.sum() == pytest.approx(1)
    assert pool.weights[1] >= 0.5
    assert accuracy(pool.probabilities, true) >= accuracy(strong, true) - 0.01


def test_a_classifier_that_guesses_gets_no_vote() -> None:
    true, labels = given()
    strong, guess = predictions(true, 2.5, 1), np.full((SAMPLES, CLASSES), 1 / CLASSES)
    assert pool_by_likelihood(labels, [guess, strong]).weights.tolist() == [0, 1]


def test_of_classifiers_that_cannot_be_told_apart_the_first_has_the_first_vote() -> None:
    true, labels = given()
    equals = [predictions(true, 1.5, 1), predictions(true, 1.5, 1) ** 0.999]
    for order in (equals, equals[::-1]):
        assert pool_by_likelihood(labels, order).weights.tolist() == [1, 0]


def test_one_that_memorised_wrong_labels_of_others_is_not_preferred() -> None:
    """Its predictions are near the given labels of *other* samples, as those of an overfitted model are."""
    true, labels = given(0.45)
    memorised = np.full((SAMPLES, CLASSES), 0.01)
    memorised[np.arange(SAMPLES), np.random.default_rng(3).permutation(labels)] = 1
    assert pool_by_likelihood(labels, [memorised, predictions(true, 1.5, 1)]).weights[1] == 1


def test_classifiers_with_independent_errors_vote_together_and_are_better() -> None:
    true, labels = given()
    several = [predictions(true, 1.2, seed) for seed in (1, 2, 3)]
    pool = pool_by_likelihood(labels, several)
    assert (pool.weights > 0).all()
    assert accuracy(pool.probabilities, true) > max(accuracy(each, true) for each in several) + 0.03


def test_one_classifier_is_its_own_pool() -> None:
    true, labels = given()
    only = predictions(true, 1.5, 1)
    pool = pool_by_likelihood(labels, [only])
    found = audit_predictions(labels, only)
    np.testing.assert_allclose(pool.probabilities, calibrate(only, found.temperature, found.bias), rtol=1e-6)


def test_likelihood_is_that_of_the_given_labels() -> None:
    """By hand: Σ_j b_j T_jy for calibrated beliefs; the priors of the parameters are of the order 1/N."""
    true, labels = given()
    probabilities = predictions(true, 2.0, 1)
    found = audit_predictions(labels, probabilities)
    belief = calibrate(probabilities, found.temperature, found.bias)
    by_hand = np.log((belief * found.transition[:, labels].T).sum(axis=1)).mean()
    assert found.log_likelihood == pytest.approx(by_hand, abs=0.02)


def test_geometric_mean_of_equals_is_the_same_and_weights_are_exponents() -> None:
    rows = np.random.default_rng(0).dirichlet(np.ones(3), 5)
    other = np.random.default_rng(1).dirichlet(np.ones(3), 5)
    np.testing.assert_allclose(geometric_mean([rows, rows], np.array([0.3, 0.7])), rows)
    by_hand = rows**0.25 * other**0.75
    expected = by_hand / by_hand.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(geometric_mean([rows, other], np.array([0.25, 0.75])), expected)


def test_known_labels_decide_where_given_ones_cannot() -> None:
    """With half of the labels of every class turned into the next one, given labels fit both classes alike."""
    true = np.random.default_rng(0).integers(0, CLASSES, SAMPLES)
    labels = np.where(np.random.default_rng(1).random(SAMPLES) < 0.5, (true + 1) % CLASSES, true)
    right, wrong = predictions(true, 2.5, 2), predictions((true + 1) % CLASSES, 2.5, 2)
    known = np.arange(SAMPLES) < 40
    labels[known] = true[known]
    assert pool_by_likelihood(labels, [wrong, right], known).weights.tolist() == [0, 1]


def test_labels_that_are_all_known_are_as_given_ones() -> None:
    true, labels = given()
    several = [predictions(true, 1.2, seed) for seed in (1, 2)]
    found = pool_by_likelihood(labels, several, np.ones(SAMPLES, dtype=bool))
    np.testing.assert_array_equal(found.weights, pool_by_likelihood(labels, several).weights)


def test_an_estimation_that_starts_from_similar_predictions_ends_at_the_same_result() -> None:
    true, labels = given()
    first, second = predictions(true, 1.5, 1), predictions(true, 1.5, 1) ** 0.9
    found = audit_predictions(labels, second)
    from_similar = audit_predictions(labels, second, audit_predictions(labels, first))
    assert from_similar.log_likelihood == pytest.approx(found.log_likelihood, abs=1e-4)
    np.testing.assert_allclose(from_similar.quality, found.quality, atol=0.01)
