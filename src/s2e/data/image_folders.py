"""Read a folder of class folders of images as squares of one size.

    path/CLASS/…/anything.png                  training data only
    path/train/CLASS/…  path/test/CLASS/…      with splits; also validation/; one of test and validation may be missing

The shape is chosen from the headers of all files before decoding: one channel if every image is grey, else three, and
a side S (`image_decoding.choose_side`) where none is given.

Letters: N images, C channels, S side.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from s2e.data.image_decoding import Broken, Header, check_side, choose_side, decode_images, measure_images, pillow
from s2e.data.input_readers import ImageReader
from s2e.data.natural_order import natural_key
from s2e.data.samples import LabelledData, Source
from s2e.errors import InvalidInput, UnreadableData, listed, raise_all

logger = logging.getLogger(__name__)

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
SPLIT_FOLDERS = {"train": ("train", "training"), "valid": ("val", "valid", "validation"), "test": ("test", "testing")}
IGNORED_FOLDERS = ("__MACOSX", "@eaDir", "$RECYCLE.BIN", "lost+found")  # made by operating systems


@dataclass(frozen=True)
class _File:
    split: str
    class_name: str
    name: str  # path relative to the root


def read_image_folder(path: str | os.PathLike[str], *, side: int | None = None) -> Source:
    """Read all images in a folder of class folders.

    Classes and files are in natural order: 2 before 10. Hidden files and folders are ignored, as are files with other
    suffixes. Links to files and links to class folders are followed; links to folders inside a class folder are not.
    Files that cannot be decoded are left out, with one warning.

    The first frame of an animation is read; the EXIF orientation is applied; transparent images are put on white;
    16-bit grey levels are divided by 257. A colour image counts as colour even if all its pixels are grey.

    Args:
        path: the folder.
        side: S, to which images are resized; chosen from their sizes when None.

    Returns:
        Inputs uint8 (N, C, S, S); C is 1 if every image is grey, else 3. `ids` are the training files, relative to the
        folder.

    Raises:
        UnreadableData: the folder does not exist, or no image of a class can be decoded.
        InvalidInput: the folder has no class folders, only one class, a class without images, or a class that is
            missing in training; or the images exceed the memory.
    """
    pillow()
    root = Path(path)
    if not root.is_dir():
        found = "is a file" if root.exists() else "does not exist"
        raise UnreadableData(f"`path` must be a folder of class folders of images, but {root} {found}; check the path.")
    folders = _split_folders(root)
    found_by_class = {split: _files_by_class(root, folder) for split, folder in folders.items()}
    _check_classes(folders, found_by_class)
    label_of = {name: label for label, name in enumerate(found_by_class["train"])}
    files = [
        _File(split, class_name, name)
        for split, classes in found_by_class.items()
        for class_name, names in classes.items()
        for name in names
    ]

    headers = dict(zip(files, measure_images(root / file.name for file in files), strict=True))
    reasons = {file: header.reason for file, header in headers.items() if isinstance(header, Broken)}
    _check_decoded_classes(root, files, reasons)
    readable = {file: header for file, header in headers.items() if isinstance(header, Header)}
    channels = 1 if all(header.grey for header in readable.values()) else 3
    shorter_sides = [header.shorter_side for file, header in readable.items() if file.split == "train"]
    if side is None:
        side = choose_side(shorter_sides, len(readable), channels)
    else:
        check_side(side, len(readable), channels)

    data: dict[str, LabelledData] = {}
    ids: dict[str, tuple[str, ...]] = {}
    for split in found_by_class:
        of_split = [file for file in readable if file.split == split]
        inputs, broken = decode_images((root / file.name for file in of_split), len(of_split), side, channels)
        reasons |= {of_split[index]: reason for index, reason in broken.items()}
        _check_decoded_classes(root, of_split, reasons)
        kept = [file for file in of_split if file not in reasons]
        labels = np.array([label_of[file.class_name] for file in kept], dtype=np.int64)
        data[split] = LabelledData(inputs, labels, tuple(label_of))
        ids[split] = tuple(file.name for file in kept)
    if reasons:
        first = next(file for file in files if file in reasons)
        logger.warning(
            "%d of %d images in %s cannot be decoded and are left out; the first is %s: %s",
            *(len(reasons), len(files), root, first.name, reasons[first]),
        )
    reader = ImageReader(side, channels)
    return Source(root.name, data["train"], data.get("valid"), data.get("test"), ids["train"], reader)


def image_files(path: str | os.PathLike[str]) -> list[Path]:
    """Return the image files in a folder and its subfolders, in natural order, or the given file."""
    path = Path(path)
    if not path.exists():
        raise UnreadableData(f"`path` must be an image or a folder of images, but {path} does not exist.")
    if not path.is_dir():
        return [path]
    found = sorted(_images_in(path), key=lambda file: _path_key(file.relative_to(path).as_posix()))
    if not found:
        raise InvalidInput(f"{path} must hold images ({' '.join(SUFFIXES)}), but got none{_other_files(path)}.")
    return found


# Folders


def _path_key(name: str) -> tuple[list[list[str | int]], str]:
    """Return the sort key of a relative path: natural order, folder by folder."""
    return [natural_key(folder)[0] for folder in name.split("/")], name


def _entries(folder: Path) -> list[Path]:
    """Return the entries of a folder that are not hidden, in natural order."""
    try:
        found = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    except OSError as error:
        raise UnreadableData(f"the folder {folder} cannot be read: {error.strerror}; check its permissions.") from error
    return sorted(found, key=lambda entry: natural_key(entry.name))


def _subfolders(folder: Path) -> list[Path]:
    """Return the subfolders, without links to a parent folder, which would recurse without end."""
    here = folder.resolve()
    found = [entry for entry in _entries(folder) if entry.is_dir() and entry.name not in IGNORED_FOLDERS]
    return [entry for entry in found if not (entry.is_symlink() and here.is_relative_to(entry.resolve()))]


def _split_folders(root: Path) -> dict[str, Path]:
    """Return the folder of each split; the root holds training data if there are no such folders."""
    subfolders = _subfolders(root)
    named = {
        split: [folder for folder in subfolders if folder.name.casefold() in names]
        for split, names in SPLIT_FOLDERS.items()
    }
    if not (named["train"] and (named["valid"] or named["test"])):
        return {"train": root}
    for split, folders in named.items():
        if len(folders) > 1:
            which = " and ".join(folder.name for folder in folders)
            raise InvalidInput(
                f"{root} must hold one folder for each split, but {which} both mean `{split}`; merge or rename one."
            )
    others = [folder.name for folder in subfolders if not any(folder in folders for folders in named.values())]
    if others:
        logger.warning("%s holds folders of splits, so other folders are ignored: %s", root, listed(others))
    return {split: folders[0] for split, folders in named.items() if folders}


def _files_by_class(root: Path, folder: Path) -> dict[str, list[str]]:
    """Return the image files in every class folder of a split, relative to the root."""
    found = {}
    for class_folder in _subfolders(folder):
        names = (file.relative_to(root).as_posix() for file in _images_in(class_folder))
        found[class_folder.name] = sorted(names, key=_path_key)
    loose = sum(map(_has_image_suffix, _entries(folder)))
    if loose and found:
        logger.warning("%d image(s) in %s, outside its class folders, are ignored", loose, folder)
    return found


def _images_in(folder: Path) -> Iterator[Path]:
    """Yield the image files in a folder and its subfolders; broken links are reported when they are opened."""
    for entry in _entries(folder):
        if entry.is_dir():
            if not entry.is_symlink() and entry.name not in IGNORED_FOLDERS:
                yield from _images_in(entry)
        elif _has_image_suffix(entry) and (entry.is_file() or entry.is_symlink()):
            yield entry


def _has_image_suffix(file: Path) -> bool:
    return file.suffix.lower() in SUFFIXES


def _check_classes(folders: dict[str, Path], found: dict[str, dict[str, list[str]]]) -> None:
    """Raise for classes that cannot be trained or tested on, with all problems together."""
    problems = []
    for split, classes in found.items():
        if not classes:
            loose = sum(map(_has_image_suffix, _entries(folders[split])))
            got = f"{loose} image(s) and no folders" if loose else "no folders"
            problems.append(
                f"{folders[split]} must hold one folder of images for each class, but got {got}; "
                f"move the images of each class into a folder named after it."
            )
        elif split != "train" and not any(classes.values()):
            problems.append(f"{folders[split]} must hold images, but got none; remove it or add images.")
    train, train_folder = found["train"], folders["train"]
    if len(train) == 1:
        only = train_folder / next(iter(train))
        inside = [folder.name for folder in _subfolders(only)]
        inner = f"if the classes are the folders in {only} ({listed(inside)}), pass that path"
        problems.append(
            f"{train_folder} must hold the folders of at least two classes, but got one, {only.name}; "
            f"{inner if len(inside) > 1 else 'add the other classes'}."
        )
    empty = [f"{name}{_other_files(train_folder / name)}" for name, files in train.items() if not files]
    if empty:
        problems.append(
            f"every class folder in {train_folder} must hold images ({' '.join(SUFFIXES)}), but {len(empty)} of "
            f"{len(train)} hold none: {listed(empty)}; remove those folders or add images."
        )
    for split, classes in found.items():
        unknown = [name for name, files in classes.items() if files and name not in train]
        if unknown:
            problems.append(
                f"{folders[split]} must hold only classes of {train_folder} ({listed(train)}), but got "
                f"{listed(unknown)}; rename or remove those folders."
            )
    raise_all(problems)


def _other_files(folder: Path) -> str:
    """Return the suffixes of the files in a folder without images: they may be images of another format."""
    suffixes = sorted({entry.suffix.lower() for entry in _entries(folder) if entry.is_file()} - {""})
    return f" (it holds {listed(suffixes)} files)" if suffixes else ""


def _check_decoded_classes(root: Path, files: Iterable[_File], reasons: dict[_File, str]) -> None:
    """Raise for classes without an image that can be decoded."""
    first: dict[tuple[str, str], _File] = {}
    readable = set()
    for file in files:
        first.setdefault((file.split, file.class_name), file)
        if file not in reasons:
            readable.add((file.split, file.class_name))
    broken = [f"{file.class_name} ({file.name}: {reasons[file]})" for key, file in first.items() if key not in readable]
    if broken:
        raise UnreadableData(
            f"{root} must hold an image that can be decoded for every class, but has none of {listed(broken)}; "
            f"replace the files or remove the folder."
        )
