"""Arrays in NumPy's formats: sizes checked before memory is allocated, every checksum verified, nothing unpickled.

`np.load` stops at the size in an array's header, and so never reaches the checksum if a damaged header states a smaller
size; it allocates what a header states before it reads; and it accepts a damaged list of arrays as a shorter one.
"""

from __future__ import annotations

import io
import math
import os
import warnings
import zipfile
import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from s2e.errors import InvalidInput, S2EError, first_line
from s2e.files.regular import check_size, open_regular, unreadable

Array = NDArray[Any]

SUFFIX = ".npy"
KINDS = "biufcmMUS"
"""Kinds of types that arrays may have: numbers, dates and text, but neither Python objects nor records."""

LARGEST_CODE_POINT = 0x10FFFF
SURROGATES = (0xD800, 0xDFFF)
FILE_NAME_BYTES = (0xDC80, 0xDCFF)
"""Surrogates by which Python writes the bytes of a file name that is not UTF-8."""
END_RECORD, ENTRIES = 22, 10
"""Bytes of the end record of an archive, and the position of its number of entries."""


@dataclass(frozen=True)
class _Header:
    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype[Any]
    length: int  # of the header itself

    @property
    def data_size(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def read_npz(path: Path, select: Callable[[Collection[str]], Collection[str]] | None = None) -> dict[str, Array]:
    """Return the arrays of an .npz file by name: all, or those that `select` chooses from the names."""
    with open_regular(path) as opened:
        try:
            with zipfile.ZipFile(opened) as archive:
                members = _members(archive, opened)
                chosen = members if select is None else select(members)
                headers = {name: _member_header(archive, members[name], name, path) for name in chosen}
                check_size(path, sum(header.data_size for header in headers.values()))
                return {name: _read_member(archive, members[name], header) for name, header in headers.items()}
        except S2EError:
            raise
        except zipfile.BadZipFile as problem:
            if "not a zip file" in str(problem):
                reason = "it is truncated or no .npz file; write it with numpy.savez"
                raise unreadable(path, reason) from problem
            raise unreadable(path, problem) from problem
        except (OSError, EOFError, ValueError, RuntimeError, NotImplementedError, zlib.error) as problem:
            raise unreadable(path, f"it is truncated or corrupted ({first_line(problem)})") from problem


def read_npy(path: Path) -> Array:
    """Return the array of an .npy file."""
    with open_regular(path) as opened:
        try:
            header = _header(opened, path.name, path)
            _check_length(header, os.fstat(opened.fileno()).st_size)
            check_size(path, header.data_size)
            return _read_data(opened, header)
        except S2EError:
            raise
        except (OSError, ValueError) as problem:
            raise unreadable(path, f"it is truncated or corrupted ({first_line(problem)})") from problem


def npz_content(arrays: Mapping[str, Array]) -> bytes:
    """Return the content of a compressed .npz file; unlike for `numpy.savez`, "file" is a name like any other."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}{SUFFIX}", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    return content.getvalue()


def _members(archive: zipfile.ZipFile, opened: BinaryIO) -> dict[str, zipfile.ZipInfo]:
    """Return the entries by the names of their arrays, and check the list of entries."""
    entries = archive.infolist()
    opened.seek(-END_RECORD - len(archive.comment) + ENTRIES, os.SEEK_END)
    stated = int.from_bytes(opened.read(2), "little")
    if min(len(entries), 0xFFFF) != stated:  # the largest number of two bytes
        raise zipfile.BadZipFile(f"it must hold {stated} arrays, but got {len(entries)}")
    members = {entry.filename.removesuffix(SUFFIX): entry for entry in entries}
    if len(members) < len(entries):
        raise zipfile.BadZipFile("it holds two arrays of one name")
    for entry in entries:
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise zipfile.BadZipFile(f"{entry.filename!r} has a compression that NumPy does not use")
        archive.open(entry).close()  # compares its name with the one before its data
    return members


def _member_header(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, name: str, path: Path) -> _Header:
    with archive.open(entry) as opened:
        header = _header(opened, name, path)
    _check_length(header, entry.file_size)
    return header


def _header(opened: IO[bytes], name: str, path: Path) -> _Header:
    """Read the header of an array; a damaged one can make NumPy's parser raise almost anything."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Python's parser and of old headers
            version = np.lib.format.read_magic(opened)
            read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
            shape, fortran_order, dtype = read(opened)
    except (OSError, zipfile.BadZipFile, zlib.error):
        raise
    except Exception as problem:
        raise unreadable(path, f"`{name}` has a damaged header") from problem
    if dtype.hasobject:
        raise InvalidInput(
            f"{str(path)!r}: `{name}` must hold numbers or strings, but got Python objects; "
            f"convert it with numpy.asarray(..., dtype=...) before saving."
        )
    if dtype.kind not in KINDS or dtype.subdtype is not None or dtype.itemsize == 0 or min(shape, default=0) < 0:
        raise unreadable(path, f"`{name}` must hold numbers or strings, but got {dtype} of shape {shape}")
    return _Header(shape, fortran_order, dtype, opened.tell())


def _check_length(header: _Header, size: int) -> None:
    if header.length + header.data_size != size:
        raise ValueError(f"{header.data_size} bytes expected, but got {size - header.length}")


def _read_member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, header: _Header) -> Array:
    with archive.open(entry) as opened:
        opened.read(header.length)
        return _read_data(opened, header)


def _read_data(opened: IO[bytes], header: _Header) -> Array:
    """Read the numbers to the end, where the archive verifies their checksum."""
    content = np.empty(header.data_size, dtype=np.uint8)
    view, filled = content.data, 0
    while filled < len(view):
        count = opened.readinto(view[filled:])  # type: ignore[attr-defined]
        if not count:
            raise ValueError("the data end too early")
        filled += count
    if opened.read(1):
        raise ValueError("other data follow the array")
    array = content.view(header.dtype)
    if header.dtype.kind == "b" and content.size and content.max() > 1:
        raise ValueError("booleans must be 0 or 1")
    array = array.astype(header.dtype.newbyteorder("="), copy=False)
    if header.dtype.kind == "U" and array.size:
        points = array.view(np.uint32)
        (low, high), (first, last) = SURROGATES, FILE_NAME_BYTES
        surrogates = points[(points >= low) & (points <= high)]
        if points.max() > LARGEST_CODE_POINT or ((surrogates < first) | (surrogates > last)).any():
            raise ValueError("it holds text that is not Unicode")
    return array.reshape(header.shape, order="F" if header.fortran_order else "C")
