"""Convolutions of G networks with many channels each, all of them in one call, channels last.

| name | shape | what |
|---|---|---|
| inputs | (G, B, H, W, C) | of each network; (1, B, H, W, C) shared by all |
| weight | (G, O, C, h, w) | as a module holds it; h and w odd |
| outputs | (G, B, H, W, O) | of the size of the inputs: stride one, zeros around the images |

A library runs such convolutions network by network, and each then has to be copied to where the others are. On a GPU
they are kernels of our own; anywhere else, and as the truth to test these by, a loop over networks.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

ALIGNED = 16
"""Numbers of channels must be multiples of this: kernels read so many numbers at once."""


class SameConvolution(torch.autograd.Function):
    """Convolve inputs with weights, plus a bias (G, O).

    It multiplies in the type of the inputs, which may be a narrow one, and adds in float32 at least. Gradients of
    weights and biases are of the type they are added in.
    """

    @staticmethod
    def forward(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return the outputs."""
        made = _convolve(inputs, weight.permute(0, 3, 4, 2, 1))
        return made if bias is None else made + bias[:, None, None, None].to(made.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:  # noqa: ARG004
        """Keep inputs and weights."""
        ctx.save_for_backward(*inputs[:2])
        ctx.save_for_forward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, Tensor | None]:
        """An output is fed by the inputs around it: an input feeds the outputs around it, seen from the other side."""
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
        """Add up what changes with the inputs, with the weights and with the bias."""
        inputs, weight = ctx.saved_tensors
        by_inputs, by_weight, by_bias = tangents
        change = torch.zeros((), dtype=inputs.dtype, device=inputs.device)
        if by_inputs is not None:
            change = change + SameConvolution.forward(by_inputs, weight, None)
        if by_weight is not None:
            change = change + SameConvolution.forward(inputs, by_weight, None)
        return change if by_bias is None else change + by_bias[:, None, None, None].to(change.dtype)


def fits(pixels: int, channels: int) -> bool:
    """Tell whether kernels can count the numbers in all images of a network."""
    return pixels * -(-channels // ALIGNED) * ALIGNED < 2**31


def _convolve(inputs: Tensor, weight: Tensor) -> Tensor:
    made: Tensor = convolve(inputs, weight.to(inputs.dtype).contiguous())
    return made


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
    from s2e.engine.compiled.layers.triton_kernels import forward  # Triton comes with torch for GPUs only

    return forward(inputs.contiguous(), weight.contiguous())


@torch.library.custom_op("s2e::weight_gradient", mutates_args=())
def weight_gradient(inputs: Tensor, gradient: Tensor, height: int, width: int) -> Tensor:
    """Return the gradient of the weights, (G, O, C, height, width), by that of the outputs."""
    rows, columns = inputs.shape[2:4]
    vertical, horizontal = height // 2, width // 2
    padded = functional.pad(inputs.to(_sums(inputs)), (0, 0, horizontal, horizontal, vertical, vertical))
    padded = padded.expand(len(gradient), -1, -1, -1, -1)
    by_place = [
        torch.einsum("gbhwc,gbhwo->goc", padded[:, :, i : i + rows, j : j + columns], gradient.to(padded.dtype))
        for i in range(height)
        for j in range(width)
    ]
    made: Tensor = torch.stack(by_place, dim=-1).unflatten(-1, (height, width))
    return made


@weight_gradient.register_fake
def _(inputs: Tensor, gradient: Tensor, height: int, width: int) -> Tensor:
    size = (len(gradient), gradient.shape[-1], inputs.shape[-1], height, width)
    return inputs.new_empty(size, dtype=_sums(inputs))


@weight_gradient.register_kernel("cuda")
def _(inputs: Tensor, gradient: Tensor, height: int, width: int) -> Tensor:
    from s2e.engine.compiled.layers.triton_kernels import gradient_of_weights

    return gradient_of_weights(inputs.contiguous(), gradient.contiguous(), height, width)


@torch.library.custom_op("s2e::bias_gradient", mutates_args=())
def bias_gradient(gradient: Tensor) -> Tensor:
    """Return the gradient of the bias, (G, O), by that of the outputs.

    Hidden from the compiler, which would add up while it makes the gradient of the outputs, and be slower at both.
    """
    return gradient.sum(dim=(1, 2, 3), dtype=_sums(gradient))


@bias_gradient.register_kernel("cuda")
def _(gradient: Tensor) -> Tensor:
    from s2e.engine.compiled.layers.triton_kernels import sums_over_pixels

    return sums_over_pixels(gradient.contiguous())


@bias_gradient.register_fake
def _(gradient: Tensor) -> Tensor:
    return gradient.new_empty((len(gradient), gradient.shape[-1]), dtype=_sums(gradient))


def _sums(tensor: Tensor) -> torch.dtype:
    """The type in which to add up products of numbers of this tensor."""
    return torch.promote_types(tensor.dtype, torch.float32)
