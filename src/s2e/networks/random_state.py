"""The random state of torch on the CPU, which all threads share and from which modules draw their initial weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

import torch

RANDOM_STATE_LOCK = RLock()
"""Held while a network is built or the state is set: a thread must not draw from a state that another one sets."""


@contextmanager
def isolated_random_state() -> Iterator[None]:
    """Let the body draw from torch's random state on the CPU as the only thread; restore the state afterwards."""
    with RANDOM_STATE_LOCK, torch.random.fork_rng(devices=[]):
        yield
