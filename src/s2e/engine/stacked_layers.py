"""Forward passes of G small networks on a CPU, one operation for each layer of all networks.

`torch.func.vmap` supports any module, but its own cost per operation is several times that of a small layer. Networks
that are a sequence of the layers below, such as all MLPs of this package, need no vmap: each layer is written here for
stacked weights.

A network must not depend on the networks it is stacked with, to the last bit. The products of a batched matrix product
are computed independently of each other, but how a product is rounded may depend on the alignment of its operands and
its result in memory, and so on its position. So their sizes are multiples of `ALIGNMENT`, with zeros added where
necessary. `tests/engine/test_stacked_layers.py` holds this for the library that the tests run with.

| name | shape | what |
|---|---|---|
| features | (I, B) or (G, I, B) | a batch that all networks share, or one of each; samples are the last axis |
| weight, bias | (G, O, I), (G, O) | of all networks |

With samples last, products and their gradients come out in the layout in which they are needed, and the softmax over
few classes is vectorised over samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from s2e.engine.aligned_rows import ALIGNMENT
from s2e.engine.large_products import linear

ELEMENTWISE = (nn.Identity, nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Sigmoid, nn.Tanh, nn.Softplus)
"""Layers without weights that work on every number by itself, so that stacked features need no other code."""


@dataclass(frozen=True)
class Pass:
    """One forward pass.

    Attributes:
        tensors: weights and buffers of all networks, {name: (G, ...)}; running statistics are updated in place.
        training: whether the networks are in training mode.
        generators: G sources of random numbers, one for each network; empty if no layer draws any.
    """

    tensors: Mapping[str, Tensor]
    training: bool
    generators: Sequence[torch.Generator] = ()

    def of_each_network(self, features: Tensor) -> Tensor:
        """Return features (G, I, B), repeated without a copy if they are shared, (I, B)."""
        if features.ndim > 2:
            return features
        networks = len(next(iter(self.tensors.values())))
        return features.expand(networks, -1, -1)


Layer: TypeAlias = Callable[[Tensor, Pass], Tensor]
"""From features and a pass to the next features."""


def flattened(features: Tensor, this: Pass) -> Tensor:  # noqa: ARG001
    """Return the features: they are flat from the start."""
    return features


class StackedForward:
    """The forward pass of G networks that are a sequence of layers.

    Args:
        layers: the layers, in order.
        flattens: whether samples are flattened first; otherwise they must have one axis.

    Attributes:
        draws: whether a layer draws random numbers in training.
    """

    def __init__(self, layers: list[Layer], *, flattens: bool) -> None:
        self._layers, self._flattens = layers, flattens
        self.draws = any(isinstance(layer, _Dropout) for layer in layers)

    def __call__(self, inputs: Tensor, this: Pass) -> Tensor:
        """Return the logits (G, B, C) of all networks on a shared batch (B, I), or (B, ...) that is flattened first."""
        if inputs.ndim != 2 and not self._flattens:
            raise NotImplementedError(f"samples of shape {tuple(inputs.shape[1:])} are not flattened first")
        features = inputs.flatten(1).mT  # (I, B)
        for layer in self._layers:
            features = layer(features, this)
        return features.mT


def stacked_forward(module: nn.Module) -> StackedForward | None:
    """Return the forward pass of stacked copies of a module; None if it has other layers than those known here."""
    layers = _layers_of(module, "")
    if layers is None or not any(isinstance(layer, _Linear) for layer in layers):
        return None
    return StackedForward([layer for layer in layers if layer is not flattened], flattens=layers[0] is flattened)


def _layers_of(module: nn.Module, name: str) -> list[Layer] | None:
    """Return the layers of a module whose dotted name is given, with a dot at its end; None if one is unknown."""
    if _has_hooks(module):
        return None
    if type(module) is nn.Sequential:
        parts = [_layers_of(part, f"{name}{key}.") for key, part in module.named_children()]
        return None if any(part is None for part in parts) else [layer for part in parts for layer in part or []]
    if type(module) in ELEMENTWISE:
        return [_Elementwise(module)]
    build = _LAYERS.get(type(module))
    layer = None if build is None else build(module, name)
    return None if layer is None else [layer]


def _has_hooks(module: nn.Module) -> bool:
    """Return whether calling the module runs anything but its forward method."""
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)


@dataclass(frozen=True)
class _Elementwise:
    module: nn.Module

    def __call__(self, features: Tensor, this: Pass) -> Tensor:  # noqa: ARG002
        activated: Tensor = self.module.forward(features)
        return activated


@dataclass(frozen=True)
class _Linear:
    weight: str
    bias: str | None

    def __call__(self, features: Tensor, this: Pass) -> Tensor:
        weight, bias = this.tensors[self.weight], None if self.bias is None else this.tensors[self.bias]
        outputs, inputs, samples = *weight.shape[1:], features.shape[-1]
        sizes = (outputs * inputs, outputs * samples, inputs * samples)
        padded = inputs == 1 or any(size % ALIGNMENT for size in sizes)
        if padded:
            more_inputs, more_outputs = -inputs % ALIGNMENT, -outputs % ALIGNMENT
            features = functional.pad(features, (0, 0, 0, more_inputs))
            weight = functional.pad(weight, (0, more_inputs, 0, more_outputs))
            bias = None if bias is None else functional.pad(bias, (0, more_outputs))
        product = linear(weight, this.of_each_network(features), bias)
        return product[:, :outputs] if padded else product


@dataclass(frozen=True)
class _BatchNorm:
    weight: str | None
    bias: str | None
    running: tuple[str, str, str] | None  # mean, variance, number of batches
    momentum: float
    eps: float

    def __call__(self, features: Tensor, this: Pass) -> Tensor:
        features = this.of_each_network(features)
        if this.training or self.running is None:
            variance, mean = torch.var_mean(features, dim=2, correction=0)  # (G, F)
            if this.training and self.running is not None:
                self._update(this.tensors, mean.detach(), variance.detach(), features.shape[2])
        else:
            mean, variance = (this.tensors[name] for name in self.running[:2])
        scale = (variance + self.eps).rsqrt()
        if self.weight is not None:
            scale = scale * this.tensors[self.weight]
        shift = -mean * scale
        if self.bias is not None:
            shift = shift + this.tensors[self.bias]
        return features * scale.unsqueeze(2) + shift.unsqueeze(2)

    @torch.no_grad()
    def _update(self, tensors: Mapping[str, Tensor], mean: Tensor, variance: Tensor, count: int) -> None:
        assert self.running is not None  # noqa: S101
        running_mean, running_variance, batches = (tensors[name] for name in self.running)
        running_mean += self.momentum * (mean - running_mean)
        running_variance += self.momentum * (variance * (count / (count - 1)) - running_variance)
        batches += 1


@dataclass(frozen=True)
class _LayerNorm:
    weight: str | None
    bias: str | None
    features: int
    eps: float

    def __call__(self, features: Tensor, this: Pass) -> Tensor:
        normalised = functional.layer_norm(this.of_each_network(features).mT, (self.features,), eps=self.eps)
        if self.weight is not None:
            normalised = normalised * this.tensors[self.weight].unsqueeze(1)
        if self.bias is not None:
            normalised = normalised + this.tensors[self.bias].unsqueeze(1)
        return normalised.mT


@dataclass(frozen=True)
class _Dropout:
    share: float

    def __call__(self, features: Tensor, this: Pass) -> Tensor:
        if not this.training:
            return features
        features = this.of_each_network(features)
        kept = torch.empty_like(features.mT, memory_format=torch.contiguous_format)  # (G, B, I)
        for own, generator in zip(kept, this.generators, strict=True):
            own.bernoulli_(1 - self.share, generator=generator)
        return features * kept.div_(1 - self.share).mT


def _linear(module: Any, name: str) -> Layer:
    return _Linear(f"{name}weight", None if module.bias is None else f"{name}bias")


def _flatten(module: Any, name: str) -> Layer | None:  # noqa: ARG001
    return flattened if (module.start_dim, module.end_dim) == (1, -1) else None


def _batch_norm(module: Any, name: str) -> Layer | None:
    if module.momentum is None:  # a cumulative mean
        return None
    weight, bias = (f"{name}weight", f"{name}bias") if module.affine else (None, None)
    running = None
    if module.track_running_stats:
        running = (f"{name}running_mean", f"{name}running_var", f"{name}num_batches_tracked")
    return _BatchNorm(weight, bias, running, module.momentum, module.eps)


def _layer_norm(module: Any, name: str) -> Layer | None:
    if len(module.normalized_shape) != 1:
        return None
    weight, bias = (None if getattr(module, each) is None else f"{name}{each}" for each in ("weight", "bias"))
    return _LayerNorm(weight, bias, module.normalized_shape[0], module.eps)


def _dropout(module: Any, name: str) -> Layer | None:  # noqa: ARG001
    return _Dropout(module.p) if module.p < 1 else None


_LAYERS: dict[type[nn.Module], Callable[[Any, str], Layer | None]] = {
    nn.Flatten: _flatten,
    nn.Linear: _linear,
    nn.BatchNorm1d: _batch_norm,
    nn.LayerNorm: _layer_norm,
    nn.Dropout: _dropout,
}
