"""The figures of a comparison, each as two functions: its numbers, then its drawing.

Letters: T epochs. Epochs count from 0, as t does in R(t). Nothing here touches matplotlib's global state: figures are
plain objects, and settings hold inside a context.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from s2e.plots.drawing import draw_line, legend, panels, settings
from s2e.plots.names import display_name, noise_title
from s2e.plots.styles import style_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]


# What it looks like


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
