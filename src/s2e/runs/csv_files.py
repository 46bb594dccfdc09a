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


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as comma-separated text with a header; numbers have six decimals, missing values are empty."""
    if not rows:
        return ""
    names = list(rows[0])
    return "".join(map(_line, [names, *([row[name] for name in names] for row in rows)]))


def plain_text(cell: str) -> str:
    """Return the text of a cell that `csv_text` wrote."""
    return cell[1:] if cell.startswith("'") and EXECUTED.match(cell) else cell


def _line(values: Sequence[Any]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\r\n").writerow(map(_cell, values))  # then cells with \r are quoted too
    return text.getvalue().removesuffix("\r\n") + "\n"


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return "" if math.isnan(value) else round(float(value), 6)
    if isinstance(value, str) and EXECUTED.match(value) and not _is_number(value):
        return f"'{value}"
    return value  # None is written as an empty cell


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text) is not None
