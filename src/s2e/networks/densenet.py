"""DenseNet-BC for small images (Huang et al. 2017): every layer reads the features of all layers before it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from s2e.networks.images import MeanOverPositions, image_shape, with_initial_weights

SMALLEST = 8
"""Least side of an image: the last of three blocks has 2×2 positions then."""


def densenet_bc(
    sample_shape: tuple[int, ...], classes: int, *, depth: int, growth: int, dropout: float = 0.0
) -> nn.Module:
    """Three blocks of bottleneck layers, with transitions between them that halve the features and the sides.

    Args:
        sample_shape: (channels, height, width), with sides of at least 8.
        classes: C.
        depth: 6n + 4 layers, for n bottleneck layers of two convolutions in each block.
        growth: k, the features that a bottleneck layer adds.
        dropout: share of the features after each convolution but the first that is set to 0 in training.
    """
    channels, _, _ = image_shape(f"densenet-bc-{depth}-{growth}", sample_shape, smallest=SMALLEST)
    features = 2 * growth
    layers: list[nn.Module] = [nn.Conv2d(channels, features, 3, padding=1, bias=False)]
    for block in range(3):
        if block > 0:
            layers += [*_convolution(features, features // 2, 1, dropout), nn.AvgPool2d(2)]
            features //= 2
        for _ in range((depth - 4) // 6):
            layers.append(BottleneckLayer(features, growth, dropout))
            features += growth
    layers += [nn.BatchNorm2d(features), nn.ReLU(), MeanOverPositions()]
    return with_initial_weights(nn.Sequential(*layers, nn.Linear(features, classes)))


class BottleneckLayer(nn.Module):
    """Appends `growth` features: a 1×1 convolution to four times as many, then a 3×3 convolution."""

    def __init__(self, inputs: int, growth: int, dropout: float) -> None:
        super().__init__()
        bottleneck = 4 * growth
        self.added = nn.Sequential(
            *_convolution(inputs, bottleneck, 1, dropout), *_convolution(bottleneck, growth, 3, dropout)
        )

    def forward(self, features: Tensor) -> Tensor:
        """Map (B, inputs, height, width) to (B, inputs + growth, height, width)."""
        return torch.cat([features, self.added(features)], dim=1)


def _convolution(inputs: int, outputs: int, side: int, dropout: float) -> list[nn.Module]:
    """Return batch norm, ReLU and a convolution that keeps the size of the image."""
    convolution = nn.Conv2d(inputs, outputs, side, padding=side // 2, bias=False)
    return [nn.BatchNorm2d(inputs), nn.ReLU(), convolution, *([nn.Dropout(dropout)] if dropout else [])]
