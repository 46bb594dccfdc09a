"""Drawings of curves over epochs."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from figure_outcomes import METHODS, NAN, NOISES, draw, legend_names, legend_of, lines_of, make_band
from s2e.plots import STYLES, KeepRateCurve, draw_bands, draw_keep_rates, render


@pytest.mark.parametrize(("panels", "columns", "rows"), [(1, 1, 1), (4, 3, 2)])
def test_panels_wrap_after_three(panels: int, columns: int, rows: int) -> None:
    figure = draw_bands([make_band(f"pair:0.{number + 1}") for number in range(panels)], y_label="test accuracy")
    assert [axes.get_title() for axes in figure.axes] == [f"pair noise, {number + 1}0%" for number in range(panels)]
    assert [axes.get_ylabel() for axes in figure.axes] == ["test accuracy", "", "", "test accuracy"][:panels]
    assert {axes.get_xlabel() for axes in figure.axes} == {"epoch"}
    cells = [axes.get_subplotspec() for axes in figure.axes]
    assert {(cell.get_gridspec().nrows, cell.get_gridspec().ncols) for cell in cells} == {(rows, columns)}
    assert [(cell.rowspan.start, cell.colspan.start) for cell in cells] == [divmod(i, columns) for i in range(panels)]


@pytest.mark.parametrize("epochs", [1, 40])
def test_tick_labels_are_percentages_and_integer_epochs(epochs: int) -> None:
    figure = draw_bands([make_band(values=[0.6] * epochs)], y_label="test accuracy")
    draw(figure)
    (axes,) = figure.axes
    assert "60%" in [label.get_text() for label in axes.get_yticklabels()]
    ticks = [label.get_text() for label in axes.get_xticklabels()]
    assert "0" in ticks
    assert all(re.fullmatch(r"−?\d+", tick) for tick in ticks)


def test_lines_and_areas_are_in_the_panel_of_their_noise() -> None:
    bands = [make_band("pair:0.2", "s2e", [0.1, 0.2]), make_band("pair:0.45", "s2e", [0.3, 0.4])]
    bands.append(make_band("pair:0.45", "jocor", [0.5, 0.7], low=np.array([0.4, 0.45]), high=np.array([0.6, 0.95])))
    first, second = draw_bands(bands, y_label="test accuracy").axes
    np.testing.assert_array_equal([line.get_ydata() for line in lines_of(first)], [[0.1, 0.2]])
    np.testing.assert_array_equal([line.get_ydata() for line in lines_of(second)], [[0.3, 0.4], [0.5, 0.7]])
    np.testing.assert_array_equal(lines_of(second)[1].get_xdata(), [0, 1])
    corners = {tuple(corner) for corner in second.collections[1].get_paths()[0].vertices.round(6).tolist()}
    assert corners == {(0, 0.4), (1, 0.45), (0, 0.6), (1, 0.95)}


def test_legend_has_every_method_once() -> None:
    bands = [make_band(noise, method) for noise in NOISES for method in ("coteaching+", "jocor", "s2e")]
    figure = draw_bands(bands, y_label="test accuracy")
    assert legend_names(figure) == ["Co-teaching+", "JoCoR", "S2E"]
    assert all(axes.get_legend() is None for axes in figure.axes)


def test_note_gives_the_number_of_seeds() -> None:
    def note_and_areas(*seeds: int) -> tuple[str, int]:
        bands = [make_band(method=method, seeds=count) for method, count in zip(("jocor", "s2e"), seeds, strict=True)]
        figure = draw_bands(bands, y_label="test accuracy")
        return legend_of(figure).get_title().get_text(), len(figure.axes[0].collections)

    assert note_and_areas(5, 5) == ("mean over 5 seeds ± one standard deviation", 2)
    assert note_and_areas(5, 3) == ("mean over 3 to 5 seeds ± one standard deviation", 2)
    assert note_and_areas(1, 1) == ("", 0)


def test_diverged_trainings_are_noted_and_their_deviation_omitted() -> None:
    figure = draw_bands([make_band(method="jocor", diverged=1), make_band()], y_label="test accuracy")
    note = legend_of(figure).get_title().get_text()
    assert "diverged, shown without deviation: JoCoR 1 of 3 (pair noise, 45%)" in note
    assert "S2E" not in note
    assert (len(figure.axes[0].collections), len(lines_of(figure.axes[0]))) == (1, 2)
    figure = draw_bands([make_band(seeds=1, diverged=1)], y_label="test accuracy")
    assert legend_of(figure).get_title().get_text() == "diverged: S2E 1 of 1 (pair noise, 45%)"


def limits(values: Any, **changes: Any) -> tuple[float, float]:
    """Limits of the vertical axis around one band."""
    band = make_band(values=values, **{"low": np.array(values), "high": np.array(values), **changes})
    low, high = draw_bands([band], y_label="").axes[0].get_ylim()
    return float(low), float(high)


def test_limits_ignore_the_first_twentieth_of_the_epochs() -> None:
    rise = np.concatenate([np.linspace(0.1, 0.75, 10), np.full(190, 0.8)])
    low, high = limits(rise, low=rise - 0.02, high=rise + 0.05)
    assert 0.75 < low < 0.78
    assert 0.85 < high < 0.88
    rise[10] = 0.4
    assert 0.35 < limits(rise)[0] < 0.4
    short = np.linspace(0.1, 0.9, 19)
    assert limits(short)[0] < 0.1
    only_first = np.array([0.5] + [NAN] * 39)
    low, high = limits(only_first)
    assert low < 0.5 < high


def test_limits_stay_within_0_and_100_percent() -> None:
    wide = {"low": np.array([-0.3, -0.4]), "high": np.array([1.3, 1.2])}
    low, high = limits([0.5, 0.6], **wide)
    assert low == 0
    assert 1 <= high <= 1.01
    low, high = limits([0.5, 0.6], diverged=1, **wide)  # the deviation is not drawn
    assert 0.45 < low < 0.5
    assert 0.6 < high < 0.65
    low, high = limits([1.0, 1.0])  # a constant line has a margin
    assert low < 0.999
    assert high > 1


def test_unknown_epochs_are_gaps_and_isolated_ones_dots() -> None:
    values = [0.5, NAN, 0.6, 0.7, NAN, 0.8]
    (line,) = lines_of(draw_bands([make_band(values=values)], y_label="label precision").axes[0])
    np.testing.assert_array_equal(line.get_ydata(), values)
    assert line.get_markevery() == [0, 5]
    assert line.get_marker() == "o"


def test_shared_keep_rates_are_drawn_once_under_all_names() -> None:
    curves = [
        KeepRateCurve("pair:0.45", ("coteaching", "jocor"), np.array([1.0, 0.55])),
        KeepRateCurve("pair:0.45", ("s2e",), np.array([1.0, 0.3])),
    ]
    figure = draw_keep_rates(curves)
    (axes,) = figure.axes
    assert axes.get_ylabel() == "keep rate R(t)"
    assert legend_names(figure) == ["Co-teaching, JoCoR", "S2E"]
    np.testing.assert_array_equal([line.get_ydata() for line in lines_of(axes)], [[1.0, 0.55], [1.0, 0.3]])
    assert [line.get_color() for line in lines_of(axes)] == [STYLES["coteaching"].color, STYLES["s2e"].color]
    assert axes.get_ylim()[0] == 0
    assert 1 < axes.get_ylim()[1] < 1.05


def overlaps(figure: Any) -> list[tuple[str, str]]:
    """Texts that overlap each other or the edge of the figure."""
    renderer = figure.canvas.get_renderer()
    legend = legend_of(figure)
    texts = [axes.title for axes in figure.axes] + [axes.xaxis.label for axes in figure.axes]
    texts += [axes.yaxis.label for axes in figure.axes] + [*legend.get_texts(), legend.get_title()]
    boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in texts if text.get_text()]
    whole = figure.bbox
    outside = [
        (name, "figure")
        for name, box in boxes
        if box.x0 < whole.x0 or box.y0 < whole.y0 or box.x1 > whole.x1 or box.y1 > whole.y1
    ]
    return outside + [
        (one, other) for (one, first), (other, second) in itertools.combinations(boxes, 2) if first.overlaps(second)
    ]


@pytest.mark.parametrize(("panels", "diverged"), [(1, 1), (4, 0)])
def test_texts_do_not_overlap(panels: int, diverged: int) -> None:
    noises = [f"symmetric:0.{number + 1}" for number in range(panels)]
    methods = [*METHODS, "s2e:coteaching+"]
    bands = [make_band(noise, method, diverged=diverged) for noise in noises for method in methods]
    figure = draw_bands(bands, y_label="test accuracy")
    draw(figure)
    assert overlaps(figure) == []
    heights = [axes.get_window_extent().height / figure.dpi for axes in figure.axes]
    assert min(heights) > 1.2, "the legend must not squeeze the panels"


def test_dollar_signs_are_not_markup() -> None:
    figure = draw_bands([make_band("asymmetric:$cost_{$.csv", diverged=1)], y_label="test accuracy")
    draw(figure)
    assert figure.axes[0].get_title() == "asymmetric noise, $cost_{$.csv"


def test_matplotlib_is_imported_only_for_drawing_and_pyplot_never() -> None:
    program = """
import sys, numpy, s2e.plots as plots
assert "matplotlib" not in sys.modules
figure = plots.draw_keep_rates([plots.KeepRateCurve("none", ("s2e",), numpy.ones(2))])
sys.stdout.buffer.write(plots.render(figure, "svg"))
assert "matplotlib.pyplot" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=120)
    here = render(draw_keep_rates([KeepRateCurve("none", ("s2e",), np.ones(2))]), "svg")
    assert done.stdout == here, "every process must draw the same bytes"
