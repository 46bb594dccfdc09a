"""Scores of classifiers on labelled samples: accuracy, balanced accuracy, average precision. Pure: tensors in and out.

Letters: G classifiers, N samples, C classes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from s2e.errors import unknown_name

ACCURACY = "accuracy"
"""Name of the score that is measured where no other is chosen."""

BALANCED_ACCURACY = "balanced-accuracy"
"""Name of the score whose classifiers are trained with equal weights of all classes, where these are weighted."""

Score = Callable[[Tensor, Tensor], Tensor]
"""A function of probabilities (G, N, C) and labels (N,) that returns a score in [0, 1] of each classifier, (G,)."""


def accuracy(probabilities: Tensor, labels: Tensor) -> Tensor:
    """Return the share of samples whose most probable class is their label, (G,) float64."""
    return (probabilities.argmax(dim=-1) == labels).to(torch.float64).mean(dim=-1)


def balanced_accuracy(probabilities: Tensor, labels: Tensor) -> Tensor:
    """Return the mean over classes of the accuracy on their samples, (G,) float64.

    Classes without samples are left out. Equals accuracy where all classes have the same number of samples.
    """
    correct = (probabilities.argmax(dim=-1) == labels).to(torch.float64)  # (G, N)
    return (correct * class_weights(labels, probabilities.shape[-1])).sum(dim=-1)


def class_weights(labels: Tensor, classes: int) -> Tensor:
    """Return weights of samples that give every class that occurs the same total, (N,) float64; they sum to 1."""
    counts = torch.bincount(labels, minlength=classes).to(torch.float64)  # (C,)
    return 1 / (counts[labels] * (counts > 0).sum())


def average_precision(probabilities: Tensor, labels: Tensor) -> Tensor:
    """Return the average precision, (G,) float64: of the last of two classes, or the mean over more classes.

    The average precision of a class is the sum over its samples of the precision among all samples that are at least as
    probable, divided by the number of its samples. Classes without samples are left out.
    """
    classes = probabilities.shape[-1]
    columns = range(1, 2) if classes == 2 else range(classes)
    each = torch.stack([_of_class(probabilities[..., column], labels == column) for column in columns])  # (·, G)
    occurs = torch.stack([(labels == column).any() for column in columns])  # (·,)
    return torch.where(occurs[:, None], each, 0.0).sum(dim=0) / occurs.sum().clamp(min=1)


def _of_class(scores: Tensor, positive: Tensor) -> Tensor:
    """Return the average precision of scores (G, N) for samples of which some are positive, (N,): (G,)."""
    ordered, order = scores.to(torch.float64).neg().sort(dim=-1)  # the most probable first
    hits = positive[order].to(torch.float64)  # (G, N)
    last = torch.searchsorted(ordered, ordered, right=True) - 1  # the last sample that is as probable, (G, N)
    precision = hits.cumsum(dim=-1).gather(-1, last) / (last + 1)
    return (hits * precision).sum(dim=-1) / positive.sum().clamp(min=1)


SCORES: dict[str, Score] = {
    ACCURACY: accuracy,
    BALANCED_ACCURACY: balanced_accuracy,
    "average-precision": average_precision,
}


def score_of(name: str) -> Score:
    """Return a score by its name."""
    if name not in SCORES:
        raise unknown_name("score", name, SCORES)
    return SCORES[name]
