"""Comma-separated text that a spreadsheet shows and does not execute (`s2e.files.csv_cells`)."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

from s2e.files.csv_cells import plain_text, safe_text

__all__ = ["csv_text", "plain_text"]


def csv_text(
    rows: Sequence[Mapping[str, Any]], *, decimals: int | None = 6, separator: str = ",", safe: bool = True
) -> str:
    """Return rows as text with a separator and a header; missing values are empty.

    Args:
        rows: values by column.
        decimals: of numbers; None to write them as they are.
        separator: what separates the cells.
        safe: whether texts that a spreadsheet would execute begin with an apostrophe.
    """
    if not rows:
        return ""
    names = list(rows[0])
    lines = [names, *([row[name] for name in names] for row in rows)]
    return "".join(_line([_cell(value, decimals, safe=safe) for value in line], separator) for line in lines)


def _line(cells: Sequence[Any], separator: str) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=separator, lineterminator="\r\n").writerow(cells)  # then cells with \r are quoted too
    return text.getvalue().removesuffix("\r\n") + "\n"


def _cell(value: Any, decimals: int | None, *, safe: bool) -> Any:
    if isinstance(value, float):
        return "" if math.isnan(value) else float(value) if decimals is None else round(float(value), decimals)
    return safe_text(value) if safe and isinstance(value, str) else value  # None is written as an empty cell
