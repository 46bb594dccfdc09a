"""Convert arrays, tensors, map-style datasets and tables of Python to `LabelledData`.

Letters: N samples, C classes.
"""

from __future__ import annotations

import logging
import operator
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from s2e.data.foreign_tables import DATASETS, as_frame, as_labels, image_columns, is_table, library_of
from s2e.data.samples import LabelledData
from s2e.errors import InvalidInput, listed, unknown_name
from s2e.files.memory import available_memory, in_gib

if TYPE_CHECKING:
    from s2e.data.samples import Array
    from s2e.data.table_encoding import TableEncoder

logger = logging.getLogger(__name__)

INPUT_KEYS = ("image", "images", "img", "pixel_values", "x", "inputs", "input", "features", "data")
LABEL_KEYS = ("label", "labels", "target", "class", "y")
"""Usual keys of samples that are dictionaries, and of the label column of a table, in order of preference."""

MOST_CLASSES = 1_000_000
"""More would be a label that is not the number of a class, such as an ID."""

TEXT = "text"
"""Name of the column of a sequence of texts."""

PROGRESS_SECONDS = 5.0
"""Seconds between two messages while a dataset is read."""


@dataclass(frozen=True, eq=False)
class LabelledParts:
    """Training data and other data of the same kind.

    Attributes:
        train: training data.
        others: other data, by name.
        encoder: encodes tables as inputs, fitted to the training data; None for other data.
    """

    train: LabelledData
    others: dict[str, LabelledData]
    encoder: TableEncoder | None


def as_labelled_parts(
    train: Any,
    others: Mapping[str, Any],
    *,
    label: str | None = None,
    inputs: str | None = None,
    drop: Collection[str] = (),
    text: Collection[str] = (),
) -> LabelledParts:
    """Convert training data and other data of the same kind.

    Args:
        train: a table, of pandas, polars, pyarrow or `datasets`, with a label column, or (table, labels); a dataset of
            images of `datasets`; or anything that `as_labelled_data` takes.
        others: other data of the same kind, by name.
        label: label column of a table, or key of the label in samples that are dictionaries; detected when None.
        inputs: key of the input in samples that are dictionaries; detected when None.
        drop: columns of a table to leave out.
        text: columns of a table with free text to learn from.
    """
    if is_table(_first(train)) and not image_columns(train):
        return _table_parts(train, others, label, drop, text)
    if drop or text:
        raise InvalidInput(f"`drop` and `text` must name columns of a table, but got {type(train).__name__}.")
    if library_of(train) == DATASETS and image_columns(train) and is_table(train):
        return _image_parts(train, others, label)
    data = as_labelled_data(train, label=label, inputs=inputs)
    held = {name: as_labelled_data(part, data.class_names, label=label, inputs=inputs) for name, part in others.items()}
    return LabelledParts(data, held, None)


def as_labelled_data(
    data: Any, class_names: tuple[str, ...] | None = None, *, label: str | None = None, inputs: str | None = None
) -> LabelledData:
    """Convert (inputs, labels) as arrays or tensors, or a map-style dataset of such pairs, to `LabelledData`.

    Samples of a dataset may also be dictionaries, with the keys `label` and `inputs`; the usual names are detected. A
    `torch.utils.data.Dataset` is read into memory once, in order, so its random transforms are drawn once for every
    sample, which is logged where the first sample differs when it is read again. uint8 images (three or more axes with
    that of the samples) stay uint8; all other numbers become float32. Labels are integers in 0..C-1; without
    `class_names`, C is the largest label plus one.

    Raises:
        InvalidInput: samples of different shapes, samples that are not numbers (for example PIL images), labels that
            are not integers, or a dataset that exceeds the available memory.
    """
    if isinstance(data, LabelledData):
        _check_axes(data.inputs)
        return data
    if isinstance(data, (tuple, list)) and len(data) == 2:
        samples, labels = (_as_array(array) for array in data)
    elif _is_map_style(data):
        tensors = _dataset_tensors(data)
        samples, labels = _read(data, label, inputs) if tensors is None else map(_as_array, tensors)
    else:
        raise InvalidInput(
            f"`data` must be (inputs, labels) or a dataset of such pairs, with `__getitem__` and `__len__`, but got "
            f"{type(data).__name__}{_what_to_pass(data)}."
        )
    if labels.dtype.kind not in "iu" or labels.ndim != 1 or labels.size == 0:
        raise InvalidInput(f"`labels` must be integers of shape (N,), but got {labels.dtype} of shape {labels.shape}.")
    least, largest = int(labels.min()), int(labels.max())  # before they are converted: uint64 may be larger than int64
    if least < 0 or largest >= MOST_CLASSES:
        raise InvalidInput(
            f"`labels` must be integers in 0..{MOST_CLASSES - 1}, but got {least if least < 0 else largest}; number "
            "the classes from 0."
        )
    if samples.dtype.kind not in "biuf" or samples.ndim == 0:
        raise InvalidInput(
            f"`inputs` must be numbers of shape (N, ...), but got {samples.dtype} of shape {samples.shape}."
        )
    _check_axes(samples)
    if not _are_pixels(samples.dtype, samples.ndim - 1):
        with np.errstate(over="ignore"):  # infinite values are refused below
            samples = samples.astype(np.float32, copy=False)
    names = class_names or tuple(str(label) for label in range(int(labels.max()) + 1))
    samples = np.require(samples, requirements=["C_CONTIGUOUS", "WRITEABLE"])  # PyTorch warns about read-only arrays
    return LabelledData(samples, labels.astype(np.int64), names)


def _check_axes(inputs: Array) -> None:
    """Raise if each sample is a single number without an axis."""
    if inputs.ndim == 1:
        raise InvalidInput(
            f"`inputs` must have an axis of samples and at least one other, but got shape {inputs.shape}; where a "
            f"sample is one number, reshape them to ({len(inputs)}, 1)."
        )


def _are_pixels(dtype: np.dtype[Any], axes: int) -> bool:
    """Return whether samples of this type and number of axes are images that stay uint8."""
    return dtype == np.uint8 and axes >= 2


def _as_array(value: Any) -> Array:
    """Return an array, a tensor of any device, or a list of such samples as one array."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        return np.asarray(value.float() if value.is_floating_point() else value)  # NumPy has no bfloat16
    if type(value).__module__.startswith("PIL."):
        raise InvalidInput(
            "`data` must hold arrays or tensors of numbers, but got PIL images; convert them to tensors of one shape, "
            "for example with Resize((64, 64)) and PILToTensor() of torchvision.transforms."
        )
    if not isinstance(value, (list, tuple)) or not value:
        return np.asarray(value)
    if hasattr(value[0], "detach") or hasattr(value[0], "__array_interface__"):
        samples = [_as_array(sample) for sample in value]
        for index, sample in enumerate(samples):
            _check_equal(samples[0], index, sample)
        return np.stack(samples)
    try:
        return np.asarray(value)
    except ValueError as error:  # lists of different lengths
        raise InvalidInput(f"`data` must hold samples of one shape, but NumPy reports: {error}") from error


def _check_equal(first: Array, index: int, sample: Array) -> None:
    """Raise if a sample differs from the first in its shape, or if only one of them holds pixels."""
    if sample.shape != first.shape or _are_pixels(sample.dtype, sample.ndim) != _are_pixels(first.dtype, first.ndim):
        raise InvalidInput(
            f"`data` must hold samples of one shape and type, but sample 0 is {first.dtype} of shape {first.shape} "
            f"and sample {index} is {sample.dtype} of shape {sample.shape}; resize, crop or pad the samples."
        )


# Datasets


def _is_map_style(data: Any) -> bool:
    """Return whether an object is read by index. Arrays, tensors and tables, which have a shape, lack labels."""
    from torch.utils.data import Dataset, IterableDataset

    if isinstance(data, (IterableDataset, Mapping, str, bytes)):
        return False
    indexed = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    return indexed and (isinstance(data, Dataset) or library_of(data) == DATASETS or not hasattr(data, "shape"))


def _what_to_pass(data: Any) -> str:
    """Return what to pass instead of some objects."""
    from torch.utils.data import DataLoader, IterableDataset

    if isinstance(data, DataLoader):
        return "; pass its dataset"
    return "; pass a list of its pairs" if isinstance(data, IterableDataset) else ""


def _dataset_tensors(dataset: Any) -> tuple[Any, ...] | None:
    """Return the tensors of a `TensorDataset`, or of a `Subset` of one, without a loop; None for other datasets."""
    from torch import as_tensor
    from torch.utils.data import Subset, TensorDataset

    read = type(dataset).__getitem__  # subclasses may define their own
    if isinstance(dataset, TensorDataset) and read is TensorDataset.__getitem__ and len(dataset.tensors) == 2:
        return dataset.tensors
    if isinstance(dataset, Subset) and read is Subset.__getitem__:
        whole = _dataset_tensors(dataset.dataset)
        return None if whole is None else tuple(tensor[as_tensor(list(dataset.indices))] for tensor in whole)
    return None


def _read(dataset: Any, label_key: str | None, input_key: str | None) -> tuple[Array, Array]:
    """Read every sample of a dataset once; return inputs (N, ...) and labels (N,)."""
    count = len(dataset)
    if count == 0:
        raise InvalidInput("`data` must hold at least one sample, but got an empty dataset.")
    opening = dataset[0]
    keys = _keys(opening, label_key, input_key) if isinstance(opening, Mapping) else None
    first, label = _sample(opening, 0, keys)
    dtype = np.dtype(np.uint8 if _are_pixels(first.dtype, first.ndim) else np.float32)
    size, available = count * first.size * dtype.itemsize, available_memory()
    if available is not None and size > available:
        raise InvalidInput(
            f"`data` must fit into memory, but {count} samples of {dtype} of shape {first.shape} take {in_gib(size)} "
            f"and {in_gib(available)} are available; use smaller or fewer samples, or embeddings of them."
        )
    inputs, labels = np.empty((count, *first.shape), dtype), np.empty(count, np.int64)
    with np.errstate(over="ignore"):  # infinite values are refused when all are read
        inputs[0], labels[0] = first, label
    reported = time.monotonic()
    for index in range(1, count):
        sample, labels[index] = _sample(dataset[index], index, keys)
        _check_equal(first, index, sample)
        with np.errstate(over="ignore"):  # infinite values are refused when all are read
            inputs[index] = sample
        if time.monotonic() - reported > PROGRESS_SECONDS:
            reported = time.monotonic()
            logger.info("read %d of %d samples of the dataset", index + 1, count)
    if not np.array_equal(_sample(dataset[0], 0, keys)[0], first, equal_nan=first.dtype.kind == "f"):
        logger.warning(
            "`data` has random transforms: every sample is read once, so they are drawn once and not in every epoch; "
            "use `augment` for random changes in training"
        )
    return inputs, labels


def _keys(sample: Mapping[str, Any], label: str | None, inputs: str | None) -> tuple[str, str]:
    """Return the keys of input and label of samples that are dictionaries: the given ones, or the usual names."""
    names = list(sample)
    found = []
    for option, given, usual in (("inputs", inputs, INPUT_KEYS), ("label", label, LABEL_KEYS)):
        if given is not None and given not in names:
            raise unknown_name(option, given, names)
        candidates = [given] if given is not None else [name for name in usual if name in names][:1]
        found.append(candidates[0] if candidates else None)
    if found[0] is None and found[1] is not None and len(names) == 2:
        found[0] = next(name for name in names if name != found[1])
    for option, name in zip(("inputs", "label"), found, strict=True):
        if name is None:
            raise InvalidInput(f"`{option}` must be given, one of the keys {listed(names)} of the samples of `data`.")
    return str(found[0]), str(found[1])


def _sample(pair: Any, index: int, keys: tuple[str, str] | None) -> tuple[Array, int]:
    """Return one input as an array of numbers, and its label; `keys` are those of samples that are dictionaries."""
    if keys is not None:
        if not isinstance(pair, Mapping) or any(key not in pair for key in keys):
            raise InvalidInput(f"sample {index} of `data` must have the keys {' and '.join(keys)} of the first.")
        pair = tuple(pair[key] for key in keys)
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        got = f"{len(pair)} values" if isinstance(pair, (tuple, list)) else type(pair).__name__
        raise InvalidInput(f"sample {index} of `data` must be a pair (input, label), but got {got}.")
    sample = _as_array(pair[0])
    if sample.dtype.kind not in "biuf":
        raise InvalidInput(f"sample {index} of `data` must hold numbers, but got {type(pair[0]).__name__}.")
    try:
        label = operator.index(pair[1])
    except TypeError as error:
        got = " ".join(repr(pair[1]).split())[:60]  # one line, also for an array
        raise InvalidInput(f"the label of sample {index} of `data` must be an integer, but got {got}.") from error
    if not 0 <= label < MOST_CLASSES:
        got = str(label) if abs(label) < 2**63 else "one of more than 64 bits"
        raise InvalidInput(
            f"the label of sample {index} of `data` must be an integer in 0..{MOST_CLASSES - 1}, but got {got}; number "
            "the classes from 0."
        )
    return sample, label


def samples_and_labels(data: Any, labels: Any) -> tuple[Any, Any]:
    """Return samples as a DataFrame or an array, and their labels, from data that other libraries hold.

    Args:
        data: a table of any library, a `torch.utils.data.Dataset`, a dataset of `datasets`, or a sequence of texts,
            which becomes a table with the column `TEXT`; other objects are returned as they are.
        labels: labels, the name of the label column of a table, or None for a dataset that holds them.
    """
    from torch.utils.data import Dataset

    if library_of(data) == DATASETS and image_columns(data) and is_table(data):
        raise InvalidInput(
            '`X` must hold arrays or values, but got a dataset of images; pass X.with_format("torch"), with images of '
            "one size."
        )
    if is_table(data):
        frame = as_frame(data)
        if isinstance(labels, str):
            if labels not in frame.columns:
                raise unknown_name("y", labels, map(str, frame.columns), 10)
            return frame.drop(columns=labels), frame[labels]
        return frame, as_labels(labels)
    if isinstance(data, Dataset) or library_of(data) == DATASETS:
        read = as_labelled_data(data, label=labels if isinstance(labels, str) else None)
        return read.inputs, read.labels if labels is None or isinstance(labels, str) else as_labels(labels)
    return (frame_of_texts(data) if _are_texts(data) else data), as_labels(labels)


def frame_of_texts(texts: Any) -> Any:
    """Return a sequence of texts as a table with the column `TEXT`; a Series keeps its index."""
    import pandas as pd

    return pd.DataFrame({TEXT: texts if isinstance(texts, pd.Series) else pd.Series(list(texts), dtype=object)})


def _are_texts(data: Any) -> bool:
    """Return whether an object is a sequence of one or more texts, some of which may be missing."""
    if isinstance(data, np.ndarray) or hasattr(data, "iloc"):
        if data.ndim != 1 or not len(data) or data.dtype.kind in "biufcmM":
            return False
    elif not (isinstance(data, (list, tuple)) and data and isinstance(data[0], (str, type(None)))):
        return False
    return any(isinstance(each, str) for each in data) and all(
        each is None or isinstance(each, (str, float)) for each in data
    )


# Tables


def _first(data: Any) -> Any:
    """Return the inputs of (inputs, labels), or the object itself."""
    return data[0] if isinstance(data, (tuple, list)) and len(data) == 2 else data


def _table_parts(
    train: Any, others: Mapping[str, Any], label: str | None, drop: Collection[str], text: Collection[str]
) -> LabelledParts:
    from s2e.data.table_reader import TableReader

    frame, label = _labelled_frame(train, label)
    reader = TableReader.fit(frame, label, drop=drop, text=text)
    reader.encoder.log_left_out()
    held = {name: reader.samples_of(_labelled_frame(part, label)[0]) for name, part in others.items()}
    return LabelledParts(reader.samples_of(frame), held, reader.encoder)


def _labelled_frame(data: Any, label: str | None) -> tuple[Any, str]:
    """Return a table with a label column, and the name of that column."""
    if isinstance(data, (tuple, list)):
        frame = as_frame(data[0])
        name = label or next(
            name for name in (*LABEL_KEYS, *map(str, range(len(frame.columns) + 1))) if name not in frame
        )
        return frame.assign(**{name: np.asarray(as_labels(data[1]))}), name
    if not is_table(data):
        raise InvalidInput(f"`data` must be a table like the training data, but got {type(data).__name__}.")
    if library_of(data) == DATASETS:
        from s2e.data.hub import table_of

        return table_of(data, label)
    frame = as_frame(data)
    if label is None:
        label = next((name for name in LABEL_KEYS if name in frame), None)
    if label is None:
        raise InvalidInput(f"`label` must be the label column of the table, one of {listed(frame.columns, 20)}.")
    return frame, label


def _image_parts(train: Any, others: Mapping[str, Any], label: str | None) -> LabelledParts:
    from s2e.data.hub import images_of

    source = images_of({"train": train, **others}, label)
    return LabelledParts(source.pop("train"), source, None)
