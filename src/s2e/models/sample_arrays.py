"""Samples of models as plain arrays and numbers, for files and other processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray
from scipy import sparse

from s2e.data.model_samples import TextSamples
from s2e.files.fields import Fields

_SPARSE = ("data", "indices", "indptr")
"""Names of the arrays of a sparse matrix."""


def arrays_of_samples(samples: Any) -> dict[str, NDArray[Any]]:
    """Return the arrays of samples: dense, sparse or with text."""
    arrays = {}
    if isinstance(samples, TextSamples):
        arrays["samples"], samples = samples.inputs, samples.terms
    if sparse.issparse(samples):
        return arrays | {name: getattr(samples, name) for name in _SPARSE}
    return arrays | {"samples": samples}


def about_samples(samples: Any) -> dict[str, int]:
    """Return the numbers of samples: `columns` of sparse samples, or of the terms of text."""
    if isinstance(samples, TextSamples):
        return {"columns": samples.terms.shape[1], "plain": samples.plain}
    return {"columns": samples.shape[1]} if sparse.issparse(samples) else {}


def samples_of_arrays(about: Fields, arrays: Mapping[str, NDArray[Any]], count: int) -> Any:
    """Return a number of samples from their numbers and their arrays, which may be those of a damaged file."""
    dense = arrays.get("samples")
    if "columns" not in about:
        return arrays["samples"]
    shape = (count, about.integer("columns", least=1))
    terms = sparse.csr_matrix(tuple(arrays[name] for name in _SPARSE), shape=shape)
    terms.check_format()
    if dense is None:
        return terms
    if dense.ndim != 2 or len(dense) != count or dense.dtype.kind != "f" or terms.data.min(initial=0.0) < 0:
        raise ValueError("other samples")
    return TextSamples(dense, about.integer("plain", least=0, most=dense.shape[1]), terms)
