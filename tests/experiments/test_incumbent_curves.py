"""Incumbent curves: the smallest error by trainings spent, means over repeats, and their rows."""

from __future__ import annotations

import math

import numpy as np
import pytest

from s2e.experiments.incumbent_curves import (
    CONFIDENCE,
    IncumbentCurve,
    MeanCurve,
    best_errors,
    curve_rows,
    mean_curves,
    trainings_needed,
)

NAN = math.nan


def curve(
    spent: list[float], errors: list[float], *, sampler: str = "curve", noise: str = "pair:0.4", repeat: int = 0
) -> IncumbentCurve:
    return IncumbentCurve(sampler, noise, repeat, np.array(spent, dtype=float), np.array(errors, dtype=float))


def mean_curve(mean: list[float], *, sampler: str = "curve", noise: str = "pair:0.4") -> MeanCurve:
    return MeanCurve(sampler, noise, 4, np.array(mean), np.full(len(mean), 0.01))


@pytest.mark.parametrize(
    ("spent", "errors", "best"),
    [
        ([1, 2, 3, 4], [0.4, 0.2, 0.3, 0.1], [0.4, 0.2, 0.2, 0.1]),
        ([1.25, 2.25, 3.25], [0.4, 0.3, 0.2], [NAN, 0.4, 0.3, 0.2]),
        ([0.25, 1.25, 1.5, 2.5], [NAN, 0.3, NAN, 0.4], [NAN, 0.3, 0.3, 0.3]),
        ([1, 2.5, 4.5], [0.4, 0.3, 0.1], [0.4, 0.4, 0.3, 0.3]),
        ([0, 1], [0.2, 0.3], [0.2, 0.2, 0.2, 0.2]),
        ([], [], [NAN] * 4),
    ],
    ids=["whole", "fractions", "stopped early", "beyond the budget", "without cost", "no trials"],
)
def test_best_error_by_trainings_spent(spent: list[float], errors: list[float], best: list[float]) -> None:
    np.testing.assert_array_equal(curve(spent, errors).best(4), best)


def test_rounding_of_summed_fractions_costs_no_training() -> None:
    tenths = np.cumsum(np.full(30, 1 / 10))
    assert tenths[29] > 3.0
    assert curve(tenths.tolist(), [NAN] * 29 + [0.3]).best(3)[2] == 0.3


def test_best_error_equals_a_scan_over_all_trials() -> None:
    generator = np.random.default_rng(0)
    for _ in range(50):
        spent = np.cumsum(generator.choice([1 / 27, 1 / 9, 1 / 3, 1.0], size=20))
        errors = np.where(generator.random(20) < 0.4, np.nan, generator.random(20))
        scanned = [
            min(
                (error for cost, error in zip(spent, errors, strict=True) if cost <= allowed + 1e-6 and error == error),
                default=NAN,
            )
            for allowed in range(1, 13)
        ]
        np.testing.assert_array_equal(curve(spent.tolist(), errors.tolist()).best(12), scanned)


def test_mean_and_standard_error_of_two_repeats() -> None:
    errors = best_errors([curve([1, 2], [0.4, 0.2]), curve([1, 2], [0.2, 0.1], repeat=1)], {"curve": 2})
    (mean,) = mean_curves(errors)
    assert (mean.sampler, mean.noise, mean.repeats, mean.budget) == ("curve", "pair:0.4", 2, 2)
    np.testing.assert_allclose(mean.mean, [0.3, 0.15])
    # s² = ((0.4 - 0.3)² + (0.2 - 0.3)²) / (2 - 1) = 0.02, and s / √2 = 0.1
    np.testing.assert_allclose(mean.standard_error, [0.1, 0.05])
    np.testing.assert_allclose(mean.low, [0.3 - 0.196, 0.15 - 0.098])
    np.testing.assert_allclose(mean.high, [0.3 + 0.196, 0.15 + 0.098])


def test_mean_is_unknown_while_a_repeat_has_no_error() -> None:
    errors = best_errors([curve([1, 2], [0.4, 0.2]), curve([1.5, 2], [0.2, 0.1], repeat=1)], {"curve": 2})
    (mean,) = mean_curves(errors)
    assert np.isnan(mean.mean).tolist() == np.isnan(mean.standard_error).tolist() == [True, False]


def test_one_repeat_is_its_own_mean_and_band() -> None:
    (mean,) = mean_curves(best_errors([curve([1, 2], [0.4, 0.2])], {"curve": 3}))
    for values in (mean.mean, mean.low, mean.high):
        np.testing.assert_array_equal(values, [0.4, 0.2, 0.2])


def test_samplers_and_noise_settings_are_averaged_separately() -> None:
    curves = [
        curve([1, 2, 3], [repeat / 10, 0.05, 0.01], sampler=sampler, noise=noise, repeat=repeat)
        for repeat in (4, 6)
        for sampler in ("random", "tpe")
        for noise in ("a", "b")
    ]
    means = mean_curves(best_errors(curves, {"random": 3, "tpe": 1}))
    keys = [(mean.sampler, mean.noise, mean.repeats, mean.budget) for mean in means]
    assert keys == [("random", "a", 2, 3), ("random", "b", 2, 3), ("tpe", "a", 2, 1), ("tpe", "b", 2, 1)]
    assert [mean.mean[0] for mean in means] == pytest.approx([0.5] * 4)


def test_trainings_for_an_error_count_from_one() -> None:
    mean = mean_curve([NAN, 0.4, 0.3, 0.1])
    assert [mean.trainings_for(error) for error in (0.5, 0.4, 0.39, 0.09, NAN)] == [2, 2, 3, None, None]


def test_default_is_compared_with_the_final_error_of_each_reference() -> None:
    means = [
        mean_curve([0.4, 0.2, 0.1], noise="a"),
        mean_curve([0.5, 0.4, 0.3, 0.2], noise="a", sampler="random"),
        mean_curve([0.3, 0.05], noise="a", sampler="tpe"),
        mean_curve([0.4, 0.2], noise="b"),
        mean_curve([0.1, 0.1], noise="b", sampler="gp"),
    ]
    assert trainings_needed(means, default="curve", references=("random", "tpe")) == [
        {"noise": "a", "than": "random", "trainings": 4, "error": 0.2, "default": "curve", "default_trainings": 2},
        {"noise": "a", "than": "tpe", "trainings": 2, "error": 0.05, "default": "curve", "default_trainings": None},
    ]
    assert trainings_needed(means[1:3], default="curve", references=("random", "tpe")) == []


def test_rows_omit_unknown_means() -> None:
    rows = curve_rows([mean_curve([NAN, 0.4, 0.3]), mean_curve([0.5], sampler="tpe")])
    band = CONFIDENCE * 0.01
    keys = [(row["sampler"], row["trainings"], row["error"]) for row in rows]
    assert keys == [("curve", 2, 0.4), ("curve", 3, 0.3), ("tpe", 1, 0.5)]
    for row in rows:
        assert (row["noise"], row["repeats"]) == ("pair:0.4", 4)
        assert (row["low"], row["high"]) == pytest.approx((row["error"] - band, row["error"] + band))
