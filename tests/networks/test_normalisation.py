"""Normalisation by channel in front of a network."""

from __future__ import annotations

import copy

import torch
from torch import nn

from s2e.networks import ChannelStatistics, NormalisedFactory, NormalisedNetwork, statistics_of

STATISTICS = ChannelStatistics((0.5, 0.25), (0.2, 2.0))


def network() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(2 * 3 * 3, 4))


def seeded(factory):
    torch.manual_seed(0)
    return factory()


def test_images_are_normalised_by_channel():
    module, plain = seeded(NormalisedFactory(network, STATISTICS)), seeded(network)
    images = torch.rand(5, 2, 3, 3)
    by_hand = torch.stack([(images[:, 0] - 0.5) / 0.2, (images[:, 1] - 0.25) / 2.0], dim=1)
    torch.testing.assert_close(module(images), plain(by_hand))


def test_statistics_move_with_the_module_and_are_not_stacked():
    module = seeded(NormalisedFactory(network, STATISTICS))
    assert not dict(module.named_buffers())
    double = copy.deepcopy(module).double()
    images = torch.rand(5, 2, 3, 3)
    assert double(images.double()).dtype == torch.float64
    torch.testing.assert_close(double(images.double()).float(), module(images))
    assert module.to("meta")(images.to("meta")).device.type == "meta"


def test_statistics_of_networks_and_factories():
    assert statistics_of(NormalisedFactory(network, STATISTICS)) == STATISTICS
    assert statistics_of(NormalisedNetwork(network(), STATISTICS)) == STATISTICS
    assert statistics_of(network) is None
    assert statistics_of(network()) is None
