"""Tables as files: text with commas or tabs, JSON lines or parquet, by the ending of the name."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from s2e.errors import InvalidInput
from s2e.runs.csv_files import csv_text

STANDARD_OUTPUT = "-"
"""Stands for standard output, where tables are comma-separated."""

CSV, TSV, JSON_LINES, PARQUET = ".csv", ".tsv", ".jsonl", ".parquet"
SUFFIXES = (CSV, PARQUET, JSON_LINES)
"""Formats of results."""


def table_suffix(option: str, path: Path) -> str:
    """Return the ending of a file for a table, one of `SUFFIXES`; refuse others, and parquet without pyarrow.

    Args:
        option: the option or argument that names the file, for messages.
        path: the file, or "-".
    """
    is_device = path.exists() and not path.is_file() and not path.is_dir()  # such as /dev/stdout
    suffix = CSV if str(path) == STANDARD_OUTPUT or is_device else path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InvalidInput(
            f"`{option}` must end with {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}, or be - for standard output, but "
            f"got {str(path)!r}."
        )
    if suffix == PARQUET:
        check_pyarrow(option, path)
    return suffix


def check_pyarrow(option: str, path: Path) -> None:
    """Refuse a parquet file if pyarrow is not installed."""
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise InvalidInput(
            f"`{option}` must end with {CSV} or {JSON_LINES} without pyarrow, but got {str(path)!r}; run "
            f"`pip install 's2e[parquet]'`."
        ) from None


def encoded_table(table: pd.DataFrame, suffix: str, *, safe: bool = True) -> bytes:
    """Return the content of a file with a table.

    Args:
        table: columns with text as names; its index is left out. Missing values are empty in text with separators, and
            null in the other formats.
        suffix: `CSV`, `TSV`, `JSON_LINES` or `PARQUET`.
        safe: whether cells of text with separators that a spreadsheet would execute begin with an apostrophe.
    """
    if suffix == PARQUET:
        buffer = io.BytesIO()
        table = table.assign(**{name: _of_one_type(table[name]) for name in table if table[name].dtype == object})
        table.to_parquet(buffer, index=False)
        return buffer.getvalue()
    rows = [dict(zip(table.columns, values, strict=True)) for values in zip(*_columns(table), strict=True)]
    if suffix in (CSV, TSV):
        text = csv_text(rows, decimals=None, separator="\t" if suffix == TSV else ",", safe=safe)
        return text.encode(errors="backslashreplace")  # file names may not be UTF-8
    return "".join(f"{json.dumps(row, default=str)}\n" for row in rows).encode()


def _of_one_type(column: pd.Series) -> pd.Series:
    """Return a column as parquet takes it: values of several types as text, bytes of file names as \\udcXX."""
    types = set(map(type, column[column.notna()]))
    if len(types) > 1 and not types <= {int, float}:
        column = column.map(str, na_action="ignore")
    return column.map(
        lambda value: value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value
    )


def _columns(table: pd.DataFrame) -> list[list[Any]]:
    """Return the values of all columns, None where one is missing."""
    return [_values(table.iloc[:, position]) for position in range(table.shape[1])]


def _values(column: pd.Series) -> list[Any]:
    missing = column.isna().to_numpy()
    values = column.tolist()
    numbers = column.dtype.kind == "f" and missing.any() and not missing.all()
    if numbers and np.equal(np.mod(column[~missing], 1), 0).all():  # integers are read as 3.0 where others are missing
        values = [value if absent else int(value) for value, absent in zip(values, missing, strict=True)]
    return [None if absent else value for value, absent in zip(values, missing, strict=True)]
