"""Charts as inline SVG, with colours from the page's custom properties, so that they follow dark mode and print.

One unit of a chart is about one pixel on a phone: text of 11 units stays readable there, and grows on wider screens.
Lines differ in their dashes as well as in their colours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

from s2e.plots import OTHER_COLOR, STYLES, style_of

Floats = NDArray[np.float64]

LEFT, RIGHT, TOP, BOTTOM = 46, 10, 12, 40
"""Margins around the plot area."""

OVERHANG = 6
"""Distance by which marks may extend beyond the plot area; further parts of lines are clipped."""

MAX_POINTS = 240
"""Maximum number of points drawn of a line; more would fall on the same pixels."""

MAX_OPAQUE_BANDS = 4
"""Number of overlapping bands above which each is drawn fainter."""

_DARK_COLORS = {
    "standard": "#E4E4E4",
    "decoupling": "#D8C956",
    "f-correction": "#F2A6B5",
    "mentornet": "#6CC1F0",
    "coteaching": "#4AA5EA",
    "coteaching+": "#A394F2",
    "reweight": "#E37DBB",
    "jocor": "#45B985",
    "s2e": "#FF7A59",
}
"""Colours of the methods with enough contrast on a dark background."""

_OTHER_DARK_COLOR = "#CBA079"
_SPARE_DASHES = ((7, 3), (2, 1), (4, 1, 2, 1), (10, 1), (2, 3))


@dataclass(frozen=True)
class LineStyle:
    """The style of a line.

    Attributes:
        color: a custom property of the page.
        dashes: alternating lengths of dashes and gaps, in line widths; empty for a solid line.
        width: in units of the chart.
    """

    color: str
    dashes: tuple[float, ...] = ()
    width: float = 1.8


@dataclass(frozen=True, eq=False)
class Line:
    """A line, with a band around it if `low` and `high` are given.

    Attributes:
        name: name in the legend; "" for no entry.
        style: style of the line.
        x: (n,) horizontal coordinates.
        y: (n,) vertical coordinates, NaN for a gap.
        low: (n,) lower edge of the band.
        high: (n,) upper edge of the band.
        dots: whether each value is marked.
        faint: whether the line is drawn as background for others.
    """

    name: str
    style: LineStyle
    x: Floats
    y: Floats
    low: Floats | None = None
    high: Floats | None = None
    dots: bool = False
    faint: bool = False


@dataclass(frozen=True)
class Dot:
    """A single value with a tooltip, filled, hollow or ringed."""

    x: float
    y: float
    tooltip: str
    hollow: bool = False
    ringed: bool = False


@dataclass(frozen=True, eq=False)
class Chart:
    """Lines and dots in one plot area; the vertical axis shows percentages.

    Attributes:
        title: title of the chart.
        description: a sentence or two for screen readers.
        x_label: label of the horizontal axis.
        lines: lines in drawing order.
        dots: dots, drawn below the lines.
        full_range: whether the vertical axis always goes from 0% to 100%.
        ignored_start: share of the values of each line, from the left, that the limits of the vertical axis ignore.
        size: width and height in units.
    """

    title: str
    description: str
    x_label: str
    lines: tuple[Line, ...]
    dots: tuple[Dot, ...] = ()
    full_range: bool = False
    ignored_start: float = 0.0
    size: tuple[int, int] = (380, 236)


# Styles


def line_styles(methods: Sequence[str]) -> list[LineStyle]:
    """Return a style for each line of a figure; lines of the same method differ in their dashes."""
    found: list[LineStyle] = []
    for method in methods:
        style = style_of(method)
        line = LineStyle(_property(method), style.dashes, 1.2 * style.width if method == "s2e" else 1.8)
        spare = (dashes for dashes in _SPARE_DASHES if dashes not in [other.dashes for other in found])
        if line in found:
            line = LineStyle(line.color, next(spare, line.dashes), line.width)
        found.append(line)
    return found


def _property(method: str) -> str:
    """Return the custom property with the colour of a method."""
    searched = method.removeprefix("s2e:")
    known = method if method in STYLES else searched
    return f"--of-{known.replace('+', '-plus')}" if known in STYLES else "--of-others"


def palette(*, dark: bool) -> str:
    """Return CSS declarations of the custom properties with the colours of all methods."""
    colors = {
        _property(method): _DARK_COLORS.get(method, style.color) if dark else style.color
        for method, style in STYLES.items()
    }
    colors["--of-others"] = _OTHER_DARK_COLOR if dark else OTHER_COLOR
    return " ".join(f"{name}: {color};" for name, color in colors.items())


# Axes


@dataclass(frozen=True)
class Axis:
    """A linear map from values to coordinates: `low` to `start` and `high` to `stop`."""

    low: float
    high: float
    start: float
    stop: float

    def at(self, value: float) -> float:
        """Return the coordinate of a value."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.stop - self.start)


def ticks(low: float, high: float, max_ticks: int = 6) -> list[float]:
    """Return at most `max_ticks` round numbers within [low, high]: multiples of 1, 2 or 5 times a power of ten."""
    if not high > low:
        return [low]
    step = 10.0 ** math.floor(math.log10((high - low) / max_ticks))
    for factor in (1, 2, 5, 10, 20, 50):
        first, last = math.ceil(low / (factor * step) - 1e-9), math.floor(high / (factor * step) + 1e-9)
        if last - first + 1 <= max_ticks:
            break
    return [round(index * factor * step, 12) for index in range(first, last + 1)]


def _vertical(chart: Chart) -> Axis:
    """Fit the vertical axis to everything that is drawn, except the ignored start of the lines."""
    bottom, top = float(chart.size[1] - BOTTOM), float(TOP)
    if chart.full_range:
        return Axis(0.0, 1.0, bottom, top)
    drawn = [
        values[int(chart.ignored_start * len(values)) :]
        for line in chart.lines
        for values in (line.y, line.low, line.high)
        if values is not None
    ]
    values = np.concatenate([*drawn, np.array([dot.y for dot in chart.dots])])
    values = values[np.isfinite(values)]
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    margin = max(0.06 * (high - low), 0.005)
    return Axis(max(low - margin, 0.0), min(high + margin, 1.0), bottom, top)


def _horizontal(chart: Chart) -> Axis:
    values = [float(value) for line in chart.lines for value in (line.x[0], line.x[-1]) if len(line.x)]
    values += [dot.x for dot in chart.dots] + [0.0] * bool(chart.dots)  # dots are drawn over costs, which begin at 0
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    return Axis(low, high if high > low else low + 1, LEFT, chart.size[0] - RIGHT)


# Drawing


def svg(chart: Chart) -> str:
    """Draw a chart; its texts are escaped, so that the result is safe HTML."""
    horizontal, vertical = _horizontal(chart), _vertical(chart)
    bands = [_band(line, horizontal, vertical) for line in chart.lines if line.low is not None]
    parts = bands + [_dot(dot, horizontal, vertical) for dot in chart.dots]
    parts += [_path(line, horizontal, vertical) for line in chart.lines]
    width, height = chart.size
    plot_width, plot_height = width - LEFT - RIGHT + 2 * OVERHANG, height - BOTTOM - TOP + OVERHANG + 2
    box = f"{LEFT - OVERHANG} {TOP - OVERHANG} {plot_width} {plot_height}"
    title, description = escape(chart.title), escape(chart.description)
    return (
        f'<svg class="chart{" crowded" if len(bands) > MAX_OPAQUE_BANDS else ""}" role="img" '
        f'viewBox="0 0 {width} {height}" aria-label="{title}. {description}">'
        f"<title>{title}</title><desc>{description}</desc>{_axes(horizontal, vertical, chart)}"
        f'<svg x="{LEFT - OVERHANG}" y="{TOP - OVERHANG}" width="{plot_width}" height="{plot_height}" viewBox="{box}">'
        f"{''.join(parts)}</svg></svg>"
    )


def _axes(horizontal: Axis, vertical: Axis, chart: Chart) -> str:
    """Draw grid lines, tick labels and the label of the horizontal axis."""
    width, height = chart.size
    parts = []
    values = ticks(vertical.low, vertical.high)
    digits = _decimals([100 * value for value in values])
    for value in values:
        y = vertical.at(value)
        parts.append(f'<path d="M{LEFT} {_short(y)}H{width - RIGHT}"/>')
        parts.append(f'<text class="end" x="{LEFT - 8}" y="{_short(y + 4)}">{100 * value:.{digits}f}%</text>')
    for value in ticks(horizontal.low, horizontal.high):
        if value == int(value):
            x = _short(horizontal.at(value))
            parts.append(f'<text class="middle" x="{x}" y="{height - 23}">{value:.0f}</text>')
    middle = _short((LEFT + width - RIGHT) / 2)
    parts.append(f'<text class="middle" x="{middle}" y="{height - 6}">{escape(chart.x_label)}</text>')
    return f'<g class="axes">{"".join(parts)}</g>'


def _decimals(values: Sequence[float]) -> int:
    """Return the number of decimals that all these numbers need, at most 4."""
    for digits in range(4):
        if all(abs(round(value, digits) - value) < 1e-6 for value in values):
            return digits
    return 4


def _path(line: Line, horizontal: Axis, vertical: Axis) -> str:
    """Draw a line: one subpath for each segment without gaps; an isolated value becomes a point."""
    subpaths = []
    for segment in _segments(line.y):
        kept = segment[_thinned(len(segment))]
        points = [f"{_short(horizontal.at(line.x[i]))} {_short(vertical.at(line.y[i]))}" for i in kept]
        subpaths.append("M" + "L".join(points) + ("h0" if len(points) == 1 else ""))
    style = line.style
    drawn = f'<path class="line{" faint" if line.faint else ""}" {_stroke(style)} d="{"".join(subpaths)}"/>'
    if line.dots:
        drawn += "".join(
            f'<circle class="mark" style="fill:var({style.color})" cx="{_short(horizontal.at(line.x[i]))}" '
            f'cy="{_short(vertical.at(line.y[i]))}" r="2.6"/>'
            for i in np.flatnonzero(np.isfinite(line.y))
        )
    return drawn


def _band(line: Line, horizontal: Axis, vertical: Axis) -> str:
    low = line.y if line.low is None else np.maximum(line.low, vertical.low)
    high = line.y if line.high is None else np.minimum(line.high, vertical.high)
    subpaths = []
    for segment in _segments(line.y + low + high):
        kept = segment[_thinned(len(segment))]
        upper = [f"{_short(horizontal.at(line.x[i]))} {_short(vertical.at(high[i]))}" for i in kept]
        lower = [f"{_short(horizontal.at(line.x[i]))} {_short(vertical.at(low[i]))}" for i in kept[::-1]]
        subpaths.append("M" + "L".join([*upper, *lower]) + "Z")
    return f'<path class="band" style="fill:var({line.style.color})" d="{"".join(subpaths)}"/>'


def _dot(dot: Dot, horizontal: Axis, vertical: Axis) -> str:
    kind = " hollow" * dot.hollow + " ringed" * dot.ringed
    return (
        f'<circle class="dot{kind}" cx="{_short(horizontal.at(dot.x))}" cy="{_short(vertical.at(dot.y))}" '
        f'r="{4.5 if dot.ringed else 3}"><title>{escape(dot.tooltip)}</title></circle>'
    )


def _segments(values: Floats) -> list[NDArray[np.int64]]:
    """Return the indices of the finite values, split at gaps."""
    known = np.flatnonzero(np.isfinite(values))
    gaps = np.flatnonzero(np.diff(known) > 1) + 1
    return [segment for segment in np.split(known, gaps) if len(segment)]


def _thinned(count: int) -> NDArray[np.int64]:
    """Return which of `count` points to draw: all, or evenly spaced ones with both ends."""
    return np.unique(np.linspace(0, count - 1, min(count, MAX_POINTS)).round().astype(np.int64))


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _stroke(style: LineStyle) -> str:
    dashes = " ".join(_short(length * style.width) for length in style.dashes) or "none"
    return f'style="stroke:var({style.color})" stroke-width="{_short(style.width)}" stroke-dasharray="{dashes}"'


# Legends


def line_swatch(style: LineStyle) -> str:
    """Draw a short line for a legend."""
    return _swatch(f'<path class="line" {_stroke(style)} d="M1 4H33"/>')


def dot_swatch(kind: str = "") -> str:
    """Draw a dot for a legend: "hollow", "ringed" or filled."""
    return _swatch(f'<circle class="dot {kind}" cx="17" cy="4" r="3"/>')


def _swatch(drawing: str) -> str:
    return f'<svg class="swatch" aria-hidden="true" viewBox="0 0 34 8">{drawing}</svg>'
