"""Executors: what trains the members of a generation, other than this process on one device."""

from s2e.studies.executors.choice import resolve_execution
from s2e.studies.executors.devices import DeviceExecutor
from s2e.studies.executors.ray_cluster import RayExecutor

__all__ = ["DeviceExecutor", "RayExecutor", "resolve_execution"]
