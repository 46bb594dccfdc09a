"""From what scikit-learn's users hand over to inputs of a network, in the same way for every later one.

| what | becomes |
|---|---|
| numbers, (N, F) | centred and scaled, column by column; missing values become the median, with an indicator |
| DataFrames with text, categories or truths | what `table_columns` says of each column |
| sparse matrices, (N, F) | the Q strongest directions of all rows (truncated SVD), or dense where F <= Q |
| arrays of three and more axes | images: pixels (uint8) as they are, other numbers centred and scaled as a whole |

Letters: N samples, F columns, Q directions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np
import pandas as pd
from scipy import sparse

from s2e.data.table_columns import centre_and_scale, standardised
from s2e.data.table_encoding import TableEncoding
from s2e.errors import InvalidInput, UnreadableData

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

CHANNELS = (1, 3, 4)
"""How many an image may have; an axis of this length at the end holds channels where the second one cannot."""


class Written(NamedTuple):
    """Features as what JSON can hold, and arrays beside it."""

    about: dict[str, Any]
    arrays: dict[str, Array]


class Features(Protocol):
    """How samples become inputs; learnt from the training samples."""

    def encode(self, samples: Any) -> Array:
        """Return the inputs, float32 or uint8, (N, ...)."""

    def written(self) -> Written:
        """Return everything, for `features_from`."""


@dataclass(frozen=True, eq=False)
class Numbers:
    """Columns of numbers.

    Attributes:
        centre: (F,) medians.
        scale: (F,) positive.
        missing: (F,) bool, columns that had missing values, and have an indicator.
    """

    kind: ClassVar = "numbers"
    centre: Array
    scale: Array
    missing: NDArray[np.bool_]

    @classmethod
    def fit(cls, samples: Array) -> Numbers:
        """Learn from samples (N, F); NaN is missing."""
        centre, scale = centre_and_scale(samples)
        missing = np.asarray(np.isnan(samples).any(axis=0))
        return cls(np.where(np.isnan(centre), 0.0, centre), np.where(scale > 0, scale, 1.0), missing)

    def encode(self, samples: Array) -> Array:
        """Return float32 (N, F + columns that had missing values)."""
        numbers = np.asarray(samples, dtype=np.float64)
        inputs = standardised(numbers, self.centre, self.scale)
        return np.concatenate([inputs, np.isnan(numbers[:, self.missing])], axis=1).astype(np.float32)

    def written(self) -> Written:
        """Return everything, for `features_from`."""
        return Written({"kind": self.kind}, {"centre": self.centre, "scale": self.scale, "missing": self.missing})


@dataclass(frozen=True, eq=False)
class SparseNumbers:
    """Columns of numbers that are mostly zero, such as counts of words.

    Attributes:
        directions: (Q, F) on which rows are projected; None where all columns are kept.
        scale: what makes the root mean square of the inputs 1.
    """

    kind: ClassVar = "sparse"
    directions: Array | None
    scale: float

    @classmethod
    def fit(cls, samples: sparse.csr_matrix, most: int | None, seed: int) -> SparseNumbers:
        """Learn from samples (N, F), keeping `most` directions; None keeps all columns."""
        from sklearn.decomposition import TruncatedSVD

        directions = None
        if most is not None and min(samples.shape) > most and samples.nnz:
            directions = TruncatedSVD(most, random_state=seed).fit(samples).components_.astype(np.float32)
        learnt = cls(directions, 1.0)
        found = learnt.encode(samples)
        used = found if directions is not None else found[found != 0]
        return cls(directions, float(np.sqrt(np.mean(used**2))) or 1.0 if used.size else 1.0)

    def encode(self, samples: sparse.csr_matrix) -> Array:
        """Return float32 (N, Q) or (N, F)."""
        found = samples.toarray() if self.directions is None else samples @ self.directions.T
        return np.ascontiguousarray(found / self.scale, dtype=np.float32)

    def written(self) -> Written:
        """Return everything, for `features_from`."""
        arrays = {} if self.directions is None else {"directions": self.directions}
        return Written({"kind": self.kind, "scale": self.scale}, arrays)


@dataclass(frozen=True, eq=False)
class TableRows:
    """Rows of a DataFrame with columns of several kinds."""

    kind: ClassVar = "table"
    table: TableEncoding

    @classmethod
    def fit(cls, frame: pd.DataFrame, labels: NDArray[np.int64]) -> TableRows:
        """Learn from a DataFrame; the labels only have to be there."""
        names = {str(name).strip() for name in frame.columns}
        label = "label"
        while label in names:
            label += "_"
        return cls(TableEncoding.fit(frame.assign(**{label: labels}), label))

    def encode(self, frame: pd.DataFrame) -> Array:
        """Return float32, one input or more for each column."""
        return self.table.encode(frame)

    def written(self) -> Written:
        """Return everything, for `features_from`."""
        return Written({"kind": self.kind, "table": self.table.to_json()}, {})


@dataclass(frozen=True, eq=False)
class Images:
    """Images (N, H, W), (N, channels, H, W) or (N, H, W, channels), or arrays of more axes as they are.

    Attributes:
        shape: of one image as it is handed over.
        pixels: whether they are uint8, which networks are fed divided by 255.
        centre: mean of all numbers that are no pixels.
        scale: their standard deviation.
    """

    kind: ClassVar = "images"
    shape: tuple[int, ...]
    pixels: bool
    centre: float
    scale: float

    @classmethod
    def fit(cls, samples: Array) -> Images:
        """Learn from samples (N, ...)."""
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

    def written(self) -> Written:
        """Return everything, for `features_from`."""
        about = {"kind": self.kind, "shape": list(self.shape), "pixels": self.pixels}
        return Written({**about, "centre": self.centre, "scale": self.scale}, {})


def features_from(about: Mapping[str, Any], arrays: Mapping[str, Array]) -> Features:
    """Return the features that `written` wrote."""
    try:
        match about["kind"]:
            case Numbers.kind:
                return Numbers(arrays["centre"], arrays["scale"], arrays["missing"].astype(bool))
            case SparseNumbers.kind:
                return SparseNumbers(arrays.get("directions"), float(about["scale"]))
            case TableRows.kind:
                return TableRows(TableEncoding.from_json(about["table"]))
            case Images.kind:
                shape = tuple(map(int, about["shape"]))
                return Images(shape, bool(about["pixels"]), float(about["centre"]), float(about["scale"]))
            case other:
                raise UnreadableData(f"features must be of a known kind, but got {other!r}; fit and save again.")
    except (KeyError, TypeError, ValueError) as problem:
        raise UnreadableData(
            f"the features of this classifier cannot be read ({problem!r}); fit it again."
        ) from problem
