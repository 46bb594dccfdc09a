"""Cross-fitting: the training samples are divided into folds, and for each fold one member holds it out.

The predictions of that member for its fold are those of networks that were never trained on these labels: given the
input, they are independent of the given label, as the label model assumes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from s2e.seeds import derive

FOLDS = 5
"""Folds of a final training: each of its members is trained on four fifths of the samples."""


def stratified_folds(labels: NDArray[np.int64], folds: int, seed: int) -> NDArray[np.int64]:
    """Return the fold of each sample, (N,) in 0..K-1: every class is spread evenly, and the folds are of equal size.

    Args:
        labels: (N,) given labels.
        folds: K; fewer if there are fewer than two samples for each.
        seed: determines the folds.
    """
    generator = np.random.default_rng(derive(seed, "folds"))
    mixed = generator.permutation(len(labels))
    ordered = mixed[np.argsort(labels[mixed], kind="stable")]  # by class, in random order within a class
    assigned = np.empty(len(labels), dtype=np.int64)
    assigned[ordered] = np.arange(len(labels)) % max(1, min(folds, len(labels) // 2))
    return assigned
