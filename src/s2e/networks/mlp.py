"""A multilayer perceptron for samples of any shape."""

from __future__ import annotations

from math import prod

from torch import nn


def mlp(sample_shape: tuple[int, ...], classes: int, *, hidden: int = 256) -> nn.Module:
    """One hidden layer: 784-256-10 for MNIST, and the default for everything but colour images."""
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(sample_shape), hidden), nn.ReLU(), nn.Linear(hidden, classes))
