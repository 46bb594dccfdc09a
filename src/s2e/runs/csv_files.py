"""Comma-separated text that a spreadsheet shows and does not execute.

A spreadsheet executes a cell that begins with = + - or @, or with a tab or a line break before one of them. Such a text
is written with an apostrophe before it, which spreadsheets take as "this is text". Numbers, also negative ones in IDs,
stay as they are. A text that begins with apostrophes before such a character gets one more, so that `plain_text` can
undo this for every text.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

EXECUTED = re.compile(r"'*[=+\-@\t\r\n]")
"""Beginning of a text that a spreadsheet may execute, or of such a text after an apostrophe."""


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


def plain_text(cell: str) -> str:
    """Return the text of a cell that `csv_text` wrote."""
    return cell[1:] if cell.startswith("'") and EXECUTED.match(cell) else cell


def _line(values: Sequence[Any], decimals: int | None) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\r\n").writerow(
        _cell(value, decimals) for value in values
    )  # then cells with \r are quoted too
    return text.getvalue().removesuffix("\r\n") + "\n"


def _cell(value: Any, decimals: int | None) -> Any:
    if isinstance(value, float):
        return "" if math.isnan(value) else float(value) if decimals is None else round(float(value), decimals)
    if isinstance(value, str) and EXECUTED.match(value) and not _is_number(value):
        return f"'{value}"
    return value  # None is written as an empty cell


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text) is not None
