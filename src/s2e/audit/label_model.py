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

A label is an issue if it is more likely wrong than correct. The posterior is a probability, so the threshold is 1/2.

There is one exception. Where most samples with the label k are believed to belong to one other class, either most of
these labels are wrong or, far more often, the networks have not learnt the class: they were trained for too few epochs,
or converged to a wrong class under noise that confuses two classes. Beliefs about labels k are then unreliable. The
quality r becomes (1 + r)/2, which keeps the order of these labels but makes none of them an issue.
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

_TEMPERATURES = (1 / 32, 8.0)
"""Bounds of τ: at the lower one odds of 1.25 become 1000, at the upper one odds of 1000 become 2.4."""


@dataclass(frozen=True, eq=False)
class LabelAudit:
    """The result of an audit.

    Attributes:
        quality: (N,) probability that the given label is correct.
        suggested: (N,) the given label, or, for an issue, the most probable other one.
        probability: (N,) probability that the suggested label is correct; may be below 1/2 for an issue.
        threshold: labels whose quality is below it are issues.
        issues: (N,) bool, labels that are more likely wrong than correct.
        noise_rate: estimated share of wrong labels, among those of classes that are not doubtful.
        transition: (C, C) estimated probability that a sample of class j (row) was given the label k (column).
        doubtful: (C,) bool, classes that the networks probably have not learnt: samples with this label are more often
            believed to belong to one certain other class. None of these labels is an issue.
        temperature: τ; below 1 the networks were underconfident, above 1 overconfident.
    """

    quality: Floats
    suggested: Labels
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
    labels, each = evidence.labels, np.arange(len(evidence.labels))
    belief = _belief(evidence)
    if temperature is None:
        temperature = _most_likely_temperature(belief, labels, evidence.kept)
    posterior, joint = _posterior(_tempered(belief, temperature), labels, evidence.kept)
    doubtful = joint.max(axis=0) > joint.diagonal()  # (C,)
    excluded = doubtful[labels]  # (N,)
    quality = posterior[each, labels]
    counted = quality if excluded.all() else quality[~excluded]
    quality = np.where(excluded, (1 + quality) / 2, quality)
    issues = quality < THRESHOLD
    others = posterior.copy()
    others[each, labels] = -1.0
    suggested = np.where(issues, others.argmax(axis=1), labels)
    return LabelAudit(
        quality=quality,
        suggested=suggested,
        probability=posterior[each, suggested],
        threshold=THRESHOLD,
        issues=issues,
        noise_rate=float(1 - counted.mean()),
        transition=_transition(joint),
        doubtful=doubtful,
        temperature=temperature,
    )


def _belief(evidence: Evidence) -> Floats:
    """Return b, (N, C), rows sum to 1."""
    labels, each = evidence.labels, np.arange(len(evidence.labels))
    final = evidence.probabilities.mean(axis=0, dtype=np.float64)  # (N, C)
    final /= final.sum(axis=1, keepdims=True)
    odds = _pooled_log_odds(evidence.loss, final[each, labels])  # (N,)
    final[each, labels] = 0.0
    rest = final.sum(axis=1, keepdims=True)  # (N, 1)
    shares = np.divide(final, rest, out=np.full(final.shape, 1 / (evidence.classes - 1)), where=rest > 0)
    belief = expit(-odds)[:, None] * shares
    belief[each, labels] = expit(odds)
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
    """Return b^(1/τ), (N, C), rows normalised."""
    with np.errstate(divide="ignore"):
        return np.asarray(softmax(np.log(belief) / temperature, axis=1))


def _most_likely_temperature(belief: Floats, labels: Labels, kept: Floats) -> float:
    """Return the τ that maximises Σ_i ln Σ_j b_ij T_jy, where T depends on τ; optimised on a logarithmic scale."""

    def negative_log_likelihood(log_temperature: float) -> float:
        tempered = _tempered(belief, float(np.exp(log_temperature)))
        _, joint = _posterior(tempered, labels, kept)
        return float(-np.log((tempered * _transition(joint).T[labels]).sum(axis=1)).sum())

    bounds = np.log(_TEMPERATURES)
    found = minimize_scalar(negative_log_likelihood, bounds=bounds, method="bounded", options={"xatol": 0.01})
    return float(np.exp(found.x))


def _posterior(belief: Floats, labels: Labels, kept: Floats) -> tuple[Floats, Floats]:
    """Return r, (N, C), and the expected number of samples of each class (row) with each label (column), (C, C)."""
    classes = belief.shape[1]
    given = np.eye(classes)[labels]  # (N, C), one-hot
    weight = (1 - kept)[:, None]  # (N, 1), of the given label as independent evidence
    transition = (np.eye(classes) + 1 / classes) / 2  # half the labels correct, half drawn from all classes
    for _ in range(_MAX_ITERATIONS):
        posterior = belief * transition.T[labels] ** weight
        posterior /= posterior.sum(axis=1, keepdims=True)
        joint = posterior.T @ given  # (C, C)
        before, transition = transition, _transition(joint)
        if np.abs(transition - before).max() < _TOLERANCE:
            break
    return posterior, joint


def _transition(joint: Floats) -> Floats:
    """Return T, (C, C), from expected counts and one correctly labelled pseudo-sample of each class."""
    counts = joint + np.eye(len(joint))
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))
