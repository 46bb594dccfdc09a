"""Read a folder of class folders of images as square pixels of one size.

    path/CLASS/…/anything.png                  everything is training data
    path/train/CLASS/…  path/test/CLASS/…      with parts; validation/ likewise, and either of the two may be missing

The shape is decided from the headers of all files, before any is decoded: one channel when every image is grey, else
three, and a side S. An image is then decoded, its largest centred square resized to S × S (what resizing the shorter
side to S and cropping the centre gives), and written into its row of one array made beforehand.

Letters: N images, C channels, S side.
"""

from __future__ import annotations

import difflib
import logging
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from s2e.data.image_decoding import BUDGET, Broken, Header, choose_side, decode_images, measure_images, pillow
from s2e.data.samples import LabelledData
from s2e.errors import InvalidInput, UnreadableData, listed

if TYPE_CHECKING:
    pass

logger = logging.getLogger(__name__)

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
PART_FOLDERS = {"train": ("train", "training"), "valid": ("val", "valid", "validation"), "test": ("test", "testing")}
IGNORED_FOLDERS = ("__MACOSX", "@eaDir", "$RECYCLE.BIN", "lost+found")  # where systems keep thumbnails and leftovers


@dataclass(frozen=True, eq=False)
class ImageFolder:
    """The images of a folder.

    Attributes:
        train: inputs uint8 (N, C, S, S); C is 1 when every image is grey, else 3.
        valid: the same where the folder has such a part, else None.
        test: likewise.
        names: of each part, the file of every row (N,), relative to the folder: `names["train"][data.rows[i]]`.
        skipped: files that could not be decoded, relative to the folder, with the reason.
    """

    train: LabelledData
    valid: LabelledData | None
    test: LabelledData | None
    names: dict[str, tuple[str, ...]]
    skipped: list[tuple[str, str]]


@dataclass(frozen=True)
class _File:
    part: str
    class_name: str
    name: str  # relative to the folder that is read


def read_image_folder(path: str | os.PathLike[str], *, side: int | None = None, budget: int = BUDGET) -> ImageFolder:
    """Read all images in a folder of class folders.

    Classes and files are in natural order: 2 before 10. Hidden files and folders are ignored, and files whose names do
    not end like an image's. Links to files are followed, and class folders may be links; links to folders inside a
    class folder are not followed. Files that do not decode are left out, listed in the result and counted in one
    warning of the log.

    Of an animation the first frame is taken; the orientation a camera noted is applied; what is transparent lies on
    white; 16-bit grey levels are divided by 257. A colour image counts as such even if all its pixels are grey.

    Args:
        path: the folder.
        side: S; by default the median of the training images' shorter sides, within 16..64, and smaller, down to 16,
            when the images would not fit into the budget.
        budget: bytes that all inputs together may take: N·C·S².

    Raises:
        UnreadableData: there is no such folder, or all images of a class are broken.
        InvalidInput: the folder has no class folders, one class only, a class without images, or a class that training
            lacks; or the images do not fit into the budget.
    """
    pillow()
    root = Path(path)
    if not root.is_dir():
        found = "is a file" if root.exists() else "does not exist"
        raise UnreadableData(f"`path` must be a folder of class folders of images, but {root} {found}; check the path.")
    folders = _part_folders(root)
    found_by_class = {part: _files_by_class(root, folder) for part, folder in folders.items()}
    _refuse_bad_classes(folders, found_by_class)
    label_of = {name: label for label, name in enumerate(found_by_class["train"])}
    files = [
        _File(part, class_name, name)
        for part, classes in found_by_class.items()
        for class_name, names in classes.items()
        for name in names
    ]

    headers = dict(zip(files, measure_images(root / file.name for file in files), strict=True))
    reasons = {file: header.reason for file, header in headers.items() if isinstance(header, Broken)}
    _refuse_broken_classes(root, files, reasons)
    sound = {file: header for file, header in headers.items() if isinstance(header, Header)}
    channels = 1 if all(header.grey for header in sound.values()) else 3
    shorter_sides = [header.shorter_side for file, header in sound.items() if file.part == "train"]
    side = choose_side(shorter_sides, len(sound), channels, side, budget)

    data: dict[str, LabelledData] = {}
    names: dict[str, tuple[str, ...]] = {}
    for part in found_by_class:
        of_part = [file for file in sound if file.part == part]
        inputs, broken = decode_images((root / file.name for file in of_part), len(of_part), side, channels)
        reasons |= {of_part[position]: reason for position, reason in broken.items()}
        _refuse_broken_classes(root, of_part, reasons)
        kept = [file for file in of_part if file not in reasons]
        labels = np.array([label_of[file.class_name] for file in kept], dtype=np.int64)
        data[part] = LabelledData(inputs, labels, tuple(label_of))
        names[part] = tuple(file.name for file in kept)
    skipped = [(file.name, reasons[file]) for file in files if file in reasons]
    if skipped:
        logger.warning(
            "%d of %d images in %s could not be decoded and are left out; the first is %s: %s",
            *(len(skipped), len(files), root, *skipped[0]),
        )
    return ImageFolder(data["train"], data.get("valid"), data.get("test"), names, skipped)


def image_files(path: str | os.PathLike[str]) -> list[Path]:
    """Return the image files in a folder and in those inside it, in natural order, or the one file that is given."""
    path = Path(path)
    if not path.exists():
        raise UnreadableData(f"`path` must be an image or a folder of images, but {path} does not exist.")
    if not path.is_dir():
        return [path]
    found = sorted(_images_in(path), key=lambda file: natural_order(file.relative_to(path).as_posix()))
    if not found:
        raise InvalidInput(f"{path} must hold images ({' '.join(SUFFIXES)}), but got none{_held_instead(path)}.")
    return found


# Folders


def natural_order(name: str) -> tuple[list[list[str | int]], str]:
    """Sort key of a relative path by which 2 comes before 10, without regard to case; ties by the name itself."""
    pieces = [re.split(r"(\d+)", folder.casefold()) for folder in name.split("/")]  # text and digits take turns
    return [[int(piece) if place % 2 else piece for place, piece in enumerate(of)] for of in pieces], name


def _entries(folder: Path) -> list[Path]:
    """Return what lies in a folder, in natural order, without what is hidden."""
    try:
        found = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    except OSError as error:
        raise UnreadableData(f"the folder {folder} cannot be read: {error.strerror}; check its permissions.") from error
    return sorted(found, key=lambda entry: natural_order(entry.name))


def _subfolders(folder: Path) -> list[Path]:
    """Return the folders in a folder; a link to a folder that the link itself lies in would never end."""
    here = folder.resolve()
    found = [entry for entry in _entries(folder) if entry.is_dir() and entry.name not in IGNORED_FOLDERS]
    return [entry for entry in found if not (entry.is_symlink() and here.is_relative_to(entry.resolve()))]


def _part_folders(root: Path) -> dict[str, Path]:
    """Return the folder of each part: those with the parts' names, or, unless there are such, all as training data."""
    subfolders = _subfolders(root)
    named = {
        part: [folder for folder in subfolders if folder.name.casefold() in names]
        for part, names in PART_FOLDERS.items()
    }
    if not (named["train"] and (named["valid"] or named["test"])):
        return {"train": root}
    for part, folders in named.items():
        if len(folders) > 1:
            which = " and ".join(folder.name for folder in folders)
            raise InvalidInput(
                f"{root} must hold one folder for each part, but {which} both name `{part}`; merge or rename one."
            )
    others = [folder.name for folder in subfolders if not any(folder in folders for folders in named.values())]
    if others:
        logger.warning("%s holds parts, so these folders beside them are ignored: %s", root, listed(others))
    return {part: folders[0] for part, folders in named.items() if folders}


def _files_by_class(root: Path, folder: Path) -> dict[str, list[str]]:
    """Return the image files in every class folder of a part, relative to the root."""
    found = {}
    for class_folder in _subfolders(folder):
        names = (file.relative_to(root).as_posix() for file in _images_in(class_folder))
        found[class_folder.name] = sorted(names, key=natural_order)
    loose = sum(map(_named_like_an_image, _entries(folder)))
    if loose and found:
        logger.warning("%d image(s) directly in %s, outside of its class folders, are ignored", loose, folder)
    return found


def _images_in(folder: Path) -> Iterator[Path]:
    """Yield the image files in a folder and in those inside it; a link that leads nowhere is found broken later."""
    for entry in _entries(folder):
        if entry.is_dir():
            if not entry.is_symlink() and entry.name not in IGNORED_FOLDERS:
                yield from _images_in(entry)
        elif _named_like_an_image(entry) and (entry.is_file() or entry.is_symlink()):
            yield entry


def _named_like_an_image(file: Path) -> bool:
    return file.suffix.lower() in SUFFIXES


def _refuse_bad_classes(folders: dict[str, Path], found: dict[str, dict[str, list[str]]]) -> None:
    """Refuse classes that cannot be learned or tested, saying everything that is wrong with them."""
    problems = []
    for part, classes in found.items():
        if not classes:
            loose = sum(map(_named_like_an_image, _entries(folders[part])))
            got = f"{loose} image(s) directly in it and no folders" if loose else "no folders"
            problems.append(
                f"{folders[part]} must hold one folder of images for each class, but got {got}; "
                f"move the images of each class into a folder named after it."
            )
        elif part != "train" and not any(classes.values()):
            problems.append(f"{folders[part]} must hold images, but got none; remove it or add images.")
    train, train_folder = found["train"], folders["train"]
    if len(train) == 1:
        only = train_folder / next(iter(train))
        inside = [folder.name for folder in _subfolders(only)]
        inner = f"if the classes are the folders in {only} ({listed(inside)}), pass that path"
        problems.append(
            f"{train_folder} must hold the folders of at least two classes, but got one, {only.name}; "
            f"{inner if len(inside) > 1 else 'add the other classes'}."
        )
    empty = [f"{name}{_held_instead(train_folder / name)}" for name, files in train.items() if not files]
    if empty:
        problems.append(
            f"every class folder in {train_folder} must hold images ({' '.join(SUFFIXES)}), but {len(empty)} of "
            f"{len(train)} hold none: {listed(empty)}; remove those folders or add images."
        )
    for part, classes in found.items():
        unknown = [f"{name}{_nearest(name, train)}" for name, files in classes.items() if files and name not in train]
        if unknown:
            problems.append(
                f"{folders[part]} must hold only classes that {train_folder} holds, but got {listed(unknown)}; "
                f"rename or remove those folders."
            )
    if problems:
        raise InvalidInput(" ".join(problems))


def _held_instead(folder: Path) -> str:
    """Say what a class folder without images holds, for it may be images under a name that is not known here."""
    suffixes = sorted({entry.suffix.lower() for entry in _entries(folder) if entry.is_file()} - {""})
    return f" (it holds {listed(suffixes)} files)" if suffixes else ""


def _nearest(name: str, known: Iterable[str]) -> str:
    nearest = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" (nearest: {nearest[0]})" if nearest else ""


def _refuse_broken_classes(root: Path, files: Iterable[_File], reasons: dict[_File, str]) -> None:
    """Refuse a class of which no image can be used."""
    first: dict[tuple[str, str], _File] = {}
    sound = set()
    for file in files:
        first.setdefault((file.part, file.class_name), file)
        if file not in reasons:
            sound.add((file.part, file.class_name))
    broken = [f"{file.class_name} ({file.name}: {reasons[file]})" for of, file in first.items() if of not in sound]
    if broken:
        raise UnreadableData(
            f"{root} must hold an image that decodes for every class, but all are broken of {listed(broken)}; "
            f"replace the files or remove the folder."
        )
