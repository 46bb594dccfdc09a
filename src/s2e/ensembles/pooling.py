"""Pools of classifiers, chosen without any label that is known to be correct. Pure: arrays in, arrays out.

Notation and shapes:
    N samples, C classes, K classifiers
    p_kij  (K, N, C)  probability of class j for sample i, of classifier k not trained on this sample
    known  (N,)       whether the label of a sample is known to be correct, as in a clean validation part
    w_k    (K,)       weights, which sum to 1
    g_ij   (N, C)     the pool: g ∝ Π_k p̃_k^(w_k), the weighted geometric mean of calibrated probabilities

The label model (`s2e.audit.label_model`) calibrates the probabilities of a classifier (temperature and bias) and
estimates the transition matrix; its diagonal is the share of correct labels among the samples that the classifier is
surest about. The log-likelihood of the labels then compares classifiers: ln Σ_j b_ij T_jy of a given label, ln b_iy of
a known one, where b is the calibrated belief of the label model. With a free diagonal the likelihood would prefer
classifiers that predict the noise instead of the class, where noise depends on the sample; known labels decide most.

Each classifier is calibrated by itself. The first vote is that of the classifier with the largest likelihood; if others
before it in the list have nearly the same, up to `LEAST_EVIDENCE`, that of the first of them. The pool then grows
greedily: the classifier, also one that is in it already, with which the likelihood of the pool is largest gets one more
vote, as long as the likelihood increases by more than `LEAST_GAIN`.

The predictions must be those of cross-fitting on the *given* labels. Classifiers trained on cleaned labels cannot be
compared in this way: the cleaned labels of the other samples depend on the given label of the held-out one, and the
likelihood rewards this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from s2e.audit import Evidence, LabelAudit, audit, belief_of

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

MOST_VOTES = 6
"""Votes in a pool."""

LEAST_GAIN = 1e-3
"""Gain in mean log-likelihood that one more vote must bring."""

LEAST_EVIDENCE = 2.0
"""Difference of log-likelihoods, of all samples together, from which a classifier has more votes than one before it."""

MOST_NUMBERS = 2**17
"""Numbers of an (N, C) array by which pools are compared: every n-th sample of more."""

_LEAST_PROBABILITY = 1e-9


@dataclass(frozen=True, eq=False)
class Pool:
    """A pool of K classifiers.

    Attributes:
        weights: (K,) shares of the votes.
        probabilities: (N, C) g, for samples that no classifier was trained on.
    """

    weights: Floats
    probabilities: Floats


def pool_by_likelihood(
    labels: Labels,
    probabilities: Sequence[Floats],
    known: NDArray[np.bool_] | None = None,
    *,
    call_each: Callable[..., Iterator[Any]] = map,
) -> Pool:
    """Choose the votes of classifiers.

    Args:
        labels: (N,) given labels.
        probabilities: (N, C) of each of the K classifiers, for samples that it was not trained on; the one that is
            preferred where the labels cannot decide comes first.
        known: (N,) bool, labels that are known to be correct; None for none.
        call_each: `map`, or that of an executor, whose threads then estimate several classifiers at a time.
    """
    is_known = np.zeros(len(labels), dtype=bool) if known is None or known.all() else known
    audits = list(call_each(lambda each: audit_predictions(labels[~is_known], each[~is_known]), probabilities))
    calibrated = [
        calibrate(each, found.temperature, found.bias) for each, found in zip(probabilities, audits, strict=True)
    ]
    rows = slice(None, None, max(1, calibrated[0].size // MOST_NUMBERS))
    logs = np.stack([np.log(np.maximum(each[rows], _LEAST_PROBABILITY)) for each in calibrated])  # (K, n, C)
    votes, best = np.zeros(len(calibrated)), -np.inf
    while votes.sum() < MOST_VOTES:
        sums, count = np.tensordot(votes, logs, axes=1), votes.sum() + 1
        pools = [softmax((sums + own) / count, axis=1) for own in logs]
        likelihood = partial(_log_likelihood, labels[rows], is_known[rows])
        reached = list(call_each(likelihood, pools, audits))
        if max(reached) <= best + LEAST_GAIN:
            break
        # Differences of less are chance: the first vote is then that of the classifier that comes first.
        slack = LEAST_EVIDENCE / logs.shape[1] if not votes.any() else 0.0
        chosen = int(np.argmax(np.array(reached) >= max(reached) - slack))
        best = reached[chosen]
        votes[chosen] += 1
    weights = votes / votes.sum()
    return Pool(weights, geometric_mean(calibrated, weights))


def _log_likelihood(labels: Labels, known: NDArray[np.bool_], probabilities: Floats, similar: LabelAudit) -> float:
    """Return the mean log-likelihood of given and known labels, (N,), under the predictions (N, C) of a pool.

    Args:
        labels: (N,)
        known: (N,) bool
        probabilities: (N, C)
        similar: audit of a similar classifier, from which the estimation starts.
    """
    found = audit_predictions(labels[~known], probabilities[~known], similar)
    if not known.any():
        return found.log_likelihood
    belief = belief_of(calibrate(probabilities[known], found.temperature, found.bias))
    of_known = float(np.log(belief[np.arange(len(belief)), labels[known]]).sum())
    return (found.log_likelihood * int((~known).sum()) + of_known) / len(labels)


def audit_predictions(labels: Labels, probabilities: Floats, similar: LabelAudit | None = None) -> LabelAudit:
    """Audit labels (N,) by the predictions (N, C) of a classifier that was not trained on the samples.

    The estimation starts from the result for a `similar` classifier, if there is one.
    """
    unseen = np.zeros(len(labels)), np.empty((0, len(labels)))
    return audit(Evidence(labels, probabilities[None], *unseen), similar)


def calibrate(probabilities: Floats, temperature: float, bias: Floats) -> Floats:
    """Return calibrated probabilities (N, C), with the temperature and the bias (C,) that an audit found."""
    logs = np.log(np.maximum(probabilities, _LEAST_PROBABILITY))
    return np.asarray(softmax(logs / temperature + bias, axis=1))


def geometric_mean(probabilities: Sequence[Floats], weights: Floats) -> Floats:
    """Return the weighted geometric mean of probabilities (N, C), rows normalised."""
    logs = sum(
        weight * np.log(np.maximum(each, _LEAST_PROBABILITY))
        for each, weight in zip(probabilities, weights.tolist(), strict=True)
    )
    return np.asarray(softmax(logs, axis=1))
