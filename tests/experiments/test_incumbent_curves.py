"""What a search had found after how many trainings: cases small enough to count on fingers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from s2e.experiments.incumbent_curves import CONFIDENCE, MeanTrace, Trace, averaged, compared, rows
from s2e.runs.csv_files import csv_text

NOTHING = math.nan


def trace(
    spent: list[float], errors: list[float], *, sampler: str = "curve", noise: str = "pair:0.4", repeat: int = 0
) -> Trace:
    return Trace(sampler, noise, repeat, np.array(spent, dtype=float), np.array(errors, dtype=float))


def mean_trace(mean: list[float], *, sampler: str = "curve", noise: str = "pair:0.4", repeats: int = 4) -> MeanTrace:
    return MeanTrace(sampler, noise, repeats, np.array(mean), np.full(len(mean), 0.01))


def found_by_looking(one: Trace, budget: int) -> list[float]:
    """For every whole number of trainings, look through all trials that were over by then."""
    best = []
    for paid in range(1, budget + 1):
        over = [error for spent, error in zip(one.spent, one.errors, strict=True) if spent <= paid + 1e-6]
        best.append(min((error for error in over if not math.isnan(error)), default=NOTHING))
    return best


# --------------------------------------------------------------------------------------------------------- one search


@pytest.mark.parametrize(
    ("spent", "errors", "best"),
    [
        ([1, 2, 3, 4], [0.4, 0.2, 0.3, 0.1], [0.4, 0.2, 0.2, 0.1]),
        ([1, 2, 3, 4], [0.1, 0.2, 0.3, 0.4], [0.1, 0.1, 0.1, 0.1]),
        ([1.25, 2.25, 3.25], [0.4, 0.3, 0.2], [NOTHING, 0.4, 0.3, 0.2]),
        ([0.5, 1.0, 2.0], [NOTHING, 0.3, 0.2], [0.3, 0.2, 0.2, 0.2]),
        ([0.25, 1.25, 1.5, 2.5], [NOTHING, 0.3, NOTHING, 0.4], [NOTHING, 0.3, 0.3, 0.3]),
        ([0.5, 1.5], [NOTHING, NOTHING], [NOTHING] * 4),
        ([], [], [NOTHING] * 4),
    ],
    ids=["one by one", "the first is best", "fractions", "stopped first", "stopped between", "all stopped", "none"],
)
def test_the_best_error_by_trainings_spent(spent: list[float], errors: list[float], best: list[float]) -> None:
    np.testing.assert_array_equal(trace(spent, errors).best(4), best)


def test_a_trial_counts_from_the_first_whole_number_of_trainings_that_pays_for_it() -> None:
    assert np.isnan(trace([2.001], [0.3]).best(3)).tolist() == [True, True, False]
    assert np.isnan(trace([2.0], [0.3]).best(3)).tolist() == [True, False, False]


def test_a_sum_of_fractions_that_rounding_left_above_a_whole_number_counts_as_that_number() -> None:
    tenths = np.cumsum(np.full(30, 1 / 10))
    assert tenths[29] > 3.0  # by rounding alone
    assert trace(tenths.tolist(), [NOTHING] * 29 + [0.3]).best(3)[2] == 0.3


def test_what_is_found_after_the_budget_does_not_count() -> None:
    one = trace([1, 2.5, 3.5], [0.4, 0.3, 0.1])
    np.testing.assert_array_equal(one.best(3), [0.4, 0.4, 0.3])
    np.testing.assert_array_equal(one.best(1), [0.4])


def test_a_trial_that_cost_nothing_counts_from_the_first_training() -> None:
    np.testing.assert_array_equal(trace([0.0, 1.0], [0.2, 0.3]).best(2), [0.2, 0.2])


def test_any_trace_is_what_looking_through_all_trials_finds() -> None:
    generator = np.random.default_rng(0)
    for _ in range(50):
        spent = np.cumsum(generator.choice([1 / 27, 1 / 9, 1 / 3, 1.0], size=20))
        errors = np.where(generator.random(20) < 0.4, np.nan, generator.random(20))
        one = trace(spent.tolist(), errors.tolist())
        np.testing.assert_array_equal(one.best(12), found_by_looking(one, 12))


def test_asking_twice_gives_the_same_and_changes_nothing() -> None:
    one = trace([1, 2], [0.4, 0.3])
    np.testing.assert_array_equal(one.best(3), one.best(3))
    assert one.errors.tolist() == [0.4, 0.3]


# -------------------------------------------------------------------------------------------------------- many of them


def test_the_mean_of_repeats_and_its_standard_error_are_those_worked_out_by_hand() -> None:
    (mean,) = averaged([trace([1, 2], [0.4, 0.2]), trace([1, 2], [0.2, 0.1], repeat=1)], {"curve": 2})
    assert (mean.sampler, mean.noise, mean.repeats) == ("curve", "pair:0.4", 2)
    np.testing.assert_allclose(mean.mean, [0.3, 0.15])
    # s² = ((0.4 - 0.3)² + (0.2 - 0.3)²) / (2 - 1) = 0.02, and s / √2 = 0.1
    np.testing.assert_allclose(mean.error, [0.1, 0.05])
    np.testing.assert_allclose(mean.low, [0.3 - 0.196, 0.15 - 0.098])
    np.testing.assert_allclose(mean.high, [0.3 + 0.196, 0.15 + 0.098])


def test_the_mean_is_unknown_where_a_repeat_has_found_nothing_yet() -> None:
    (mean,) = averaged([trace([1, 2], [0.4, 0.2]), trace([1.5, 2], [0.2, 0.1], repeat=1)], {"curve": 2})
    assert np.isnan(mean.mean).tolist() == [True, False]
    assert np.isnan(mean.error).tolist() == [True, False]


def test_one_repeat_is_its_own_mean_and_has_no_spread() -> None:
    (mean,) = averaged([trace([1, 2], [0.4, 0.2])], {"curve": 3})
    for band in (mean.mean, mean.low, mean.high):
        np.testing.assert_array_equal(band, [0.4, 0.2, 0.2])


def test_samplers_and_noise_settings_are_averaged_apart_each_up_to_its_own_budget() -> None:
    traces = [
        trace([1, 2, 3], [repeat / 10, 0.05, 0.01], sampler=sampler, noise=noise, repeat=repeat)
        for repeat in (4, 6)
        for sampler in ("random", "tpe")
        for noise in ("a", "b")
    ]
    means = averaged(traces, {"random": 3, "tpe": 1})
    assert [(each.sampler, each.noise, each.repeats, len(each.mean)) for each in means] == [
        ("random", "a", 2, 3),
        ("random", "b", 2, 3),
        ("tpe", "a", 2, 1),
        ("tpe", "b", 2, 1),
    ]
    for each in means:
        assert each.mean[0] == pytest.approx(0.5)


def test_nothing_has_no_means() -> None:
    assert averaged([], {}) == []


# ------------------------------------------------------------------------------------------------------- what is needed


@pytest.mark.parametrize(
    ("error", "trainings"), [(0.5, 2), (0.4, 2), (0.39, 3), (0.3, 3), (0.1, 4), (0.09, None), (NOTHING, None)]
)
def test_trainings_for_an_error_are_counted_from_one(error: float, trainings: int | None) -> None:
    assert mean_trace([NOTHING, 0.4, 0.3, 0.1]).trainings_for(error) == trainings


def test_the_default_is_compared_with_what_each_yardstick_has_found_in_the_end() -> None:
    means = [
        mean_trace([0.4, 0.2, 0.1], noise="a"),
        mean_trace([0.5, 0.4, 0.3, 0.2], noise="a", sampler="random"),
        mean_trace([0.3, 0.05], noise="a", sampler="tpe"),
        mean_trace([0.4, 0.2], noise="b"),
        mean_trace([0.5, 0.4], noise="b", sampler="random"),
        mean_trace([0.1, 0.1], noise="b", sampler="gp"),
    ]
    assert compared(means, default="curve", yardsticks=("random", "tpe")) == [
        {
            "noise": "a",
            "than": "random",
            "trainings": 4,
            "error": 0.2,
            "default": "curve",
            "default_trainings": 2,
        },
        {
            "noise": "a",
            "than": "tpe",
            "trainings": 2,
            "error": 0.05,
            "default": "curve",
            "default_trainings": None,
        },
        {
            "noise": "b",
            "than": "random",
            "trainings": 2,
            "error": 0.4,
            "default": "curve",
            "default_trainings": 1,
        },
    ]


def test_without_the_default_or_without_yardsticks_nothing_is_compared() -> None:
    others = [mean_trace([0.2], sampler="random"), mean_trace([0.1], sampler="tpe")]
    assert compared(others, default="curve", yardsticks=("random", "tpe")) == []
    assert compared([mean_trace([0.2])], default="curve", yardsticks=("random", "tpe")) == []


# ----------------------------------------------------------------------------------------------------------------- rows


def test_rows_hold_every_known_number_and_leave_unknown_ones_out() -> None:
    made = rows([mean_trace([NOTHING, 0.4, 0.3]), mean_trace([0.5], sampler="tpe")])
    band = CONFIDENCE * 0.01
    assert [(row["sampler"], row["trainings"], row["error"]) for row in made] == [
        ("curve", 2, 0.4),
        ("curve", 3, 0.3),
        ("tpe", 1, 0.5),
    ]
    for row in made:
        assert (row["noise"], row["repeats"]) == ("pair:0.4", 4)
        assert row["low"] == pytest.approx(row["error"] - band)
        assert row["high"] == pytest.approx(row["error"] + band)


def test_rows_of_nothing_known_are_an_empty_table() -> None:
    assert rows([mean_trace([NOTHING, NOTHING])]) == []
    assert csv_text(rows([mean_trace([NOTHING])])) == ""
