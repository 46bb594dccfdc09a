"""Load a data set of the Hugging Face Hub, `hf:NAME`, with the `datasets` package.

Images are decoded; tables are returned as DataFrames.

Letters: N samples, C channels, S side.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from s2e.data.foreign_tables import image_columns
from s2e.data.image_decoding import Header, StoredImage, check_side, choose_side, decode_images, measure_images
from s2e.data.input_readers import ImageReader
from s2e.data.samples import LabelledData, Source
from s2e.errors import InvalidInput, UnreadableData, first_line, listed, unknown_name

if TYPE_CHECKING:
    import os

logger = logging.getLogger(__name__)

PREFIX = "hf:"
SPLITS = {"train": ("train",), "valid": ("validation", "valid", "val"), "test": ("test",)}
LABEL_COLUMNS = ("label", "labels", "target", "class", "y")
"""Usual names of the label column, in order of preference; used if no column declares classes."""


@dataclass(frozen=True, eq=False)
class HubTable:
    """A table with a label column.

    Attributes:
        name: name on the Hub.
        label: label column. Declared classes are given by name; missing labels are missing values of pandas.
        train: pandas.DataFrame of N rows.
        valid: the validation split, or None.
        test: the test split, or None.
    """

    name: str
    label: str
    train: Any
    valid: Any | None
    test: Any | None


def load_hub(
    name: str,
    *,
    label: str | None = None,
    side: int | None = None,
    cache: str | os.PathLike[str] | None = None,
) -> Source | HubTable:
    """Load a data set by its name on the Hub, or from a local folder of data files.

    Args:
        name: NAME, or NAME:CONFIG for a data set with several configurations; the prefix `hf:` is optional.
        label: label column; by default the column that declares classes, or the first of `LABEL_COLUMNS`.
        side: S, to which images are resized; chosen from their sizes when None.
        cache: folder for downloads; by default that of `datasets`.

    Returns:
        Images as a `Source`: inputs uint8 (N, C, S, S), C = 1 if every image is grey, else 3; `rows` are rows of the
        split, without those that have no label or cannot be decoded. Other columns as a `HubTable`.
    """
    library = _library()
    name = name.removeprefix(PREFIX)
    splits = _splits(_load(library, name, cache), name)
    features = splits["train"].features
    label = _label_column(library, features, label, name)
    images = image_columns(splits["train"])
    if len(images) == 1:
        data, reader = _images(library, splits, images[0], label, name, side)
        return Source(name, data["train"], data.get("valid"), data.get("test"), reader=reader)
    if side is not None:
        raise InvalidInput(f"`image_size` must be given for images only, but got {side} for {name}; omit it.")
    if images or len(features) == 1:
        got = f"the images {' and '.join(images)}" if images else "no other column"
        raise InvalidInput(
            f"{name} must hold one column of images, or columns of values, besides the label `{label}`, but got {got}."
        )
    tables = {split: _table(library, rows, label) for split, rows in splits.items()}
    return HubTable(name, label, tables["train"], tables.get("valid"), tables.get("test"))


def images_of(splits: Mapping[str, Any], label: str | None) -> dict[str, LabelledData]:
    """Return the images of datasets by name, "train" among them, all of one size; the label is detected when None."""
    library, first = _library(), splits["train"]
    images = image_columns(first)
    if len(images) != 1:
        raise InvalidInput(f"`data` must have one column of images, but got {' and '.join(images)}; remove the others.")
    data, _ = _images(
        library, dict(splits), images[0], _label_column(library, first.features, label, "`data`"), "`data`"
    )
    return data


def table_of(dataset: Any, label: str | None) -> tuple[Any, str]:
    """Return a dataset as a pandas.DataFrame, with declared classes by name, and its label column."""
    library = _library()
    column = _label_column(library, dataset.features, label, "`data`")
    return _table(library, dataset, column), column


def _library() -> ModuleType:
    try:
        return import_module("datasets")
    except ImportError as error:
        raise UnreadableData(
            "Loading from the Hugging Face Hub needs the package datasets; install it with: pip install 's2e[hub]'"
        ) from error


def _load(library: ModuleType, name: str, cache: str | os.PathLike[str] | None) -> Any:
    """Return the splits; code of a data set is never run."""
    path, _, config = (name, "", "") if Path(name).exists() else name.partition(":")
    try:
        return library.load_dataset(path, config or None, cache_dir=None if cache is None else str(cache))
    except OSError as error:  # missing on the Hub, no network, no permission
        raise UnreadableData(
            f"{name} must be a reachable data set of the Hub, but loading failed ({_root_cause(error)}); "
            f"check the name (OWNER/NAME) and the network, and sign in with `hf auth login` if it is private."
        ) from error
    except (ValueError, RuntimeError, library.exceptions.DatasetsError) as error:
        raise InvalidInput(
            f"{name} must be a data set that the package datasets can load, but it failed: {_root_cause(error)}; "
            f"if a configuration is missing, append it: {PREFIX}{path}:CONFIG."
        ) from error


def _splits(splits: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the training, validation and test splits, as "train", "valid" and "test"."""
    found = {part: [split for split in names if split in splits] for part, names in SPLITS.items()}
    for part, names in found.items():
        if len(names) > 1:
            raise InvalidInput(f"{name} must have one split for `{part}`, but has {' and '.join(names)}.")
    if not found["train"]:
        raise InvalidInput(f"{name} must have a split named train, but has {listed(list(splits))}.")
    ignored = [split for split in splits if not any(split in names for names in found.values())]
    if ignored:
        logger.warning("%s: unknown splits are ignored: %s", name, listed(ignored))
    return {part: splits[names[0]] for part, names in found.items() if names}


def _label_column(library: ModuleType, features: Mapping[str, Any], label: str | None, name: str) -> str:
    if label is not None:
        if label not in features:
            raise unknown_name("label", label, features)
        return label
    declared = [column for column, feature in features.items() if isinstance(feature, library.ClassLabel)]
    candidates = declared or [column for column in LABEL_COLUMNS if column in features][:1]
    if len(candidates) != 1:
        got = f"several: {listed(candidates)}" if candidates else "none"
        raise InvalidInput(
            f"{name} must have one label column, but got {got}; pass `label`, one of {listed(features, 20)}."
        )
    return candidates[0]


# Images


def _images(
    library: ModuleType, splits: dict[str, Any], column: str, label: str, name: str, side: int | None = None
) -> tuple[dict[str, LabelledData], ImageReader]:
    """Return the images of each split that can be decoded and have a label, and their reader."""
    feature = splits["train"].features[label]
    if not isinstance(feature, library.ClassLabel):
        raise InvalidInput(
            f"{name}: the label `{label}` of images must declare its classes (ClassLabel), but is {_kind(feature)}; "
            f"pass another `label`, or save the images as a folder of class folders and pass that."
        )
    labels = {
        split: np.array([-1 if value is None else value for value in samples[label]], np.int64)
        for split, samples in splits.items()
    }
    encoded = {split: samples.cast_column(column, library.Image(decode=False)) for split, samples in splits.items()}
    # On the Hub, a negative label means that there is none; labels of a test split are often withheld.
    rows = {split: np.flatnonzero(values >= 0) for split, values in labels.items()}
    headers: dict[str, list[Header]] = {}
    for split, labelled in rows.items():
        found = measure_images(_stored(encoded[split].select(labelled), column))
        rows[split] = labelled[np.array([isinstance(header, Header) for header in found], dtype=bool)]
        headers[split] = [header for header in found if isinstance(header, Header)]
    all_headers = [header for of_split in headers.values() for header in of_split]
    data: dict[str, LabelledData] = {}
    reader = ImageReader(1, 1)  # replaced unless there are no images
    if headers["train"]:
        channels = 1 if all(header.grey for header in all_headers) else 3
        if side is None:
            side = choose_side([header.shorter_side for header in headers["train"]], len(all_headers), channels)
        else:
            check_side(side, len(all_headers), channels)
        reader = ImageReader(side, channels)
        for split, readable in rows.items():
            stored = _stored(encoded[split].select(readable), column)
            inputs, broken = decode_images(stored, len(readable), side, channels)
            rows[split] = np.delete(readable, list(broken))
            if len(inputs):
                data[split] = LabelledData(inputs, labels[split][rows[split]], tuple(feature.names), rows=rows[split])
    lost = {split: len(samples) - len(rows[split]) for split, samples in splits.items()}
    if any(lost.values()):
        counts = listed(f"{count} of {len(splits[split])} in {split}" for split, count in lost.items() if count)
        logger.warning("%s: images without a label or that cannot be decoded are left out: %s", name, counts)
    if "train" not in data:
        raise UnreadableData(f"{name} must hold training images that can be decoded and have a label, but got none.")
    return data, reader


def _stored(split: Any, column: str) -> Iterator[StoredImage]:
    """Yield images undecoded; a missing image is an empty file."""
    for row in split.select_columns(column):  # row by row: the whole column may not fit into memory
        image = row[column] or {}
        content, path = image.get("bytes"), image.get("path")
        yield Path(path) if content is None and path else content or b""


# Tables


def _table(library: ModuleType, split: Any, label: str) -> Any:
    """Return a split as a pandas.DataFrame, with declared classes by name."""
    table, feature = split.to_pandas(), split.features[label]
    if isinstance(feature, library.ClassLabel):
        missing = table[label].isna() | (table[label] < 0)
        coded = zip(table[label], missing, strict=True)
        names = [None if is_missing else feature.names[int(code)] for code, is_missing in coded]
        table[label] = np.array(names, dtype=object)
    return table


# Messages


def _kind(feature: Any) -> str:
    return str(getattr(feature, "dtype", None) or type(feature).__name__)


def _root_cause(error: Exception) -> str:
    """Return the first line of the original error, which the package wraps in others."""
    while error.__cause__ is not None and isinstance(error.__cause__, Exception):
        error = error.__cause__
    return first_line(error).rstrip(".")
