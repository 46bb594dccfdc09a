"""`s2e audit --cleaned` without parsing or printing: the data of a run with weights and suggested labels.

| data of the run | written |
|---|---|
| a table | all its columns and rows, in the order of its file |
| an .npz file, written as .npz | its arrays, with suggested labels as training labels, and the columns below |
| anything else | a row for each audited sample with its `id`; inputs are not repeated |

| column | content |
|---|---|
| given_label | the given label; in tables only where it is the consensus of several annotators |
| sample_weight | probability that the given label is correct; 1 for rows that were not audited |
| suggested_label | the given label, or the most probable other one where it is probably wrong |
| suggested_weight | probability of the suggested label; 1 for rows that were not audited |
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from s2e.atomic_write import replace_output
from s2e.audit import AuditedRun
from s2e.data.column_values import value_texts
from s2e.data.files import JSON_SUFFIXES, PARQUET_SUFFIX, TABLE_SUFFIXES
from s2e.data.hub import PREFIX
from s2e.data.npz import read_arrays, training_labels
from s2e.data.table_files import read_table
from s2e.errors import InvalidInput, UnreadableData
from s2e.files.arrays import npz_content
from s2e.runs import Run, all_options, check_pyarrow, encoded_table, read_configuration
from s2e.runs.table_formats import CSV, JSON_LINES, PARQUET, TSV

NPZ, GZIP = ".npz", ".gz"
SUFFIXES = (*TABLE_SUFFIXES, NPZ)
GIVEN, WEIGHT, SUGGESTED, SUGGESTED_WEIGHT = "given_label", "sample_weight", "suggested_label", "suggested_weight"


def check_cleaned_path(path: Path) -> None:
    """Raise for a file of an unknown format."""
    if not path.name.lower().endswith(SUFFIXES):
        raise InvalidInput(f"`cleaned` must be a {', '.join(SUFFIXES)} file, but got {str(path)!r}.")
    if path.suffix.lower() == PARQUET_SUFFIX:
        check_pyarrow("cleaned", path)


def write_cleaned(run: Run, audited: AuditedRun, path: Path) -> None:
    """Write the data of a run with weights and suggested labels, in the format of the file's name."""
    check_cleaned_path(path)
    options, name = all_options(run, read_configuration(run)), path.name.lower()
    data, of_hub = Path(options["data"]), options["data"].startswith(PREFIX)
    if data.suffix.lower() == NPZ and name.endswith(NPZ) and not (of_hub or data.is_dir()):
        content = npz_content(_arrays(data, audited))
    else:
        is_table = data.name.lower().endswith(TABLE_SUFFIXES) and not of_hub
        frame = _table(data, options, audited) if is_table else _by_id(audited)
        content = _npz(frame) if name.endswith(NPZ) else encoded_table(frame, _table_suffix(name), safe=False)
    replace_output(path, gzip.compress(content, mtime=0) if name.endswith(GZIP) else content)


def _table_suffix(name: str) -> str:
    """Return the format of a table by the name of its file."""
    if name.endswith(JSON_SUFFIXES):
        return JSON_LINES
    return PARQUET if name.endswith(PARQUET_SUFFIX) else TSV if name.removesuffix(GZIP).endswith(TSV) else CSV


def _by_id(audited: AuditedRun) -> pd.DataFrame:
    """Return a row for each audited sample."""
    found, names = audited.audit, np.array(audited.class_names, dtype=object)
    return pd.DataFrame(
        {
            "id": audited.ids,
            GIVEN: names[audited.labels],
            WEIGHT: found.quality,
            SUGGESTED: names[found.suggested],
            SUGGESTED_WEIGHT: found.confidence,
        }
    )


# Tables


def _table(path: Path, options: dict[str, Any], audited: AuditedRun) -> pd.DataFrame:
    """Return the table of a run with further columns; suggested labels have the type of the given ones."""
    _check_exists(path)
    frame, found = read_table(path), audited.audit
    several = bool(options["annotators"] or options["annotations"])
    if several:
        names = np.array(audited.class_names, dtype=object)
        columns = {
            GIVEN: _spread(None, len(frame), audited.rows, names[audited.labels], path),
            SUGGESTED: _spread(None, len(frame), audited.rows, names[found.suggested], path),
        }
    else:
        columns = {SUGGESTED: _suggested(frame, options["label"], audited, path)}
    columns[WEIGHT] = _spread(1.0, len(frame), audited.rows, found.quality, path)
    columns[SUGGESTED_WEIGHT] = _spread(1.0, len(frame), audited.rows, found.confidence, path)
    order = [name for name in (GIVEN, WEIGHT, SUGGESTED, SUGGESTED_WEIGHT) if name in columns]
    if taken := [name for name in order if name in frame.columns]:
        raise InvalidInput(f"the table must not have the columns {', '.join(order)}, but has {', '.join(taken)}.")
    return frame.assign(**{name: columns[name] for name in order})


def _suggested(frame: pd.DataFrame, label: str, audited: AuditedRun, path: Path) -> Any:
    """Return the label column with suggested labels, each as it first stands in the column."""
    if label not in frame.columns:
        raise _other_data(path, f"with the column {label!r}, but it has none")
    codes, texts = value_texts(frame[label], label)
    if absent := [name for name in audited.class_names if name not in texts]:
        raise _other_data(path, f"with the label {absent[0]!r}, but column `{label}` has none")
    first = np.array([np.argmax(codes == texts.index(name)) for name in audited.class_names])
    rows = np.arange(len(frame))
    return frame[label].iloc[_spread(rows, len(frame), audited.rows, first[audited.audit.suggested], path)].to_numpy()


def _npz(frame: pd.DataFrame) -> bytes:
    """Return the columns of a table as the arrays of an .npz file; texts that are missing are empty."""
    return npz_content({str(name): _plain(frame[name]) for name in frame.columns})


def _plain(column: pd.Series[Any]) -> NDArray[Any]:
    """Return a column without Python objects, which need pickle."""
    values: NDArray[Any] = column.to_numpy()
    return np.where(column.isna(), "", values.astype(str)) if values.dtype == object else values


# Arrays


def _arrays(path: Path, audited: AuditedRun) -> dict[str, NDArray[Any]]:
    """Return the arrays of an .npz file with suggested labels, and further arrays."""
    _check_exists(path)
    arrays, found = read_arrays(path), audited.audit
    key, labels, classes = training_labels(arrays, str(path))
    if len(classes) != len(audited.class_names):
        raise _other_data(path, f"with {len(audited.class_names)} classes, but it has {len(classes)}")
    columns = {
        key: _spread(labels, len(labels), audited.rows, classes[found.suggested], path),
        GIVEN: _spread(labels, len(labels), audited.rows, classes[audited.labels], path),
        WEIGHT: _spread(1.0, len(labels), audited.rows, found.quality, path),
        SUGGESTED_WEIGHT: _spread(1.0, len(labels), audited.rows, found.confidence, path),
    }
    return {**arrays, **columns}


def _check_exists(path: Path) -> None:
    if not path.is_file():
        raise UnreadableData(f"{str(path)!r} must be the file that the run was trained on, but it does not exist.")


def _other_data(path: Path, difference: str) -> UnreadableData:
    return UnreadableData(f"{str(path)!r} must be the file that the run was trained on, {difference}.")


def _spread(default: Any, length: int, rows: NDArray[np.int64], values: NDArray[Any], path: Path) -> NDArray[Any]:
    """Return values at their rows among all rows, which have a default."""
    if length <= rows.max():
        raise _other_data(path, f"with more than {rows.max()} rows, but it has {length}")
    plain = np.asarray(default)
    spread = np.empty(length, dtype=object if plain.dtype == object else np.result_type(plain, values))
    spread[:] = default
    spread[rows] = values
    return spread
