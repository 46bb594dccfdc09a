"""Measurements for `speed.py` and `engine.py`: populations on random data, times of steps, processes without caches."""

from __future__ import annotations

import gc
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from s2e import schedules
from s2e.data import LabelledData
from s2e.engine import Member, Task
from s2e.methods import Coteaching
from s2e.networks import reference_network

SHAPES = {"mlp": (1, 28, 28), "cifar10-cnn": (3, 32, 32), "cifar100-cnn": (3, 32, 32)}
CLASSES = {"mlp": 10, "cifar10-cnn": 10, "cifar100-cnn": 100}
BATCH = 128


def random_data(shape: tuple[int, ...], samples: int, classes: int = 10) -> LabelledData:
    """Return random labels of random pixels (channels, height, width), or of the columns of a table (columns,)."""
    generator = np.random.default_rng(0)
    if len(shape) == 3:
        inputs = generator.integers(0, 256, size=(samples, *shape), dtype=np.uint8)
    else:
        inputs = generator.standard_normal((samples, *shape), dtype=np.float32)
    labels = generator.integers(0, classes, size=samples)
    return LabelledData(inputs, labels, tuple(str(label) for label in range(classes)), clean_labels=labels)


def members(count: int, epochs: int = 1) -> list[Member]:
    """Return Co-teaching members with keep rates from 0.3 to 0.9."""
    rates = np.linspace(0.3, 0.9, count)
    return [Member(schedules.constant(float(rate), epochs), seed) for seed, rate in enumerate(rates)]


def task(network: str, samples: int, device: torch.device, **changes: Any) -> Task:
    """Return Co-teaching of a reference network on random data, for one epoch by default."""
    train = random_data(SHAPES[network], samples, CLASSES[network])
    factory = reference_network(network, train.sample_shape, train.classes)
    settings = {"evaluate": {}, "epochs": 1, "batch_size": BATCH, "device": device, **changes}
    return Task(train, factory, Coteaching(), **settings)


def step_seconds(
    run: Callable[[int], None], device: torch.device, *, at_least: float = 0.3, multiple: int = 16
) -> float:
    """Return the time of a step: the median of five timings of at least `at_least` seconds.

    Args:
        run: trains for a number of steps.
        device: device of the training.
        at_least: seconds.
        multiple: steps are run in multiples of this number; two graphs of captured steps by default.
    """
    run(multiple)
    wait(device)
    began = time.perf_counter()
    run(multiple)
    wait(device)
    count = multiple * max(1, int(at_least / (time.perf_counter() - began)))
    times = []
    for _ in range(5):
        wait(device)
        began = time.perf_counter()
        run(count)
        wait(device)
        times.append((time.perf_counter() - began) / count)
    return statistics.median(times)


def kernels_per_step(run: Callable[[int], None]) -> float | None:
    """Return the number of kernels and copies of a step on a GPU; None on a CPU."""
    if not torch.cuda.is_available():
        return None
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiled:
        run(16)
        torch.cuda.synchronize()
    return sum(row.count for row in profiled.key_averages() if row.device_time_total > 0) / 16


def cold_and_cached(command: Sequence[str]) -> Iterator[tuple[float, subprocess.CompletedProcess[str]]]:
    """Run a command twice, with an empty compiler cache and with a full one; "{scratch}" is a new folder each time."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {
            **os.environ,
            "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor",
            "TRITON_CACHE_DIR": f"{cache}/triton",
        }
        for _ in range(2):
            with tempfile.TemporaryDirectory() as scratch:
                filled = [part.replace("{scratch}", scratch) for part in command]
                began = time.perf_counter()
                done = subprocess.run(filled, check=True, stdout=subprocess.PIPE, text=True, env=environment)
                yield time.perf_counter() - began, done


def release_memory() -> None:
    """Free the memory of earlier populations."""
    gc.collect()
    torch.cuda.empty_cache()


def wait(device: torch.device) -> None:
    """Wait until a device has finished all its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
