"""From a table to arrays, in the same way for every later table. Pure: DataFrames in, arrays out.

`table_columns.py` says what becomes of each column. Classes are read as text: 1 and 1.0 are the class "1", spaces
around a name do not count, and rows without a label are not learnt from. Letters: N rows, F inputs, C classes.
"""

from __future__ import annotations

import difflib
import logging
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from s2e.data.samples import LabelledData
from s2e.data.table_columns import (
    BooleanColumn,
    CategoryColumn,
    Column,
    LeftOut,
    NumberColumn,
    fit_column,
    listed,
    value_texts,
)
from s2e.errors import InvalidInput

if TYPE_CHECKING:
    from s2e.data.samples import Array, Labels

log = logging.getLogger(__name__)

VERSION = 1
MOST_CLASSES = 1000
FEW_CLASSES = 20
"""So many classes are never too many for the rows, nor fractions too many to be classes."""

NEAREST = 3


@dataclass(frozen=True)
class TableEncoding:
    """How the columns of a table become inputs and labels; learnt from one table, used for others like it.

    Attributes:
        label: name of the column with the labels.
        id_column: name of the column that names the rows, if there is one.
        class_names: C names in natural order, 2 before 10. Whole numbers are written without a point.
        columns: what becomes of each column used, in the order of the table.
        left_out: why each of the other columns is not used.
    """

    label: str
    id_column: str | None
    class_names: tuple[str, ...]
    columns: tuple[Column, ...]
    left_out: Mapping[str, str]

    @classmethod
    def fit(cls, frame: pd.DataFrame, label: str, id_column: str | None = None) -> TableEncoding:
        """Learn from the rows that have a label; see the module for what becomes of each column."""
        frame = _with_text_names(frame)
        problems = [
            _no_such_name(kind, name, frame.columns)
            for kind, name in (("label", label), ("id_column", id_column))
            if name is not None and name not in frame.columns
        ]
        if label == id_column:
            problems.append(f"`id_column` must be another column than `label`, but both are {label!r}.")
        _raise_all(problems)
        codes, texts = value_texts(frame[label], label)
        frame = frame[codes >= 0]
        problems += _label_problems(codes, texts, label)
        columns, left_out = [], {}
        for name in frame.columns:
            if name in (label, id_column):
                continue
            try:
                outcome = fit_column(name, frame[name]) if len(frame) else LeftOut("no row has a label")
            except InvalidInput as error:
                problems.append(str(error))
                continue
            if isinstance(outcome, LeftOut):
                left_out[name] = outcome.reason
                log.warning("column `%s` is left out: %s", name, outcome.reason)
            else:
                columns.append(outcome)
        if not columns and not problems:
            got = f"all others are left out: {listed(left_out)}" if left_out else "there are no others"
            problems.append(f"the table must have a column to learn from beside {label!r}, but {got}; add columns.")
        _raise_all(problems)
        return cls(label, id_column, tuple(sorted(texts, key=_natural(texts))), tuple(columns), left_out)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """One name for each of the F inputs."""
        return tuple(name for column in self.columns for name in column.feature_names)

    def encode(self, frame: pd.DataFrame) -> Array:
        """Return the inputs, float32 (N, F); columns may come in any order, and others beside them are ignored."""
        frame = _with_text_names(frame)
        known = {self.label, self.id_column, *self.left_out, *(column.name for column in self.columns)}
        extra = [name for name in frame.columns if name not in known]
        _raise_all(
            f"the table must have the column {column.name!r}, but has not{_nearest(column.name, extra)}."
            for column in self.columns
            if column.name not in frame.columns
        )
        if extra:
            log.warning("columns that the encoding does not know are ignored: %s", listed(extra))
        inputs = np.empty((len(frame), len(self.feature_names)), dtype=np.float32)
        problems, first = [], 0
        for column in self.columns:
            last = first + len(column.feature_names)
            try:
                inputs[:, first:last] = column.encode(frame[column.name])
            except InvalidInput as error:
                problems.append(str(error))
            first = last
        _raise_all(problems)
        return inputs

    def labels_of(self, frame: pd.DataFrame) -> Labels:
        """Return the labels, int64 (N,), as positions in `class_names`; every row must have one."""
        codes, texts = self._label_texts(frame)
        problems = []
        if (codes < 0).any():
            rows = listed(row + 1 for row in np.flatnonzero(codes < 0))
            problems.append(f"column `{self.label}` must hold a label in every row, but not in row {rows}; add them.")
        unknown = sorted(set(texts) - set(self.class_names))
        if unknown:
            problems.append(
                f"column `{self.label}` must hold only classes known from training ({listed(self.class_names)}), "
                f"but got {listed(unknown)}; correct or remove those rows."
            )
        _raise_all(problems)
        position = {name: number for number, name in enumerate(self.class_names)}
        return np.array([position[text] for text in texts], dtype=np.int64)[codes]

    def labelled_rows(self, frame: pd.DataFrame) -> Labels:
        """Return the positions of the rows that have a label, int64; the log says how many have none."""
        codes, _ = self._label_texts(frame)
        without = np.flatnonzero(codes < 0)
        if len(without):
            rows = listed(row + 1 for row in without)
            log.warning("%d of %d rows have no label and are left out: row %s", len(without), len(codes), rows)
        return np.flatnonzero(codes >= 0).astype(np.int64)

    def samples_of(self, frame: pd.DataFrame) -> LabelledData:
        """Return the rows that have a label as samples; `rows` are their positions in the table and in its `ids_of`."""
        rows = self.labelled_rows(frame)
        kept = frame.iloc[rows]
        return LabelledData(self.encode(kept), self.labels_of(kept), self.class_names, rows=rows)

    def ids_of(self, frame: pd.DataFrame) -> list[str]:
        """Return a name for each of the N rows: that in the id column, or its number, counted from 1 after the header.

        A row whose id is missing is called "row 7".
        """
        if self.id_column is None:
            return [str(row + 1) for row in range(len(frame))]
        frame = _with_text_names(frame)
        if self.id_column not in frame.columns:
            raise InvalidInput(_no_such_name("id_column", self.id_column, frame.columns))
        codes, texts = value_texts(frame[self.id_column], self.id_column)
        return [texts[code] if code >= 0 else f"row {row}" for row, code in enumerate(codes.tolist(), start=1)]

    def _label_texts(self, frame: pd.DataFrame) -> tuple[Labels, list[str]]:
        frame = _with_text_names(frame)
        if self.label not in frame.columns:
            raise InvalidInput(_no_such_name("label", self.label, frame.columns))
        return value_texts(frame[self.label], self.label)

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values, for `from_json`."""
        return {
            "version": VERSION,
            "label": self.label,
            "id_column": self.id_column,
            "class_names": list(self.class_names),
            "columns": [{"kind": column.kind, **_plain(asdict(column))} for column in self.columns],
            "left_out": dict(self.left_out),
        }

    @classmethod
    def from_json(cls, written: object) -> TableEncoding:
        """Return the encoding that `to_json` wrote; refuse anything else."""
        version = written.get("version") if isinstance(written, Mapping) else None
        if not isinstance(written, Mapping) or version != VERSION or isinstance(version, bool):
            got = f"version {version!r}" if isinstance(written, Mapping) else type(written).__name__
            raise InvalidInput(
                f"a written encoding must be of version {VERSION}, but got {got}; "
                f"learn it again from the table, or use the version of s2e that wrote it."
            )
        problems = _field_problems(written, {"version": "", **ENCODING_FIELDS}, "the encoding")
        columns = written.get("columns")
        for position, column in enumerate(columns if isinstance(columns, list) else []):
            kind = column.get("kind") if isinstance(column, Mapping) else None
            if isinstance(kind, str) and kind in COLUMN_FIELDS:
                problems += _field_problems(column, {"kind": "", **COLUMN_FIELDS[kind]}, f"column {position}")
            else:
                problems.append(f"column {position} must be of the kind {', '.join(COLUMN_FIELDS)}, but got {kind!r}.")
        if not problems:
            used = [column["name"] for column in written["columns"]]
            if len({*used, written["label"], written["id_column"]}) < len(used) + 2:
                problems.append("columns, label and id column must differ from each other, but some are the same.")
        if problems:
            raise InvalidInput(
                f"a written encoding cannot be used: {' '.join(problems)} Learn it again from the table."
            )
        return cls(
            written["label"],
            written["id_column"],
            tuple(written["class_names"]),
            tuple(_column(column) for column in written["columns"]),
            dict(written["left_out"]),
        )


# Labels


def _label_problems(codes: Labels, texts: list[str], label: str) -> list[str]:
    """Return what keeps these labels from being classes; a class of one row is told in the log."""
    rows = int((codes >= 0).sum())
    if len(texts) < 2:
        got = f"only {texts[0]!r}" if texts else "none"
        return [f"column `{label}` must hold at least two classes, but got {got}; is it the column with the labels?"]
    numbers = pd.to_numeric(pd.Series(texts, dtype=object), errors="coerce").to_numpy(dtype=np.float64)
    fractions = not np.isnan(numbers).any() and bool((numbers != np.rint(numbers)).any())
    if fractions and len(texts) > FEW_CLASSES:
        return [
            f"column `{label}` must hold classes, but got {len(texts)} different numbers such as "
            f"{listed(sorted(texts)[:2])}; it looks like a quantity (regression): cut it into classes (pandas.qcut)."
        ]
    if len(texts) > MOST_CLASSES or len(texts) > max(FEW_CLASSES, rows / 2):
        return [
            f"column `{label}` must hold at most {MOST_CLASSES} classes and two rows for each on average, but got "
            f"{len(texts)} in {rows} rows, such as {listed(sorted(texts)[:2])}; choose the column with the classes."
        ]
    alone = [text for text, count in zip(texts, np.bincount(codes[codes >= 0]), strict=True) if count == 1]
    if alone:
        log.warning("classes with one row only cannot be both learnt and checked: %s", listed(sorted(alone)))
    return []


def _natural(names: list[str]) -> Callable[[str], tuple[Any, ...]]:
    """Return a key that sorts numbers by value: names that are all numbers, or the digits within names."""
    numbers = pd.to_numeric(pd.Series(names, dtype=object), errors="coerce")
    if not numbers.isna().any():
        value = dict(zip(names, numbers.tolist(), strict=True))
        return lambda name: (value[name], name)

    def key(name: str) -> tuple[Any, ...]:
        parts = re.split(r"([0-9]+)", name.casefold())  # texts at even positions, digits at odd ones
        return (*(int(part) if position % 2 else part for position, part in enumerate(parts)), name)

    return key


# Names of columns


def _with_text_names(frame: pd.DataFrame) -> pd.DataFrame:
    names = [str(name).strip() for name in frame.columns]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InvalidInput(f"columns must have different names, but got twice: {listed(twice)}; rename them.")
    return frame.set_axis(names, axis=1)


def _no_such_name(kind: str, name: str, known: Iterable[str]) -> str:
    return f"`{kind}` must be the name of a column of the table, but got {name!r}{_nearest(name, known)}."


def _nearest(name: str, known: Iterable[str]) -> str:
    columns = list(known)
    nearest = difflib.get_close_matches(name, columns, n=NEAREST, cutoff=0.0)
    return f"; nearest of {len(columns)}: {listed(nearest)}" if nearest else ""


def _raise_all(problems: Iterable[str]) -> None:
    text = " ".join(problems)
    if text:
        raise InvalidInput(text)


# Written encodings


def _texts_differ(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value) and len(set(value)) == len(value)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


CHECKS: Mapping[str, Callable[[Any], bool]] = {
    "": lambda _: True,
    "a text": lambda value: isinstance(value, str),
    "a text or null": lambda value: value is None or isinstance(value, str),
    "true or false": lambda value: isinstance(value, bool),
    "a number": _is_number,
    "a positive number": lambda value: _is_number(value) and value > 0,
    "a list of different texts": lambda value: _texts_differ(value) and len(value) > 0,
    "a list of two or more different texts": lambda value: _texts_differ(value) and len(value) > 1,
    "a list of one or more columns": lambda value: isinstance(value, list) and len(value) > 0,
    "texts under texts": lambda value: (
        isinstance(value, Mapping) and all(isinstance(text, str) for item in value.items() for text in item)
    ),
}
ENCODING_FIELDS = {
    "label": "a text",
    "id_column": "a text or null",
    "class_names": "a list of two or more different texts",
    "columns": "a list of one or more columns",
    "left_out": "texts under texts",
}
_NAME_AND_MISSING = {"name": "a text", "missing": "true or false"}
COLUMN_FIELDS: Mapping[str, Mapping[str, str]] = {
    "number": {**_NAME_AND_MISSING, "median": "a number", "scale": "a positive number"},
    "boolean": {**_NAME_AND_MISSING, "usual": "true or false"},
    "category": {**_NAME_AND_MISSING, "categories": "a list of different texts", "other": "true or false"},
}


def _field_problems(written: Mapping[str, Any], fields: Mapping[str, str], where: str) -> list[str]:
    problems = [f"{where} must not hold {key!r}." for key in written if key not in fields]
    problems += [f"{where} must hold {key!r}, but does not." for key in fields if key not in written]
    problems += [
        f"{key!r} of {where} must be {wanted}, but got {str(written[key])[:40]!r}."
        for key, wanted in fields.items()
        if key in written and not CHECKS[wanted](written[key])
    ]
    return problems


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in fields.items()}


def _column(written: Mapping[str, Any]) -> Column:
    fields = {key: value for key, value in written.items() if key != "kind"}
    if written["kind"] == "category":
        return CategoryColumn(**{**fields, "categories": tuple(fields["categories"])})
    return (NumberColumn if written["kind"] == "number" else BooleanColumn)(**fields)
