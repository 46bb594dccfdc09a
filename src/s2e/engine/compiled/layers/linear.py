"""Linear layers of all networks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from s2e.engine.compiled.layers.vmap_rule import Dims, VmapRule, networks_first, pad_to_multiple
from s2e.engine.compiled.materialise import materialised
from s2e.engine.compiled.torch_internals import is_vmapped


def linear(product_dtype: torch.dtype, inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor | None:
    """Apply each network's own weights."""
    if not is_vmapped(weight):
        return None
    product: Tensor = _Linear.apply(inputs, weight, bias, product_dtype)  # type: ignore[no-untyped-call]
    return product


class _Linear(VmapRule):
    @staticmethod
    def vmap(
        info: Any,  # noqa: ARG004
        in_dims: Dims,
        inputs: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        product_dtype: torch.dtype,
    ) -> tuple[Tensor, int]:
        """Multiply the weights of all networks with a shared batch, or each with its own batch."""
        weight = networks_first(weight, in_dims[1])  # (G, O, I)
        networks, outputs, features = weight.shape
        stacked = networks_first(inputs, in_dims[0])
        if in_dims[0] is None:
            lead = stacked.shape[:-1]
            product = _SharedBatchProduct.apply(  # type: ignore[no-untyped-call]
                weight, stacked.reshape(-1, features), product_dtype
            )
        else:
            lead = stacked.shape[1:-1]
            batch = stacked.reshape(networks, -1, features)  # (G, n, I)
            product = _OwnBatchProduct.apply(pad_to_multiple(weight, dim=1), batch)  # type: ignore[no-untyped-call]
        if bias is not None:
            added = networks_first(bias, in_dims[2])  # (G, O)
            if product.shape[-1] > outputs:  # padded like the product: the gradients of both come from a padded one
                added = materialised(pad_to_multiple(added, dim=1, multiple=product.shape[-1]))
            product = product + added.unsqueeze(-2)
        return product[..., :outputs].reshape(networks, *lead, outputs), 0


class _SharedBatchProduct(torch.autograd.Function):
    """x Wᵀ of weights (G, O, I) and a shared batch (n, I): (G, n, O).

    The gradient of the weights may be computed in bfloat16. It is as large as the weights of all networks, and writing
    and reading it takes a large share of a step.
    """

    @staticmethod
    def forward(weight: Tensor, batch: Tensor, product_dtype: torch.dtype) -> Tensor:  # noqa: ARG004
        return (weight.flatten(0, 1) @ batch.mT).view(*weight.shape[:2], -1).mT

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:  # noqa: ARG004
        weight, batch, ctx.product_dtype = inputs
        ctx.save_for_backward(weight, batch)
        ctx.save_for_forward(weight, batch)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None]:
        weight, batch = ctx.saved_tensors
        shared = batch.to(ctx.product_dtype).expand(len(weight), -1, -1)
        weight_gradient = torch.bmm(gradient.mT.to(ctx.product_dtype), shared).to(weight.dtype)  # (G, O, I)
        batch_gradient = torch.bmm(gradient, weight).sum(dim=0) if ctx.needs_input_grad[1] else None  # (n, I)
        return weight_gradient, batch_gradient, None

    @staticmethod
    def jvp(ctx: Any, weight_tangent: Tensor | None, batch_tangent: Tensor | None, _: None) -> Tensor:
        weight, batch = ctx.saved_tensors
        by_weight = 0.0 if weight_tangent is None else batch @ weight_tangent.mT
        by_batch = 0.0 if batch_tangent is None else batch_tangent @ weight.mT
        return by_weight + by_batch  # type: ignore[return-value]


class _OwnBatchProduct(torch.autograd.Function):
    """x Wᵀ of weights (G, O, I) and batches (G, n, I): (G, n, O). Gradients have the layout of their tensors."""

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
        by_weight = 0.0 if weight_tangent is None else _OwnBatchProduct.forward(weight_tangent, batch)
        by_batch = 0.0 if batch_tangent is None else _OwnBatchProduct.forward(weight, batch_tangent)
        return by_weight + by_batch  # type: ignore[return-value]
