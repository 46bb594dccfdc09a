"""Names of devices."""

from __future__ import annotations

import torch

from s2e.errors import InvalidInput


def device_of(name: str) -> torch.device:
    """Return the device of this name; "auto" takes the GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, ImportError) as problem:
        reason = str(problem).strip().splitlines()[0]
        raise InvalidInput(f"`device` must be one this machine has, but got {name!r}: {reason}") from problem
    return device
