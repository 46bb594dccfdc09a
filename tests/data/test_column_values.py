"""Values of columns as texts, and texts as numbers, by hand."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from s2e.data.column_values import column_numbers, decimal_mark_of, parsed_numbers, value_text, value_texts


def test_values_as_text():
    texts = {-3.0: "-3", np.float32(0.1): "0.1", 7: "7", True: "True", b"caf\xc3\xa9 ": "café", " a b ": "a b"}
    for value, text in (*texts.items(), (1e300, "1e+300"), (math.inf, "inf")):
        assert value_text(value) == text


def test_equal_texts_have_one_code_and_missing_values_minus_one():
    codes, texts = value_texts(pd.Series(["b", " b", None, "", 1, 1.0, "1", "a"], dtype=object), "x")
    assert codes.tolist() == [0, 0, -1, -1, 1, 1, 1, 2]
    assert texts == ["b", "1", "a"]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12%", 0.12),
        ("-3.5 %", -0.035),
        ("1,234", 1234),
        ("1,234,567.25", 1234567.25),
        ("1 234 567", 1234567),
        ("1'234.5", 1234.5),
        ("$1,234.50", 1234.5),
        ("-$5", -5),
        ("€ 7.5", 7.5),
        ("12.50 EUR", 12.5),
        ("CHF 3", 3),
        ("−4", -4),
        ("2 days 12:00:00", 2.5),
        ("-1 days +06:00:00", -0.75),
    ],
)
def test_amounts_are_numbers(text, number):
    (found,), (wrong,) = parsed_numbers([text])
    assert found == pytest.approx(number)
    assert not wrong


@pytest.mark.parametrize(
    "text", ["1,23", "1,2345", "12,345,6", "$", "%", "5%%", "$5 €6", "A7", "1.2.3", "1" * 80 + "%"]
)
def test_other_texts_are_no_numbers(text):
    (found,), (wrong,) = parsed_numbers([text])
    assert math.isnan(found)
    assert wrong


def test_one_value_with_a_decimal_comma_decides_for_the_column():
    assert decimal_mark_of(["1,234", "5"]) == "."
    assert decimal_mark_of(["1,234", "5,5"]) == ","
    assert decimal_mark_of(["1,5", "1.5"]) is None
    assert decimal_mark_of(["red", "1"]) is None
    numbers, _ = parsed_numbers(["1,234", "5,5", "1.234,5", "7 €", "n/a"], decimal_mark=",")
    np.testing.assert_allclose(numbers, [1.234, 5.5, 1234.5, 7, math.nan])


def test_durations_are_days_in_any_form():
    durations = pd.Series(pd.to_timedelta(np.arange(-5, 5) * 7.3, unit="h"))
    np.testing.assert_allclose(
        column_numbers(durations, "x"), column_numbers(durations.astype(str), "x"), rtol=0, atol=1e-12
    )
