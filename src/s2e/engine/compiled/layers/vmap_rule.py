"""The base class of vmap rules, and operations they share."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

ALIGNMENT = 8
"""Sides of products are padded to a multiple of this: the fast kernels load this many numbers at once."""

Dims = tuple[int | None, ...]


class VmapRule(torch.autograd.Function):
    """A layer that is defined inside `vmap` only, by `vmap`, and differentiated through the operations of that rule."""

    @staticmethod
    def forward(*given: Any) -> Tensor:
        """Raise: the layer is not defined outside `vmap`."""
        raise NotImplementedError

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Save nothing."""


def networks_first(tensor: Tensor, dim: int | None) -> Tensor:
    """Move the axis of networks to the front; a tensor that all networks share has none, `dim=None`."""
    return tensor if dim is None else tensor.movedim(dim, 0)


def pad_to_multiple(tensor: Tensor, dim: int, multiple: int = ALIGNMENT) -> Tensor:
    """Pad an axis with zeros at its end, to the next length that is a multiple."""
    missing = -tensor.shape[dim] % multiple
    after = tensor.ndim - 1 - dim % tensor.ndim
    return functional.pad(tensor, (0, 0) * after + (0, missing)) if missing else tensor
