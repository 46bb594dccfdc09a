"""Encode single columns of a table as inputs. Pure: columns in, arrays out.

Letters: N rows.

    numbers, also as text   (x − median) / scale, the scale from the quartiles; values beyond 3 are compressed by a
                            logarithm; missing and infinite values become the median
    booleans                0 and 1; missing values become the more frequent value
    text, pandas categories one input for each of the 32 most frequent values, and one for all others if there are any
    left out, with a log    constant or entirely missing; text with fewer than two rows per value; integers that number
                            the rows
    error                   dates and times, lists and other nested values

A column with missing values in training has an indicator of missing values as a further input. Values that did not
occur in training have no input, because its weights would be untrained: a new category is all zeros unless there is an
input for all others, and a value missing for the first time becomes the median. Spaces around values are ignored.
"""

from __future__ import annotations

import logging
import math
import re
import warnings
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from pandas.api import types

from s2e.errors import InvalidInput, listed
from s2e.files.fields import Fields

if TYPE_CHECKING:
    from s2e.data.samples import Array, Labels

logger = logging.getLogger(__name__)

MAX_CATEGORIES = 32
FEW_ROWS = 20
"""Number of rows below which integers 1, 2, 3, … are not treated as row numbers."""

FEW_TEXTS = 10
"""Number of distinct texts below which a column holds categories even if few occur twice."""

NORMAL_IQR = 1.349
"""Interquartile range of the standard normal distribution, so that the scale estimates the standard deviation."""

COMPRESSED_BEYOND = 3.0
LARGEST = 1e300
"""Absolute value above which numbers count as infinite."""

MISSING_WORDS = frozenset(["na", "n/a", "nan", "none", "null", "#n/a", "<na>", "-", ".", "?"])
BOOLEANS = {"true": 1.0, "false": 0.0}
UNNAMED = re.compile(r"Unnamed: \d+")
_CLOCK = r"\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?( ?[AaPp][Mm])?"
_DAY = (
    r"\d{4}(?P<after_year>[-/.])(0?[1-9]|1[0-2])((?P=after_year)\d{1,2})?"
    r"|\d{1,2}(?P<after_day>[-/.])\d{1,2}(?P=after_day)(\d{2}|\d{4})"
)
DATE_OR_TIME = re.compile(rf"(-?\d+ days?.*|({_DAY})([T ]{_CLOCK})?( ?(Z|UTC|[+-]\d{{2}}:?\d{{2}}))?|{_CLOCK})")
MAX_SHOWN = 40


@dataclass(frozen=True)
class NumberColumn:
    """Numbers, centred on their median and scaled."""

    kind: ClassVar = "number"
    name: str
    median: float
    scale: float
    missing: bool

    @property
    def feature_names(self) -> list[str]:
        """Name of the column, and of the indicator."""
        return [self.name, *([f"{self.name}: missing"] if self.missing else [])]

    def encode(self, values: pd.Series) -> Array:
        """Return the column's inputs, float64 (N, 1) or (N, 2)."""
        numbers = _numbers(values, self.name)
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

    def encode(self, values: pd.Series) -> Array:
        """Return the column's inputs, float64 (N, 1) or (N, 2)."""
        numbers = _numbers(values, self.name, BOOLEANS)
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


Column = NumberColumn | BooleanColumn | CategoryColumn


def column_from_json(written: Fields) -> Column:
    """Return the column whose fields, and whose kind, were written to a file."""
    name, missing, kind = written.text("name"), written.flag("missing"), written.text("kind")
    if kind == NumberColumn.kind:
        positive = math.ulp(0.0)
        return NumberColumn(name, written.number("median"), written.number("scale", least=positive), missing)
    if kind == BooleanColumn.kind:
        return BooleanColumn(name, written.flag("usual"), missing)
    if kind == CategoryColumn.kind:
        return CategoryColumn(name, written.texts("categories"), written.flag("other"), missing)
    raise written.error("kind", "number, boolean or category", kind)


@dataclass(frozen=True)
class LeftOut:
    """A column without information."""

    reason: str


# Fitting


def fit_column(name: str, values: pd.Series) -> Column | LeftOut:
    """Fit a column of at least one row, or return why it is left out; raise for dates and nested values."""
    dtype = values.dtype
    if values.isna().all():
        return LeftOut("all its values are missing")
    if isinstance(dtype, pd.CategoricalDtype):
        return _fit_categories(name, values)
    if dtype.kind in "mM" or isinstance(dtype, pd.PeriodDtype):
        raise _date_or_time(name, str(values.dropna().iloc[0]))
    if types.is_bool_dtype(dtype):
        return _fit_booleans(name, values)
    if types.is_numeric_dtype(dtype):
        return _fit_numbers(name, values)
    _, texts = value_texts(values, name)
    if not texts:
        return LeftOut("all its values are missing")
    if all(text.casefold() in BOOLEANS for text in texts):
        return _fit_booleans(name, values)
    numbers, wrong = _parsed(texts, {})
    if not wrong.any() and not np.isnan(numbers).all():
        return _fit_numbers(name, values)
    if all(DATE_OR_TIME.fullmatch(text) for text in texts):
        raise _date_or_time(name, texts[0])
    return _fit_categories(name, values)


def _fit_numbers(name: str, values: pd.Series) -> Column | LeftOut:
    numbers = _numbers(values, name)
    known = np.abs(numbers) <= LARGEST
    present = numbers[known]
    if not len(present):
        return LeftOut("all its values are missing or infinite")
    low, high = present.min(), present.max()
    if high - low <= 4 * np.finfo(float).eps * max(abs(low), abs(high)):  # equal up to rounding
        return LeftOut(f"it is always {value_text(low)}") if known.all() else _fit_categories(name, values.where(known))
    if known.all() and _are_row_numbers(name, present):
        return LeftOut("it holds row numbers; pass it as the ID column if it identifies the rows")
    median, scale = centre_and_scale(present)
    return NumberColumn(name, float(median), float(scale), missing=not known.all())


def centre_and_scale(numbers: Array) -> tuple[Array, Array]:
    """Return the median and the scale of numbers (N, ...) along the first axis, (...); NaN is ignored.

    The scale is the standard deviation of a normal distribution with the same quartiles, or the root mean square
    deviation where the quartiles coincide. It is 0 where all values are equal and NaN where there are none.
    """
    numbers = np.asarray(numbers, dtype=np.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # columns that are all NaN
        lower, median, upper = np.nanquantile(numbers, (0.25, 0.5, 0.75), axis=0)
        largest = np.nanmax(np.abs(numbers - median), axis=0)
        root_mean_square = largest * np.sqrt(np.nanmean(((numbers - median) / largest) ** 2, axis=0))
    scale = (upper - lower) / NORMAL_IQR
    return median, np.where(scale > 0, scale, np.where(largest > 0, root_mean_square, largest))


def standardised(numbers: Array, centre: Array | float, scale: Array | float) -> Array:
    """Return z = (x − centre) / scale with outliers compressed and NaN as 0, in the shape of the numbers.

    |z| > c becomes c (1 + ln(|z| / c)), which is continuous, as is its slope, and monotonic.
    """
    with np.errstate(over="ignore"):
        z = np.where(np.isnan(numbers), 0.0, (numbers - centre) / scale)
    far = np.clip(np.abs(z) / COMPRESSED_BEYOND, 1.0, LARGEST)
    return np.asarray(np.clip(z, -COMPRESSED_BEYOND, COMPRESSED_BEYOND) * (1.0 + np.log(far)))


def _are_row_numbers(name: str, numbers: Array) -> bool:
    """Return whether these are row numbers, which carry no information except the order of the rows."""
    if (numbers != np.rint(numbers)).any() or len(np.unique(numbers)) < len(numbers):
        return False
    consecutive = numbers.min() in (0, 1) and numbers.max() - numbers.min() == len(numbers) - 1
    return UNNAMED.fullmatch(name) is not None or (consecutive and len(numbers) >= FEW_ROWS)


def _fit_booleans(name: str, values: pd.Series) -> Column | LeftOut:
    numbers = _numbers(values, name, BOOLEANS)
    present = numbers[~np.isnan(numbers)]
    if (present == present[0]).all():
        return _fit_categories(name, values)
    return BooleanColumn(name, usual=bool(present.mean() > 0.5), missing=len(present) < len(numbers))


def _fit_categories(name: str, values: pd.Series) -> Column | LeftOut:
    codes, texts = value_texts(values, name)
    missing = bool((codes < 0).any())
    counts = np.bincount(codes[codes >= 0], minlength=len(texts))
    if len(texts) == 1 and not missing:
        return LeftOut(f"it is always {texts[0]}")
    if len(texts) >= FEW_TEXTS and 2 * len(texts) > counts.sum():
        return LeftOut(
            f"{len(texts)} different values in {counts.sum()} rows, such as {min(texts)[:MAX_SHOWN]!r}; pass it as "
            f"the ID column (--id) if it identifies the rows, or convert text to numbers (TfidfVectorizer)"
        )
    frequent = sorted(range(len(texts)), key=lambda code: (-counts[code], texts[code]))[:MAX_CATEGORIES]
    categories = tuple(sorted(texts[code] for code in frequent))
    return CategoryColumn(name, categories, other=len(texts) > MAX_CATEGORIES, missing=missing)


def _date_or_time(name: str, example: str) -> InvalidInput:
    return InvalidInput(
        f"column `{name}` must hold numbers or categories, but got dates or times such as {example!r}; replace it by "
        f"numbers or categories, such as the year, the weekday, the hour or the days since a fixed day, or remove it."
    )


# Values


def value_texts(values: pd.Series, name: str) -> tuple[Labels, list[str]]:
    """Return codes (N,) int64, indices into the distinct texts or −1 for missing values, and the texts.

    Texts are stripped of surrounding spaces; integers are written without a decimal point.
    """
    try:
        codes, distinct = pd.factorize(values)
    except TypeError as error:  # nested values are not hashable
        nested = next(value for value in values if not isinstance(value, Hashable))
        raise InvalidInput(
            f"column `{name}` must hold one value in each row, but got a {type(nested).__name__}; "
            f"spread it over several columns or remove it."
        ) from error
    index: dict[str, int] = {}
    merged = [index.setdefault(text, len(index)) if text else -1 for text in map(value_text, distinct)]
    return np.array([*merged, -1], dtype=np.int64)[codes], list(index)  # code −1 is the last


def value_text(value: Any) -> str:
    """Return a value as text: 1 for 1.0; bytes are decoded as UTF-8."""
    if isinstance(value, (float, np.floating)) and abs(float(value)) < 2**53 and float(value).is_integer():
        return str(int(value))
    return value.decode("utf-8", "backslashreplace").strip() if isinstance(value, bytes) else str(value).strip()


def _numbers(values: pd.Series, name: str, words: Mapping[str, float] | None = None) -> Array:
    """Return the numbers in a column, float64 (N,), NaN for missing values; `words` are texts with a numeric value."""
    if types.is_bool_dtype(values.dtype) or (types.is_numeric_dtype(values.dtype) and values.dtype.kind != "c"):
        return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan))
    codes, texts = value_texts(values, name)
    numbers, wrong = _parsed(texts, words or {})
    if wrong.any():
        row = int(np.flatnonzero(np.append(wrong, False)[codes])[0]) + 1
        expected = "booleans" if words else "numbers"
        got = listed(repr(text) for text, is_wrong in zip(texts, wrong, strict=True) if is_wrong)
        raise InvalidInput(
            f"column `{name}` must hold {expected}, but got {got} (first in row {row}); "
            f"correct them or leave them empty."
        )
    return np.append(numbers, np.nan)[codes]


def _parsed(texts: list[str], words: Mapping[str, float]) -> tuple[Array, Array]:
    """Return the numbers, NaN for other texts, and which texts are neither numbers nor missing values."""
    folded = [text.casefold() for text in texts]
    replaced = pd.Series([words.get(text, text) for text in folded], dtype=object)
    numbers = np.asarray(pd.to_numeric(replaced, errors="coerce"), dtype=np.float64)
    return numbers, np.isnan(numbers) & np.array([text not in MISSING_WORDS for text in folded], dtype=bool)


def _with_indicator(inputs: Array, missing: Array, column: NumberColumn | BooleanColumn) -> Array:
    """Return (N, 1), or (N, 2) with an indicator if the column had missing values in training."""
    if column.missing:
        return np.stack([inputs, missing], axis=1)
    if missing.any():
        logger.warning(
            "column `%s`: %d missing values are replaced; there were none in training", column.name, int(missing.sum())
        )
    return inputs[:, None]
