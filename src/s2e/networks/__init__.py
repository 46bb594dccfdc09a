"""Reference networks by name, and factories: functions that return a new `torch.nn.Module`."""

from s2e.networks.factories import (
    NETWORKS,
    Factory,
    check_network,
    check_network_name,
    default_network,
    factory_of,
    reference_network,
)
from s2e.networks.normalisation import ChannelStatistics, NormalisedFactory, NormalisedNetwork, statistics_of
from s2e.networks.random_state import RANDOM_STATE_LOCK, isolated_random_state

__all__ = [
    "NETWORKS",
    "RANDOM_STATE_LOCK",
    "ChannelStatistics",
    "Factory",
    "NormalisedFactory",
    "NormalisedNetwork",
    "check_network",
    "check_network_name",
    "default_network",
    "factory_of",
    "isolated_random_state",
    "reference_network",
    "statistics_of",
]
