"""Max pooling of all networks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from s2e.engine.compiled.layers.vmap_rule import Dims, VmapRule, networks_first
from s2e.engine.compiled.torch_internals import is_vmapped


def max_pool2d(
    product_dtype: torch.dtype,
    inputs: Tensor,
    kernel_size: int | tuple[int, ...],
    stride: int | tuple[int, ...] | None = None,
    padding: int | tuple[int, ...] = 0,
    dilation: int | tuple[int, ...] = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | None:
    """Pool windows of 2×2 with stride 2 by comparisons; ties go to the first element. Other windows have no rule."""
    halves = kernel_size in (2, (2, 2)) and stride in (None, 2, (2, 2)) and padding in (0, (0, 0))
    plain = halves and dilation in (1, (1, 1)) and not ceil_mode and not return_indices
    if not plain or not is_vmapped(inputs) or inputs.shape[-1] % 2 or inputs.shape[-2] % 2:
        return None
    pooled: Tensor = _MaxPool.apply(inputs.to(product_dtype))  # type: ignore[no-untyped-call]
    return pooled.to(inputs.dtype)


class _MaxPool(VmapRule):
    @staticmethod
    def vmap(info: Any, in_dims: Dims, inputs: Tensor) -> tuple[Tensor, int]:  # noqa: ARG004
        """Pool over the last two axes."""
        return _MaxPool2x2.apply(networks_first(inputs, in_dims[0]))[0], 0  # type: ignore[no-untyped-call]


class _MaxPool2x2(torch.autograd.Function):
    """The maximum of each 2×2 window and its index in the window, 0..3; NaN is larger than any number."""

    @staticmethod
    def forward(inputs: Tensor) -> tuple[Tensor, Tensor]:
        largest, *others = (inputs[..., i::2, j::2] for i in (0, 1) for j in (0, 1))
        argmax = torch.zeros_like(largest, dtype=torch.uint8)
        for index, other in enumerate(others, start=1):
            larger = (other > largest) | other.isnan()
            largest, argmax = torch.where(larger, other, largest), torch.where(larger, index, argmax)
        return largest, argmax

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:  # noqa: ARG004
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])
        ctx.save_for_forward(output[1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor | None) -> Tensor:
        """Pass each gradient to the maximum of its window."""
        (argmax,) = ctx.saved_tensors
        rows, columns = (torch.arange(2 * side, device=argmax.device) for side in argmax.shape[-2:])
        index = (2 * (rows % 2)).unsqueeze(1) + columns % 2  # (H, W), of each element in its window
        chosen, spread = (
            each.index_select(-2, rows // 2).index_select(-1, columns // 2) for each in (argmax, gradient)
        )
        return torch.where(chosen == index, spread, 0.0)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> tuple[Tensor, None]:
        (argmax,) = ctx.saved_tensors
        windows = torch.stack([tangent[..., i::2, j::2] for i in (0, 1) for j in (0, 1)], dim=-1)
        return windows.gather(-1, argmax.long().unsqueeze(-1)).squeeze(-1), None
