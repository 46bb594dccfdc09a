"""Read labelled samples from tables, the same way for the training table and every later one.

Classes are compared as text: 1 and 1.0 are the class "1", and surrounding spaces are ignored. Rows without a label are
left out. Letters: N rows, F inputs, C classes.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from s2e.data.column_values import value_texts
from s2e.data.natural_order import natural_key
from s2e.data.samples import ColumnUse, LabelledData, Samples
from s2e.data.table_encoding import MAX_NAMES, TableEncoder, with_text_names
from s2e.data.table_files import read_table
from s2e.errors import InvalidInput, listed, raise_all, unknown_name
from s2e.files.fields import Fields

if TYPE_CHECKING:
    from s2e.data.samples import Labels

logger = logging.getLogger(__name__)

MAX_CLASSES = 1000
FEW_CLASSES = 20
"""Number of classes that is accepted for any number of rows, and also if the classes are fractions."""


@dataclass(frozen=True)
class TableReader:
    """Reads tables with the columns of the training table.

    Attributes:
        label: name of the label column.
        id_column: name of the column that identifies the rows, if there is one.
        class_names: C names in natural order, 2 before 10. Integers are written without a decimal point.
        encoder: encodes the other columns.
    """

    kind: ClassVar = "table"
    label: str
    id_column: str | None
    class_names: tuple[str, ...]
    encoder: TableEncoder

    @classmethod
    def fit(
        cls,
        frame: pd.DataFrame,
        label: str,
        id_column: str | None = None,
        *,
        drop: Collection[str] = (),
        text: Collection[str] = (),
    ) -> TableReader:
        """Fit to the rows that have a label; `drop` and `text` as in `TableEncoder.fit`."""
        frame = with_text_names(frame)
        problems = [
            str(unknown_name(kind, name, frame.columns, MAX_NAMES))
            for kind, name in (("label", label), ("id_column", id_column))
            if name is not None and name not in frame.columns
        ]
        if label == id_column:
            problems.append(f"`id_column` and `label` must be different columns, but both are {label!r}.")
        raise_all(problems)
        codes, texts = value_texts(frame[label], label)
        problems = _label_problems(codes, texts, label)
        encoder = TableEncoder(())
        if (codes >= 0).any():
            try:
                encoder = TableEncoder.fit(_input_columns(frame[codes >= 0], label, id_column), drop=drop, text=text)
            except InvalidInput as error:
                problems.append(str(error))
        raise_all(problems)
        return cls(label, id_column, _sorted_classes(texts), encoder)

    @property
    def columns(self) -> tuple[ColumnUse, ...]:
        """What became of every column, the label and the ID first."""
        first = [ColumnUse(self.label, "label", f"{len(self.class_names)} classes", 0)]
        if self.id_column is not None:
            first.append(ColumnUse(self.id_column, "ID", "names the rows", 0))
        return (*first, *self.encoder.uses)

    def read(self, path: Path) -> Samples:
        """Read a table; the label column and the ID column may be missing."""
        return self.read_rows(read_table(path))

    def read_rows(self, frame: pd.DataFrame) -> Samples:
        """Read the rows of a table; the label column and the ID column may be missing."""
        frame = with_text_names(frame)
        ids = self.ids_of(frame) if self.id_column in frame.columns else _row_numbers(frame)
        columns = _input_columns(frame, self.label, self.id_column)
        inputs = self.encoder.encode(columns)
        return Samples(inputs, ids, self.encoder.model_samples(columns, inputs))

    def read_labelled(self, path: Path) -> LabelledData:
        """Read the rows of a table that have a label."""
        return self.samples_of(read_table(path))

    def samples_of(self, frame: pd.DataFrame) -> LabelledData:
        """Return the rows that have a label; `rows` are their positions in the table and in `ids_of`."""
        frame = with_text_names(frame)
        if self.label not in frame.columns:
            raise unknown_name("label", self.label, frame.columns, MAX_NAMES)
        codes, texts = value_texts(frame[self.label], self.label)
        unknown = sorted(set(texts) - set(self.class_names))
        if unknown:
            raise InvalidInput(
                f"column `{self.label}` must hold only classes of the training data "
                f"({listed(map(repr, self.class_names))}), but got {listed(map(repr, unknown))}; "
                f"correct or remove those rows."
            )
        if (codes < 0).any():
            without = (np.flatnonzero(codes < 0) + 1).tolist()
            logger.warning(
                "%d of %d rows have no label and are left out: row %s", len(without), len(codes), listed(without)
            )
        rows = np.flatnonzero(codes >= 0).astype(np.int64)
        class_index = np.array([self.class_names.index(text) for text in texts], dtype=np.int64)
        columns = _input_columns(frame.iloc[rows], self.label, self.id_column)
        inputs = self.encoder.encode(columns)
        model_samples = self.encoder.model_samples(columns, inputs)
        return LabelledData(inputs, class_index[codes[rows]], self.class_names, rows=rows, model_samples=model_samples)

    def ids_of(self, frame: pd.DataFrame) -> list[str]:
        """Return the IDs of the N rows: values of the ID column, or row numbers from 1, without the header.

        The seventh row is "row 7" if its ID is missing.
        """
        if self.id_column is None:
            return _row_numbers(frame)
        frame = with_text_names(frame)
        if self.id_column not in frame.columns:
            raise unknown_name("id_column", self.id_column, frame.columns, MAX_NAMES)
        codes, texts = value_texts(frame[self.id_column], self.id_column)
        repeated = [text for text, count in zip(texts, np.bincount(codes[codes >= 0]), strict=True) if count > 1]
        if repeated:
            logger.warning(
                "column `%s` must identify the rows, but has the same value in several: %s",
                *(self.id_column, listed(map(repr, repeated))),
            )
        return [texts[code] if code >= 0 else f"row {row}" for row, code in enumerate(codes.tolist(), start=1)]

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values, for `from_json`."""
        names = {"label": self.label, "id_column": self.id_column, "class_names": list(self.class_names)}
        return {"kind": self.kind, **names, "encoder": self.encoder.to_json()}

    @classmethod
    def from_json(cls, written: Fields) -> TableReader:
        """Return the reader that `to_json` wrote."""
        id_column = None if written.values.get("id_column") is None else written.text("id_column")
        encoder = TableEncoder.from_json(written.fields("encoder"))
        return cls(written.text("label"), id_column, written.texts("class_names"), encoder)


def _input_columns(frame: pd.DataFrame, label: str, id_column: str | None) -> pd.DataFrame:
    return frame.drop(columns=[name for name in (label, id_column) if name in frame.columns])


def _row_numbers(frame: pd.DataFrame) -> list[str]:
    return [str(row + 1) for row in range(len(frame))]


def _label_problems(codes: Labels, texts: list[str], label: str) -> list[str]:
    """Return why these labels cannot be classes; warn about classes of one row."""
    rows = int((codes >= 0).sum())
    if len(texts) < 2:
        got = f"only {texts[0]!r}" if texts else "none"
        return [f"column `{label}` must hold at least two classes, but got {got}; is it the label column?"]
    numbers = pd.to_numeric(pd.Series(texts, dtype=object), errors="coerce").to_numpy(dtype=np.float64)
    fractions = not np.isnan(numbers).any() and bool((numbers != np.rint(numbers)).any())
    examples = listed(map(repr, sorted(texts)[:2]))
    if fractions and len(texts) > FEW_CLASSES:
        return [
            f"column `{label}` must hold classes, but got {len(texts)} different numbers such as {examples}; "
            f"it looks like a regression target: bin it into classes (pandas.qcut)."
        ]
    if len(texts) > MAX_CLASSES or len(texts) > max(FEW_CLASSES, rows / 2):
        return [
            f"column `{label}` must hold at most {MAX_CLASSES} classes and two rows per class on average, but got "
            f"{len(texts)} classes in {rows} rows, such as {examples}; choose the label column."
        ]
    single = [text for text, count in zip(texts, np.bincount(codes[codes >= 0]), strict=True) if count == 1]
    if single:
        logger.warning(
            "classes with a single row cannot be both trained on and validated: %s", listed(map(repr, sorted(single)))
        )
    return []


def _sorted_classes(names: list[str]) -> tuple[str, ...]:
    """Sort by value if all names are numbers, otherwise in natural order."""
    numbers = pd.to_numeric(pd.Series(names, dtype=object), errors="coerce")
    if numbers.isna().any():
        return tuple(sorted(names, key=natural_key))
    return tuple(name for _, name in sorted(zip(numbers.tolist(), names, strict=True)))
