"""Greedy selection of the members that vote together (Caruana et al., 2004). Pure: arrays in, arrays out.

Notation and shapes:
    K candidates, N validation samples, C classes
    p_k    (N, C)  probabilities of candidate k
    n_k            how often candidate k was chosen
    q      (N, C)  vote: Σ_k n_k p_k / Σ_k n_k

One candidate after the other is added to the vote, each time the one with which the vote has the best score; one may be
added several times. Of the votes after each addition the best is taken, the smallest of equals. Equal scores,
which are frequent with few samples, are ordered by the mean probability of the labels.

The best of many votes on few samples is partly chance. Therefore the selection is repeated in bags, each with half of
the candidates and with samples drawn with replacement, and the counts n_k / Σ n_k of all bags are averaged.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from s2e.engine import Score
from s2e.errors import InvalidInput

Floats = NDArray[np.float64]

ADDITIONS = 12
"""Candidates added to a vote."""
BAGS = 20
"""Repetitions of the selection."""
SHARE = 0.5
"""Share of the candidates in a bag."""

_TIE = 1e-6
"""Weight of the mean probability of the labels, far below the change of a score by one sample."""


def greedy_selection(
    probabilities: NDArray[np.floating], labels: NDArray[np.int64], score: Score, additions: int = ADDITIONS
) -> NDArray[np.int64]:
    """Return how often each candidate is in the best vote, (K,).

    Args:
        probabilities: (K, N, C) of the candidates.
        labels: (N,) in [0, C).
        score: what the vote maximises.
        additions: candidates to add, one after the other.
    """
    if probabilities.ndim != 3 or not len(probabilities) or probabilities.shape[1] != len(labels) or not len(labels):
        raise InvalidInput(
            f"`probabilities` must be (K, N, C) for {len(labels)} labels, at least one of each, but got "
            f"{probabilities.shape}."
        )
    each = torch.from_numpy(np.ascontiguousarray(probabilities, dtype=np.float64))
    given, rows = torch.from_numpy(labels), torch.arange(len(labels))
    counts = np.zeros(len(each), dtype=np.int64)
    best, chosen = -np.inf, counts
    total, scores = torch.zeros_like(each[0]), np.empty(len(each))
    vote = torch.empty_like(total)  # one array for all votes: new ones of many classes take longer than the sums
    for size in range(1, additions + 1):
        for index, own in enumerate(each):
            torch.add(total, own, out=vote)  # (N, C)
            vote /= size
            scores[index] = float(score(vote[None], given)[0]) + _TIE * float(vote[rows, given].mean())
        added = int(scores.argmax())
        counts = counts.copy()
        counts[added] += 1
        total += each[added]
        if scores[added] > best:
            best, chosen = float(scores[added]), counts
    return chosen


def is_better_beyond_noise(
    probabilities: NDArray[np.floating], others: NDArray[np.floating], labels: NDArray[np.int64], errors: float = 1.0
) -> bool:
    """Return whether a classifier is correct more often than another, by more than some standard errors.

    The error is that of the difference on the same samples, so samples on which both are correct or wrong add nothing.

    Args:
        probabilities: (N, C) of the one classifier.
        others: (N, C) of the other.
        labels: (N,).
        errors: number of standard errors.
    """
    correct = [(each.argmax(axis=1) == labels).astype(np.float64) for each in (probabilities, others)]
    difference = correct[0] - correct[1]  # (N,)
    return bool(difference.mean() > errors * difference.std() / np.sqrt(len(labels)))


def bagged_selection(
    probabilities: NDArray[np.floating],
    labels: NDArray[np.int64],
    score: Score,
    *,
    generator: np.random.Generator,
    most: int,
    bags: int = BAGS,
    additions: int = ADDITIONS,
) -> Floats:
    """Return the weight of each candidate, (K,), at most `most` of them positive; they sum to 1.

    Args:
        probabilities: (K, N, C) of the candidates.
        labels: (N,) in [0, C).
        score: what votes maximise.
        generator: draws the candidates and the samples of the bags.
        most: candidates with a positive weight; those with the largest weights are kept.
        bags: repetitions; 0 selects once, among all candidates and on all samples.
        additions: candidates to add in each bag.
    """
    count, samples = len(probabilities), len(labels)
    if not bags:
        weights = greedy_selection(probabilities, labels, score, additions).astype(np.float64)
    else:
        weights = np.zeros(count)
        size = max(min(2, count), round(SHARE * count))  # one alone would not be compared with any other
        for _ in range(bags):
            members = np.sort(generator.choice(count, size=size, replace=False))
            drawn = generator.integers(samples, size=samples)
            found = greedy_selection(probabilities[np.ix_(members, drawn)], labels[drawn], score, additions)
            weights[members] += found / found.sum()
    weights[np.argsort(-weights, kind="stable")[most:]] = 0.0
    return np.asarray(weights / weights.sum())
