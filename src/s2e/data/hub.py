"""Load a data set of the Hugging Face Hub, `hf:NAME`, through the `datasets` package.

Images with classes become pixels; tables of numbers are handed on as they are, for whoever encodes tables.

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

from s2e.data.image_decoding import BUDGET, Header, StoredImage, choose_side, decode_images, measure_images
from s2e.data.samples import LabelledData, Source
from s2e.errors import InvalidInput, UnreadableData, first_line, listed, unknown_name

if TYPE_CHECKING:
    import os

logger = logging.getLogger(__name__)

PREFIX = "hf:"
SPLITS = {"train": ("train",), "valid": ("validation", "valid", "val"), "test": ("test",)}
LABEL_COLUMNS = ("label", "labels", "target", "class", "y")
"""Names a column of labels is known by where no column declares classes, the likeliest first."""


@dataclass(frozen=True, eq=False)
class HubTable:
    """A table of numbers with one column of labels.

    Attributes:
        name: the name it was loaded by.
        label: the column of the labels. Classes that the data set declares are written out by name; a label that is
            missing is what pandas counts as missing.
        train: pandas.DataFrame of N rows; all columns but the label's are numbers.
        valid: the same where the data set has such a split, else None.
        test: likewise.
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
    budget: int = BUDGET,
    cache: str | os.PathLike[str] | None = None,
) -> Source | HubTable:
    """Load a data set by its name on the Hub, or from a local folder of data files.

    Args:
        name: NAME, or NAME:CONFIG where a data set comes in several configurations; `hf:` before it is accepted.
        label: the column of the labels; by default the one that declares classes, or one named as labels usually are.
        side: of images, S; chosen as `image_folders.read_image_folder` does unless given.
        budget: of images, bytes that all inputs together may take.
        cache: where downloads are kept; by default where `datasets` keeps them.

    Returns:
        Images as a `Source`, inputs uint8 (N, C, S, S), C = 1 when every image is grey, else 3; `rows` are the rows of
        the split, without those that have no label or do not decode. Numbers as a `HubTable`.
    """
    library = _library()
    name = name.removeprefix(PREFIX)
    parts = _parts(_load(library, name, cache), name)
    features = parts["train"].features
    label = _label_column(library, features, label, name)
    images = [column for column, feature in features.items() if isinstance(feature, library.Image)]
    if len(images) == 1:
        return _images(library, parts, images[0], label, name, side, budget)
    others = [column for column in features if column != label]
    refused = [
        f"{column} ({_kind(features[column])})" for column in others if not _is_number(library, features[column])
    ]
    if refused or not others:
        raise InvalidInput(
            f"{name} must hold one column of images, or columns of numbers, beside the label `{label}`, but got "
            f"{listed(refused) or 'no other column'}; turn texts and the like into numbers (embeddings, for example) "
            f"and save them as an .npz file."
        )
    tables = {part: _table(library, split, label) for part, split in parts.items()}
    return HubTable(name, label, tables["train"], tables.get("valid"), tables.get("test"))


def _library() -> ModuleType:
    try:
        return import_module("datasets")
    except ImportError as error:
        raise UnreadableData(
            "Loading from the Hugging Face Hub needs the package datasets; install it with: pip install 's2e[hub]'"
        ) from error


def _load(library: ModuleType, name: str, cache: str | os.PathLike[str] | None) -> Any:
    """Return the splits; code that a data set may bring along is never run."""
    path, _, config = (name, "", "") if Path(name).exists() else name.partition(":")
    try:
        return library.load_dataset(path, config or None, cache_dir=None if cache is None else str(cache))
    except OSError as error:  # missing on the Hub, no network, no permission
        raise UnreadableData(
            f"{name} must be a data set of the Hub that can be reached, but loading it failed ({_root_cause(error)}); "
            f"check the name (OWNER/NAME) and the network, and sign in with `hf auth login` where it is private."
        ) from error
    except (ValueError, RuntimeError, library.exceptions.DatasetsError) as error:
        raise InvalidInput(
            f"{name} must be a data set that the package datasets can load, but it said: {_root_cause(error)}; "
            f"where a configuration is missing, name it: {PREFIX}{path}:CONFIG."
        ) from error


def _parts(splits: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the split of each part."""
    found = {part: [split for split in names if split in splits] for part, names in SPLITS.items()}
    for part, names in found.items():
        if len(names) > 1:
            raise InvalidInput(
                f"{name} must have one split for each part, but {' and '.join(names)} all mean `{part}`."
            )
    if not found["train"]:
        raise InvalidInput(f"{name} must have a split named train, but has {listed(list(splits))}.")
    ignored = [split for split in splits if not any(split in names for names in found.values())]
    if ignored:
        logger.warning("%s: these splits are ignored: %s", name, listed(ignored))
    return {part: splits[names[0]] for part, names in found.items() if names}


def _label_column(library: ModuleType, features: Mapping[str, Any], label: str | None, name: str) -> str:
    if label is not None:
        if label not in features:
            raise unknown_name("label", label, features)
        return label
    declared = [column for column, feature in features.items() if isinstance(feature, library.ClassLabel)]
    candidates = declared or [column for column in LABEL_COLUMNS if column in features][:1]
    if len(candidates) != 1:
        got = f"several: {listed(candidates)}" if candidates else "none that is known as such"
        raise InvalidInput(
            f"{name} must have one column of labels, but got {got}; pass `label`, one of {listed(list(features), 20)}."
        )
    return candidates[0]


# Images


def _images(
    library: ModuleType,
    parts: dict[str, Any],
    column: str,
    label: str,
    name: str,
    side: int | None,
    budget: int,
) -> Source:
    feature = parts["train"].features[label]
    if not isinstance(feature, library.ClassLabel):
        raise InvalidInput(
            f"{name}: the label `{label}` of images must declare its classes (ClassLabel), but is {_kind(feature)}; "
            f"pass another `label`, or save the images as a folder of class folders and pass that."
        )
    labels = {
        part: np.array([-1 if one is None else one for one in split[label]], np.int64) for part, split in parts.items()
    }
    encoded = {part: split.cast_column(column, library.Image(decode=False)) for part, split in parts.items()}
    # A label below zero is how the Hub writes that a sample has none; those of a test split are often held back.
    rows = {part: np.flatnonzero(of >= 0) for part, of in labels.items()}
    headers: dict[str, list[Header]] = {}
    for part, of in rows.items():
        found = measure_images(_stored(encoded[part].select(of), column))
        rows[part] = of[np.array([isinstance(one, Header) for one in found], dtype=bool)]
        headers[part] = [one for one in found if isinstance(one, Header)]
    everything = [one for of in headers.values() for one in of]
    made: dict[str, LabelledData] = {}
    if headers["train"]:
        channels = 1 if all(one.grey for one in everything) else 3
        side = choose_side([one.shorter_side for one in headers["train"]], len(everything), channels, side, budget)
        for part, of in rows.items():
            inputs, broken = decode_images(_stored(encoded[part].select(of), column), len(of), side, channels)
            rows[part] = np.delete(of, list(broken))
            if len(inputs):
                made[part] = LabelledData(inputs, labels[part][rows[part]], tuple(feature.names), rows=rows[part])
    lost = {part: len(split) - len(rows[part]) for part, split in parts.items()}
    if any(lost.values()):
        counts = listed([f"{count} of {len(parts[part])} in {part}" for part, count in lost.items() if count])
        logger.warning("%s: images without a label or that do not decode are left out: %s", name, counts)
    if "train" not in made:
        raise UnreadableData(f"{name} must hold training images that decode and have a label, but got none.")
    return Source(name, made["train"], made.get("valid"), made.get("test"))


def _stored(split: Any, column: str) -> Iterator[StoredImage]:
    """Yield images as the `datasets` package keeps them undecoded; one that is missing is an empty file."""
    for row in split.select_columns(column):  # row by row: a column as a whole may not fit into memory
        image = row[column] or {}
        content, path = image.get("bytes"), image.get("path")
        yield Path(path) if content is None and path else content or b""


# Tables


def _is_number(library: ModuleType, feature: Any) -> bool:
    return isinstance(feature, library.Value) and feature.dtype.startswith(("int", "uint", "float", "bool"))


def _table(library: ModuleType, split: Any, label: str) -> Any:
    """Return a split as a pandas.DataFrame, with declared classes by name."""
    table, feature = split.to_pandas(), split.features[label]
    if isinstance(feature, library.ClassLabel):
        missing = table[label].isna() | (table[label] < 0)
        names = [None if gone else feature.names[int(one)] for one, gone in zip(table[label], missing, strict=True)]
        table[label] = np.array(names, dtype=object)
    return table


# Sentences


def _kind(feature: Any) -> str:
    return str(getattr(feature, "dtype", None) or type(feature).__name__)


def _root_cause(error: Exception) -> str:
    """Return the first line of what went wrong first: the package wraps causes into errors that do not name them."""
    while error.__cause__ is not None and isinstance(error.__cause__, Exception):
        error = error.__cause__
    return first_line(error).rstrip(".")
