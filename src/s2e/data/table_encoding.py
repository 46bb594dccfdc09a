"""Encode the rows of a table as inputs. Pure: DataFrames in, arrays out.

`table_columns` documents how each kind of column is encoded. Letters: N rows, F inputs.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import sparse

from s2e.data.model_samples import TextSamples
from s2e.data.samples import ColumnUse
from s2e.data.table_columns import Column, LeftOut, column_from_json, fit_column
from s2e.data.text_columns import TextColumn, fit_text
from s2e.errors import InvalidInput, listed, raise_all, unknown_name
from s2e.files.fields import Fields

if TYPE_CHECKING:
    from s2e.data.samples import Array

logger = logging.getLogger(__name__)

DROPPED = "it is named in `drop`"
"""Reason of a column that the caller leaves out."""

MAX_NAMES = 10
"""Number of column names listed in an error message."""


@dataclass(frozen=True)
class TableEncoder:
    """Encoding of the columns of a table, fitted to one table and applied to others with the same columns.

    Attributes:
        columns: encodings of all columns, in the order of the table; those left out have no inputs.
    """

    columns: tuple[Column, ...]

    @classmethod
    def fit(cls, frame: pd.DataFrame, *, drop: Collection[str] = (), text: Collection[str] = ()) -> TableEncoder:
        """Fit to a table of at least one row.

        Args:
            frame: the table.
            drop: columns to leave out.
            text: columns of free text to learn from.
        """
        frame = with_text_names(frame)
        problems = [
            str(unknown_name(option, name, frame.columns, MAX_NAMES))
            for option, names in (("drop", drop), ("text", text))
            for name in names
            if name not in frame.columns
        ]
        problems += [
            f"`drop` and `text` must name different columns, but both name {name!r}." for name in drop if name in text
        ]
        raise_all(problems)
        columns: list[Column] = []
        for name in frame.columns:
            try:
                column = _fitted(name, frame[name], drop, text)
            except InvalidInput as error:
                problems.append(str(error))
                continue
            columns.append(column)
        encoder = cls(tuple(columns))
        if not encoder.feature_names and not problems:
            left_out = encoder.left_out
            got = (
                f"all are left out: {listed(f'{name!r} ({why})' for name, why in left_out.items())}"
                if left_out
                else "got none"
            )
            problems.append(f"the table must have a column to learn from, but {got}; add columns.")
        raise_all(problems)
        return encoder

    @staticmethod
    def frame(samples: Array, names: Sequence[str] | None = None) -> pd.DataFrame:
        """Return an array (N, F) as a table, with these names of the columns, or x0, x1, …"""
        names = [f"x{index}" for index in range(samples.shape[1])] if names is None else names
        if len(names) != samples.shape[1]:
            raise InvalidInput(f"rows must have {len(names)} columns, as in training, but got {samples.shape[1]}.")
        return pd.DataFrame(samples, columns=list(names), copy=False)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all columns, in the order of the table."""
        return tuple(column.name for column in self.columns)

    @property
    def left_out(self) -> dict[str, str]:
        """The columns without inputs, with the reasons."""
        return {column.name: column.reason for column in self.columns if isinstance(column, LeftOut)}

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the F inputs."""
        return tuple(name for column in self.columns for name in column.feature_names)

    @property
    def uses(self) -> tuple[ColumnUse, ...]:
        """What became of every column."""
        return tuple(
            ColumnUse(column.name, column.kind, column.encoding, len(column.feature_names)) for column in self.columns
        )

    def log_left_out(self) -> None:
        """Log the columns that carry no information or cannot be read, for callers that do not show all columns."""
        left_out = {name: why for name, why in self.left_out.items() if why != DROPPED}
        if left_out:
            logger.warning("columns left out: %s", "; ".join(f"{name!r}, {why}" for name, why in left_out.items()))

    def encode(self, frame: pd.DataFrame) -> Array:
        """Return the inputs, float32 (N, F). Columns may be in any order; unknown columns are ignored."""
        frame = with_text_names(frame)
        known = set(self.names)
        unknown = [name for name in frame.columns if name not in known]
        others = f"; unknown columns: {listed(map(repr, unknown))}" if unknown else ""
        used = [column for column in self.columns if column.feature_names]
        raise_all(f"column {column.name!r} is missing{others}." for column in used if column.name not in frame.columns)
        if unknown:
            logger.warning("unknown columns are ignored: %s", listed(map(repr, unknown)))
        inputs = np.empty((len(frame), len(self.feature_names)), dtype=np.float32)
        problems, first = [], 0
        for column in used:
            last = first + len(column.feature_names)
            try:
                inputs[:, first:last] = column.encode(frame[column.name])
            except InvalidInput as error:
                problems.append(str(error))
            first = last
        raise_all(problems)
        return inputs

    @property
    def texts(self) -> tuple[TextColumn, ...]:
        """The columns of free text."""
        return tuple(column for column in self.columns if isinstance(column, TextColumn))

    def model_samples(self, frame: pd.DataFrame, inputs: Array) -> TextSamples | None:
        """Return rows as models of scikit-learn take them, if there is text; `inputs` is what `encode` returned."""
        if not self.texts:
            return None
        frame = with_text_names(frame)
        is_text = [isinstance(column, TextColumn) for column in self.columns for _ in column.feature_names]
        order = np.argsort(is_text, kind="stable")
        terms = sparse.hstack([column.tf_idf(frame[column.name]) for column in self.texts]).tocsr()
        return TextSamples(inputs[:, order], len(is_text) - sum(is_text), terms)

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values, for `from_json`."""
        return {"columns": [{"kind": column.kind, **_fields(column)} for column in self.columns]}

    @classmethod
    def from_json(cls, written: Fields) -> TableEncoder:
        """Return the encoder that `to_json` wrote."""
        columns = tuple(map(column_from_json, written.rows("columns")))
        left_out = written.fields("left_out", {})  # of earlier versions
        return cls((*columns, *(LeftOut(name, left_out.text(name)) for name in left_out.values)))


def _fitted(name: str, values: pd.Series, drop: Collection[str], text: Collection[str]) -> Column:
    if name in drop:
        return LeftOut(name, DROPPED)
    if name in text:
        return fit_text(name, values) or LeftOut(name, "it holds no words")
    return fit_column(name, values)


def _fields(column: Column) -> dict[str, Any]:
    return {each.name: getattr(column, each.name) for each in fields(column)}


def with_text_names(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table with column names as text without surrounding spaces; raise for duplicates."""
    names = [str(name).strip() for name in frame.columns]
    duplicates = [name for name, count in Counter(names).items() if count > 1]
    if duplicates:
        raise InvalidInput(
            f"column names must be unique, but got more than once: {listed(map(repr, duplicates))}; rename them."
        )
    return frame.set_axis(names, axis=1)
