"""."""

from __future__ import annotations

from math import prod

from torch import nn


def mlp(sample_shape: tuple[int, ...], classes: int, *, hidden: int = 256) -> nn.Module:
    """One hidden layer: MNIST's 784-256-10, and the default for everything that is not a colour image."""
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(sample_shape), hidden), nn.ReLU(), nn.Linear(hidden, classes))
