"""Shares of correct labels among anchors, against loops over their equations."""

from __future__ import annotations

import numpy as np
import pytest

from s2e.audit.anchors import LEAST, MOST_SHRINKAGE, SHARE, correct_shares


def drawn(shares, samples=3000, seed=0):
    """Predicted classes, their probabilities, and labels of which these shares are the predicted class."""
    generator = np.random.default_rng(seed)
    predicted = generator.integers(len(shares), size=samples)
    wrong = (predicted + generator.integers(1, len(shares), samples)) % len(shares)
    labels = np.where(generator.random(samples) < np.array(shares)[predicted], predicted, wrong)
    return labels, predicted, generator.random(samples), np.ones(samples, dtype=bool)


def by_loops(labels, predicted, certainty, known, classes):
    counts, corrects = [], []
    for j in range(classes):
        own = sorted((certainty[i], labels[i]) for i in range(len(labels)) if predicted[i] == j and known[i])[::-1]
        size = min(len(own), max(LEAST, int(np.ceil(SHARE * len(own)))))
        chosen = [label for probability, label in own if probability >= own[size - 1][0]]
        counts.append(len(chosen))
        corrects.append(sum(label == j for label in chosen))
    mean = (sum(corrects) + classes) / (sum(counts) + classes + 0.5)
    present = [(c, n, n / sum(counts)) for c, n in zip(corrects, counts, strict=True) if n]
    v = mean * (1 - mean)
    between = sum(w * (c / n - mean) ** 2 for c, n, w in present)
    variance = (between - v * (len(present) - 1) / sum(counts)) / (1 - sum(w**2 for *_, w in present))
    nu = MOST_SHRINKAGE if variance <= 0 else min(max(v / variance - 1, 0.5), MOST_SHRINKAGE)
    return [(c + nu * mean) / (n + nu) for c, n in zip(corrects, counts, strict=True)]


@pytest.mark.parametrize("shares", [[0.9, 0.5, 0.7], [0.8, 0.8, 0.8], [0.99, 0.2]])
@pytest.mark.parametrize("samples", [70, 3000])
def test_shares_are_those_of_loops_over_the_equations(shares, samples):
    labels, predicted, certainty, known = drawn(shares, samples)
    certainty, known = certainty.round(2), certainty > 0.1  # ties, and samples whose class is unknown
    found = correct_shares(labels, predicted, certainty, known, len(shares))
    np.testing.assert_allclose(found, by_loops(labels, predicted, certainty, known, len(shares)))


def test_shares_of_different_classes_stay_apart_and_equal_ones_are_pooled():
    different = correct_shares(*drawn([0.95, 0.5, 0.8]), 3)
    np.testing.assert_allclose(different, [0.95, 0.5, 0.8], atol=0.08)
    equal = correct_shares(*drawn([0.7, 0.7, 0.7]), 3)
    np.testing.assert_allclose(equal, 0.7, atol=0.05)
    assert np.ptp(equal) < 0.05


def test_only_the_surest_samples_count():
    labels, predicted, certainty, known = drawn([0.9, 0.9])
    sure = certainty > 1 - SHARE - 0.05
    found = correct_shares(np.where(sure, labels, 1 - predicted), predicted, certainty, known, 2)
    np.testing.assert_allclose(found, 0.9, atol=0.05)


def test_correct_labels_have_shares_of_nearly_1():
    _, predicted, certainty, known = drawn([1.0, 1.0])
    found = correct_shares(predicted, predicted, certainty, known, 2)
    assert (found > 0.998).all()
    assert (found < 1).all()


def test_shares_of_classes_without_predictions_are_the_mean():
    labels, predicted, certainty, known = drawn([0.8, 0.8])
    found = correct_shares(labels, predicted, certainty, known, 3)
    assert min(found[:2]) - 0.01 <= found[2] <= max(found[:2]) + 0.01


def test_without_any_anchor_labels_count_as_mostly_correct():
    labels, predicted, certainty, known = drawn([0.8, 0.8], samples=50)
    found = correct_shares(labels, predicted, certainty, ~known, 2)
    np.testing.assert_allclose(found, 2 / 2.5)
