"""Curves over epochs, for each method and noise setting: their numbers as dataclasses, and their drawings.

Letters: T epochs. Epochs count from 0, as t does in R(t).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from s2e.plots.drawing import draw_line, legend, panels, plot_style
from s2e.plots.names import display_name, noise_title
from s2e.plots.styles import style_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Band:
    """Mean and standard deviation of a quantity over seeds, by epoch, for one method under one noise setting.

    Attributes:
        noise: noise setting as given on the command line.
        method: name of the method on the command line.
        mean: (T,) mean over the seeds with a known value; NaN where no value is known.
        low: (T,) mean minus one standard deviation; the mean itself where only one value is known.
        high: (T,) mean plus one standard deviation.
        seeds: number of trainings.
        diverged: number of trainings that diverged; their recorded curves are part of the mean.
    """

    noise: str
    method: str
    mean: Floats
    low: Floats
    high: Floats
    seeds: int
    diverged: int


def draw_bands(bands: Sequence[Band], *, y_label: str) -> Figure:
    """Draw one panel for each noise setting with one line for each method.

    Where a training diverged, the deviation over seeds would cover the panel: it is omitted, with a note.
    """
    with plot_style():
        figure, axes_of = panels([band.noise for band in bands], y_label)
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
    """Return limits of the vertical axis, within 0% and 100%, that contain everything after the first epochs.

    In the first twentieth of the epochs accuracy rises similarly for every method and would fill half of the panel;
    these parts of the lines may lie below the axis.
    """
    drawn = [(band.mean, band.mean) if band.diverged else (band.low, band.high) for band in bands]
    lowest = min(np.nanmin(_after_first_epochs(low)) for low, _ in drawn)
    highest = max(np.nanmax(high) for _, high in drawn)
    margin = max(0.04 * (highest - lowest), 0.004)
    return float(max(lowest - margin, 0.0)), float(min(highest + margin, 1.01))


def _after_first_epochs(values: Floats) -> Floats:
    rest = values[len(values) // 20 :]
    return values if np.isnan(rest).all() else rest


def _notes(bands: Sequence[Band]) -> list[str]:
    """Return notes on what lines and bands show, if there are several seeds, and on trainings that diverged."""
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


@dataclass(frozen=True, eq=False)
class KeepRateCurve:
    """R(t) of one or several methods that share it under one noise setting.

    Attributes:
        noise: noise setting as given on the command line.
        methods: names of the methods on the command line.
        keep_rates: (T,) mean over seeds.
        low: (T,) smallest over seeds; None if they all have the same.
        high: (T,) largest over seeds; None if they all have the same.
    """

    noise: str
    methods: tuple[str, ...]
    keep_rates: Floats
    low: Floats | None = None
    high: Floats | None = None


def draw_keep_rates(curves: Sequence[KeepRateCurve]) -> Figure:
    """Draw one panel for each noise setting; a curve shared by several methods has the style of the first.

    Where a method has several schedules, a band reaches from the smallest keep rate to the largest.
    """
    with plot_style():
        figure, axes_of = panels([curve.noise for curve in curves], "keep rate R(t)")
        for curve in curves:
            axes, style = axes_of[curve.noise], style_of(curve.methods[0])
            draw_line(axes, curve.keep_rates, style)
            if curve.low is not None and curve.high is not None:
                epochs = np.arange(len(curve.keep_rates))
                axes.fill_between(epochs, curve.low, curve.high, color=style.color, alpha=0.15, linewidth=0, zorder=2)
        for axes in axes_of.values():
            axes.set_ylim(0, 1.02)
        several = any(curve.low is not None for curve in curves)
        notes = ["searched: mean over seeds, and band from the smallest to the largest"] if several else []
        styles = {", ".join(map(display_name, curve.methods)): style_of(curve.methods[0]) for curve in curves}
        legend(figure, styles, notes)
    return figure
