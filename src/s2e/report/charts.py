"""Drawings for a page: charts as inline SVG, whose colours are the page's own, so that dark and print follow.

A chart is drawn in units of which a phone shows about one for each pixel: letters of 11 units stay readable there, and
grow a little where there is more room. Every line differs from its neighbours in its dashes too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from s2e.plots.styles import STYLES, style_of

Floats = NDArray[np.float64]

LEFT, RIGHT, TOP, BOTTOM = 46, 10, 12, 40
OVER = 6
"""How far marks at the edge may stand out of the plot; lines that come from below it are cut there."""

MOST_POINTS = 240
"""A line has no more: further ones fall on the same pixels."""

FEW_BANDS = 4
"""More of them are drawn fainter: they lie over each other."""

_IN_THE_DARK = {
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
"""The methods' colours on a dark ground, where many of the others would drown."""

_OTHERS = ("#8B5A2B", "#CBA079")
_SPARE_DASHES = ((7, 3), (2, 1), (4, 1, 2, 1), (10, 1), (2, 3))


@dataclass(frozen=True)
class Look:
    """How a line is drawn: a custom property of the page for its colour, dashes in units of its width."""

    colour: str
    dashes: tuple[float, ...] = ()
    width: float = 1.8


@dataclass(frozen=True, eq=False)
class Line:
    """Values over places, (n,) each, NaN where there is none; with a band around it where `low` and `high` are given.

    Attributes:
        name: in the legend; "" for one that needs no words.
        dots: whether each value is marked.
        faint: whether it is background for others.
    """

    name: str
    look: Look
    x: Floats
    y: Floats
    low: Floats | None = None
    high: Floats | None = None
    dots: bool = False
    faint: bool = False


@dataclass(frozen=True)
class Dot:
    """One value at one place; hollow where it counts less, ringed where it counts most."""

    x: float
    y: float
    says: str
    hollow: bool = False
    ringed: bool = False


@dataclass(frozen=True, eq=False)
class Chart:
    """Lines and dots over one horizontal axis; what the vertical one shows are shares, written in percent.

    Attributes:
        title: what is shown.
        about: the same in a sentence or two, for those who cannot see it.
        x_label: of the horizontal axis.
        lines: drawn in this order.
        dots: drawn below the lines.
        whole: whether the vertical axis goes from 0% to 100%, whatever is drawn.
        skipped: share of the places, from the left, that do not widen the vertical axis.
        size: width and height.
    """

    title: str
    about: str
    x_label: str
    lines: tuple[Line, ...]
    dots: tuple[Dot, ...] = ()
    whole: bool = False
    skipped: float = 0.0
    size: tuple[int, int] = (380, 236)


# Colours


def looks(methods: Sequence[str]) -> list[Look]:
    """Return a look for each line of a figure; those of the same method share a colour, not the dashes."""
    found: list[Look] = []
    for method in methods:
        style = style_of(method)
        look = Look(_property(method), style.dashes, 1.2 * style.width if method == "s2e" else 1.8)
        spare = (dashes for dashes in _SPARE_DASHES if dashes not in [other.dashes for other in found])
        if look in found:
            look = Look(look.colour, next(spare, look.dashes), look.width)
        found.append(look)
    return found


def _property(method: str) -> str:
    searched = method.removeprefix("s2e:")
    known = method if method in STYLES else searched
    return f"--of-{known.replace('+', '-plus')}" if known in STYLES else "--of-others"


def palette(*, dark: bool) -> Markup:
    """Declare the custom properties of all methods."""
    colours = {
        _property(method): _IN_THE_DARK.get(method, style.color) if dark else style.color
        for method, style in STYLES.items()
    }
    colours["--of-others"] = _OTHERS[dark]
    return Markup(" ".join(f"{name}: {colour};" for name, colour in colours.items()))  # noqa: S704  # nobody's input


# Axes


@dataclass(frozen=True)
class Axis:
    """From values to places: `low` falls on `begin` and `high` on `end`."""

    low: float
    high: float
    begin: float
    end: float

    def at(self, value: float) -> float:
        """Return the place of a value."""
        return self.begin + (value - self.low) / (self.high - self.low) * (self.end - self.begin)


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return round numbers within [low, high], at most so many: multiples of 1, 2 or 5 times a power of ten."""
    if not high > low:
        return [low]
    step = 10.0 ** math.floor(math.log10((high - low) / most))
    for factor in (1, 2, 5, 10, 20, 50):
        first, last = math.ceil(low / (factor * step) - 1e-9), math.floor(high / (factor * step) + 1e-9)
        if last - first + 1 <= most:
            break
    return [round(place * factor * step, 12) for place in range(first, last + 1)]


def _vertical(chart: Chart) -> Axis:
    """Fit the vertical axis to what is drawn, but for the first places, which would take up half of it."""
    bottom, top = float(chart.size[1] - BOTTOM), float(TOP)
    if chart.whole:
        return Axis(0.0, 1.0, bottom, top)
    drawn = [
        values[int(chart.skipped * len(values)) :]
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
    places = [float(value) for line in chart.lines for value in (line.x[0], line.x[-1]) if len(line.x)]
    places += [dot.x for dot in chart.dots] + [0.0] * bool(chart.dots)  # what they cost is counted from nothing
    low, high = (min(places), max(places)) if places else (0.0, 1.0)
    return Axis(low, high if high > low else low + 1, LEFT, chart.size[0] - RIGHT)


# Drawing


def svg(chart: Chart) -> Markup:
    """Draw a chart."""
    across, up = _horizontal(chart), _vertical(chart)
    bands = [_band(line, across, up) for line in chart.lines if line.low is not None]
    parts = bands + [_dot(dot, across, up) for dot in chart.dots]
    parts += [_path(line, across, up) for line in chart.lines]
    width, height = chart.size
    left, top, wide = LEFT - OVER, TOP - OVER, width - LEFT - RIGHT + 2 * OVER
    high = height - BOTTOM - TOP + OVER + 2
    plot = Markup('<svg x="{0}" y="{1}" width="{2}" height="{3}" viewBox="{0} {1} {2} {3}">{4}</svg>').format(
        left, top, wide, high, Markup("").join(parts)
    )
    return Markup(
        '<svg class="chart{crowded}" role="img" viewBox="0 0 {width} {height}" aria-label="{title}. {about}">'
        "<title>{title}</title><desc>{about}</desc>{axes}{plot}</svg>"
    ).format(
        crowded=" crowded" if len(bands) > FEW_BANDS else "",
        width=width,
        height=height,
        title=chart.title,
        about=chart.about,
        axes=_axes(across, up, chart),
        plot=plot,
    )


def _axes(across: Axis, up: Axis, chart: Chart) -> Markup:
    """Draw the axes: ruled lines and numbers, and below what the horizontal one shows."""
    width, height = chart.size
    parts = [Markup('<g class="axes">')]
    upright = ticks(up.low, up.high)
    digits = _decimals([100 * value for value in upright])
    for value in upright:
        y = up.at(value)
        text = f"{100 * value:.{digits}f}%"
        parts.append(Markup('<path d="M{} {}H{}"/>').format(LEFT, _short(y), width - RIGHT))
        parts.append(Markup('<text class="end" x="{}" y="{}">{}</text>').format(LEFT - 8, _short(y + 4), text))
    for value in ticks(across.low, across.high):
        if value == int(value):
            x = _short(across.at(value))
            parts.append(Markup('<text class="middle" x="{}" y="{}">{:.0f}</text>').format(x, height - 23, value))
    middle = _short((LEFT + width - RIGHT) / 2)
    parts.append(Markup('<text class="middle" x="{}" y="{}">{}</text>').format(middle, height - 6, chart.x_label))
    parts.append(Markup("</g>"))
    return Markup("").join(parts)


def _decimals(values: Sequence[float]) -> int:
    """Return how many decimals tell these numbers apart and lose none of them."""
    for digits in range(4):
        if all(abs(round(value, digits) - value) < 1e-6 for value in values):
            return digits
    return 4


def _path(line: Line, across: Axis, up: Axis) -> Markup:
    """Draw a line: a path of its own for each stretch without gaps, and a mark for a value that stands alone."""
    pieces = []
    for stretch in _stretches(line.y):
        at = stretch[_thinned(len(stretch))]
        points = [f"{_short(across.at(line.x[i]))} {_short(up.at(line.y[i]))}" for i in at]
        pieces.append("M" + "L".join(points) + ("h0" if len(points) == 1 else ""))
    look = line.look
    dashes = _dash_array(look)
    drawn = Markup(
        '<path class="line{}" style="stroke:var({})" stroke-width="{}" stroke-dasharray="{}" d="{}"/>'
    ).format(" faint" if line.faint else "", look.colour, _short(look.width), dashes, "".join(pieces))
    if line.dots:
        known = np.flatnonzero(np.isfinite(line.y))
        drawn += Markup("").join(
            Markup('<circle class="mark" style="fill:var({})" cx="{}" cy="{}" r="2.6"/>').format(
                look.colour, _short(across.at(line.x[i])), _short(up.at(line.y[i]))
            )
            for i in known
        )
    return drawn


def _band(line: Line, across: Axis, up: Axis) -> Markup:
    low = line.y if line.low is None else np.maximum(line.low, up.low)
    high = line.y if line.high is None else np.minimum(line.high, up.high)
    pieces = []
    for stretch in _stretches(line.y + low + high):
        at = stretch[_thinned(len(stretch))]
        there = [f"{_short(across.at(line.x[i]))} {_short(up.at(high[i]))}" for i in at]
        back = [f"{_short(across.at(line.x[i]))} {_short(up.at(low[i]))}" for i in at[::-1]]
        pieces.append("M" + "L".join([*there, *back]) + "Z")
    return Markup('<path class="band" style="fill:var({})" d="{}"/>').format(line.look.colour, "".join(pieces))


def _dot(dot: Dot, across: Axis, up: Axis) -> Markup:
    kind = " hollow" * dot.hollow + " ringed" * dot.ringed
    return Markup('<circle class="dot{}" cx="{}" cy="{}" r="{}"><title>{}</title></circle>').format(
        kind, _short(across.at(dot.x)), _short(up.at(dot.y)), 4.5 if dot.ringed else 3, dot.says
    )


def _stretches(values: Floats) -> list[NDArray[np.int64]]:
    """Return the places of the finite values, cut where one is missing."""
    known = np.flatnonzero(np.isfinite(values))
    cut = np.flatnonzero(np.diff(known) > 1) + 1
    return [stretch for stretch in np.split(known, cut) if len(stretch)]


def _thinned(count: int) -> NDArray[np.int64]:
    """Return which of so many points to draw: all, or evenly spaced ones with both ends."""
    return np.unique(np.linspace(0, count - 1, min(count, MOST_POINTS)).round().astype(np.int64))


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _dash_array(look: Look) -> str:
    return " ".join(_short(length * look.width) for length in look.dashes) or "none"


def swatch(look: Look) -> Markup:
    """Draw a short piece of a line, for a legend."""
    return Markup(
        '<svg class="swatch" aria-hidden="true" viewBox="0 0 34 8"><path class="line" style="stroke:var({})" '
        'stroke-width="{}" stroke-dasharray="{}" d="M1 4H33"/></svg>'
    ).format(look.colour, _short(look.width), _dash_array(look))
