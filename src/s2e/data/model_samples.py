"""Samples as models of scikit-learn take them, where these are not the inputs of networks.

Sparse columns are left as they are. A table with free text gives `TextSamples`: linear models and naive Bayes learn
from the TF-IDF of thousands of terms, which is sparse, other models from the projections that networks take.

Letters: N samples, F inputs of a network, D of them of columns without text, W terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from scipy import sparse

if TYPE_CHECKING:
    from s2e.data.samples import Array


@dataclass(frozen=True, eq=False)
class TextSamples:
    """Samples of a table with free text; `samples[rows]` selects some.

    Attributes:
        inputs: (N, F) float32, those of columns without text first.
        plain: D.
        terms: (N, W) float32, not negative.
    """

    inputs: Array
    plain: int
    terms: sparse.csr_matrix

    @property
    def shape(self) -> tuple[int, int]:
        """(N, F + W)."""
        return len(self.inputs), self.inputs.shape[1] + self.terms.shape[1]

    @cached_property
    def linear(self) -> sparse.csr_matrix:
        """The inputs of columns without text, and the terms, (N, D + W)."""
        return sparse.hstack([sparse.csr_matrix(self.inputs[:, : self.plain]), self.terms]).tocsr()

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, rows: Any) -> TextSamples:
        return TextSamples(self.inputs[rows], self.plain, self.terms[rows])


ModelSamples: TypeAlias = TextSamples | sparse.csr_matrix


def concatenated(parts: Sequence[ModelSamples]) -> ModelSamples:
    """Return all samples of one or more parts of the same kind, one part after the other."""
    first = parts[0]
    if not isinstance(first, TextSamples):
        return sparse.vstack(parts).tocsr()
    inputs = np.concatenate([part.inputs for part in parts])
    return TextSamples(inputs, first.plain, sparse.vstack([part.terms for part in parts]).tocsr())
