"""Pooling of all networks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_batchedtensor

from s2e.engine.compiled.layers.vmap_rule import ByRule, Dims, first


def max_pool2d(
    narrow: torch.dtype,
    inputs: Tensor,
    kernel_size: int | tuple[int, ...],
    stride: int | tuple[int, ...] | None = None,
    padding: int | tuple[int, ...] = 0,
    dilation: int | tuple[int, ...] = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | None:
    """Halve both sides of images: the larger of neighbours, the first of equal ones, as a few comparisons."""
    halves = kernel_size in (2, (2, 2)) and stride in (None, 2, (2, 2)) and padding in (0, (0, 0))
    plain = halves and dilation in (1, (1, 1)) and not ceil_mode and not return_indices
    if not plain or not is_batchedtensor(inputs) or inputs.shape[-1] % 2 or inputs.shape[-2] % 2:
        return None
    halved: Tensor = _HalvedByRule.apply(inputs.to(narrow))  # type: ignore[no-untyped-call]
    return halved.to(inputs.dtype)


class _HalvedByRule(ByRule):
    @staticmethod
    def vmap(info: Any, in_dims: Dims, inputs: Tensor) -> tuple[Tensor, int]:  # noqa: ARG004
        """Halve the last two axes of whatever there is."""
        return _Halved.apply(first(inputs, in_dims[0]))[0], 0  # type: ignore[no-untyped-call]


class _Halved(torch.autograd.Function):
    """The largest of each square of four, and which of them it is: the first of equal ones, or not a number."""

    @staticmethod
    def forward(inputs: Tensor) -> tuple[Tensor, Tensor]:
        largest, *others = (inputs[..., i::2, j::2] for i in (0, 1) for j in (0, 1))
        which = torch.zeros_like(largest, dtype=torch.uint8)
        for place, other in enumerate(others, start=1):
            larger = (other > largest) | other.isnan()
            largest, which = torch.where(larger, other, largest), torch.where(larger, place, which)
        return largest, which

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:  # noqa: ARG004
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])
        ctx.save_for_forward(output[1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor | None) -> Tensor:
        """Hand each gradient to the one of four it came from."""
        (which,) = ctx.saved_tensors
        rows, columns = (torch.arange(2 * side, device=which.device) for side in which.shape[-2:])
        place = (2 * (rows % 2)).unsqueeze(1) + columns % 2  # (H, W): which of its four an element is
        chosen, spread = (each.index_select(-2, rows // 2).index_select(-1, columns // 2) for each in (which, gradient))
        return torch.where(chosen == place, spread, 0.0)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> tuple[Tensor, None]:
        (which,) = ctx.saved_tensors
        squares = torch.stack([tangent[..., i::2, j::2] for i in (0, 1) for j in (0, 1)], dim=-1)
        return squares.gather(-1, which.long().unsqueeze(-1)).squeeze(-1), None
