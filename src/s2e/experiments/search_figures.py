"""The figure of a comparison of search algorithms: error found against trainings spent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from s2e.experiments.incumbent_curves import MeanTrace
from s2e.plots.drawing import legend, panels, plot_style
from s2e.plots.styles import Style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLES = {
    "curve": Style("#CC3311", width=2.4, layer=6),
    "newton-curve": Style("#EE7733", (6, 1.5), width=1.8, layer=5),
    "newton": Style("#0077BB", (3.5, 1.5)),
    "natural": Style("#56B4E9", (5, 1.3, 1, 1.3)),
    "gradient": Style("#332288", (1, 1.3)),
    "random": Style("#222222", (1, 1.3), width=1.8),
    "tpe": Style("#005F33", (9, 1.5, 1, 1.5), width=1.8),
    "gp": Style("#AA3377", (10, 2)),
    "cmaes": Style("#CCBB44", (5, 1.3, 1, 1.3, 1, 1.3)),
    "hyperband": Style("#8B5A2B", (2.5, 1, 2.5, 3)),
}
"""Every algorithm by its name."""

FIRST_SHOWN = 6
"""Trainings before which nothing is drawn: the first ones differ by chance alone, and would take up most of a panel."""


def draw_searches(means: Sequence[MeanTrace]) -> Figure:
    """One panel for each noise setting, one line for each algorithm, with its band of confidence."""
    with plot_style():
        figure, axes_of = panels([mean.noise for mean in means], "validation error found", x_label="full trainings")
        for mean in means:
            axes, style = axes_of[mean.noise], STYLES[mean.sampler]
            spent = np.arange(1, len(mean.mean) + 1)
            drawn = spent >= FIRST_SHOWN
            axes.plot(
                spent[drawn],
                mean.mean[drawn],
                color=style.color,
                linestyle=style.linestyle,
                linewidth=style.width,
                zorder=style.layer,
            )
            if mean.repeats > 1:
                axes.fill_between(
                    spent[drawn],
                    mean.low[drawn],
                    mean.high[drawn],
                    color=style.color,
                    alpha=0.15,
                    linewidth=0,
                    zorder=2,
                )
        for axes in axes_of.values():
            axes.set_xscale("log")
            axes.set_xticks([6, 12, 30, 60, 120, 300])
            axes.set_xticks([], minor=True)
            axes.xaxis.set_major_formatter(lambda spent, _: f"{spent:g}")
            axes.set_xlim(FIRST_SHOWN, max(FIRST_SHOWN + 1, *(len(mean.mean) for mean in means)))
        repeats = sorted({mean.repeats for mean in means})
        note = f"mean over {repeats[0]} repeats and its 95% confidence band" if repeats != [1] else ""
        names = dict.fromkeys(mean.sampler for mean in means)
        legend(figure, {name: STYLES[name] for name in names}, [note] if note else [])
    return figure
