"""A word to the compiler: what to put into memory. It works out anew, for every reader, what it takes for cheap."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def written_down(tensor: Tensor) -> Tensor:
    """Return the same, to be put into memory once, in the order of its axes; its gradient, too."""
    if not tensor.is_floating_point():  # has no gradient
        return _WrittenDown.forward(tensor)
    return _WrittenDown.apply(tensor)  # type: ignore[no-untyped-call,no-any-return]


class _WrittenDown(torch.autograd.Function):
    """Strides speak of memory, so there has to be some."""

    @staticmethod
    def forward(tensor: Tensor) -> Tensor:
        size = tensor.shape
        return tensor.flatten().as_strided(size, [size[dim + 1 :].numel() for dim in range(len(size))])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep nothing."""

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # noqa: ARG004
        return _WrittenDown.forward(gradient)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:  # noqa: ARG004
        return tangent.clone()
