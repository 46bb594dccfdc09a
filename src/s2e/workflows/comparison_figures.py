"""Figures of a comparison: their numbers, computed from outcomes, and their files.

Letters: T epochs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from s2e.plots import Band, KeepRateCurve, draw_bands, draw_keep_rates, render
from s2e.workflows.entrants import is_searched
from s2e.workflows.outcomes import HELD_OUT, Outcome, grouped

_EQUAL = 1e-9
"""Keep rates that differ by less are equal: means of the same rates over 3 and over 5 seeds round differently."""


def bands(outcomes: Iterable[Outcome], quantity: str) -> list[Band]:
    """Return the mean over seeds ± one standard deviation of a quantity, for each noise setting and method.

    Args:
        outcomes: of all trainings.
        quantity: name of an attribute of `Outcome` with shape (T,); there is no band where it is unknown.
    """
    found = []
    for (noise, method), group in grouped(outcomes).items():
        values = np.stack([getattr(outcome, quantity) for outcome in group])  # (seeds, T)
        known = ~np.isnan(values)
        if not known.any():
            continue
        count = known.sum(axis=0)  # (T,)
        mean = np.where(known, values, 0.0).sum(axis=0) / np.where(count > 0, count, np.nan)
        squares = np.where(known, (values - mean) ** 2, 0.0).sum(axis=0)
        deviation = np.sqrt(squares / np.maximum(count - 1, 1))  # sqrt(Σ (x − mean)² / (n − 1)), 0 for a single value
        diverged = sum(outcome.diverged for outcome in group)
        found.append(Band(noise, method, mean, mean - deviation, mean + deviation, len(group), diverged))
    return found


def keep_rate_curves(outcomes: Iterable[Outcome]) -> list[KeepRateCurve]:
    """Return R(t) of the methods that have one; methods with equal curves under a noise setting share one.

    A searched schedule is not shared, and has a band over the seeds if they have several.
    """
    found: list[KeepRateCurve] = []
    for (noise, method), group in grouped(outcomes).items():
        rates = [outcome.keep_rates for outcome in group if outcome.keep_rates is not None]
        if not rates:
            continue
        mean = np.mean(rates, axis=0)  # (T,)
        if is_searched(method):
            low, high = np.min(rates, axis=0), np.max(rates, axis=0)  # (T,)
            several = not np.allclose(low, high, rtol=0, atol=_EQUAL)
            found.append(KeepRateCurve(noise, (method,), mean, *((low, high) if several else ())))
            continue
        for index, other in enumerate(found):
            if other.noise == noise and np.allclose(other.keep_rates, mean, rtol=0, atol=_EQUAL):
                found[index] = KeepRateCurve(noise, (*other.methods, method), other.keep_rates)
                break
        else:
            found.append(KeepRateCurve(noise, (method,), mean))
    return found


def figure_files(outcomes: Sequence[Outcome]) -> dict[str, bytes]:
    """Return every figure the outcomes have data for, as PNG and SVG, by file name.

    The same outcomes give the same bytes.
    """
    figures = {}
    evaluated_on = {outcome.evaluated_on for outcome in outcomes}
    if accuracy := bands(outcomes, "accuracy"):
        label = "agreement with noisy held-out labels" if evaluated_on == {HELD_OUT} else "test accuracy"
        figures["accuracy"] = draw_bands(accuracy, y_label=label)
    if precision := bands(outcomes, "label_precision"):
        figures["label_precision"] = draw_bands(precision, y_label="label precision")
    if rates := keep_rate_curves(outcomes):
        figures["keep_rate"] = draw_keep_rates(rates)
    return {f"{name}.{kind}": render(figure, kind) for name, figure in figures.items() for kind in ("png", "svg")}
