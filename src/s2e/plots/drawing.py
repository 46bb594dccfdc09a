"""Drawing functions shared by all figures: panels by noise setting, lines, a legend below the panels, and files.

Matplotlib's global state is never changed: figures are created without pyplot, and `plot_style` is a context.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Iterable, Mapping
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

PANELS_PER_ROW = 3
DOTS_PER_INCH = 200

_RC_PARAMS: dict[str, Any] = {
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
    "svg.hashsalt": "s2e",  # the IDs of clip paths are random otherwise
}

_HANDLE_LENGTH = 3.8
"""Length of the lines in the legend, in font sizes: long enough to distinguish the dashes."""


def plot_style() -> AbstractContextManager[None]:
    """Return a context with matplotlib's defaults and the style of s2e, independent of the user's rcParams."""
    import matplotlib.style

    return matplotlib.style.context(["default", _RC_PARAMS])


def panels(
    noises: Iterable[str],
    y_label: str,
    *,
    x_label: str = "epoch",
    title: Callable[[str], str] = noise_title,
    per_row: int = PANELS_PER_ROW,
) -> tuple[Figure, dict[str, Axes]]:
    """Create an empty panel for each noise setting, three in a row.

    Args:
        noises: noise settings as given on the command line, or other names; repeated ones share a panel.
        y_label: label of the vertical axes, which show percentages.
        x_label: label of the horizontal axes.
        title: the title of a panel, a function of its name.
        per_row: panels in a row.

    Returns:
        The figure, and its axes by noise setting.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    distinct = list(dict.fromkeys(noises))
    columns = min(per_row, len(distinct))
    rows = -(-len(distinct) // columns)
    size = (5.6, 2.9) if len(distinct) == 1 else (2.8 * columns, 2.4 * rows)  # inches; the legend adds to the height
    figure = Figure(figsize=size, layout="constrained")
    axes_of = {}
    for position, noise in enumerate(distinct):
        axes = figure.add_subplot(rows, columns, position + 1)
        axes.set_title(_wrapped(title(noise), 40), parse_math=False)
        axes.set_xlabel(x_label)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
        axes.yaxis.set_major_locator(MaxNLocator(nbins=7, steps=[1, 2, 5, 10]))
        axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.4g}%")
        axes.margins(x=0.01)
        if position % columns == 0:
            axes.set_ylabel(y_label)
        axes_of[noise] = axes
    return figure, axes_of


def draw_line(axes: Axes, values: Floats, style: Style) -> None:
    """Draw values (T,) over the epochs; NaN leaves a gap, and a value between two gaps is drawn as a dot."""
    known = np.concatenate([[False], ~np.isnan(values), [False]])  # (T + 2,)
    isolated = known[1:-1] & ~known[:-2] & ~known[2:]  # (T,)
    axes.plot(
        np.arange(len(values)),
        values,
        color=style.color,
        linestyle=style.linestyle,
        linewidth=style.width,
        marker="o",
        markersize=2.5 * style.width,
        markevery=np.flatnonzero(isolated).tolist(),
        zorder=style.layer,
    )


def legend(figure: Figure, styles: Mapping[str, Style], notes: Iterable[str] = ()) -> None:
    """Add one legend below all panels, in as many columns as fit, and increase the figure's height by it.

    Args:
        figure: the figure.
        styles: the style of each line by its name in the legend.
        notes: lines of text above the legend.
    """
    from matplotlib.lines import Line2D

    size = _RC_PARAMS["font.size"] / 72  # inches
    width = figure.get_figwidth() / size  # in font sizes; the mean width of a letter is a little more than half of one
    names = [_wrapped(name, 44) for name in styles]
    lines = [name.splitlines() for name in names]
    column = _HANDLE_LENGTH + 0.55 * max(len(line) for name in lines for line in name) + 2.5
    rows = -(-len(names) // max(1, int(width / column)))
    title = "\n".join(_wrapped(note, int(width / 0.6)) for note in notes)
    box = figure.legend(
        [
            Line2D([], [], color=style.color, linestyle=style.linestyle, linewidth=style.width)
            for style in styles.values()
        ],
        names,
        loc="outside lower center",
        ncols=-(-len(names) // rows),
        handlelength=_HANDLE_LENGTH,
        title=title or None,
        title_fontsize="small",
    )
    box.get_title().set_multialignment("center")
    for text in (box.get_title(), *box.get_texts()):
        text.set_parse_math(False)  # a file name may contain a $
    height = rows * max(map(len, lines)) + len(title.splitlines())
    figure.set_figheight(figure.get_figheight() + 1.5 * size * (height + 0.5))


def _wrapped(text: str, letters: int) -> str:
    return textwrap.fill(text, letters, break_on_hyphens=False)


def render(figure: Figure, file_format: str) -> bytes:
    """Return the contents of a `png` or `svg` file of a figure; the same figure gives the same bytes."""
    content = io.BytesIO()
    metadata: dict[str, Any] = {"png": {"Software": None}, "svg": {"Date": None}}[file_format]
    with plot_style():
        figure.savefig(content, format=file_format, dpi=DOTS_PER_INCH, metadata=metadata)
    return content.getvalue()
