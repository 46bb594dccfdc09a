"""Convolutions of all networks.

Patches (..., K, B, H', W') are what each output of a convolution sees, K = C·h·w.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_batchedtensor
from torch.nn import functional

from s2e.engine.compiled.layers import same_convolution
from s2e.engine.compiled.layers.vmap_rule import ByRule, Dims, aligned, first
from s2e.engine.compiled.materialise import written_down

FEW_CHANNELS = 16
"""Convolutions of at most so many input channels are products over patches: libraries run such groups one by one."""
LARGEST_WINDOW = 49
"""Patches repeat an input as often as a window has places; larger windows are left to the libraries."""
ENOUGH_PRODUCTS = 128
"""Products in one call that keep a GPU busy; fewer are cut along the batch."""


def conv2d(
    narrow: torch.dtype,
    inputs: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] | str = 0,
    dilation: int | tuple[int, ...] = 1,
    groups: int = 1,
) -> Tensor | None:
    """Convolve with strides of one; others have no rule."""
    plain = stride in (1, (1, 1)) and dilation in (1, (1, 1)) and groups == 1
    if not plain or isinstance(padding, str) or inputs.ndim != 4 or not is_batchedtensor(weight):
        return None
    vertical, horizontal = (padding, padding) if isinstance(padding, int) else padding
    product: Tensor = _Convolution.apply(  # type: ignore[no-untyped-call]
        inputs, weight, bias, vertical, horizontal, narrow
    )
    return product


class _Convolution(ByRule):
    @staticmethod
    def vmap(
        info: Any,  # noqa: ARG004
        in_dims: Dims,
        inputs: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        vertical: int,
        horizontal: int,
        narrow: torch.dtype,
    ) -> tuple[Tensor, int]:
        """Convolve a shared batch with the weights of all networks, or the batch of each with its own."""
        weight = first(weight, in_dims[1])  # (G, O, C, h, w)
        own = first(inputs, in_dims[0]).to(narrow)
        shared, (channels, *window) = in_dims[0] is None, weight.shape[2:]
        border = (horizontal, horizontal, vertical, vertical)
        few = channels <= FEW_CHANNELS and math.prod(window) <= LARGEST_WINDOW
        keeps_sides = window == [2 * vertical + 1, 2 * horizontal + 1]
        by_pixel = shared and few  # what a window sees is then seen by a window of one pixel
        seen = channels * math.prod(window) if by_pixel else channels
        if keeps_sides and same_convolution.fits(own.shape[-4] * own.shape[-2:].numel(), max(seen, weight.shape[1])):
            added = None if bias is None else first(bias, in_dims[2]).expand(weight.shape[:2])  # (G, O)
            if by_pixel:
                own = _patches(functional.pad(own, border), *window).transpose(0, 1)  # (B, K, H, W)
                weight = aligned(weight.flatten(2), dim=2)[..., None, None]  # (G, O, K, 1, 1)
            product = _at_once(own.unsqueeze(0) if shared else own, weight, added)
        else:
            product = (_by_patches if few else _one_by_one)(
                functional.pad(own, border), weight.to(narrow), shared=shared
            )
            product = _with_bias(product, bias, in_dims[2])
        return product.to(inputs.dtype), 0


def _by_patches(inputs: Tensor, weight: Tensor, *, shared: bool) -> Tensor:
    """Convolutions of few channels, (G, B, O, H', W'): products of the weights with what every output sees."""
    networks, outputs, _, height, width = weight.shape
    flat = aligned(weight.flatten(2), dim=2)  # (G, O, K)
    if shared:
        patches = _patches(inputs, height, width)  # (K, B, H', W')
        product = (flat.flatten(0, 1) @ patches.flatten(1)).view(networks, outputs, *patches.shape[1:])
        return product.transpose(1, 2)
    parts = _parts(networks, inputs.shape[1])  # S
    patches = _patches(inputs.unflatten(1, (parts, -1)), height, width)  # (G, S, K, B/S, H', W')
    spread = flat.unsqueeze(1).expand(-1, parts, -1, -1).flatten(0, 1)  # (G·S, O, K)
    product = torch.bmm(spread, patches.flatten(3).flatten(0, 1))  # (G·S, O, L/S)
    return product.view(networks, parts, outputs, *patches.shape[3:]).transpose(2, 3).flatten(1, 2)


def _at_once(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Convolutions that keep the sides of images, (G, B, O, H, W), of inputs (G or 1, B, C, H, W); channels last."""
    last = aligned(inputs.movedim(2, -1), dim=-1, to=same_convolution.ALIGNED).contiguous()  # (G, B, H, W, C)
    kernels = aligned(aligned(weight, dim=1, to=same_convolution.ALIGNED), dim=2, to=same_convolution.ALIGNED)
    added = None if bias is None else aligned(bias, dim=1, to=same_convolution.ALIGNED)
    product: Tensor = same_convolution.SameConvolution.apply(last, kernels, added)  # type: ignore[no-untyped-call]
    return product[..., : weight.shape[1]].movedim(-1, 2)


def _one_by_one(inputs: Tensor, weight: Tensor, *, shared: bool) -> Tensor:
    """Convolutions of many channels, (G, B, O, H', W'): each is worth a call of the library, with channels last."""
    last = written_down(inputs.movedim(-3, -1)).movedim(-1, -3)  # ((G,) B, C, H, W)
    kernels = [kernel.contiguous(memory_format=torch.channels_last) for kernel in weight]
    batches = [last] * len(kernels) if shared else last.unbind()
    products = [functional.conv2d(batch, kernel) for batch, kernel in zip(batches, kernels, strict=True)]
    return written_down(torch.stack([one.movedim(1, -1) for one in products])).movedim(-1, 2)


def _with_bias(product: Tensor, bias: Tensor | None, dim: int | None) -> Tensor:
    """(G, B, O, H', W') plus (G, O), or (O,) of a bias that all networks share."""
    return product if bias is None else product + first(bias, dim)[..., None, :, None, None].to(product.dtype)


def _parts(networks: int, batch: int) -> int:
    """In how many parts to cut a batch so that there are enough products for every processor of a GPU."""
    parts = 1
    while networks * parts < ENOUGH_PRODUCTS and batch % (2 * parts) == 0:
        parts *= 2
    return parts


def _patches(inputs: Tensor, height: int, width: int) -> Tensor:
    """What every output sees: (..., B, C, H, W) -> (..., K, B, H', W'), K = C·h·w rounded up."""
    windows = _Windows.apply(inputs.transpose(-4, -3).contiguous(), height, width)  # type: ignore[no-untyped-call]
    return aligned(windows.flatten(-6, -4), dim=-4)


class _Windows(torch.autograd.Function):
    """(..., C, B, H, W), contiguous -> (..., C, h, w, B, H', W'): element (i, j) of the window of every output."""

    @staticmethod
    def forward(inputs: Tensor, height: int, width: int) -> Tensor:
        *lead, rows, columns = inputs.shape
        *steps, row, column = inputs.stride()
        size = (*lead[:-1], height, width, lead[-1], rows - height + 1, columns - width + 1)
        return inputs.as_strided(size, (*steps[:-1], row, column, steps[-1], row, column)).contiguous()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:  # noqa: ARG004
        ctx.size = inputs[1:]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """Sum what every window asks of an element: each place of the window is a shifted copy."""
        height, width = ctx.size
        shifted = [
            functional.pad(gradient[..., i, j, :, :, :], (j, width - 1 - j, i, height - 1 - i)).float()
            for i in range(height)
            for j in range(width)
        ]
        return written_down(sum(shifted[1:], start=shifted[0]).to(gradient.dtype)), None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        """Windows are linear in the inputs."""
        return _Windows.forward(tangent.contiguous(), *ctx.size)
