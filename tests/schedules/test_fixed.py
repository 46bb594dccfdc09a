"""Fixed schedules: eq. (1) of the paper, keep counts, and given keep rates."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from s2e.errors import InvalidInput
from s2e.schedules.fixed import check_schedule, constant, coteaching, coteaching_curve, keep_counts


def test_constant_repeats_its_rate() -> None:
    np.testing.assert_array_equal(constant(0.6, 4), [0.6, 0.6, 0.6, 0.6])
    assert constant(1, 3).dtype == np.float64


def test_coteaching_matches_hand_computation() -> None:
    linear = coteaching(0.4, 7, ramp=4)  # 1 − 0.4·t/4 down to 0.6
    np.testing.assert_allclose(linear, [1.0, 0.9, 0.8, 0.7, 0.6, 0.6, 0.6])
    square = coteaching(0.5, 4, ramp=2, exponent=2.0)  # 1 − 0.5·(t/2)²
    np.testing.assert_allclose(square, [1.0, 0.875, 0.5, 0.5])


def test_coteaching_defaults_to_ten_epochs_of_linear_ramp() -> None:
    schedule = coteaching(0.45, 200)
    assert schedule.shape == (200,)
    np.testing.assert_allclose(schedule[:11], 1 - 0.045 * np.arange(11))
    np.testing.assert_allclose(schedule[10:], 0.55)


@settings(deadline=None, max_examples=40)
@given(tau=st.floats(0, 1), ramp=st.floats(0.1, 300), exponent=st.floats(0.01, 5), epochs=st.integers(1, 60))
def test_coteaching_equals_equation_1_term_by_term(tau: float, ramp: float, exponent: float, epochs: int) -> None:
    expected = [1 - tau * min((t / ramp) ** exponent, 1) for t in range(epochs)]
    schedule = coteaching(tau, epochs, ramp=ramp, exponent=exponent)
    np.testing.assert_allclose(schedule, expected, atol=1e-12)
    assert schedule[0] == 1.0
    assert (np.diff(schedule) <= 0).all()


def test_exponent_0_drops_after_the_first_epoch() -> None:
    np.testing.assert_array_equal(coteaching(0.25, 3, exponent=0.0), [1.0, 0.75, 0.75])


def test_huge_exponent_does_not_overflow() -> None:
    np.testing.assert_allclose(coteaching(0.5, 100, ramp=2, exponent=1e6)[[0, 1, 2, 99]], [1.0, 1.0, 0.5, 0.5])


def test_coteaching_curve_broadcasts_over_leading_dimensions() -> None:
    tau = np.array([[0.2], [0.5]])
    curves = coteaching_curve(np.arange(30), tau, 10, 1.0)
    np.testing.assert_array_equal(curves, [coteaching(0.2, 30), coteaching(0.5, 30)])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: constant(1.1, 5), "`rate` must lie in"),
        (lambda: constant(0.5, 0), "`epochs` must be a positive integer"),
        (lambda: constant(0.5, 2.5), "`epochs` must be a positive integer"),  # type: ignore[arg-type]
        (lambda: coteaching(-0.1, 5), "`noise_rate` must lie in"),
        (lambda: coteaching(0.1, 5, ramp=math.inf), "`ramp` must be"),
        (lambda: coteaching(0.1, 5, exponent=-1), "`exponent` must be"),
    ],
)
def test_invalid_arguments_are_refused(call: object, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        call()  # type: ignore[operator]


def test_keep_counts_match_hand_computation() -> None:
    np.testing.assert_array_equal(keep_counts([1.0, 0.55, 0.5, 0.008, 0.007, 0.0], 128), [128, 70, 64, 1, 1, 1])


def test_keep_counts_are_not_one_short_by_rounding() -> None:
    assert 0.29 * 100 < 29  # without the added 1e-9
    hundredths = np.arange(1, 101)
    np.testing.assert_array_equal(keep_counts(hundredths / 100, 100), hundredths)


@settings(deadline=None, max_examples=60)
@given(rate=st.decimals(0, 1, places=4), batch=st.integers(1, 100_000))
def test_keep_counts_equal_exact_arithmetic_for_decimal_rates(rate: object, batch: int) -> None:
    exact = max(1, math.floor(Fraction(str(rate)) * batch))
    assert keep_counts(np.array([float(str(rate))]), batch)[0] == exact


def test_keep_counts_have_the_shape_of_the_rates() -> None:
    counts = keep_counts(np.full((2, 3, 5), 0.5), 10)
    assert counts.shape == (2, 3, 5)
    assert counts.dtype == np.int64
    assert (counts == 5).all()


@pytest.mark.parametrize(("rates", "batch"), [([0.5], 0), ([math.nan], 4), ([1.5], 4)])
def test_invalid_rates_and_batch_sizes_are_refused(rates: list[float], batch: int) -> None:
    with pytest.raises(InvalidInput, match="must"):
        keep_counts(rates, batch)


def test_given_rates_are_copied_to_float64() -> None:
    given_rates = np.array([1, 0], dtype=np.float32)
    schedule = check_schedule(given_rates, 2)
    assert schedule.dtype == np.float64
    schedule[0] = 0.5
    assert given_rates[0] == 1


def test_all_problems_are_reported_together() -> None:
    with pytest.raises(InvalidInput) as caught:
        check_schedule([0.5, math.nan, 1.5, -1.0], 3)
    message = str(caught.value)
    assert "each of the 3 epochs, but got 4 numbers" in message
    assert "must be finite, but 1 of 4 are not" in message
    assert "must lie in [0, 1], but got 1.5 (2 of 4)" in message


@pytest.mark.parametrize("rates", ["half", [[0.5], [0.1, 0.2]], [10**400]])
def test_rates_that_are_not_numbers_are_refused(rates: object) -> None:
    with pytest.raises(InvalidInput, match="`keep_rates` must be 1 numbers"):
        check_schedule(rates, 1)  # type: ignore[arg-type]


def test_rates_of_more_dimensions_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"the shape \(1, 3\)"):
        check_schedule([[0.1, 0.2, 0.3]], 3)
