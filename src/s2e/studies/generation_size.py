"""How many points a generation has: K as given, or chosen from a short measurement of this device, network and data.

A GPU that a few members do not fill trains more of them in nearly the same time, so a larger generation is nearly free.
How much larger depends on the device, the network and the batch, and is measured. On a CPU every member costs its full
time: nothing is measured there, and K is the smallest candidate.

Letters: K points in a generation, P members in a population.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from s2e.engine import MAX_SLOWDOWN, Member, Task, step_seconds

SIZES = (6, 8, 12, 16, 24, 32)
"""Candidates, the smallest first.

With larger ones, ten generations would have more trials than the curve model fits quickly: asking would take longer
than training.
"""
FEWEST_GENERATIONS = 5
"""Generations there must be at least where the number of trials is given: a search learns between generations."""
SMALLEST = 2
"""The smallest generation: the paper's steps compare the points of one generation."""


def candidate_sizes(trials: int | None) -> tuple[int, ...]:
    """Return the sizes to choose from; where the number of trials is given, at most a fifth of them."""
    if trials is None:
        return SIZES
    most = max(SMALLEST, trials // FEWEST_GENERATIONS)
    return tuple(sorted({min(size, most) for size in SIZES}))


def choose_generation_size(task: Task, kinds: Sequence[Member], sizes: Sequence[int]) -> int:
    """Return the largest size whose training step takes little longer than that of the smallest.

    Args:
        task: what is trained.
        kinds: one member of each search that is trained in the same population; each search has K such members.
        sizes: candidates, the smallest first.
    """
    if task.device.type != "cuda" or len(sizes) == 1:
        return sizes[0]
    seconds = step_seconds(task, kinds, sizes)
    return largest_affordable(seconds) if seconds else sizes[0]


def largest_affordable(seconds: Mapping[int, float], *, slowdown: float = MAX_SLOWDOWN) -> int:
    """Return the largest size whose step takes at most `slowdown` times as long as that of the smallest."""
    longest = slowdown * seconds[min(seconds)]
    return max(size for size, each in seconds.items() if each <= longest)
