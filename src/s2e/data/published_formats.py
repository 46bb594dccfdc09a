"""File formats of published data sets: IDX and CIFAR's binary format. Pure: contents in, arrays out.

`origin` is the name of the file in error messages. A file that is truncated or of another format raises
`UnreadableData`; a readable file with wrong contents raises `InvalidInput`.
Letters: N samples, C classes, H x W pixels.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from s2e.errors import InvalidInput, UnreadableData, listed

if TYPE_CHECKING:
    from s2e.data.samples import Array, Labels

Files = Mapping[str, bytes]
"""Contents of the files of one split, by name, in order."""

CIFAR_SHAPE = (3, 32, 32)
CIFAR_PIXELS = math.prod(CIFAR_SHAPE)
IDX_UNSIGNED_BYTE = 0x08


def parse_idx_split(files: Files, classes: int) -> tuple[Array, Labels]:
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
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape).copy()  # torch requires it writable


def parse_cifar_split(files: Files, classes: int) -> tuple[Array, Labels]:
    """Return images (N, 3, 32, 32) uint8 and labels (N,) of files of records: labels, then pixels, one byte each.

    A record of CIFAR-10 has one label; one of CIFAR-100 has two, coarse then fine, of which the fine one is returned.
    """
    label_bytes = 2 if classes == 100 else 1
    record = label_bytes + CIFAR_PIXELS
    for origin, content in files.items():
        if not content or len(content) % record:
            raise UnreadableData(
                f"{origin} must hold records of {record} bytes each, but got {len(content)} bytes, which is not a "
                f"positive multiple; it is truncated or of another format: copy or download it again."
            )
        check_label_range(np.frombuffer(content, dtype=np.uint8)[label_bytes - 1 :: record], classes, origin)
    records = np.concatenate([np.frombuffer(content, dtype=np.uint8) for content in files.values()])
    records = records.reshape(-1, record)  # (N, label_bytes + 3072)
    images = np.ascontiguousarray(records[:, label_bytes:]).reshape(-1, *CIFAR_SHAPE)  # (N, 3, 32, 32)
    return images, records[:, label_bytes - 1].astype(np.int64)


def parse_class_names(content: bytes, origin: str) -> tuple[str, ...]:
    """Return the class names in a text file with one name per line; blank lines are ignored."""
    try:
        lines = content.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise UnreadableData(f"{origin} must be a text file with one class name per line; replace it.") from error
    return tuple(line.strip() for line in lines if line.strip())


def check_label_range(labels: Array, classes: int, origin: str) -> None:
    """Raise for labels outside 0..C-1."""
    outside = np.unique(labels[(labels < 0) | (labels >= classes)]).tolist()
    if outside:
        raise InvalidInput(
            f"{origin}: labels must lie in 0..{classes - 1}, but got {listed(outside)}; "
            f"replace the file by the published one."
        )
