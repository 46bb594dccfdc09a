"""How wide a generation is: K as it is given, or picked from a short measurement of this device, network and data.

A GPU that a few members do not fill trains more of them in nearly the time of a few, so a wider generation is nearly
free; how much wider depends on the device, the network and the batch, and is measured. On a CPU, members are trained
one after the other, so every one of them costs its full time: nothing is measured there, and K is the narrowest.

Letters: K points in a generation, P members in a population.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from s2e.engine.step_timing import MOST_SLOWDOWN, step_seconds
from s2e.engine.task import Member, Task
from s2e.errors import InvalidInput
from s2e.schedules.fixed import constant

AUTO: Final = "auto"
Generation = int | Literal["auto"]
"""K, or `AUTO` to pick it."""

SIZES = (6, 8, 12, 16, 24, 32)
"""Generations to pick from, the narrowest first.

None is wider, for ten of them would have more trials than a model of all trials can be fitted to in passing: asking
would take longer than training."""
DEFAULT_GENERATIONS = 10
"""Generations of a search whose number of trials is not given."""
ROUNDS_TO_LEARN = 5
"""Generations there must be at least, for a search learns from one for the next."""
LEAST = 2
"""The fewest points a generation is narrowed to: the paper's steps compare the points of one."""


@dataclass(frozen=True)
class Pace:
    """How a search goes along: K points in a generation, and how many trials in all."""

    generation: int
    trials: int


def paced(
    generation: Generation,
    trials: int | None,
    *,
    rounds: int,
    pick: Callable[[Sequence[int]], int],
    begun: Mapping[str, Any] | None = None,
) -> Pace:
    """Return the numbers a search goes by. Where K is given, nothing is picked.

    Args:
        generation: K, or `AUTO`.
        trials: how many; None for so many `rounds`, of the K picked, or of the narrowest generation where K is given.
        rounds: generations of a search whose number of trials is not given.
        pick: picks one of the generations it is handed, the narrowest of them first.
        begun: what a search that is continued was begun with, whose K it keeps.
    """
    if generation != AUTO:
        if isinstance(generation, str):
            raise InvalidInput(f"`generation` must be a positive integer or {AUTO}, but got {generation!r}.")
        return Pace(generation, rounds * SIZES[0] if trials is None else trials)
    if begun and "generation" in begun:
        stored = begun.get("trials", rounds * begun["generation"])
        return Pace(begun["generation"], stored if trials is None else trials)
    picked = pick(sizes_for(trials))
    return Pace(picked, rounds * picked if trials is None else trials)


def sizes_for(trials: int | None) -> tuple[int, ...]:
    """Return the generations to pick from: of a given number of trials, a fifth at most."""
    if trials is None:
        return SIZES
    most = max(LEAST, trials // ROUNDS_TO_LEARN)
    return tuple(sorted({min(size, most) for size in SIZES}))


def picked(task: Task, kinds: Sequence[Member], sizes: Sequence[int]) -> int:
    """Return the widest of these generations that costs little more time than the first, the narrowest.

    Args:
        task: what is trained.
        kinds: a member of each search that is trained in the same population; each has K like it.
        sizes: generations to pick from, the narrowest first.
    """
    if task.device.type != "cuda" or len(sizes) == 1:
        return sizes[0]
    seconds = step_seconds(task, kinds, sizes)
    return widest(seconds) if seconds else sizes[0]


def picked_for(task: Task, learning_rate: float) -> Callable[[Sequence[int]], int]:
    """Return what picks the generation of a search that is alone on this task."""
    return partial(picked, task, [Member(constant(1.0, task.epochs), 0, learning_rate)])


def widest(seconds: Mapping[int, float], *, slower: float = MOST_SLOWDOWN) -> int:
    """Return the largest K whose step takes at most `slower` times the seconds of the narrowest generation's."""
    longest = slower * seconds[min(seconds)]
    return max(size for size, each in seconds.items() if each <= longest)
