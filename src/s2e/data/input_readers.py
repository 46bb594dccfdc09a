"""Readers: read inputs from later files the way the training data were read. A run stores its reader as JSON.

| kind | training data | reads |
|---|---|---|
| table (`table_reader.TableReader`) | .csv, .parquet or a table of the Hub | tables with the same columns |
| images | folder of class folders, or images of the Hub | a folder of images, or a single image |
| arrays | .npz, or a published data set | .npz with the samples under `x` |
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from s2e.data.image_decoding import as_pixels, read_images
from s2e.data.image_encoding import ImageEncoder
from s2e.data.samples import ColumnUse, InputReader, Samples
from s2e.errors import InvalidInput, InvalidType
from s2e.files.arrays import read_npz
from s2e.files.fields import Fields

if TYPE_CHECKING:
    from s2e.data.table_encoding import TableEncoder

LARGEST_SIDE = 2**14
"""Largest side of images, in pixels, that a reader can be asked for."""

ENCODING = "encoding.json"
"""File of a run that holds its reader."""

INPUT_KEYS = ("x", "X", "inputs", "x_test", "X_test")
"""Keys of the inputs in an .npz file, in order of preference."""


@dataclass(frozen=True)
class ImageReader:
    """Reads images as C channels of S x S pixels."""

    kind: ClassVar = "images"
    side: int
    channels: int
    columns: ClassVar[tuple[ColumnUse, ...]] = ()

    def read(self, path: Path) -> Samples:
        """Read all images in a folder and its subfolders, or one image."""
        from s2e.data.image_folders import image_files

        files = image_files(path)
        names = [file.relative_to(path).as_posix() if path.is_dir() else file.name for file in files]
        return Samples(read_images(files, self.side, self.channels), names)

    def read_list(self, images: Any) -> Any:
        """Return images as uint8 (N, C, S, S): a sequence of files or of `PIL.Image` images."""
        given = list(images)
        if all(isinstance(each, (str, PathLike)) for each in given):
            return read_images(given, self.side, self.channels)
        if not all(hasattr(each, "getexif") for each in given):
            raise InvalidType("`X` must be a folder, or a sequence of image files or of `PIL.Image` images.")
        return np.stack([as_pixels(each, self.side, self.channels) for each in given])

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values, for `reader_from_json`."""
        return {"kind": self.kind, "side": self.side, "channels": self.channels}


@dataclass(frozen=True)
class ArrayReader:
    """Reads arrays of samples.

    Attributes:
        encoder: encodes columns of numbers, or images.
    """

    kind: ClassVar = "arrays"
    encoder: TableEncoder | ImageEncoder

    @property
    def columns(self) -> tuple[ColumnUse, ...]:
        """What became of every column."""
        return () if isinstance(self.encoder, ImageEncoder) else self.encoder.uses

    def read(self, path: Path) -> Samples:
        """Read an .npz file with the samples under one of `INPUT_KEYS`."""

        def select(found: Collection[str]) -> list[str]:
            keys = [key for key in INPUT_KEYS if key in found]
            if not keys:
                raise InvalidInput(
                    f"{path} must hold the samples under the key `x`, but holds {', '.join(found) or 'nothing'}."
                )
            return keys[:1]

        (array,) = read_npz(path, select).values()
        return self.read_array(array, str(path))

    def read_array(self, array: Any, origin: str) -> Samples:
        """Return the samples in an array; `origin` is what holds it, for messages."""
        from s2e.data.encoders import encode_array

        images = self.encoder if isinstance(self.encoder, ImageEncoder) else None
        shape = self.encoder.shape if isinstance(self.encoder, ImageEncoder) else (len(self.encoder.names),)
        pixels = images is not None and images.pixels
        wrong_type = array.dtype != np.uint8 if pixels else array.dtype.kind not in "biuf"
        if array.ndim < 1 or array[:1].size != (math.prod(shape) if len(array) else 0) or wrong_type:
            raise InvalidInput(
                f"{origin} must hold samples of shape {shape} as {'uint8' if pixels else 'numbers'}, as in training, "
                f"but got {array.dtype} of shape {array.shape[1:]}."
            )
        samples = array.reshape(len(array), *shape)
        if images is not None and not pixels and samples.dtype == np.uint8:
            samples = samples.astype(np.float32)
        return Samples(encode_array(self.encoder, samples), [str(row) for row in range(len(samples))])

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values, for `reader_from_json`."""
        from s2e.data.encoders import write_encoder

        return {"kind": self.kind, "encoder": write_encoder(self.encoder).about}


def reader_from_json(written: Any, origin: Path | str = ENCODING) -> InputReader:
    """Return the reader that `to_json` wrote; `origin` is the file it comes from."""
    fields = Fields(written, origin)
    kind = fields.text("kind")
    if kind == ImageReader.kind:
        return ImageReader(
            fields.integer("side", least=1, most=LARGEST_SIDE), fields.integer("channels", least=1, most=3)
        )
    if kind == ArrayReader.kind:
        if "encoder" not in fields:  # of an earlier version, which encoded nothing
            return ArrayReader(ImageEncoder(fields.shape("sample_shape"), fields.flag("pixels")))
        from s2e.data.encoders import read_encoder
        from s2e.data.sparse_projection import SparseEncoder

        encoder = read_encoder(fields.fields("encoder"), {})
        if isinstance(encoder, SparseEncoder):
            raise fields.error("encoder.kind", "table or images", "sparse")
        return ArrayReader(encoder)
    if kind == "table":
        from s2e.data.table_reader import TableReader

        return TableReader.from_json(fields)
    raise fields.error("kind", "table, images or arrays", kind)
