"""Tables of other libraries as pandas tables: polars, pyarrow and `datasets` of Hugging Face.

They are recognised by the name of their library, so that none of these is imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from s2e.errors import InvalidInput

if TYPE_CHECKING:
    import pandas as pd

POLARS, PYARROW, DATASETS = "polars", "pyarrow", "datasets"


def library_of(data: Any) -> str:
    """Return the name of the library that an object comes from."""
    return type(data).__module__.partition(".")[0]


def is_table(data: Any) -> bool:
    """Return whether an object is a table with named columns, of pandas or of another library."""
    kind = type(data).__name__
    return {
        "pandas": kind == "DataFrame",
        POLARS: kind in ("DataFrame", "LazyFrame"),
        PYARROW: kind in ("Table", "RecordBatch"),
        DATASETS: kind == "Dataset" and not _has_format(data),
    }.get(library_of(data), False)


def as_frame(data: Any) -> pd.DataFrame:
    """Return a table of any of these libraries as a DataFrame."""
    library = library_of(data)
    if library == POLARS and type(data).__name__ == "LazyFrame":
        data = data.collect()
    if library == PYARROW:
        return data.to_pandas(ignore_metadata=True)  # a named index is a column like the others
    if library == DATASETS and (images := image_columns(data)):
        raise InvalidInput(f"a table must hold values, but the column {images[0]!r} of the dataset holds images.")
    if library == "pandas":
        return data
    try:
        return data.to_pandas()
    except ImportError as error:
        raise InvalidInput(
            f"a table of {library} needs pyarrow to be read, which is not installed; run `pip install pyarrow`, or "
            f"pass a table of pandas."
        ) from error


def as_labels(labels: Any) -> Any:
    """Return a column of another library as an array; other objects are returned as they are."""
    if library_of(labels) == POLARS:
        return labels.to_numpy()
    return labels.to_numpy(zero_copy_only=False) if library_of(labels) == PYARROW else labels


def image_columns(data: Any) -> list[str]:
    """Return the columns of a dataset of Hugging Face that hold images."""
    features = getattr(data, "features", None) or {}
    return [name for name, feature in features.items() if type(feature).__name__ == "Image"]


def _has_format(data: Any) -> bool:
    """Return whether samples of a dataset of Hugging Face are arrays or tensors, which are read one by one."""
    return bool((getattr(data, "format", None) or {}).get("type"))
