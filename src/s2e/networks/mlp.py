"""A linear classifier and multilayer perceptrons, for samples of any shape."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from torch import nn


def linear(sample_shape: tuple[int, ...], classes: int) -> nn.Module:
    """One linear layer: softmax regression, as for embeddings of a pretrained network."""
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(sample_shape), classes))


def mlp(
    sample_shape: tuple[int, ...],
    classes: int,
    *,
    widths: Sequence[int] = (256,),
    dropout: float = 0.0,
    batch_norm: bool = False,
) -> nn.Module:
    """Hidden layers with ReLU: 784-256-10 for MNIST, and the default for everything but colour images.

    Args:
        sample_shape: the shape of one sample.
        classes: C.
        widths: features of the hidden layers.
        dropout: share of the features of each hidden layer that is set to 0 in training.
        batch_norm: whether the features of each hidden layer are normalised, before ReLU.
    """
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in pairwise((prod(sample_shape), *widths)):
        layers.append(nn.Linear(inputs, outputs))
        layers += [nn.BatchNorm1d(outputs)] if batch_norm else []
        layers.append(nn.ReLU())
        layers += [nn.Dropout(dropout)] if dropout else []
    return nn.Sequential(*layers, nn.Linear(widths[-1], classes))
