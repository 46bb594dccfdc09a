"""Sparse columns of numbers as few dense ones. Letters: N samples, F columns, Q directions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

if TYPE_CHECKING:
    from s2e.data.samples import Array


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
