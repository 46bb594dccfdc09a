"""What a search had found after how many trainings, and means of many such searches.

Letters: n trials of a search, B full trainings spent, R repeats.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

CONFIDENCE = 1.96
"""Standard errors on each side of a mean: 95 % where repeats are many."""


@dataclass(frozen=True, eq=False)
class Trace:
    """One search, trial by trial.

    Attributes:
        sampler: which algorithm.
        noise: on which noise setting.
        repeat: which of its repeats.
        spent: (n,) full trainings spent when the trial was over, epochs trained / T.
        errors: (n,) the error of its schedule; NaN for a trial that was stopped early.
    """

    sampler: str
    noise: str
    repeat: int
    spent: Floats
    errors: Floats

    def best(self, budget: int) -> Floats:
        """Return the smallest error found with 1, 2, … B trainings, (B,); NaN before the first trial is over."""
        found = np.full(budget, np.nan)
        for spent, error in zip(self.spent, self.errors, strict=True):
            if np.isfinite(error):
                after = found[max(0, int(np.ceil(spent - 1e-9)) - 1) :]
                np.fmin(after, error, out=after)
        return found


@dataclass(frozen=True, eq=False)
class MeanTrace:
    """The mean of a search's repeats.

    Attributes:
        sampler: which algorithm.
        noise: on which noise setting.
        repeats: R.
        mean: (B,) of the smallest error found; NaN where not every repeat has found one.
        error: (B,) its standard error.
    """

    sampler: str
    noise: str
    repeats: int
    mean: Floats
    error: Floats

    @property
    def low(self) -> Floats:
        """(B,): lower end of the confidence band."""
        return self.mean - CONFIDENCE * self.error

    @property
    def high(self) -> Floats:
        """(B,): upper end of the confidence band."""
        return self.mean + CONFIDENCE * self.error

    def trainings_for(self, error: float) -> int | None:
        """Return how many trainings it takes on average until the error found is as small as this; None if never."""
        reached = np.flatnonzero(self.mean <= error)
        return int(reached[0]) + 1 if len(reached) else None


def averaged(traces: Iterable[Trace], budgets: Mapping[str, int]) -> list[MeanTrace]:
    """Average the repeats of every sampler under every noise setting, up to the sampler's budget."""
    together: dict[tuple[str, str], list[Floats]] = {}
    for trace in traces:
        together.setdefault((trace.sampler, trace.noise), []).append(trace.best(budgets[trace.sampler]))
    means = []
    for (sampler, noise), found in together.items():
        best = np.stack(found)  # (R, B)
        spread = best.std(axis=0, ddof=1) if len(best) > 1 else np.zeros(best.shape[1])
        means.append(MeanTrace(sampler, noise, len(best), best.mean(axis=0), spread / np.sqrt(len(best))))
    return means


def rows(means: Sequence[MeanTrace]) -> list[dict[str, Any]]:
    """Return one row for each sampler, noise setting and number of trainings."""
    return [
        {
            "sampler": each.sampler,
            "noise": each.noise,
            "trainings": spent + 1,
            "error": float(each.mean[spent]),
            "low": float(each.low[spent]),
            "high": float(each.high[spent]),
            "repeats": each.repeats,
        }
        for each in means
        for spent in range(len(each.mean))
        if np.isfinite(each.mean[spent])
    ]


def compared(means: Sequence[MeanTrace], *, default: str, yardsticks: Sequence[str]) -> list[dict[str, Any]]:
    """Say how many trainings the default needs for what a yardstick has found with all of its own."""
    found = {(each.sampler, each.noise): each for each in means}
    noises = list(dict.fromkeys(each.noise for each in means))
    return [
        {
            "noise": noise,
            "than": other,
            "trainings": len(found[other, noise].mean),
            "error": float(found[other, noise].mean[-1]),
            "default": default,
            "default_trainings": found[default, noise].trainings_for(float(found[other, noise].mean[-1])),
        }
        for noise in noises
        for other in yardsticks
        if (other, noise) in found and (default, noise) in found
    ]
