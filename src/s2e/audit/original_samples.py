"""The original samples that a reviewer looks at: inputs of images, and all cells of table rows, also unused ones.

A run stores those of its labels to review, so that its page can be made where the data are not. Of larger selections,
and of runs without the files, the page reads the data again.

| file | content |
|---|---|
| review.npz | rows, and inputs of images |
| review.json | rows, and names and cells of the columns of a table |

Letters: n samples.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from s2e.audit.label_model import LabelAudit
from s2e.audit.review_order import order_by_doubt, order_by_value
from s2e.data import Source
from s2e.errors import S2EError, UnreadableData
from s2e.files.fields import Fields
from s2e.runs import Run

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Labels = NDArray[np.int64]

log = logging.getLogger(__name__)

IMAGES, CELLS = "review.npz", "review.json"

MOST_VALUABLE = 50
"""Labels that a page names as worth most to review."""

STORED = 200
"""Most doubtful labels whose samples are stored, beside the most valuable ones."""

MAX_BYTES = 2**24
"""Of the inputs, or characters of the cells, that are stored."""

MAX_CELL = 2000
"""Characters of a cell that are stored and shown."""

MIN_IMAGE_SIDE = 4
"""Arrays with a shorter side are not images."""


@dataclass(frozen=True, eq=False)
class Originals:
    """Original samples by their rows in the source.

    Attributes:
        inputs: images; empty if the samples are none.
        columns: names of the cells, if the data are a table.
        cells: texts of the cells.
    """

    inputs: Mapping[int, NDArray[Any]] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    cells: Mapping[int, tuple[str, ...]] = field(default_factory=dict)

    def have(self, rows: Sequence[int]) -> bool:
        """Return whether all these samples are here."""
        known = self.inputs or self.cells
        return all(row in known for row in rows)


def is_image(shape: Sequence[int]) -> bool:
    """Return whether samples of a shape are images: (H, W), or (C, H, W) with 1, 3 or 4 channels."""
    channels = shape[0] if len(shape) == 3 else 1
    return len(shape) in (2, 3) and channels in (1, 3, 4) and min(shape[-2:]) >= MIN_IMAGE_SIDE


def read_samples(source: Source, data: str, label: str, rows: Sequence[int]) -> Originals:
    """Return the original samples at these rows; a table is read again.

    Args:
        source: the data as loaded.
        data: their name or path.
        label: label column of a table of the Hub.
        rows: rows of training samples.
    """
    if is_image(source.train.sample_shape):
        index = {row: index for index, row in enumerate(source.train.rows.tolist())}
        return Originals({row: source.train.inputs[index[row]] for row in rows})
    frame = _table(source, data, label)
    if frame is None:
        return Originals()
    if max(rows, default=0) >= len(frame):
        raise UnreadableData(f"{data} has changed since it was loaded: it has only {len(frame)} rows.")
    columns = tuple(str(name) for name in frame.columns)
    return Originals(columns=columns, cells={row: tuple(map(_cell, frame.iloc[row].tolist())) for row in rows})


def _table(source: Source, data: str, label: str) -> pd.DataFrame | None:
    """Return the table without its label and ID column; None if the data are no table."""
    from s2e.data.hub import PREFIX, HubTable, load_hub
    from s2e.data.table_files import read_table
    from s2e.data.table_reader import TableReader

    reader = source.reader
    if not isinstance(reader, TableReader):
        return None
    if data.startswith(PREFIX):
        loaded = load_hub(data, label=label or None)
        if not isinstance(loaded, HubTable):
            return None
        frame = loaded.train
    else:
        frame = read_table(data)
    return frame.drop(columns=[name for name in frame.columns if str(name) in (reader.label, reader.id_column)])


def _cell(value: Any) -> str:
    """Format a cell as in its file; a missing value is empty."""
    if value is None or value != value:  # NaN is not equal to itself
        return ""
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) < 1e15 and value == int(value) else f"{value:.6g}"
    text = str(value)
    return text if len(text) <= MAX_CELL else f"{text[: MAX_CELL - 1]}…"


# Storage


def write_samples(
    run: Run, source: Source, data: str, label: str, found: LabelAudit, labels: Labels, rows: Labels, kept: Floats
) -> None:
    """Store the original samples of the labels to review; log why if they cannot be read.

    Args:
        run: the run.
        source: the data as loaded.
        data: their name or path.
        label: label column of a table of the Hub.
        found: the audit of N labels.
        labels: (N,) the given labels.
        rows: (N,) rows of the samples.
        kept: (N,) as in `order_by_doubt`.
    """
    valuable = order_by_value(found, labels, MOST_VALUABLE)
    chosen = rows[np.concatenate([valuable, order_by_doubt(found, kept)[:STORED]])].tolist()
    try:
        originals = read_samples(source, data, label, list(dict.fromkeys(chosen)))
    except S2EError as problem:
        log.warning("the samples of the labels to review are not stored: %s", problem)
        return
    if originals.inputs:
        most = max(1, MAX_BYTES // max(1, source.train.inputs[0].nbytes))
        stored = dict(list(originals.inputs.items())[:most])
        run.write_arrays(IMAGES, {"rows": np.array(list(stored)), "inputs": np.stack(list(stored.values()))})
    elif originals.columns:
        cells, characters = {}, 0
        for row, texts in originals.cells.items():
            characters += sum(map(len, texts)) + len(texts)
            if characters > MAX_BYTES:
                break
            cells[row] = list(texts)
        columns = list(originals.columns)
        run.write_json(CELLS, {"columns": columns, "rows": list(cells), "cells": list(cells.values())})


def stored_samples(run: Run) -> Originals:
    """Return the original samples that a run has stored; none if it has stored none."""
    arrays = run.read_arrays(IMAGES)
    if arrays:
        return _stored_images(arrays, str(run.path / IMAGES))
    if not (run.path / CELLS).exists():
        return Originals()
    written = run.read_fields(CELLS)
    columns, rows = written.texts("columns"), written.integers("rows", most=2**53)
    cells = _cells(written)
    if len(cells) != len(rows) or any(len(each) != len(columns) for each in cells):
        raise UnreadableData(f"{written.origin!r} is damaged: `cells` must have a row of {len(columns)} for each row.")
    return Originals(columns=columns, cells=dict(zip(rows, cells, strict=True)))


def _cells(written: Fields) -> list[tuple[str, ...]]:
    value = written.values.get("cells")
    if isinstance(value, list) and all(
        isinstance(row, list) and all(isinstance(cell, str) for cell in row) for row in value
    ):
        return [tuple(row) for row in value]
    raise written.error("cells", "lists of texts", value)


def _stored_images(arrays: Mapping[str, NDArray[Any]], origin: str) -> Originals:
    rows, inputs = arrays.get("rows", np.zeros(0)), arrays.get("inputs", np.zeros(0))
    usable = rows.ndim == 1 and rows.dtype.kind == "i" and inputs.dtype.kind in "uf" and inputs.ndim in (3, 4)
    if not usable or len(inputs) != len(rows) or not is_image(inputs.shape[1:]):
        raise UnreadableData(f"{origin!r} is damaged: `inputs` must be images, one for each of the `rows`.")
    if inputs.dtype.kind == "f" and not (np.abs(inputs) <= np.finfo(np.float32).max).all():
        raise UnreadableData(f"{origin!r} is damaged: `inputs` must be finite numbers of float32, but some are not.")
    return Originals(dict(zip(rows.tolist(), inputs, strict=True)))
