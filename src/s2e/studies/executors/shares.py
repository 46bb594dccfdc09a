"""Shares of a population for workers of different speeds; pure.

Letters: P members, W workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np


def shares(costs: Sequence[float], speeds: Sequence[float]) -> list[range]:
    """Return the consecutive members that each worker trains, such that all finish at about the same time.

    A worker's part of the work is its part of the speed. A member belongs to the worker in whose part the middle of
    its own work lies.

    Args:
        costs: (P,) work of each member, such as its number of networks.
        speeds: (W,) work per second of each worker.

    Returns:
        (W,) ranges that cover the members in their order; those of slow workers may be empty.
    """
    middles = np.cumsum(costs) - np.divide(costs, 2)  # (P,)
    ends = sum(costs) * np.cumsum(speeds) / sum(speeds) * (1 + 1e-9)  # (W,)
    counts = np.searchsorted(middles, ends[:-1], side="right").tolist()
    bounds = list(accumulate([0, *counts, len(costs)], max))
    return [range(first, end) for first, end in pairwise(bounds)]
