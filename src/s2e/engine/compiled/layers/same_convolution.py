"""Convolutions of G networks with many channels each and "same" padding, in one call, channels last.

| name | shape | what |
|---|---|---|
| inputs | (G, B, H, W, C) | of each network; (1, B, H, W, C) shared by all |
| weight | (G, O, C, h, w) | the layout of `nn.Conv2d`; h and w odd |
| outputs | (G, B, H, W, O) | sides of the inputs: stride one, zero padding |

Libraries run these convolutions network by network, and each output is then copied into the stacked tensor. On a GPU
they are Triton kernels; on other devices, and as the reference in tests of those kernels, a loop over networks.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

TILE_SIDE = 128
"""Largest side of the tiles of a gradient of weights that one program of the kernel computes."""
MIN_TILES = 512
"""Tiles in one call that keep a GPU busy."""
MIN_PIXELS_PER_PART = 1024
"""Minimum number of pixels in each part of a sum over pixels."""
MAX_UNROLLED_PARTS = 8
"""Sums of at most this many parts are written out: pointwise kernels transpose faster than reductions."""
CHANNEL_MULTIPLE = 16
"""Numbers of channels must be multiples of this: the kernels load this many numbers at once."""


class SameConvolution(torch.autograd.Function):
    """Convolve inputs with weights, plus a bias (G, O).

    Products are of the dtype of the inputs, which may be bfloat16, and are summed in float32 at least. Gradients of
    weights and biases have the dtype of the sums.
    """

    @staticmethod
    def forward(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return the outputs."""
        outputs = _convolve(inputs, weight.permute(0, 3, 4, 2, 1))
        return outputs if bias is None else outputs + bias[:, None, None, None].to(outputs.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:  # noqa: ARG004
        """Save inputs and weights."""
        ctx.save_for_backward(*inputs[:2])
        ctx.save_for_forward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, Tensor | None]:
        """Convolve the gradient with flipped kernels for the inputs; correlate it with the inputs for the weights."""
        inputs, weight = ctx.saved_tensors
        gradient = gradient.contiguous()
        by_inputs = None
        if ctx.needs_input_grad[0]:
            by_inputs = _convolve(gradient, weight.flip(3, 4).permute(0, 3, 4, 1, 2))
            by_inputs = by_inputs if len(inputs) > 1 else by_inputs.sum(dim=0, keepdim=True)
        by_weight = weight_gradient(inputs, gradient, weight.shape[3], weight.shape[4])
        return by_inputs, by_weight, bias_gradient(gradient) if ctx.needs_input_grad[2] else None

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Tensor:
        """Sum the changes along the tangents of inputs, weights and bias."""
        inputs, weight = ctx.saved_tensors
        by_inputs, by_weight, by_bias = tangents
        change = torch.zeros((), dtype=inputs.dtype, device=inputs.device)
        if by_inputs is not None:
            change = change + SameConvolution.forward(by_inputs, weight, None)
        if by_weight is not None:
            change = change + SameConvolution.forward(inputs, by_weight, None)
        return change if by_bias is None else change + by_bias[:, None, None, None].to(change.dtype)


def fits_int32(pixels: int, channels: int) -> bool:
    """Return whether the kernels can index all images of a network, padded channels included, with 32 bits."""
    return pixels * -(-channels // CHANNEL_MULTIPLE) * CHANNEL_MULTIPLE < 2**31


def _convolve(inputs: Tensor, weight: Tensor) -> Tensor:
    outputs: Tensor = convolve(inputs, weight.to(inputs.dtype).contiguous())
    return outputs


@torch.library.custom_op("s2e::convolve", mutates_args=())
def convolve(inputs: Tensor, weight: Tensor) -> Tensor:
    """Convolve inputs with weights (G, h, w, C, O)."""
    padding = (weight.shape[1] // 2, weight.shape[2] // 2)
    batches = inputs.movedim(-1, 2).expand(len(weight), -1, -1, -1, -1)
    outputs = [
        functional.conv2d(batch, kernel.permute(3, 2, 0, 1), padding=padding).movedim(1, -1)
        for batch, kernel in zip(batches, weight, strict=True)
    ]
    return torch.stack(outputs)


@convolve.register_fake
def _(inputs: Tensor, weight: Tensor) -> Tensor:
    return inputs.new_empty(len(weight), *inputs.shape[1:-1], weight.shape[-1])


@convolve.register_kernel("cuda")
def _(inputs: Tensor, weight: Tensor) -> Tensor:
    from s2e.engine.compiled.layers.triton_kernels import convolve as convolve_kernel  # CPU builds of torch lack Triton

    return convolve_kernel(inputs.contiguous(), weight.contiguous())


def weight_gradient(inputs: Tensor, gradient: Tensor, height: int, width: int) -> Tensor:
    """Return the gradient of the weights, (G, O, C, height, width), from that of the outputs.

    The compiler fuses the sum over parts and the change of layout with what uses the gradient.
    """
    parts = _parts(inputs, gradient, height * width)
    sums: Tensor = weight_gradient_parts(inputs, gradient, height, width, parts)
    total = reduce(torch.add, sums.unbind()) if parts <= MAX_UNROLLED_PARTS else sums.sum(dim=0)
    return total.permute(0, 4, 3, 1, 2)


def _parts(inputs: Tensor, gradient: Tensor, window: int) -> int:
    """Return into how many parts to split the sum over pixels, so that all products occupy a whole GPU."""
    if not inputs.is_cuda:
        return 1
    tiles = len(gradient) * window * -(-inputs.shape[-1] // TILE_SIDE) * -(-gradient.shape[-1] // TILE_SIDE)
    return parts_of_sum(tiles, inputs.shape[1:4].numel())


def parts_of_sum(tiles: int, pixels: int) -> int:
    """Return into how many parts to split a sum over pixels for each of some tiles, to occupy a whole GPU."""
    parts = 1
    while tiles * parts < MIN_TILES and pixels >= 2 * parts * MIN_PIXELS_PER_PART:
        parts *= 2
    return parts


@torch.library.custom_op("s2e::weight_gradient_parts", mutates_args=())
def weight_gradient_parts(inputs: Tensor, gradient: Tensor, height: int, width: int, parts: int) -> Tensor:
    """Return parts of the gradient of the weights, (parts, G, height, width, C, O): sums over parts of all pixels."""
    if parts != 1:
        raise NotImplementedError("`parts` must be 1 on other devices than GPUs.")
    rows, columns = inputs.shape[2:4]
    vertical, horizontal = height // 2, width // 2
    padded = functional.pad(inputs.to(_sum_dtype(inputs)), (0, 0, horizontal, horizontal, vertical, vertical))
    padded = padded.expand(len(gradient), -1, -1, -1, -1)
    by_element = [
        torch.einsum("gbhwc,gbhwo->gco", padded[:, :, i : i + rows, j : j + columns], gradient.to(padded.dtype))
        for i in range(height)
        for j in range(width)
    ]
    by_weight: Tensor = torch.stack(by_element, dim=1).unflatten(1, (height, width))
    return by_weight.unsqueeze(0)


@weight_gradient_parts.register_fake
def _(inputs: Tensor, gradient: Tensor, height: int, width: int, parts: int) -> Tensor:
    size = (parts, len(gradient), height, width, inputs.shape[-1], gradient.shape[-1])
    return inputs.new_empty(size, dtype=_sum_dtype(inputs))


@weight_gradient_parts.register_kernel("cuda")
def _(inputs: Tensor, gradient: Tensor, height: int, width: int, parts: int) -> Tensor:
    from s2e.engine.compiled.layers.triton_kernels import weight_gradient_parts as weight_gradient_kernel

    return weight_gradient_kernel(inputs.contiguous(), gradient.contiguous(), height, width, parts)


@torch.library.custom_op("s2e::bias_gradient", mutates_args=())
def bias_gradient(gradient: Tensor) -> Tensor:
    """Return the gradient of the bias, (G, O), from that of the outputs.

    A custom operator, so that the compiler does not fuse the sum with the computation of the outputs' gradient, which
    would slow down both.
    """
    return gradient.sum(dim=(1, 2, 3), dtype=_sum_dtype(gradient))


@bias_gradient.register_kernel("cuda")
def _(gradient: Tensor) -> Tensor:
    from s2e.engine.compiled.layers.triton_kernels import sum_over_pixels

    return sum_over_pixels(gradient.contiguous())


@bias_gradient.register_fake
def _(gradient: Tensor) -> Tensor:
    return gradient.new_empty((len(gradient), gradient.shape[-1]), dtype=_sum_dtype(gradient))


def _sum_dtype(tensor: Tensor) -> torch.dtype:
    """Return the dtype in which to sum products of a tensor's elements."""
    return torch.promote_types(tensor.dtype, torch.float32)
