"""The convolutional networks that the Co-teaching+ paper trains on CIFAR-10 and CIFAR-100."""

from __future__ import annotations

from torch import nn

from s2e.networks.images import image_shape


def cifar10_cnn(sample_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Two 5×5 convolutions and three linear layers; images (channels, height, width) with sides of at least 16."""
    channels, height, width = image_shape("cifar10-cnn", sample_shape, smallest=16)
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
    """Six 3×3 convolutions with batch norm in three stages, and a linear layer; sides of at least 8."""
    channels, height, width = image_shape("cifar100-cnn", sample_shape, smallest=8)
    layers: list[nn.Module] = []
    for stage in ((64, 64), (128, 128), (196, 16)):
        for features in stage:
            layers += [nn.Conv2d(channels, features, 3, padding=1), nn.BatchNorm2d(features), nn.ReLU()]
            channels = features
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16 * (height // 8) * (width // 8), classes))
