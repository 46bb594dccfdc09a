"""Lines with bands in named panels: curves of anything by epoch, with one style for each name in the legend.

Letters: R repeats, T epochs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from s2e.plots.drawing import PANELS_PER_ROW, draw_line, legend, panels, plot_style
from s2e.plots.styles import ORDERED_STYLES, Style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Line:
    """A line in a panel.

    Attributes:
        panel: title of the panel.
        name: name in the legend.
        mean: (T,) values; NaN leaves a gap.
        low: (T,) lower end of the band; None for no band.
        high: (T,) upper end of the band; None for no band.
    """

    panel: str
    name: str
    mean: Floats
    low: Floats | None = None
    high: Floats | None = None


def mean_line(panel: str, name: str, values: Floats) -> Line:
    """Return the mean of curves (R, T) with a band of one standard deviation; a single curve has no band."""
    mean = values.mean(axis=0)
    if len(values) == 1:
        return Line(panel, name, mean)
    deviation = values.std(axis=0, ddof=1)
    return Line(panel, name, mean, mean - deviation, mean + deviation)


def draw_lines(
    lines: Sequence[Line],
    y_label: str,
    *,
    limits: tuple[float, float] | None = None,
    notes: Sequence[str] = (),
    per_row: int = PANELS_PER_ROW,
    styles: Mapping[str, Style] | None = None,
) -> Figure:
    """Draw lines in panels, in order of first appearance, with one legend.

    Args:
        lines: at least one.
        y_label: label of the vertical axes, which show percentages.
        limits: of the vertical axes; None for those that fit.
        notes: lines of text above the legend.
        per_row: panels in a row.
        styles: the style of a line by its name in the legend; None for distinct ones in order of first appearance.
    """
    names = list(dict.fromkeys(line.name for line in lines))
    if styles is None:
        styles = {name: ORDERED_STYLES[index % len(ORDERED_STYLES)] for index, name in enumerate(names)}
    with plot_style():
        figure, axes_of = panels([line.panel for line in lines], y_label, title=str, per_row=per_row)
        for line in lines:
            axes, style = axes_of[line.panel], styles[line.name]
            draw_line(axes, line.mean, style)
            if line.low is not None and line.high is not None:
                epochs = np.arange(len(line.mean))
                axes.fill_between(epochs, line.low, line.high, color=style.color, alpha=0.15, linewidth=0, zorder=2)
        if limits is not None:
            for axes in axes_of.values():
                axes.set_ylim(*limits)
        legend(figure, {name: styles[name] for name in names}, notes)
    return figure
