"""What becomes of a column of a table when it is turned into inputs. Pure: columns in, arrays out.

Letters: N rows.

    numbers, also as text   (x − median) / scale, the scale from the quartiles; values beyond 3 are compressed by a
                            logarithm; missing and infinite values become the median
    true and false          0 and 1; missing values become the more frequent one
    text, pandas categories one input for each of the 32 most frequent, and one for the others if there were any
    left out, with a log    constant or all missing; text with fewer than two rows for a value; whole numbers that count
                            the rows
    refused                 dates and times, lists and other nested values

Where values were missing when the encoding was learnt, one more input says whether they are. What was never seen has no
input of its own, because its weights would be untrained: a new category is all zeros unless there were others, and a
value missing for the first time is just the median. Values are compared without the spaces around them.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from pandas.api import types

from s2e import errors
from s2e.errors import InvalidInput

if TYPE_CHECKING:
    from s2e.data.samples import Array, Labels

log = logging.getLogger(__name__)

MOST_CATEGORIES = 32
FEW_ROWS = 20
"""In a smaller table, whole numbers that happen to be 1, 2, 3, … need not count the rows."""

FEW_TEXTS = 10
"""So many different texts are categories even when hardly any occurs twice: the table may be small."""

QUARTILES_OF_NORMAL = 1.349
"""Distance of the quartiles of the standard normal distribution, so that the scale is its standard deviation."""

COMPRESSED_BEYOND = 3.0
LARGEST = 1e300
MISSING_WORDS = frozenset(["na", "n/a", "nan", "none", "null", "#n/a", "<na>", "-", ".", "?"])
TRUTHS = {"true": 1.0, "false": 0.0}
NAMELESS = re.compile(r"Unnamed: \d+")
_CLOCK = r"\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?( ?[AaPp][Mm])?"
_DAY = (
    r"\d{4}(?P<after_year>[-/.])(0?[1-9]|1[0-2])((?P=after_year)\d{1,2})?"
    r"|\d{1,2}(?P<after_day>[-/.])\d{1,2}(?P=after_day)(\d{2}|\d{4})"
)
DATE_OR_TIME = re.compile(rf"(-?\d+ days?.*|({_DAY})([T ]{_CLOCK})?( ?(Z|UTC|[+-]\d{{2}}:?\d{{2}}))?|{_CLOCK})")
MOST_SHOWN = 40


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
        """One name, and one of the indicator."""
        return [self.name, *([f"{self.name}: missing"] if self.missing else [])]

    def encode(self, values: pd.Series) -> Array:
        """Return the column's inputs, float64 (N, 1) or (N, 2)."""
        numbers = _numbers(values, self.name)
        known = np.abs(numbers) <= LARGEST  # not where it is NaN
        infinite = int((np.abs(numbers) > LARGEST).sum())
        if infinite:
            log.warning("column `%s`: %d infinite values count as missing", self.name, infinite)
        return _with_indicator(standardised(np.where(known, numbers, np.nan), self.median, self.scale), ~known, self)


@dataclass(frozen=True)
class BooleanColumn:
    """True and false as 1 and 0."""

    kind: ClassVar = "boolean"
    name: str
    usual: bool
    missing: bool

    @property
    def feature_names(self) -> list[str]:
        """One name, and one of the indicator."""
        return [self.name, *([f"{self.name}: missing"] if self.missing else [])]

    def encode(self, values: pd.Series) -> Array:
        """Return the column's inputs, float64 (N, 1) or (N, 2)."""
        truths = _numbers(values, self.name, TRUTHS)
        unknown = np.isnan(truths)
        if not np.isin(truths[~unknown], (0.0, 1.0)).all():
            wrong = np.unique(truths[~unknown & ~np.isin(truths, (0.0, 1.0))])
            raise InvalidInput(
                f"column `{self.name}` must hold true and false, but got {listed(map(value_text, wrong))}."
            )
        return _with_indicator(np.where(unknown, float(self.usual), truths), unknown, self)


@dataclass(frozen=True)
class CategoryColumn:
    """Categories, one input each; with `other` one for those not among them, with `missing` one for no value."""

    kind: ClassVar = "category"
    name: str
    categories: tuple[str, ...]
    other: bool
    missing: bool

    @property
    def feature_names(self) -> list[str]:
        """One name for each category, then those of the others and of missing values."""
        last = [*(["other"] if self.other else []), *(["missing"] if self.missing else [])]
        return [f"{self.name} = {category}" for category in self.categories] + [f"{self.name}: {kind}" for kind in last]

    def encode(self, values: pd.Series) -> Array:
        """Return the column's inputs, float64 (N, categories + other + missing)."""
        codes, texts = value_texts(values, self.name)
        features = len(self.feature_names)
        nowhere = features  # a further position, cut off in the end
        position = {category: number for number, category in enumerate(self.categories)}
        otherwise = len(self.categories) if self.other else nowhere
        when_missing = features - 1 if self.missing else nowhere
        places = np.array([position.get(text, otherwise) for text in texts] + [when_missing])  # the code -1 is the last
        unknown = [text for text in texts if text not in position]
        if unknown and not self.other:
            log.warning("column `%s`: categories never seen before are ignored: %s", self.name, listed(unknown))
        inputs = np.zeros((len(values), features + 1))
        inputs[np.arange(len(values)), places[codes]] = 1.0
        return inputs[:, :features]


Column = NumberColumn | BooleanColumn | CategoryColumn


@dataclass(frozen=True)
class LeftOut:
    """A column that nothing can be learnt from."""

    reason: str


# Learning


def fit_column(name: str, values: pd.Series) -> Column | LeftOut:
    """Learn how to encode a column of at least one row, or why to leave it out; refuse what must be changed first."""
    dtype = values.dtype
    if values.isna().all():
        return LeftOut("all its values are missing")
    if isinstance(dtype, pd.CategoricalDtype):
        return _fit_categories(name, values)
    if dtype.kind in "mM" or isinstance(dtype, pd.PeriodDtype):
        raise _date_or_time(name, str(values.dropna().iloc[0]))
    if types.is_bool_dtype(dtype):
        return _fit_truths(name, values)
    if types.is_numeric_dtype(dtype):
        return _fit_numbers(name, values)
    _, texts = value_texts(values, name)
    if not texts:
        return LeftOut("all its values are missing")
    if all(text.casefold() in TRUTHS for text in texts):
        return _fit_truths(name, values)
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
    if high - low <= 4 * np.finfo(float).eps * max(abs(low), abs(high)):  # it differs by rounding only, if at all
        return LeftOut(f"it is always {value_text(low)}") if known.all() else _fit_categories(name, values.where(known))
    if known.all() and _counts_rows(name, present):
        return LeftOut("it counts the rows; name it as the id column if it identifies them")
    median, scale = centre_and_scale(present)
    return NumberColumn(name, float(median), float(scale), missing=not known.all())


def centre_and_scale(numbers: Array) -> tuple[Array, Array]:
    """Return the median and the scale of numbers (N, ...) along their first axis, (...); NaN counts for nothing.

    The scale is the standard deviation of a normal distribution with the same quartiles. Where half of the values are
    alike the quartiles may coincide; then all values decide. It is 0 where all are alike, NaN where there are none.
    """
    numbers = np.asarray(numbers, dtype=np.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of columns without any number
        lower, median, upper = np.nanquantile(numbers, (0.25, 0.5, 0.75), axis=0)
        farthest = np.nanmax(np.abs(numbers - median), axis=0)
        root_mean_square = farthest * np.sqrt(np.nanmean(((numbers - median) / farthest) ** 2, axis=0))
    scale = (upper - lower) / QUARTILES_OF_NORMAL
    return median, np.where(scale > 0, scale, np.where(farthest > 0, root_mean_square, farthest))


def standardised(numbers: Array, centre: Array | float, scale: Array | float) -> Array:
    """Return z = (x − centre) / scale, 0 where it is NaN, far values compressed; of the shape of the numbers.

    |z| > c becomes c (1 + ln(|z| / c)): continuous with its slope, so far values stay in order but not far out.
    """
    with np.errstate(over="ignore"):
        z = np.where(np.isnan(numbers), 0.0, (numbers - centre) / scale)
    far = np.clip(np.abs(z) / COMPRESSED_BEYOND, 1.0, LARGEST)
    return np.asarray(np.clip(z, -COMPRESSED_BEYOND, COMPRESSED_BEYOND) * (1.0 + np.log(far)))


def _counts_rows(name: str, numbers: Array) -> bool:
    """Tell whether these are row numbers, which say nothing of the rows but may betray the order of the classes."""
    if (numbers != np.rint(numbers)).any() or len(np.unique(numbers)) < len(numbers):
        return False
    a_run = numbers.min() in (0, 1) and numbers.max() - numbers.min() == len(numbers) - 1
    return NAMELESS.fullmatch(name) is not None or (a_run and len(numbers) >= FEW_ROWS)


def _fit_truths(name: str, values: pd.Series) -> Column | LeftOut:
    truths = _numbers(values, name, TRUTHS)
    present = truths[~np.isnan(truths)]
    if (present == present[0]).all():
        return _fit_categories(name, values)
    return BooleanColumn(name, usual=bool(present.mean() > 0.5), missing=len(present) < len(truths))


def _fit_categories(name: str, values: pd.Series) -> Column | LeftOut:
    codes, texts = value_texts(values, name)
    missing = bool((codes < 0).any())
    counts = np.bincount(codes[codes >= 0], minlength=len(texts))
    if len(texts) == 1 and not missing:
        return LeftOut(f"it is always {texts[0]}")
    if len(texts) >= FEW_TEXTS and 2 * len(texts) > counts.sum():
        return LeftOut(
            f"{len(texts)} different values in {counts.sum()} rows, such as {min(texts)[:MOST_SHOWN]!r}; name it as "
            f"the id column (--id) if it identifies the rows, or make numbers of text (scikit-learn's TfidfVectorizer)"
        )
    frequent = sorted(range(len(texts)), key=lambda code: (-counts[code], texts[code]))[:MOST_CATEGORIES]
    categories = tuple(sorted(texts[code] for code in frequent))
    return CategoryColumn(name, categories, other=len(texts) > MOST_CATEGORIES, missing=missing)


def _date_or_time(name: str, example: str) -> InvalidInput:
    return InvalidInput(
        f"column `{name}` must hold numbers or categories, but got dates or times such as {example!r}; replace it by "
        f"what matters about it, such as the year, the weekday, the hour or the days since a fixed day, or remove it."
    )


# Values


def value_texts(values: pd.Series, name: str) -> tuple[Labels, list[str]]:
    """Return (codes (N,) int64, texts): what stands in each row, as a position in the different texts, −1 for nothing.

    Texts come without the spaces around them, whole numbers without a point.
    """
    try:
        codes, distinct = pd.factorize(values)
    except TypeError as error:  # what is nested cannot be hashed
        nested = next(value for value in values if not isinstance(value, Hashable))
        raise InvalidInput(
            f"column `{name}` must hold one value in each row, but got a {type(nested).__name__}; "
            f"spread it over several columns or remove it."
        ) from error
    position: dict[str, int] = {}
    merged = [position.setdefault(text, len(position)) if text else -1 for text in map(value_text, distinct)]
    return np.array([*merged, -1], dtype=np.int64)[codes], list(position)  # the code −1 stands for the last


def value_text(value: Any) -> str:
    """Return a value as text: 1 for 1.0, and bytes as the UTF-8 they should be."""
    if isinstance(value, (float, np.floating)) and abs(float(value)) < 2**53 and float(value).is_integer():
        return str(int(value))
    return value.decode("utf-8", "backslashreplace").strip() if isinstance(value, bytes) else str(value).strip()


def _numbers(values: pd.Series, name: str, words: Mapping[str, float] | None = None) -> Array:
    """Return the numbers in a column, float64 (N,), NaN where it holds none; `words` are texts that mean numbers."""
    if types.is_bool_dtype(values.dtype) or (types.is_numeric_dtype(values.dtype) and values.dtype.kind != "c"):
        return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan))
    codes, texts = value_texts(values, name)
    numbers, wrong = _parsed(texts, words or {})
    if wrong.any():
        row = int(np.flatnonzero(np.append(wrong, False)[codes])[0]) + 1
        wanted = "true and false" if words else "numbers"
        raise InvalidInput(
            f"column `{name}` must hold {wanted}, but got {listed(np.array(texts)[wrong])} (first in row {row}); "
            f"correct them or leave them empty."
        )
    return np.append(numbers, np.nan)[codes]


def _parsed(texts: list[str], words: Mapping[str, float]) -> tuple[Array, Array]:
    """Return (numbers, wrong), each as long as the texts: NaN for what says that nothing is there, and what is none."""
    folded = [text.casefold() for text in texts]
    meant = pd.Series([words.get(text, text) for text in folded], dtype=object)
    numbers = np.asarray(pd.to_numeric(meant, errors="coerce"), dtype=np.float64)
    return numbers, np.isnan(numbers) & np.array([text not in MISSING_WORDS for text in folded], dtype=bool)


def _with_indicator(inputs: Array, unknown: Array, column: NumberColumn | BooleanColumn) -> Array:
    """Return (N, 1), or (N, 2) with what was missing where the column was fitted with missing values."""
    if column.missing:
        return np.stack([inputs, unknown], axis=1)
    if unknown.any():
        log.warning("column `%s`: %d missing values, the first ever, count as usual", column.name, int(unknown.sum()))
    return inputs[:, None]


def listed(values: Iterable[object]) -> str:
    """Return the first few values as a list for a sentence, texts in quotes."""
    return errors.listed([repr(str(value)) if isinstance(value, str) else str(value) for value in values])
