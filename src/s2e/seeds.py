"""Independent random streams derived from one seed, one for each use."""

from __future__ import annotations

import zlib

import numpy as np


def derive(seed: int, *path: int | str) -> int:
    """Return a 63-bit seed for one use, e.g. `derive(seed, "order", epoch)`; the same on every machine."""
    words = [part if isinstance(part, int) else zlib.crc32(part.encode()) for part in path]
    state = np.random.SeedSequence([seed, *words]).generate_state(1, dtype=np.uint64)
    return int(state[0] >> np.uint64(1))
