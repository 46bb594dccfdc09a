"""Load a data set by name or path, in any of the supported formats.

A published data set is read from the root folder, in a layout that its authors publish (`catalogue.Layout`), and is
downloaded there when missing (`downloads`). Tables, image folders, .npz files and data sets of the Hugging Face Hub
are read by the module of their format.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from s2e.data.catalogue import CATALOGUE, HUMAN_LABEL_KEYS, DatasetInfo, Layout
from s2e.data.downloads import find_layout, is_stored, stored_file
from s2e.data.files import SPREADSHEET_SUFFIXES, TABLE_SUFFIXES
from s2e.data.hub import PREFIX, HubTable, load_hub
from s2e.data.image_folders import read_image_folder
from s2e.data.npz import load_npz
from s2e.data.published_formats import check_label_range, parse_class_names
from s2e.data.samples import LabelledData, Source, hold_out
from s2e.errors import InvalidInput, UnreadableData, listed, unknown_name
from s2e.files.arrays import read_npz
from s2e.files.regular import read_decompressed

if TYPE_CHECKING:
    import pandas as pd

    from s2e.data.samples import Labels
    from s2e.data.table_reader import TableReader

CONSENSUS = "label"
"""Name of the column for the consensus of several annotators, where no other is given."""

DIGITS_TEST_SHARE = 0.2
DIGITS_TEST_SEED = 0
FORMS = "a table (.csv, .tsv, .jsonl or .parquet), a folder of class folders of images, an .npz file, or hf:NAME"


def load(
    name_or_path: str | os.PathLike[str],
    root: Path | str = "data",
    *,
    download: bool = True,
    label: str | None = None,
    id_column: str | None = None,
    image_size: int | None = None,
    annotators: Sequence[str] = (),
    annotations: str = "",
    annotation_columns: Sequence[str] = (),
    drop: Collection[str] = (),
    text: Collection[str] = (),
) -> Source:
    """Load a data set by name or path.

    Args:
        name_or_path: a name in `available()`; the path of a table (`table_columns`), of a folder of class folders of
            images (`image_folders`) or of an .npz file (`npz`); or hf:NAME for a data set of the Hugging Face Hub
            (`hub`).
        root: folder of the published data sets.
        download: whether to download a published data set that is missing under the root.
        label: label column of a table.
        id_column: column of a table that identifies its rows.
        image_size: side in pixels to which images of a folder or of the Hub are resized; chosen from them when None.
        annotators: columns of a table that hold the labels of several annotators. The labels are their consensus, and
            `label` is a name for it, "label" when not given.
        annotations: path of a table with a row for each label of an annotator, whose items are values of `id_column`;
            instead of `annotators`.
        annotation_columns: its columns of items, annotators and labels; detected by their names when empty.
        drop: columns of a table to leave out.
        text: columns of a table with free text to learn from.

    Returns:
        Training samples, and validation and test samples where the data set has them. `digits` are float32
        (N, 1, 8, 8) in [0, 1]; `mnist` and `fashion-mnist` uint8 (N, 1, 28, 28); `cifar10` and `cifar100` uint8
        (N, 3, 32, 32).
    """
    name = os.fspath(name_or_path)
    columns = _Columns(label or None, id_column or None, tuple(drop), tuple(text))
    crowd = _Crowd(tuple(annotators), annotations, tuple(annotation_columns))
    if name not in CATALOGUE:
        return _load_path(name, columns, image_size, crowd)
    crowd.check_none(name)
    columns.check_none(name)
    _check_no_image_size(name, image_size)
    info = CATALOGUE[name]
    return load_published(info, Path(root), download=download) if info.layouts else _load_digits(info)


def available() -> tuple[DatasetInfo, ...]:
    """Return the data sets that can be loaded by name."""
    return tuple(CATALOGUE.values())


def needs_download(name: str, root: Path | str = "data") -> bool:
    """Return whether a data set would have to be downloaded: it is published, and not under the root."""
    info = CATALOGUE.get(name)
    return info is not None and bool(info.layouts) and not is_stored(info, Path(root))


def human_labels(name: str, kind: str, root: Path | str = "data") -> Labels:
    """Return labels that people gave to the training samples (CIFAR-N), (N,) in the order of CIFAR's files.

    Read from `cifar-n/cifar10n.npz` or `cifar-n/cifar100n.npz` under the root. In the latter, `order_certain` is false
    for the few samples whose order is uncertain; they are returned like all others.
    """
    if name not in HUMAN_LABEL_KEYS:
        raise InvalidInput(f"{unknown_name('name', name, HUMAN_LABEL_KEYS)} No other data set has human labels.")
    if kind not in HUMAN_LABEL_KEYS[name]:
        raise unknown_name(f"kind of human labels of {name}", kind, HUMAN_LABEL_KEYS[name])
    key, path = HUMAN_LABEL_KEYS[name][kind], Path(root) / "cifar-n" / f"{name}n.npz"
    if not path.is_file():
        raise UnreadableData(
            f"{path} does not exist; put the CIFAR-N labels of {name} there as an .npz file with the key `{key}`."
        )

    def select(found: Collection[str]) -> list[str]:
        if key not in found:
            raise InvalidInput(f"{path} must hold the key `{key}`, but holds {', '.join(found) or 'nothing'}.")
        return [key]

    labels = read_npz(path, select)[key]
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise InvalidInput(f"{path}: `{key}` must hold integers (N,), but got {labels.dtype} {labels.shape}.")
    labels = labels.astype(np.int64)
    check_label_range(labels, CATALOGUE[name].classes, str(path))
    return labels


# Published data sets


def load_published(info: DatasetInfo, root: Path, *, download: bool) -> Source:
    """Load a data set from the first complete layout under the root, or download it."""
    layout = find_layout(info, root, download=download)
    folder = root / layout.folder
    class_names = _read_class_names(info, layout, folder)

    def read(names: tuple[str, ...]) -> LabelledData:
        paths = [path for path in (stored_file(folder / name) for name in names) if path is not None]
        inputs, labels = layout.parse({str(path): read_decompressed(path) for path in paths}, info.classes)
        return LabelledData(inputs, labels, class_names)

    train, test = read(layout.train), read(layout.test)
    if train.sample_shape != test.sample_shape:
        raise InvalidInput(
            f"{folder}: the test images must have the shape {train.sample_shape} of the training images, "
            f"but got {test.sample_shape}; replace the files by the published ones."
        )
    return Source(info.name, train, test=test)


def _read_class_names(info: DatasetInfo, layout: Layout, folder: Path) -> tuple[str, ...]:
    path = None if layout.names_file is None else stored_file(folder / layout.names_file)
    if path is None:
        return info.class_names
    names = parse_class_names(read_decompressed(path), str(path))
    if len(names) != info.classes:
        raise InvalidInput(f"{path} must name {info.classes} classes, but got {len(names)}; replace or remove it.")
    return names


def _load_digits(info: DatasetInfo) -> Source:
    """Return scikit-learn's digits, float32 (N, 1, 8, 8), always with the same test samples."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    inputs = (digits.images / 16).astype(np.float32)[:, None]  # (1797, 1, 8, 8): grey levels are 0..16
    data = LabelledData(inputs, digits.target.astype(np.int64), info.class_names)
    train, test = hold_out(data, DIGITS_TEST_SHARE, np.random.default_rng(DIGITS_TEST_SEED))
    return Source(info.name, train, test=test)


# Paths and the Hub


class _Crowd(NamedTuple):
    """Where the labels of several annotators are; nowhere if all are empty."""

    annotators: tuple[str, ...]
    annotations: str
    columns: tuple[str, ...]

    def check_none(self, name: str) -> None:
        """Raise if annotators are named for data that are no table."""
        for option, value in (("annotators", ",".join(self.annotators)), ("annotations", self.annotations)):
            if value:
                raise InvalidInput(f"`{option}` must be given for tables only, but got {value!r} for {name}; omit it.")


@dataclass(frozen=True)
class _Columns:
    """The columns of a table that are named."""

    label: str | None
    id_column: str | None
    drop: tuple[str, ...]
    text: tuple[str, ...]

    def check_none(self, name: str) -> None:
        """Raise if columns are named for data that are no table."""
        for option, column in vars(self).items():
            if column:
                raise InvalidInput(f"`{option}` must be given for tables only, but got {column!r} for {name}; omit it.")

    def reader(self, frame: pd.DataFrame, label: str) -> TableReader:
        """Return a reader fitted to a table."""
        from s2e.data.table_reader import TableReader

        return TableReader.fit(frame, label, self.id_column, drop=self.drop, text=self.text)


def _load_path(name: str, columns: _Columns, image_size: int | None, crowd: _Crowd) -> Source:
    if name.startswith(PREFIX):
        crowd.check_none(name)
        return _load_hub(name, columns, image_size)
    path = Path(name)
    try:
        exists = path.exists()
    except OSError as error:
        raise UnreadableData(f"{name[:40]}… cannot be a path: {error.strerror}.") from error
    if path.name.lower().endswith(TABLE_SUFFIXES):
        _check_no_image_size(name, image_size)
        return _load_table(path, columns, crowd)
    if path.name.lower().endswith(SPREADSHEET_SUFFIXES):
        raise InvalidInput(f"{name} must be {FORMS}, but is a spreadsheet; save it as CSV UTF-8.")
    crowd.check_none(name)
    columns.check_none(name)
    if path.is_dir():
        return read_image_folder(path, side=image_size)
    _check_no_image_size(name, image_size)
    if path.suffix.lower() == ".npz":
        return load_npz(path)
    if exists:
        raise InvalidInput(f"{name} must be {FORMS}, but has another format; convert it.")
    raise InvalidInput(f"{unknown_name('name_or_path', name, CATALOGUE)} Or pass the path of {FORMS}.")


def _check_no_image_size(name: str, image_size: int | None) -> None:
    if image_size is not None:
        raise InvalidInput(
            f"`image_size` must be given for a folder of images or images of the Hub only, but got {image_size} for "
            f"{name}; omit it."
        )


def _load_table(path: Path, columns: _Columns, crowd: _Crowd) -> Source:
    from s2e.data.table_files import read_table

    frame, label, consensus = read_table(path), columns.label, None
    if crowd.annotators or crowd.annotations:
        from s2e.data.aggregation import with_consensus

        label = label or CONSENSUS
        frame, consensus = with_consensus(frame, str(path), label, columns.id_column, *crowd)
    if label is None:
        names = listed(frame.columns, 20)
        raise InvalidInput(f"`label` must be the label column of {path}, one of {names}, but got none.")
    reader = columns.reader(frame, label)
    train = reader.samples_of(frame)
    if consensus is not None:
        train = replace(train, annotations=consensus.annotations_of(train.class_names))
    return Source(path.stem, train, ids=tuple(reader.ids_of(frame)), reader=reader, crowd=consensus)


def _load_hub(name: str, columns: _Columns, image_size: int | None) -> Source:
    loaded = load_hub(name, label=columns.label, side=image_size)
    if not isinstance(loaded, HubTable):
        return loaded
    reader = columns.reader(loaded.train, loaded.label)
    valid, test = (None if frame is None else reader.samples_of(frame) for frame in (loaded.valid, loaded.test))
    ids = tuple(reader.ids_of(loaded.train))
    return Source(loaded.name, reader.samples_of(loaded.train), valid, test, ids, reader)
