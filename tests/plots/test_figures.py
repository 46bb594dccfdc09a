"""Figures: their numbers against plain loops, and styles that tell methods apart."""

from __future__ import annotations

import itertools
import statistics

import numpy as np
import pytest

from figure_outcomes import METHODS, NAN, NOISES, TOLD, a_band, comparison, given, legend_of, lines_of, small
from s2e.plots.epoch_curves import draw_bands
from s2e.plots.styles import STYLES, style_of
from s2e.workflows.comparison_figures import bands, keep_rate_curves

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
