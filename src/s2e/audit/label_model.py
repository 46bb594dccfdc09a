"""Which labels are probably wrong. Pure: arrays in, arrays out.

Notation and shapes:
    N samples, C classes, M networks, S epoch intervals
    y_i            given label
    z_i            true class, unknown
    p_ij   (N, C)  probabilities of the networks, mean of the M of them
    κ_i            share of the times sample i was in a batch that a network was trained on it; 0 for held-out samples
    b_ij   (N, C)  belief that z_i = j, calibrated
    T_jk   (C, C)  probability that a sample of class j was given the label k
    r_ij   (N, C)  posterior probability that z_i = j

Networks are over- or underconfident and favour frequent classes, so their probabilities are calibrated by a temperature
τ and a bias β_j of each class. A small share γ of the inputs is classified wrongly without a sign of it:

    b_ij = (1 − γ) softmax_j(ln p_ij / τ + β_j) + γ π_j,   γ = `UNNOTICED_ERRORS` · U

where π is the mean of the softmax over the samples, and U, the mean of 1 − its largest entry, is the share of inputs
whose class is unknown. If no network was trained on a sample, its given label is independent evidence:

    r_ij ∝ b_ij · T_jy^(1 − κ_i)                     Bayes' rule, y = y_i
    T_jj = a_j                                       from the samples whose class is known best (`s2e.audit.anchors`)
    T_jk ∝ Σ over i with y_i = k of r_ij,  k ≠ j     counts of class j among the samples labelled k
    τ, β   maximise Σ_i ln Σ_j b_ij T_jy − (ln τ)²/2 − Σ_j β_j²/2

The likelihood alone does not determine the diagonal of T: classifiers that were fitted to the given labels predict the
noise as well where it depends on the sample or leads to one certain class, and uncertainty about the class explains the
labels better than noise. Therefore anchors decide how much of the disagreement is noise, and the likelihood the rest.

Where networks were trained on the labels, anchors tell nothing, because the networks may have memorised them. All of T
is then estimated, T_jk ∝ 1[j = k] + Σ over i with y_i = k of r_ij; the indicator adds one correctly labelled
pseudo-sample per class. The belief already contains the label, and it must not count twice: it counts with 1 − κ_i. For
such samples the belief in the given label pools the odds over the whole training, because at its end the networks have
memorised many wrong labels; the rest is distributed among the other classes as by the trained networks. With ℓ_is the
mean cross-entropy of y_i in interval s:

    λ_i = mean over s of ln(q_is / (1 − q_is)), q_is = e^(−ℓ_is);   p_iy := 1/(1 + e^(−λ_i));   p_ij ∝ p_ij for j ≠ y_i

These probabilities are less reliable than those of networks that were not trained on the label.
A reviewed label is known to be correct: its quality is 1, it is never an issue, and it counts fully in T.

Everything follows from one posterior: the quality of a label is r_iy, the suggested label is its largest entry, and a
label is an issue if another one is more probable. In two cases the networks may not know the class of a sample. The
posterior then counts half, the given label the other half: labels are ranked, but the quality of none is below 1/2, and
none is an issue.
- Networks that know the class of few inputs better than a guess (`skill` below `LEAST_SKILL`) cannot distinguish a
  wrong label from a hard sample.
- Where most samples with the label k are believed to belong to one other class, and k is hardly ever predicted
  (`LEAST_PREDICTED`), the networks have probably not learnt k.

A disagreement of label and networks means a wrong label or a wrong prediction. How many there are of each is known up
to the calibration, whose error moves a part of U from one to the other. The intervals therefore are

    estimate ± √((1.645 · standard error)² + (`CALIBRATION_ERROR` · U)²)

and for weak networks the interval of the noise rate reaches from 0 to at least the share of disagreements. Where a
class has nearly as many labels of one other class as right ones (`NEARLY_AS_MANY`), exchanging the two explains the
labels nearly as well. Unless known labels were used, a message says so. The
constants were chosen on the tuning sets of `benchmarks/audit_intervals.py`; the rules for weak networks and rare
classes also after results of seed 0 on its reported sets, so reported figures are those of other seeds.
`LEAST_PREDICTED` was chosen with the constants of the anchors, `NEARLY_AS_MANY` on digits, wine, breast_cancer and a
generated table, with seeds 0 and 1.

With many classes, arrays (N, C) and (C, C) would not fit the memory. Beliefs are therefore kept for L candidates of
each sample, the given label and the classes with the largest beliefs, and T for the pairs of a candidate and a given
label that occur. With up to `MAX_CLASSES_IN_FULL` classes, all are candidates.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import logsumexp, softmax

from s2e.audit.anchors import LEAST, correct_shares
from s2e.audit.crowds import annotated_posterior
from s2e.audit.evidence import Evidence
from s2e.audit.fixed_points import fixed_point

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Values = NDArray[np.floating[Any]]
    Labels = NDArray[np.int64]

THRESHOLD = 0.5
"""Labels of lower quality are issues; another one is then more probable."""

UNNOTICED_ERRORS = 0.2
"""γ/U: wrong predictions that the networks are sure of, as a share of the inputs whose class is unknown."""

CALIBRATION_ERROR = 0.6
"""Half the width of an interval due to calibration, as a share of the inputs whose class is unknown."""

ERROR_OF_ENTRIES = 2.5
"""Multiple of `CALIBRATION_ERROR` for single entries of T: errors of the entries of a row cancel in its sum."""

LEAST_SKILL = 0.5
"""Skill, from 0 for a guess of the most frequent class to 1 for certainty, below which no label is an issue."""

FEW_UNKNOWN, LEAST_SKILL_OF_FEW = 0.1, 0.2
"""U up to which a smaller skill suffices: with a rare class, guessing the other one is nearly always right."""

SIGNIFICANCE = 1.645
"""Standard errors to either side of an estimate within which the truth lies in 90% of the cases."""

LEAST_PREDICTED = 0.2
"""Predictions of a class as a share of the labels of that class, below which it may not have been learnt."""

NEARLY_AS_MANY = 0.75
"""Largest entry of a row of T beside the diagonal, as a share of this, from which the class is ambiguous."""

_LEAST_LOSS = float(np.finfo(np.float32).eps)
"""Smallest loss: networks compute in float32, where a probability closer than this to 1 rounds to 1."""

_LEAST_PROBABILITY = 1e-6
"""Smaller probabilities count as this one: records have half precision."""

MAX_CLASSES_IN_FULL = 128
"""Largest number of classes of which all are candidates of every sample."""

CANDIDATES_OF_MANY, ITERATIONS_OF_MANY = 32, 30
"""L, and the largest number of iterations, with more classes."""

MAX_TRANSITION_CLASSES = 2000
"""Largest number of classes for which the transition matrix is returned, 32 MB."""

_CORRECT_AT_START = 0.7
"""Share of correct labels from which the iteration starts, in addition to those correct by chance."""

_OTHERS_AT_START = 0.1
"""Share of labels that are drawn as frequently as they are given, where the iteration starts from a similar T."""

_ITERATIONS = 200
_TOLERANCE = 1e-5
"""The iteration ends when no parameter changes by more; its statistical error is far larger."""

_LARGE, _COARSE_TOLERANCE = 2**18, 1e-3
"""Beliefs of more samples times candidates are computed in single precision, with this tolerance.

It is also that of estimates that start from similar ones, for their likelihood, which hardly changes near its maximum.
"""

_ROUNDING = 1e-9
"""Relative difference up to which two sums over many samples count as equal."""

_CHUNK = 2**24
"""Numbers of an (N, C) array that are computed at a time."""

_LOG_SCALES = (-3.5, 3.5)
"""Bounds of −ln τ: τ from 1/33 to 33."""

_LEAST_ROOT = 1e-6
"""Smallest root of an entry of T within the iteration."""

_LONGEST_STEP, _DAMPING = 0.5, 0.7
"""Bound of a step of ln τ, and the share of Newton's step of β: the curvature between classes is left out."""

_MEMORY = 6
"""Steps that the iteration combines."""

WEAK = (
    "the networks are too weak to distinguish wrong labels from samples that are hard to classify: labels are ranked, "
    "but none is flagged"
)
NOT_LEARNT = (
    "the networks have probably not learnt some classes: labels of these are ranked, but none is flagged, and the "
    "estimates are uncertain"
)
AMBIGUOUS = (
    "nearly as many labels of some classes are right as are those of one other class: which of the two is right cannot "
    "be determined from labels alone, and probabilities may be far too certain; give a few trusted labels"
)
TRAINED_ON = (
    "estimated from networks that were trained on these labels: probabilities may be too certain; train with folds for "
    "better ones"
)


class Interval(NamedTuple):
    """An interval that holds the truth in about 90% of the cases."""

    low: float
    high: float


@dataclass(frozen=True, eq=False)
class LabelAudit:
    """The result of an audit.

    Attributes:
        quality: (N,) probability that the given label is correct.
        suggested: (N,) the most probable label; the given one where it is as probable as any other.
        alternative: (N,) the most probable label other than the given one.
        confidence: (N,) probability that the suggested label is correct.
        threshold: labels whose quality is below it may be issues.
        issues: (N,) bool, labels that are probably wrong: another one is more probable.
        noise_rate: estimated share of wrong labels, among those of classes that are not doubtful.
        noise_rate_interval: interval of the share of wrong labels.
        transition: (C, C) estimated probability that a sample of class j (row) was given the label k (column); empty,
            (0, 0), with more than `MAX_TRANSITION_CLASSES` classes.
        transition_interval: (2, C, C), lower and upper ends for each entry; empty likewise.
        doubtful: (C,) bool, classes that the networks probably have not learnt: they hardly ever predict them, and
            believe most samples with this label to belong to one certain other class. None of these labels is an issue.
        temperature: τ; below 1 the networks were underconfident, above 1 overconfident.
        bias: (C,) β; positive for classes that the networks predict too rarely.
        accuracy: estimated share of correct predictions of the networks on inputs they were not trained on; NaN if they
            were trained on some of these samples.
        accuracy_interval: its interval. It is not reliable, and neither is printed: it held the test accuracy in 62 of
            75 fits (docs/results/own-data).
        skill: from 0 for networks that guess the most frequent class to 1 for networks that are certain.
        message: one line about the reliability of the audit; empty if there is nothing to say.
        classes: (N, L) candidates of each sample; all C classes, in order, with up to `MAX_CLASSES_IN_FULL`.
        posterior: (N, L) probability that each candidate is the true class, if the networks know the classes.
        log_likelihood: mean over the samples of the logarithm of the probability of the given label, with the priors
            of the parameters. It compares classifiers of the same samples without any label known to be correct.
    """

    quality: Floats
    suggested: Labels
    alternative: Labels
    confidence: Floats
    threshold: float
    issues: NDArray[np.bool_]
    noise_rate: float
    noise_rate_interval: Interval
    transition: Floats
    transition_interval: Floats
    doubtful: NDArray[np.bool_]
    temperature: float
    bias: Floats
    accuracy: float
    accuracy_interval: Interval
    skill: float
    message: str
    classes: Labels
    posterior: Floats
    log_likelihood: float


def audit(evidence: Evidence, similar: LabelAudit | None = None) -> LabelAudit:
    """Estimate which labels are wrong.

    Args:
        evidence: labels and predictions.
        similar: result for similar predictions of the same classes. The estimation starts from its transition matrix,
            and ends when it is precise enough to compare likelihoods.
    """
    labels, samples = evidence.labels, np.arange(len(evidence.labels))
    candidates = _Candidates.of(evidence)
    trained_on = bool(evidence.kept.any())
    correct = None if trained_on else candidates.correct_shares(evidence.classes)
    parameters = _most_likely(candidates, evidence.kept, correct, None if similar is None else similar.transition)
    state = _expectation(candidates, parameters, 1 - evidence.kept)
    posterior, pairs = state.posterior.astype(np.float64, copy=False), candidates.pairs
    if evidence.annotations is not None:  # they replace the given label, which is their consensus
        belief = softmax(candidates.log_belief.astype(np.float64), axis=1)
        posterior, _ = annotated_posterior(belief, candidates.classes, evidence.annotations, evidence.classes)
    if evidence.reviewed is not None:
        posterior[evidence.reviewed] = np.arange(posterior.shape[1]) == candidates.given[evidence.reviewed, None]
    joint = pairs.counts(posterior)
    doubtful = pairs.is_confused(joint)  # (C,)
    if not trained_on:
        doubtful &= _are_hardly_predicted(candidates.predicted, labels, evidence.classes)
    unknown = 1 - state.belief.max(axis=1).astype(np.float64)  # (N,), its mean is U
    most_frequent = pairs.by_class(state.belief).max() / len(labels)
    skill = float(1 - unknown.mean() / max(1 - most_frequent, _ROUNDING))
    weak = skill < (LEAST_SKILL if unknown.mean() > FEW_UNKNOWN else LEAST_SKILL_OF_FEW) and not trained_on
    excluded = doubtful[labels]
    stated = _with_doubt(posterior, candidates.given, excluded | weak)
    quality = stated[samples, candidates.given]
    best = stated.argmax(axis=1)
    best = np.where(stated[samples, best] > quality, best, candidates.given)
    suggested = candidates.classes[samples, best]
    others = posterior.copy()
    others[samples, candidates.given] = -1.0
    wrong = 1 - posterior[samples, candidates.given]
    noise_rate = float((wrong if excluded.all() else wrong[~excluded]).mean())
    undecided = float(unknown.mean())
    predicted, transition = candidates.log_belief.argmax(axis=1), pairs.matrix(joint)
    trusts = evidence.trusted > 0 or (evidence.reviewed is not None and bool(evidence.reviewed.any()))
    ambiguous = not trusts and _is_ambiguous(transition, pairs.by_class(posterior))
    interval = _interval(noise_rate, len(labels), undecided, float(excluded.mean()))
    if weak:  # all disagreements may be due to wrong labels, or none
        disagreement = _interval(float((predicted != candidates.given).mean()), len(labels), 0.0)
        interval = Interval(0.0, max(interval.high, disagreement.high))
    accuracy = float("nan") if trained_on else float(posterior[samples, predicted].mean())
    return LabelAudit(
        quality=quality,
        suggested=suggested,
        alternative=candidates.classes[samples, others.argmax(axis=1)],
        confidence=stated[samples, best],
        threshold=THRESHOLD,
        issues=suggested != labels,
        noise_rate=noise_rate,
        noise_rate_interval=interval,
        transition=transition,
        transition_interval=_transition_interval(pairs, joint, pairs.counts(state.belief * unknown[:, None])),
        doubtful=doubtful,
        temperature=float(np.exp(-parameters.log_scale)),
        bias=parameters.bias,
        accuracy=accuracy,
        accuracy_interval=_interval(accuracy, len(labels), undecided, float(excluded.mean())),
        skill=skill,
        message=_message(trained_on=trained_on, weak=weak, not_learnt=bool(doubtful.any()), ambiguous=ambiguous),
        classes=candidates.classes,
        posterior=posterior,
        log_likelihood=state.objective / len(labels),
    )


def _message(*, trained_on: bool, weak: bool, not_learnt: bool, ambiguous: bool) -> str:
    """Return the line about the reliability of the audit."""
    if trained_on:
        return TRAINED_ON
    return WEAK if weak else NOT_LEARNT if not_learnt else AMBIGUOUS if ambiguous else ""


def _is_ambiguous(transition: Floats, sizes: Floats) -> bool:
    """Return whether an entry of T, (C, C), is nearly as large as the diagonal of its row.

    Args:
        transition: T; empty with too many classes.
        sizes: (C,) expected numbers of samples; small classes, whose rows are uncertain, do not count.
    """
    diagonal = np.diagonal(transition)
    nearly = np.any(transition - np.diag(diagonal) >= NEARLY_AS_MANY * diagonal[:, None], axis=1)
    return bool((nearly & (sizes[: len(nearly)] >= LEAST)).any())


def _with_doubt(posterior: Floats, given: Labels, unsure: NDArray[np.bool_] | np.bool_) -> Floats:
    """Return the posterior (N, L) where the networks may not know the class: they are wrong with probability 1/2.

    Then the given label is right: its quality is at least 1/2, and no other label is more probable.
    """
    half = 0.5 * np.broadcast_to(unsure, given.shape)  # (N,)
    stated = (1 - half)[:, None] * posterior
    stated[np.arange(len(given)), given] += half
    return stated


def _are_hardly_predicted(predicted: Labels, labels: Labels, classes: int) -> NDArray[np.bool_]:
    """Return the classes that are predicted for far fewer samples than have their label, (C,)."""
    found, given = (np.bincount(of, minlength=classes) for of in (predicted, labels))
    return np.asarray(found < LEAST_PREDICTED * given)


def _interval(estimate: float, samples: int, undecided: float, doubtful: float = 0.0) -> Interval:
    """Return the interval of a share among N samples; `doubtful` is the share of labels that it does not count."""
    error = SIGNIFICANCE * np.sqrt(np.maximum(estimate * (1 - estimate), 1 / samples) / samples)
    # Of classes that were not learnt, all labels may be wrong, and as many samples may have other labels.
    half = np.hypot(error, CALIBRATION_ERROR * undecided) + 2 * doubtful
    return Interval(*(float(end) for end in np.clip([estimate - half, estimate + half], 0, 1)))


def _transition_interval(pairs: _Pairs, joint: Floats, undecided: Floats) -> Floats:
    """Return the intervals of the entries of T, (2, C, C), from expected and undecided numbers of samples, (Q,)."""
    if pairs.classes > MAX_TRANSITION_CLASSES:
        return np.zeros((2, 0, 0))
    estimate, mass = pairs.matrix(joint), np.zeros((pairs.classes, pairs.classes))
    mass[pairs.row, pairs.column] = undecided
    size = 1 + np.bincount(pairs.row, joint, pairs.classes)[:, None]  # (C, 1)
    # A wrong prediction may add to any entry of its row, and in the row the diagonal is the rest.
    diagonal = np.eye(pairs.classes, dtype=bool)
    share = np.where(diagonal, mass.sum(axis=1, keepdims=True), mass) / size
    error = SIGNIFICANCE * np.sqrt(np.maximum(estimate * (1 - estimate), 1 / size) / size)
    half = np.hypot(error, CALIBRATION_ERROR * np.where(diagonal, 1, ERROR_OF_ENTRIES) * share)
    return np.clip(np.stack([estimate - half, estimate + half]), 0, 1)


# --------------------------------------------------------------------------------------------------- candidate classes


@dataclass(frozen=True, eq=False)
class _Pairs:
    """The Q pairs (j, k) of a class and a label that occur: j is a candidate of a sample with the label k.

    Attributes:
        row, column: (Q,) j and k.
        index: (N, L) pair of each candidate.
        candidates: (N, L) class of each candidate.
        classes: C.
    """

    row: Labels
    column: Labels
    index: Labels
    candidates: Labels
    classes: int

    @classmethod
    def of(cls, candidates: Labels, labels: Labels, classes: int) -> _Pairs:
        keys, index = np.unique(candidates * classes + labels[:, None], return_inverse=True)
        return cls(keys // classes, keys % classes, index.reshape(candidates.shape), candidates, classes)

    def counts(self, values: Values) -> Floats:
        """Return the sum of values (N, L) for each pair, (Q,)."""
        return np.bincount(self.index.ravel(), values.ravel(), len(self.row)).astype(np.float64, copy=False)

    def by_class(self, values: Values) -> Floats:
        """Return the sum of values (N, L) for each class, (C,)."""
        return np.bincount(self.candidates.ravel(), values.ravel(), self.classes).astype(np.float64, copy=False)

    def of_samples(self, values: Values) -> Values:
        """Return the values (Q,) of each sample's candidates, (N, L)."""
        return np.asarray(values[self.index])

    def of_classes(self, values: Values) -> Values:
        """Return the values (C,) of each sample's candidates, (N, L) or a shape that broadcasts to it."""
        return np.asarray(values[self.candidates])

    def transition(self, joint: Floats) -> Floats:
        """Return T, (Q,), from expected counts and one correctly labelled pseudo-sample of each class."""
        total = 1 + np.bincount(self.row, joint, self.classes)  # (C,)
        return np.asarray((joint + (self.row == self.column)) / total[self.row])

    def transition_from(self, joint: Floats, correct: Floats) -> Floats:
        """Return T, (Q,), with the diagonal `correct`, (C,), and the rest in proportion to expected counts."""
        same = self.row == self.column
        others = np.where(same, 0.0, joint)
        total = np.bincount(self.row, others, self.classes)  # (C,)
        rest = (1 - correct) / np.maximum(total, _ROUNDING)
        return np.where(same, correct[self.row], rest[self.row] * others)

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


class _AllPairs(_Pairs):
    """All pairs of C classes and C labels, for samples of which all classes are candidates; `index` is their label."""

    @classmethod
    def of(cls, candidates: Labels, labels: Labels, classes: int) -> _AllPairs:
        pair = np.arange(classes**2)
        return cls(pair // classes, pair % classes, labels, candidates, classes)

    @cached_property
    def _by_label(self) -> tuple[Labels, Labels, Labels]:
        """The samples ordered by label, the labels that occur, and the first sample of each."""
        order = np.argsort(self.index, kind="stable")
        return order, *np.unique(self.index[order], return_index=True)

    def counts(self, values: Values) -> Floats:
        """Return the sum of values (N, C) for each pair, (Q,)."""
        order, present, first = self._by_label
        sums = np.zeros((self.classes, self.classes))  # (labels, classes)
        sums[present] = np.add.reduceat(values[order], first, axis=0, dtype=np.float64)
        return sums.T.ravel()

    def by_class(self, values: Values) -> Floats:
        """Return the sum of values (N, C) for each class, (C,)."""
        return np.asarray(values.sum(axis=0, dtype=np.float64))

    def of_samples(self, values: Values) -> Values:
        """Return the values (Q,) of each sample's candidates, (N, C)."""
        return np.asarray(np.ascontiguousarray(values.reshape(self.classes, -1).T)[self.index])

    def of_classes(self, values: Values) -> Values:
        """Return the values (C,) of each sample's candidates, (1, C)."""
        return values[None]


@dataclass(frozen=True, eq=False)
class _Candidates:
    """Candidates of all samples.

    Attributes:
        classes: (N, L) classes, increasing, among them the given label.
        given: (N,) position of the given label among them.
        log_belief: (N, L) ln p, rows centred.
        pairs: the pairs of a candidate and the given label.
    """

    classes: Labels
    given: Labels
    log_belief: Values
    pairs: _Pairs

    @classmethod
    def of(cls, evidence: Evidence) -> _Candidates:
        rows = max(1, _CHUNK // evidence.classes)
        chunks = [slice(first, first + rows) for first in range(0, len(evidence.labels), rows)]
        parts = [_chosen(_belief(evidence, chunk), evidence.labels[chunk]) for chunk in chunks]
        classes, belief = (np.concatenate(each) for each in zip(*parts, strict=True))
        log_belief = np.log(np.maximum(belief, _LEAST_PROBABILITY))
        log_belief -= log_belief.mean(axis=1, keepdims=True)
        kind = _AllPairs if evidence.classes <= MAX_CLASSES_IN_FULL else _Pairs
        pairs = kind.of(classes, evidence.labels, evidence.classes)
        given = (classes == evidence.labels[:, None]).argmax(axis=1)
        return cls(classes, given, log_belief.astype(np.float32 if belief.size > _LARGE else np.float64), pairs)

    @property
    def labels(self) -> Labels:
        """The given labels, (N,)."""
        return np.take_along_axis(self.classes, self.given[:, None], axis=1)[:, 0]

    @property
    def predicted(self) -> Labels:
        """The classes with the largest beliefs, (N,)."""
        return np.take_along_axis(self.classes, self.log_belief.argmax(axis=1)[:, None], axis=1)[:, 0]

    def correct_shares(self, classes: int) -> Floats:
        """Return the shares of correct labels by class, (C,), from samples that no network was trained on."""
        largest = self.log_belief.max(axis=1)
        known = (self.log_belief == largest[:, None]).sum(axis=1) == 1
        certainty = largest - logsumexp(self.log_belief, axis=1)  # logarithm of the largest belief
        return correct_shares(self.labels, self.predicted, certainty, known, classes)

    @property
    def large(self) -> bool:
        """Whether beliefs are computed in single precision."""
        return self.log_belief.dtype == np.float32


def _chosen(belief: Floats, labels: Labels) -> tuple[Labels, Floats]:
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
    """Return the probabilities of some samples before calibration, (n, C), rows sum to 1."""
    labels = evidence.labels[rows]
    each = np.arange(len(labels))
    final = evidence.probabilities[:, rows].mean(axis=0, dtype=np.float64)  # (n, C)
    final /= final.sum(axis=1, keepdims=True)
    loss = evidence.loss[:, rows]
    known = ~np.isnan(loss).all(axis=0)  # (n,)
    if not known.any():
        return np.asarray(final)
    odds = _pooled_log_odds(loss[:, known])  # (k,)
    belief, of_known = final.copy(), np.flatnonzero(known)
    belief[each, labels] = 0.0
    rest = belief.sum(axis=1, keepdims=True)  # (n, 1)
    shares = np.divide(belief, rest, out=np.full(belief.shape, 1 / (evidence.classes - 1)), where=rest > 0)
    pooled = (1 / (1 + np.exp(odds)))[:, None] * shares[of_known]
    pooled[np.arange(len(of_known)), labels[of_known]] = 1 / (1 + np.exp(-odds))
    final[of_known] = pooled
    return np.asarray(final)


def _pooled_log_odds(loss: Floats) -> Floats:
    """Return λ, (N,): the mean of ln(q/(1 − q)) = −ℓ − ln(1 − e^(−ℓ)) over the intervals with a loss.

    Args:
        loss: (S, N) ℓ, NaN where the sample was in no batch, but not for all of its intervals.
    """
    known = ~np.isnan(loss)
    losses = np.clip(loss, _LEAST_LOSS, 700.0)
    odds = -losses - np.log(-np.expm1(-losses))
    return np.asarray(np.where(known, odds, 0.0).sum(axis=0) / known.sum(axis=0))


# ---------------------------------------------------------------------------------------- expectation maximisation


class _Parameters(NamedTuple):
    """What is estimated."""

    log_scale: float  # −ln τ
    bias: Floats  # (C,) β, sum 0
    transition: Floats  # (Q,) T of the pairs


class _State(NamedTuple):
    """Beliefs and posterior for given parameters."""

    softmax: Values  # (N, L)
    belief: Values  # (N, L) b
    posterior: Values  # (N, L) r
    noticed: Values  # (N, L) the part of r that is not due to unnoticed errors
    objective: float  # that τ, β and T maximise


def _most_likely(
    candidates: _Candidates, kept: Floats, correct: Floats | None, similar: Floats | None = None
) -> _Parameters:
    """Return the parameters that solve all equations.

    The iteration starts from a share of correct labels, the others drawn as frequently as the labels are given: wrong
    labels of a frequent class would otherwise explain all labels of a rare one.

    Args:
        candidates: the candidates of all samples.
        kept: (N,) κ.
        correct: (C,) diagonal of T, where it is known.
        similar: (C, C) T of similar predictions, to start from; None or empty for none.
    """
    pairs, weight = candidates.pairs, 1 - kept
    many = not isinstance(pairs, _AllPairs)

    def step(point: Floats) -> tuple[Floats, float]:
        parameters = _unpacked(point, pairs)
        state = _expectation(candidates, parameters, weight)
        return _packed(_maximisation(candidates, parameters, state, correct)), state.objective

    frequencies = np.bincount(candidates.labels, minlength=pairs.classes) / len(candidates.labels)
    if similar is not None and similar.size:
        other = frequencies[pairs.column]  # an entry that is nearly zero would stay so for many steps
        start = (1 - _OTHERS_AT_START) * similar[pairs.row, pairs.column] + _OTHERS_AT_START * other
        start = start if correct is None else pairs.transition_from(start, correct)
    elif correct is None:
        start = _CORRECT_AT_START * (pairs.row == pairs.column) + (1 - _CORRECT_AT_START) * frequencies[pairs.column]
    else:
        start = pairs.transition_from(frequencies[pairs.column], correct)
    found = fixed_point(
        step,
        _packed(_Parameters(0.0, np.zeros(pairs.classes), start)),
        memory=0 if many or (weight < 1).any() else _MEMORY,
        iterations=ITERATIONS_OF_MANY if many else _ITERATIONS,
        tolerance=_TOLERANCE if similar is None and not candidates.large else _COARSE_TOLERANCE,
    )
    return _unpacked(found, pairs)


def _packed(parameters: _Parameters) -> Floats:
    """Return parameters as one vector, (1 + C + Q,); roots of T, whose sampling errors are alike."""
    return np.concatenate([[parameters.log_scale], parameters.bias, np.sqrt(parameters.transition)])


def _unpacked(point: Floats, pairs: _Pairs) -> _Parameters:
    """Return the parameters of any vector: τ within its bounds, rows of T positive with the sum 1."""
    bias = point[1 : 1 + pairs.classes]
    transition = np.maximum(point[1 + pairs.classes :], _LEAST_ROOT) ** 2
    total = np.bincount(pairs.row, transition, pairs.classes)
    scale = float(np.clip(point[0], *_LOG_SCALES))
    return _Parameters(scale, bias - bias.mean(), transition / np.maximum(total, _ROUNDING)[pairs.row])


def _expectation(candidates: _Candidates, parameters: _Parameters, weight: Floats) -> _State:
    """Return the state; `weight`, (N,), is that of the given label, 1 − κ."""
    kind, pairs = candidates.log_belief.dtype.type, candidates.pairs
    softmax = candidates.log_belief * kind(np.exp(parameters.log_scale))
    softmax += pairs.of_classes(parameters.bias.astype(kind))
    softmax -= softmax.max(axis=1, keepdims=True)
    np.exp(softmax, out=softmax)
    softmax /= softmax.sum(axis=1, keepdims=True)
    unnoticed = _unnoticed(softmax)  # γ
    noticed = softmax * kind(1 - unnoticed)
    belief = noticed + pairs.of_classes((unnoticed / len(softmax) * pairs.by_class(softmax)).astype(kind))
    of_labels = pairs.of_samples(parameters.transition.astype(kind))  # (N, L) T_jy
    noticed *= of_labels
    posterior = belief * of_labels
    total = posterior.sum(axis=1, keepdims=True)
    noticed /= total
    if (weight < 1).any():
        posterior = belief * of_labels ** weight.astype(kind)[:, None]
        posterior /= posterior.sum(axis=1, keepdims=True)
    else:
        posterior /= total
    likelihood = float(np.log(total).sum(dtype=np.float64))
    correct = parameters.transition[pairs.row == pairs.column]  # of the pseudo-samples
    prior = np.log(correct).sum() - (parameters.log_scale**2 + (parameters.bias**2).sum()) / 2
    return _State(softmax, belief, posterior, noticed, likelihood + float(prior))


def _unnoticed(softmax: Values) -> float:
    """Return γ, from calibrated probabilities (N, L)."""
    return UNNOTICED_ERRORS * float(1 - softmax.max(axis=1).mean(dtype=np.float64))


def belief_of(softmax: Floats) -> Floats:
    """Return the belief b, (N, C), from calibrated probabilities (N, C)."""
    unnoticed = _unnoticed(softmax)
    return np.asarray((1 - unnoticed) * softmax + unnoticed * softmax.mean(axis=0))


def _maximisation(
    candidates: _Candidates, parameters: _Parameters, state: _State, correct: Floats | None
) -> _Parameters:
    """Return better parameters: T from expected counts, τ and β by one Newton step each, of bounded length."""
    pairs, logs = candidates.pairs, candidates.log_belief
    softmax, scale = state.softmax, np.exp(parameters.log_scale)
    joint = pairs.counts(state.posterior)
    residual = state.noticed - state.noticed.sum(axis=1, keepdims=True) * softmax  # (N, L)
    slope = scale * float(np.einsum("ij,ij->", residual, logs)) - parameters.log_scale
    mean = np.einsum("ij,ij->i", softmax, logs).astype(np.float64)
    variance = float(np.einsum("ij,ij,ij->", softmax, logs, logs)) - float((mean**2).sum())
    log_scale = parameters.log_scale + np.clip(slope / (scale**2 * variance + 1), -_LONGEST_STEP, _LONGEST_STEP)
    slopes = pairs.by_class(residual) - parameters.bias
    curvatures = pairs.by_class(softmax * (1 - softmax)) + 1
    bias = parameters.bias + _DAMPING * np.clip(slopes / curvatures, -1, 1)
    transition = pairs.transition(joint) if correct is None else pairs.transition_from(joint, correct)
    return _Parameters(float(np.clip(log_scale, *_LOG_SCALES)), bias - bias.mean(), transition)
