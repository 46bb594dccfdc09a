"""Incumbent curves: the smallest error by trainings spent, means over repeats, and their rows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest

from s2e.experiments.incumbent_curves import (
    CONFIDENCE,
    IncumbentCurve,
    MeanCurve,
    best_errors,
    curve_rows,
    mean_curves,
    mean_returned,
    resampled_means,
    trainings_needed,
    trials_within,
)

NAN = math.nan


def curve(
    spent: Sequence[float],
    errors: Sequence[float],
    *,
    sampler: str = "curve",
    noise: str = "pair:0.4",
    repeat: int = 0,
    returned: Sequence[float] | None = None,
) -> IncumbentCurve:
    chosen = np.full(len(spent), NAN) if returned is None else np.array(returned)
    return IncumbentCurve(sampler, noise, repeat, np.array(spent, dtype=float), np.array(errors, dtype=float), chosen)


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


def test_trials_within_a_number_of_trainings_include_sums_that_round_up() -> None:
    tenths = np.cumsum(np.full(30, 1 / 10))
    assert [trials_within(tenths, trainings) for trainings in (1, 2, 3, 4)] == [10, 20, 30, 30]
    assert [trials_within(np.array([1.5, 2.5]), trainings) for trainings in (1, 2, 3)] == [0, 1, 2]


def test_returned_errors_are_those_after_the_last_trial_within_the_trainings() -> None:
    curves = [
        curve([1, 2, 3], [0.4, 0.2, 0.1], returned=[NAN, 0.4, 0.2]),
        curve([0.5, 2, 3.5], [0.4, 0.2, 0.1], returned=[NAN, 0.2, 0.1], repeat=1),
    ]
    band = 1.96 * 0.1
    found = mean_returned(curves, 2)
    assert [found[f"returned_{name}"] for name in ("error", "low", "high")] == pytest.approx(
        [0.3, 0.3 - band, 0.3 + band]
    )
    assert math.isnan(mean_returned(curves, 1)["returned_error"])
    assert mean_returned(curves[:1], 3) == {f"returned_{name}": 0.2 for name in ("error", "low", "high")}


# ----------------------------------------------------------------------------------------------------- trainings needed


def needed_rows(errors: dict[tuple[str, str], list[list[float]]], seed: int = 0) -> list[dict[str, object]]:
    arrays = {key: np.array(best) for key, best in errors.items()}
    return trainings_needed(arrays, references=("random", "tpe"), seed=seed)


def test_equal_searches_have_an_interval_of_one_number() -> None:
    errors = {
        ("curve", "a"): [[0.4, 0.2, 0.1]] * 5,
        ("random", "a"): [[0.5, 0.4, 0.3, 0.2]] * 7,
        ("tpe", "a"): [[0.3, 0.05]] * 3,
        ("random", "b"): [[0.1]],
    }
    rows = needed_rows(errors)
    found = {(row["sampler"], row["than"]): (row["low"], row["needed"], row["high"]) for row in rows}
    assert found == {
        ("curve", "random"): (2, 2, 2),
        ("tpe", "random"): (2, 2, 2),
        ("curve", "tpe"): (None, None, None),
        ("random", "tpe"): (None, None, None),
    }
    assert {(row["noise"], row["trainings"]) for row in rows} == {("a", 4), ("a", 2)}
    assert [row["error"] for row in rows] == pytest.approx([0.2, 0.2, 0.05, 0.05])
    assert [row["budget"] for row in rows] == [3, 2, 3, 4]
    assert [row["never"] for row in rows] == [0, 0, 1, 1]


def test_interval_equals_that_of_all_resamples() -> None:
    generator = np.random.default_rng(0)
    own = np.minimum.accumulate(generator.random((3, 12)), axis=1)
    reference = np.minimum.accumulate(generator.random((3, 3)), axis=1)
    counts = []
    for chosen in itertools.product(range(3), repeat=3):
        mean = own[list(chosen)].mean(axis=0)
        for others in itertools.product(range(3), repeat=3):
            goal = reference[list(others), -1].mean()
            counts.append(next((count for count in range(1, 13) if mean[count - 1] <= goal + 1e-12), math.inf))
    counts.sort()
    low, high = (counts[math.ceil(share * len(counts)) - 1] for share in (0.025, 0.975))
    (row,) = needed_rows({("curve", "a"): own.tolist(), ("random", "a"): reference.tolist()})
    assert (row["low"], row["high"]) == (low, None if high == math.inf else high)
    assert low < high


def test_resampled_means_have_the_standard_error_of_the_mean() -> None:
    errors = np.random.default_rng(0).normal(size=(50, 2))
    means = resampled_means(errors, 1)
    np.testing.assert_allclose(means.mean(axis=0), errors.mean(axis=0), atol=0.01)
    np.testing.assert_allclose(means.std(axis=0), errors.std(axis=0) / np.sqrt(50), rtol=0.05)


def test_resamples_with_an_unknown_error_have_no_mean() -> None:
    means = resampled_means(np.array([[NAN, 0.2], [0.4, 0.2]]), 0)
    known = ~np.isnan(means[:, 0])
    assert means[known, 0] == pytest.approx(0.4)  # the second search twice
    assert known.mean() == pytest.approx(1 / 4, abs=0.03)
    assert means[:, 1] == pytest.approx(0.2)


def test_share_of_searches_that_never_get_there_has_a_wilson_interval() -> None:
    errors = {("curve", "a"): [[0.1]] * 8 + [[0.3]] + [[NAN]], ("random", "a"): [[0.2]] * 4}
    (row,) = needed_rows(errors)
    assert row["never"] == 0.2
    # Wilson: (p + z²/2n ± z √(p(1−p)/n + z²/4n²)) / (1 + z²/n) with p = 0.2, n = 10, z = 1.96
    assert [row["never_low"], row["never_high"]] == pytest.approx([0.0567, 0.5098], abs=2e-4)


def test_counts_do_not_depend_on_which_other_samplers_are_compared() -> None:
    generator = np.random.default_rng(0)
    errors = {
        (name, "a"): np.minimum.accumulate(generator.random((6, 9)), axis=1).tolist()
        for name in ("curve", "random", "gp")
    }
    alone = needed_rows({key: errors[key] for key in (("random", "a"), ("curve", "a"))})
    assert alone[0] in needed_rows(errors)
    assert needed_rows(errors) == needed_rows(errors)


def test_rows_omit_unknown_means() -> None:
    rows = curve_rows([mean_curve([NAN, 0.4, 0.3]), mean_curve([0.5], sampler="tpe")])
    band = CONFIDENCE * 0.01
    keys = [(row["sampler"], row["trainings"], row["error"]) for row in rows]
    assert keys == [("curve", 2, 0.4), ("curve", 3, 0.3), ("tpe", 1, 0.5)]
    for row in rows:
        assert (row["noise"], row["repeats"]) == ("pair:0.4", 4)
        assert (row["low"], row["high"]) == pytest.approx((row["error"] - band, row["error"] + band))
