"""Batch norm of all networks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_batchedtensor

from s2e.engine.compiled.layers.vmap_rule import ByRule, Dims, first
from s2e.engine.compiled.materialise import written_down


def batch_norm(
    narrow: torch.dtype,  # noqa: ARG001
    inputs: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor | None:
    """Normalise by the statistics of the batch, which running ones take over a little of."""
    if not training or not is_batchedtensor(inputs):
        return None
    normalised, mean, variance = _Normalised.apply(inputs, weight, bias, eps)  # type: ignore[no-untyped-call]
    if running_mean is not None and running_var is not None:
        count = inputs.numel() // inputs.shape[1]
        with torch.no_grad():
            running_mean.add_(momentum * (mean - running_mean))
            running_var.add_(momentum * (variance * (count / (count - 1)) - running_var))
    return normalised  # type: ignore[no-any-return]


class _Normalised(ByRule):
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

        Statistics, and the sums for their gradients, are of every sample first and then of all samples: a GPU adds up
        many short columns faster than a few long ones.
        """
        own = first(inputs, in_dims[0])  # (G, B, C, ...)
        means, within = own, None
        if own.ndim > 3:
            variances, means = torch.var_mean(own, dim=list(range(3, own.ndim)), correction=0)  # (G, B, C)
            within = variances.mean(dim=1)
        variance, mean = torch.var_mean(means, dim=1, correction=0)  # (G, C)
        variance = variance if within is None else variance + within
        scale = (variance + eps).rsqrt()
        scale = scale if weight is None else scale * first(weight, in_dims[1])
        shift = -mean * scale
        shift = shift if bias is None else shift + first(bias, in_dims[2])
        size = (*means.shape, *[1] * (own.ndim - 3))
        by, plus = (written_down(each).unsqueeze(1).expand(means.shape).view(size) for each in (scale, shift))
        return (own * by + plus, mean, variance), (0, 0, 0)
