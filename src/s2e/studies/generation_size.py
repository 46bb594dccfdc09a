"""The number of points in a generation, chosen from a short measurement on this device, network and data.

A GPU that is not fully used by a few members trains more of them in nearly the same time, up to a number that depends
on the device, the network and the batch, and is measured. On a CPU the time is proportional to the members: nothing is
measured, and K is the smallest candidate.

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
MIN_GENERATIONS = 5
"""Minimum number of generations if the number of trials is given: samplers use the scores of earlier generations."""
MIN_SIZE = 2
"""Minimum size: the paper's steps compare the points of one generation."""


def candidate_sizes(trials: int | None) -> tuple[int, ...]:
    """Return the sizes to choose from, at most a fifth of the number of trials if that is given."""
    if trials is None:
        return SIZES
    largest = max(MIN_SIZE, trials // MIN_GENERATIONS)
    return tuple(sorted({min(size, largest) for size in SIZES}))


def choose_generation_size(task: Task, templates: Sequence[Member], sizes: Sequence[int]) -> int:
    """Return the largest size whose training step takes little longer than that of the smallest.

    Args:
        task: settings shared by all members.
        templates: one member of each search in the population; each search has K copies of its template.
        sizes: candidates, the smallest first.
    """
    if task.device.type != "cuda" or len(sizes) == 1:
        return sizes[0]
    seconds = step_seconds(task, templates, sizes)
    return largest_affordable(seconds) if seconds else sizes[0]


def largest_affordable(seconds: Mapping[int, float], *, slowdown: float = MAX_SLOWDOWN) -> int:
    """Return the largest size whose step takes at most `slowdown` times as long as that of the smallest."""
    longest = slowdown * seconds[min(seconds)]
    return max(size for size, each in seconds.items() if each <= longest)
