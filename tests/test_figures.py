"""Figures: their numbers against plain loops, their drawings by what a reader sees, their files byte for byte."""

from __future__ import annotations

import hashlib
import itertools
import math
import re
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from s2e.figures import (
    STYLES,
    Band,
    KeepRateCurve,
    bands,
    draw_bands,
    draw_keep_rates,
    figure_files,
    keep_rate_curves,
    style_of,
)
from s2e.outcomes import Outcome

METHODS = [
    "standard",
    "decoupling",
    "f-correction",
    "mentornet",
    "coteaching",
    "coteaching+",
    "reweight",
    "jocor",
    "s2e",
]
TOLD = ["mentornet", "coteaching", "coteaching+", "jocor"]
NOISES = ["symmetric:0.2", "symmetric:0.5", "pair:0.45"]
NAN = math.nan


def comparison(
    methods: Sequence[str] = METHODS,
    noises: Sequence[str] = NOISES,
    seeds: int = 5,
    epochs: int = 200,
    *,
    known: bool = True,
    judged_on: str = "test",
    diverged: Sequence[tuple[str, str, int]] = (),
) -> list[Outcome]:
    """An invented comparison: accuracy rises, then falls as wrong labels are memorised, the later the better."""
    t = np.arange(epochs)
    made = []
    for noise, (rank, method), seed in itertools.product(noises, enumerate(methods), range(seeds)):
        generator = np.random.default_rng([seed, rank, *noise.encode()])
        rate = float(noise.partition(":")[2])
        memorised = rate / (1 + rank) / (1 + np.exp((40 - t) / 15))
        accuracy = 0.9 + 0.005 * rank - 0.7 * np.exp(-(t + 1) / 3) - memorised + generator.normal(0, 0.005, epochs)
        schedule = None
        if method in TOLD:
            schedule = 1 - rate * np.minimum(t / 10, 1)
        elif method.startswith("s2e"):
            schedule = (1 + t) ** -generator.uniform(0.2, 0.3)
        has_diverged = (noise, method, seed) in diverged
        if has_diverged:
            accuracy[epochs // 3 :] = 0.1
        precision = 1 - rate * (1 if schedule is None else schedule)
        made.append(
            Outcome(
                noise,
                method,
                seed,
                judged_on,
                accuracy=accuracy,
                valid_accuracy=accuracy,
                train_accuracy=accuracy - rate / 2,
                label_precision=precision * np.ones(epochs) if known else np.full(epochs, NAN),
                kept=np.ones(epochs) if schedule is None else schedule,
                loss=np.exp(-t / 50),
                keep_rates=schedule,
                diverged=has_diverged,
            )
        )
    return made


def small(**changes: Any) -> list[Outcome]:
    settings: dict[str, Any] = {"methods": ["coteaching", "s2e"], "noises": ["pair:0.45"], "seeds": 1, "epochs": 5}
    return comparison(**{**settings, **changes})


def given(values: Sequence[Sequence[float]], *, keep_rates: Any = None, **changes: Any) -> list[Outcome]:
    """Trainings of one method with the given accuracies, (seeds, T)."""
    curves = np.array(values, dtype=float)
    names = {"noise": "pair:0.45", "method": "s2e", **changes}
    return [
        Outcome(
            **names,
            seed=seed,
            judged_on="test",
            accuracy=curve,
            valid_accuracy=curve,
            train_accuracy=curve,
            label_precision=curve,
            kept=curve,
            loss=curve,
            keep_rates=keep_rates,
            diverged=False,
        )
        for seed, curve in enumerate(curves)
    ]


def a_band(noise: str = "pair:0.45", method: str = "s2e", values: Sequence[float] = (0.5, 0.6), **changes: Any) -> Band:
    mean = np.array(values, dtype=float)
    settings = {"low": mean - 0.1, "high": mean + 0.1, "seeds": 3, "diverged": 0, **changes}
    return Band(noise, method, mean, **settings)


def legend_of(figure: Any) -> Any:
    (legend,) = figure.legends
    return legend


def names_in(figure: Any) -> list[str]:
    return [text.get_text() for text in legend_of(figure).get_texts()]


def lines_of(axes: Any) -> list[Any]:
    return list(axes.get_lines())


def drawn(figure: Any) -> None:
    """Lay the figure out and paint it; the canvas it is born with does neither."""
    FigureCanvasAgg(figure).draw()


# Bands


@pytest.mark.parametrize("quantity", ["accuracy", "label_precision", "kept"])
def test_a_band_is_the_mean_over_seeds_and_one_standard_deviation_on_either_side(quantity: str) -> None:
    made = comparison(["coteaching", "s2e"], NOISES[:2], seeds=4, epochs=7)
    found = bands(made, quantity)
    assert [(band.noise, band.method) for band in found] == list(itertools.product(NOISES[:2], ["coteaching", "s2e"]))
    for band in found:
        own = [one for one in made if (one.noise, one.method) == (band.noise, band.method)]
        assert (band.seeds, band.diverged) == (4, 0)
        for epoch in range(7):
            values = [float(getattr(one, quantity)[epoch]) for one in own]
            mean, std = statistics.mean(values), statistics.stdev(values)
            assert band.mean[epoch] == pytest.approx(mean)
            assert band.low[epoch] == pytest.approx(mean - std)
            assert band.high[epoch] == pytest.approx(mean + std)


def test_a_band_is_over_the_seeds_where_the_quantity_is_known() -> None:
    (band,) = bands(given([[0.2, NAN, 0.3, NAN], [0.4, 0.5, NAN, NAN], [0.9, 0.7, NAN, NAN]]), "accuracy")
    np.testing.assert_allclose(band.mean, [0.5, 0.6, 0.3, NAN])
    spread = [statistics.stdev([0.2, 0.4, 0.9]), statistics.stdev([0.5, 0.7]), 0, NAN]
    np.testing.assert_allclose(band.high - band.mean, spread, atol=1e-12)
    np.testing.assert_allclose(band.mean - band.low, spread, atol=1e-12)


def test_a_single_seed_is_its_own_band() -> None:
    for band in bands(small(), "accuracy"):
        np.testing.assert_array_equal(band.low, band.mean)
        np.testing.assert_array_equal(band.high, band.mean)


def test_there_is_no_band_for_what_nobody_knows() -> None:
    known, unknown = given([[0.5, 0.6]]), given([[NAN, NAN]] * 2, method="standard")
    assert [band.method for band in bands([*unknown, *known], "label_precision")] == ["s2e"]
    assert bands(unknown, "label_precision") == []


def test_a_band_counts_the_trainings_that_diverged_and_takes_their_curves_as_they_are() -> None:
    made = small(seeds=3, epochs=9, diverged=[("pair:0.45", "s2e", 1)])
    plain, with_one = bands(made, "accuracy")
    assert (plain.diverged, with_one.diverged, with_one.seeds) == (0, 1, 3)
    expected = np.mean([one.accuracy for one in made if one.method == "s2e"], axis=0)
    np.testing.assert_allclose(with_one.mean, expected)


# Keep rates


def test_methods_without_a_keep_rate_have_no_curve() -> None:
    found = keep_rate_curves(small(methods=["standard", "coteaching", "decoupling"]))
    assert [curve.methods for curve in found] == [("coteaching",)]
    assert keep_rate_curves(small(methods=["standard"])) == []


def test_a_keep_rate_curve_is_the_mean_over_seeds() -> None:
    made = small(methods=["s2e"], seeds=3)
    (curve,) = keep_rate_curves(made)
    for epoch in range(5):
        rates = [one.keep_rates[epoch] for one in made if one.keep_rates is not None]
        assert curve.keep_rates[epoch] == pytest.approx(sum(rates) / 3)


def test_methods_that_share_a_curve_share_a_line_under_each_noise_setting() -> None:
    found = keep_rate_curves(comparison(epochs=20, seeds=2))
    assert [(curve.noise, curve.methods) for curve in found] == [
        (noise, methods) for noise in NOISES for methods in (tuple(TOLD), ("s2e",))
    ]


def test_curves_are_shared_whatever_the_number_of_seeds() -> None:
    rates = np.array([1.0, 0.1, 0.7])
    made = [
        *given([[0.5] * 3] * 3, method="coteaching", keep_rates=rates),
        *given([[0.5] * 3] * 7, method="jocor", keep_rates=rates),
    ]
    assert [curve.methods for curve in keep_rate_curves(made)] == [("coteaching", "jocor")]


def test_curves_that_differ_in_one_epoch_are_not_shared() -> None:
    made = [
        *given([[0.5] * 3], method="coteaching", keep_rates=np.array([1.0, 0.5, 0.5])),
        *given([[0.5] * 3], method="jocor", keep_rates=np.array([1.0, 0.5, 0.5 + 1e-6])),
    ]
    assert [curve.methods for curve in keep_rate_curves(made)] == [("coteaching",), ("jocor",)]


def test_equal_curves_under_different_noise_settings_stay_apart() -> None:
    rates = np.array([1.0, 0.5])
    made = [*given([[0.5] * 2], keep_rates=rates), *given([[0.5] * 2], keep_rates=rates, noise="pair:0.2")]
    assert [(curve.noise, curve.methods) for curve in keep_rate_curves(made)] == [
        ("pair:0.45", ("s2e",)),
        ("pair:0.2", ("s2e",)),
    ]


# Styles

# Machado, Oliveira, Fernandes (2009), severity 1, on linear RGB.
EYES = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}


def seen(color: str, eyes: str) -> np.ndarray:
    """CIE L*a*b* (D65) of a colour as it is seen."""
    encoded = np.array([int(color[first : first + 2], 16) for first in (1, 3, 5)]) / 255
    linear = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    ratio = to_xyz @ np.clip(EYES[eyes] @ linear, 0, 1) / to_xyz.sum(axis=1)
    x, y, z = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio * (29 / 6) ** 2 / 3 + 4 / 29)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_every_method_of_the_comparison_has_a_style() -> None:
    assert set(STYLES) == set(METHODS)


@pytest.mark.parametrize("eyes", EYES)
def test_colours_stay_apart_for_colour_blind_readers(eyes: str) -> None:
    for one, other in itertools.combinations(STYLES, 2):
        difference = np.linalg.norm(seen(STYLES[one].color, eyes) - seen(STYLES[other].color, eyes))
        assert difference >= 18, (one, other)


def test_colours_are_dark_enough_for_white_paper() -> None:
    assert all(seen(style.color, "normal")[0] < 80 for style in STYLES.values())


def test_dashes_tell_methods_apart_without_colour() -> None:
    assert len({style.dashes for style in STYLES.values()}) == len(STYLES)
    assert STYLES["s2e"].dashes == ()


def test_s2e_is_the_widest_line_and_on_top() -> None:
    others = [style_of(method) for method in (*METHODS[:-1], "s2e:jocor", "mine")]
    assert all(style_of("s2e").width > other.width for other in others)
    assert all(style_of("s2e").layer > other.layer for other in others)


def test_a_searched_variant_looks_like_its_method_but_wider() -> None:
    plain, searched = style_of("jocor"), style_of("s2e:jocor")
    assert (searched.color, searched.dashes) == (plain.color, plain.dashes)
    assert searched.width > plain.width
    assert searched.layer > plain.layer


def test_a_method_nobody_knows_has_a_style_of_its_name_alone() -> None:
    assert style_of("mine") == style_of("mine")
    assert len({style_of(f"mine{number}").dashes for number in range(40)}) > 1
    assert style_of("mine").color not in {style.color for style in STYLES.values()}


@pytest.mark.parametrize("methods", [METHODS, METHODS[::-1], METHODS[2::3]])
def test_a_method_looks_the_same_in_every_figure_and_legend(methods: list[str]) -> None:
    figure = draw_bands([a_band(method=method) for method in methods], label="test accuracy")
    for method, line, sample in zip(methods, lines_of(figure.axes[0]), legend_of(figure).get_lines(), strict=True):
        style = style_of(method)
        assert line.get_color() == sample.get_color() == style.color
        assert line.get_zorder() == style.layer
        assert line.get_linewidth() == sample.get_linewidth() == style.width
        pattern = (0, [length * style.width for length in style.dashes] or None)  # dashes grow with the width
        assert line._dash_pattern == pattern
        assert sample._dash_pattern == pattern


# Drawings


@pytest.mark.parametrize(("panels", "columns", "rows"), [(1, 1, 1), (2, 2, 1), (3, 3, 1), (4, 3, 2), (7, 3, 3)])
def test_panels_wrap_after_three(panels: int, columns: int, rows: int) -> None:
    noises = [f"pair:0.{number + 1}" for number in range(panels)]
    figure = draw_bands([a_band(noise) for noise in noises], label="test accuracy")
    assert [axes.get_title() for axes in figure.axes] == [f"pair noise, {number + 1}0%" for number in range(panels)]
    places = [axes.get_subplotspec() for axes in figure.axes]
    assert {(place.get_gridspec().nrows, place.get_gridspec().ncols) for place in places} == {(rows, columns)}
    assert [(place.rowspan.start, place.colspan.start) for place in places] == [
        divmod(position, columns) for position in range(panels)
    ]


def test_axes_say_what_they_show_once_in_a_row() -> None:
    figure = draw_bands([a_band(f"pair:0.{number + 1}") for number in range(4)], label="test accuracy")
    assert [axes.get_ylabel() for axes in figure.axes] == ["test accuracy", "", "", "test accuracy"]
    assert {axes.get_xlabel() for axes in figure.axes} == {"epoch"}


@pytest.mark.parametrize("epochs", [1, 2, 3, 40])
def test_shares_are_written_as_percent_and_epochs_as_whole_numbers(epochs: int) -> None:
    figure = draw_bands([a_band(values=[0.6] * epochs)], label="test accuracy")
    drawn(figure)
    (axes,) = figure.axes
    assert "60%" in [label.get_text() for label in axes.get_yticklabels()]
    ticks = [label.get_text() for label in axes.get_xticklabels()]
    assert "0" in ticks
    assert all(re.fullmatch(r"−?\d+", tick) for tick in ticks)


def test_every_band_has_its_line_and_its_area_in_the_panel_of_its_noise() -> None:
    made = [a_band("pair:0.2", "s2e", [0.1, 0.2]), a_band("pair:0.45", "s2e", [0.3, 0.4])]
    made.append(a_band("pair:0.45", "jocor", [0.5, 0.7], low=np.array([0.4, 0.45]), high=np.array([0.6, 0.95])))
    figure = draw_bands(made, label="test accuracy")
    first, second = figure.axes
    np.testing.assert_array_equal([line.get_ydata() for line in lines_of(first)], [[0.1, 0.2]])
    np.testing.assert_array_equal([line.get_ydata() for line in lines_of(second)], [[0.3, 0.4], [0.5, 0.7]])
    np.testing.assert_array_equal(lines_of(second)[1].get_xdata(), [0, 1])
    corners = {tuple(corner) for corner in second.collections[1].get_paths()[0].vertices.round(6).tolist()}
    assert corners == {(0, 0.4), (1, 0.45), (0, 0.6), (1, 0.95)}


def test_the_legend_names_every_method_once() -> None:
    figure = draw_bands(bands(comparison(epochs=3, seeds=2), "accuracy"), label="test accuracy")
    assert names_in(figure) == [
        "Standard",
        "Decoupling",
        "F-correction",
        "MentorNet",
        "Co-teaching",
        "Co-teaching+",
        "Reweight",
        "JoCoR",
        "S2E",
    ]
    assert all(axes.get_legend() is None for axes in figure.axes)


@pytest.mark.parametrize(
    ("seeds", "note"),
    [
        ((5, 5), "mean over 5 seeds ± one standard deviation"),
        ((5, 3), "mean over 3 to 5 seeds ± one standard deviation"),
        ((1, 1), ""),
    ],
)
def test_a_note_says_what_lines_and_areas_are(seeds: tuple[int, int], note: str) -> None:
    made = [a_band(method=method, seeds=count) for method, count in zip(("jocor", "s2e"), seeds, strict=True)]
    figure = draw_bands(made, label="test accuracy")
    assert legend_of(figure).get_title().get_text() == note
    assert len(figure.axes[0].collections) == (0 if seeds == (1, 1) else 2)


def test_a_mean_with_a_training_that_diverged_is_named_and_its_spread_not_drawn() -> None:
    made = [a_band(method="jocor", diverged=1), a_band(), a_band("pair:0.2", "s2e")]
    figure = draw_bands(made, label="test accuracy")
    note = legend_of(figure).get_title().get_text()
    assert "diverged, shown without deviation: JoCoR 1 of 3 (pair noise, 45%)" in note
    assert "S2E" not in note
    assert [len(axes.collections) for axes in figure.axes] == [1, 1]
    assert [len(lines_of(axes)) for axes in figure.axes] == [2, 1]


def test_a_single_training_that_diverged_is_named_too() -> None:
    figure = draw_bands([a_band(seeds=1, diverged=1)], label="test accuracy")
    assert legend_of(figure).get_title().get_text() == "diverged: S2E 1 of 1 (pair noise, 45%)"


def shown(figure: Any) -> tuple[float, float]:
    low, high = figure.axes[0].get_ylim()
    return float(low), float(high)


def test_the_panel_shows_every_band_from_the_first_twentieth_of_the_epochs_on() -> None:
    rise = np.concatenate([np.linspace(0.1, 0.75, 10), np.full(190, 0.8)])
    flat = {"low": rise - 0.02, "high": rise + 0.05}
    low, high = shown(draw_bands([a_band(values=rise, **flat)], label=""))  # type: ignore[arg-type]
    assert 0.75 < low < 0.78
    assert 0.85 < high < 0.88
    late = rise.copy()
    late[10] = 0.4
    low, _ = shown(draw_bands([a_band(values=late, low=late, high=late)], label=""))  # type: ignore[arg-type]
    assert 0.35 < low < 0.4


def test_a_short_training_is_shown_from_its_first_epoch() -> None:
    values = np.linspace(0.1, 0.9, 19)
    low, high = shown(draw_bands([a_band(values=values, low=values, high=values)], label=""))  # type: ignore[arg-type]
    assert low < 0.1 < 0.9 < high


def test_the_panel_ends_at_0_and_100_percent() -> None:
    wide = {"low": np.array([-0.3, -0.4]), "high": np.array([1.3, 1.2])}
    low, high = shown(draw_bands([a_band(**wide)], label=""))
    assert low == 0
    assert 1 <= high <= 1.01


def test_a_spread_that_is_not_drawn_takes_no_room() -> None:
    wide = {"low": np.array([-0.3, -0.4]), "high": np.array([1.3, 1.2])}
    low, high = shown(draw_bands([a_band(diverged=1, **wide)], label=""))
    assert 0.45 < low < 0.5
    assert 0.6 < high < 0.65


def test_a_flat_line_has_room_around_it() -> None:
    flat = np.ones(3)
    low, high = shown(draw_bands([a_band(values=[1, 1, 1], low=flat, high=flat)], label=""))
    assert low < 0.999
    assert high > 1


def test_unknown_epochs_are_gaps_and_lonely_ones_dots() -> None:
    values = [0.5, NAN, 0.6, 0.7, NAN, 0.8]
    band = a_band(values=values)
    figure = draw_bands([band], label="label precision")
    (line,) = lines_of(figure.axes[0])
    np.testing.assert_array_equal(line.get_ydata(), values)
    assert line.get_markevery() == [0, 5]
    assert line.get_marker() == "o"


def test_a_quantity_known_only_at_the_start_is_drawn() -> None:
    values = np.full(40, NAN)
    values[0] = 0.5
    low, high = shown(draw_bands([a_band(values=values, low=values, high=values)], label=""))  # type: ignore[arg-type]
    assert low < 0.5 < high


def test_keep_rates_are_drawn_from_0_to_100_percent_under_the_names_of_all_who_share_them() -> None:
    curves = [
        KeepRateCurve("pair:0.45", ("coteaching", "jocor"), np.array([1.0, 0.55])),
        KeepRateCurve("pair:0.45", ("s2e",), np.array([1.0, 0.3])),
    ]
    figure = draw_keep_rates(curves)
    (axes,) = figure.axes
    assert axes.get_ylabel() == "keep rate R(t)"
    assert names_in(figure) == ["Co-teaching, JoCoR", "S2E"]
    np.testing.assert_array_equal([line.get_ydata() for line in lines_of(axes)], [[1.0, 0.55], [1.0, 0.3]])
    assert [line.get_color() for line in lines_of(axes)] == [STYLES["coteaching"].color, STYLES["s2e"].color]
    assert axes.get_ylim()[0] == 0
    assert 1 < axes.get_ylim()[1] < 1.05


def overlaps(figure: Any) -> list[tuple[str, str]]:
    """Texts that lie on each other or reach out of the figure."""
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


@pytest.mark.parametrize("panels", [1, 2, 3, 5])
@pytest.mark.parametrize("kind", ["bands", "diverged", "keep rates"])
def test_no_text_lies_on_another_or_is_cut_off(panels: int, kind: str) -> None:
    noises = [f"symmetric:0.{number + 1}" for number in range(panels)]
    fallen = (
        [(noise, method, 0) for noise in noises for method in ("jocor", "coteaching+")] if kind == "diverged" else []
    )
    made = comparison([*METHODS, "s2e:coteaching+"], noises, seeds=2, epochs=6, diverged=fallen)
    if kind == "keep rates":
        figure = draw_keep_rates(keep_rate_curves(made))
    else:
        figure = draw_bands(bands(made, "accuracy"), label="test accuracy")
    drawn(figure)
    assert overlaps(figure) == []
    heights = [axes.get_window_extent().height / figure.dpi for axes in figure.axes]
    assert min(heights) > 1.2, "the legend must not squeeze the panels"


def test_a_dollar_in_a_name_is_a_dollar() -> None:
    noise = "asymmetric:$cost_{$.csv"
    files = figure_files(given([[0.5, 0.6]], noise=noise, keep_rates=np.ones(2)))
    figure = draw_bands([a_band(noise, diverged=1)], label="test accuracy")
    drawn(figure)
    assert len(files) == 6
    assert figure.axes[0].get_title() == "asymmetric noise, $cost_{$.csv"


# Files


def test_there_are_three_figures_as_png_and_svg() -> None:
    files = figure_files(small())
    assert list(files) == [
        f"{name}.{kind}" for name in ("accuracy", "label_precision", "keep_rate") for kind in ("png", "svg")
    ]
    for name, content in files.items():
        assert content.startswith(b"\x89PNG" if name.endswith("png") else b"<?xml"), name


def test_figures_without_data_are_left_out() -> None:
    assert {name.partition(".")[0] for name in figure_files(small(known=False))} == {"accuracy", "keep_rate"}
    untold = small(methods=["standard", "decoupling"])
    assert {name.partition(".")[0] for name in figure_files(untold)} == {"accuracy", "label_precision"}
    assert figure_files([]) == {}


@pytest.mark.parametrize(("judged_on", "label"), [("test", "test accuracy"), ("valid", "validation accuracy")])
def test_the_accuracy_figure_says_what_it_was_judged_on(
    judged_on: str, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = []

    def noted(made: Sequence[Band], *, label: str) -> Any:
        labels.append(label)
        return draw_bands(made, label=label)

    monkeypatch.setattr("s2e.figures.draw_bands", noted)
    figure_files(small(judged_on=judged_on))
    assert labels == [label, "label precision"]


def test_a_training_of_one_epoch_can_be_drawn() -> None:
    assert len(figure_files(small(epochs=1))) == 6


def test_a_whole_comparison_can_be_drawn_even_where_trainings_diverged() -> None:
    fallen = [("pair:0.45", "coteaching", seed) for seed in range(5)] + [("symmetric:0.5", "s2e", 2)]
    assert len(figure_files(comparison(epochs=40, diverged=fallen))) == 6


def test_the_same_outcomes_give_the_same_files() -> None:
    first, again = (figure_files(small(seeds=2)) for _ in range(2))
    assert first == again


def test_an_svg_holds_no_date() -> None:
    for name, content in figure_files(small()).items():
        if name.endswith("svg"):
            assert not re.search(rb"<dc:date>|20\d\d-\d\d-\d\d", content), name


def test_users_own_settings_neither_show_nor_change() -> None:
    plain = figure_files(small(seeds=2))
    with matplotlib.rc_context({"font.size": 23, "axes.facecolor": "black", "lines.linestyle": "--"}):
        before = dict(matplotlib.rcParams)
        assert figure_files(small(seeds=2)) == plain
        assert dict(matplotlib.rcParams) == before


PROGRAM = """
import hashlib, sys
sys.path.insert(0, {tests!r})
import s2e.figures
print("matplotlib" in sys.modules)
from test_figures import small
files = s2e.figures.figure_files(small())
print("matplotlib.pyplot" in sys.modules)
print(hashlib.sha256(files["accuracy.svg"]).hexdigest())
"""


def test_matplotlib_is_imported_when_drawing_and_pyplot_never_and_every_process_draws_the_same() -> None:
    program = PROGRAM.format(tests=str(Path(__file__).parent))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    digest = hashlib.sha256(figure_files(small())["accuracy.svg"]).hexdigest()
    assert done.stdout.split() == ["False", "False", digest]
