"""Encode the rows of a table as inputs. Pure: DataFrames in, arrays out.

`table_columns` documents how each kind of column is encoded. Letters: N rows, F inputs.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from s2e.data.table_columns import Column, LeftOut, column_from_json, fit_column
from s2e.errors import InvalidInput, listed, raise_all
from s2e.files.fields import Fields

if TYPE_CHECKING:
    from s2e.data.samples import Array

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TableEncoder:
    """Encoding of the columns of a table, fitted to one table and applied to others with the same columns.

    Attributes:
        columns: encodings of the columns used, in the order of the table.
        left_out: the other columns, with the reason.
    """

    columns: tuple[Column, ...]
    left_out: Mapping[str, str]

    @classmethod
    def fit(cls, frame: pd.DataFrame) -> TableEncoder:
        """Fit to a table of at least one row."""
        frame = with_text_names(frame)
        columns, left_out, problems = [], {}, []
        for name in frame.columns:
            try:
                fitted = fit_column(name, frame[name])
            except InvalidInput as error:
                problems.append(str(error))
                continue
            if isinstance(fitted, LeftOut):
                left_out[name] = fitted.reason
                logger.warning("column `%s` is left out: %s", name, fitted.reason)
            else:
                columns.append(fitted)
        if not columns and not problems:
            got = f"all are left out: {listed(map(repr, left_out))}" if left_out else "got none"
            problems.append(f"the table must have a column to learn from, but {got}; add columns.")
        raise_all(problems)
        return cls(tuple(columns), left_out)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the F inputs."""
        return tuple(name for column in self.columns for name in column.feature_names)

    def encode(self, frame: pd.DataFrame) -> Array:
        """Return the inputs, float32 (N, F). Columns may be in any order; unknown columns are ignored."""
        frame = with_text_names(frame)
        known = {*self.left_out, *(column.name for column in self.columns)}
        unknown = [name for name in frame.columns if name not in known]
        others = f"; unknown columns: {listed(map(repr, unknown))}" if unknown else ""
        raise_all(
            f"column {column.name!r} is missing{others}." for column in self.columns if column.name not in frame.columns
        )
        if unknown:
            logger.warning("unknown columns are ignored: %s", listed(map(repr, unknown)))
        inputs = np.empty((len(frame), len(self.feature_names)), dtype=np.float32)
        problems, first = [], 0
        for column in self.columns:
            last = first + len(column.feature_names)
            try:
                inputs[:, first:last] = column.encode(frame[column.name])
            except InvalidInput as error:
                problems.append(str(error))
            first = last
        raise_all(problems)
        return inputs

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values, for `from_json`."""
        columns = [{"kind": column.kind, **asdict(column)} for column in self.columns]
        return {"columns": columns, "left_out": dict(self.left_out)}

    @classmethod
    def from_json(cls, written: Fields) -> TableEncoder:
        """Return the encoder that `to_json` wrote."""
        columns = tuple(map(column_from_json, written.rows("columns")))
        left_out = written.fields("left_out")
        return cls(columns, {name: left_out.text(name) for name in left_out.values})


def with_text_names(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table with column names as text without surrounding spaces; raise for duplicates."""
    names = [str(name).strip() for name in frame.columns]
    duplicates = [name for name, count in Counter(names).items() if count > 1]
    if duplicates:
        raise InvalidInput(
            f"column names must be unique, but got more than once: {listed(map(repr, duplicates))}; rename them."
        )
    return frame.set_axis(names, axis=1)
