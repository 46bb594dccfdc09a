"""Stacked tensors whose rows start at cache lines, so that how a row is rounded does not depend on its position.

Vectorised kernels on a CPU may round the numbers that do not fill a vector differently. With rows of whole vectors, one
kernel can work on all rows of a tensor, and each of them is rounded as if it were alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

ALIGNMENT = 16
"""Numbers in a cache line of 64 bytes, and in the widest vector of a CPU."""


def aligned_rows(tensor: Tensor) -> Tensor:
    """Return a copy of a tensor (G, ...) whose rows start at multiples of `ALIGNMENT` numbers, with zeros between."""
    size = tensor.shape[1:].numel()
    return _rows_of(tensor.new_zeros(len(tensor), size + -size % ALIGNMENT), tensor.shape).copy_(tensor)


def with_padding(rows: Tensor) -> Tensor:
    """Return all numbers of rows (G, ...), (G, size), with those that `aligned_rows` added."""
    return rows.as_strided((len(rows), rows.stride(0)), (rows.stride(0), 1))


def zeros_like_rows(rows: Tensor) -> Tensor:
    """Return zeros of the shape of rows (G, ...), with rows as far apart."""
    return _rows_of(torch.zeros_like(with_padding(rows)), rows.shape)


def _rows_of(storage: Tensor, shape: torch.Size) -> Tensor:
    """Return the first numbers of each row of (G, size) as rows of a shape (G, ...)."""
    strides = [shape[dim + 1 :].numel() for dim in range(1, len(shape))]
    return storage.as_strided(shape, (storage.shape[1], *strides))
