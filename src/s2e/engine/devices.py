"""Devices by name."""

from __future__ import annotations

import torch

from s2e.errors import InvalidInput


def resolve_devices(names: str) -> tuple[torch.device, ...]:
    """Return the devices of comma-separated names, after a test that they work; each GPU may be named once."""
    devices = tuple(resolve_device(name.strip()) for name in names.split(","))
    gpus = [_index(device) for device in devices if device.type != "cpu"]
    if len(set(gpus)) < len(gpus):
        raise InvalidInput(f"`device` must name each GPU once, but got {names!r}.")
    return devices


def _index(device: torch.device) -> tuple[str, int]:
    return device.type, device.index or 0


def resolve_device(name: str) -> torch.device:
    """Return the device of a name, after a test that it works; "auto" is the GPU if there is one, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, ImportError) as problem:
        reason = str(problem).strip().splitlines()[0]
        raise InvalidInput(f"`device` must be one this machine has, but got {name!r}: {reason}") from problem
    return device
