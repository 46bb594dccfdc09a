"""Convolutions of all networks.

Patches (..., K, B, H', W') hold the inputs of each output of a convolution, K = C·h·w.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from s2e.engine.compiled.layers import same_convolution
from s2e.engine.compiled.layers.vmap_rule import Dims, VmapRule, networks_first, pad_to_multiple
from s2e.engine.compiled.materialise import materialised
from s2e.engine.compiled.torch_internals import is_vmapped

MAX_PATCH_CHANNELS = 16
"""Convolutions of at most this many input channels are products over patches: libraries run their groups one by one."""
MAX_PATCH_WINDOW = 49
"""Patches repeat an input for every element of the window; convolutions with larger windows use the libraries."""
MIN_PRODUCTS = 128
"""Products in one call that keep a GPU busy; with fewer, the batch is split."""


def conv2d(
    product_dtype: torch.dtype,
    inputs: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] | str = 0,
    dilation: int | tuple[int, ...] = 1,
    groups: int = 1,
) -> Tensor | None:
    """Convolve; convolutions with dilation or groups have no rule."""
    plain = dilation in (1, (1, 1)) and groups == 1
    if not plain or isinstance(padding, str) or inputs.ndim != 4 or not is_vmapped(weight):
        return None
    down, right = (stride, stride) if isinstance(stride, int) else stride
    vertical, horizontal = (padding, padding) if isinstance(padding, int) else padding
    if weight.shape[2:] == (1, 1) and (vertical, horizontal) == (0, 0):  # reads no other pixels than these
        inputs, down, right = inputs[..., ::down, ::right], 1, 1
    product: Tensor = _Convolution.apply(  # type: ignore[no-untyped-call]
        inputs, weight, bias, (down, right), (vertical, horizontal), product_dtype
    )
    return product


class _Convolution(VmapRule):
    @staticmethod
    def vmap(
        info: Any,  # noqa: ARG004
        in_dims: Dims,
        inputs: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        stride: tuple[int, int],
        padding: tuple[int, int],
        product_dtype: torch.dtype,
    ) -> tuple[Tensor, int]:
        """Convolve a shared batch with the weights of all networks, or each network's batch with its own weights."""
        weight = networks_first(weight, in_dims[1])  # (G, O, C, h, w)
        stacked = networks_first(inputs, in_dims[0]).to(product_dtype)
        shared, (channels, *window) = in_dims[0] is None, weight.shape[2:]
        (vertical, horizontal), unit_stride = padding, stride == (1, 1)
        border = (horizontal, horizontal, vertical, vertical)
        few_channels = unit_stride and channels <= MAX_PATCH_CHANNELS and math.prod(window) <= MAX_PATCH_WINDOW
        same_padding = unit_stride and window == [2 * vertical + 1, 2 * horizontal + 1]
        as_pixels = shared and few_channels  # a window of patches becomes one pixel with K channels
        depth = channels * math.prod(window) if as_pixels else channels
        pixels = stacked.shape[-4] * stacked.shape[-2:].numel()
        if same_padding and same_convolution.fits_int32(pixels, max(depth, weight.shape[1])):
            own_bias = None if bias is None else networks_first(bias, in_dims[2]).expand(weight.shape[:2])  # (G, O)
            if as_pixels:
                stacked = _patches(functional.pad(stacked, border), *window).transpose(0, 1)  # (B, K, H, W)
                weight = pad_to_multiple(weight.flatten(2), dim=2)[..., None, None]  # (G, O, K, 1, 1)
            product = _same_convolution(stacked.unsqueeze(0) if shared else stacked, weight, own_bias)
        elif few_channels:
            product = _convolve_patches(functional.pad(stacked, border), weight.to(product_dtype), shared=shared)
            product = _add_bias(product, bias, in_dims[2])
        else:
            product = _convolve_each_network(stacked, weight.to(product_dtype), stride, padding, shared=shared)
            product = _add_bias(product, bias, in_dims[2])
        return product.to(inputs.dtype), 0


def _convolve_patches(inputs: Tensor, weight: Tensor, *, shared: bool) -> Tensor:
    """Convolutions of few channels, (G, B, O, H', W'): products of weights and patches."""
    networks, outputs, _, height, width = weight.shape
    flat = pad_to_multiple(weight.flatten(2), dim=2)  # (G, O, K)
    if shared:
        patches = _patches(inputs, height, width)  # (K, B, H', W')
        product = (flat.flatten(0, 1) @ patches.flatten(1)).view(networks, outputs, *patches.shape[1:])
        return product.transpose(1, 2)
    splits = _batch_splits(networks, inputs.shape[1])  # S
    patches = _patches(inputs.unflatten(1, (splits, -1)), height, width)  # (G, S, K, B/S, H', W')
    repeated = flat.unsqueeze(1).expand(-1, splits, -1, -1).flatten(0, 1)  # (G·S, O, K)
    product = torch.bmm(repeated, patches.flatten(3).flatten(0, 1))  # (G·S, O, L/S)
    return product.view(networks, splits, outputs, *patches.shape[3:]).transpose(2, 3).flatten(1, 2)


def _same_convolution(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Convolutions with "same" padding, (G, B, O, H, W) with channels last, of inputs (G or 1, B, C, H, W)."""
    multiple = same_convolution.CHANNEL_MULTIPLE
    channels_last = pad_to_multiple(inputs.movedim(2, -1), dim=-1, multiple=multiple).contiguous()  # (G, B, H, W, C)
    padded = pad_to_multiple(pad_to_multiple(weight, dim=1, multiple=multiple), dim=2, multiple=multiple)
    padded_bias = None if bias is None else pad_to_multiple(bias, dim=1, multiple=multiple)
    product: Tensor = same_convolution.SameConvolution.apply(  # type: ignore[no-untyped-call]
        channels_last, padded, padded_bias
    )
    return product[..., : weight.shape[1]].movedim(-1, 2)


def _convolve_each_network(
    inputs: Tensor, weight: Tensor, stride: tuple[int, int], padding: tuple[int, int], *, shared: bool
) -> Tensor:
    """Convolutions of many channels, (G, B, O, H', W'): one library call for each network, with channels last."""
    channels_last = materialised(inputs.movedim(-3, -1)).movedim(-1, -3)  # ((G,) B, C, H, W)
    kernels = [kernel.contiguous(memory_format=torch.channels_last) for kernel in weight]
    batches = [channels_last] * len(kernels) if shared else channels_last.unbind()
    products = [
        functional.conv2d(batch, kernel, stride=stride, padding=padding)
        for batch, kernel in zip(batches, kernels, strict=True)
    ]
    return materialised(torch.stack([one.movedim(1, -1) for one in products])).movedim(-1, 2)


def _add_bias(product: Tensor, bias: Tensor | None, dim: int | None) -> Tensor:
    """(G, B, O, H', W') plus a bias (G, O), or (O,) where all networks share it."""
    if bias is None:
        return product
    return product + networks_first(bias, dim)[..., None, :, None, None].to(product.dtype)


def _batch_splits(networks: int, batch: int) -> int:
    """Return into how many equal parts to split a batch so that one call has `MIN_PRODUCTS` products, if possible."""
    splits = 1
    while networks * splits < MIN_PRODUCTS and batch % (2 * splits) == 0:
        splits *= 2
    return splits


def _patches(inputs: Tensor, height: int, width: int) -> Tensor:
    """Return patches: (..., B, C, H, W) -> (..., K, B, H', W'), K = C·h·w rounded up."""
    windows = _Windows.apply(inputs.transpose(-4, -3).contiguous(), height, width)  # type: ignore[no-untyped-call]
    return pad_to_multiple(windows.flatten(-6, -4), dim=-4)


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
        """Sum the gradients of an input over the windows that contain it: each element of the window is a shift."""
        height, width = ctx.size
        shifted = [
            functional.pad(gradient[..., i, j, :, :, :], (j, width - 1 - j, i, height - 1 - i)).float()
            for i in range(height)
            for j in range(width)
        ]
        return materialised(sum(shifted[1:], start=shifted[0]).to(gradient.dtype)), None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        """Windows are linear in the inputs."""
        return _Windows.forward(tangent.contiguous(), *ctx.size)
