"""The time of a training step on this device, measured for several population sizes."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch

from s2e.engine.population import should_compile
from s2e.engine.task import Member, Task
from s2e.engine.training import engine_steps

MAX_SLOWDOWN = 1.25
"""Multiple of the step time of the smallest size beyond which no larger size is measured."""

WARM_UP_STEPS = 5
"""Steps before timing: libraries choose their kernels in the first, then the step is compiled and captured."""

STEPS = 10
"""Steps in one timing, so that the synchronisation with the device hardly matters."""

TIMINGS = 5
"""Maximum number of timings."""

MAX_SECONDS = 0.3
"""Time after which no further timing of a size is started."""


def step_seconds(
    task: Task, templates: Sequence[Member], sizes: Sequence[int], *, max_slowdown: float = MAX_SLOWDOWN
) -> dict[int, float]:
    """Return the seconds of a step by population size, up to the first size that is too slow or does not fit.

    A step that the training would compile is compiled here as well, because the speed-up differs by size. Compiling
    takes about ten seconds, so only the smallest and the largest size that fits are timed. The times between them are
    close to linear and are interpolated.

    Torch's random state is restored, and the memory freed.

    Args:
        task: settings shared by all members.
        templates: a population of size K has K copies of each of these, with different seeds.
        sizes: K, increasing.
        max_slowdown: multiple of the time of the first size beyond which measuring stops; not used for compiled steps.
    """
    networks = sizes[0] * sum(task.method_of(template).networks for template in templates)
    timed = replace(task, compile=should_compile(task, networks, task.epochs))

    def seconds_of(size: int) -> float | None:
        members = [replace(template, seed=seed) for template in templates for seed in range(size)]
        seconds = _seconds_per_step(timed, members)
        _release_memory()  # the population is no longer referenced
        return seconds

    with _isolated(task.device):
        if timed.compile:
            return _interpolate(seconds_of, sizes)
        return _measure_until_slow(seconds_of, sizes, max_slowdown)


def _measure_until_slow(
    seconds_of: Callable[[int], float | None], sizes: Sequence[int], max_slowdown: float
) -> dict[int, float]:
    seconds: dict[int, float] = {}
    for size in sizes:
        measured = seconds_of(size)
        if measured is None:
            break
        seconds[size] = measured
        if measured > max_slowdown * seconds[sizes[0]]:
            break
    return seconds


def _interpolate(seconds_of: Callable[[int], float | None], sizes: Sequence[int]) -> dict[int, float]:
    smallest = seconds_of(sizes[0])
    if smallest is None:
        return {}
    for last in reversed(range(1, len(sizes))):
        largest = seconds_of(sizes[last])
        if largest is not None:
            ends = (sizes[0], sizes[last]), (smallest, largest)
            return {size: float(np.interp(size, *ends)) for size in sizes[: last + 1]}
    return {sizes[0]: smallest}


def _seconds_per_step(task: Task, members: Sequence[Member]) -> float | None:
    """Return the smallest of a few timings, since other processes can only slow one down; None if out of memory."""
    try:
        run = engine_steps(task, members)
        run(WARM_UP_STEPS)
        timings: list[float] = []
        _synchronize(task.device)
        began = last = time.perf_counter()
        while len(timings) < TIMINGS and last - began < MAX_SECONDS:
            run(STEPS)
            _synchronize(task.device)
            now = time.perf_counter()
            timings.append((now - last) / STEPS)
            last = now
        return min(timings)
    except torch.OutOfMemoryError:
        return None


@contextmanager
def _isolated(device: torch.device) -> Iterator[None]:
    """Make a CUDA device the current one, and restore the random state afterwards."""
    if device.type != "cuda":
        with torch.random.fork_rng(devices=[]):
            yield
        return
    with torch.cuda.device(device), torch.random.fork_rng(devices=[device]):
        yield


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _release_memory() -> None:
    """Free the memory of a population and its captured step."""
    gc.collect()
    torch.cuda.empty_cache()
