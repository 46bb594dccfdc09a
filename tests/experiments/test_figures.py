"""Figures of the experiments: the drawn numbers equal the given ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

from s2e.experiments.figures import (
    FIRST_SHOWN,
    SAMPLER_STYLES,
    draw_incumbents,
    draw_schedules,
    draw_steps,
    schedule_curves,
)
from s2e.experiments.incumbent_curves import MeanCurve
from s2e.plots import render
from s2e.samplers import SAMPLERS
from s2e.schedules import SPACES
from space_runs import TWO_NOISES, found

PNG = b"\x89PNG\r\n\x1a\n"


# ------------------------------------------------------------------------------------------------------------- samplers


def mean_curve(sampler: str = "curve", noise: str = "pair:0.4", budget: int = 20, *, repeats: int = 5) -> MeanCurve:
    """A falling mean with a standard error, unique for each sampler and noise setting."""
    shift = (sum(map(ord, sampler + noise)) % 13) / 100
    trainings = np.arange(1, budget + 1)
    error = np.zeros(budget) if repeats == 1 else 0.01 + 0.001 * trainings
    return MeanCurve(sampler, noise, repeats, 0.1 + shift + 1 / (10 + trainings), error)


def line_of(axes: Axes, sampler: str) -> Any:
    (line,) = [line for line in axes.get_lines() if line.get_color() == SAMPLER_STYLES[sampler].color]
    return line


def band_of(axes: Axes, sampler: str) -> tuple[list[float], list[float]]:
    """Lower and upper end of a sampler's band, in order of the trainings."""
    color = SAMPLER_STYLES[sampler].color.lower()
    (band,) = [band for band in axes.collections if to_hex(band.get_facecolor()[0]) == color]
    ends: dict[float, list[float]] = {}
    for trainings, error in band.get_paths()[0].vertices:
        ends.setdefault(trainings, []).append(error)
    return [min(ends[each]) for each in sorted(ends)], [max(ends[each]) for each in sorted(ends)]


def test_every_sampler_has_its_own_colour() -> None:
    assert set(SAMPLER_STYLES) == set(SAMPLERS)
    assert len({style.color for style in SAMPLER_STYLES.values()}) == len(SAMPLERS)


def test_lines_and_bands_are_the_given_numbers() -> None:
    means = [mean_curve(sampler, noise) for noise in ("pair:0.4", "symmetric:0.2") for sampler in SAMPLERS]
    figure = draw_incumbents(means)
    assert [axes.get_title() for axes in figure.axes] == ["pair noise, 40%", "symmetric noise, 20%"]
    axes_of = dict(zip(("pair:0.4", "symmetric:0.2"), figure.axes, strict=True))
    for mean in means:
        line, style = line_of(axes_of[mean.noise], mean.sampler), SAMPLER_STYLES[mean.sampler]
        np.testing.assert_array_equal(line.get_xdata(), np.arange(FIRST_SHOWN, 21))
        np.testing.assert_array_equal(line.get_ydata(), mean.mean[FIRST_SHOWN - 1 :])
        assert (line.get_linewidth(), line.get_zorder()) == (style.width, style.layer)
        assert line.is_dashed() == bool(style.dashes)
        low, high = band_of(axes_of[mean.noise], mean.sampler)
        np.testing.assert_allclose(low, mean.low[FIRST_SHOWN - 1 :])
        np.testing.assert_allclose(high, mean.high[FIRST_SHOWN - 1 :])
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == list(SAMPLERS)
    assert legend.get_title().get_text() == "mean over 5 repeats and its 95% confidence band"


def test_panels_are_as_long_as_the_largest_budget() -> None:
    figure = draw_incumbents(
        [mean_curve("random", "a", 50), mean_curve("curve", "a", 12), mean_curve("curve", "b", 12)]
    )
    assert [line_of(figure.axes[0], name).get_xdata()[-1] for name in ("random", "curve")] == [50, 12]
    for axes in figure.axes:
        assert (axes.get_xlim(), axes.get_xscale()) == ((FIRST_SHOWN, 50), "log")


@pytest.mark.parametrize("budget", [1, FIRST_SHOWN])
def test_one_repeat_and_small_budgets_are_drawn_without_a_band(budget: int) -> None:
    figure = draw_incumbents([mean_curve(budget=budget, repeats=1), mean_curve("random", budget=budget, repeats=1)])
    (axes,) = figure.axes
    assert [len(line.get_xdata()) for line in axes.get_lines()] == [max(0, budget - FIRST_SHOWN + 1)] * 2
    assert not axes.collections
    assert figure.legends[0].get_title().get_text() == ""
    assert render(figure, "png").startswith(PNG)


def test_unknown_errors_leave_a_gap() -> None:
    late = mean_curve()
    late.mean[:8] = np.nan
    (axes,) = draw_incumbents([late]).axes
    assert np.isnan(line_of(axes, "curve").get_ydata()).sum() == 8 - FIRST_SHOWN + 1


def test_equal_numbers_give_equal_files() -> None:
    means = [mean_curve(), mean_curve("random")]
    assert render(draw_incumbents(means), "svg") == render(draw_incumbents(means), "svg")


# --------------------------------------------------------------------------------------------------------------- spaces


def test_schedules_have_a_line_for_each_space_in_each_panel() -> None:
    rates = {space: 0.1 * (1 + index) for index, space in enumerate(SPACES)}
    best = {(noise, space): found(0.5, rate) for noise in TWO_NOISES for space, rate in rates.items()}
    single = dict(zip(TWO_NOISES, ("single-2", "single-4"), strict=True))
    figure = draw_schedules([schedule_curves(best, single, TWO_NOISES)])
    for axes, noise in zip(figure.axes, TWO_NOISES, strict=True):
        drawn = [float(line.get_ydata()[0]) for line in axes.lines]
        assert drawn == [rates[space] for space in ("coteaching", single[noise], "rbf", "mlp", "s2e")]
        assert len({line.get_color() for line in axes.lines}) == 5
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["Co-teaching", "Single", "RBF", "MLP", "S2E"]
    colours = [line.get_color() for line in figure.axes[0].lines]
    assert [line.get_color() for line in legend.get_lines()] == colours
    assert legend.get_title().get_text() == ""


def test_sets_share_the_colours_of_spaces_in_thin_lines() -> None:
    noise = TWO_NOISES[0]
    sets = [
        schedule_curves({(noise, space): found(0.5, rate) for space in SPACES}, {noise: "single-1"}, [noise])
        for rate in (0.4, 0.6)
    ]
    (both,), (one,) = draw_schedules(sets).axes, draw_schedules(sets[:1]).axes
    assert [float(line.get_ydata()[0]) for line in both.lines] == [0.4] * 5 + [0.6] * 5
    assert [line.get_color() for line in both.lines] == [line.get_color() for line in one.lines] * 2
    for thin, wide in zip(both.lines, [*one.lines, *one.lines], strict=True):
        assert thin.get_linewidth() < wide.get_linewidth()
    assert both.figure.legends[0].get_title().get_text() == "one line for each of 2 sets of draws"


# ---------------------------------------------------------------------------------------------------------------- steps


@pytest.mark.parametrize("random", [True, False])
def test_steps_are_drawn_against_the_generation_size(random: bool) -> None:
    def row(noise: str, step: str, size: int, error: float) -> dict[str, Any]:
        own = {"error": error, "low": error - 0.01, "high": error + 0.02}
        other = {"random": 0.5, "random_low": 0.4, "random_high": 0.6, "trainings": 96, "repeats": 7}
        return {"noise": noise, "step": step, "size": size, **own, **other}

    rows = [
        row(noise, step, size, 0.1 + size / 100 + shift)
        for noise in ("pair:0.4", "none")
        for step, shift in (("newton", 0.0), ("gradient", 0.2))
        for size in (12, 6, 24)
    ]
    figure = draw_steps(rows, "best trained", random=random)
    for axes in figure.axes:
        for step, shift in (("newton", 0.0), ("gradient", 0.2)):
            line = line_of(axes, step)
            assert list(line.get_xdata()) == [6, 12, 24]
            assert list(line.get_ydata()) == pytest.approx([0.16 + shift, 0.22 + shift, 0.34 + shift])
            low, high = band_of(axes, step)
            assert low == pytest.approx([0.15 + shift, 0.21 + shift, 0.33 + shift])
            assert high == pytest.approx([0.18 + shift, 0.24 + shift, 0.36 + shift])
        assert [line.get_ydata() for line in axes.get_lines() if len(line.get_xdata()) == 2] == [[0.5, 0.5]] * random
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["newton", "gradient", *["random"] * random]
    assert "best trained, after 96 trainings; mean over 7 repeats" in legend.get_title().get_text()
