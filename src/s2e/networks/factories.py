"""Factories of reference networks: those that the Co-teaching+ paper and the S2E paper train.

A factory takes no arguments and returns a new `nn.Module`, initialised from torch's global random state.
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
"""Every reference network by its name, as a function of the shape of a sample and the number of classes."""


def check_network_name(name: str) -> None:
    """Raise for a string that is neither the name of a reference network nor "auto"."""
    if name != "auto" and name not in NETWORKS:
        raise unknown_name("network", name, ["auto", *NETWORKS])


def reference_network(name: str, sample_shape: tuple[int, ...], classes: int) -> Factory:
    """Return the factory of a reference network by its name; "auto" chooses by the shape of the data."""
    check_network_name(name)
    build = NETWORKS[default_network(sample_shape, classes) if name == "auto" else name]
    return lambda: build(sample_shape, classes)


def factory_of(network: str | Callable[..., Any], sample_shape: tuple[int, ...], classes: int) -> Factory:
    """Return a factory without arguments.

    Args:
        network: the name of a reference network, "auto", a factory without arguments, or a function of
            (shape of a sample, number of classes) that returns a module.
        sample_shape: the shape of one sample, without the batch axis.
        classes: C.
    """
    if isinstance(network, str):
        return reference_network(network, sample_shape, classes)
    if isinstance(network, nn.Module) or not callable(network):  # every member needs its own module
        found = type(network).__name__
        raise InvalidInput(f"`network` must be a name or a function that returns a new module, but got {found}.")
    required = [
        argument
        for argument in inspect.signature(network).parameters.values()
        if argument.default is argument.empty
        and argument.kind in (argument.POSITIONAL_ONLY, argument.POSITIONAL_OR_KEYWORD)
    ]
    if len(required) not in (0, 2):
        raise InvalidInput(
            f"`network` must be a function without arguments, or of two, (shape of a sample, number of classes), "
            f"but got one with {len(required)}."
        )
    return (lambda: network(sample_shape, classes)) if required else network


def default_network(sample_shape: tuple[int, ...], classes: int) -> str:
    """Return the name of the network for data of this shape: a CNN for colour images, otherwise the MLP."""
    is_colour_image = len(sample_shape) == 3 and sample_shape[0] == 3 and min(sample_shape[1:]) >= 16
    if not is_colour_image:
        return "mlp"
    return "cifar10-cnn" if classes <= 10 else "cifar100-cnn"


def check_network(network: Factory, inputs: Tensor, classes: int) -> None:
    """Raise if a factory's module does not map inputs (B, ...) to float logits (B, at least C)."""
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
