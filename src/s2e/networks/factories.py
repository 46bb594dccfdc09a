"""Factories of reference networks: those that the Co-teaching+ paper and the S2E paper train, and common ones.

A reference network is written as a name with options: "resnet18", "mlp:widths=512-256,dropout=0.2". A factory takes no
arguments and returns a new `nn.Module`, initialised from torch's global random state.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from s2e.errors import InvalidInput, S2EError, first_line, is_out_of_memory, unknown_name
from s2e.networks.cnn import cifar10_cnn, cifar100_cnn
from s2e.networks.densenet import densenet_bc
from s2e.networks.mlp import linear, mlp
from s2e.networks.random_state import isolated_random_state
from s2e.networks.resnet import resnet, wide_resnet
from s2e.specs import AUTO, LARGEST_COUNT, convert_options, parse_named_options, to_boolean, to_count, to_number

Factory = Callable[[], nn.Module]

NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "linear": linear,
    "mlp": mlp,
    "cifar10-cnn": cifar10_cnn,
    "cifar100-cnn": cifar100_cnn,
    "resnet18": partial(resnet, depth=18),
    "resnet34": partial(resnet, depth=34),
    "preact-resnet18": partial(resnet, depth=18, pre_activation=True),
    "preact-resnet34": partial(resnet, depth=34, pre_activation=True),
    "wrn-16-4": partial(wide_resnet, depth=16, factor=4),
    "wrn-28-10": partial(wide_resnet, depth=28, factor=10),
    "densenet-bc-40-12": partial(densenet_bc, depth=40, growth=12),
    "densenet-bc-100-12": partial(densenet_bc, depth=100, growth=12),
}
"""Every reference network by its name, as a function of the shape of a sample, the number of classes and its options.

The names are repeated in the help text of `--network` in `specs.py`.
"""


def _widths(text: str) -> tuple[int, ...]:
    try:
        return tuple(map(to_count, text.split("-")))
    except ValueError:
        problem = f"must be positive integers separated by hyphens, such as 512-256, each at most {LARGEST_COUNT:,}"
        raise ValueError(problem) from None


_DROPOUT = {"dropout": partial(to_number, minimum=0, below=1)}
_WIDTH = {"width": to_count}

OPTIONS: dict[str, Mapping[str, Callable[[str], Any]]] = {
    "mlp": {"widths": _widths, **_DROPOUT, "batch_norm": to_boolean},
    **dict.fromkeys(("resnet18", "resnet34", "preact-resnet18", "preact-resnet34"), _WIDTH),
    **dict.fromkeys(("wrn-16-4", "wrn-28-10", "densenet-bc-40-12", "densenet-bc-100-12"), _DROPOUT),
}
"""The options of reference networks that have some, each with the function that converts its text."""


def check_network_name(name: str) -> None:
    """Raise for a string that is neither a reference network, with options or without, nor "auto"."""
    _split(name)


def reference_network(name: str, sample_shape: tuple[int, ...], classes: int) -> Factory:
    """Return the factory of a reference network, with options or without; "auto" chooses by the shape of the data."""
    plain, options = _split(name)
    build = NETWORKS[default_network(sample_shape, classes) if plain == AUTO else plain]
    return lambda: build(sample_shape, classes, **options)


def _split(text: str) -> tuple[str, dict[str, Any]]:
    """Return the name of a reference network and its options as values."""
    name, options = parse_named_options("network", text)
    if name != AUTO and name not in NETWORKS:
        raise unknown_name("network", name, [AUTO, *NETWORKS])
    return name, convert_options("network", name, options, OPTIONS.get(name, {}))


def factory_of(network: str | Callable[..., Any], sample_shape: tuple[int, ...], classes: int) -> Factory:
    """Return a factory without arguments.

    Args:
        network: a reference network as text, "auto", a factory without arguments, or a function of
            (shape of a sample, number of classes) that returns a module.
        sample_shape: the shape of one sample, without the batch axis.
        classes: C.
    """
    if isinstance(network, str):
        return reference_network(network, sample_shape, classes)
    found = type(network).__name__
    if isinstance(network, nn.Module):
        raise InvalidInput(
            f"`network` must be a name or a function that returns a new module, but got a module, {found}; every "
            f"training needs its own: pass a function, such as lambda: {found}()."
        )
    if not callable(network):
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


def _built(network: Factory) -> nn.Module:
    """Return a new module of a factory, or raise if it returns none that can be copied for several members."""
    with _named_as_network("be a function that returns a new module"):
        module = network()
    if not isinstance(module, nn.Module):
        raise InvalidInput(
            f"`network` must be a function that returns a new module, but got one that returns {type(module).__name__}."
        )
    if any(is_lazy(tensor) for tensor in (*module.parameters(), *module.buffers())):
        raise InvalidInput(
            f"`network` must return modules of known sizes, but got {type(module).__name__} with lazy modules; give "
            "them their sizes, or call the module once on a batch before it is returned."
        )
    return module


def _probe(module: nn.Module, inputs: Tensor) -> Any:
    types = {str(p.dtype).removeprefix("torch.") for p in module.parameters() if p.dtype != inputs.dtype}
    advice = f"; its parameters are {' and '.join(sorted(types))}: convert it with .float()" if types else ""
    with _named_as_network(f"map a float32 batch of shape {tuple(inputs.shape)} to logits", advice):
        return module.eval()(inputs)


@contextmanager
def _named_as_network(expected: str, advice: str = "") -> Iterator[None]:
    """Turn what a user's module raises in the body into one line; memory that is exhausted is no fault of it."""
    try:
        yield
    except Exception as problem:
        if isinstance(problem, S2EError) or is_out_of_memory(problem):
            raise
        raise InvalidInput(
            f"`network` must {expected}, but raises {type(problem).__name__}: {first_line(problem)}{advice}."
        ) from problem


def check_network(network: Factory, inputs: Tensor, classes: int) -> None:
    """Raise if a factory's module does not map inputs (B, ...) to float logits (B, at least C)."""
    with isolated_random_state(), torch.no_grad():
        output = _probe(_built(network), inputs)
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
