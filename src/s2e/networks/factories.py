"""Reference networks as factories: the ones the Co-teaching+ paper (and S2E after it) trains.

A factory takes no argument and returns a fresh `nn.Module`; whoever calls it decides the random state.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from s2e.errors import InvalidInput, unknown_name
from s2e.networks.cnn import cifar10_cnn, cifar100_cnn
from s2e.networks.mlp import mlp

Factory = Callable[[], nn.Module]


NETWORKS: dict[str, Callable[[tuple[int, ...], int], nn.Module]] = {
    "mlp": mlp,
    "cifar10-cnn": cifar10_cnn,
    "cifar100-cnn": cifar100_cnn,
}


def reference_network(name: str, sample_shape: tuple[int, ...], classes: int) -> Factory:
    """Return the factory of a reference network by name; "auto" chooses by the shape of the data."""
    if name == "auto":
        name = default_network(sample_shape, classes)
    if name not in NETWORKS:
        raise unknown_name("network", name, ["auto", *NETWORKS])
    build = NETWORKS[name]
    return lambda: build(sample_shape, classes)


def factory_of(network: str | Callable[..., Any], sample_shape: tuple[int, ...], classes: int) -> Factory:
    """Return a factory without arguments; one that takes two is handed the shape of a sample and the classes."""
    if isinstance(network, str):
        return reference_network(network, sample_shape, classes)
    if not callable(network):
        raise InvalidInput(f"`network` must be a name or a factory of modules, but got {type(network).__name__}.")
    needed = [
        each
        for each in inspect.signature(network).parameters.values()
        if each.default is each.empty and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    if len(needed) not in (0, 2):
        raise InvalidInput(
            f"`network` must be a factory without arguments, or with two, (shape of a sample, number of classes), "
            f"but got one with {len(needed)}."
        )
    return (lambda: network(sample_shape, classes)) if needed else network


def default_network(sample_shape: tuple[int, ...], classes: int) -> str:
    """Name the network for data of this shape: a CNN for colour images, the MLP for anything else."""
    is_colour_image = len(sample_shape) == 3 and sample_shape[0] == 3 and min(sample_shape[1:]) >= 16
    if not is_colour_image:
        return "mlp"
    return "cifar10-cnn" if classes <= 10 else "cifar100-cnn"


def check_network(network: Factory, inputs: Tensor, classes: int) -> None:
    """Refuse a factory whose module does not map inputs (b, ...) to float logits (b, at least C)."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        output = network().eval()(inputs)
    found = f"{output.dtype} of shape {tuple(output.shape)}" if isinstance(output, Tensor) else type(output).__name__
    if (
        not isinstance(output, Tensor)
        or output.ndim != 2
        or not output.is_floating_point()
        or len(output) != len(inputs)
        or output.shape[1] < classes
    ):
        raise InvalidInput(
            f"`network` must map a batch (B, ...) to float logits (B, C) of {classes} classes, but got {found} for "
            f"{len(inputs)} samples."
        )
