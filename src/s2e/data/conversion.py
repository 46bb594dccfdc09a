"""Convert arrays, tensors and map-style datasets of PyTorch to `LabelledData`.

Letters: N samples, C classes.
"""

from __future__ import annotations

import logging
import operator
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from s2e.data.samples import LabelledData
from s2e.errors import InvalidInput
from s2e.files.memory import available_memory, in_gib

if TYPE_CHECKING:
    from s2e.data.samples import Array

logger = logging.getLogger(__name__)

PROGRESS_SECONDS = 5.0
"""Seconds between two messages while a dataset is read."""


def as_labelled_data(data: Any, class_names: tuple[str, ...] | None = None) -> LabelledData:
    """Convert (inputs, labels) as arrays or tensors, or a map-style dataset of such pairs, to `LabelledData`.

    A `torch.utils.data.Dataset` is read into memory once, in order, so its random transforms are drawn once for every
    sample. uint8 images (three or more axes with that of the samples) stay uint8; all other numbers become float32.
    Labels are integers in 0..C-1; without `class_names`, C is the largest label plus one.

    Raises:
        InvalidInput: samples of different shapes, samples that are not numbers (for example PIL images), labels that
            are not integers, or a dataset that exceeds the available memory.
    """
    if isinstance(data, LabelledData):
        return data
    if isinstance(data, (tuple, list)) and len(data) == 2:
        inputs, labels = (_as_array(array) for array in data)
    elif _is_map_style(data):
        tensors = _dataset_tensors(data)
        inputs, labels = _read(data) if tensors is None else map(_as_array, tensors)
    else:
        raise InvalidInput(
            f"`data` must be (inputs, labels) or a dataset of such pairs, with `__getitem__` and `__len__`, but got "
            f"{type(data).__name__}{_what_to_pass(data)}."
        )
    if labels.dtype.kind not in "iu" or labels.ndim != 1 or labels.size == 0:
        raise InvalidInput(f"`labels` must be integers of shape (N,), but got {labels.dtype} of shape {labels.shape}.")
    if inputs.dtype.kind not in "biuf" or inputs.ndim == 0:
        raise InvalidInput(
            f"`inputs` must be numbers of shape (N, ...), but got {inputs.dtype} of shape {inputs.shape}."
        )
    if not _are_pixels(inputs.dtype, inputs.ndim - 1):
        inputs = inputs.astype(np.float32, copy=False)
    names = class_names or tuple(str(label) for label in range(int(labels.max()) + 1))
    inputs = np.require(inputs, requirements=["C_CONTIGUOUS", "WRITEABLE"])  # PyTorch warns about read-only arrays
    return LabelledData(inputs, labels.astype(np.int64), names)


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
    return indexed and (isinstance(data, Dataset) or not hasattr(data, "shape"))


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


def _read(dataset: Any) -> tuple[Array, Array]:
    """Read every sample of a dataset once; return inputs (N, ...) and labels (N,)."""
    count = len(dataset)
    if count == 0:
        raise InvalidInput("`data` must hold at least one sample, but got an empty dataset.")
    first, label = _sample(dataset, 0)
    dtype = np.dtype(np.uint8 if _are_pixels(first.dtype, first.ndim) else np.float32)
    size, available = count * first.size * dtype.itemsize, available_memory()
    if available is not None and size > available:
        raise InvalidInput(
            f"`data` must fit into memory, but {count} samples of {dtype} of shape {first.shape} take {in_gib(size)} "
            f"and {in_gib(available)} are available; use smaller or fewer samples, or embeddings of them."
        )
    inputs, labels = np.empty((count, *first.shape), dtype), np.empty(count, np.int64)
    inputs[0], labels[0] = first, label
    reported = time.monotonic()
    for index in range(1, count):
        sample, labels[index] = _sample(dataset, index)
        _check_equal(first, index, sample)
        inputs[index] = sample
        if time.monotonic() - reported > PROGRESS_SECONDS:
            reported = time.monotonic()
            logger.info("read %d of %d samples of the dataset (%s)", index + 1, count, in_gib(size))
    return inputs, labels


def _sample(dataset: Any, index: int) -> tuple[Array, int]:
    """Return one input as an array of numbers, and its label."""
    pair = dataset[index]
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        got = f"{len(pair)} values" if isinstance(pair, (tuple, list)) else type(pair).__name__
        raise InvalidInput(f"sample {index} of `data` must be a pair (input, label), but got {got}.")
    sample = _as_array(pair[0])
    if sample.dtype.kind not in "biuf":
        raise InvalidInput(f"sample {index} of `data` must hold numbers, but got {type(pair[0]).__name__}.")
    try:
        return sample, operator.index(pair[1])
    except TypeError as error:
        got = " ".join(repr(pair[1]).split())[:60]  # one line, also for an array
        raise InvalidInput(f"the label of sample {index} of `data` must be an integer, but got {got}.") from error
