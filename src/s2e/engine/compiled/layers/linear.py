"""Linear layers of all networks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_batchedtensor

from s2e.engine.compiled.layers.vmap_rule import ByRule, Dims, aligned, first
from s2e.engine.compiled.materialise import written_down


def linear(narrow: torch.dtype, inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor | None:
    """Multiply with weights of every network's own."""
    if not is_batchedtensor(weight):
        return None
    product: Tensor = _Linear.apply(inputs, weight, bias, narrow)  # type: ignore[no-untyped-call]
    return product


class _Linear(ByRule):
    @staticmethod
    def vmap(
        info: Any,  # noqa: ARG004
        in_dims: Dims,
        inputs: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        narrow: torch.dtype,
    ) -> tuple[Tensor, int]:
        """Multiply the weights of all networks with a shared batch, or each with its own."""
        weight = first(weight, in_dims[1])  # (G, O, I)
        networks, outputs, features = weight.shape
        own = first(inputs, in_dims[0])
        if in_dims[0] is None:
            lead = own.shape[:-1]
            product = _SharedProduct.apply(weight, own.reshape(-1, features), narrow)  # type: ignore[no-untyped-call]
        else:
            lead = own.shape[1:-1]
            batch = own.reshape(networks, -1, features)  # (G, n, I)
            product = _OwnProduct.apply(aligned(weight, dim=1), batch)  # type: ignore[no-untyped-call]
        if bias is not None:
            added = first(bias, in_dims[2])  # (G, O)
            if product.shape[-1] > outputs:  # filled up like the product: both take their gradients from one that is
                added = written_down(aligned(added, dim=1, to=product.shape[-1]))
            product = product + added.unsqueeze(-2)
        return product[..., :outputs].reshape(networks, *lead, outputs), 0


class _SharedProduct(torch.autograd.Function):
    """x Wᵀ of weights (G, O, I) and a batch (n, I): (G, n, O).

    The gradient of the weights may be made in a narrow type. It is as large as the weights of all networks, and
    writing and reading it takes a good part of a step.
    """

    @staticmethod
    def forward(weight: Tensor, batch: Tensor, narrow: torch.dtype) -> Tensor:  # noqa: ARG004
        return (weight.flatten(0, 1) @ batch.mT).view(*weight.shape[:2], -1).mT

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:  # noqa: ARG004
        weight, batch, ctx.narrow = inputs
        ctx.save_for_backward(weight, batch)
        ctx.save_for_forward(weight, batch)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None]:
        weight, batch = ctx.saved_tensors
        shared = batch.to(ctx.narrow).expand(len(weight), -1, -1)
        by_weight = torch.bmm(gradient.mT.to(ctx.narrow), shared).to(weight.dtype)  # (G, O, I)
        by_batch = torch.bmm(gradient, weight).sum(dim=0) if ctx.needs_input_grad[1] else None  # (n, I)
        return by_weight, by_batch, None

    @staticmethod
    def jvp(ctx: Any, weight_tangent: Tensor | None, batch_tangent: Tensor | None, _: None) -> Tensor:
        weight, batch = ctx.saved_tensors
        by_weight = 0.0 if weight_tangent is None else batch @ weight_tangent.mT
        by_batch = 0.0 if batch_tangent is None else batch_tangent @ weight.mT
        return by_weight + by_batch  # type: ignore[return-value]


class _OwnProduct(torch.autograd.Function):
    """x Wᵀ of weights (G, O, I) and batches (G, n, I): (G, n, O). Gradients lie in memory as what they belong to."""

    @staticmethod
    def forward(weight: Tensor, batch: Tensor) -> Tensor:
        return torch.bmm(weight, batch.mT).mT

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:  # noqa: ARG004
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        weight, batch = ctx.saved_tensors
        return torch.bmm(gradient.mT, batch), torch.bmm(gradient, weight)

    @staticmethod
    def jvp(ctx: Any, weight_tangent: Tensor | None, batch_tangent: Tensor | None) -> Tensor:
        weight, batch = ctx.saved_tensors
        by_weight = 0.0 if weight_tangent is None else _OwnProduct.forward(weight_tangent, batch)
        by_batch = 0.0 if batch_tangent is None else _OwnProduct.forward(weight, batch_tangent)
        return by_weight + by_batch  # type: ignore[return-value]
