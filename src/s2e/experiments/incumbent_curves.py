"""Incumbent curves: the smallest error found by a search against full trainings spent, and means over repeats.

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
"""Standard errors on each side of a mean: a 95% confidence band if there are many repeats."""


@dataclass(frozen=True, eq=False)
class IncumbentCurve:
    """One search, trial by trial.

    Attributes:
        sampler: name of the sampler.
        noise: noise setting.
        repeat: index of the repeat.
        spent: (n,) full trainings spent up to and including the trial, epochs trained / T.
        errors: (n,) error of the trial's schedule; NaN for a trial that was stopped early.
    """

    sampler: str
    noise: str
    repeat: int
    spent: Floats
    errors: Floats

    def best(self, budget: int) -> Floats:
        """Return the smallest error found with 1, 2, … B full trainings, (B,); NaN before the first error is known."""
        found = np.full(budget, np.nan)
        for spent, error in zip(self.spent, self.errors, strict=True):
            if np.isfinite(error):
                after = found[max(0, int(np.ceil(spent - 1e-9)) - 1) :]  # sums of fractions round up
                np.fmin(after, error, out=after)
        return found


@dataclass(frozen=True, eq=False)
class MeanCurve:
    """Mean over the repeats of a search.

    Attributes:
        sampler: name of the sampler.
        noise: noise setting.
        repeats: R.
        mean: (B,) mean of the smallest error found; NaN while some repeat has found none.
        standard_error: (B,) of the mean; 0 for a single repeat.
    """

    sampler: str
    noise: str
    repeats: int
    mean: Floats
    standard_error: Floats

    @property
    def budget(self) -> int:
        """B."""
        return len(self.mean)

    @property
    def low(self) -> Floats:
        """Lower end of the confidence band, (B,)."""
        return self.mean - CONFIDENCE * self.standard_error

    @property
    def high(self) -> Floats:
        """Upper end of the confidence band, (B,)."""
        return self.mean + CONFIDENCE * self.standard_error

    def row(self, trainings: int) -> dict[str, Any]:
        """Return the mean and its confidence band after a number of full trainings."""
        index = trainings - 1
        return {
            "sampler": self.sampler,
            "noise": self.noise,
            "trainings": trainings,
            "error": float(self.mean[index]),
            "low": float(self.low[index]),
            "high": float(self.high[index]),
        }

    def trainings_for(self, error: float) -> int | None:
        """Return the number of full trainings after which the mean is at most `error`, or None if it never is."""
        reached = np.flatnonzero(self.mean <= error)
        return int(reached[0]) + 1 if len(reached) else None


def best_errors(curves: Iterable[IncumbentCurve], budgets: Mapping[str, int]) -> dict[tuple[str, str], Floats]:
    """Return the smallest errors (R, B) by sampler and noise setting, up to the budget B of each sampler."""
    repeats: dict[tuple[str, str], list[Floats]] = {}
    for curve in curves:
        repeats.setdefault((curve.sampler, curve.noise), []).append(curve.best(budgets[curve.sampler]))
    return {key: np.stack(best) for key, best in repeats.items()}


def mean_curves(errors: Mapping[tuple[str, str], Floats]) -> list[MeanCurve]:
    """Average the errors (R, B) of each sampler and noise setting over the repeats."""
    means = []
    for (sampler, noise), best in errors.items():
        deviation = best.std(axis=0, ddof=1) if len(best) > 1 else np.zeros(best.shape[1])
        means.append(MeanCurve(sampler, noise, len(best), best.mean(axis=0), deviation / np.sqrt(len(best))))
    return means


def curve_rows(means: Sequence[MeanCurve]) -> list[dict[str, Any]]:
    """Return one row for each sampler, noise setting and number of trainings with a known mean."""
    return [
        {**mean.row(trainings), "repeats": mean.repeats}
        for mean in means
        for trainings in range(1, mean.budget + 1)
        if np.isfinite(mean.mean[trainings - 1])
    ]


def trainings_needed(means: Sequence[MeanCurve], *, default: str, references: Sequence[str]) -> list[dict[str, Any]]:
    """Return, for each reference sampler, how many trainings the default sampler needs for the reference's final error.

    Rows are by noise setting, then reference; samplers without a curve are omitted.
    """
    curve_of = {(mean.sampler, mean.noise): mean for mean in means}
    rows = []
    for noise in dict.fromkeys(mean.noise for mean in means):
        for name in references:
            own, reference = curve_of.get((default, noise)), curve_of.get((name, noise))
            if own is None or reference is None:
                continue
            error = float(reference.mean[-1])
            rows.append(
                {
                    "noise": noise,
                    "than": name,
                    "trainings": reference.budget,
                    "error": error,
                    "default": default,
                    "default_trainings": own.trainings_for(error),
                }
            )
    return rows
