"""What the rules have in common."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

ALIGNED = 8
"""Sides of products are filled up to a multiple of this: the fast kernels read so many numbers at once."""

Dims = tuple[int | None, ...]


class ByRule(torch.autograd.Function):
    """A layer that exists vmapped only, and is differentiated as the operations of its rule."""

    @staticmethod
    def forward(*given: Any) -> Tensor:
        """Never happens."""
        raise NotImplementedError

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep nothing."""


def first(tensor: Tensor, dim: int | None) -> Tensor:
    """Return a tensor with its axis of networks in front; one that all networks share has none."""
    return tensor if dim is None else tensor.movedim(dim, 0)


def aligned(tensor: Tensor, dim: int, to: int = ALIGNED) -> Tensor:
    """Fill an axis up with zeros to a length that matrix products take in whole words."""
    missing = -tensor.shape[dim] % to
    after = tensor.ndim - 1 - dim % tensor.ndim
    return functional.pad(tensor, (0, 0) * after + (0, missing)) if missing else tensor
