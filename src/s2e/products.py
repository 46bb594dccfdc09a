"""Layers of G networks as one product, where vectorising them operation by operation would be slow.

Inside `vmap` a rule here replaces torch's own for the layers that take the time of a training step. The rules are
plain differentiable operations, written for a compiler. They leave activations in memory as (G, features, B): the
gradient of a weight then comes out of its product in the order in which the weight itself lies in memory.

| name | shape | what |
|---|---|---|
| inputs | (B, I), (B, C, H, W) | of one network, or shared by all |
| weight | (G, O, I), (G, O, C, h, w) | of all networks |
| patches | (..., K, B, H', W') | what each output of a convolution sees, K = C·h·w |
"""

from __future__ import annotations

from collections.abc import Callable
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
ALIGNED = 8
"""Sides of products are filled up to a multiple of this: the fast kernels read so many numbers at once."""
ENOUGH_PRODUCTS = 128
"""Products in one call that keep a GPU busy; fewer are cut along the batch."""

Dims = tuple[int | None, ...]


class AsOneProduct(TorchFunctionMode):
    """While this is active, layers inside `vmap` follow the rules of this module.

    Args:
        narrow: convolutions, and the products that make gradients of shared inputs' weights, multiply in bfloat16 (and
            add in float32); everything else stays in float32.
    """

    def __init__(self, *, narrow: bool) -> None:
        super().__init__()
        self._type = torch.bfloat16 if narrow else torch.float32

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Replace the calls that have a rule; a rule returns None where it does not hold."""
        given, rule = kwargs or {}, _RULES.get(function)
        replaced = None if rule is None else rule(self._type, *args, **given)
        return function(*args, **given) if replaced is None else replaced


# Linear layers


def _linear(narrow: torch.dtype, inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor | None:
    if not is_batchedtensor(weight):
        return None
    product: Tensor = _Linear.apply(inputs, weight, bias, narrow)  # type: ignore[no-untyped-call]
    return product


class _ByRule(torch.autograd.Function):
    """A layer that exists vmapped only, and is differentiated as the operations of its rule."""

    @staticmethod
    def forward(*given: Any) -> Tensor:
        raise NotImplementedError

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep nothing."""


class _Linear(_ByRule):
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
        weight = _first(weight, in_dims[1])  # (G, O, I)
        networks, outputs, features = weight.shape
        own = _first(inputs, in_dims[0])
        if in_dims[0] is None:
            lead = own.shape[:-1]
            product = _SharedProduct.apply(  # type: ignore[no-untyped-call]
                weight.reshape(-1, features), own.reshape(-1, features), narrow
            ).view(networks, outputs, -1)  # (G, O, n)
        else:
            lead = own.shape[1:-1]
            batch = own.reshape(networks, -1, features).mT  # (G, I, n)
            product = torch.bmm(_aligned(weight, dim=1), batch)[:, :outputs]  # (G, O, n)
        if bias is not None:
            product = product + _first(bias, in_dims[2]).unsqueeze(-1)
        return product.mT.reshape(networks, *lead, outputs), 0


class _SharedProduct(torch.autograd.Function):
    """W xᵀ of weights (R, I) and a batch (n, I): (R, n). The gradient of the weights may be made in a narrow type.

    That gradient is as large as the weights of all networks, and writing and reading it takes a good part of a step.
    """

    @staticmethod
    def forward(weight: Tensor, batch: Tensor, narrow: torch.dtype) -> Tensor:  # noqa: ARG004
        return weight @ batch.mT

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:  # noqa: ARG004
        weight, batch, ctx.narrow = inputs
        ctx.save_for_backward(weight, batch)
        ctx.save_for_forward(weight, batch)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None]:
        weight, batch = ctx.saved_tensors
        by_weight = (gradient.to(ctx.narrow) @ batch.to(ctx.narrow)).to(weight.dtype)  # (R, I)
        by_batch = gradient.mT @ weight if ctx.needs_input_grad[1] else None  # (n, I)
        return by_weight, by_batch, None

    @staticmethod
    def jvp(ctx: Any, weight_tangent: Tensor | None, batch_tangent: Tensor | None, _: None) -> Tensor:
        weight, batch = ctx.saved_tensors
        by_weight = 0.0 if weight_tangent is None else weight_tangent @ batch.mT
        by_batch = 0.0 if batch_tangent is None else weight @ batch_tangent.mT
        return by_weight + by_batch  # type: ignore[return-value]


# Convolutions


def _conv2d(
    narrow: torch.dtype,
    inputs: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] | str = 0,
    dilation: int | tuple[int, ...] = 1,
    groups: int = 1,
) -> Tensor | None:
    plain = stride in (1, (1, 1)) and dilation in (1, (1, 1)) and groups == 1
    if not plain or isinstance(padding, str) or inputs.ndim != 4 or not is_batchedtensor(weight):
        return None
    vertical, horizontal = (padding, padding) if isinstance(padding, int) else padding
    product: Tensor = _Convolution.apply(  # type: ignore[no-untyped-call]
        inputs, weight, bias, vertical, horizontal, narrow
    )
    return product


class _Convolution(_ByRule):
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
        weight = _first(weight, in_dims[1]).to(narrow)  # (G, O, C, h, w)
        own = functional.pad(_first(inputs, in_dims[0]).to(narrow), (horizontal, horizontal, vertical, vertical))
        few = weight.shape[2] <= FEW_CHANNELS and weight.shape[3] * weight.shape[4] <= LARGEST_WINDOW
        product = (_by_patches if few else _one_by_one)(own, weight, shared=in_dims[0] is None)
        return _with_bias(product, bias, in_dims[2]).to(inputs.dtype), 0


def _by_patches(inputs: Tensor, weight: Tensor, *, shared: bool) -> Tensor:
    """Convolutions of few channels, (G, B, O, H', W'): products of the weights with what every output sees."""
    networks, outputs, _, height, width = weight.shape
    flat = _aligned(weight.flatten(2), dim=2)  # (G, O, K)
    if shared:
        patches = _patches(inputs, height, width)  # (K, B, H', W')
        product = (flat.flatten(0, 1) @ patches.flatten(1)).view(networks, outputs, *patches.shape[1:])
        return product.transpose(1, 2)
    parts = _parts(networks, inputs.shape[1])  # S
    patches = _patches(inputs.unflatten(1, (parts, -1)), height, width)  # (G, S, K, B/S, H', W')
    spread = flat.unsqueeze(1).expand(-1, parts, -1, -1).flatten(0, 1)  # (G·S, O, K)
    product = torch.bmm(spread, patches.flatten(3).flatten(0, 1))  # (G·S, O, L/S)
    return product.view(networks, parts, outputs, *patches.shape[3:]).transpose(2, 3).flatten(1, 2)


def _one_by_one(inputs: Tensor, weight: Tensor, *, shared: bool) -> Tensor:
    """Convolutions of many channels, (G, B, O, H', W'): each is worth a call of the library, with channels last."""
    last = _written_down(inputs.movedim(-3, -1)).movedim(-1, -3)  # ((G,) B, C, H, W)
    kernels = [kernel.contiguous(memory_format=torch.channels_last) for kernel in weight]
    batches = [last] * len(kernels) if shared else last.unbind()
    products = [functional.conv2d(batch, kernel) for batch, kernel in zip(batches, kernels, strict=True)]
    return _written_down(torch.stack([one.movedim(1, -1) for one in products])).movedim(-1, 2)


def _with_bias(product: Tensor, bias: Tensor | None, dim: int | None) -> Tensor:
    """(G, B, O, H', W') plus (G, O), or (O,) of a bias that all networks share."""
    return product if bias is None else product + _first(bias, dim)[..., None, :, None, None].to(product.dtype)


def _parts(networks: int, batch: int) -> int:
    """In how many parts to cut a batch so that there are enough products for every processor of a GPU."""
    parts = 1
    while networks * parts < ENOUGH_PRODUCTS and batch % (2 * parts) == 0:
        parts *= 2
    return parts


def _patches(inputs: Tensor, height: int, width: int) -> Tensor:
    """What every output sees: (..., B, C, H, W) -> (..., K, B, H', W'), K = C·h·w rounded up."""
    windows = _Windows.apply(inputs.transpose(-4, -3).contiguous(), height, width)  # type: ignore[no-untyped-call]
    return _aligned(windows.flatten(-6, -4), dim=-4)


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
        return _WrittenDown.forward(sum(shifted[1:], start=shifted[0]).to(gradient.dtype)), None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        """Windows are linear in the inputs."""
        return _Windows.forward(tangent.contiguous(), *ctx.size)


class _WrittenDown(torch.autograd.Function):
    """A tensor that the compiler puts into memory once, instead of working it out anew for every reader.

    Strides speak of memory, so there has to be some.
    """

    @staticmethod
    def forward(tensor: Tensor) -> Tensor:
        size = tensor.shape
        return tensor.flatten().as_strided(size, [size[dim + 1 :].numel() for dim in range(len(size))])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep nothing."""

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # noqa: ARG004
        return _WrittenDown.forward(gradient)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:  # noqa: ARG004
        return tangent.clone()


def _written_down(tensor: Tensor) -> Tensor:
    return _WrittenDown.apply(tensor)  # type: ignore[no-untyped-call,no-any-return]


# Pooling and normalisation


def _max_pool2d(
    narrow: torch.dtype,  # noqa: ARG001
    inputs: Tensor,
    kernel_size: int | tuple[int, ...],
    stride: int | tuple[int, ...] | None = None,
    padding: int | tuple[int, ...] = 0,
    dilation: int | tuple[int, ...] = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | None:
    """Halve both sides of images: the larger of neighbours, the first of equal ones, as a few comparisons."""
    halves = kernel_size in (2, (2, 2)) and stride in (None, 2, (2, 2)) and padding in (0, (0, 0))
    plain = halves and dilation in (1, (1, 1)) and not ceil_mode and not return_indices
    if not plain or not is_batchedtensor(inputs) or inputs.shape[-1] % 2 or inputs.shape[-2] % 2:
        return None
    halved: Tensor = _HalvedByRule.apply(inputs)  # type: ignore[no-untyped-call]
    return halved


class _HalvedByRule(_ByRule):
    @staticmethod
    def vmap(info: Any, in_dims: Dims, inputs: Tensor) -> tuple[Tensor, int]:  # noqa: ARG004
        """Halve the last two axes of whatever there is."""
        return _Halved.apply(_first(inputs, in_dims[0]))[0], 0  # type: ignore[no-untyped-call]


class _Halved(torch.autograd.Function):
    """The largest of each square of four, and which of them it is: the first of equal ones, or not a number."""

    @staticmethod
    def forward(inputs: Tensor) -> tuple[Tensor, Tensor]:
        largest, *others = (inputs[..., i::2, j::2] for i in (0, 1) for j in (0, 1))
        which = torch.zeros_like(largest, dtype=torch.uint8)
        for place, other in enumerate(others, start=1):
            larger = (other > largest) | other.isnan()
            largest, which = torch.where(larger, other, largest), torch.where(larger, place, which)
        return largest, which

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:  # noqa: ARG004
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])
        ctx.save_for_forward(output[1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor | None) -> Tensor:
        """Hand each gradient to the one of four it came from."""
        (which,) = ctx.saved_tensors
        place = torch.arange(4, device=which.device, dtype=which.dtype).view(2, 1, 2)
        chosen = which[..., :, None, :, None] == place  # (..., H/2, 2, W/2, 2)
        spread = torch.where(chosen, gradient[..., :, None, :, None], 0.0)
        return spread.flatten(-4, -3).flatten(-2, -1)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> tuple[Tensor, None]:
        (which,) = ctx.saved_tensors
        squares = torch.stack([tangent[..., i::2, j::2] for i in (0, 1) for j in (0, 1)], dim=-1)
        return squares.gather(-1, which.long().unsqueeze(-1)).squeeze(-1), None


def _batch_norm(
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
    others = [dim for dim in range(inputs.ndim) if dim != 1]
    variance, mean = torch.var_mean(inputs, dim=others, correction=0)  # (C,)
    if running_mean is not None and running_var is not None:
        count = inputs.numel() // inputs.shape[1]
        with torch.no_grad():
            running_mean.add_(momentum * (mean - running_mean))
            running_var.add_(momentum * (variance * (count / (count - 1)) - running_var))
    scale = (variance + eps).rsqrt() if weight is None else weight * (variance + eps).rsqrt()
    shift = -mean * scale if bias is None else bias - mean * scale
    across = (-1, *[1] * (inputs.ndim - 2))
    return inputs * scale.view(across) + shift.view(across)


# Common


def _first(tensor: Tensor, dim: int | None) -> Tensor:
    """Return a tensor with its axis of networks in front; one that all networks share has none."""
    return tensor if dim is None else tensor.movedim(dim, 0)


def _aligned(tensor: Tensor, dim: int) -> Tensor:
    """Fill an axis up with zeros to a length that matrix products take in whole words."""
    missing = -tensor.shape[dim] % ALIGNED
    after = tensor.ndim - 1 - dim % tensor.ndim
    return functional.pad(tensor, (0, 0) * after + (0, missing)) if missing else tensor


_RULES: dict[Any, Callable[..., Tensor | None]] = {
    functional.linear: _linear,
    functional.conv2d: _conv2d,
    functional.max_pool2d: _max_pool2d,
    functional.batch_norm: _batch_norm,
}
