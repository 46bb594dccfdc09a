"""Comma-separated text that a spreadsheet shows and does not execute (`s2e.files.csv_cells`)."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

from s2e.files.csv_cells import plain_text, safe_text

__all__ = ["csv_text", "plain_text"]


def csv_text(rows: Sequence[Mapping[str, Any]], *, decimals: int | None = 6) -> str:
    """Return rows as comma-separated text with a header; missing values are empty.

    Args:
        rows: values by column.
        decimals: of numbers; None to write them as they are.
    """
    if not rows:
        return ""
    names = list(rows[0])
    return "".join(_line(line, decimals) for line in [names, *([row[name] for name in names] for row in rows)])


def _line(values: Sequence[Any], decimals: int | None) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\r\n").writerow(
        _cell(value, decimals) for value in values
    )  # then cells with \r are quoted too
    return text.getvalue().removesuffix("\r\n") + "\n"


def _cell(value: Any, decimals: int | None) -> Any:
    if isinstance(value, float):
        return "" if math.isnan(value) else float(value) if decimals is None else round(float(value), decimals)
    return safe_text(value) if isinstance(value, str) else value  # None is written as an empty cell
