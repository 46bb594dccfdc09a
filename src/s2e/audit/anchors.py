"""Shares of correct labels from anchors, the samples whose class is known best. Pure: arrays in, arrays out.

A classifier that was fitted to the given labels predicts these, and not the classes. Noise that depends on the sample,
or that turns a class into a certain other one, is a part of its predictions. The likelihood of the given labels cannot
tell two explanations apart: labels are right and classes overlap, or classes are clear and labels are wrong. What
decides is the assumption that every class has samples whose class is clear (anchor points; Patrini et al. 2017, "Making
deep neural networks robust to label noise"). Labels of these that are not the predicted class are wrong.

Notation and shapes:
    N samples, C classes
    c_i   (N,)  predicted class of sample i
    p_i   (N,)  its probability
    A_j         anchors: of the samples with c_i = j, the share `SHARE` with the largest p_i, at least `LEAST`, and ties
    n_j   (C,)  their number
    m_j   (C,)  those of them that are labelled j
    a_j   (C,)  share of the samples of class j whose label is right

    ā = (Σ_j m_j + C) / (Σ_j n_j + C + 1/2)           one correct label more for each class, and half a wrong one
    a_j = (m_j + ν ā) / (n_j + ν)

ν is the precision of the a_j about ā (empirical Bayes): with v = ā (1 − ā), w_j = n_j / Σn, and K classes with anchors,

    σ² = (Σ_j w_j (m_j/n_j − ā)² − v (K − 1)/Σn) / (1 − Σ_j w_j²)       variance between classes beyond that of sampling
    ν = v/σ² − 1, in [1/2, `MOST_SHRINKAGE`]; the latter where σ² ≤ 0

Predictions must be those of classifiers that were not trained on the sample. If even the anchors of a class are partly
of other classes, a_j is too small. The constants were chosen on breast_cancer, wine, digits, iris and docstrings, seeds
0 and 1, on tables made for this, and on the tuning sets of `benchmarks/audit_intervals.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Labels = NDArray[np.int64]

SHARE, LEAST = 0.2, 20
"""Anchors as a share of the samples that are predicted as a class, and their least number."""

MOST_SHRINKAGE = 1000.0
"""Largest ν: the a_j are then equal in effect."""


def correct_shares(
    labels: Labels, predicted: Labels, certainty: NDArray[np.floating[Any]], known: NDArray[np.bool_], classes: int
) -> Floats:
    """Return a, (C,), in (0, 1).

    Args:
        labels: (N,) given labels.
        predicted: (N,) most probable classes.
        certainty: (N,) their probabilities, in any increasing scale.
        known: (N,) whether one class is more probable than all others; only these samples can be anchors.
        classes: C.
    """
    chosen = np.zeros(len(labels), dtype=bool)
    chosen[known] = _are_anchors(predicted[known], certainty[known], classes)
    right = chosen & (labels == predicted)
    count, correct = (np.bincount(predicted[of], minlength=classes) for of in (chosen, right))  # (C,)
    mean = float((correct.sum() + classes) / (count.sum() + classes + 0.5))
    shrinkage = _shrinkage(correct, count, mean)
    return np.asarray((correct + shrinkage * mean) / (count + shrinkage))


def _shrinkage(correct: Labels, count: Labels, mean: float) -> float:
    """Return ν, from m, n and ā."""
    present = count > 0
    if present.sum() < 2:
        return MOST_SHRINKAGE
    weight = count[present] / count.sum()
    sampling = mean * (1 - mean)  # v
    between = float((weight * (correct[present] / count[present] - mean) ** 2).sum())
    excess = between - sampling * (len(weight) - 1) / count.sum()
    if excess <= 0:
        return MOST_SHRINKAGE
    variance = excess / (1 - float((weight**2).sum()))
    return float(np.clip(sampling / variance - 1, 0.5, MOST_SHRINKAGE))


def _are_anchors(predicted: Labels, certainty: NDArray[np.floating[Any]], classes: int) -> NDArray[np.bool_]:
    """Return which samples are anchors of the class that is predicted for them, (N,)."""
    if not len(predicted):
        return np.zeros(0, dtype=bool)
    order = np.lexsort((-certainty, predicted))  # by class, the surest first
    size = np.bincount(predicted, minlength=classes)  # (C,)
    first = np.cumsum(size) - size
    wanted = np.minimum(size, np.maximum(LEAST, np.ceil(SHARE * size).astype(np.int64)))
    last = order[np.maximum(first + wanted, 1) - 1]  # of a class without samples, any
    return np.asarray(certainty >= certainty[last][predicted])
