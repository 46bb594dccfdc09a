"""`s2e audit --cleaned` without parsing or printing: the data of a run with weights and suggested labels.

A table is written with all its columns and rows, in the order of its file. Images and arrays are not repeated: one row
for each audited sample, with its ID and its given label.

| column | content |
|---|---|
| sample_weight | probability that the given label is correct; 1 for rows that were not audited |
| suggested_label | the given label, or the most probable other one where it is probably wrong |
| suggested_weight | probability of the suggested label; 1 for rows that were not audited |
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from s2e.atomic_write import replace_output
from s2e.audit import AuditedRun
from s2e.data.files import PARQUET_SUFFIX, TEXT_SUFFIXES
from s2e.data.table_files import read_table
from s2e.errors import InvalidInput, UnreadableData
from s2e.runs import Run, all_options, read_configuration

SUFFIXES = (".csv", ".tsv", ".parquet", ".npz")
WEIGHT, SUGGESTED, SUGGESTED_WEIGHT = "sample_weight", "suggested_label", "suggested_weight"


def check_cleaned_path(path: Path) -> None:
    """Raise for a file of an unknown format."""
    if path.suffix.lower() not in SUFFIXES:
        raise InvalidInput(f"`cleaned` must be a {', '.join(SUFFIXES)} file, but got {str(path)!r}.")


def cleaned_data(run: Run, audited: AuditedRun) -> pd.DataFrame:
    """Return the data of a run with weights and suggested labels, one row for each sample."""
    found, names = audited.audit, np.array(audited.class_names, dtype=object)
    columns = {WEIGHT: found.quality, SUGGESTED: names[found.suggested], SUGGESTED_WEIGHT: found.confidence}
    options = all_options(run, read_configuration(run))
    if not options["data"].lower().endswith((*TEXT_SUFFIXES, PARQUET_SUFFIX)):
        return pd.DataFrame({"id": audited.ids, "label": names[audited.labels], **columns})
    frame = _read_again(Path(options["data"]), audited.rows)
    if taken := [name for name in columns if name in frame.columns]:
        raise InvalidInput(f"the table must not have the columns {', '.join(columns)}, but has {', '.join(taken)}.")
    for name, values in columns.items():
        frame[name] = _spread(frame[options["label"]] if name == SUGGESTED else 1.0, len(frame), audited.rows, values)
    return frame


def write_cleaned(frame: pd.DataFrame, path: Path) -> None:
    """Write rows in the format of the file's name."""
    check_cleaned_path(path)
    content = io.BytesIO()
    match path.suffix.lower():
        case ".npz":
            np.savez_compressed(content, **{str(name): _plain(frame[name]) for name in frame.columns})  # type: ignore[arg-type]
        case ".parquet":
            frame.to_parquet(content, index=False)
        case suffix:
            frame.to_csv(content, sep="\t" if suffix == ".tsv" else ",", index=False)
    replace_output(path, content.getvalue())


def _read_again(path: Path, rows: NDArray[np.int64]) -> pd.DataFrame:
    if not path.is_file():
        raise UnreadableData(f"{str(path)!r} must be the table that the run was trained on, but it does not exist.")
    frame = read_table(path)
    if len(frame) <= rows.max():
        raise UnreadableData(
            f"{str(path)!r} must be the table that the run was trained on, with more than {rows.max()} rows, but has "
            f"{len(frame)}."
        )
    return frame


def _spread(default: Any, length: int, rows: NDArray[np.int64], values: NDArray[Any]) -> NDArray[Any]:
    """Return values at their rows among all rows, which have a default."""
    spread = np.empty(length, dtype=values.dtype)
    spread[:] = default
    spread[rows] = values
    return spread


def _plain(column: pd.Series[Any]) -> NDArray[Any]:
    """Return a column without Python objects, which need pickle."""
    values: NDArray[Any] = column.to_numpy()
    return values.astype(str) if values.dtype == object else values
