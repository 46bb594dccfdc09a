"""The values of a column as distinct texts, and texts as numbers. Pure. Letters: N rows.

Numbers may be written with thousands separators (1,234.5 or 1 234.5, and 1.234,5 with a decimal comma), a currency sign
or code, a percent sign (divided by 100), or as a duration (3 days 12:00:00, in days).
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from pandas.api import types

from s2e.errors import InvalidInput, listed

if TYPE_CHECKING:
    from s2e.data.samples import Array, Labels

MISSING_WORDS = frozenset(["na", "n/a", "nan", "none", "null", "#n/a", "<na>", "-", ".", "?"])
BOOLEANS = {"true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0}
DECIMAL_MARKS = (".", ",")
"""In order of preference: 1,234 is a thousand, unless another value of the column has a decimal comma."""

LONGEST_NUMBER = 60
"""Characters of the longest text that is read as an amount or a duration."""

FIRST_TEXTS = 50
"""Texts that are tried first, because parsing all texts of a long column takes seconds."""

_SPACES = " \u00a0\u202f'’"
_CURRENCY = r"(?:[$€£¥₹]|usd|eur|gbp|chf|jpy|cny|inr)"
_DIGITS = {
    mark: rf"\d{{1,3}}(?:(?:\{group}\d{{3}})+|(?:[{_SPACES}]\d{{3}})+)(?:\{mark}\d*)?|\d+(?:\{mark}\d*)?|\{mark}\d+"
    for mark, group in ((".", ","), (",", "."))
}
_AMOUNTS = {
    mark: re.compile(
        rf"(?P<sign>[-+−]?) ?(?:{_CURRENCY} ?)?(?P<inner>[-+−]?)(?P<digits>{digits})\s?(?:{_CURRENCY}|(?P<percent>%))?"
    )
    for mark, digits in _DIGITS.items()
}
_DURATION = re.compile(
    r"(?P<days>-?\d{1,9}) days?,? ?"
    r"(?:(?P<sign>[-+]?)(?P<hours>\d{1,2}):(?P<minutes>\d{2}):(?P<seconds>\d{2}(?:\.\d+)?))?"
)


def value_texts(values: pd.Series, name: str) -> tuple[Labels, list[str]]:
    """Return codes (N,) int64, indices into the distinct texts or −1 for missing values, and the texts.

    Texts are stripped of surrounding spaces; integers are written without a decimal point.
    """
    try:
        codes, distinct = pd.factorize(values)
    except TypeError as error:  # nested values are not hashable
        nested = next(value for value in values if isinstance(value, tuple) or not isinstance(value, Hashable))
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


def column_numbers(
    values: pd.Series, name: str, words: Mapping[str, float] | None = None, decimal_mark: str = "."
) -> Array:
    """Return the numbers in a column, float64 (N,), NaN for missing values.

    Args:
        values: numbers, durations, or texts.
        name: name of the column.
        words: texts with a numeric value.
        decimal_mark: "." or ",", for texts.
    """
    if types.is_bool_dtype(values.dtype) or (types.is_numeric_dtype(values.dtype) and values.dtype.kind != "c"):
        with np.errstate(invalid="ignore"):  # of signalling NaNs of float32, which only damaged files have
            return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan))
    if values.dtype.kind == "m":
        return np.asarray(values / pd.Timedelta(days=1), dtype=np.float64)
    codes, texts = value_texts(values, name)
    numbers, wrong = parsed_numbers(texts, words, decimal_mark)
    if wrong.any():
        row = int(np.flatnonzero(np.append(wrong, False)[codes])[0]) + 1
        expected = "booleans" if words else "numbers"
        got = listed(repr(text) for text, is_wrong in zip(texts, wrong, strict=True) if is_wrong)
        raise InvalidInput(
            f"column `{name}` must hold {expected}, but got {got} (first in row {row}); "
            f"correct them or leave them empty."
        )
    return np.append(numbers, np.nan)[codes]


def decimal_mark_of(texts: list[str]) -> str | None:
    """Return the decimal mark with which all texts are numbers or missing values; None if there is none."""
    for mark in DECIMAL_MARKS:
        if parsed_numbers(texts[:FIRST_TEXTS], decimal_mark=mark)[1].any():  # quick for columns of other texts
            continue
        numbers, wrong = parsed_numbers(texts, decimal_mark=mark)
        if not wrong.any() and not np.isnan(numbers).all():
            return mark
    return None


def parsed_numbers(
    texts: list[str], words: Mapping[str, float] | None = None, decimal_mark: str = "."
) -> tuple[Array, Array]:
    """Return the numbers, NaN for other texts, and which texts are neither numbers nor missing values."""
    folded = [text.casefold() for text in texts]
    known = words or {}
    plain = [known.get(text, text) for text in folded]
    if decimal_mark == ",":
        plain = ["" if isinstance(text, str) and "." in text else text for text in plain]
    numbers = np.array(pd.to_numeric(pd.Series(plain, dtype=object), errors="coerce"), dtype=np.float64)
    present = np.array([text not in MISSING_WORDS for text in folded], dtype=bool)
    for index in np.flatnonzero(np.isnan(numbers) & present):
        numbers[index] = _amount(folded[index], decimal_mark)
    return numbers, np.isnan(numbers) & present


def _amount(text: str, decimal_mark: str) -> float:
    """Return the number of an amount, a percentage or a duration; NaN for other texts."""
    if len(text) > LONGEST_NUMBER:
        return np.nan
    if found := _AMOUNTS[decimal_mark].fullmatch(text):
        digits = re.sub(rf"[{_SPACES}{',' if decimal_mark == '.' else '.'}]", "", found["digits"])
        number = float(digits.replace(",", ".")) / (100 if found["percent"] else 1)
        return -number if (found["sign"] in ("-", "−")) != (found["inner"] in ("-", "−")) else number
    if found := _DURATION.fullmatch(text):
        seconds = 3600 * int(found["hours"] or 0) + 60 * int(found["minutes"] or 0) + float(found["seconds"] or 0)
        return int(found["days"]) + (-seconds if found["sign"] == "-" else seconds) / 86400
    return np.nan
