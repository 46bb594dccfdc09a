"""Devices by name."""

from __future__ import annotations

import torch

from s2e.errors import InvalidInput


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
