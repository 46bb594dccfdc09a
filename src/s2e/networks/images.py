"""What networks for images share: the shapes they accept, initial weights, and the mean over all positions."""

from __future__ import annotations

from torch import Tensor, nn

from s2e.errors import InvalidInput


def image_shape(network: str, sample_shape: tuple[int, ...], *, smallest: int) -> tuple[int, int, int]:
    """Return (channels, height, width), or raise if samples are not images with sides of at least `smallest`."""
    if len(sample_shape) != 3 or min(sample_shape[1:]) < smallest:
        raise InvalidInput(
            f"`network` {network} must be given images of shape (channels, height, width) with sides of at least "
            f"{smallest}, but got {sample_shape}; use the network mlp."
        )
    channels, height, width = sample_shape
    return channels, height, width


def with_initial_weights(network: nn.Module) -> nn.Module:
    """Draw convolutions as in the papers of ResNet, wide ResNet and DenseNet, and return the network.

    Weights are normal with variance 2/(outputs · kernel area) (He et al. 2015), biases of linear layers 0.
    """
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
    return network


class MeanOverPositions(nn.Module):
    """Global average pooling: (B, features, height, width) to (B, features).

    Written as a mean because vmap has no rule for `nn.AdaptiveAvgPool2d` on channels-last features.
    """

    def forward(self, features: Tensor) -> Tensor:
        """Return the mean of every feature."""
        return features.mean(dim=(2, 3))
