"""Comma-separated text that a spreadsheet shows and does not execute (`s2e.files.csv_cells`)."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

from s2e.files.csv_cells import plain_text, safe_text

__all__ = ["csv_text", "plain_text"]


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as comma-separated text with a header; numbers have six decimals, missing values are empty."""
    if not rows:
        return ""
    names = list(rows[0])
    return "".join(map(_line, [names, *([row[name] for name in names] for row in rows)]))


def _line(values: Sequence[Any]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\r\n").writerow(map(_cell, values))  # then cells with \r are quoted too
    return text.getvalue().removesuffix("\r\n") + "\n"


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return "" if math.isnan(value) else round(float(value), 6)
    return safe_text(value) if isinstance(value, str) else value  # None is written as an empty cell
