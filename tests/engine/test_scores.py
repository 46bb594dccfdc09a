"""Scores equal those of scikit-learn, also with ties and with classes without samples."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, average_precision_score, balanced_accuracy_score

from s2e.engine.scores import SCORES, accuracy, average_precision, balanced_accuracy, class_weights, score_of
from s2e.errors import InvalidInput
from s2e.specs import SCORES as NAMES


def drawn(seed, samples=60, classes=3, steps=None):
    generator = np.random.default_rng(seed)
    labels = generator.integers(classes, size=samples)
    probabilities = generator.dirichlet(np.ones(classes), size=(4, samples))
    if steps:  # ties
        probabilities = np.round(probabilities * steps) / steps
    return probabilities, labels


def of(score, probabilities, labels):
    return score(torch.from_numpy(probabilities), torch.from_numpy(labels)).numpy()


@pytest.mark.parametrize("seed", range(3))
def test_accuracies_equal_scikit_learn(seed):
    probabilities, labels = drawn(seed)
    predicted = probabilities.argmax(axis=2)
    np.testing.assert_allclose(of(accuracy, probabilities, labels), [accuracy_score(labels, p) for p in predicted])
    np.testing.assert_allclose(
        of(balanced_accuracy, probabilities, labels), [balanced_accuracy_score(labels, p) for p in predicted]
    )


@pytest.mark.parametrize("steps", [None, 4])
@pytest.mark.parametrize("classes", [2, 3])
def test_average_precision_equals_scikit_learn(classes, steps):
    probabilities, labels = drawn(0, classes=classes, steps=steps)
    truth = labels if classes == 2 else np.eye(classes)[labels]
    expected = [average_precision_score(truth, p[:, 1] if classes == 2 else p) for p in probabilities]
    np.testing.assert_allclose(of(average_precision, probabilities, labels), expected)


def test_classes_without_samples_are_left_out():
    probabilities, labels = drawn(0)
    few = np.minimum(labels, 1)
    each = [average_precision_score(few == column, probabilities[0, :, column]) for column in range(2)]
    assert of(average_precision, probabilities, few)[0] == pytest.approx(np.mean(each))
    predicted = probabilities[0].argmax(axis=1)
    recall = [(predicted[few == column] == column).mean() for column in range(2)]
    assert of(balanced_accuracy, probabilities, few)[0] == pytest.approx(np.mean(recall))


def test_balanced_classes_make_accuracies_equal():
    probabilities, _ = drawn(0)
    labels = np.arange(60) % 3
    np.testing.assert_allclose(of(accuracy, probabilities, labels), of(balanced_accuracy, probabilities, labels))
    np.testing.assert_allclose(class_weights(torch.from_numpy(labels), 3), np.full(60, 1 / 60))


def test_names_are_those_of_the_options():
    assert tuple(SCORES) == NAMES
    assert score_of("accuracy") is accuracy
    with pytest.raises(InvalidInput, match="`score` must be one of"):
        score_of("f1")
