"""The true classes of items and the confusion of annotators, from labels of several annotators. Pure.

Dawid & Skene (1979), by expectation maximisation. Notation and shapes:
    N items, A annotators, C classes, L labels, Q pairs (annotator, label) that occur
    z_i            true class of item i, unknown
    (i, a, k)      annotator a gave the label k to item i; L such triples
    b_ij   (N, C)  belief that z_i = j before its labels are seen: class shares π_j, or those of a classifier
    θ_ajk          probability that annotator a gives the label k to an item of class j
    r_ij   (N, C)  posterior probability that z_i = j
    n_ajk          expected number of labels k that annotator a gave to items of class j

    r_ij ∝ b_ij Π over labels (a, k) of item i of θ_ajk         expectation, in logarithms
    n_ajk = Σ over labels (i, a, k) of r_ij                     maximisation
    θ_ajk = (n_ajk + s m_ajk) / (Σ_k n_ajk + s)
    π_j ∝ Σ_i r_ij + s/C

With s = 0 this is the estimate of Dawid and Skene. An annotator with few labels, and a class that an annotator has
hardly seen, are shrunk to m with the weight of s labels. The accuracy in m is that of all annotators for the class,
with the odds multiplied by the ratio that distinguishes this annotator over all classes. Wrong labels are distributed
as those of all annotators:

    m_ajj = α_aj,   m_ajk = (1 − α_aj) h_jk for k ≠ j,   α_aj/(1 − α_aj) = ρ_a g_j/(1 − g_j)

g_j and h_jk are from the counts of all annotators and a few pseudo-counts, of which more are correct than wrong: this
determines which class is which. ρ_a is the ratio of the odds of annotator a to be correct and those that all annotators
have on the classes it labelled; it is shrunk to 1 by a few labels.

Only items with labels of two or more annotators are counted in n: a single label says nothing about the accuracy of its
annotator, and would be fitted by any. If there is no such item, r are the labels themselves. With beliefs of a
classifier, or s = 0, all items are counted.

At the end, the posterior of every item is computed once more with θ and π from all other items (n without its own r):
its own labels, which θ was fitted to, would confirm themselves. Where annotators have few labels, this removes most of
the excess of confidence.

θ is kept for the Q pairs that occur, so that memory is O(L C). Both steps are products with the sparse matrix (N, Q) of
the numbers of labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse
from scipy.special import betaincinv, expit, logit, logsumexp, softmax

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Labels = NDArray[np.int64]

SHRINKAGE = 16.0
"""s, a number of labels."""

_RATIO_SHRINKAGE = 4.0
"""Number of labels by which the ratio ρ of an annotator is shrunk to 1; it rests on the labels of all classes."""

TOLERANCE = 1e-4
"""The iteration ends when no entry of θ changes by more; its statistical error is far larger."""

MAX_ITERATIONS = 1000

INTERVAL = 0.95
"""Probability of the intervals of accuracies."""

_LEAST_VARIANCE = 1e-6

_MOST_COMPARED = 1000
"""Largest number of annotators whose accuracies are estimated together; the errors of more are taken as independent."""

_CHUNK = 2**23
"""Numbers of an (L, C) array that are computed at a time."""

_CORRECT, _WRONG = 4.0, 1.0
"""Pseudo-counts of correct and of wrong labels for every class."""

_ALMOST = 1 - 1e-12
"""Largest accuracy that has odds."""


@dataclass(frozen=True, eq=False)
class DawidSkene:
    """The fixed point of the iteration.

    Attributes:
        posterior: (N, C) r, for s > 0 with θ from the other items; b for items without labels.
        log_likelihood: Σ_i ln Σ_j b_ij Π θ_ajk.
        iterations: their number.
        converged: whether θ has settled within the tolerance.
        compared: (N,) bool, items with labels of two or more annotators.
    """

    posterior: Floats
    log_likelihood: float
    iterations: int
    converged: bool
    compared: NDArray[np.bool_]
    _pairs: _Pairs
    _counts: Floats
    _shrinkage: float

    def confusion(self, annotator: int) -> Floats:
        """Return θ of one annotator, (C, C): true class, label. Rows without a label are m where s = 0."""
        pairs, classes = self._pairs, self._pairs.shape[2]
        own = pairs.annotator == annotator
        counts = np.zeros((classes, classes))
        counts[:, pairs.label[own]] = self._counts[own].T
        accuracy, wrong = _targets(pairs, self._counts)
        target = (1 - accuracy[annotator])[:, None] * wrong + np.diag(accuracy[annotator])
        total = counts.sum(axis=1, keepdims=True) + self._shrinkage  # (C, 1)
        return np.asarray(np.divide(counts + self._shrinkage * target, total, out=target, where=total > 0))


def dawid_skene(
    items: Labels,
    annotators: Labels,
    labels: Labels,
    shape: tuple[int, int, int],
    *,
    belief: Floats | None = None,
    shrinkage: float = SHRINKAGE,
    tolerance: float = TOLERANCE,
    max_iterations: int = MAX_ITERATIONS,
) -> DawidSkene:
    """Estimate the posterior by iteration.

    It starts from the shares of the classes among the labels of an item; with beliefs, from annotators of whose labels
    half are correct and half are drawn from all classes.

    Args:
        items: (L,) indices in [0, N).
        annotators: (L,) indices in [0, A).
        labels: (L,) indices in [0, C); C is at least 2.
        shape: (N, A, C).
        belief: (N, C) b, rows sum to 1; the class shares, estimated too, when None.
        shrinkage: s.
        tolerance: largest change of an entry of θ in the last iteration.
        max_iterations: largest number of iterations, at least 1.
    """
    pairs = _Pairs.of(items, annotators, labels, shape)
    compared = pairs.compared()
    counted = np.ones(len(compared)) if belief is not None or shrinkage == 0 else compared.astype(np.float64)  # (N,)
    if belief is None:
        posterior = _normalised(pairs.votes(), 1 / pairs.shape[2])
        log_belief = np.zeros(1)
        if not counted.any():
            max_iterations = 0
    else:
        with np.errstate(divide="ignore"):
            log_belief = np.log(belief)
        posterior, _ = _posterior(log_belief, pairs, (pairs.is_label + 1 / pairs.shape[2]) / 2)
    confusion, counts = np.full(pairs.is_label.shape, np.inf), np.zeros(pairs.is_label.shape)
    log_likelihood, converged, iterations = 0.0, max_iterations == 0, 0
    while iterations < max_iterations and not converged:
        counts = pairs.matrix.T @ (counted[:, None] * posterior)  # (Q, C)
        if belief is None:
            shares = _normalised(posterior.sum(axis=0) + shrinkage / pairs.shape[2])
            log_belief = np.log(shares, out=np.full(shares.shape, -np.inf), where=shares > 0)
        before, confusion = confusion, _confusion_of_pairs(pairs, counts, shrinkage)
        posterior, log_likelihood = _posterior(log_belief, pairs, confusion)
        converged = bool(np.abs(confusion - before).max() < tolerance)
        iterations += 1
    if shrinkage > 0 and iterations > 0:
        known = None if belief is None else log_belief
        posterior = _without_own(posterior, counted, pairs, counts, shrinkage, known)
    return DawidSkene(posterior, log_likelihood, iterations, converged, compared, pairs, counts, shrinkage)


def annotator_accuracy(
    items: Labels, annotators: Labels, correct: Floats, shape: tuple[int, int, int]
) -> tuple[Floats, Floats, Floats]:
    """Return the accuracy α of every annotator, (A,), and the bounds of its interval.

    The interval is that of a beta distribution with the variance of α: the inverse of the information matrix (A, A) of
    all accuracies, the sum over items of the products of their scores, Σ (c − α)/(α (1 − α)) over the labels of an
    annotator. It is wide where labels are not known to be correct or wrong, and where only few annotators are compared.
    The errors of θ by class are not in it: where one annotator is far better than all others, its accuracy is
    underestimated, and the interval too narrow.

    Args:
        items: (L,) indices in [0, N).
        annotators: (L,) indices in [0, A); each has a label.
        correct: (L,) posterior probability c that a label is correct.
        shape: (N, A, C).
    """
    samples, annotator_count, _ = shape
    accuracy = np.bincount(annotators, correct, annotator_count) / np.bincount(annotators, minlength=annotator_count)
    variance = np.maximum(accuracy * (1 - accuracy), _LEAST_VARIANCE)  # of one label
    of_labels = (correct - accuracy[annotators]) / variance[annotators]
    scores = sparse.csr_matrix((of_labels, (items, annotators)), shape=(samples, annotator_count))
    if annotator_count <= _MOST_COMPARED:
        information = (scores.T @ scores).toarray() + np.diag(1 / variance)  # with that of one label more
        error = np.diag(np.linalg.inv(information))
    else:
        error = 1 / (np.asarray(scores.multiply(scores).sum(axis=0)).ravel() + 1 / variance)
    effective = np.maximum(variance / error - 1, 0.0)  # number of labels
    successes, failures = effective * accuracy + 0.5, effective * (1 - accuracy) + 0.5  # Jeffreys' prior
    low, high = (betaincinv(successes, failures, tail) for tail in ((1 - INTERVAL) / 2, (1 + INTERVAL) / 2))
    return accuracy, np.minimum(low, accuracy), np.maximum(high, accuracy)


@dataclass(frozen=True, eq=False)
class _Pairs:
    """The Q pairs (annotator, label) that occur.

    Attributes:
        annotator, label: (Q,).
        labels: (L,) item and pair of every label.
        is_label: (Q, C) whether the label is class j.
        matrix: (N, Q) sparse, number of labels.
        by_annotator, by_label: (A, Q) and (C, Q) sparse, sum over the pairs of an annotator, or of a label.
        shape: (N, A, C).
    """

    annotator: Labels
    label: Labels
    labels: tuple[Labels, Labels]
    is_label: NDArray[np.bool_]
    matrix: Any
    by_annotator: Any
    by_label: Any
    shape: tuple[int, int, int]

    @classmethod
    def of(cls, items: Labels, annotators: Labels, labels: Labels, shape: tuple[int, int, int]) -> _Pairs:
        samples, annotator_count, classes = shape
        keys, pair = np.unique(annotators * classes + labels, return_inverse=True)
        annotator, label = keys // classes, keys % classes
        each, ones = np.arange(len(keys)), np.ones(len(keys))
        return cls(
            annotator,
            label,
            (items, pair),
            label[:, None] == np.arange(classes),
            sparse.csr_matrix((np.ones(len(items)), (items, pair)), shape=(samples, len(keys))),
            sparse.csr_matrix((ones, (annotator, each)), shape=(annotator_count, len(keys))),
            sparse.csr_matrix((ones, (label, each)), shape=(classes, len(keys))),
            shape,
        )

    def compared(self) -> NDArray[np.bool_]:
        """Return which items have labels of two or more annotators, (N,)."""
        by_item = (self.matrix @ self.by_annotator.T).tocsr()  # (N, A)
        return np.asarray(np.diff(by_item.indptr) > 1)

    def votes(self) -> Floats:
        """Return the number of labels of every class, (N, C)."""
        return np.asarray(self.matrix @ self.is_label.astype(np.float64))


def _posterior(log_belief: Floats, pairs: _Pairs, confusion: Floats) -> tuple[Floats, float]:
    """Return r, (N, C), and the log-likelihood; `log_belief` is (N, C) or (C,), `confusion` θ of the pairs, (Q, C)."""
    with np.errstate(divide="ignore"):
        log_joint = log_belief + pairs.matrix @ np.log(confusion)  # (N, C)
    log_total = logsumexp(log_joint, axis=1, keepdims=True)  # (N, 1)
    return np.exp(log_joint - log_total), float(log_total.sum())


def _confusion_of_pairs(pairs: _Pairs, counts: Floats, shrinkage: float) -> Floats:
    """Return θ, (Q, C), from the counts n, (Q, C)."""
    seen = pairs.by_annotator @ counts  # (A, C)
    if shrinkage == 0:
        return _divided(counts, seen[pairs.annotator])
    shrunk = counts + shrinkage * _target_of_pairs(pairs, counts)
    return np.asarray(shrunk / (seen + shrinkage)[pairs.annotator])


def _target_of_pairs(pairs: _Pairs, counts: Floats) -> Floats:
    """Return m, (Q, C)."""
    accuracy, wrong = _targets(pairs, counts)
    correct = accuracy[pairs.annotator]  # (Q, C)
    return np.where(pairs.is_label, correct, (1 - correct) * wrong.T[pairs.label])


def _without_own(
    posterior: Floats,
    counted: Floats,
    pairs: _Pairs,
    counts: Floats,
    shrinkage: float,
    log_belief: Floats | None,
) -> Floats:
    """Return r, (N, C), of every item from the counts of all other items; `log_belief` None for class shares."""
    classes, (items, pair) = pairs.shape[2], pairs.labels
    if log_belief is None:
        log_joint = np.log(np.maximum(posterior.sum(axis=0) - posterior, 0) + shrinkage / classes)
    else:
        log_joint = log_belief.copy()
    prior = shrinkage * _target_of_pairs(pairs, counts)  # (Q, C)
    seen = (pairs.by_annotator @ counts)[pairs.annotator]  # (Q, C)
    step = max(1, _CHUNK // classes)
    for first in range(0, len(items), step):
        rows, of = items[first : first + step], pair[first : first + step]
        own = counted[rows, None] * posterior[rows]  # (labels of the chunk, C)
        log_confusion = np.log(np.maximum(counts[of] - own, 0) + prior[of])
        log_confusion -= np.log(np.maximum(seen[of] - own, 0) + shrinkage)
        np.add.at(log_joint, rows, log_confusion)
    return np.asarray(softmax(log_joint, axis=1))


def _targets(pairs: _Pairs, counts: Floats) -> tuple[Floats, Floats]:
    """Return α, (A, C), and h, (C, C) with a diagonal of zeros."""
    classes = pairs.shape[2]
    group = (pairs.by_label @ counts).T  # (C, C): true class, label
    own = np.diag(group)
    total = group.sum(axis=1)
    common = (own + _CORRECT) / (total + _CORRECT + _WRONG)  # (C,) g
    wrong = group + _WRONG / (classes - 1)
    np.fill_diagonal(wrong, 0.0)
    wrong /= wrong.sum(axis=1, keepdims=True)
    seen = pairs.by_annotator @ counts  # (A, C)
    given = seen.sum(axis=1)  # (A,)
    expected = _divided(seen @ common, given)  # (A,), of all annotators on the classes that an annotator labelled
    correct = pairs.by_annotator @ (counts * pairs.is_label).sum(axis=1)
    achieved = (correct + _RATIO_SHRINKAGE * expected) / (given + _RATIO_SHRINKAGE)
    log_ratio = _log_odds(achieved) - _log_odds(expected)
    return expit(_log_odds(common) + log_ratio[:, None]), wrong


def _log_odds(probability: Floats) -> Floats:
    return np.asarray(logit(np.clip(probability, 1 - _ALMOST, _ALMOST)))


def _normalised(weights: Floats, otherwise: float = 0.0) -> Floats:
    """Return weights (..., C) divided by their sums; `otherwise` where these are 0."""
    total = weights.sum(axis=-1, keepdims=True)
    return np.asarray(np.divide(weights, total, out=np.full(weights.shape, otherwise), where=total > 0))


def _divided(weights: Floats, total: Floats) -> Floats:
    return np.asarray(np.divide(weights, total, out=np.zeros(np.shape(weights)), where=total > 0))
