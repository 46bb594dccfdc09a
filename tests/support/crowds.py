"""Simulated annotators."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def confusion_of(accuracy: float, classes: int) -> NDArray[np.float64]:
    """Return a confusion matrix with equal accuracies and equal errors, (C, C)."""
    wrong = np.full((classes, classes), (1 - accuracy) / (classes - 1))
    np.fill_diagonal(wrong, accuracy)
    return wrong


def labelled_by(
    truth: NDArray[np.int64], confusion: NDArray[np.float64], *, gaps: float = 0.0, seed: int = 0
) -> NDArray[np.int64]:
    """Return labels (N, A) drawn from confusion matrices (A, C, C), with a share of gaps, which are -1."""
    generator = np.random.default_rng(seed)
    cumulative = confusion.cumsum(axis=2)[:, truth]  # (A, N, C)
    labels = (generator.random((*cumulative.shape[:2], 1)) > cumulative).sum(axis=2).clip(max=confusion.shape[1] - 1)
    return np.where(generator.random(labels.shape) < gaps, -1, labels).T


def triples_of(table: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return items, annotators and labels, (L,) each, of a table (N, A) with gaps of -1."""
    items, annotators = np.nonzero(table >= 0)
    return items, annotators, table[items, annotators]
