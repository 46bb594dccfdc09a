"""The figure of a comparison of searches: what is drawn is what was given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgba

from s2e.experiments.incumbent_curves import MeanTrace
from s2e.experiments.search_figures import FIRST_SHOWN, STYLES, draw_searches
from s2e.plots.drawing import render
from s2e.samplers import SAMPLERS

PNG = b"\x89PNG\r\n\x1a\n"


def a_mean(sampler: str = "curve", noise: str = "pair:0.4", budget: int = 20, *, repeats: int = 5) -> MeanTrace:
    """A falling mean with a spread, another one for each sampler and noise setting."""
    shift = (sum(map(ord, sampler + noise)) % 13) / 100
    trainings = np.arange(1, budget + 1)
    spread = np.zeros(budget) if repeats == 1 else 0.01 + 0.001 * trainings
    return MeanTrace(sampler, noise, repeats, 0.1 + shift + 1 / (10 + trainings), spread)


def line_of(axes: Axes, sampler: str) -> Any:
    (line,) = [line for line in axes.get_lines() if line.get_color() == STYLES[sampler].color]
    return line


def band_of(axes: Axes, sampler: str) -> Any:
    color = STYLES[sampler].color.lower()
    (band,) = [band for band in axes.collections if to_hex(band.get_facecolor()[0]) == color]
    return band


def edges(band: Any) -> tuple[dict[float, float], dict[float, float]]:
    """Lower and upper end of a band by trainings spent."""
    low: dict[float, float] = {}
    high: dict[float, float] = {}
    for spent, error in band.get_paths()[0].vertices:
        low[spent] = min(low.get(spent, np.inf), error)
        high[spent] = max(high.get(spent, -np.inf), error)
    return low, high


def panels(means: Sequence[MeanTrace]) -> dict[str, Axes]:
    figure = draw_searches(means)
    noises = list(dict.fromkeys(mean.noise for mean in means))
    return dict(zip(noises, figure.axes, strict=True))


def test_every_algorithm_has_a_style_of_its_own() -> None:
    assert set(STYLES) == set(SAMPLERS)
    assert len({(style.color, style.dashes, style.width) for style in STYLES.values()}) == len(STYLES)
    assert len({style.color for style in STYLES.values()}) == len(STYLES)


def test_lines_and_bands_hold_the_numbers_given_each_in_its_panel() -> None:
    means = [a_mean(sampler, noise, 20) for noise in ("pair:0.4", "symmetric:0.2") for sampler in SAMPLERS]
    axes_of = panels(means)
    assert [axes.get_title() for axes in axes_of.values()] == ["pair noise, 40%", "symmetric noise, 20%"]
    shown = np.arange(FIRST_SHOWN, 21)
    for mean in means:
        line = line_of(axes_of[mean.noise], mean.sampler)
        np.testing.assert_array_equal(line.get_xdata(), shown)
        np.testing.assert_array_equal(line.get_ydata(), mean.mean[FIRST_SHOWN - 1 :])
        low, high = edges(band_of(axes_of[mean.noise], mean.sampler))
        assert sorted(low) == shown.tolist()
        np.testing.assert_allclose([low[spent] for spent in shown], mean.low[FIRST_SHOWN - 1 :])
        np.testing.assert_allclose([high[spent] for spent in shown], mean.high[FIRST_SHOWN - 1 :])
    for axes in axes_of.values():
        assert len(axes.get_lines()) == len(axes.collections) == len(SAMPLERS)


def test_lines_look_as_their_style_says() -> None:
    axes = panels([a_mean(sampler) for sampler in SAMPLERS])["pair:0.4"]
    for sampler in SAMPLERS:
        line, style = line_of(axes, sampler), STYLES[sampler]
        assert (line.get_linewidth(), line.get_zorder()) == (style.width, style.layer)
        assert line.is_dashed() == bool(style.dashes)
        assert band_of(axes, sampler).get_facecolor()[0].tolist() == pytest.approx(to_rgba(style.color, 0.15))


def test_each_line_is_as_long_as_its_budget_and_the_panels_as_the_longest() -> None:
    axes_of = panels([a_mean("random", "a", 50), a_mean("curve", "a", 12), a_mean("curve", "b", 12)])
    assert line_of(axes_of["a"], "random").get_xdata()[-1] == 50
    assert line_of(axes_of["a"], "curve").get_xdata()[-1] == 12
    for axes in axes_of.values():
        assert axes.get_xlim() == (FIRST_SHOWN, 50)
        assert axes.get_xscale() == "log"


def test_the_legend_names_each_algorithm_once_and_says_what_the_band_is() -> None:
    figure = draw_searches([a_mean(sampler, noise) for noise in ("a", "b") for sampler in ("curve", "random", "tpe")])
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["curve", "random", "tpe"]
    assert legend.get_title().get_text() == "mean over 5 repeats and its 95% confidence band"
    for name, line in zip(("curve", "random", "tpe"), legend.get_lines(), strict=True):
        assert line.get_color() == STYLES[name].color


def test_one_repeat_has_no_band_and_no_note() -> None:
    figure = draw_searches([a_mean(repeats=1), a_mean("random", repeats=1)])
    (axes,) = figure.axes
    assert len(axes.get_lines()) == 2
    assert not axes.collections
    assert figure.legends[0].get_title().get_text() == ""
    assert render(figure, "png").startswith(PNG)


@pytest.mark.parametrize("repeats", [1, 3])
@pytest.mark.parametrize("budget", [1, FIRST_SHOWN - 1, FIRST_SHOWN, FIRST_SHOWN + 1])
def test_small_budgets_are_drawn_too(budget: int, repeats: int) -> None:
    figure = draw_searches([a_mean(budget=budget, repeats=repeats), a_mean("random", budget=budget, repeats=repeats)])
    (axes,) = figure.axes
    for line in axes.get_lines():
        assert len(line.get_xdata()) == max(0, budget - FIRST_SHOWN + 1)
    low, high = axes.get_xlim()
    assert low == FIRST_SHOWN < high
    assert render(figure, "png").startswith(PNG)
    assert b"</svg>" in render(figure, "svg")


def test_trainings_before_the_first_find_leave_a_gap() -> None:
    late = a_mean()
    late.mean[:8] = np.nan
    line = line_of(panels([late])["pair:0.4"], "curve")
    assert np.isnan(line.get_ydata()).sum() == 8 - FIRST_SHOWN + 1


def test_the_same_numbers_give_the_same_files() -> None:
    means = [a_mean(), a_mean("random")]
    for kind in ("png", "svg"):
        assert render(draw_searches(means), kind) == render(draw_searches(means), kind)
