"""Charts: coordinates against values worked out by hand."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from s2e.plots import STYLES
from s2e.report.charts import BOTTOM, LEFT, RIGHT, TOP, Chart, Dot, Line, LineStyle, line_styles, palette, svg, ticks

STYLE = LineStyle("--of-s2e")
WIDTH, HEIGHT = 380, 236


def chart_of(*values: float, **options: object) -> Chart:
    y = np.array(values)
    return Chart("title", "description", "epoch", (Line("", STYLE, np.arange(len(y), dtype=float), y),), **options)


def path_of(chart: Chart) -> str:
    (path,) = re.findall(r'<path class="line[^>]* d="([^"]*)"', svg(chart))
    return path


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?[0-9.]+", text)]


def test_ticks_are_round_numbers():
    assert ticks(0.0, 1.0) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert ticks(0.0, 199.0) == pytest.approx([0, 50, 100, 150])
    assert ticks(0.931, 0.9345) == pytest.approx([0.931, 0.932, 0.933, 0.934])


def test_there_are_two_to_six_evenly_spaced_ticks_in_any_range():
    generator = np.random.default_rng(0)
    for _ in range(300):
        low = generator.uniform(-5, 5)
        high = low + 10 ** generator.uniform(-4, 4)
        found = ticks(low, high)
        assert 2 <= len(found) <= 6
        assert all(low - 1e-9 * abs(low) <= value <= high * (1 + 1e-9) for value in found)
        np.testing.assert_allclose(np.diff(found), found[1] - found[0])


def test_a_line_fills_the_plot_area():
    path = path_of(chart_of(0.0, 0.5, 1.0, full_range=True))
    bottom = HEIGHT - BOTTOM
    expected = [LEFT, bottom, (LEFT + WIDTH - RIGHT) / 2, (bottom + TOP) / 2, WIDTH - RIGHT, TOP]
    assert numbers(path) == pytest.approx(expected, abs=0.06)


def test_a_missing_value_is_a_gap():
    path = path_of(chart_of(0.1, 0.2, math.nan, 0.4, 0.5))
    assert path.count("M") == 2
    assert len(numbers(path)) == 8
    assert "nan" not in svg(chart_of(0.1, math.nan, 0.3)).lower()
    assert path_of(chart_of(math.nan, math.nan)) == ""
    assert path_of(chart_of(0.5)).endswith("h0")  # a stroke of no length, visible with round caps


def test_long_lines_are_thinned_and_keep_both_ends():
    points = np.array(numbers(path_of(chart_of(*np.linspace(0.2, 0.8, 5000))))).reshape(-1, 2)
    assert 200 < len(points) < 300
    assert (points[0, 0], points[-1, 0]) == (LEFT, WIDTH - RIGHT)


def test_texts_are_escaped():
    line = Line("", STYLE, np.arange(2.0), np.array([0.1, 0.2]))
    text = svg(Chart("a <b> title", 'in "words"', "<i>", (line,), (Dot(0.5, 0.1, "<u>"),)))
    assert not re.search("<[biu]>", text)
    assert 'role="img"' in text
    assert "<title>a &lt;b&gt; title</title><desc>in &quot;words&quot;</desc>" in text


def test_dots_have_tooltips_and_costs_begin_at_0():
    dots = (Dot(5.0, 0.5, "trial 4", hollow=True), Dot(10.0, 0.6, "trial 9"))
    text = svg(Chart("title", "description", "trainings", (), dots))
    centres = [float(x) for x in re.findall(r'cx="([0-9.]+)"', text)]
    assert centres == pytest.approx([(LEFT + WIDTH - RIGHT) / 2, WIDTH - RIGHT])
    assert "<title>trial 4</title>" in text


def test_every_line_of_a_figure_has_its_own_style():
    styles = line_styles([*STYLES, "coteaching", "coteaching", "unknown"])
    assert len({(style.color, style.dashes) for style in styles}) == len(styles)
    for dark in (False, True):
        assert {style.color for style in styles} <= set(re.findall(r"--[\w-]+", palette(dark=dark)))
    assert "#222222" in palette(dark=False)
    assert "#222222" not in palette(dark=True)
