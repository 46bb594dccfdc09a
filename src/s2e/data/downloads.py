"""Download the files of published data sets: fetch, verify the checksum, extract archives, move into place."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import tarfile
import urllib.request
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from shutil import copyfileobj, rmtree
from urllib.error import HTTPError
from uuid import uuid4

from s2e.data.catalogue import DatasetInfo, Layout, RemoteFile
from s2e.errors import UnreadableData
from s2e.interrupts import cleaned_up_by

logger = logging.getLogger(__name__)

TIMEOUT_S = 30.0
"""Seconds without a reply after which a download fails."""

SCRATCH_PREFIX = ".download-"
"""Prefix of the temporary folders that files are downloaded into."""


def is_stored(info: DatasetInfo, root: Path) -> bool:
    """Return whether all files of a data set are under the root."""
    return any(not _missing_files(layout, root / layout.folder) for layout in info.layouts)


def find_layout(info: DatasetInfo, root: Path, *, download: bool) -> Layout:
    """Return the first complete layout of a data set under the root; if there is none, download the first one."""
    layout = next((layout for layout in info.layouts if not _missing_files(layout, root / layout.folder)), None)
    if layout is not None:
        return layout
    if not download:
        raise UnreadableData(f"{_missing_message(info, root)} (downloading is switched off).")
    try:
        _download(info.downloads, info.layouts[0], root)
    except (OSError, HTTPException, tarfile.TarError, EOFError, zlib.error) as error:
        raise UnreadableData(f"{_missing_message(info, root)} (downloading failed: {error}).") from error
    return info.layouts[0]


def stored_file(path: Path) -> Path | None:
    """Return the existing file, plain or with .gz appended, or None."""
    return next((file for file in (path, path.with_name(f"{path.name}.gz")) if file.is_file()), None)


def _missing_files(layout: Layout, folder: Path) -> list[str]:
    return [file for file in (*layout.train, *layout.test) if stored_file(folder / file) is None]


def _missing_message(info: DatasetInfo, root: Path) -> str:
    """Return a message with the possible folders, and the files missing in the most complete one."""
    missing = {root / layout.folder: _missing_files(layout, root / layout.folder) for layout in info.layouts}
    most_complete = min(missing, key=lambda folder: len(missing[folder]))
    return (
        f"{info.name} must be complete in one of {', '.join(map(str, missing))}, but files are missing; "
        f"put {', '.join(missing[most_complete])} into {most_complete}, each plain or .gz"
    )


def _download(downloads: tuple[RemoteFile, ...], layout: Layout, root: Path) -> None:
    """Download the files of a layout; they are moved into its folder once all are complete and verified."""
    root.mkdir(parents=True, exist_ok=True)
    with _scratch_folder(root) as scratch:
        for remote in downloads:
            _fetch(remote, scratch / remote.name)
            if remote.name.endswith(".tar.gz"):
                _extract(scratch / remote.name, layout, scratch)
                (scratch / remote.name).unlink()
        if missing := _missing_files(layout, scratch):
            raise UnreadableData(f"{', '.join(missing)} is missing in the download")
        folder = root / layout.folder
        folder.mkdir(parents=True, exist_ok=True)
        for file in sorted(scratch.iterdir()):
            file.replace(folder / file.name)


@contextmanager
def _scratch_folder(root: Path) -> Iterator[Path]:
    """Make a hidden folder that is removed on exit, and remove those of killed processes."""
    folder = root / f"{SCRATCH_PREFIX}{uuid4().hex}"
    with cleaned_up_by(lambda: rmtree(folder, ignore_errors=True)), ExitStack() as held:
        with _locked(root, wait=True):  # or another process could remove the folder before it is locked
            for leftover in root.glob(f"{SCRATCH_PREFIX}*"):
                with _locked(leftover) as free:
                    if free:
                        rmtree(leftover, ignore_errors=True)
            folder.mkdir(mode=0o700)
            held.enter_context(_locked(folder))
        yield folder


@contextmanager
def _locked(folder: Path, *, wait: bool = False) -> Iterator[bool]:
    """Lock a folder. Yield False if another process holds it, or if the file system has no locks."""
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
        # The addresses come from the catalogue, not from a user.
        with (
            urllib.request.urlopen(remote.url, timeout=TIMEOUT_S) as response,  # noqa: S310
            target.open("wb") as file,
        ):
            while block := response.read(1 << 20):
                digest.update(block)
                file.write(block)
    except HTTPError as error:
        error.close()  # it is the response, and keeps the connection open
        raise UnreadableData(f"{remote.url}: {error}") from error
    except (OSError, HTTPException) as error:
        raise UnreadableData(f"{remote.url}: {error}") from error
    if digest.hexdigest() != remote.md5:
        raise UnreadableData(f"{remote.url} must have the MD5 {remote.md5}, but got {digest.hexdigest()}")


def _extract(archive: Path, layout: Layout, folder: Path) -> None:
    """Copy the files of the layout out of an archive; paths, modes and links of the archive are ignored."""
    expected = {*layout.train, *layout.test, *([] if layout.names_file is None else [layout.names_file])}
    with tarfile.open(archive, "r:gz") as members:
        for member in members:
            name = PurePosixPath(member.name).name
            content = members.extractfile(member) if member.isfile() and name in expected else None
            if content is not None:
                with (folder / name).open("wb") as file:
                    copyfileobj(content, file)
