"""."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from s2e.plots.drawing import rendered
from s2e.workflows.outcomes import Outcome, grouped

if TYPE_CHECKING:
    pass

from s2e.plots.epoch_curves import Band, KeepRateCurve, draw_bands, draw_keep_rates

_SAME = 1e-9
"""Keep rates that differ by less are the same: means of equal rates over three and over five seeds round apart."""


def bands(outcomes: Iterable[Outcome], quantity: str) -> list[Band]:
    """Mean ± one standard deviation over seeds of a share by epoch in `Outcome`; no band where it is unknown."""
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
    """R(t) of the methods that have one; those with the very same curve under a noise setting are joined."""
    found: list[KeepRateCurve] = []
    for (noise, method), group in grouped(outcomes).items():
        rates = [outcome.keep_rates for outcome in group if outcome.keep_rates is not None]
        if not rates:
            continue
        mean = np.mean(rates, axis=0)  # (T,)
        for position, other in enumerate(found):
            if other.noise == noise and np.allclose(other.keep_rates, mean, rtol=0, atol=_SAME):
                found[position] = KeepRateCurve(noise, (*other.methods, method), other.keep_rates)
                break
        else:
            found.append(KeepRateCurve(noise, (method,), mean))
    return found


def figure_files(outcomes: Sequence[Outcome]) -> dict[str, bytes]:
    """Every figure there is data for, as PNG and as SVG, by file name; the same outcomes give the same bytes."""
    figures = {}
    evaluated_on = {outcome.evaluated_on for outcome in outcomes}
    if accuracy := bands(outcomes, "accuracy"):
        figures["accuracy"] = draw_bands(
            accuracy, label="test accuracy" if evaluated_on == {"test"} else "validation accuracy"
        )
    if precision := bands(outcomes, "label_precision"):
        figures["label_precision"] = draw_bands(precision, label="label precision")
    if rates := keep_rate_curves(outcomes):
        figures["keep_rate"] = draw_keep_rates(rates)
    return {f"{name}.{kind}": rendered(figure, kind) for name, figure in figures.items() for kind in ("png", "svg")}
