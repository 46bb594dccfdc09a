"""The figure of a comparison of spaces: the schedules found in them, by noise setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from s2e.experiments.space_results import SINGLE, TITLES, Chosen
from s2e.plots.drawing import draw_line, legend, panels, plot_style
from s2e.plots.epoch_curves import KeepRateCurve
from s2e.plots.styles import STYLES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LOOKS_OF = {"coteaching": "coteaching", SINGLE: "jocor", "rbf": "reweight", "mlp": "decoupling", "s2e": "s2e"}
"""Methods whose lines the spaces borrow: their colours stay apart under all kinds of colour blindness."""

_THINNER = 0.5
"""Width of a line where there is one for each of several sets, as a share of what it is otherwise."""


def schedule_curves(found: Chosen, single: Mapping[str, str], noises: Sequence[str]) -> list[KeepRateCurve]:
    """R(t) as found in each space of the table in one set; `single` tells which of the four it is, by noise setting."""
    return [
        KeepRateCurve(noise, (space,), found[noise, single[noise] if space == SINGLE else space].schedule)
        for noise in noises
        for space in TITLES
    ]


def draw_schedules(sets: Sequence[Sequence[KeepRateCurve]]) -> Figure:
    """One panel for each noise setting, one line for each space and set; sets of a space share its colour."""
    styles = {space: STYLES[looks] for space, looks in _LOOKS_OF.items()}
    several = len(sets) > 1
    drawn = {
        space: replace(style, width=_THINNER * style.width) if several else style for space, style in styles.items()
    }
    with plot_style():
        figure, axes_of = panels([curve.noise for curve in sets[0]], "keep rate R(t)")
        for curve in (curve for curves in sets for curve in curves):
            draw_line(axes_of[curve.noise], curve.keep_rates, drawn[curve.methods[0]])
        for axes in axes_of.values():
            axes.set_ylim(0, 1.02)
        notes = [f"one line for each of {len(sets)} sets of draws"] if several else []
        legend(figure, {TITLES[space]: style for space, style in styles.items()}, notes)
    return figure
