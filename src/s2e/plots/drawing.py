"""What all figures share: how lines look, panels by noise setting, a legend below, and files.

Nothing here touches matplotlib's global state: figures are plain objects, and settings hold inside a context.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from s2e.plots.names import noise_title
from s2e.plots.styles import Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

PANELS_IN_A_ROW = 3
DOTS_PER_INCH = 200

_SETTINGS: dict[str, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.6,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "legend.frameon": False,
    "svg.hashsalt": "s2e",  # the names of clip paths, else drawn at random
}

_SAMPLE_LENGTH = 3.8
"""Length of the lines in the legend, in font sizes: long enough to tell the dashes apart."""


def settings() -> AbstractContextManager[None]:
    """Matplotlib's defaults and ours, whatever the user's own settings are, until the context ends."""
    import matplotlib.style

    return matplotlib.style.context(["default", _SETTINGS])


def panels(noises: Iterable[str], label: str, *, over: str = "epoch") -> tuple[Figure, dict[str, Axes]]:
    """Return empty panels for the noise settings, in rows of three; `label` and `over` name their axes."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    settings_of_noise = list(dict.fromkeys(noises))
    columns = min(PANELS_IN_A_ROW, len(settings_of_noise))
    rows = -(-len(settings_of_noise) // columns)
    size = (
        (5.6, 2.9) if len(settings_of_noise) == 1 else (2.8 * columns, 2.4 * rows)
    )  # inches; the legend adds to the height
    figure = Figure(figsize=size, layout="constrained")
    drawn = {}
    for position, noise in enumerate(settings_of_noise):
        axes = figure.add_subplot(rows, columns, position + 1)
        axes.set_title(_wrapped(noise_title(noise), 40), parse_math=False)
        axes.set_xlabel(over)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
        axes.yaxis.set_major_locator(MaxNLocator(nbins=7, steps=[1, 2, 5, 10]))
        axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.4g}%")
        axes.margins(x=0.01)
        if position % columns == 0:
            axes.set_ylabel(label)
        drawn[noise] = axes
    return figure, drawn


def draw_line(axes: Axes, values: Floats, style: Style) -> None:
    """Draw values (T,) over the epochs; a known epoch between unknown ones, where no line is, gets a dot."""
    known = np.concatenate([[False], ~np.isnan(values), [False]])  # (T + 2,)
    alone = known[1:-1] & ~known[:-2] & ~known[2:]  # (T,)
    axes.plot(
        np.arange(len(values)),
        values,
        color=style.color,
        linestyle=style.linestyle,
        linewidth=style.width,
        marker="o",
        markersize=2.5 * style.width,
        markevery=np.flatnonzero(alone).tolist(),
        zorder=style.layer,
    )


def legend(figure: Figure, styles: Mapping[str, Style], notes: Iterable[str] = ()) -> None:
    """One legend under all panels, in as many columns as fit, under notes on what is drawn; the figure grows by it."""
    from matplotlib.lines import Line2D

    size = _SETTINGS["font.size"] / 72  # inches
    width = figure.get_figwidth() / size  # in font sizes, of which a letter takes a little more than half
    names = [_wrapped(name, 44) for name in styles]
    lines = [name.splitlines() for name in names]
    column = _SAMPLE_LENGTH + 0.55 * max(len(line) for name in lines for line in name) + 2.5
    rows = -(-len(names) // max(1, int(width / column)))
    title = "\n".join(_wrapped(note, int(width / 0.6)) for note in notes)
    below = figure.legend(
        [
            Line2D([], [], color=style.color, linestyle=style.linestyle, linewidth=style.width)
            for style in styles.values()
        ],
        names,
        loc="outside lower center",
        ncols=-(-len(names) // rows),
        handlelength=_SAMPLE_LENGTH,
        title=title or None,
        title_fontsize="small",
    )
    below.get_title().set_multialignment("center")
    for text in (below.get_title(), *below.get_texts()):
        text.set_parse_math(False)  # a file name may hold a $
    height = rows * max(map(len, lines)) + len(title.splitlines())
    figure.set_figheight(figure.get_figheight() + 1.5 * size * (height + 0.5))


def _wrapped(text: str, letters: int) -> str:
    return textwrap.fill(text, letters, break_on_hyphens=False)


def rendered(figure: Figure, kind: str) -> bytes:
    """Return a figure as a PNG or an SVG file; the same figure gives the same bytes."""
    content = io.BytesIO()
    undated: dict[str, Any] = {"png": {"Software": None}, "svg": {"Date": None}}[kind]
    with settings():
        figure.savefig(content, format=kind, dpi=DOTS_PER_INCH, metadata=undated)
    return content.getvalue()
