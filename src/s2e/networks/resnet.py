"""Residual networks for small images: ResNet-18 and -34, their pre-activation form, and wide ResNets.

The first convolution keeps the size of the image, every later stage halves it, and features are averaged over all
positions before the linear layer, so images of any sides of at least 8 are accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional

from s2e.networks.images import MeanOverPositions, image_shape, with_initial_weights

SMALLEST = 8
"""Least side of an image: the last of four stages has one position then."""

_BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}
"""Blocks of two convolutions in each of the four stages, by depth (He et al. 2016a, table 1)."""


def resnet(
    sample_shape: tuple[int, ...], classes: int, *, depth: int, pre_activation: bool = False, width: int = 64
) -> nn.Module:
    """ResNet of a depth in `_BLOCKS`, in its form for CIFAR: a 3×3 convolution and no pooling before the stages.

    The pre-activation form has no batch norm after its last block, unlike in He et al. 2016b, as in widely used
    CIFAR implementations.

    Args:
        sample_shape: (channels, height, width).
        classes: C.
        depth: 18 or 34.
        pre_activation: whether batch norm and ReLU precede the convolutions (He et al. 2016b).
        width: features of the first stage; each later one has twice as many as the one before.
    """
    name = f"preact-resnet{depth}" if pre_activation else f"resnet{depth}"
    channels, _, _ = image_shape(name, sample_shape, smallest=SMALLEST)
    widths = [width * 2**stage for stage in range(4)]
    first = [_convolution(channels, width)] + ([] if pre_activation else [nn.BatchNorm2d(width), nn.ReLU()])
    block = PreActivationBlock if pre_activation else BasicBlock
    stages = _stages(block, [width, *widths], _BLOCKS[depth])
    return with_initial_weights(nn.Sequential(*first, *stages, *_classifier(widths[-1], classes)))


def wide_resnet(
    sample_shape: tuple[int, ...], classes: int, *, depth: int, factor: int, dropout: float = 0.0
) -> nn.Module:
    """WRN-depth-factor (Zagoruyko and Komodakis 2016): three stages of pre-activation blocks with many features.

    Args:
        sample_shape: (channels, height, width).
        classes: C.
        depth: 6n + 4 layers, for n blocks in each stage.
        factor: the stages have 16, 32 and 64 features times this.
        dropout: share of the features between the two convolutions of a block that is set to 0 in training.
    """
    channels, _, _ = image_shape(f"wrn-{depth}-{factor}", sample_shape, smallest=SMALLEST)
    widths = [16 * factor, 32 * factor, 64 * factor]

    def block(inputs: int, outputs: int, stride: int) -> nn.Module:
        return PreActivationBlock(inputs, outputs, stride, dropout)

    stages = _stages(block, [16, *widths], [(depth - 4) // 6] * 3)
    last = [nn.BatchNorm2d(widths[-1]), nn.ReLU(), *_classifier(widths[-1], classes)]
    return with_initial_weights(nn.Sequential(_convolution(channels, 16), *stages, *last))


class BasicBlock(nn.Module):
    """Two 3×3 convolutions with batch norm, added to the inputs, then ReLU; (B, inputs, …) to (B, outputs, …)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            _convolution(inputs, outputs, stride),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            _convolution(outputs, outputs),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if inputs != outputs or stride != 1:
            projection = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.shortcut = nn.Sequential(projection, nn.BatchNorm2d(outputs))

    def forward(self, features: Tensor) -> Tensor:
        """Return the features after this block."""
        return functional.relu(self.residual(features) + self.shortcut(features))


class PreActivationBlock(nn.Module):
    """Batch norm and ReLU before each of two 3×3 convolutions, added to the inputs.

    A shortcut that changes the shape is a convolution of the activated inputs.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.activation = nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU())
        self.residual = nn.Sequential(
            _convolution(inputs, outputs, stride),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            *([nn.Dropout(dropout)] if dropout else []),
            _convolution(outputs, outputs),
        )
        changes_shape = inputs != outputs or stride != 1
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if changes_shape else None

    def forward(self, features: Tensor) -> Tensor:
        """Return the features after this block."""
        activated = self.activation(features)
        residual: Tensor = self.residual(activated)
        return residual + (features if self.shortcut is None else self.shortcut(activated))


def _convolution(inputs: int, outputs: int, stride: int = 1) -> nn.Module:
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)


def _stages(
    block: Callable[[int, int, int], nn.Module], widths: Sequence[int], blocks: Sequence[int]
) -> list[nn.Module]:
    """Return the blocks of all stages; `widths` has the features before them and after each stage."""
    layers: list[nn.Module] = []
    for stage, ((inputs, outputs), count) in enumerate(zip(pairwise(widths), blocks, strict=True)):
        layers.append(block(inputs, outputs, 1 if stage == 0 else 2))
        layers += [block(outputs, outputs, 1) for _ in range(count - 1)]
    return layers


def _classifier(features: int, classes: int) -> list[nn.Module]:
    return [MeanOverPositions(), nn.Linear(features, classes)]
