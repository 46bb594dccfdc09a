"""Reference networks as factories: the ones the Co-teaching+ paper (and S2E after it) trains.

A factory takes no argument and returns a fresh `nn.Module`; whoever calls it decides the random state.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from s2e.errors import InvalidInput, unknown_name

Factory = Callable[[], nn.Module]


def mlp(sample_shape: tuple[int, ...], classes: int, *, hidden: int = 256) -> nn.Module:
    """One hidden layer: MNIST's 784-256-10, and the default for everything that is not a colour image."""
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(sample_shape), hidden), nn.ReLU(), nn.Linear(hidden, classes))


def cifar10_cnn(sample_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Two 5×5 convolutions and three dense layers; (channels, height, width) with sides of at least 16."""
    channels, height, width = _image_shape("cifar10-cnn", sample_shape, smallest=16)
    rows, columns = (((side - 4) // 2 - 4) // 2 for side in (height, width))
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * rows * columns, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, classes),
    )


def cifar100_cnn(sample_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Six 3×3 convolutions with batch norm in three stages, one dense layer; sides of at least 8."""
    channels, height, width = _image_shape("cifar100-cnn", sample_shape, smallest=8)
    layers: list[nn.Module] = []
    for stage in ((64, 64), (128, 128), (196, 16)):
        for width_out in stage:
            layers += [nn.Conv2d(channels, width_out, 3, padding=1), nn.BatchNorm2d(width_out), nn.ReLU()]
            channels = width_out
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16 * (height // 8) * (width // 8), classes))


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


def _image_shape(network: str, sample_shape: tuple[int, ...], *, smallest: int) -> tuple[int, int, int]:
    if len(sample_shape) != 3 or min(sample_shape[1:]) < smallest:
        raise InvalidInput(
            f"`network` {network} must be given images of shape (channels, height, width) with sides of at least "
            f"{smallest}, but got {sample_shape}; use the network mlp."
        )
    channels, height, width = sample_shape
    return channels, height, width
