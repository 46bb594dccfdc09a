"""Figures of the experiments: schedules found in each space, and errors found by each sampler against trainings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from s2e.experiments.incumbent_curves import MeanCurve
from s2e.experiments.space_results import SINGLE, TITLES, BestTrials
from s2e.plots import STYLES, KeepRateCurve, Style, draw_line, legend, panels, plot_style, render
from s2e.runs import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SPACE_STYLES = {
    space: STYLES[method]
    for space, method in {
        "coteaching": "coteaching",
        SINGLE: "jocor",
        "rbf": "reweight",
        "mlp": "decoupling",
        "s2e": "s2e",
    }.items()
}
"""Line style of each space: that of a method, since the colours of methods suit all kinds of colour blindness."""

WIDTH_OF_SEVERAL = 0.5
"""Factor on the line width where each space has one line for each of several sets."""

SAMPLER_STYLES = {
    "curve": Style("#CC3311", width=2.4, layer=6),
    "curve-dynamics": Style("#EE99AA", (4, 1), width=1.8, layer=5),
    "newton-curve": Style("#EE7733", (6, 1.5), width=1.8, layer=5),
    "newton": Style("#0077BB", (3.5, 1.5)),
    "natural": Style("#56B4E9", (5, 1.3, 1, 1.3)),
    "gradient": Style("#332288", (1, 1.3)),
    "random": Style("#222222", (1, 1.3), width=1.8),
    "tpe": Style("#005F33", (9, 1.5, 1, 1.5), width=1.8),
    "tpe-multivariate": Style("#44AA77", (9, 1.5, 3, 1.5), width=1.8),
    "gp": Style("#AA3377", (10, 2)),
    "cmaes": Style("#CCBB44", (5, 1.3, 1, 1.3, 1, 1.3)),
    "hyperband": Style("#8B5A2B", (2.5, 1, 2.5, 3)),
}
"""Line style of each sampler."""

FIRST_SHOWN = 6
"""Trainings before which nothing is drawn: early errors differ by chance alone and would fill most of a panel."""


def schedule_curves(found: BestTrials, single: Mapping[str, str], noises: Sequence[str]) -> list[KeepRateCurve]:
    """Return R(t) of each space in the paper's table, found in one set.

    Args:
        found: the best trials of the set.
        single: the space chosen for Single, by noise setting.
        noises: noise settings.
    """
    return [
        KeepRateCurve(noise, (space,), found[noise, single[noise] if space == SINGLE else space].schedule)
        for noise in noises
        for space in TITLES
    ]


def draw_schedules(sets: Sequence[Sequence[KeepRateCurve]]) -> Figure:
    """Draw one panel for each noise setting with one line for each space and set, coloured by space."""
    several = len(sets) > 1
    factor = WIDTH_OF_SEVERAL if several else 1.0
    styles = {space: replace(style, width=factor * style.width) for space, style in SPACE_STYLES.items()}
    with plot_style():
        figure, axes_of = panels([curve.noise for curve in sets[0]], "keep rate R(t)")
        for curve in (curve for curves in sets for curve in curves):
            draw_line(axes_of[curve.noise], curve.keep_rates, styles[curve.methods[0]])
        for axes in axes_of.values():
            axes.set_ylim(0, 1.02)
        notes = [f"one line for each of {len(sets)} sets of draws"] if several else []
        legend(figure, {TITLES[space]: style for space, style in SPACE_STYLES.items()}, notes)
    return figure


def draw_incumbents(means: Sequence[MeanCurve]) -> Figure:
    """Draw one panel for each noise setting with one line and its confidence band for each sampler."""
    with plot_style():
        figure, axes_of = panels([mean.noise for mean in means], "validation error found", x_label="full trainings")
        for mean in means:
            axes, style = axes_of[mean.noise], SAMPLER_STYLES[mean.sampler]
            spent = np.arange(1, mean.budget + 1)
            shown = spent >= FIRST_SHOWN
            axes.plot(
                spent[shown],
                mean.mean[shown],
                color=style.color,
                linestyle=style.linestyle,
                linewidth=style.width,
                zorder=style.layer,
            )
            if mean.repeats > 1:
                axes.fill_between(
                    spent[shown],
                    mean.low[shown],
                    mean.high[shown],
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
            axes.set_xlim(FIRST_SHOWN, max(FIRST_SHOWN + 1, *(mean.budget for mean in means)))
        repeats = means[0].repeats
        notes = [f"mean over {repeats} repeats and its 95% confidence band"] if repeats > 1 else []
        legend(figure, {mean.sampler: SAMPLER_STYLES[mean.sampler] for mean in means}, notes)
    return figure


def draw_steps(rows: Sequence[Mapping[str, Any]], title: str, *, random: bool = True) -> Figure:
    """Draw one panel for each noise setting: the errors of each step against K, and the best of random search.

    Args:
        rows: of `comparison_rows`, of one measure and after one number of trainings.
        title: of the measure.
        random: whether to draw random search; where it is far above all steps, nothing else would be visible.
    """
    black = SAMPLER_STYLES["random"].color
    with plot_style():
        figure, axes_of = panels(
            [row["noise"] for row in rows], "validation error", x_label="K, points in a generation"
        )
        for noise, axes in axes_of.items():
            own = sorted((row for row in rows if row["noise"] == noise), key=lambda row: int(row["size"]))
            if random:
                axes.axhline(own[0]["random"], color=black, linestyle=(0, (1, 1.3)), linewidth=1.8, zorder=3)
                axes.axhspan(own[0]["random_low"], own[0]["random_high"], color=black, alpha=0.15, linewidth=0)
            for step in dict.fromkeys(row["step"] for row in rows):
                line = [row for row in own if row["step"] == step]
                errors = np.array([[row["error"], row["low"], row["high"]] for row in line])  # (sizes, 3)
                sizes, style = [row["size"] for row in line], SAMPLER_STYLES[step]
                axes.plot(sizes, errors[:, 0], color=style.color, marker="o", markersize=3, zorder=4)
                axes.fill_between(sizes, errors[:, 1], errors[:, 2], color=style.color, alpha=0.15, linewidth=0)
            axes.set_xscale("log", base=2)
            axes.set_xticks(sorted({row["size"] for row in rows}))
            axes.set_xticks([], minor=True)
            axes.xaxis.set_major_formatter(lambda size, _: f"{size:g}")
            axes.margins(x=0.05)
        steps = {step: Style(SAMPLER_STYLES[step].color) for step in dict.fromkeys(row["step"] for row in rows)}
        first = rows[0]
        note = (
            f"{title}, after {first['trainings']} trainings; mean over {first['repeats']} repeats, 95% confidence band"
        )
        legend(figure, steps | ({"random": SAMPLER_STYLES["random"]} if random else {}), [note])
    return figure


def write_figure(run: Run, name: str, figure: Figure) -> None:
    """Write a figure to `name.png` and `name.svg` in a run."""
    for file_format in ("png", "svg"):
        run.write_bytes(f"{name}.{file_format}", render(figure, file_format))
