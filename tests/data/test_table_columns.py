"""Encoding of single columns: inputs by hand, columns left out, and refusals."""

from __future__ import annotations

import decimal
import logging
import math

import numpy as np
import pandas as pd
import pytest

from s2e.data.table_columns import (
    BooleanColumn,
    CategoryColumn,
    LeftOut,
    NumberColumn,
    fit_column,
)
from s2e.errors import InvalidInput

NAN = float("nan")


def fitted(values, name="x"):
    return fit_column(name, pd.Series(values))


def encoded(values, new=None, name="x"):
    column = fitted(values, name)
    assert not isinstance(column, LeftOut)
    return column.encode(pd.Series(values if new is None else new))


class TestNumbers:
    def test_numbers_are_scaled_by_median_and_quartiles(self):
        # quartiles of 0..8 are 2, 4, 6
        column = fitted([0, 8, 1, 7, 2, 6, 3, 5, 4])
        assert column == NumberColumn("x", 4.0, 4 / 1.349, missing=False)
        np.testing.assert_allclose(column.encode(pd.Series([4, 6, 2]))[:, 0], [0, 0.6745, -0.6745])

    @pytest.mark.parametrize(
        "values",
        [
            ["1", " 2.0 ", "5e0"],
            [decimal.Decimal(1), "2", 5.0],
            pd.array([1, 2, 5], dtype="Int64"),
            np.array([1, 2, 5], dtype=np.uint8),
        ],
    )
    def test_numbers_of_any_type_are_equal(self, values):
        assert fitted(values) == NumberColumn("x", 2.0, 2 / 1.349, missing=False)

    def test_the_scale_is_a_deviation_if_quartiles_coincide(self):
        assert fitted([0, 0, 0, 0, 0, 0, 0, 0, 0, 10]).scale == pytest.approx(math.sqrt(10.0))

    def test_outliers_are_compressed_monotonically(self):
        column = NumberColumn("x", 1.0, 2.0, missing=False)
        numbers = [1 + 2 * z for z in (-3.0, 3.0, 30.0, -3e9, 1e290)]
        by_hand = [-3.0, 3.0, 3 * (1 + math.log(10)), -3 * (1 + math.log(1e9)), 3 * (1 + math.log(1e290 / 3))]
        np.testing.assert_allclose(column.encode(pd.Series(numbers))[:, 0], by_hand)
        steps = column.encode(pd.Series(np.linspace(-50, 50, 999)))[:, 0]
        assert (np.diff(steps) > 0).all()

    @pytest.mark.parametrize("nothing", [NAN, " ", "NA", -math.inf])
    def test_missing_and_infinite_values_become_median_and_indicator(self, nothing):
        values = pd.Series([1, 2, nothing, 5], dtype=object)
        column = fit_column("x", values)
        assert column == NumberColumn("x", 2.0, 2 / 1.349, missing=True)
        assert column.feature_names == ["x", "x: missing"]
        np.testing.assert_allclose(column.encode(values), [[-0.6745, 0], [0, 0], [0, 1], [2.0235, 0]])

    def test_signalling_nans_of_float32_are_missing_values(self):
        values = np.array([1, 2, 0, 5], dtype=np.float32)
        values.view(np.uint32)[2] = 0x7FA00000  # in a damaged file; a cast of it sets the flag of an invalid operation
        np.testing.assert_allclose(encoded(values), [[-0.6745, 0], [0, 0], [0, 1], [2.0235, 0]])

    def test_a_first_missing_value_is_the_median_with_a_warning(self, caplog):
        assert encoded([1, 2, 5], [NAN, 2]).tolist() == [[0.0], [0.0]]
        assert "column `x`: 1 missing values are replaced" in caplog.text
        encoded([1.0, 2.0, math.inf])
        assert "1 infinite values are treated as missing" in caplog.text

    def test_extreme_numbers_give_finite_inputs(self):
        for values in ([-1e300, 0.0, 1e300], [0.0, 5e-324, 1e-323], [1e300, 0.0, 0.0, 0.0, 0.0, 0.0, -5.0]):
            assert np.isfinite(encoded(values)).all()
        assert np.isfinite(encoded([0.0, 1e-300, 2e-300], [1e300])).all()

    def test_text_in_a_column_of_numbers_is_refused(self):
        with pytest.raises(InvalidInput) as caught:
            encoded([1, 2, 5], ["1", "many", None, "few", "many"])
        assert str(caught.value) == (
            "column `x` must hold numbers, but got 'many', 'few' (first in row 2); correct them or leave them empty."
        )


class TestBooleans:
    @pytest.mark.parametrize("values", [[True, False, True], ["true", "False", " TRUE"]])
    def test_booleans_become_zero_and_one(self, values):
        assert fitted(values) == BooleanColumn("x", usual=True, missing=False)
        assert encoded(values).tolist() == [[1], [0], [1]]
        assert encoded(values, [0, 1, 1.0]).tolist() == [[0], [1], [1]]

    @pytest.mark.parametrize(("values", "usual"), [([True, False, True, None], 1.0), ([False, True, None, False], 0.0)])
    def test_missing_booleans_become_the_usual_value_and_an_indicator(self, values, usual):
        by_hand = [[usual, 1.0] if value is None else [float(value), 0.0] for value in values]
        assert encoded(values).tolist() == by_hand
        assert encoded(pd.array(values, dtype="boolean")).tolist() == by_hand

    @pytest.mark.parametrize("wrong", [["perhaps"], [2, 0]])
    def test_other_values_are_refused(self, wrong):
        with pytest.raises(InvalidInput, match=r"column `x` must hold booleans, but got ('perhaps'|2)"):
            encoded([True, False], wrong)


class TestCategories:
    def test_categories_and_missing_values_have_one_input_each(self):
        column = fitted(["red", "blue ", None, "red"])
        assert column == CategoryColumn("x", ("blue", "red"), other=False, missing=True)
        assert column.feature_names == ["x = blue", "x = red", "x: missing"]
        values = pd.Series(["red", " blue", None, ""])
        assert column.encode(values).tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 1], [0, 0, 1]]

    def test_pandas_categories_of_numbers_are_categories(self):
        values = pd.Series(pd.Categorical([3, 1, 3], categories=[1, 2, 3]))
        column = fit_column("x", values)
        assert column == CategoryColumn("x", ("1", "3"), other=False, missing=False)
        assert column.encode(pd.Series([1.0, 3.0])).tolist() == [[1, 0], [0, 1]]

    def test_rare_categories_share_one_input(self, caplog):
        values = [f"v{number:02d}" for number in range(40) for _ in range(2 + (number >= 10))]
        column = fitted(values)
        frequent = tuple(f"v{number:02d}" for number in [0, 1, *range(10, 40)])  # ties: the first by name
        assert column == CategoryColumn("x", frequent, other=True, missing=False)
        assert column.feature_names[-1] == "x: other"
        rows = column.encode(pd.Series(["v00", "v05", "never"]))
        assert rows.argmax(axis=1).tolist() == [0, 32, 32]
        assert rows.sum() == 3
        assert column.encode(pd.Series([None], dtype=object)).sum() == 0
        assert not caplog.records

    def test_unknown_categories_are_zeros_with_a_warning(self, caplog):
        assert encoded(["a", "b", "a"], ["c", "a", None]).tolist() == [[0, 0], [1, 0], [0, 0]]
        assert "column `x`: unknown categories are ignored: 'c'" in caplog.text

    @pytest.mark.parametrize(("values", "name"), [([5, NAN, 5], "5"), ([True, None, True], "True"), (["a", None], "a")])
    def test_one_value_and_missing_values_are_two_categories(self, values, name):
        assert fitted(values) == CategoryColumn("x", (name,), other=False, missing=True)
        assert encoded(values)[:2].tolist() == [[1, 0], [0, 1]]

    def test_words_for_missing_values_alone_are_categories(self):
        assert fitted(["none", "-", "none"]) == CategoryColumn("x", ("-", "none"), other=False, missing=False)

    def test_few_distinct_texts_are_categories(self):
        assert isinstance(fitted(list("abcdefghi")), CategoryColumn)


class TestLeftOut:
    @pytest.mark.parametrize(
        ("values", "reason"),
        [
            ([None, " "], "all its values are missing"),
            ([math.inf, NAN], "all its values are missing or infinite"),
            ([7, 7.0], "it is always 7"),
            ([False, False], "it is always False"),
            ([0.3, 0.1 + 0.2, 0.3], "it is always 0.3"),
        ],
    )
    def test_constant_and_missing_columns(self, values, reason):
        outcome = fitted(values)
        assert isinstance(outcome, LeftOut)
        assert outcome.reason == reason

    def test_differences_beyond_rounding_are_kept(self):
        assert isinstance(fitted([1e15, 1e15 + 10, 1e15]), NumberColumn)

    def test_text_with_few_repeats(self):
        reason = fitted([f"name {number}" for number in range(12)]).reason
        assert reason.startswith("12 different values in 12 rows, such as 'name 0';")
        assert "`text`" in reason
        assert "`id_column`" in reason
        assert isinstance(fitted([f"name {number % 6}" for number in range(12)]), CategoryColumn)
        assert isinstance(fitted([f"name {number % 10}" for number in range(20)]), CategoryColumn)
        assert isinstance(fitted([f"name {number % 10}" for number in range(19)]), LeftOut)

    @pytest.mark.parametrize("start", [0, 1])
    def test_row_numbers_in_any_order(self, start):
        counted = np.random.default_rng(0).permutation(20) + start
        assert "numbers the rows" in fitted(counted).reason
        assert isinstance(fitted(counted[counted > start]), NumberColumn)
        assert isinstance(fitted(counted + 5), NumberColumn)
        assert isinstance(fitted([*counted, NAN]), NumberColumn)
        assert isinstance(fitted(counted * 2), NumberColumn)
        assert isinstance(fitted(np.append(counted[:-1], counted[0])), NumberColumn)

    def test_consecutive_numbers_are_kept_in_small_tables(self):
        assert isinstance(fitted(np.arange(19)), NumberColumn)

    def test_unnamed_index_with_gaps(self):
        assert "numbers the rows" in fitted([4, 17, 9], name="Unnamed: 0").reason
        assert isinstance(fitted([4.5, 17, 9], name="Unnamed: 0"), NumberColumn)


class TestRefused:
    @pytest.mark.parametrize("values", [["2020-13", "2020-14"], ["1.2.3", "10:3"]])
    def test_text_that_resembles_dates_is_text(self, values):
        assert isinstance(fitted(values), CategoryColumn)

    @pytest.mark.parametrize("value", [[1, 2], np.array([1.0])])
    def test_nested_values(self, value):
        with pytest.raises(InvalidInput, match=r"column `x` must hold one value in each row, but got a (list|nda)"):
            fit_column("x", pd.Series([None, value, value], dtype=object))

    def test_complex_numbers(self):
        with pytest.raises(InvalidInput, match="column `x` must hold numbers, but got"):
            fitted([1 + 2j, 3 + 4j])


def test_the_training_column_is_encoded_without_a_warning(caplog):
    with caplog.at_level(logging.DEBUG):
        encoded([1, 2, None, 5])
        encoded(["a", "b", None])
        encoded([True, False, None])
    assert not caplog.records
