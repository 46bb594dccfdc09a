"""Labels of several annotators: from arrays and tables, and from files.

A wide table has a row for each item and a column for each annotator, with gaps. A long table has a row for each label,
with the columns item, annotator and label. A label that is NaN, None, NA or `missing` is a gap. An annotator may label
an item more than once; every label counts. Letters: N items, A annotators, C classes, L labels.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from s2e.data.column_values import value_text, value_texts
from s2e.data.natural_order import natural_key
from s2e.data.table_encoding import with_text_names
from s2e.errors import InvalidInput, listed, raise_all, unknown_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from s2e.data.samples import Array, Labels

logger = logging.getLogger(__name__)

MISSING = -1
"""Label that means a gap."""

MAX_CLASSES = 1000
MAX_NAMES = 10
"""Number of names listed in an error message."""

ITEM_NAMES = ("item", "item_id", "id", "task", "task_id", "example", "example_id", "sample", "sample_id", "document")
ANNOTATOR_NAMES = ("annotator", "annotator_id", "worker", "worker_id", "rater", "rater_id", "labeler", "labeller")
LABEL_NAMES = ("label", "class", "answer", "response", "category", "rating")
"""Names by which the columns of a long table are detected, in order of preference."""

COLUMN_KINDS = ("item", "annotator", "label")


@dataclass(frozen=True, eq=False)
class Annotations:
    """L labels that A annotators gave to N items, as parallel arrays (L,) sorted by item.

    Attributes:
        items: indices into the IDs.
        annotators: indices into the names of the annotators.
        labels: indices into the classes.
        ids: (N,) names or numbers of the items; some may have no label.
        annotator_names: A names; each has at least one label.
        classes: (C,) values of the labels, increasing.
    """

    items: Labels
    annotators: Labels
    labels: Labels
    ids: Array
    annotator_names: tuple[str, ...]
    classes: Array

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return (N, A, C)."""
        return len(self.ids), len(self.annotator_names), len(self.classes)

    def counts(self) -> Labels:
        """Return the number of labels of every item, (N,)."""
        return np.bincount(self.items, minlength=len(self.ids)).astype(np.int64)

    def agreement(self, labels: Labels) -> NDArray[np.float64]:
        """Return the share of the labels of every item that equal a given one, (N,); NaN where it has no label."""
        return label_agreement(self.items, self.labels, labels)

    def triples(self) -> Labels:
        """Return item, annotator and label as columns, (L, 3)."""
        return np.stack([self.items, self.annotators, self.labels], axis=1)

    def take(self, index: Labels) -> Annotations:
        """Return the labels of the items at these indices; annotators and classes stay the same."""
        counts = self.counts()
        first, lengths = (np.cumsum(counts) - counts)[index], counts[index]
        position = np.repeat(first - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())
        items = np.repeat(np.arange(len(index)), lengths)
        return replace(
            self, items=items, annotators=self.annotators[position], labels=self.labels[position], ids=self.ids[index]
        )

    def recoded(self, classes: Sequence[str]) -> Annotations:
        """Return the labels as indices into these names of classes; labels of other classes are left out."""
        index = {name: code for code, name in enumerate(classes)}
        codes = np.array([index.get(value_text(value), -1) for value in self.classes], dtype=np.int64)[self.labels]
        known = codes >= 0
        return replace(
            self,
            items=self.items[known],
            annotators=self.annotators[known],
            labels=codes[known],
            classes=np.array(classes),
        )


def label_agreement(items: Labels, labels: Labels, given: Labels) -> NDArray[np.float64]:
    """Return the share of the labels of every item that equal the given one, (N,); NaN where it has none.

    Args:
        items: (L,) indices in [0, N).
        labels: (L,).
        given: (N,).
    """
    counts = np.bincount(items, minlength=len(given))
    equal = np.bincount(items, labels == given[items], len(given))
    return np.asarray(np.divide(equal, counts, out=np.full(len(given), np.nan), where=counts > 0))


# From arrays and tables


def annotations_of(
    given: Any,
    *,
    item: str | None = None,
    annotator: str | None = None,
    label: str | None = None,
    missing: Any = MISSING,
    name: str = "annotations",
) -> Annotations:
    """Return the labels of a wide array or DataFrame, or of a long DataFrame.

    Args:
        given: (N, A) labels, with a column for each annotator; or a DataFrame with the columns item, annotator and
            label, which are given or detected by their names.
        item: column of the items of a long DataFrame.
        annotator: column of the annotators.
        label: column of the labels.
        missing: a label that means a gap, like NaN, None and NA; None for no other.
        name: the parameter that holds them, for messages.
    """
    columns = (item, annotator, label)
    if not isinstance(given, pd.DataFrame):
        if any(column is not None for column in columns):
            raise InvalidInput(
                f"`{name}` must be a DataFrame if its columns are named, but got {type(given).__name__}."
            )
        array = np.asarray(given)
        if array.ndim != 2:
            raise InvalidInput(f"`{name}` must have the shape (N, annotators), but got {array.shape}.")
        return wide(pd.DataFrame(array), missing=missing, name=name)
    frame = with_text_names(given)
    found = detected_columns(frame, columns)
    if found is not None:
        return long(frame, found, missing=missing, name=name)
    if any(column is not None for column in columns):
        raise _undetected(frame, "`item`, `annotator` and `label`")
    return wide(frame, missing=missing, name=name)


def wide(frame: pd.DataFrame, *, missing: Any = MISSING, name: str = "annotations", text: bool = False) -> Annotations:
    """Return the labels of a table with a row for each item and a column for each annotator.

    Args:
        frame: the labels; its index holds the IDs of the items.
        missing: a label that means a gap.
        name: the parameter that holds them, for messages.
        text: whether classes are compared as text, as those of files are.
    """
    names = tuple(str(column) for column in frame.columns)
    columns = [frame.iloc[:, position].astype(object) for position in range(len(names))]
    stacked = pd.concat(columns, ignore_index=True) if columns else pd.Series([], dtype=object)
    codes, classes = _coded_labels(stacked, missing, name, text=text)
    table = codes.reshape(len(names), len(frame))
    items, annotators = np.nonzero(table.T >= 0)  # sorted by item
    return _checked(items, annotators, table[annotators, items], frame.index.to_numpy(), names, classes, name)


def long(
    frame: pd.DataFrame,
    columns: tuple[str, str, str],
    *,
    ids: Sequence[str | None] | None = None,
    missing: Any = MISSING,
    name: str = "annotations",
    text: bool = False,
) -> Annotations:
    """Return the labels of a table with a row for each label.

    Args:
        frame: the table.
        columns: its columns of items, annotators and labels.
        ids: IDs of all items as text, None for an unknown one; those of the table, in the order of their first label,
            when None. Labels of other items are left out.
        missing: a label that means a gap.
        name: the parameter that holds them, for messages.
        text: whether classes are compared as text, as those of files are.
    """
    if len(set(columns)) < len(columns):
        raise InvalidInput(f"item, annotator and label must be different columns, but got {', '.join(columns)}.")
    item_codes, item_texts = value_texts(frame[columns[0]], columns[0])
    annotator_codes, found_names = value_texts(frame[columns[1]], columns[1])
    raise_all(
        f"column `{column}` must hold a value in every row, but row {int(np.flatnonzero(codes < 0)[0]) + 1} has none."
        for column, codes in ((columns[0], item_codes), (columns[1], annotator_codes))
        if (codes < 0).any()
    )
    annotator_names = sorted(found_names, key=natural_key)
    annotator_codes = np.array([annotator_names.index(each) for each in found_names], dtype=np.int64)[annotator_codes]
    label_codes, classes = _coded_labels(frame[columns[2]].astype(object), missing, name, text=text)
    if ids is None:
        known = np.array(_original_values(frame[columns[0]], item_codes, len(item_texts)))
    else:
        known, position = np.array(ids), {text: row for row, text in enumerate(ids)}
        item_codes = np.array([position.get(text, -1) for text in item_texts], dtype=np.int64)[item_codes]
        _check_matched(item_codes, item_texts, ids)
    kept = np.flatnonzero((label_codes >= 0) & (item_codes >= 0))
    kept = kept[np.argsort(item_codes[kept], kind="stable")]
    return _checked(item_codes[kept], annotator_codes[kept], label_codes[kept], known, annotator_names, classes, name)


def _check_matched(codes: Labels, texts: Sequence[str], ids: Sequence[str | None]) -> None:
    """Log labels of unknown items; raise if all are."""
    others = int((codes < 0).sum())
    if others == len(codes):
        raise InvalidInput(
            f"items of `annotations` must be IDs of the rows, such as {listed(map(repr, ids), 2)}, but none is; got "
            f"{listed(map(repr, texts), 2)}."
        )
    if others:
        logger.warning("%d of %d labels are of items that are not in the table; they are left out", others, len(codes))


def detected_columns(
    frame: pd.DataFrame, given: Sequence[str | None], parameters: Sequence[str] = COLUMN_KINDS
) -> tuple[str, str, str] | None:
    """Return the columns of items, annotators and labels: those given, others by their names.

    Args:
        frame: a table.
        given: the columns, None for those to detect.
        parameters: the parameters that hold them, for messages.

    Returns:
        None if a column is not found.
    """
    raise_all(
        str(unknown_name(parameter, column, frame.columns, MAX_NAMES))
        for parameter, column in zip(parameters, given, strict=True)
        if column is not None and column not in frame.columns
    )
    plain = {column.casefold().replace(" ", "_").replace("-", "_"): column for column in frame.columns}
    usual = (ITEM_NAMES, ANNOTATOR_NAMES, LABEL_NAMES)
    found = [
        column if column is not None else next((plain[each] for each in names if each in plain), None)
        for column, names in zip(given, usual, strict=True)
    ]
    item, annotator, label = found
    return None if item is None or annotator is None or label is None else (item, annotator, label)


def _undetected(frame: pd.DataFrame, parameters: str) -> InvalidInput:
    return InvalidInput(
        f"{parameters} must name the columns of items, annotators and labels, which were not detected among "
        f"{listed(map(repr, frame.columns), MAX_NAMES)}."
    )


# Of the rows of a table


def annotations_of_rows(
    frame: pd.DataFrame,
    origin: str,
    *,
    annotators: Sequence[str] = (),
    table: pd.DataFrame | None = None,
    columns: Sequence[str] = (),
    id_column: str | None = None,
) -> Annotations:
    """Return the labels of the N rows of a table from a file; classes are texts.

    Args:
        frame: the table.
        origin: its file, for messages.
        annotators: its columns that hold labels; or
        table: a long table of labels, whose items are the IDs of the rows.
        columns: columns of items, annotators and labels of this table; detected by their names when empty.
        id_column: column of the IDs; also preferred as the name of the column of items.
    """
    if table is None:
        raise_all(
            str(unknown_name("annotators", name, frame.columns, MAX_NAMES))
            for name in annotators
            if name not in frame.columns
        )
        return wide(frame[list(annotators)], name="annotators", text=True)
    if id_column not in frame.columns:
        raise unknown_name("id_column", str(id_column), frame.columns, MAX_NAMES)
    codes, texts = value_texts(frame[id_column], str(id_column))
    counts = np.bincount(codes[codes >= 0], minlength=len(texts))
    if (counts > 1).any():
        twice = [texts[code] for code in np.flatnonzero(counts > 1)]
        raise InvalidInput(
            f"column `{id_column}` of {origin} must identify every row, but got more than once: "
            f"{listed(map(repr, twice))}."
        )
    table = with_text_names(table)
    named = tuple(columns) or (id_column if id_column in table.columns else None, None, None)
    found = detected_columns(table, named, ("annotation_columns",) * 3)
    if found is None:
        raise _undetected(table, "`annotation_columns`")
    return long(table, found, ids=[texts[code] if code >= 0 else None for code in codes.tolist()], text=True)


# Values


def _coded_labels(values: pd.Series, missing: Any, name: str, *, text: bool) -> tuple[Labels, Array]:
    """Return codes (L,), indices into the classes or −1 for gaps, and the classes in increasing order."""
    if text:
        codes, texts = value_texts(values, name)
        distinct: list[Any] = [None if missing is not None and each == str(missing) else each for each in texts]
        order = sorted(filter(None, distinct), key=natural_key)
        classes: Array = np.array(order)
    else:
        codes, found = pd.factorize(values)
        distinct = [None if _is_missing(value, missing) else value for value in found]
        classes = _sorted_values([value for value in distinct if value is not None], name)
        order = classes.tolist()
    index = {value: code for code, value in enumerate(order)}
    position = [-1 if value is None else index[value] for value in distinct]
    return np.array([*position, -1], dtype=np.int64)[codes], classes  # code −1 is the last


def _is_missing(value: Any, missing: Any) -> bool:
    return missing is not None and not isinstance(value, (bool, np.bool_)) and bool(value == missing)


def _sorted_values(values: list[Any], name: str) -> Array:
    """Return distinct labels as an array of one type; whole numbers as integers, as they are without gaps."""
    if all(isinstance(value, (bool, np.bool_)) for value in values):
        return np.array(sorted(map(bool, values)), dtype=bool)
    if all(isinstance(value, (int, float, np.number)) and not isinstance(value, bool) for value in values):
        numbers = np.unique(np.array(values, dtype=np.float64))
        whole = bool((numbers == np.rint(numbers)).all())
        return numbers.astype(np.int64) if whole else numbers
    if all(isinstance(value, str) for value in values):
        return np.array(sorted(values))
    kinds = sorted({type(value).__name__ for value in values})
    raise InvalidInput(f"`{name}` must hold labels of one type, but got {' and '.join(kinds)}.")


def _original_values(values: pd.Series, codes: Labels, count: int) -> list[Any]:
    """Return the first value of each code, in the order of the codes."""
    _, first = np.unique(codes, return_index=True)
    return [values.iloc[row] for row in first[:count]]


def _checked(
    items: Labels, annotators: Labels, labels: Labels, ids: Array, names: Sequence[str], classes: Array, name: str
) -> Annotations:
    """Return annotations without annotators that gave no label; raise if they cannot be aggregated."""
    used, annotators = np.unique(annotators, return_inverse=True)
    kept_names = tuple(names[each] for each in used)
    shown = [repr(value) for value in classes.tolist()]
    if len(kept_names) < 2:
        got = f"only {kept_names[0]!r}" if kept_names else "none"
        raise InvalidInput(
            f"`{name}` must hold labels of at least two annotators, but got {got}; labels of one annotator are labels "
            f"like any others."
        )
    if len(classes) < 2:
        raise InvalidInput(
            f"`{name}` must hold at least two classes, but got only {', '.join(shown)}; {MISSING} means no label."
        )
    if len(classes) > MAX_CLASSES:
        raise InvalidInput(f"`{name}` must hold at most {MAX_CLASSES} classes, but got {len(classes)}.")
    pairs = np.unique(labels * len(kept_names) + annotators)
    if np.bincount(pairs // len(kept_names)).max() < 2:
        examples = (
            f"{kept_names[each]!r} uses {listed([shown[k] for k in np.unique(labels[annotators == each])], 3)}"
            for each in range(min(len(kept_names), 3))
        )
        raise InvalidInput(
            f"annotators in `{name}` must use the same labels, but no label is used by two of them: "
            f"{'; '.join(examples)}; write labels in one way."
        )
    return Annotations(
        items.astype(np.int64), annotators.astype(np.int64), labels.astype(np.int64), ids, kept_names, classes
    )
