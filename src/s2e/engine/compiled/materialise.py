"""A hint to the compiler to store a tensor in memory.

By default it recomputes what it considers cheap in every kernel that reads it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def materialised(tensor: Tensor) -> Tensor:
    """Return an equal tensor that the compiler stores once, contiguously; its gradient is stored likewise."""
    if not tensor.is_floating_point():  # has no gradient
        return _Materialised.forward(tensor)
    return _Materialised.apply(tensor)  # type: ignore[no-untyped-call,no-any-return]


class _Materialised(torch.autograd.Function):
    """`as_strided` works on storage, so the compiler has to allocate some."""

    @staticmethod
    def forward(tensor: Tensor) -> Tensor:
        size = tensor.shape
        return tensor.flatten().as_strided(size, [size[dim + 1 :].numel() for dim in range(len(size))])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Save nothing."""

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # noqa: ARG004
        return _Materialised.forward(gradient)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:  # noqa: ARG004
        return tangent.clone()
