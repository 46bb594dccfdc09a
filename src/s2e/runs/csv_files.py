"""Comma-separated text."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as comma-separated text with a header; numbers have six decimals, missing values are empty."""
    if not rows:
        return ""
    text = io.StringIO()
    table = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    table.writeheader()
    for row in rows:
        table.writerow({name: _cell(value) for name, value in row.items()})
    return text.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return "" if math.isnan(value) else round(float(value), 6)
    return value  # None is written as an empty cell
