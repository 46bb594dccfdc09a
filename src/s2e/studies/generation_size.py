"""How wide a generation is: K as it is given, or picked from a short measurement of this device, network and data.

A GPU that a few members do not fill trains more of them in nearly the time of a few, so a wider generation is nearly
free; how much wider depends on the device, the network and the batch, and is measured. On a CPU, members are trained
one after the other, so every one of them costs its full time: nothing is measured there, and K is the narrowest.

Letters: K points in a generation, P members in a population.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import torch

from s2e.engine.population import worth_compiling
from s2e.engine.task import Member, Task
from s2e.engine.training import engine_steps
from s2e.errors import InvalidInput
from s2e.runs.directory import CONFIG, Run
from s2e.schedules.fixed import constant

AUTO: Final = "auto"
Generation = int | Literal["auto"]
"""K, or `AUTO` to pick it."""

SIZES = (6, 8, 12, 16, 24, 32)
"""Generations to pick from, the narrowest first.

None is wider, for ten of them would have more trials than a model of all trials can be fitted to in passing: asking
would take longer than training."""
SLOWER = 1.25
"""Times the step of the narrowest generation that the step of a wider one may take."""
ROUNDS_OF_A_SEARCH = 10
"""Generations of a search whose number of trials is not given."""
ROUNDS_TO_LEARN = 5
"""Generations there must be at least, for a search learns from one for the next."""
LEAST = 2
"""The fewest points a generation is narrowed to: the paper's steps compare the points of one."""

WARM_UP_STEPS = 5
"""Steps before those that are timed: libraries choose their kernels in the first, then the step is compiled and
captured."""
STEPS = 10
"""Steps timed together, so that waiting for the device once hardly counts."""
TIMINGS = 5
"""How often they are timed at most."""
PATIENCE = 0.3
"""Seconds after which one generation is not timed once more."""


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


def begun_with(out: Path, *, resume: bool) -> Mapping[str, Any]:
    """Return the options of the run that is continued in a directory; none where a new one begins."""
    run = Run(out)
    options: Mapping[str, Any] = run.read_json(CONFIG).get("options", {}) if resume and run.exists else {}
    return options


def picked(task: Task, kinds: Sequence[Member], sizes: Sequence[int]) -> int:
    """Return the widest of these generations that costs little more time than the first, the narrowest.

    Args:
        task: what is trained.
        kinds: a member of each search that is trained in the same population; each has K like it.
        sizes: generations to pick from, the narrowest first.
    """
    if task.device.type != "cuda" or len(sizes) == 1:
        return sizes[0]
    seconds = measured(task, kinds, sizes)
    return widest(seconds) if seconds else sizes[0]


def picked_for(task: Task, learning_rate: float) -> Callable[[Sequence[int]], int]:
    """Return what picks the generation of a search that is alone on this task."""
    return partial(picked, task, [Member(constant(1.0, task.epochs), 0, learning_rate)])


def widest(seconds: Mapping[int, float], *, slower: float = SLOWER) -> int:
    """Return the largest K whose step takes at most `slower` times the seconds of the narrowest generation's."""
    longest = slower * seconds[min(seconds)]
    return max(size for size, each in seconds.items() if each <= longest)


def measured(
    task: Task, kinds: Sequence[Member], sizes: Sequence[int] = SIZES, *, slower: float = SLOWER
) -> dict[int, float]:
    """Return the seconds that a step of each generation takes, up to the first that is too slow or does not fit.

    A step that is going to be compiled is compiled here, too, for it takes a fraction of the time, and another fraction
    for every K. That takes some ten seconds for each, so only the narrowest and the widest that fits are timed; what
    is between them lies close to a line.

    It leaves torch's random state and the memory as they were. Arguments are those of `picked` and `widest`.
    """
    networks = sizes[0] * sum(task.method_of(kind).networks for kind in kinds)
    timed = replace(task, fuse=worth_compiling(task, networks, task.epochs))

    def step_takes(size: int) -> float | None:
        seconds = _seconds_of_a_step(timed, [replace(kind, seed=seed) for kind in kinds for seed in range(size)])
        _free()  # here, where nothing refers to the population any more
        return seconds

    with _apart(task.device):
        return _by_the_ends(step_takes, sizes) if timed.fuse else _one_by_one(step_takes, sizes, slower)


def _one_by_one(step_takes: Callable[[int], float | None], sizes: Sequence[int], slower: float) -> dict[int, float]:
    seconds: dict[int, float] = {}
    for size in sizes:
        takes = step_takes(size)
        if takes is None:
            break
        seconds[size] = takes
        if takes > slower * seconds[sizes[0]]:
            break
    return seconds


def _by_the_ends(step_takes: Callable[[int], float | None], sizes: Sequence[int]) -> dict[int, float]:
    narrowest = step_takes(sizes[0])
    if narrowest is None:
        return {}
    for last in reversed(range(1, len(sizes))):
        widest_takes = step_takes(sizes[last])
        if widest_takes is not None:
            ends = (sizes[0], sizes[last]), (narrowest, widest_takes)
            return {size: float(np.interp(size, *ends)) for size in sizes[: last + 1]}
    return {sizes[0]: narrowest}


def _seconds_of_a_step(task: Task, members: Sequence[Member]) -> float | None:
    """Time the step of a population: the fastest of a few timings, since others at work can only slow one down.

    None where it does not fit the memory.
    """
    try:
        run = engine_steps(task, members)
        run(WARM_UP_STEPS)
        timings: list[float] = []
        _wait_for(task.device)
        began = last = time.perf_counter()
        while len(timings) < TIMINGS and last - began < PATIENCE:
            run(STEPS)
            _wait_for(task.device)
            now = time.perf_counter()
            timings.append((now - last) / STEPS)
            last = now
        return min(timings)
    except torch.OutOfMemoryError:
        return None


@contextmanager
def _apart(device: torch.device) -> Iterator[None]:
    """Work on a device as a training does, and leave the caller's random state as it was."""
    if device.type != "cuda":
        with torch.random.fork_rng(devices=[]):
            yield
        return
    with torch.cuda.device(device), torch.random.fork_rng(devices=[device]):
        yield


def _wait_for(device: torch.device) -> None:
    """Wait until a device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _free() -> None:
    """Give the memory of a population back, a captured step's too."""
    gc.collect()
    torch.cuda.empty_cache()
