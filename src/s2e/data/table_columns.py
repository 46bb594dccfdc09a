"""Encode single columns of a table as inputs. Pure: columns in, arrays out.

Letters: N rows.

    numbers, also as text   (x − median) / scale, the scale from the quartiles; values beyond 3 are compressed by a
                            logarithm; missing and infinite values become the median (texts: `column_values`)
    booleans, yes and no    0 and 1; missing values become the more frequent value
    dates and times         day, year, month, weekday and hour (`date_columns`)
    text, pandas categories one input for each of the 32 most frequent values, and one for all others if there are any
    free text               TF-IDF of words and of pieces of words, and projections of these (`text_columns`):
                            text of three words or more on average with fewer than two rows per value, and
                            columns that the caller names
    left out                constant or entirely missing; other text with fewer than two rows per value; integers
                            that number the rows; columns to drop
    error                   lists and other nested values

A column with missing values in training has an indicator of missing values as a further input. Values that did not
occur in training have no input, because its weights would be untrained: a new category is all zeros unless there is an
input for all others, and a value missing for the first time becomes the median. Spaces around values are ignored.
"""

from __future__ import annotations

import logging
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pandas as pd
from pandas.api import types

from s2e.data.column_values import BOOLEANS, DECIMAL_MARKS, column_numbers, decimal_mark_of, value_text, value_texts
from s2e.data.date_columns import DateColumn, fit_dates
from s2e.data.scaling import LARGEST, centre_and_scale, standardised
from s2e.data.text_columns import TextColumn, fit_text, is_text
from s2e.errors import InvalidInput, listed
from s2e.files.fields import Fields

if TYPE_CHECKING:
    from s2e.data.samples import Array

logger = logging.getLogger(__name__)

MAX_CATEGORIES = 32
FEW_ROWS = 20
"""Number of rows below which integers 1, 2, 3, … are not treated as row numbers."""

FEW_TEXTS = 10
"""Number of distinct texts below which a column holds categories even if few occur twice."""

UNNAMED = re.compile(r"Unnamed: \d+")
MAX_SHOWN = 40


@dataclass(frozen=True)
class NumberColumn:
    """Numbers, centred on their median and scaled."""

    kind: ClassVar = "number"
    name: str
    median: float
    scale: float
    missing: bool
    decimal_mark: str = "."

    @property
    def feature_names(self) -> list[str]:
        """Name of the column, and of the indicator."""
        return [self.name, *([f"{self.name}: missing"] if self.missing else [])]

    @property
    def encoding(self) -> str:
        """What became of the column, in words."""
        return f"centred on {self.median:.6g}, scaled by {self.scale:.4g}{_indicator(self.missing)}"

    def encode(self, values: pd.Series) -> Array:
        """Return the column's inputs, float64 (N, 1) or (N, 2)."""
        numbers = column_numbers(values, self.name, decimal_mark=self.decimal_mark)
        known = np.abs(numbers) <= LARGEST  # false for NaN
        infinite = int((np.abs(numbers) > LARGEST).sum())
        if infinite:
            logger.warning("column `%s`: %d infinite values are treated as missing", self.name, infinite)
        return _with_indicator(standardised(np.where(known, numbers, np.nan), self.median, self.scale), ~known, self)


@dataclass(frozen=True)
class BooleanColumn:
    """Booleans as 1 and 0; `usual` replaces missing values."""

    kind: ClassVar = "boolean"
    name: str
    usual: bool
    missing: bool

    @property
    def feature_names(self) -> list[str]:
        """Name of the column, and of the indicator."""
        return [self.name, *([f"{self.name}: missing"] if self.missing else [])]

    @property
    def encoding(self) -> str:
        """What became of the column, in words."""
        return f"0 and 1{_indicator(self.missing)}"

    def encode(self, values: pd.Series) -> Array:
        """Return the column's inputs, float64 (N, 1) or (N, 2)."""
        numbers = column_numbers(values, self.name, BOOLEANS)
        missing = np.isnan(numbers)
        if not np.isin(numbers[~missing], (0.0, 1.0)).all():
            wrong = np.unique(numbers[~missing & ~np.isin(numbers, (0.0, 1.0))])
            raise InvalidInput(f"column `{self.name}` must hold booleans, but got {listed(map(value_text, wrong))}.")
        return _with_indicator(np.where(missing, float(self.usual), numbers), missing, self)


@dataclass(frozen=True)
class CategoryColumn:
    """Categories, one input each; `other` adds an input for all others, `missing` one for missing values."""

    kind: ClassVar = "category"
    name: str
    categories: tuple[str, ...]
    other: bool
    missing: bool

    @property
    def feature_names(self) -> list[str]:
        """Names of the categories, then of the inputs for others and for missing values."""
        last = [*(["other"] if self.other else []), *(["missing"] if self.missing else [])]
        return [f"{self.name} = {category}" for category in self.categories] + [f"{self.name}: {kind}" for kind in last]

    @property
    def encoding(self) -> str:
        """What became of the column, in words."""
        others = " and one for all others" if self.other else ""
        return f"one input for each of {len(self.categories)} values{others}{_indicator(self.missing)}"

    def encode(self, values: pd.Series) -> Array:
        """Return the column's inputs, float64 (N, categories + other + missing)."""
        codes, texts = value_texts(values, self.name)
        features = len(self.feature_names)
        unused = features  # index of an extra input that is cut off in the end
        index = {category: number for number, category in enumerate(self.categories)}
        other = len(self.categories) if self.other else unused
        missing = features - 1 if self.missing else unused
        input_of_code = np.array([index.get(text, other) for text in texts] + [missing])  # code -1 is the last
        unknown = [text for text in texts if text not in index]
        if unknown and not self.other:
            logger.warning("column `%s`: unknown categories are ignored: %s", self.name, listed(map(repr, unknown)))
        inputs = np.zeros((len(values), features + 1))
        inputs[np.arange(len(values)), input_of_code[codes]] = 1.0
        return inputs[:, :features]


@dataclass(frozen=True)
class LeftOut:
    """A column that has no inputs, with the reason."""

    kind: ClassVar = "left out"
    name: str
    reason: str

    @property
    def feature_names(self) -> list[str]:
        """No names."""
        return []

    @property
    def encoding(self) -> str:
        """The reason."""
        return self.reason

    def encode(self, values: pd.Series) -> Array:
        """Return no inputs, float64 (N, 0)."""
        return np.empty((len(values), 0))


Column = NumberColumn | BooleanColumn | CategoryColumn | DateColumn | TextColumn | LeftOut


def column_from_json(written: Fields) -> Column:
    """Return the column whose fields, and whose kind, were written to a file."""
    name, kind = written.text("name"), written.text("kind")
    if kind == NumberColumn.kind:
        median, scale = written.number("median"), written.number("scale", least=math.ulp(0.0))
        decimal_mark = written.text("decimal_mark", ".")
        if decimal_mark not in DECIMAL_MARKS:
            raise written.error("decimal_mark", " or ".join(DECIMAL_MARKS), decimal_mark)
        return NumberColumn(name, median, scale, written.flag("missing"), decimal_mark)
    if kind == BooleanColumn.kind:
        return BooleanColumn(name, written.flag("usual"), written.flag("missing"))
    if kind == CategoryColumn.kind:
        return CategoryColumn(name, written.texts("categories"), written.flag("other"), written.flag("missing"))
    if kind == DateColumn.kind:
        return DateColumn.from_json(written)
    if kind == TextColumn.kind:
        return TextColumn.from_json(written)
    if kind == LeftOut.kind:
        return LeftOut(name, written.text("reason"))
    raise written.error("kind", "number, boolean, category, date, text or left out", kind)


# Fitting


def fit_column(name: str, values: pd.Series) -> Column:
    """Fit a column of at least one row; raise for nested values."""
    dtype = values.dtype
    if values.isna().all():
        return LeftOut(name, "all its values are missing")
    if isinstance(dtype, pd.CategoricalDtype):
        return _fit_categories(name, values)
    if types.is_bool_dtype(dtype):
        return _fit_booleans(name, values)
    if types.is_numeric_dtype(dtype) or dtype.kind == "m":
        return _fit_numbers(name, values)
    _, texts = value_texts(values, name)
    if not texts:
        return LeftOut(name, "all its values are missing")
    if all(text.casefold() in BOOLEANS for text in texts):
        return _fit_booleans(name, values)
    if (decimal_mark := decimal_mark_of(texts)) is not None:
        return _fit_numbers(name, values, decimal_mark)
    return fit_dates(name, values) or _fit_categories(name, values)


def _fit_numbers(name: str, values: pd.Series, decimal_mark: str = ".") -> Column:
    numbers = column_numbers(values, name, decimal_mark=decimal_mark)
    known = np.abs(numbers) <= LARGEST
    present = numbers[known]
    if not len(present):
        return LeftOut(name, "all its values are missing or infinite")
    low, high = present.min(), present.max()
    if high - low <= 4 * np.finfo(float).eps * max(abs(low), abs(high)):  # equal up to rounding
        if known.all():
            return LeftOut(name, f"it is always {value_text(low)}")
        return _fit_categories(name, values.where(known))
    if known.all() and _are_row_numbers(name, present):
        return LeftOut(name, "it numbers the rows; name it in `id_column` if it identifies them")
    median, scale = centre_and_scale(present)
    return NumberColumn(name, float(median), float(scale), not known.all(), decimal_mark)


def _are_row_numbers(name: str, numbers: Array) -> bool:
    """Return whether these are row numbers, which carry no information except the order of the rows."""
    if (numbers != np.rint(numbers)).any() or len(np.unique(numbers)) < len(numbers):
        return False
    consecutive = numbers.min() in (0, 1) and numbers.max() - numbers.min() == len(numbers) - 1
    return UNNAMED.fullmatch(name) is not None or (consecutive and len(numbers) >= FEW_ROWS)


def _fit_booleans(name: str, values: pd.Series) -> Column:
    numbers = column_numbers(values, name, BOOLEANS)
    present = numbers[~np.isnan(numbers)]
    if (present == present[0]).all():
        return _fit_categories(name, values)
    return BooleanColumn(name, usual=bool(present.mean() > 0.5), missing=len(present) < len(numbers))


def _fit_categories(name: str, values: pd.Series) -> Column:
    codes, texts = value_texts(values, name)
    missing = bool((codes < 0).any())
    counts = np.bincount(codes[codes >= 0], minlength=len(texts))
    if len(texts) == 1 and not missing:
        return LeftOut(name, f"it is always {texts[0]}")
    if len(texts) >= FEW_TEXTS and 2 * len(texts) > counts.sum():
        if is_text(texts) and (text := fit_text(name, values)) is not None:
            return text
        return LeftOut(
            name,
            f"{len(texts)} different values in {counts.sum()} rows, such as {min(texts)[:MAX_SHOWN]!r}; name it in "
            f"`text` if it is text to learn from, or in `id_column` if it identifies the rows",
        )
    frequent = sorted(range(len(texts)), key=lambda code: (-counts[code], texts[code]))[:MAX_CATEGORIES]
    categories = tuple(sorted(texts[code] for code in frequent))
    return CategoryColumn(name, categories, other=len(texts) > MAX_CATEGORIES, missing=missing)


def _indicator(missing: bool) -> str:
    return "; indicator of missing values" if missing else ""


def _with_indicator(inputs: Array, missing: Array, column: NumberColumn | BooleanColumn) -> Array:
    """Return (N, 1), or (N, 2) with an indicator if the column had missing values in training."""
    if column.missing:
        return np.stack([inputs, missing], axis=1)
    if missing.any():
        logger.warning(
            "column `%s`: %d missing values are replaced; there were none in training", column.name, int(missing.sum())
        )
    return inputs[:, None]
