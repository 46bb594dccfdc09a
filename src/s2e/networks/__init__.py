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

__all__ = [
    "NETWORKS",
    "Factory",
    "check_network",
    "check_network_name",
    "default_network",
    "factory_of",
    "reference_network",
]
