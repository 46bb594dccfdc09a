"""Normalisation by channel, as the first layer of a network: evaluation, prediction and audits need it too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from s2e.networks.factories import Factory

if TYPE_CHECKING:
    from typing_extensions import Self


class ChannelStatistics(NamedTuple):
    """Mean and standard deviation of the training images by channel; no standard deviation is 0."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


class NormalisedNetwork(nn.Module):
    """A network of normalised images.

    Mean and standard deviation are no buffers: those of G stacked networks would be stacked too, and every network
    would then have its own copy of the batch that they share.

    Args:
        network: maps images (B, channels, H, W) to logits (B, C).
        statistics: by which images are normalised.
    """

    def __init__(self, network: nn.Module, statistics: ChannelStatistics) -> None:
        super().__init__()
        self.network, self.statistics = network, statistics
        self._mean, self._std = (torch.tensor(each)[:, None, None] for each in statistics)  # (channels, 1, 1)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits of images (B, channels, H, W)."""
        logits: Tensor = self.network((inputs - self._mean) / self._std)
        return logits

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move or convert the statistics with the module, as `to`, `cuda`, `double`, … do with buffers."""
        self._mean, self._std = fn(self._mean), fn(self._std)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self


@dataclass(frozen=True)
class NormalisedFactory:
    """Factory of `NormalisedNetwork`.

    Args:
        network: factory of the network.
        statistics: by which images are normalised.
    """

    network: Factory
    statistics: ChannelStatistics

    def __call__(self) -> nn.Module:
        """Return a new module, with the initial weights that the network would have without normalisation."""
        return NormalisedNetwork(self.network(), self.statistics)


def statistics_of(network: Factory | nn.Module) -> ChannelStatistics | None:
    """Return the statistics by which a network, or those of a factory, normalise images; None if they do not."""
    return network.statistics if isinstance(network, (NormalisedNetwork, NormalisedFactory)) else None
