"""Which labels are probably wrong, estimated from the dynamics of a training. Pure: arrays in, arrays out.

Notation and shapes:
    N samples, C classes, M networks, S epoch intervals
    y_i            given label
    z_i            true class, unknown
    ℓ_is           mean cross-entropy of y_i under the networks, in interval s
    κ_i            share of the times sample i was in a batch that a network was trained on it
    p_ij   (N, C)  probabilities of the trained networks, mean of the M of them
    b_ij   (N, C)  belief that z_i = j, from the training
    T_jk   (C, C)  probability that a sample of class j was given the label k
    r_ij   (N, C)  posterior probability that z_i = j
    τ              temperature: calibrated beliefs are b^(1/τ)

The belief in the given label pools the odds over the whole training, because at its end the networks have memorised
many wrong labels. The rest is distributed among the other classes as by the trained networks:

    λ_i = mean over s of ln(q_is / (1 − q_is)), q_is = e^(−ℓ_is);   b_iy = 1/(1 + e^(−λ_i));   b_ij ∝ p_ij for j ≠ y_i

Networks are over- or underconfident, so b is replaced by b^(1/τ), rows normalised. Given τ, two equations in the two
unknowns r and T are iterated to a fixed point:

    r_ij ∝ b_ij · T_jy^(1 − κ_i)                     Bayes' rule, y = y_i
    T_jk ∝ 1[j = k] + Σ over i with y_i = k of r_ij  counts of class j among the samples labelled k

For samples that no network was trained on (κ = 0) this is expectation maximisation: the belief depends on the input
alone, and the given label is independent evidence, as reliable as T states. For samples that every network was trained
on each time (κ = 1) the belief already contains this evidence, and it must not count twice. Between the two it counts
in part. The indicator adds one correctly labelled pseudo-sample per class. It determines T for classes that no sample
is believed to belong to, and is negligible against real counts.

τ maximises the likelihood of the given labels, Σ_i ln Σ_j b_ij T_jy. Where κ = 0 this estimate is consistent, as are
those of r and T. Where networks were trained on the labels, it is biased towards overconfidence. For networks as they
come out of a training this bias costs less than beliefs whose scale is off by a factor, which τ corrects.

The belief of a reviewed label is 1: its quality is 1, it is never an issue, and it counts fully in T.

A label is an issue if it is more likely wrong than correct. The posterior is a probability, so the threshold is 1/2.

There is one exception. Where most samples with the label k are believed to belong to one other class, either most of
these labels are wrong or, far more often, the networks have not learnt the class: they were trained for too few epochs,
or converged to a wrong class under noise that confuses two classes. Beliefs about labels k are then unreliable. The
quality r becomes (1 + r)/2, which keeps the order of these labels but makes none of them an issue.

With many classes, arrays (N, C) and (C, C) would not fit the memory. Beliefs are therefore kept for L candidates of
each sample, the given label and the classes with the largest beliefs, and T for the pairs of a candidate and a given
label that occur. The number of iterations is small, too: T has more entries than there are samples, and most of them
remain what they were at the start. With up to `MAX_CLASSES_IN_FULL` classes, all are candidates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit, softmax

from s2e.audit.evidence import Evidence
from s2e.errors import InvalidInput

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Labels = NDArray[np.int64]

THRESHOLD = 0.5
"""Labels of lower quality are issues."""

_LEAST_LOSS = float(np.finfo(np.float32).eps)
"""Smallest loss: networks compute in float32, where a probability closer than this to 1 rounds to 1."""

_TOLERANCE = 1e-6
"""The iteration ends when no entry of T changes by more; the statistical error of T is far larger."""

_MAX_ITERATIONS = 1000

MAX_CLASSES_IN_FULL = 128
"""Largest number of classes of which all are candidates of every sample."""

CANDIDATES_OF_MANY, ITERATIONS_OF_MANY = 32, 30
"""L, and the largest number of iterations, with more classes."""

MAX_TRANSITION_CLASSES = 2000
"""Largest number of classes for which the transition matrix is returned, 32 MB."""

_ROUNDING = 1e-9
"""Relative difference up to which two sums over many samples count as equal."""

_CHUNK = 2**24
"""Numbers of an (N, C) array that are computed at a time."""

_TEMPERATURES = (1 / 32, 8.0)
"""Bounds of τ: at the lower one odds of 1.25 become 1000, at the upper one odds of 1000 become 2.4."""


@dataclass(frozen=True, eq=False)
class LabelAudit:
    """The result of an audit.

    Attributes:
        quality: (N,) probability that the given label is correct.
        suggested: (N,) the given label, or, for an issue, the most probable other one.
        alternative: (N,) the most probable label other than the given one.
        probability: (N,) probability that the suggested label is correct; may be below 1/2 for an issue.
        threshold: labels whose quality is below it are issues.
        issues: (N,) bool, labels that are more likely wrong than correct.
        noise_rate: estimated share of wrong labels, among those of classes that are not doubtful.
        transition: (C, C) estimated probability that a sample of class j (row) was given the label k (column); empty,
            (0, 0), with more than `MAX_TRANSITION_CLASSES` classes.
        doubtful: (C,) bool, classes that the networks probably have not learnt: samples with this label are more often
            believed to belong to one certain other class. None of these labels is an issue.
        temperature: τ; below 1 the networks were underconfident, above 1 overconfident.
    """

    quality: Floats
    suggested: Labels
    alternative: Labels
    probability: Floats
    threshold: float
    issues: NDArray[np.bool_]
    noise_rate: float
    transition: Floats
    doubtful: NDArray[np.bool_]
    temperature: float


def audit(evidence: Evidence, *, temperature: float | None = None) -> LabelAudit:
    """Estimate which labels are wrong.

    Args:
        evidence: the records of a training.
        temperature: τ; 1 leaves the beliefs unchanged, None estimates it.
    """
    if temperature is not None and not 0 < temperature < np.inf:
        raise InvalidInput(f"`temperature` must be positive and finite, but got {temperature}.")
    labels = evidence.labels
    beliefs = _Beliefs.of(evidence)
    if temperature is None:
        temperature = _most_likely_temperature(beliefs, evidence.kept)
    belief = _tempered(beliefs.belief, temperature)
    posterior, joint = _posterior(belief, beliefs.pairs, evidence.kept)
    doubtful = beliefs.pairs.is_confused(joint)  # (C,)
    excluded = doubtful[labels]  # (N,)
    of_given = (posterior * beliefs.is_given).sum(axis=1)
    counted = of_given if excluded.all() else of_given[~excluded]
    quality = np.where(excluded, (1 + of_given) / 2, of_given)
    issues = quality < THRESHOLD
    other = np.where(beliefs.is_given, -1.0, posterior).argmax(axis=1)[:, None]  # (N, 1)
    alternative = np.take_along_axis(beliefs.candidates, other, axis=1)[:, 0]
    return LabelAudit(
        quality=quality,
        suggested=np.where(issues, alternative, labels),
        alternative=alternative,
        probability=np.where(issues, np.take_along_axis(posterior, other, axis=1)[:, 0], of_given),
        threshold=THRESHOLD,
        issues=issues,
        noise_rate=float(1 - counted.mean()),
        transition=beliefs.pairs.matrix(joint),
        doubtful=doubtful,
        temperature=temperature,
    )


@dataclass(frozen=True, eq=False)
class _Pairs:
    """The Q pairs (j, k) of a class and a label that occur: j is a candidate of a sample with the label k.

    Attributes:
        row, column: (Q,) j and k.
        index: (N, L) pair of each candidate.
        classes: C.
    """

    row: Labels
    column: Labels
    index: Labels
    classes: int

    @classmethod
    def of(cls, candidates: Labels, labels: Labels, classes: int) -> _Pairs:
        keys, index = np.unique(candidates * classes + labels[:, None], return_inverse=True)
        return cls(keys // classes, keys % classes, index.reshape(candidates.shape), classes)

    def counts(self, posterior: Floats) -> Floats:
        """Return the expected number of samples of class j with the label k, (Q,)."""
        return np.bincount(self.index.ravel(), posterior.ravel(), len(self.row)).astype(np.float64, copy=False)

    def transition(self, joint: Floats) -> Floats:
        """Return T, (Q,), from expected counts and one correctly labelled pseudo-sample of each class."""
        total = 1 + np.bincount(self.row, joint, self.classes)  # (C,)
        return np.asarray((joint + (self.row == self.column)) / total[self.row])

    def matrix(self, joint: Floats) -> Floats:
        """Return T, (C, C); empty if there are too many classes."""
        if self.classes > MAX_TRANSITION_CLASSES:
            return np.zeros((0, 0))
        counts = np.eye(self.classes)
        counts[self.row, self.column] += joint
        return np.asarray(counts / counts.sum(axis=1, keepdims=True))

    def is_confused(self, joint: Floats) -> NDArray[np.bool_]:
        """Return the labels whose samples are expected to belong more often to one certain other class, (C,)."""
        same = self.row == self.column
        own = np.bincount(self.column[same], joint[same], self.classes)  # (C,)
        largest = np.zeros(self.classes)
        np.maximum.at(largest, self.column, joint)
        return np.asarray(largest > (1 + _ROUNDING) * own)


@dataclass(frozen=True, eq=False)
class _Beliefs:
    """Beliefs of all samples.

    Attributes:
        candidates: (N, L) classes, increasing, among them the given label.
        belief: (N, L) b, rows sum to 1.
        is_given: (N, L) whether the candidate is the given label.
        pairs: the pairs of a candidate and the given label.
    """

    candidates: Labels
    belief: Floats
    is_given: NDArray[np.bool_]
    pairs: _Pairs

    @classmethod
    def of(cls, evidence: Evidence) -> _Beliefs:
        rows = max(1, _CHUNK // evidence.classes)
        chunks = [slice(first, first + rows) for first in range(0, len(evidence.labels), rows)]
        parts = [_candidates(_belief(evidence, chunk), evidence.labels[chunk]) for chunk in chunks]
        candidates, belief = (np.concatenate(each) for each in zip(*parts, strict=True))
        pairs = _Pairs.of(candidates, evidence.labels, evidence.classes)
        return cls(candidates, belief, candidates == evidence.labels[:, None], pairs)


def _candidates(belief: Floats, labels: Labels) -> tuple[Labels, Floats]:
    """Return the candidates of samples and the beliefs in them, (n, L) each, from beliefs (n, C)."""
    samples, classes = belief.shape
    if classes <= MAX_CLASSES_IN_FULL:
        return np.tile(np.arange(classes), (samples, 1)), belief
    ranked = belief.copy()
    ranked[np.arange(samples), labels] = np.inf
    chosen = np.sort(np.argpartition(-ranked, CANDIDATES_OF_MANY - 1, axis=1)[:, :CANDIDATES_OF_MANY], axis=1)
    of_chosen = np.take_along_axis(belief, chosen, axis=1)
    return chosen, of_chosen / of_chosen.sum(axis=1, keepdims=True)


def _belief(evidence: Evidence, rows: slice) -> Floats:
    """Return b of some samples, (n, C), rows sum to 1."""
    labels = evidence.labels[rows]
    each = np.arange(len(labels))
    final = evidence.probabilities[:, rows].mean(axis=0, dtype=np.float64)  # (n, C)
    final /= final.sum(axis=1, keepdims=True)
    odds = _pooled_log_odds(evidence.loss[:, rows], final[each, labels])  # (n,)
    final[each, labels] = 0.0
    rest = final.sum(axis=1, keepdims=True)  # (n, 1)
    shares = np.divide(final, rest, out=np.full(final.shape, 1 / (evidence.classes - 1)), where=rest > 0)
    belief = expit(-odds)[:, None] * shares
    belief[each, labels] = expit(odds)
    if evidence.reviewed is not None:
        known = evidence.reviewed[rows]
        belief[known] = labels[known, None] == np.arange(evidence.classes)
    return np.asarray(belief)


def _pooled_log_odds(loss: Floats, final: Floats) -> Floats:
    """Return λ, (N,): the mean of ln(q/(1 − q)) = −ℓ − ln(1 − e^(−ℓ)) over the intervals with a loss.

    Args:
        loss: (S, N) ℓ, NaN where the sample was in no batch.
        final: (N,) probability of the given label after the training, for samples without any loss.
    """
    unseen = np.isnan(loss).all(axis=0)  # (N,)
    with np.errstate(divide="ignore"):
        final_loss = np.where(unseen, -np.log(final), np.nan)
    losses = np.concatenate([loss, final_loss[None]])  # (S + 1, N)
    known = ~np.isnan(losses)
    losses = np.maximum(losses, _LEAST_LOSS)
    odds = -losses - np.log(-np.expm1(-losses))
    return np.asarray(np.where(known, odds, 0.0).sum(axis=0) / known.sum(axis=0))


def _tempered(belief: Floats, temperature: float) -> Floats:
    """Return b^(1/τ), (N, L), rows normalised."""
    with np.errstate(divide="ignore"):
        return np.asarray(softmax(np.log(belief) / temperature, axis=1))


def _most_likely_temperature(beliefs: _Beliefs, kept: Floats) -> float:
    """Return the τ that maximises Σ_i ln Σ_j b_ij T_jy, where T depends on τ; optimised on a logarithmic scale."""
    pairs = beliefs.pairs

    def negative_log_likelihood(log_temperature: float) -> float:
        tempered = _tempered(beliefs.belief, float(np.exp(log_temperature)))
        _, joint = _posterior(tempered, pairs, kept)
        return float(-np.log((tempered * pairs.transition(joint)[pairs.index]).sum(axis=1)).sum())

    bounds = np.log(_TEMPERATURES)
    found = minimize_scalar(negative_log_likelihood, bounds=bounds, method="bounded", options={"xatol": 0.01})
    return float(np.exp(found.x))


def _posterior(belief: Floats, pairs: _Pairs, kept: Floats) -> tuple[Floats, Floats]:
    """Return r, (N, L), and the expected number of samples of each pair of a class and a label, (Q,)."""
    weight = (1 - kept)[:, None]  # (N, 1), of the given label as independent evidence
    # Half the labels are correct, half are drawn from all classes.
    transition = ((pairs.row == pairs.column) + 1 / pairs.classes) / 2
    for _ in range(_MAX_ITERATIONS if pairs.classes <= MAX_CLASSES_IN_FULL else ITERATIONS_OF_MANY):
        posterior = belief * transition[pairs.index] ** weight
        posterior /= posterior.sum(axis=1, keepdims=True)
        joint = pairs.counts(posterior)
        before, transition = transition, pairs.transition(joint)
        if np.abs(transition - before).max() < _TOLERANCE:
            break
    return posterior, joint
