"""Regular files only, and no more of them than memory holds."""

from __future__ import annotations

import io
import os
import stat
import zlib
from pathlib import Path
from typing import BinaryIO

from s2e.errors import UnreadableData, first_line
from s2e.files.memory import available_memory, in_gib

GZIP_MAGIC = b"\x1f\x8b"
LARGEST = 2**34
"""Most bytes of a content where the available memory is unknown."""

CHUNK = 2**20


def unreadable(path: Path | str, reason: object) -> UnreadableData:
    """Return the error for a file that is missing or damaged; an exception gives its first line."""
    if isinstance(reason, FileNotFoundError):
        return UnreadableData(f"{str(path)!r} does not exist; check the path.")
    if isinstance(reason, OSError) and reason.strerror:
        reason = reason.strerror
    text = first_line(reason) if isinstance(reason, BaseException) else str(reason)
    return UnreadableData(f"{str(path)!r} could not be read: {text.rstrip('.')}.")


def open_regular(path: Path) -> BinaryIO:
    """Open a file to read its bytes; a directory, a pipe or a device is refused, behind a link too."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # or a pipe waits for its writer
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            found = "a directory" if path.is_dir() else "a pipe or a device"
            raise unreadable(path, f"it must be a regular file, but is {found}")
    except UnreadableData:
        raise
    except (OSError, ValueError) as problem:  # a name with a zero byte is a ValueError
        raise unreadable(path, problem) from problem
    return os.fdopen(descriptor, "rb")


def read_content(path: Path, most: int | None = None) -> bytes:
    """Return the content of a file of at most `most` bytes, by default as many as memory holds."""
    with open_regular(path) as opened:
        check_size(path, os.fstat(opened.fileno()).st_size, most)
        try:
            return opened.read()
        except OSError as problem:
            raise unreadable(path, problem) from problem


def read_decompressed(path: Path) -> bytes:
    """Return the content of a file, decompressed if it is in gzip format, as long as memory holds it."""
    content = read_content(path)
    if not content.startswith(GZIP_MAGIC):
        return content
    try:
        return _decompressed(content, path)
    except zlib.error as problem:
        raise unreadable(path, f"it is truncated or corrupted ({first_line(problem)})") from problem


def _decompressed(content: bytes, path: Path) -> bytes:
    """Decompress the members of a gzip file in steps: a small file may hold more than memory."""
    written, rest = io.BytesIO(), content
    most = largest_content()
    while rest.startswith(GZIP_MAGIC):
        member = zlib.decompressobj(wbits=31)  # with the header, the checksum and the size of gzip
        while True:
            part = member.decompress(rest, CHUNK)
            written.write(part)
            check_size(path, written.tell(), most)
            if member.eof:
                rest = member.unused_data
                break
            rest = member.unconsumed_tail
            if not part and not rest:
                raise unreadable(path, "it is truncated: the compressed data end too early")
    if rest.strip(b"\0"):  # zero bytes may fill the last block of a medium
        raise unreadable(path, "it is corrupted: other data follow the compressed data")
    return written.getvalue()


def largest_content() -> int:
    """Return the most bytes that a content may have: half of the available memory, for what is made of it."""
    available = available_memory()
    return LARGEST if available is None else available // 2


def check_size(path: Path | str, size: int, most: int | None = None) -> None:
    """Raise for a content of more than `most` bytes, by default of more than memory holds."""
    limit = largest_content() if most is None else most
    if size > limit:
        raise UnreadableData(f"{str(path)!r} must hold at most {_shown(limit)}, but holds {_shown(size)} or more.")


def _shown(size: int) -> str:
    return in_gib(size) if size >= 2**27 else f"{size:,} bytes"
