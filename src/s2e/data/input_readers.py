"""How a file became inputs, kept with a run, so that other files like it can be read in the same way.

| kind | training data | what can be read |
|---|---|---|
| table | .csv or .parquet | tables with the same columns |
| images | a folder of class folders | a folder of images, or a single image |
| arrays | .npz, or a published data set | .npz with the inputs under `x` |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from s2e.data.samples import Encoding, Samples
from s2e.errors import InvalidInput, UnreadableData

if TYPE_CHECKING:
    from s2e.data.table_encoding import TableEncoding

ENCODING = "encoding.json"
"""The file of a run that holds it."""

INPUT_KEYS = ("x", "X", "inputs", "x_test", "X_test")
"""Where an .npz file may hold samples to be predicted."""


@dataclass(frozen=True)
class OfTables:
    """Tables with the columns of the one that was trained on."""

    columns: TableEncoding

    def to_json(self) -> dict[str, Any]:
        """Return it as what JSON can hold."""
        return {"kind": "table", "table": self.columns.to_json()}

    def read(self, path: Path) -> Samples:
        """Read a table; one without the column of labels will do, and so will one without the column of IDs."""
        from s2e.data.table_files import read_table

        frame = read_table(path)
        named = self.columns.id_column is None or self.columns.id_column in map(str, frame.columns)
        ids = self.columns.ids_of(frame) if named else [str(row + 1) for row in range(len(frame))]
        return Samples(self.columns.encode(frame), ids)


@dataclass(frozen=True)
class OfImages:
    """Images, brought to C channels and S pixels a side."""

    side: int
    channels: int

    def to_json(self) -> dict[str, Any]:
        """Return it as what JSON can hold."""
        return {"kind": "images", "side": self.side, "channels": self.channels}

    def read(self, path: Path) -> Samples:
        """Read all images in a folder and the folders in it, or one image."""
        from s2e.data.image_decoding import read_images
        from s2e.data.image_folders import image_files

        files = image_files(path)
        names = [file.relative_to(path).as_posix() if path.is_dir() else file.name for file in files]
        return Samples(read_images(files, self.side, self.channels), names)


@dataclass(frozen=True)
class OfArrays:
    """Arrays of samples of one shape."""

    sample_shape: tuple[int, ...]
    pixels: bool  # uint8, scaled when fed to a network

    def to_json(self) -> dict[str, Any]:
        """Return it as what JSON can hold."""
        return {"kind": "arrays", "sample_shape": list(self.sample_shape), "pixels": self.pixels}

    def read(self, path: Path) -> Samples:
        """Read an .npz file with the inputs under one of `INPUT_KEYS`."""
        try:
            with np.load(path, allow_pickle=False) as file:
                key = next((key for key in INPUT_KEYS if key in file.files), None)
                found = None if key is None else np.asarray(file[key])
                held = ", ".join(file.files) or "nothing"
        except (OSError, ValueError, EOFError) as problem:
            raise UnreadableData(f"{path} must be an .npz file of samples, but could not be read: {problem}.") from None
        if found is None:
            raise InvalidInput(f"{path} must hold the samples under the key `x`, but holds {held}.")
        wanted = np.uint8 if self.pixels else np.float32
        flat = int(np.prod(self.sample_shape))
        if found.ndim < 1 or found[:1].size not in (0, flat) or (self.pixels and found.dtype != np.uint8):
            raise InvalidInput(
                f"{path} must hold samples of shape {self.sample_shape} as {np.dtype(wanted)}, as in training, "
                f"but got {found.dtype} of shape {found.shape[1:]}."
            )
        inputs = np.ascontiguousarray(found.reshape(len(found), *self.sample_shape).astype(wanted))
        return Samples(inputs, [str(row) for row in range(len(inputs))])


def encoding_from_json(written: Mapping[str, Any]) -> Encoding:
    """Return what `to_json` wrote."""
    from s2e.data.table_encoding import TableEncoding

    try:
        match written["kind"]:
            case "table":
                return OfTables(TableEncoding.from_json(written["table"]))
            case "images":
                return OfImages(int(written["side"]), int(written["channels"]))
            case "arrays":
                return OfArrays(tuple(map(int, written["sample_shape"])), bool(written["pixels"]))
            case other:
                raise UnreadableData(f"`kind` of an encoding must be table, images or arrays, but got {other!r}.")
    except (KeyError, TypeError, ValueError) as problem:
        raise UnreadableData(f"the encoding of this run cannot be read ({problem!r}); train again.") from problem
