"""The figures of a comparison, each as two functions: its numbers, then its drawing.

Letters: T epochs. Epochs count from 0, as t does in R(t). Nothing here touches matplotlib's global state: figures are
plain objects, and settings hold inside a context.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from s2e.plots.drawing import Style, draw_line, legend, panels, rendered, settings
from s2e.workflows.outcomes import Outcome, display_name, grouped, noise_title

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

_SAME = 1e-9
"""Keep rates that differ by less are the same: means of equal rates over three and over five seeds round apart."""


# What it looks like


# Nine colours that stay apart (a CIE76 difference of 18 and more) under all three kinds of colour blindness.
STYLES = {
    "standard": Style("#222222", (1, 1.3)),
    "decoupling": Style("#CCBB44", (10, 2)),
    "f-correction": Style("#EE99AA", (2.5, 1, 2.5, 3)),
    "mentornet": Style("#56B4E9", (5, 1.3, 1, 1.3)),
    "coteaching": Style("#0077BB", (3.5, 1.5)),
    "coteaching+": Style("#332288", (9, 1.5, 1, 1.5)),
    "reweight": Style("#AA3377", (1, 2.5)),
    "jocor": Style("#005F33", (5, 1.3, 1, 1.3, 1, 1.3)),
    "s2e": Style("#CC3311", width=2.4, layer=5),
}
_SPARE_DASHES = [(2, 1), (7, 3), (10, 1), (4, 1, 2, 1), (2, 3)]


def style_of(method: str) -> Style:
    """Return the one style a method has in every figure.

    `s2e:jocor` has JoCoR's colour and dashes, wider and above. Methods without a style of their own get a brown line,
    with dashes that depend on the name only.
    """
    if method in STYLES:
        return STYLES[method]
    name, _, searched = method.partition(":")
    if name == "s2e" and searched:
        own = style_of(searched)
        return Style(own.color, own.dashes, width=2.0, layer=4)
    return Style("#8B5A2B", _SPARE_DASHES[zlib.crc32(method.encode()) % len(_SPARE_DASHES)])


# A quantity over epochs


@dataclass(frozen=True, eq=False)
class Band:
    """A quantity over the epochs, for one method under one noise setting.

    Attributes:
        noise: the noise setting as given.
        method: its name on the command line.
        mean: (T,) over the seeds where it is known; NaN where it is known for none.
        low: (T,) one standard deviation below; the mean itself where only one seed is known.
        high: (T,) one standard deviation above.
        seeds: how many trainings it is of.
        diverged: how many of them diverged; their curves count as they were recorded.
    """

    noise: str
    method: str
    mean: Floats
    low: Floats
    high: Floats
    seeds: int
    diverged: int


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


def draw_bands(bands: Sequence[Band], *, label: str) -> Figure:
    """One panel for each noise setting, one line for each method; `label` says what the vertical axis shows.

    Where a training diverged, the spread over seeds would cover the panel: it is left out, and a note tells.
    """
    with settings():
        figure, axes_of = panels([band.noise for band in bands], label)
        for band in bands:
            axes, style = axes_of[band.noise], style_of(band.method)
            draw_line(axes, band.mean, style)
            if band.seeds > 1 and not band.diverged:
                epochs = np.arange(len(band.mean))
                axes.fill_between(epochs, band.low, band.high, color=style.color, alpha=0.15, linewidth=0, zorder=2)
        for noise, axes in axes_of.items():
            axes.set_ylim(*_limits([band for band in bands if band.noise == noise]))
        styles = {display_name(band.method): style_of(band.method) for band in bands}
        legend(figure, styles, _notes(bands))
    return figure


def _limits(bands: Iterable[Band]) -> tuple[float, float]:
    """Limits of the vertical axis, within 0% and 100%: all that is drawn but for the start of the rise.

    The first twentieth of the epochs, much the same for every method, would take up half of the panel; lines that come
    from below the panel are understood.
    """
    drawn = [(band.mean, band.mean) if band.diverged else (band.low, band.high) for band in bands]
    lowest = min(np.nanmin(_after_the_start(low)) for low, _ in drawn)
    highest = max(np.nanmax(high) for _, high in drawn)
    margin = max(0.04 * (highest - lowest), 0.004)
    return float(max(lowest - margin, 0.0)), float(min(highest + margin, 1.01))


def _after_the_start(values: Floats) -> Floats:
    rest = values[len(values) // 20 :]
    return values if np.isnan(rest).all() else rest


def _notes(bands: Sequence[Band]) -> list[str]:
    """Say what lines and bands are where there are several seeds, and which means hold trainings that diverged."""
    notes = []
    seeds = sorted({band.seeds for band in bands})
    if seeds != [1]:
        count = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
        notes.append(f"mean over {count} seeds ± one standard deviation")
    if diverged := [
        f"{display_name(band.method)} {band.diverged} of {band.seeds} ({noise_title(band.noise)})"
        for band in bands
        if band.diverged
    ]:
        notes.append(f"diverged{', shown without deviation' if notes else ''}: {'; '.join(diverged)}")
    return notes


# Keep rates


@dataclass(frozen=True, eq=False)
class KeepRateCurve:
    """R(t) under one noise setting, of one method or of several that share it: its mean over seeds, (T,)."""

    noise: str
    methods: tuple[str, ...]
    keep_rates: Floats


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


def draw_keep_rates(curves: Sequence[KeepRateCurve]) -> Figure:
    """One panel for each noise setting; a line that several methods share has the style of the first of them."""
    with settings():
        figure, axes_of = panels([curve.noise for curve in curves], "keep rate R(t)")
        for curve in curves:
            draw_line(axes_of[curve.noise], curve.keep_rates, style_of(curve.methods[0]))
        for axes in axes_of.values():
            axes.set_ylim(0, 1.02)
        legend(figure, {", ".join(map(display_name, curve.methods)): style_of(curve.methods[0]) for curve in curves})
    return figure


# Files


def figure_files(outcomes: Sequence[Outcome]) -> dict[str, bytes]:
    """Every figure there is data for, as PNG and as SVG, by file name; the same outcomes give the same bytes."""
    figures = {}
    judged_on = {outcome.judged_on for outcome in outcomes}
    if accuracy := bands(outcomes, "accuracy"):
        figures["accuracy"] = draw_bands(
            accuracy, label="test accuracy" if judged_on == {"test"} else "validation accuracy"
        )
    if precision := bands(outcomes, "label_precision"):
        figures["label_precision"] = draw_bands(precision, label="label precision")
    if rates := keep_rate_curves(outcomes):
        figures["keep_rate"] = draw_keep_rates(rates)
    return {f"{name}.{kind}": rendered(figure, kind) for name, figure in figures.items() for kind in ("png", "svg")}
