"""Dates and times of a column as inputs. Pure. Letters: N rows.

A date gives up to eight inputs: the day and the year, centred and scaled; month, weekday and hour as sine and cosine,
so that December is next to January. Parts that are equal in all rows of the training table have no input. Moments with
a time zone are in UTC, all others are as written. Inputs of a missing date are zeros.
"""

from __future__ import annotations

import logging
import math
import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pandas as pd

from s2e.data.column_values import FIRST_TEXTS, MISSING_WORDS, value_texts
from s2e.data.scaling import centre_and_scale, standardised
from s2e.errors import listed
from s2e.files.fields import Fields

if TYPE_CHECKING:
    from s2e.data.samples import Array

logger = logging.getLogger(__name__)

NEARLY_ALL = 0.95
"""Share of the rows that must be dates for a column of texts to hold dates; the others count as missing."""

LONGEST_DATE = 60
DAY = 86400
EPOCH = date(1970, 1, 1)
PERIODS = {"month": 12, "weekday": 7, "hour": 24}
PARTS = ("day", "year", *PERIODS)
ORDERS = ("year first", "day first", "month first")
"""Orders of day and month; with the first, texts such as 3/4/2024 are no dates."""

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_CLOCK = (
    r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?P<fraction>\.\d{1,9})?)?(?: ?(?P<half>[ap])\.?m\.?)?"
)
_DATES = (
    r"(?P<year>\d{4})(?P<mark>[-/.])(?P<month>\d{1,2})(?:(?P=mark)(?P<day>\d{1,2}))?",
    r"(?P<first>\d{1,2})(?P<mark>[-/.])(?P<middle>\d{1,2})(?P=mark)(?P<year>\d{4}|\d{2})",
    r"(?:[a-z]{3,9}\.?, ?)?(?P<day>\d{1,2})(?:st|nd|rd|th|\.)?[ -](?P<name>[a-z]{3,9})\.?,?[ -](?P<year>\d{4}|\d{2})",
    r"(?:[a-z]{3,9}\.?, ?)?(?P<name>[a-z]{3,9})\.? (?P<day>\d{1,2})(?:st|nd|rd|th)?,? (?P<year>\d{4})",
)
_ZONE = r"(?: ?(?P<zone>z|utc|gmt|[-+]\d{2}:?\d{2}|[-+]\d{2}))?"
FORMS = tuple(re.compile(rf"{form}(?:(?:t|,? ){_CLOCK}{_ZONE})?") for form in _DATES)
TIME = re.compile(_CLOCK)


@dataclass(frozen=True)
class DateColumn:
    """Dates or times of day.

    Attributes:
        name: name of the column.
        parts: the parts that have inputs, in the order of `PARTS`.
        order: order of day and month in texts such as 3/4/2024.
        day: median of the days since 1970, and their scale.
        year: median of the years, and their scale.
        missing: whether dates were missing in training, and an indicator is an input.
    """

    kind: ClassVar = "date"
    name: str
    parts: tuple[str, ...]
    order: str
    day: tuple[float, float]
    year: tuple[float, float]
    missing: bool

    @property
    def feature_names(self) -> list[str]:
        """Names of the parts, those of a cycle twice, and of the indicator."""
        names = [
            f"{self.name}: {part}{suffix}"
            for part in self.parts
            for suffix in ((" (sine)", " (cosine)") if part in PERIODS else ("",))
        ]
        return [*names, *([f"{self.name}: missing"] if self.missing else [])]

    @property
    def encoding(self) -> str:
        """What became of the column, in words."""
        indicator = "; indicator of missing values" if self.missing else ""
        order = "" if self.order == ORDERS[0] else f" ({self.order})"
        return f"{', '.join(self.parts)}{order}{indicator}"

    def encode(self, values: pd.Series) -> Array:
        """Return the column's inputs, float64 (N, F)."""
        moments, wrong = moments_of(values, self.name, self.order)
        if wrong:
            logger.warning("column `%s`: texts that are no dates are treated as missing: %s", self.name, listed(wrong))
        missing = np.isnan(moments)
        if missing.any() and not self.missing:
            logger.warning(
                "column `%s`: %d missing values are replaced; there were none in training", self.name, missing.sum()
            )
        parts = _parts_of(np.where(missing, 0.0, moments))
        inputs = []
        for part in self.parts:
            if part in PERIODS:
                angle = 2 * np.pi * parts[part] / PERIODS[part]
                inputs += [np.sin(angle), np.cos(angle)]
            else:
                inputs.append(standardised(parts[part], *(self.day if part == "day" else self.year)))
        columns = [np.where(missing, 0.0, column) for column in inputs]
        return np.stack([*columns, *([missing.astype(np.float64)] if self.missing else [])], axis=1)

    @classmethod
    def from_json(cls, written: Fields) -> DateColumn:
        """Return the column whose fields were written to a file."""
        parts, order = written.texts("parts"), written.text("order")
        if not parts or any(part not in PARTS for part in parts) or len(set(parts)) < len(parts):
            raise written.error("parts", f"some of {', '.join(PARTS)}", list(parts))
        if order not in ORDERS:
            raise written.error("order", " or ".join(ORDERS), order)
        numbers = {part: written.numbers(part) for part in ("day", "year")}
        for part, pair in numbers.items():
            if len(pair) != 2 or pair[1] <= 0:
                raise written.error(part, "a median and a positive scale", list(pair))
        day, year = ((pair[0], pair[1]) for pair in numbers.values())
        return cls(written.text("name"), parts, order, day, year, written.flag("missing"))


def fit_dates(name: str, values: pd.Series) -> DateColumn | None:
    """Fit a column of dates that are not all equal; None for a column that does not hold dates."""
    order = date_order(values, name)
    if order is None:
        return None
    moments, wrong = moments_of(values, name, order)
    if wrong:
        logger.warning("column `%s`: texts that are no dates are treated as missing: %s", name, listed(wrong))
    present = moments[~np.isnan(moments)]
    parts = _parts_of(present)
    times_of_day = present.min() >= 0 and present.max() < DAY
    used = tuple(part for part in (("hour",) if times_of_day else PARTS) if np.ptp(parts[part]) > 0)
    if not used:  # the same moment in all rows
        return None
    day, year = (
        (float(centre), float(scale) if scale > 0 else 1.0)
        for centre, scale in (centre_and_scale(parts[part]) for part in ("day", "year"))
    )
    return DateColumn(name, used, order, day, year, missing=len(present) < len(moments))


def date_order(values: pd.Series, name: str) -> str | None:
    """Return the order of day and month with which nearly all values are dates; None if they are not."""
    if values.dtype.kind == "M" or isinstance(values.dtype, pd.PeriodDtype):
        return ORDERS[0]
    codes, texts = value_texts(values, name)
    present = np.array([text.casefold() not in MISSING_WORDS for text in texts], dtype=bool)
    known = [text for text, is_present in zip(texts, present, strict=True) if is_present]
    if not any(_parts(text) for text in known[:FIRST_TEXTS]):  # a column without a date among them holds none
        return None
    found = [_parts(text) for text in texts]
    counts = np.bincount(codes[codes >= 0], minlength=len(texts))
    rows = {
        order: counts[np.array([_moment(parts, order) is not None for parts in found], dtype=bool)].sum()
        for order in (ORDERS if any(parts and parts.get("first") for parts in found) else ORDERS[:1])
    }
    usual = ORDERS[2] if any("/" in text for text in known) else ORDERS[1]  # 3/4/2024 is usually American
    best = max(rows, key=lambda order: (rows[order], order == ORDERS[0], order == usual))
    return best if rows[best] >= NEARLY_ALL * counts[present].sum() else None


def moments_of(values: pd.Series, name: str, order: str) -> tuple[Array, list[str]]:
    """Return seconds since 1970, float64 (N,), NaN for missing dates, and the texts that are no dates."""
    if isinstance(values.dtype, pd.PeriodDtype):
        values = values.dt.to_timestamp()
    if values.dtype.kind == "M":
        naive = (
            values if getattr(values.dtype, "tz", None) is None else values.dt.tz_convert("UTC").dt.tz_localize(None)
        )
        microseconds = naive.to_numpy(dtype="datetime64[us]")
        seconds = microseconds.astype(np.int64) / 1e6
        return np.where(np.isnat(microseconds), np.nan, seconds), []
    codes, texts = value_texts(values, name)
    moments = [_moment(_parts(text), order) for text in texts]
    wrong = [
        text
        for text, moment in zip(texts, moments, strict=True)
        if moment is None and text.casefold() not in MISSING_WORDS
    ]
    seconds = np.array([math.nan if moment is None else moment for moment in [*moments, None]])
    return seconds[codes], wrong


def _parts(text: str) -> dict[str, str | None] | None:
    """Return the parts of a date or a time as written; None for other texts."""
    folded = text.casefold()
    if len(folded) > LONGEST_DATE or not any(each.isdigit() for each in folded):
        return None
    found = next((match for form in FORMS if (match := form.fullmatch(folded))), None) or TIME.fullmatch(folded)
    return None if found is None else found.groupdict()


def _moment(parts: dict[str, str | None] | None, order: str) -> float | None:
    """Return the seconds since 1970 of a date, or since midnight of a time; None if there is none."""
    if parts is None:
        return None
    try:
        day = _date(parts, order) if "year" in parts else EPOCH
        clock = _clock(parts)
    except ValueError:  # there is no such day or time
        return None
    return (day - EPOCH).days * float(DAY) + clock


def _date(parts: dict[str, str | None], order: str) -> date:
    year = int(parts["year"] or 0)
    if len(parts["year"] or "") == 2:
        year += 2000 if year < 69 else 1900  # as in POSIX
    if parts.get("first"):
        first, middle = int(parts["first"] or 0), int(parts["middle"] or 0)
        if order == ORDERS[0]:
            raise ValueError("neither the day nor the month is first")
        day, month = (first, middle) if order == ORDERS[1] else (middle, first)
    elif name := parts.get("name"):
        day, month = int(parts["day"] or 0), MONTHS.index(name[:3]) + 1
    else:
        day, month = int(parts["day"] or 1), int(parts["month"] or 0)
    return date(year, month, day)


def _clock(parts: dict[str, str | None]) -> float:
    """Return the seconds since midnight, in UTC where a zone is given."""
    if parts.get("hour") is None:
        return 0.0
    hour = int(parts["hour"] or 0)
    if parts["half"]:
        hour = hour % 12 + (12 if parts["half"] == "p" else 0)
    moment = datetime(1970, 1, 1, hour, int(parts["minute"] or 0), int(parts["second"] or 0))  # raises if there is none
    seconds = 3600 * moment.hour + 60 * moment.minute + moment.second + round(float(parts["fraction"] or 0), 6)
    zone = parts.get("zone")
    if zone and zone[0] in "+-":
        digits = zone[1:].replace(":", "").ljust(4, "0")
        ahead = timedelta(hours=int(digits[:2]), minutes=int(digits[2:])).total_seconds()
        seconds += -ahead if zone[0] == "+" else ahead
    return seconds


def _parts_of(moments: Array) -> dict[str, Array]:
    """Return day, year, month from 0, weekday from Monday and hour of seconds since 1970, each (N,)."""
    days = np.floor(moments / DAY)
    calendar = days.astype(np.int64).astype("datetime64[D]")
    months = calendar.astype("datetime64[M]").astype(np.int64)
    return {
        "day": moments / DAY,
        "year": np.floor_divide(months, 12) + 1970.0,
        "month": np.mod(months, 12).astype(np.float64),
        "weekday": np.mod(days + 3, 7),  # 1970 began on a Thursday
        "hour": (moments - DAY * days) / 3600,
    }
