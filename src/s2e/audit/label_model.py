"""Which labels are wrong, from the dynamics of a training. Pure: arrays in, arrays out.

Notation and shapes:
    N samples, C classes, M networks of the trained member, S stretches of epochs
    y_i            label the sample was given
    z_i            its true class, which nobody knows
    ℓ_is           mean cross-entropy of y_i under the networks, in stretch s
    κ_i            share of the times it was seen that a network was trained on it
    p_ij   (N, C)  probabilities of the trained networks, mean of the M of them
    b_ij   (N, C)  belief that the class is j, from watching the training
    T_jk   (C, C)  probability that a sample of class j was given the label k
    r_ij   (N, C)  posterior probability that the class is j
    τ              temperature: beliefs are as sure as b^(1/τ)

The belief in the given label pools the odds over the whole training, because at its end networks have learnt many a
wrong label by heart; how the rest is shared among the other classes is what the trained networks say:

    λ_i = mean over s of ln(q_is / (1 − q_is)), q_is = e^(−ℓ_is);   b_iy = 1/(1 + e^(−λ_i));   b_ij ∝ p_ij for j ≠ y_i

Networks are more or less sure than they should be, so b is replaced by b^(1/τ), rows normalised. Given τ, two equations
in the two unknowns r and T are iterated until they agree:

    r_ij ∝ b_ij · T_jy^(1 − κ_i)                     Bayes' rule, y = y_i
    T_jk ∝ 1[j = k] + Σ over i with y_i = k of r_ij  counts of class j among the samples labelled k

For samples that no network was trained on (κ = 0) this is expectation maximisation: the belief comes from the input
alone, and the given label is a second, independent witness, as reliable as T says. For those that every network was
trained on each time (κ = 1) the belief has heard this witness already, who must not be heard twice; between the two it
counts in part. The indicator is one imagined, rightly labelled sample of each class: it decides for classes to which
nobody is believed to belong, and weighs nothing beside real counts.

τ is the one under which the given labels are likeliest, Σ_i ln Σ_j b_ij T_jy. Where κ = 0 that estimate is consistent,
as those of r and T are. Where networks were trained on the labels it leans towards being too sure; with networks as
they come out of a training this costs less than beliefs whose scale is off by a factor, which it mends.

A label is an issue where it is more likely wrong than right. The posterior is a probability as it stands, so the
threshold is one half.

One kind of verdict is withheld. Where most samples with the label k are believed to be of one other class, either most
of these labels are wrong, or, far more often, the networks have not learnt the class: they were trained for too short a
time, or have settled on a wrong class under noise that confuses two of them. What they say about labels k is then worth
nothing; quality r becomes (1 + r)/2, which keeps the order of these labels but makes none of them an issue.
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
"""A label of lower quality is more likely wrong than right."""

_LEAST_LOSS = float(np.finfo(np.float32).eps)
"""Networks compute in float32, where a probability closer than this to 1 is 1 and its loss 0."""

_TOLERANCE = 1e-6
"""The iteration ends when no entry of T moves by more: far below what counting any number of samples can tell."""

_MOST_ITERATIONS = 1000
"""An end to the iteration in any case."""

_TEMPERATURES = (1 / 32, 8.0)
"""Where τ is sought: at one end odds of 1.25 become 1000, at the other odds of 1000 become 2.4."""


@dataclass(frozen=True, eq=False)
class LabelAudit:
    """The verdict on every label.

    Attributes:
        quality: (N,) probability that the given label is right.
        suggested: (N,) the given label, or, for an issue, the likeliest of the others.
        probability: (N,) probability that the suggested label is right; below 1/2 for an issue where none stands out.
        threshold: labels whose quality is below it are issues.
        issues: (N,) bool, labels more likely wrong than right.
        noise_rate: estimated share of wrong labels, among those that are judged.
        transition: (C, C) estimated probability that a sample of class j (row) was given the label k (column).
        doubtful: (C,) bool, classes that the networks probably never learnt: samples with this label are more often
            believed to be of one certain other class. Labels of that name are not judged.
        temperature: τ; below 1 the networks were less sure than their beliefs deserve, above 1 more.
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
    """GenerationPruner every label by the training it went through.

    Args:
        evidence: what the training left behind.
        temperature: τ, if it is known; 1 takes the beliefs as they are, None finds it.
    """
    if temperature is not None and not 0 < temperature < np.inf:
        raise InvalidInput(f"`temperature` must be positive and finite, but got {temperature}.")
    labels, each = evidence.labels, np.arange(len(evidence.labels))
    belief = _belief(evidence)
    if temperature is None:
        temperature = _likeliest_temperature(belief, labels, evidence.kept)
    posterior, joint = _posterior(_tempered(belief, temperature), labels, evidence.kept)
    doubtful = joint.max(axis=0) > joint.diagonal()  # (C,)
    unjudged = doubtful[labels]  # (N,)
    quality = posterior[each, labels]
    judged = quality if unjudged.all() else quality[~unjudged]
    quality = np.where(unjudged, (1 + quality) / 2, quality)
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
        noise_rate=float(1 - judged.mean()),
        transition=_transition(joint),
        doubtful=doubtful,
        temperature=temperature,
    )


def _belief(evidence: Evidence) -> Floats:
    """b (N, C), rows sum to 1."""
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
    """λ (N,): ln(q/(1 − q)) = −ℓ − ln(1 − e^(−ℓ)), mean over the stretches in which the sample was seen.

    Args:
        loss: (S, N) ℓ, NaN where the sample was not seen.
        final: (N,) probability of the given label in the end, for samples that were never seen.
    """
    never = np.isnan(loss).all(axis=0)  # (N,)
    with np.errstate(divide="ignore"):
        at_the_end = np.where(never, -np.log(final), np.nan)
    losses = np.concatenate([loss, at_the_end[None]])  # (S + 1, N)
    counts = ~np.isnan(losses)
    losses = np.maximum(losses, _LEAST_LOSS)
    odds = -losses - np.log(-np.expm1(-losses))
    return np.asarray(np.where(counts, odds, 0.0).sum(axis=0) / counts.sum(axis=0))


def _tempered(belief: Floats, temperature: float) -> Floats:
    """b^(1/τ) (N, C), rows normalised."""
    with np.errstate(divide="ignore"):
        return np.asarray(softmax(np.log(belief) / temperature, axis=1))


def _likeliest_temperature(belief: Floats, labels: Labels, kept: Floats) -> float:
    """τ that maximises Σ_i ln Σ_j b_ij T_jy, each with the T that it leads to; sought on a logarithmic scale."""

    def surprise(log_temperature: float) -> float:
        tempered = _tempered(belief, float(np.exp(log_temperature)))
        _, joint = _posterior(tempered, labels, kept)
        return float(-np.log((tempered * _transition(joint).T[labels]).sum(axis=1)).sum())

    found = minimize_scalar(surprise, bounds=np.log(_TEMPERATURES), method="bounded", options={"xatol": 0.01})
    return float(np.exp(found.x))


def _posterior(belief: Floats, labels: Labels, kept: Floats) -> tuple[Floats, Floats]:
    """r (N, C), and the expected number of samples of each class (row) with each label (column), (C, C)."""
    classes = belief.shape[1]
    given = np.eye(classes)[labels]  # (N, C), one 1 in each row
    unheard = (1 - kept)[:, None]  # (N, 1), how far the given label is news
    transition = (np.eye(classes) + 1 / classes) / 2  # half the labels right, half drawn from all classes
    for _ in range(_MOST_ITERATIONS):
        posterior = belief * transition.T[labels] ** unheard
        posterior /= posterior.sum(axis=1, keepdims=True)
        joint = posterior.T @ given  # (C, C)
        before, transition = transition, _transition(joint)
        if np.abs(transition - before).max() < _TOLERANCE:
            break
    return posterior, joint


def _transition(joint: Floats) -> Floats:
    """T (C, C) from expected counts, with one imagined rightly labelled sample of each class."""
    counts = joint + np.eye(len(joint))
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))
