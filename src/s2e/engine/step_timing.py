"""How long the step of a population takes on this device, measured for several population sizes."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch

from s2e.engine.population import worth_compiling
from s2e.engine.task import Member, Task
from s2e.engine.training import engine_steps

MOST_SLOWDOWN = 1.25
"""Factor on the step time of the smallest size up to which a larger one is still measured."""

WARM_UP_STEPS = 5
"""Steps before those that are timed: libraries choose their kernels in the first, then the step is compiled and
captured."""

STEPS = 10
"""Steps timed together, so that waiting for the device once hardly counts."""

TIMINGS = 5
"""How often they are timed at most."""

PATIENCE = 0.3
"""Seconds after which one generation is not timed once more."""


def step_seconds(
    task: Task, kinds: Sequence[Member], sizes: Sequence[int], *, slower: float = MOST_SLOWDOWN
) -> dict[int, float]:
    """Return the seconds that a step of each generation takes, up to the first that is too slow or does not fit.

    A step that is going to be compiled is compiled here, too, for it takes a fraction of the time, and another fraction
    for every K. That takes some ten seconds for each, so only the narrowest and the widest that fits are timed; what
    is between them lies close to a line.

    It leaves torch's random state and the memory as they were.
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
