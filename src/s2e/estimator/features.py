"""Encoders: turn the samples of `S2EClassifier` into inputs of a network, the same way in `fit` and `predict`.

| samples | inputs |
|---|---|
| numbers, (N, F) | each column centred and scaled; missing values become the median, with an indicator |
| DataFrame with text, categories or booleans | each column as in `s2e.data.table_columns` (`TableEncoder`) |
| sparse matrix, (N, F) | projections on the Q leading directions (truncated SVD), or dense if F <= Q |
| array of three or more axes | images: uint8 pixels unchanged, other numbers centred and scaled by common constants |

Letters: N samples, F columns, Q directions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from scipy import sparse

from s2e.data.table_columns import centre_and_scale, standardised
from s2e.data.table_encoding import TableEncoder
from s2e.errors import InvalidInput
from s2e.files.fields import Fields

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

CHANNELS = (1, 3, 4)
"""Numbers of channels of an image. A last axis of this length holds channels unless the first axis could."""


class Encoder(Protocol):
    """Turns samples into inputs; fitted to the training samples."""

    def encode(self, samples: Any) -> Array:
        """Return the inputs, float32 or uint8, (N, ...)."""


@dataclass(frozen=True, eq=False)
class NumberEncoder:
    """Encoder of columns of numbers.

    Attributes:
        centre: (F,) medians.
        scale: (F,) positive.
        missing: (F,) bool, columns with missing values in training, which have an indicator.
    """

    centre: Array
    scale: Array
    missing: NDArray[np.bool_]

    @classmethod
    def fit(cls, samples: Array) -> NumberEncoder:
        """Fit to samples (N, F); NaN means missing."""
        centre, scale = centre_and_scale(samples)
        missing = np.asarray(np.isnan(samples).any(axis=0))
        return cls(np.where(np.isnan(centre), 0.0, centre), np.where(scale > 0, scale, 1.0), missing)

    def encode(self, samples: Array) -> Array:
        """Return float32 (N, F + number of indicators)."""
        numbers = np.asarray(samples, dtype=np.float64)
        inputs = standardised(numbers, self.centre, self.scale)
        return np.concatenate([inputs, np.isnan(numbers[:, self.missing])], axis=1).astype(np.float32)


@dataclass(frozen=True, eq=False)
class SparseEncoder:
    """Encoder of sparse columns of numbers, such as word counts.

    Attributes:
        directions: (Q, F) right singular vectors that rows are projected on; None if all columns are kept.
        scale: root mean square of the unscaled inputs in training.
    """

    directions: Array | None
    scale: float

    @classmethod
    def fit(cls, samples: sparse.csr_matrix, most: int | None, seed: int) -> SparseEncoder:
        """Fit to samples (N, F), keeping `most` directions; None keeps all columns."""
        from sklearn.decomposition import TruncatedSVD

        directions = None
        if most is not None and min(samples.shape) > most and samples.nnz:
            directions = TruncatedSVD(most, random_state=seed).fit(samples).components_.astype(np.float32)
        unscaled = cls(directions, 1.0).encode(samples)
        used = unscaled if directions is not None else unscaled[unscaled != 0]
        return cls(directions, float(np.sqrt(np.mean(used**2))) or 1.0 if used.size else 1.0)

    def encode(self, samples: sparse.csr_matrix) -> Array:
        """Return float32 (N, Q) or (N, F)."""
        unscaled = samples.toarray() if self.directions is None else samples @ self.directions.T
        return np.ascontiguousarray(unscaled / self.scale, dtype=np.float32)


@dataclass(frozen=True, eq=False)
class ImageEncoder:
    """Encoder of images (N, H, W), (N, channels, H, W) or (N, H, W, channels); other arrays keep their axes.

    Attributes:
        shape: shape of one sample before encoding.
        pixels: whether samples are uint8, which networks receive divided by 255.
        centre: mean of all numbers, 0 for pixels.
        scale: standard deviation of all numbers, 1 for pixels.
    """

    shape: tuple[int, ...]
    pixels: bool
    centre: float
    scale: float

    @classmethod
    def fit(cls, samples: Array) -> ImageEncoder:
        """Fit to samples (N, ...)."""
        if samples.dtype == np.uint8:
            return cls(samples.shape[1:], True, 0.0, 1.0)
        return cls(samples.shape[1:], False, float(samples.mean()), float(samples.std()) or 1.0)

    def encode(self, samples: Array) -> Array:
        """Return uint8 or float32 (N, channels, H, W), or (N, ...)."""
        if samples.shape[1:] != self.shape or (samples.dtype == np.uint8) != self.pixels:
            wanted = f"{'uint8' if self.pixels else 'numbers other than uint8'} of shape (N, {str(self.shape)[1:]}"
            raise InvalidInput(
                f"`X` must hold {wanted}, as in training, but got {samples.dtype} of shape {samples.shape}."
            )
        if not self.pixels:
            samples = ((samples - self.centre) / self.scale).astype(np.float32)
        if len(self.shape) == 2:
            samples = samples[:, None]  # (N, 1, H, W)
        elif len(self.shape) == 3 and self.shape[2] in CHANNELS and self.shape[0] not in CHANNELS:
            samples = samples.transpose(0, 3, 1, 2)  # (N, channels, H, W)
        return np.ascontiguousarray(samples)


class WrittenEncoder(NamedTuple):
    """Fields of an encoder: JSON values, and arrays."""

    about: dict[str, Any]
    arrays: dict[str, Array]


ENCODERS: dict[str, type[NumberEncoder | SparseEncoder | TableEncoder | ImageEncoder]] = {
    "numbers": NumberEncoder,
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


def read_encoder(about: Fields, arrays: Mapping[str, Array]) -> Encoder:
    """Return the encoder that `write_encoder` wrote."""
    kind = about.text("kind")
    if kind == "table":
        return TableEncoder.from_json(about)
    positive = math.ulp(0.0)
    if kind == "numbers":
        columns = arrays["centre"].shape if "centre" in arrays else ()
        centre, scale = _array(arrays, "centre", "f", columns), _array(arrays, "scale", "f", columns)
        if len(columns) != 1 or not np.isfinite(centre).all() or not (np.isfinite(scale) & (scale > 0)).all():
            raise InvalidInput("`centre` and `scale` of an encoder must be finite, and all scales positive.")
        return NumberEncoder(centre, scale, _array(arrays, "missing", "b", columns))
    if kind == "sparse":
        directions = arrays.get("directions")
        if directions is not None and (directions.ndim != 2 or directions.dtype.kind != "f"):
            raise InvalidInput(f"`directions` must have the shape (Q, F), but got {directions.shape}.")
        return SparseEncoder(directions, about.number("scale", least=positive))
    if kind == "images":
        shape, pixels = about.integers("shape", least=1), about.flag("pixels")
        return ImageEncoder(shape, pixels, about.number("centre"), about.number("scale", least=positive))
    raise about.error("kind", f"one of {', '.join(ENCODERS)}", kind)


def _array(arrays: Mapping[str, Array], name: str, kind: str, shape: tuple[int, ...]) -> Array:
    if name not in arrays or arrays[name].dtype.kind != kind or arrays[name].shape != shape:
        got = f"{arrays[name].dtype} of shape {arrays[name].shape}" if name in arrays else "none"
        raise InvalidInput(f"`{name}` of an encoder must have the shape {shape}, but got {got}.")
    return arrays[name]
