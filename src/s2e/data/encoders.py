"""Encoders: turn samples into inputs of a network, the same way in training and in prediction, from any origin.

| samples | inputs |
|---|---|
| table, or array of numbers (N, F) | each column by its kind (`TableEncoder`); the columns of an array are x0, x1, … |
| sparse matrix (N, F) | projections on the Q leading directions (truncated SVD), or dense if F <= Q (`SparseEncoder`) |
| array of three or more axes | images: uint8 pixels and numbers in [0, 1] unchanged, others scaled (`ImageEncoder`) |

`.npz` files and `S2EClassifier` use these encoders, and tables of any format a `TableEncoder`. Published data sets are
images. Letters: N samples, F columns, Q directions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from s2e.data.image_encoding import ImageEncoder
from s2e.data.sparse_projection import SparseEncoder
from s2e.data.table_encoding import TableEncoder
from s2e.errors import InvalidInput
from s2e.files.fields import Fields

if TYPE_CHECKING:
    from s2e.data.samples import Array, ColumnUse


class Encoder(Protocol):
    """Turns samples into inputs; fitted to the training samples."""

    def encode(self, samples: Any) -> Array:
        """Return the inputs, float32 or uint8, (N, ...)."""


def fit_array(samples: Array) -> TableEncoder | ImageEncoder:
    """Fit to an array of numbers: columns (N, F), or images of three or more axes."""
    return TableEncoder.fit(TableEncoder.frame(samples)) if samples.ndim == 2 else ImageEncoder.fit(samples)


def encode_array(encoder: TableEncoder | ImageEncoder, samples: Array) -> Array:
    """Return the inputs of an array; columns are identified by their positions."""
    if isinstance(encoder, TableEncoder):
        return encoder.encode(TableEncoder.frame(samples, encoder.names))
    return encoder.encode(samples)


def column_uses(encoder: Encoder) -> tuple[ColumnUse, ...]:
    """Return what became of every column; nothing for samples without columns."""
    return encoder.uses if isinstance(encoder, TableEncoder) else ()


class WrittenEncoder(NamedTuple):
    """Fields of an encoder: JSON values, and arrays."""

    about: dict[str, Any]
    arrays: dict[str, Array]


ENCODERS: dict[str, type[SparseEncoder | TableEncoder | ImageEncoder]] = {
    "sparse": SparseEncoder,
    "table": TableEncoder,
    "images": ImageEncoder,
}


def write_encoder(encoder: Encoder) -> WrittenEncoder:
    """Return all fields of an encoder, for `read_encoder`."""
    kind = next(kind for kind, cls in ENCODERS.items() if type(encoder) is cls)
    fields = encoder.to_json() if isinstance(encoder, TableEncoder) else vars(encoder)
    arrays = {name: value for name, value in fields.items() if isinstance(value, np.ndarray)}
    values = {name: value for name, value in fields.items() if name not in arrays}
    return WrittenEncoder({"kind": kind, **values}, arrays)


def read_encoder(about: Fields, arrays: Mapping[str, Array]) -> SparseEncoder | TableEncoder | ImageEncoder:
    """Return the encoder that `write_encoder` wrote."""
    kind = about.text("kind")
    if kind == "table":
        return TableEncoder.from_json(about)
    positive = math.ulp(0.0)
    if kind == "sparse":
        directions = arrays.get("directions")
        if directions is not None and (directions.ndim != 2 or directions.dtype.kind != "f"):
            raise InvalidInput(f"`directions` must have the shape (Q, F), but got {directions.shape}.")
        return SparseEncoder(directions, about.number("scale", least=positive))
    if kind == "images":
        shape, pixels = about.shape("shape"), about.flag("pixels")
        return ImageEncoder(shape, pixels, about.number("centre"), about.number("scale", least=positive))
    raise about.error("kind", f"one of {', '.join(ENCODERS)}", kind)
