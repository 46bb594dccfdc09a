"""Layers of G networks as one product, where vectorising them operation by operation would be slow.

Inside `vmap` a rule here replaces torch's own for linear layers and for convolutions of few channels. The rules are
plain differentiable operations. They leave activations in memory as (G, features, B): the gradient of a weight then
comes out of its product in the order in which the weight itself lies in memory, and no copy has to be turned round.

| name | shape | what |
|---|---|---|
| inputs | (B, I), (B, C, H, W) | of one network, or shared by all |
| weights | (G, O, I), (G, O, C, h, w) | of all networks |
| patches | (..., C·h·w, L) | what each of the L = B·H'·W' outputs of a convolution sees |
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_batchedtensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

FEW_CHANNELS = 16
"""Convolutions of at most so many input channels are products over patches: libraries run such groups one by one."""
LARGEST_WINDOW = 49
"""Patches repeat an input as often as a window has places; larger windows are left to the libraries."""


class AsOneProduct(TorchFunctionMode):
    """While this is active, vmapped linear layers and convolutions follow the rules of this module."""

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Replace the calls that have a rule."""
        given = kwargs or {}
        if function is functional.linear and not given and is_batchedtensor(args[1]):
            inputs, weight, bias = (*args, None)[:3]
            return _Linear.apply(inputs, weight, bias)  # type: ignore[no-untyped-call]
        if function is functional.conv2d and not given and _goes_by_patches(*args):
            inputs, weight, bias = (*args, None)[:3]
            padding = args[4] if len(args) > 4 else 0
            vertical, horizontal = (padding, padding) if isinstance(padding, int) else padding
            return _Convolution.apply(inputs, weight, bias, vertical, horizontal)  # type: ignore[no-untyped-call]
        return function(*args, **given)


def _goes_by_patches(
    inputs: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,  # noqa: ARG001
    stride: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] | str = 0,
    dilation: int | tuple[int, ...] = 1,
    groups: int = 1,
) -> bool:
    plain = stride in (1, (1, 1)) and dilation in (1, (1, 1)) and groups == 1 and not isinstance(padding, str)
    small = weight.shape[1] <= FEW_CHANNELS and weight.shape[2] * weight.shape[3] <= LARGEST_WINDOW
    return plain and small and inputs.ndim == 4 and is_batchedtensor(weight)


class _Linear(torch.autograd.Function):
    """A linear layer that only exists vmapped, with weights of its own for every network."""

    @staticmethod
    def forward(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return functional.linear(inputs, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep nothing: this is differentiated as the operations of its rule."""

    @staticmethod
    def vmap(
        info: Any,  # noqa: ARG004
        in_dims: tuple[int | None, ...],
        inputs: Tensor,
        weight: Tensor,
        bias: Tensor | None,
    ) -> tuple[Tensor, int]:
        """Multiply the weights of all networks with a shared batch, or each with its own."""
        weight = _first(weight, in_dims[1])  # (G, O, I)
        networks, outputs, features = weight.shape
        if in_dims[0] is None:
            batch = inputs.reshape(-1, features)  # (n, I)
            product = (weight.reshape(-1, features) @ batch.mT).view(networks, outputs, -1)  # (G, O, n)
            lead = inputs.shape[:-1]
        else:
            own = _first(inputs, in_dims[0])  # (G, ..., I)
            lead = own.shape[1:-1]
            product = torch.bmm(weight, own.reshape(networks, -1, features).mT)  # (G, O, n)
        if bias is not None:
            product = product + _first(bias, in_dims[2]).unsqueeze(-1)
        return product.mT.reshape(networks, *lead, outputs), 0


class _Convolution(torch.autograd.Function):
    """A convolution that only exists vmapped, with weights of its own for every network."""

    @staticmethod
    def forward(inputs: Tensor, weight: Tensor, bias: Tensor | None, vertical: int, horizontal: int) -> Tensor:
        return functional.conv2d(inputs, weight, bias, padding=(vertical, horizontal))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep nothing: this is differentiated as the operations of its rule."""

    @staticmethod
    def vmap(
        info: Any,  # noqa: ARG004
        in_dims: tuple[int | None, ...],
        inputs: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        vertical: int,
        horizontal: int,
    ) -> tuple[Tensor, int]:
        """Multiply the weights of all networks with the patches of a shared batch, or each with its own."""
        weight = _first(weight, in_dims[1])  # (G, O, C, h, w)
        networks, outputs, _, height, width = weight.shape
        own = _first(inputs, in_dims[0])
        padded = functional.pad(own, (horizontal, horizontal, vertical, vertical)).transpose(
            -4, -3
        )  # (..., C, B, H, W)
        patches = _Patches.apply(padded, height, width)  # type: ignore[no-untyped-call]  # (..., C, h, w, B, H', W')
        size = patches.shape[-3:]  # B, H', W'
        flat = patches.reshape(*patches.shape[:-6], -1, size.numel())  # (..., C·h·w, L)
        if in_dims[0] is None:
            product = weight.reshape(networks * outputs, -1) @ flat
        else:
            product = torch.bmm(weight.reshape(networks, outputs, -1), flat)
        product = product.view(networks, outputs, *size)
        if bias is not None:
            product = product + _first(bias, in_dims[2])[..., None, None, None]
        return product.transpose(1, 2), 0  # (G, B, O, H', W')


def _first(tensor: Tensor, dim: int | None) -> Tensor:
    """Return a tensor with its axis of networks in front; one that all networks share has none."""
    return tensor if dim is None else tensor.movedim(dim, 0)


class _Patches(torch.autograd.Function):
    """(..., C, B, H, W) -> (..., C, h, w, B, H', W'): element (i, j) of the window of every output."""

    @staticmethod
    def forward(inputs: Tensor, height: int, width: int) -> Tensor:
        windows = inputs.unfold(-2, height, 1).unfold(-2, width, 1)  # (..., C, B, H', W', h, w)
        return windows.movedim((-2, -1), (-5, -4)).contiguous()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:  # noqa: ARG004
        ctx.size = inputs[1:]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """Sum what every window asks of an element: each place of the window is a shifted copy."""
        height, width = ctx.size
        shifted = (
            functional.pad(gradient[..., i, j, :, :, :], (j, width - 1 - j, i, height - 1 - i))
            for i in range(height)
            for j in range(width)
        )
        return sum(shifted, start=torch.zeros((), device=gradient.device, dtype=gradient.dtype)), None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        """Patches are linear in the inputs."""
        return _Patches.forward(tangent, *ctx.size)
