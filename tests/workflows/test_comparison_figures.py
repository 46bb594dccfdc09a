"""Figures of a comparison: their numbers against plain loops, and their files byte for byte."""

from __future__ import annotations

import itertools
import re
import statistics

import matplotlib
import numpy as np
import pytest

from figure_outcomes import FIXED_SCHEDULE, NAN, NOISES, comparison, from_accuracies, small_comparison
from s2e.workflows.comparison_figures import bands, figure_files, keep_rate_curves

# Bands


def test_a_band_is_the_mean_over_seeds_and_one_standard_deviation() -> None:
    outcomes = comparison(["coteaching", "s2e"], NOISES[:2], seeds=4, epochs=7)
    found = bands(outcomes, "accuracy")
    assert [(band.noise, band.method) for band in found] == list(itertools.product(NOISES[:2], ["coteaching", "s2e"]))
    for band in found:
        own = [one for one in outcomes if (one.noise, one.method) == (band.noise, band.method)]
        assert (band.seeds, band.diverged) == (4, 0)
        for epoch in range(7):
            values = [float(one.accuracy[epoch]) for one in own]
            mean, std = statistics.mean(values), statistics.stdev(values)
            assert band.mean[epoch] == pytest.approx(mean)
            assert band.low[epoch] == pytest.approx(mean - std)
            assert band.high[epoch] == pytest.approx(mean + std)


def test_unknown_values_are_not_part_of_a_band() -> None:
    (band,) = bands(from_accuracies([[0.2, NAN, 0.3, NAN], [0.4, 0.5, NAN, NAN], [0.9, 0.7, NAN, NAN]]), "accuracy")
    np.testing.assert_allclose(band.mean, [0.5, 0.6, 0.3, NAN])
    deviation = [statistics.stdev([0.2, 0.4, 0.9]), statistics.stdev([0.5, 0.7]), 0, NAN]
    np.testing.assert_allclose(band.high - band.mean, deviation, atol=1e-12)
    np.testing.assert_allclose(band.mean - band.low, deviation, atol=1e-12)


def test_an_unknown_quantity_has_no_band() -> None:
    known, unknown = from_accuracies([[0.5, 0.6]]), from_accuracies([[NAN, NAN]] * 2, method="standard")
    assert [band.method for band in bands([*unknown, *known], "label_precision")] == ["s2e"]


def test_diverged_trainings_are_counted_and_part_of_the_mean() -> None:
    outcomes = small_comparison(seeds=3, epochs=9, diverged=[("pair:0.45", "s2e", 1)])
    plain, with_one = bands(outcomes, "accuracy")
    assert (plain.diverged, with_one.diverged, with_one.seeds) == (0, 1, 3)
    expected = np.mean([one.accuracy for one in outcomes if one.method == "s2e"], axis=0)
    np.testing.assert_allclose(with_one.mean, expected)


# Keep rates


def test_methods_without_a_keep_rate_have_no_curve() -> None:
    found = keep_rate_curves(small_comparison(methods=["standard", "coteaching", "decoupling"]))
    assert [curve.methods for curve in found] == [("coteaching",)]


def test_a_keep_rate_curve_is_the_mean_over_seeds() -> None:
    outcomes = small_comparison(methods=["s2e"], seeds=3)
    (curve,) = keep_rate_curves(outcomes)
    for epoch in range(5):
        rates = [one.keep_rates[epoch] for one in outcomes if one.keep_rates is not None]
        assert curve.keep_rates[epoch] == pytest.approx(sum(rates) / 3)


def test_a_searched_schedule_has_a_band_from_the_smallest_to_the_largest_keep_rate() -> None:
    outcomes = small_comparison(methods=["s2e", "coteaching"], seeds=3)
    searched, fixed = keep_rate_curves(outcomes)
    rates = np.array([one.keep_rates for one in outcomes if one.method == "s2e"])
    np.testing.assert_array_equal((searched.low, searched.high), (rates.min(axis=0), rates.max(axis=0)))
    assert (fixed.low, fixed.high) == (None, None)
    (single,) = keep_rate_curves(small_comparison(methods=["s2e"], seeds=1))
    assert single.low is None


def test_searched_schedules_are_drawn_apart_even_if_they_are_equal() -> None:
    rates = np.array([1.0, 0.1, 0.7])
    outcomes = [
        one
        for method in ("s2e", "s2e-noisy-validation")
        for one in from_accuracies([[0.5] * 3], method=method, keep_rates=rates)
    ]
    assert [curve.methods for curve in keep_rate_curves(outcomes)] == [("s2e",), ("s2e-noisy-validation",)]


def test_methods_with_equal_curves_under_a_noise_setting_share_one() -> None:
    found = keep_rate_curves(comparison(epochs=20, seeds=2))
    assert [(curve.noise, curve.methods) for curve in found] == [
        (noise, methods) for noise in NOISES for methods in (tuple(FIXED_SCHEDULE), ("s2e",))
    ]


def test_curves_are_equal_up_to_rounding() -> None:
    rates = np.array([1.0, 0.1, 0.7])
    outcomes = [
        *from_accuracies([[0.5] * 3] * 3, method="coteaching", keep_rates=rates),
        *from_accuracies([[0.5] * 3] * 7, method="jocor", keep_rates=rates),
        *from_accuracies([[0.5] * 3], method="mentornet", keep_rates=rates + np.array([0, 0, 1e-6])),
    ]
    assert [curve.methods for curve in keep_rate_curves(outcomes)] == [("coteaching", "jocor"), ("mentornet",)]


# Files


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    return figure_files(small_comparison(seeds=2))


def test_there_are_three_figures_as_png_and_svg(files: dict[str, bytes]) -> None:
    assert list(files) == [
        f"{name}.{kind}" for name in ("accuracy", "label_precision", "keep_rate") for kind in ("png", "svg")
    ]
    for name, content in files.items():
        assert content.startswith(b"\x89PNG" if name.endswith("png") else b"<?xml"), name
        assert not name.endswith("svg") or not re.search(rb"<dc:date>|20\d\d-\d\d-\d\d", content), name


def test_figures_without_data_are_omitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("s2e.workflows.comparison_figures.render", lambda *_: b"")
    assert {name.partition(".")[0] for name in figure_files(small_comparison(known=False))} == {"accuracy", "keep_rate"}
    without_rates = small_comparison(methods=["standard", "decoupling"])
    assert {name.partition(".")[0] for name in figure_files(without_rates)} == {"accuracy", "label_precision"}
    assert figure_files([]) == {}


def test_the_accuracy_figure_names_the_evaluated_part(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = []
    monkeypatch.setattr("s2e.workflows.comparison_figures.draw_bands", lambda _, y_label: labels.append(y_label))
    monkeypatch.setattr("s2e.workflows.comparison_figures.render", lambda *_: b"")
    for part in ("test", "held-out"):
        figure_files(small_comparison(evaluated_on=part))
    assert labels == ["test accuracy", "label precision", "agreement with noisy held-out labels", "label precision"]


def test_one_epoch_and_diverged_trainings_can_be_drawn() -> None:
    diverged = [("pair:0.45", "s2e", 0)]
    assert len(figure_files(small_comparison(epochs=1, diverged=diverged))) == 6


def test_files_depend_on_the_outcomes_only(files: dict[str, bytes]) -> None:
    with matplotlib.rc_context({"font.size": 23, "axes.facecolor": "black", "lines.linestyle": "--"}):
        before = dict(matplotlib.rcParams)
        assert figure_files(small_comparison(seeds=2)) == files
        assert dict(matplotlib.rcParams) == before
