"""What data files mean: IDX, CIFAR's binary and Python forms, the arrays of an .npz. Pure: contents in, arrays out.

`origin` is the file's name for errors. A file that cannot be what it should be is `UnreadableData`; a readable file
with the wrong contents is `InvalidInput`. Letters: N samples, C classes, H x W pixels.
"""

from __future__ import annotations

import io
import math
import pickle
import struct
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from s2e.data.samples import LabelledData, Source
from s2e.errors import InvalidInput, UnreadableData

if TYPE_CHECKING:
    from s2e.data.samples import Array, Labels

Files = Mapping[str, bytes]
"""Files of one part of a data set, in order: their contents under their names."""

CIFAR_SHAPE = (3, 32, 32)
CIFAR_PIXELS = math.prod(CIFAR_SHAPE)
IDX_UNSIGNED_BYTE = 0x08
NPZ_FORM = "`x_train`, `y_train` (optional: x_valid, y_valid, x_test, y_test, y_train_clean, class_names) or `x`, `y`"
PARTS = ("train", "valid", "test")
NPZ_KEYS = frozenset(
    ["x", "y", "x_train", "y_train", "x_valid", "y_valid", "x_test", "y_test", "y_train_clean", "class_names"]
)


# IDX: the form of MNIST and Fashion-MNIST


def parse_idx_part(files: Files, classes: int) -> tuple[Array, Labels]:
    """Return images (N, 1, H, W) uint8 and labels (N,) of two IDX files, images first."""
    (images_name, images_content), (labels_name, labels_content) = files.items()
    images = parse_idx(images_content, 3, images_name)  # (N, H, W)
    labels = parse_idx(labels_content, 1, labels_name).astype(np.int64)
    if len(images) != len(labels):
        raise InvalidInput(
            f"{labels_name} must hold {len(images)} labels, one for each image of {images_name}, "
            f"but got {len(labels)}; replace both by the published files."
        )
    check_label_range(labels, classes, labels_name)
    return images[:, None], labels


def parse_idx(content: bytes, dimensions: int, origin: str) -> Array:
    """Return the unsigned bytes of an IDX file: (N, H, W) for images, (N,) for labels."""
    magic = bytes([0, 0, IDX_UNSIGNED_BYTE, dimensions])
    if content[:4] != magic:
        raise UnreadableData(
            f"{origin} must be an IDX file of unsigned bytes in {dimensions} dimension(s), beginning with "
            f"{magic.hex(' ')}, but it begins with {content[:4].hex(' ') or 'nothing'}; "
            f"replace it by the published file."
        )
    header = 4 + 4 * dimensions
    if len(content) < header:
        raise UnreadableData(f"{origin} is truncated: it ends within its header; copy or download it again.")
    shape = struct.unpack_from(f">{dimensions}I", content, 4)
    if len(content) - header != math.prod(shape):
        raise UnreadableData(
            f"{origin} must hold {math.prod(shape)} bytes of data for the shape {shape} in its header, but got "
            f"{len(content) - header}; it is truncated or corrupted: copy or download it again."
        )
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape).copy()  # writable, as torch wants it


# CIFAR


def parse_cifar_binary_part(files: Files, classes: int) -> tuple[Array, Labels]:
    """Return images (N, 3, 32, 32) uint8 and labels (N,) of files of records: labels, then pixels, one byte each.

    CIFAR-10 has one label in a record; CIFAR-100 has two, the coarse one first, and the fine one is returned.
    """
    label_bytes = 2 if classes == 100 else 1
    record = label_bytes + CIFAR_PIXELS
    for origin, content in files.items():
        if not content or len(content) % record:
            raise UnreadableData(
                f"{origin} must hold records of {record} bytes each, but got {len(content)} bytes, which is not a "
                f"positive multiple; it is truncated or of another kind: copy or download it again."
            )
        check_label_range(np.frombuffer(content, dtype=np.uint8)[label_bytes - 1 :: record], classes, origin)
    records = np.concatenate([np.frombuffer(content, dtype=np.uint8) for content in files.values()])
    records = records.reshape(-1, record)  # (N, label_bytes + 3072)
    images = np.ascontiguousarray(records[:, label_bytes:]).reshape(-1, *CIFAR_SHAPE)  # (N, 3, 32, 32)
    return images, records[:, label_bytes - 1].astype(np.int64)


def parse_cifar_pickle_part(files: Files, classes: int) -> tuple[Array, Labels]:
    """Return images (N, 3, 32, 32) uint8 and labels (N,), fine ones in CIFAR-100, of files in CIFAR's Python form."""
    batches = [_parse_cifar_pickle(content, classes, origin) for origin, content in files.items()]
    return np.concatenate([images for images, _ in batches]), np.concatenate([labels for _, labels in batches])


def _parse_cifar_pickle(content: bytes, classes: int, origin: str) -> tuple[Array, Labels]:
    batch = _unpickle(content, origin)
    label_key = "fine_labels" if classes == 100 else "labels"
    images, labels = batch.get("data"), batch.get(label_key)
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.shape[1:] != (CIFAR_PIXELS,):
        got = f"{images.dtype} {images.shape}" if isinstance(images, np.ndarray) else _type_name(images)
        raise InvalidInput(f"{origin}: `data` must be a uint8 array of shape (N, {CIFAR_PIXELS}), but got {got}.")
    if not isinstance(labels, list) or not all(isinstance(label, int) for label in labels):
        raise InvalidInput(f"{origin}: `{label_key}` must be a list of integers, but got {_type_name(labels)}.")
    if len(labels) != len(images):
        raise InvalidInput(f"{origin}: `{label_key}` must hold {len(images)} labels as `data`, but got {len(labels)}.")
    values = np.asarray(labels, dtype=np.int64)
    check_label_range(values, classes, origin)
    return images.reshape(-1, *CIFAR_SHAPE), values


def parse_pickled_names(content: bytes, origin: str) -> tuple[str, ...]:
    """Return the class names, fine ones in CIFAR-100, of the meta file of CIFAR's Python form."""
    meta = _unpickle(content, origin)
    names = meta.get("fine_label_names", meta.get("label_names"))
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidInput(f"{origin}: the class names must be a list of strings, but got {_type_name(names)}.")
    return tuple(names)


def parse_name_lines(content: bytes, origin: str) -> tuple[str, ...]:
    """Return the class names of a text file with one name on each line; blank lines do not count."""
    try:
        lines = content.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise UnreadableData(f"{origin} must be a text file with one class name on each line; replace it.") from error
    return tuple(line.strip() for line in lines if line.strip())


def check_label_range(labels: Array, classes: int, origin: str) -> None:
    """Refuse labels outside 0..C-1, naming the file they come from."""
    outside = np.unique(labels[(labels < 0) | (labels >= classes)]).tolist()
    if outside:
        raise InvalidInput(
            f"{origin}: labels must lie in 0..{classes - 1}, but got {_listed(outside)}; "
            f"replace the file by the published one."
        )


def _encode_latin1(text: str, encoding: str) -> bytes:
    """Stand in for `_codecs.encode`, which is how Python 3 writes bytes into an old pickle, in latin1 always."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"unexpected encoding {encoding!r}")
    return text.encode("latin1")


# Taken from an array, because the module it lives in was renamed in NumPy 2.
_RECONSTRUCT_ARRAY = np.empty(0).__reduce__()[0]
_ADMITTED_IN_PICKLES: Mapping[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT_ARRAY,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT_ARRAY,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _encode_latin1,
}


class _CifarUnpickler(pickle.Unpickler):
    """Unpickler of arrays and plain values that resolves nothing else: a file cannot make it run code."""

    def __init__(self, content: bytes, origin: str) -> None:
        super().__init__(io.BytesIO(content), encoding="latin1")  # the published files were written by Python 2
        self.origin = origin

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ADMITTED_IN_PICKLES[module, name]
        except KeyError:
            raise UnreadableData(
                f"{self.origin} holds something a CIFAR file never does ({module}.{name}) and was not loaded; "
                f"do not trust it: download the data set from its authors."
            ) from None


def _unpickle(content: bytes, origin: str) -> dict[str, Any]:
    try:
        value = _CifarUnpickler(content, origin).load()
    except UnreadableData:
        raise
    except Exception as error:  # the bytes of a damaged pickle are instructions at random: they can raise anything
        raise UnreadableData(
            f"{origin} must be a CIFAR pickle, but reading it failed ({error}); "
            f"it is truncated or corrupted: copy or download it again."
        ) from error
    if not isinstance(value, dict):
        raise InvalidInput(f"{origin} must hold a dictionary, but got {_type_name(value)}; is it a CIFAR file?")
    return value


# .npz


def npz_keys(found: Collection[str], origin: str) -> dict[str, str]:
    """Return which key of the file holds what: {"x_train": "X", ...}. Upper and lower case are not told apart."""
    usable = [key for key in found if key.lower() in NPZ_KEYS]
    keys = {key.lower(): key for key in usable}
    if len(keys) < len(usable):
        raise InvalidInput(
            f"{origin}: keys must differ in more than case, but got {', '.join(sorted(usable))}; remove one."
        )
    short = {"x_train": keys.pop("x", None), "y_train": keys.pop("y", None)}
    if "x_train" not in keys and "y_train" not in keys:
        keys |= {long: key for long, key in short.items() if key is not None}
    needed = {"x_train", "y_train"} | {
        f"{letter}_{part}" for part in PARTS for letter in "xy" if f"x_{part}" in keys or f"y_{part}" in keys
    }
    missing = sorted(needed - keys.keys())
    if missing:
        raise InvalidInput(
            f"{origin} must hold {NPZ_FORM}, but lacks {', '.join(missing)}; it holds "
            f"{', '.join(sorted(found)) or 'nothing'}."
        )
    return keys


def source_from_arrays(arrays: Mapping[str, Array], name: str, origin: str) -> Source:
    """Return the samples in the arrays of an .npz file, under the keys the file uses.

    Inputs: uint8 stays uint8 in image-like arrays (three dimensions or more); every other number becomes float32.
    Images (N, H, W) become (N, 1, H, W), and (N, H, W, C) with C in {1, 3, 4} and H, W > 4 becomes channels-first
    (N, C, H, W).

    Labels (N,): strings or integers that are not negative. With `class_names`, integers must lie in 0..C-1 and strings
    must be among the names. Without, the classes are the sorted distinct labels of the training part, so that labels
    0..C-1 stay what they are; no other part may hold a label that the training part does not.

    Problems are reported together: first of single arrays, then of arrays against each other, then of their values.
    """
    keys = npz_keys(arrays, origin)
    parts = {part: (keys[f"x_{part}"], keys[f"y_{part}"]) for part in PARTS if f"x_{part}" in keys}
    x_train, y_train = parts["train"]
    y_clean = keys.get("y_train_clean", "")
    x_of = {y: x for x, y in parts.values()} | ({y_clean: x_train} if y_clean else {})  # each label array's inputs
    given_names = arrays.get(keys.get("class_names", ""))

    problems = [problem for x, _ in parts.values() for problem in _input_problems(arrays[x], x)]
    problems += [problem for y, x in x_of.items() for problem in _label_problems(arrays[y], y, arrays[x], x)]
    problems += [] if given_names is None else _class_name_problems(given_names)
    _raise_all(problems, origin)

    inputs = {x: _as_inputs(arrays[x]) for x, _ in parts.values()}
    values = {y: _label_values(arrays[y]) for y in x_of}
    classes, where = _known_classes(values[y_train], y_train, given_names)
    problems = [problem for x in inputs for problem in _sample_problems(inputs[x], x, inputs[x_train], x_train)]
    problems += [problem for y in x_of for problem in _unknown_label_problems(values[y], y, classes, where)]
    _raise_all(problems, origin)

    labels = {y: _encode(values[y], classes) for y in x_of}
    class_names = tuple(_text(classes if given_names is None else given_names).tolist())
    made: dict[str, LabelledData] = {}
    for part, (x, y) in parts.items():
        clean = labels.get(y_clean) if part == "train" else None
        try:
            made[part] = LabelledData(inputs[x], labels[y], class_names, clean)
        except InvalidInput as error:
            problems.append(f"`{x}` and `{y}` cannot be used: {error}")
    _raise_all(problems, origin)
    return Source(name, made["train"], made.get("valid"), made.get("test"))


def _input_problems(x: Array, key: str) -> list[str]:
    if x.dtype.kind not in "biuf":
        return [f"`{key}` must hold real numbers, but got {x.dtype}; convert it."]
    if x.ndim < 2:
        return [f"`{key}` must have the shape (N, features) or that of images, but got {x.shape}; reshape it."]
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
        wrong = _listed(np.unique(y[~_is_integral(y)]).tolist())
        problems.append(f"`{key}` must hold whole numbers, but got {wrong}; labels are classes, not quantities.")
    elif y.dtype.kind in "if" and (y < 0).any():
        negative = _listed(np.unique(y[y < 0]).tolist())
        problems.append(f"`{key}` must not hold negative numbers, but got {negative}; remove or relabel those samples.")
    return problems


def _is_integral(values: Array) -> Array:
    integral: Array = (values == np.rint(values)) & (np.abs(values) < 2**53)  # beyond 2^53 doubles skip integers
    return integral


def _class_name_problems(names: Array) -> list[str]:
    if names.ndim != 1 or names.dtype.kind not in "iuUS":
        return [f"`class_names` must be a list of C names, but got {names.dtype} of shape {names.shape}."]
    distinct, counts = np.unique(names, return_counts=True)
    if (counts > 1).any():
        return [f"`class_names` must differ from each other, but got twice: {_listed(distinct[counts > 1].tolist())}."]
    return []


def _sample_problems(inputs: Array, key: str, train: Array, train_key: str) -> list[str]:
    """Refuse a part whose samples differ in kind from those of training; both arrays are already converted."""
    problems = []
    if inputs.shape[1:] != train.shape[1:]:
        problems.append(
            f"`{key}` must hold samples of shape {train.shape[1:]} as `{train_key}` does, but got {inputs.shape[1:]}."
        )
    if inputs.dtype != train.dtype:
        problems.append(
            f"`{key}` must be {train.dtype} as `{train_key}` is, but got {inputs.dtype}; "
            f"uint8 is scaled by 1/255 in use and float32 is not, so convert both to one."
        )
    return problems


def _unknown_label_problems(values: Array, key: str, classes: Array, where: str) -> list[str]:
    if values.dtype.kind != classes.dtype.kind:
        wanted, got = ("strings", "integers") if classes.dtype.kind == "U" else ("integers", "strings")
        return [f"`{key}` must hold {wanted} as the training labels do, but got {got}."]
    unknown = _listed(np.unique(values[~np.isin(values, classes)]).tolist())
    if unknown:
        return [f"`{key}` must hold only labels in {where}, but got {unknown}; correct or remove those samples."]
    return []


def _as_inputs(x: Array) -> Array:
    """Return the inputs as uint8 images or float32, channels first; see `source_from_arrays`."""
    if x.dtype != np.uint8 or x.ndim < 3:
        with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is then refused as such
            x = x.astype(np.float32)
    if x.ndim == 3:
        x = x[:, None]  # (N, 1, H, W)
    elif x.ndim == 4 and x.shape[3] in (1, 3, 4) and min(x.shape[1:3]) > 4:
        x = x.transpose(0, 3, 1, 2)  # (N, C, H, W)
    return np.ascontiguousarray(x)


def _label_values(y: Array) -> Array:
    """Return labels (N,) as strings or int64."""
    return _text(y) if y.dtype.kind in "US" else y.astype(np.int64)


def _text(values: Array) -> Array:
    """Return names as strings; numbers are written out, and bytes that are not UTF-8 stay distinct."""
    return np.char.decode(values, "utf-8", "backslashreplace") if values.dtype.kind == "S" else values.astype(np.str_)


def _known_classes(train_labels: Array, y_train: str, given_names: Array | None) -> tuple[Array, str]:
    """Return the label value of each class, (C,), in the order of the classes, and where an error says they are."""
    if given_names is None:
        return np.unique(train_labels), f"`{y_train}`"
    if train_labels.dtype.kind == "U":
        return _text(given_names), "`class_names`"
    return np.arange(len(given_names)), f"0..{len(given_names) - 1}, the positions in `class_names`"


def _encode(values: Array, classes: Array) -> Labels:
    """Return the class index of every label value, (N,); every value must be among the classes."""
    order = np.argsort(classes)
    return order[np.searchsorted(classes, values, sorter=order)].astype(np.int64)


# Sentences


def _raise_all(problems: Iterable[str], origin: str) -> None:
    text = " ".join(problems)
    if text:
        raise InvalidInput(f"{origin}: {text}")


def _listed(values: list[Any], most: int = 5) -> str:
    return ", ".join(repr(value) for value in values[:most]) + (", …" if len(values) > most else "")


def _type_name(value: object) -> str:
    return "nothing" if value is None else type(value).__name__
