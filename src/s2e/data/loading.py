"""Load a data set by name or from a file: the only module that reads or downloads data.

A published data set is looked for under a root folder in the layouts its authors publish (`Layout`), and downloaded
there when it is in none of them. Everything that differs between data sets is in `catalogue.py`; the code is common.
"""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import logging
import os
import tarfile
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from shutil import copyfileobj, rmtree
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from uuid import uuid4

import numpy as np

from s2e.data.catalogue import CATALOGUE, HUMAN_LABEL_KEYS, DatasetInfo, Layout, RemoteFile
from s2e.data.published_formats import check_label_range, npz_keys, source_from_arrays
from s2e.data.samples import LabelledData, Source, hold_out
from s2e.errors import InvalidInput, S2EError, UnreadableData, unknown_name
from s2e.interrupts import tidied_by

if TYPE_CHECKING:
    from s2e.data.samples import Array, Labels

logger = logging.getLogger(__name__)

DOWNLOAD_TIMEOUT_S = 30.0
"""How long a server may stay silent."""

HUB = "hf:"
TABLE_ENDINGS = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")

SCRATCH = ".download-"
"""How the names of the folders begin into which files are downloaded."""

DIGITS_TEST_SHARE = 0.2
DIGITS_TEST_SEED = 0
FORMS = "a table (.csv, .tsv or .parquet), a folder of class folders of images, an .npz file, or hf:NAME"


def load(
    name_or_path: str | os.PathLike[str],
    root: Path | str = "data",
    *,
    download: bool = True,
    label: str | None = None,
    id_column: str | None = None,
) -> Source:
    """Load a data set by name, or from files of one's own.

    Args:
        name_or_path: a name in `available()`; a path to a table (`tabular` says what becomes of its columns), to a
            folder of class folders of images (`image_folders`), or to an .npz file (`formats.source_from_arrays`); or
            hf:NAME for a data set of the Hugging Face Hub (`hub`).
        root: the folder under which published data sets lie and into which they are downloaded.
        download: whether to download a published data set that is not under the root.
        label: the column of a table that holds the labels.
        id_column: the column of a table that names its rows.

    Returns:
        Its training samples, and validation and test samples where it has them. `digits` are float32 (N, 1, 8, 8) in
        [0, 1]; `mnist` and `fashion-mnist` uint8 (N, 1, 28, 28); `cifar10` and `cifar100` uint8 (N, 3, 32, 32).
    """
    name = os.fspath(name_or_path)
    if name not in CATALOGUE:
        return _load_file(name, label, id_column)
    _refuse_columns(name, label, id_column)
    info = CATALOGUE[name]
    return load_published(info, Path(root), download=download) if info.layouts else _load_digits(info)


def available() -> tuple[DatasetInfo, ...]:
    """Return what can be loaded by name."""
    return tuple(CATALOGUE.values())


def human_labels(name: str, kind: str, root: Path | str = "data") -> Labels:
    """Return labels that people gave to the training samples (CIFAR-N), (N,) in the order of CIFAR's own files.

    Read from `cifar-n/cifar10n.npz` or `cifar-n/cifar100n.npz` under the root. In the latter, `order_certain` marks the
    few samples whose place among their neighbours is not certain; they are returned like all others.
    """
    if name not in HUMAN_LABEL_KEYS:
        raise InvalidInput(f"{unknown_name('name', name, HUMAN_LABEL_KEYS)} Human labels exist for no other data set.")
    if kind not in HUMAN_LABEL_KEYS[name]:
        raise unknown_name(f"kind of human labels of {name}", kind, HUMAN_LABEL_KEYS[name])
    key, path = HUMAN_LABEL_KEYS[name][kind], Path(root) / "cifar-n" / f"{name}n.npz"
    if not path.is_file():
        raise UnreadableData(
            f"{path} does not exist; put the CIFAR-N labels of {name} there as an .npz file with the key `{key}`."
        )

    def pick(found: Collection[str]) -> list[str]:
        if key not in found:
            raise InvalidInput(f"{path} must hold the key `{key}`, but holds {', '.join(found) or 'nothing'}.")
        return [key]

    labels = _read_npz(path, pick)[key]
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise InvalidInput(f"{path}: `{key}` must hold integers (N,), but got {labels.dtype} {labels.shape}.")
    labels = labels.astype(np.int64)
    check_label_range(labels, CATALOGUE[name].classes, str(path))
    return labels


def load_published(info: DatasetInfo, root: Path, *, download: bool) -> Source:
    """Load a data set from the first complete layout under the root, downloading it when there is none."""
    layout = next((layout for layout in info.layouts if not _missing(layout, root / layout.folder)), None)
    if layout is None and not download:
        raise UnreadableData(f"{_what_is_missing(info, root)} (downloading is switched off).")
    if layout is None:
        layout = info.layouts[0]
        try:
            _download(info.downloads, layout, root)
        except (OSError, HTTPException, tarfile.TarError, EOFError, zlib.error) as error:
            raise UnreadableData(f"{_what_is_missing(info, root)} (downloading failed: {error}).") from error
    return _read_layout(info, layout, root / layout.folder)


# Under the root


def _stored(path: Path) -> Path | None:
    """Return the file as it lies there, plain or with .gz appended, or None."""
    return next((file for file in (path, path.with_name(f"{path.name}.gz")) if file.is_file()), None)


def _missing(layout: Layout, folder: Path) -> list[str]:
    return [file for file in (*layout.train, *layout.test) if _stored(folder / file) is None]


def _what_is_missing(info: DatasetInfo, root: Path) -> str:
    """Say where the data set was looked for, and what to put into the layout that has the fewest files missing."""
    missing = {root / layout.folder: _missing(layout, root / layout.folder) for layout in info.layouts}
    nearest = min(missing, key=lambda folder: len(missing[folder]))
    return (
        f"{info.name} must lie complete in one of {', '.join(map(str, missing))}, but does not; "
        f"put {', '.join(missing[nearest])} into {nearest}, each plain or .gz"
    )


def _read_layout(info: DatasetInfo, layout: Layout, folder: Path) -> Source:
    class_names = _read_class_names(info, layout, folder)

    def read(names: tuple[str, ...]) -> LabelledData:
        paths = [path for path in (_stored(folder / name) for name in names) if path is not None]
        inputs, labels = layout.parse({str(path): _read_bytes(path) for path in paths}, info.classes)
        return LabelledData(inputs, labels, class_names)

    train, test = read(layout.train), read(layout.test)
    if train.sample_shape != test.sample_shape:
        raise InvalidInput(
            f"{folder}: the test images must have the shape {train.sample_shape} of the training images, "
            f"but got {test.sample_shape}; replace the files by the published ones."
        )
    return Source(info.name, train, test=test)


def _read_class_names(info: DatasetInfo, layout: Layout, folder: Path) -> tuple[str, ...]:
    path = None if layout.names_file is None else _stored(folder / layout.names_file)
    if path is None:
        return info.class_names
    names = layout.parse_names(_read_bytes(path), str(path))
    if len(names) != info.classes:
        raise InvalidInput(f"{path} must name {info.classes} classes, but got {len(names)}; replace or remove it.")
    return names


# Files


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn whatever a damaged or unreadable file raises into one error that names it."""
    try:
        yield
    except S2EError:
        raise
    except (OSError, EOFError, ValueError, RuntimeError, zlib.error, zipfile.BadZipFile) as error:
        raise UnreadableData(
            f"{path} could not be read ({error}); if it is truncated or corrupted, copy or download it again."
        ) from error


def _read_bytes(path: Path) -> bytes:
    with _reading(path):
        return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def _read_npz(path: Path, pick: Callable[[Collection[str]], Collection[str]]) -> dict[str, Array]:
    """Return the arrays under the keys that `pick` chooses among those in the file; the others are not read."""
    with _reading(path):
        if not zipfile.is_zipfile(path):
            raise UnreadableData(
                f"{path} must be an .npz file, but is truncated or none at all; write it with numpy.savez."
            )
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:  # np.load alone may leave it open
            return {key: _read_array(file, key, path) for key in pick(file.files)}


def _read_array(file: Mapping[str, Array], key: str, path: Path) -> Array:
    try:
        return np.asarray(file[key])
    except ValueError as error:
        if "Object arrays" not in str(error):  # NumPy has no exception of its own for what only pickle can load
            raise
        raise InvalidInput(
            f"{path}: `{key}` must hold numbers or strings, but got Python objects; "
            f"convert it with numpy.asarray(..., dtype=...) before saving."
        ) from error


def _load_file(name: str, label: str | None, id_column: str | None) -> Source:
    path = Path(name)
    try:
        there = path.exists()
    except OSError as error:
        raise UnreadableData(f"{name[:40]}… cannot be a path: {error.strerror}.") from error
    if name.startswith(HUB):
        return _from_hub(name, label, id_column)
    if _is_table(path):
        return _from_table(path, label, id_column)
    _refuse_columns(name, label, id_column)
    if path.is_dir():
        return _from_folder(path)
    if path.suffix.lower() == ".npz":
        if not there:
            raise UnreadableData(f"{path} does not exist; check the path.")
        arrays = _read_npz(path, lambda found: npz_keys(found, str(path)).values())
        return source_from_arrays(arrays, path.stem, str(path))
    if there:
        raise InvalidInput(f"{name} must be {FORMS}, but is none of these; convert it to one of them.")
    raise InvalidInput(f"{unknown_name('name_or_path', name, CATALOGUE)} A path is accepted too: {FORMS}.")


def _is_table(path: Path) -> bool:
    return any(path.name.lower().endswith(ending) for ending in TABLE_ENDINGS)


def _refuse_columns(name: str, label: str | None, id_column: str | None) -> None:
    for option, column in (("label", label), ("id_column", id_column)):
        if column:
            raise InvalidInput(f"`{option}` must go with a table, but got {column!r} for {name}; leave it out.")


def _from_table(path: Path, label: str | None, id_column: str | None) -> Source:
    from s2e.data.input_readers import OfTables
    from s2e.data.table_encoding import TableEncoding
    from s2e.data.table_files import read_table

    frame = read_table(path)
    if not label:
        known = ", ".join(map(str, frame.columns[:20]))
        raise InvalidInput(f"`label` must name the column of {path} that holds the labels; it has {known}.")
    columns = TableEncoding.fit(frame, label, id_column or None)
    return Source(path.stem, columns.samples_of(frame), ids=tuple(columns.ids_of(frame)), encoding=OfTables(columns))


def _from_folder(path: Path) -> Source:
    from s2e.data.image_folders import read_image_folder
    from s2e.data.input_readers import OfImages

    images = read_image_folder(path)
    channels, side, _ = images.train.sample_shape
    return Source(path.name, images.train, images.valid, images.test, images.names["train"], OfImages(side, channels))


def _from_hub(name: str, label: str | None, id_column: str | None) -> Source:
    from s2e.data.hub import HubTable, load_hub
    from s2e.data.input_readers import OfImages, OfTables
    from s2e.data.table_encoding import TableEncoding

    loaded = load_hub(name, label=label or None)
    if not isinstance(loaded, HubTable):
        channels, side, _ = loaded.train.sample_shape
        return replace(loaded, encoding=OfImages(side, channels))
    columns = TableEncoding.fit(loaded.train, loaded.label, id_column or None)
    valid, test = (None if frame is None else columns.samples_of(frame) for frame in (loaded.valid, loaded.test))
    ids = tuple(columns.ids_of(loaded.train))
    return Source(loaded.name, columns.samples_of(loaded.train), valid, test, ids, OfTables(columns))


def _load_digits(info: DatasetInfo) -> Source:
    """Return scikit-learn's embedded digits, float32 (N, 1, 8, 8), with the same test part held out every time."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    inputs = (digits.images / 16).astype(np.float32)[:, None]  # (1797, 1, 8, 8): grey levels are 0..16
    data = LabelledData(inputs, digits.target.astype(np.int64), info.class_names)
    train, test = hold_out(data, DIGITS_TEST_SHARE, np.random.default_rng(DIGITS_TEST_SEED))
    return Source(info.name, train, test=test)


# Download


def _download(downloads: Iterable[RemoteFile], layout: Layout, root: Path) -> None:
    """Fetch a layout's files; they appear in its folder only when all have arrived and been verified."""
    root.mkdir(parents=True, exist_ok=True)
    with _scratch_folder(root) as arrived:
        for remote in downloads:
            _fetch(remote, arrived / remote.name)
            if remote.name.endswith(".tar.gz"):
                _extract(arrived / remote.name, layout, arrived)
                (arrived / remote.name).unlink()
        if missing := _missing(layout, arrived):
            raise UnreadableData(f"{', '.join(missing)} did not come with it")
        folder = root / layout.folder
        folder.mkdir(parents=True, exist_ok=True)
        for file in sorted(arrived.iterdir()):
            file.replace(folder / file.name)


@contextmanager
def _scratch_folder(root: Path) -> Iterator[Path]:
    """Make a hidden folder that does not outlive the body, and remove those that killed processes left behind."""
    folder = root / f"{SCRATCH}{uuid4().hex}"
    with tidied_by(lambda: rmtree(folder, ignore_errors=True)), ExitStack() as held:
        with _locked(root, wait=True):  # or another process might remove the folder before it is locked
            for left_over in root.glob(f"{SCRATCH}*"):
                with _locked(left_over) as free:
                    if free:
                        rmtree(left_over, ignore_errors=True)
            folder.mkdir(mode=0o700)
            held.enter_context(_locked(folder))
        yield folder


@contextmanager
def _locked(folder: Path, *, wait: bool = False) -> Iterator[bool]:
    """Lock a folder, and tell whether it could be: another process may hold it, or its disk may know no locks."""
    with ExitStack() as opened:
        locked = False
        with suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY)
            opened.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            locked = True
        yield locked


def _fetch(remote: RemoteFile, target: Path) -> None:
    logger.info("downloading %s", remote.url)
    digest = hashlib.md5(usedforsecurity=False)
    try:
        # The addresses are those of the catalogue, not a user's.
        with (
            urllib.request.urlopen(remote.url, timeout=DOWNLOAD_TIMEOUT_S) as response,  # noqa: S310
            target.open("wb") as file,
        ):
            while block := response.read(1 << 20):
                digest.update(block)
                file.write(block)
    except HTTPError as error:
        error.close()  # it is the server's reply, and holds the connection open
        raise UnreadableData(f"{remote.url}: {error}") from error
    except (OSError, HTTPException) as error:
        raise UnreadableData(f"{remote.url}: {error}") from error
    if digest.hexdigest() != remote.md5:
        raise UnreadableData(f"{remote.url} must have the MD5 {remote.md5}, but got {digest.hexdigest()}")


def _extract(archive: Path, layout: Layout, folder: Path) -> None:
    """Copy the layout's own files out of an archive; no path, mode or link that the archive names is followed."""
    expected = {*layout.train, *layout.test, *([] if layout.names_file is None else [layout.names_file])}
    with tarfile.open(archive, "r:gz") as members:
        for member in members:
            name = PurePosixPath(member.name).name
            content = members.extractfile(member) if member.isfile() and name in expected else None
            if content is not None:
                with (folder / name).open("wb") as file:
                    copyfileobj(content, file)
