"""Devices by name."""

from __future__ import annotations

import pytest
import torch

from s2e.engine.devices import resolve_device
from s2e.errors import InvalidInput


def test_resolve_device():
    assert resolve_device("cpu") == torch.device("cpu")
    assert resolve_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("name", ["nonsense", "cuda:99"])
def test_unknown_devices_are_rejected(name):
    with pytest.raises(InvalidInput, match=rf"`device` must be one this machine has, but got '{name}'"):
        resolve_device(name)
