"""Incumbent curves: the smallest error found by a search against full trainings spent, and means over repeats.

Letters: n trials of a search, B full trainings spent, R repeats.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from s2e.seeds import derive

Floats = NDArray[np.float64]

CONFIDENCE = 1.96
"""Standard errors on each side of a mean: a 95% confidence band if there are many repeats."""
RESAMPLES = 4000
"""Bootstrap samples of the repeats behind the interval of a number of trainings."""
INTERVAL = (0.025, 0.975)
"""Quantiles at the ends of an interval."""
ROUNDING = 1e-12
"""Difference between two means of the same errors in another order."""


@dataclass(frozen=True, eq=False)
class IncumbentCurve:
    """One search, trial by trial.

    Attributes:
        sampler: name of the sampler.
        noise: noise setting.
        repeat: index of the repeat.
        spent: (n,) full trainings spent up to and including the trial, epochs trained / T.
        errors: (n,) error of the trial's schedule; NaN for a trial that was stopped early.
        returned: (n,) error of the schedule that the search would return after the trial; NaN where it is not computed.
    """

    sampler: str
    noise: str
    repeat: int
    spent: Floats
    errors: Floats
    returned: Floats

    def best(self, budget: int) -> Floats:
        """Return the smallest error found with 1, 2, … B full trainings, (B,); NaN before the first error is known."""
        found = np.full(budget, np.nan)
        for spent, error in zip(self.spent, self.errors, strict=True):
            if np.isfinite(error):
                after = found[max(0, int(np.ceil(spent - 1e-9)) - 1) :]  # sums of fractions round up
                np.fmin(after, error, out=after)
        return found

    def returned_after(self, trainings: int) -> float:
        """Return the error of the schedule returned after a number of full trainings, NaN if it was not computed."""
        within = trials_within(self.spent, trainings)
        return float(self.returned[within - 1]) if within else np.nan


def trials_within(spent: Floats, trainings: int) -> int:
    """Return how many trials were finished with a number of full trainings, from those spent up to each trial (n,)."""
    return int(np.searchsorted(spent, trainings + 1e-9, side="right"))  # sums of fractions round up


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
        (count,) = _first_at_most(self.mean[None], np.array([error]))
        return int(count) if np.isfinite(count) else None


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


def mean_returned(curves: Iterable[IncumbentCurve], trainings: int) -> dict[str, float]:
    """Return the mean error of the schedules returned after a number of full trainings, and its confidence band."""
    returned = np.array([curve.returned_after(trainings) for curve in curves])  # (R,)
    deviation = returned.std(ddof=1) if len(returned) > 1 else 0.0
    mean, band = returned.mean(), CONFIDENCE * deviation / np.sqrt(len(returned))
    return {"returned_error": float(mean), "returned_low": float(mean - band), "returned_high": float(mean + band)}


def trainings_needed(
    errors: Mapping[tuple[str, str], Floats], *, references: Sequence[str], seed: int
) -> list[dict[str, Any]]:
    """Return how many trainings each sampler needs for the final error of each reference sampler, with intervals.

    The number is the first after which the mean error is at most the reference's final mean error; it is None if it is
    beyond the sampler's budget. Its 95% interval is from bootstrap samples of the repeats of both. The share of
    searches whose own error never is at most that error has a Wilson interval.

    Args:
        errors: (R, B) smallest errors by sampler and noise setting.
        references: names of samplers; those without errors are omitted.
        seed: seed of the bootstrap samples.

    Returns:
        Rows by noise setting, then reference, then sampler.
    """
    means = {key: best.mean(axis=0) for key, best in errors.items()}  # (B,)
    resampled = {key: resampled_means(best, derive(seed, "resamples", *key)) for key, best in errors.items()}
    rows = []
    for noise in dict.fromkeys(noise for _, noise in errors):
        for reference in (name for name in references if (name, noise) in errors):
            goal = float(means[reference, noise][-1])
            for name in (name for name, own in errors if own == noise and name != reference):
                count = _first_at_most(means[name, noise][None], np.array([goal]))
                counts = _first_at_most(resampled[name, noise], resampled[reference, noise][:, -1])
                low, high = np.quantile(counts, INTERVAL, method="inverted_cdf")  # infinite counts have no mean
                last = errors[name, noise][:, -1]  # (R,)
                never = int(len(last) - (last <= goal + ROUNDING).sum())  # NaN: it has found nothing
                wilson = binomtest(never, len(last)).proportion_ci(0.95, "wilson")
                rows.append(
                    {
                        "noise": noise,
                        "than": reference,
                        "trainings": errors[reference, noise].shape[1],
                        "error": goal,
                        "sampler": name,
                        "budget": errors[name, noise].shape[1],
                        "needed": _count(count[0]),
                        "low": _count(low),
                        "high": _count(high),
                        "never": never / len(last),
                        "never_low": float(wilson.low),
                        "never_high": float(wilson.high),
                    }
                )
    return rows


def resampled_means(errors: Floats, seed: int) -> Floats:
    """Return the mean errors (RESAMPLES, B) of bootstrap samples of the repeats, (R, B); NaN where one is unknown."""
    repeats = len(errors)
    counts = np.random.default_rng(seed).multinomial(repeats, np.full(repeats, 1 / repeats), size=RESAMPLES)
    unknown = np.isnan(errors)
    means = counts @ np.where(unknown, 0.0, errors) / repeats
    return np.asarray(np.where(counts @ unknown > 0, np.nan, means))


def _first_at_most(means: Floats, goals: Floats) -> Floats:
    """Return the number of trainings after which means (n, B) are at most the goals (n,); infinite if never."""
    reached = means <= goals[:, None] + ROUNDING
    return np.where(reached.any(axis=1), reached.argmax(axis=1) + 1.0, np.inf)


def _count(number: float) -> int | None:
    return int(number) if np.isfinite(number) else None
