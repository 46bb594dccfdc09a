"""Batch norm of all networks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from s2e.engine.compiled.layers.vmap_rule import Dims, VmapRule, networks_first
from s2e.engine.compiled.materialise import materialised
from s2e.engine.compiled.torch_internals import is_vmapped


def batch_norm(
    product_dtype: torch.dtype,  # noqa: ARG001
    inputs: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor | None:
    """Normalise by the statistics of the batch, and update the running ones."""
    if not training or not is_vmapped(inputs):
        return None
    normalised, mean, variance = _BatchNorm.apply(inputs, weight, bias, eps)  # type: ignore[no-untyped-call]
    if running_mean is not None and running_var is not None:
        count = inputs.numel() // inputs.shape[1]
        with torch.no_grad():
            running_mean.add_(momentum * (mean - running_mean))
            running_var.add_(momentum * (variance * (count / (count - 1)) - running_var))
    return normalised  # type: ignore[no-any-return]


class _BatchNorm(VmapRule):
    @staticmethod
    def vmap(
        info: Any,  # noqa: ARG004
        in_dims: Dims,
        inputs: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        eps: float,
    ) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[int, int, int]]:
        """Return normalised inputs (G, B, C, ...), and the means and variances (G, C).

        Statistics, and the sums in their gradients, are computed for every sample first and then over samples: a GPU
        sums many short columns faster than a few long ones.
        """
        stacked = networks_first(inputs, in_dims[0])  # (G, B, C, ...)
        means, within = stacked, None
        if stacked.ndim > 3:
            variances, means = torch.var_mean(stacked, dim=list(range(3, stacked.ndim)), correction=0)  # (G, B, C)
            within = variances.mean(dim=1)
        variance, mean = torch.var_mean(means, dim=1, correction=0)  # (G, C)
        variance = variance if within is None else variance + within
        scale = (variance + eps).rsqrt()
        scale = scale if weight is None else scale * networks_first(weight, in_dims[1])
        shift = -mean * scale
        shift = shift if bias is None else shift + networks_first(bias, in_dims[2])
        size = (*means.shape, *[1] * (stacked.ndim - 3))
        scale, shift = (materialised(each).unsqueeze(1).expand(means.shape).view(size) for each in (scale, shift))
        return (stacked * scale + shift, mean, variance), (0, 0, 0)
