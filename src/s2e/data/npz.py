"""Labelled samples in the arrays of an .npz file. Nothing is loaded by pickle.

Letters: N samples, C classes, H x W pixels.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from s2e.data.input_readers import ArrayReader
from s2e.data.natural_order import natural_key
from s2e.data.samples import LabelledData, Source
from s2e.errors import InvalidInput, listed, raise_all
from s2e.files.arrays import read_npz

if TYPE_CHECKING:
    from s2e.data.image_encoding import ImageEncoder
    from s2e.data.samples import Array, Labels
    from s2e.data.table_encoding import TableEncoder

FORM = "`x_train`, `y_train` (optional: x_valid, y_valid, x_test, y_test, y_train_clean, class_names) or `x`, `y`"
SPLITS = ("train", "valid", "test")
KEYS = frozenset(
    ["x", "y", "x_train", "y_train", "x_valid", "y_valid", "x_test", "y_test", "y_train_clean", "class_names"]
)


def load_npz(path: Path, encoder: TableEncoder | ImageEncoder | None = None) -> Source:
    """Load the samples of an .npz file; see `source_from_arrays`."""
    return source_from_arrays(read_arrays(path), path.stem, str(path), encoder)


def read_arrays(path: Path) -> dict[str, Array]:
    """Return the arrays of an .npz file that hold samples and labels, under the keys that the file uses."""
    return read_npz(path, lambda found: npz_keys(found, str(path)).values())


def training_labels(arrays: Mapping[str, Array], origin: str) -> tuple[str, Array, Array]:
    """Return the key of the training labels in an .npz file, the labels, (N,), and the label of each class, (C,).

    Labels have the type of those in the file, and are text where those are bytes.
    """
    keys = npz_keys(arrays, origin)
    x, y = keys["x_train"], keys["y_train"]
    raise_all(_label_problems(arrays[y], y, arrays[x], x), origin)
    values = _label_values(arrays[y])
    classes, _ = _known_classes(values, y, arrays.get(keys.get("class_names", "")))
    return (y, values, classes) if values.dtype.kind == "U" else (y, arrays[y], classes.astype(arrays[y].dtype))


def npz_keys(found: Collection[str], origin: str) -> dict[str, str]:
    """Return the key in the file for each array, {"x_train": "X", ...}. Case is ignored."""
    usable = [key for key in found if key.lower() in KEYS]
    keys = {key.lower(): key for key in usable}
    if len(keys) < len(usable):
        raise InvalidInput(
            f"{origin}: keys must differ in more than case, but got {', '.join(sorted(usable))}; remove one."
        )
    short = {"x_train": keys.pop("x", None), "y_train": keys.pop("y", None)}
    if "x_train" not in keys and "y_train" not in keys:
        keys |= {long: key for long, key in short.items() if key is not None}
    needed = {"x_train", "y_train"} | {
        f"{letter}_{split}" for split in SPLITS for letter in "xy" if f"x_{split}" in keys or f"y_{split}" in keys
    }
    missing = sorted(needed - keys.keys())
    if missing:
        raise InvalidInput(
            f"{origin} must hold {FORM}, but {', '.join(missing)} is missing; it holds "
            f"{', '.join(sorted(found)) or 'nothing'}."
        )
    return keys


def source_from_arrays(
    arrays: Mapping[str, Array], name: str, origin: str, encoder: TableEncoder | ImageEncoder | None = None
) -> Source:
    """Return the samples in the arrays of an .npz file, given under the keys that the file uses.

    Inputs (N, F) are the columns x0, x1, … of a table. Images of three or more axes become channels-first; uint8 and
    numbers in [0, 1] are unchanged, others are centred and scaled (`encoders`). The encoder is fitted to the training
    samples unless one is given.

    Labels (N,): strings or non-negative integers. With `class_names`, integers must lie in 0..C-1 and strings must be
    among the names. Without, the classes are the distinct training labels in natural order, so labels 0..C-1 are
    unchanged; the other splits may hold only these labels.

    Problems are reported together: first of single arrays, then of pairs of arrays, then of their values.
    """
    from s2e.data.encoders import encode_array, fit_array  # pandas

    keys = npz_keys(arrays, origin)
    splits = {split: (keys[f"x_{split}"], keys[f"y_{split}"]) for split in SPLITS if f"x_{split}" in keys}
    x_train, y_train = splits["train"]
    y_clean = keys.get("y_train_clean", "")
    x_of = {y: x for x, y in splits.values()} | ({y_clean: x_train} if y_clean else {})  # inputs of each label array
    given_names = arrays.get(keys.get("class_names", ""))

    problems = [problem for x, _ in splits.values() for problem in _input_problems(arrays[x], x)]
    problems += [problem for y, x in x_of.items() for problem in _label_problems(arrays[y], y, arrays[x], x)]
    problems += [] if given_names is None else _class_name_problems(given_names)
    raise_all(problems, origin)

    values = {y: _label_values(arrays[y]) for y in x_of}
    classes, where = _known_classes(values[y_train], y_train, given_names)
    x_keys = [x for x, _ in splits.values()]
    problems = [problem for x in x_keys for problem in _sample_problems(arrays[x], x, arrays[x_train], x_train)]
    problems += [problem for y in x_of for problem in _unknown_label_problems(values[y], y, classes, where)]
    raise_all(problems, origin)
    try:
        encoder = encoder or fit_array(arrays[x_train])
        inputs = {x: encode_array(encoder, arrays[x]) for x in x_keys}
    except InvalidInput as error:
        raise InvalidInput(f"{origin}: {error}") from error

    labels = {y: _encode(values[y], classes) for y in x_of}
    class_names = tuple(_text(classes if given_names is None else given_names).tolist())
    data: dict[str, LabelledData] = {}
    for split, (x, y) in splits.items():
        clean = labels.get(y_clean) if split == "train" else None
        try:
            data[split] = LabelledData(inputs[x], labels[y], class_names, clean)
        except InvalidInput as error:
            problems.append(f"`{x}` and `{y}` cannot be used: {error}")
    raise_all(problems, origin)
    return Source(name, data["train"], data.get("valid"), data.get("test"), reader=ArrayReader(encoder))


def _input_problems(x: Array, key: str) -> list[str]:
    if x.dtype.kind not in "biuf":
        return [f"`{key}` must hold real numbers, but got {x.dtype}; convert it."]
    if x.ndim < 2:
        return [f"`{key}` must have the shape (N, features) or the shape of images, but got {x.shape}; reshape it."]
    if x.size == 0:
        return [f"`{key}` must hold at least one sample of at least one number, but got the shape {x.shape}."]
    return []


def _label_problems(y: Array, key: str, x: Array, x_key: str) -> list[str]:
    problems = []
    if y.ndim != 1:
        problems.append(f"`{key}` must have the shape (N,), one label for each sample, but got {y.shape}; flatten it.")
    elif x.ndim > 0 and len(y) != len(x):
        problems.append(f"`{key}` must hold {len(x)} labels, one for each sample of `{x_key}`, but got {len(y)}.")
    if y.dtype.kind not in "biufUS":
        problems.append(f"`{key}` must hold integers or strings, but got {y.dtype}; convert it.")
    elif y.dtype.kind == "f" and not _is_integral(y).all():
        fractions = _quoted(y[~_is_integral(y)])
        problems.append(f"`{key}` must hold integers or strings, but got {fractions}; labels are classes.")
    elif y.dtype.kind in "if" and (y < 0).any():
        problems.append(f"`{key}` must not be negative, but got {_quoted(y[y < 0])}; remove or relabel those samples.")
    return problems


def _is_integral(values: Array) -> Array:
    numbers = values.astype(np.float64)
    integral: Array = (numbers == np.rint(numbers)) & (np.abs(numbers) < 2**53)  # beyond 2^53 doubles skip integers
    return integral


def _class_name_problems(names: Array) -> list[str]:
    if names.ndim != 1 or names.dtype.kind not in "iuUS":
        return [f"`class_names` must be a list of C names, but got {names.dtype} of shape {names.shape}."]
    distinct, counts = np.unique(names, return_counts=True)
    if (counts > 1).any():
        return [f"`class_names` must be unique, but got more than once: {_quoted(distinct[counts > 1])}."]
    return []


def _sample_problems(inputs: Array, key: str, train: Array, train_key: str) -> list[str]:
    """Return how the samples differ in shape or type from the training samples."""
    problems = []
    if inputs.shape[1:] != train.shape[1:]:
        problems.append(
            f"`{key}` must hold samples of shape {train.shape[1:]} like `{train_key}`, but got {inputs.shape[1:]}."
        )
    if train.ndim > 2 and (inputs.dtype == np.uint8) != (train.dtype == np.uint8):
        problems.append(
            f"`{key}` must be {train.dtype} like `{train_key}`, but got {inputs.dtype}; "
            f"networks receive uint8 divided by 255 and float32 unchanged, so convert both to one type."
        )
    return problems


def _unknown_label_problems(values: Array, key: str, classes: Array, where: str) -> list[str]:
    if values.dtype.kind != classes.dtype.kind:
        expected, got = ("strings", "integers") if classes.dtype.kind == "U" else ("integers", "strings")
        return [f"`{key}` must hold {expected} like the training labels, but got {got}."]
    unknown = _quoted(values[~np.isin(values, classes)])
    if unknown:
        return [f"`{key}` must hold only labels in {where}, but got {unknown}; correct or remove those samples."]
    return []


def _label_values(y: Array) -> Array:
    """Return labels (N,) as strings or int64."""
    return _text(y) if y.dtype.kind in "US" else y.astype(np.int64)


def _text(values: Array) -> Array:
    """Return names as strings; invalid UTF-8 bytes are escaped, so that different names stay different."""
    return np.char.decode(values, "utf-8", "backslashreplace") if values.dtype.kind == "S" else values.astype(np.str_)


def _known_classes(train_labels: Array, y_train: str, given_names: Array | None) -> tuple[Array, str]:
    """Return the label value of each class, (C,), and where they are defined, for error messages."""
    if given_names is None:
        distinct = np.unique(train_labels)
        if distinct.dtype.kind == "U":  # in the order of the classes of a table
            distinct = np.array(sorted(distinct.tolist(), key=natural_key), dtype=distinct.dtype)
        return distinct, f"`{y_train}`"
    if train_labels.dtype.kind == "U":
        return _text(given_names), "`class_names`"
    return np.arange(len(given_names)), f"0..{len(given_names) - 1}, the positions in `class_names`"


def _encode(values: Array, classes: Array) -> Labels:
    """Return the class index of every label value, (N,); every value must be among the classes."""
    order = np.argsort(classes)
    return order[np.searchsorted(classes, values, sorter=order)].astype(np.int64)


def _quoted(values: Array) -> str:
    return listed(map(repr, np.unique(values).tolist()))
