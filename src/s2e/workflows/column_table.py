"""What became of every column of the training data: written to a run, and as lines of text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from s2e.data import ColumnUse, Prepared

COLUMNS = "columns.json"
"""File of a run with `columns`, one object for each: its name, kind, encoding and number of inputs."""

MOST_SHOWN = 30
"""Most columns that are shown one by one."""

LONGEST_NAME = 24


def columns_of(prepared: Prepared) -> tuple[ColumnUse, ...]:
    """Return what became of every column; nothing for data without columns, such as images."""
    reader = None if prepared.source is None else prepared.source.reader
    return () if reader is None else reader.columns


def columns_content(columns: Sequence[ColumnUse]) -> dict[str, Any]:
    """Return the content of `columns.json`."""
    return {"columns": [asdict(column) for column in columns]}


def columns_text(columns: Sequence[ColumnUse]) -> str:
    """Return a line of numbers and one line for each column: for those left out if there are many, or no names.

    The columns of an array have neither names nor a label; nothing is returned if all of them are used.
    """
    named = any(column.kind == "label" for column in columns)
    kinds = Counter(column.kind for column in columns)
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    inputs = sum(column.inputs for column in columns)
    header = f"{len(columns)} columns ({counts}) give {inputs} inputs"
    all_shown = named and len(columns) <= MOST_SHOWN
    chosen = [column for column in columns if all_shown or column.kind == "left out"]
    if not chosen:
        return header if named else ""
    rows = [("column", "kind", "inputs", "encoding")]
    rows += [(_short(each.name), each.kind, str(each.inputs), each.encoding) for each in chosen[:MOST_SHOWN]]
    widths = [max(len(row[index]) for row in rows) for index in range(3)]
    lines = [
        f"  {name:<{widths[0]}}  {kind:<{widths[1]}}  {inputs:>{widths[2]}}  {encoding}"
        for name, kind, inputs, encoding in rows
    ]
    more = [f"  … {len(chosen) - MOST_SHOWN} more"] if len(chosen) > MOST_SHOWN else []
    return "\n".join([header, *lines, *more])


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
