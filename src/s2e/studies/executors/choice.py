"""The executor that options name."""

from __future__ import annotations

from weakref import WeakValueDictionary

import torch

from s2e.engine import Executor, resolve_device, resolve_devices
from s2e.specs import AUTO, RAY, Execution
from s2e.studies.executors.devices import DeviceExecutor
from s2e.studies.executors.ray_cluster import RayExecutor, check_ray_installed

_RAY_EXECUTORS: WeakValueDictionary[Execution, RayExecutor] = WeakValueDictionary()
"""A process has one connection to Ray, and its actors keep their devices: tasks share them."""


def resolve_execution(execution: Execution) -> tuple[torch.device, Executor | None]:
    """Return the device of this process and the executor of a task, after a test that devices work.

    The executor is None for one device of this machine.
    """
    if execution.executor == RAY:
        check_ray_installed()
        return _own_device(execution.device), _RAY_EXECUTORS.setdefault(
            execution, RayExecutor(execution.ray_address, execution.device)
        )
    devices = resolve_devices(execution.device)
    return devices[0], DeviceExecutor(devices) if len(devices) > 1 else None


def _own_device(name: str) -> torch.device:
    """Return the device on which this process computes itself what it does not train: a cluster may have others."""
    return resolve_device("cpu" if name == "cpu" else AUTO)
