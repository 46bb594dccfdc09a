"""Time of a comparison of all eight methods: the population engine against plain PyTorch, one member at a time.

    python benchmarks/comparison.py --out comparison.json

The work is that of `s2e compare mnist --noise A --noise B --noise C --seeds 5` without the search: eight methods, each
with 15 members (three noise settings, five seeds), MNIST's MLP, batch 128, Adam, 200 epochs of 421 steps. Forward
correction is trained twice, with plain cross-entropy and then with the corrected loss. Three ways are measured:

- packed: the engine as `s2e compare` uses it, all members in one population and the second training of forward
  correction in another. It keeps all records, and evaluates 6,000 validation and 10,000 test samples after every epoch.
  The Standard members double as the first training of forward correction. A few epochs are measured.
- alone: the engine with one member at a time; it keeps its records and evaluates nothing. A few steps are measured.
- plain: PyTorch without the engine, one member at a time: `nn.Module`s, fused `torch.optim.Adam`s, data on the device.
  No records and no evaluation, which favours this way. A few steps are measured.

Plain and alone differ by the captured step (a CUDA graph), alone and packed by the population. All times are
extrapolated to 200 epochs. The data are synthetic; a step takes as long on them as on MNIST (see `data`).
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from plain_methods import BATCH, KEEP_RATE, LEARNING_RATE, PLAIN, PlainTask, Step, batches_of
from s2e import schedules
from s2e.data import LabelledData
from s2e.engine import VALIDATION, EpochFinished, Member, Task, resolve_device, train_in_two_stages
from s2e.engine.training import engine_steps
from s2e.methods import METHODS, Standard
from s2e.networks import reference_network

CLASSES = 10
SIDE, SQUARE = 28, 10
SAMPLES, VALID_SAMPLES, TEST_SAMPLES = 54_001, 6_000, 10_000
EPOCHS, STEPS = 200, SAMPLES // BATCH
NOISE_RATES = (0.2, 0.5, 0.45)
WARM_UP = 10
"""Steps before the measurement: after the first few the engine captures its step."""

Labels: TypeAlias = NDArray[np.int64]


# ---------------------------------------------------------------------------------------------------------- the data


def data(samples: int, seed: int) -> LabelledData:
    """Squares of random pixels on black; the class is the position of the square, and half of the labels are random.

    The time of a step depends on the data in one way only: where two networks agree on a whole batch, plain Decoupling
    and Co-teaching+ skip the step. On random pixels they soon always agree; here, as on MNIST, they rarely do.
    """
    generator = np.random.default_rng(seed)
    top, left = generator.integers(0, SIDE - SQUARE + 1, size=(2, samples))
    rows, columns = (_between(first, first + SQUARE) for first in (top, left))  # (N, 28)
    pixels = generator.integers(0, 256, size=(samples, 1, SIDE, SIDE), dtype=np.uint8)
    pixels *= (rows[:, :, None] & columns[:, None, :])[:, None]  # (N, 1, 28, 28)
    right = CLASSES * (top + left) // (2 * (SIDE - SQUARE) + 1)
    return LabelledData(pixels, _corrupted(right, 0.5, generator), tuple("0123456789"), clean_labels=right)


def _between(first: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Mark the pixels of a side from `first` (N,) up to `last` (N,), exclusive: (N, 28)."""
    pixels = np.arange(SIDE)
    return (pixels >= first[:, None]) & (pixels < last[:, None])


def _corrupted(right: Labels, rate: float, generator: np.random.Generator) -> Labels:
    """Replace a share of the labels by random ones."""
    drawn = generator.integers(0, CLASSES, size=len(right))
    return np.where(generator.random(len(right)) < rate, drawn, right)


def transition() -> NDArray[np.float64]:
    """Return a random row-stochastic matrix, (C, C)."""
    return np.random.default_rng(0).dirichlet(np.ones(CLASSES), size=CLASSES)


def task(samples: int, epochs: int, device: torch.device) -> Task:
    """Return what the members share; the evaluated samples are in proportion to the training samples."""
    train = data(samples, 0)
    valid, test = (data(max(1, samples * size // SAMPLES), size) for size in (VALID_SAMPLES, TEST_SAMPLES))
    network = reference_network("mlp", train.sample_shape, train.classes)
    evaluate = {VALIDATION: valid, "test": test}
    return Task(train, network, Standard(), evaluate, epochs, BATCH, device=device, clean=valid)


# ------------------------------------------------------------------------------------------------------- measuring


def microseconds(step: Step, steps: int, repeats: int, device: torch.device) -> float:
    """Return the median over the repeats of the mean time of a step, after a warm-up."""
    for _ in range(WARM_UP):
        step()
    times = []
    for _ in range(repeats):
        _synchronize(device)
        began = time.perf_counter()
        for _ in range(steps):
            step()
        _synchronize(device)
        times.append((time.perf_counter() - began) / steps)
    return 1e6 * statistics.median(times)


def measure_alone(name: str, shared: Task, steps: int, repeats: int) -> tuple[float, float]:
    """Return the microseconds of a step of one member of a method: in plain PyTorch, and in the engine."""
    device = shared.device
    given = PlainTask(
        network=lambda: shared.network().to(device),
        batch=batches_of(shared.train, device),
        clean_batch=batches_of(shared.evaluate[VALIDATION], device),
        transition=torch.from_numpy(transition()).float().to(device),
    )
    plain = microseconds(PLAIN[name](given), steps, repeats, device)
    gc.collect()  # free the engines measured before now, and not while the next one captures its step
    schedule = schedules.constant(KEEP_RATE, shared.epochs)
    member = Member(schedule, 0, LEARNING_RATE, method=METHODS[name], transition=transition())
    run = engine_steps(shared, [member])
    return plain, microseconds(lambda: run(1), steps, repeats, device)


def measure_packed(shared: Task, members_per_method: int) -> Packed:
    """Train all members of all methods for a few epochs.

    The time of an epoch is the median over all but the first of a population, which includes building it. The rest does
    not grow with the epochs: building and capturing, estimating transition matrices, copying the records.
    """
    members = [_member(name, index, shared) for name in METHODS for index in range(members_per_method)]
    sizes: list[int] = []
    ends: list[list[float]] = []  # times at the ends of epochs, of each population

    def record_end(event: EpochFinished) -> None:
        if event.epoch == 1:
            sizes.append(len(event.indices))
            ends.append([])
        ends[-1].append(time.perf_counter())

    began = time.perf_counter()
    train_in_two_stages(shared, members, on_epoch=record_end)
    whole = time.perf_counter() - began
    epochs = [float(np.median(np.diff(times))) for times in ends]
    to_all_steps = STEPS / (len(shared.train) // BATCH)
    return Packed(sizes, [to_all_steps * seconds for seconds in epochs], max(0.0, whole - shared.epochs * sum(epochs)))


class Packed(NamedTuple):
    """Times of the populations."""

    members: list[int]
    seconds_per_epoch: list[float]
    seconds_once: float

    @property
    def seconds(self) -> float:
        """Return the time of the whole comparison."""
        return EPOCHS * sum(self.seconds_per_epoch) + self.seconds_once


def seconds_of_all(name: str, microseconds_of: Mapping[str, float], members: int) -> float:
    """Extrapolate a step to all members, epochs and steps of a method, one member at a time."""
    step = microseconds_of[name]
    if name == "f-correction":
        step += microseconds_of["standard"]  # its first training
    return 1e-6 * step * members * EPOCHS * STEPS


def totals(
    plain: Mapping[str, float], alone: Mapping[str, float], packed: Packed, members: int
) -> dict[str, dict[str, float]]:
    """Return the time of the whole comparison in each way, and their ratios."""
    plain_seconds, alone_seconds = (
        sum(seconds_of_all(name, each, members) for name in each) for each in (plain, alone)
    )
    first_training = seconds_of_all("standard", plain, members)
    return {
        "seconds": {"plain": plain_seconds, "alone": alone_seconds, "packed": packed.seconds},
        "times_faster": {
            "alone_than_plain": plain_seconds / alone_seconds,
            "packed_than_alone": alone_seconds / packed.seconds,
            "packed_than_plain": plain_seconds / packed.seconds,
            # where plain, too, uses the Standard members as the first training of forward correction
            "packed_than_plain_without_repeating_standard": (plain_seconds - first_training) / packed.seconds,
        },
    }


def _member(name: str, index: int, shared: Task) -> Member:
    """Return a member whose labels depend on its noise setting and seed, and are the same for every method."""
    rate, right = NOISE_RATES[index % len(NOISE_RATES)], shared.train.clean_labels
    labels = None if right is None else _corrupted(right, rate, np.random.default_rng(index))
    return Member(schedules.coteaching(rate, shared.epochs), index, LEARNING_RATE, labels, METHODS[name])


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members-per-method", type=int, default=15)
    parser.add_argument("--steps", type=int, default=60, help="steps in a repeat of plain and alone")
    parser.add_argument("--repeats", type=int, default=3, help="repeats of plain and alone")
    parser.add_argument("--epochs", type=int, default=5, help="epochs of packed, at least 2")
    parser.add_argument(
        "--samples", type=int, default=SAMPLES, help="training samples; times are extrapolated to all of them"
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.epochs < 2:
        parser.error(f"--epochs must be at least 2, since the first is not measured, but got {arguments.epochs}.")
    device, members = resolve_device(arguments.device), arguments.members_per_method
    result: dict[str, object] = {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "cpu",
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "batch": BATCH,
        "members_per_method": members,
        "epochs": EPOCHS,
        "steps_per_epoch": STEPS,
        "measured": {
            "samples": arguments.samples,
            "epochs": arguments.epochs,
            "steps": arguments.steps,
            "repeats": arguments.repeats,
        },
    }

    def add(**more: object) -> None:
        result.update(more)
        if arguments.out:
            arguments.out.write_text(json.dumps(result, indent=2) + "\n")

    torch.set_float32_matmul_precision("high")  # the engine's setting, for all ways
    shared = task(arguments.samples, arguments.epochs, device)
    plain: dict[str, float] = {}
    alone: dict[str, float] = {}
    rows = []
    print(f"{'method':14}{'plain µs':>12}{'alone µs':>12}{'faster':>9}{'plain h':>12}{'alone h':>12}")
    for name in METHODS:
        plain[name], alone[name] = measure_alone(name, shared, arguments.steps, arguments.repeats)
        hours = [seconds_of_all(name, each, members) / 3600 for each in (plain, alone)]
        ratio = plain[name] / alone[name]
        print(
            f"{name:14}{plain[name]:12.1f}{alone[name]:12.1f}{ratio:8.2f}x{hours[0]:12.3f}{hours[1]:12.3f}", flush=True
        )
        rows.append(
            {
                "method": name,
                "plain_us_per_step": round(plain[name], 1),
                "alone_us_per_step": round(alone[name], 1),
                "times_faster": round(ratio, 2),
                "plain_hours": round(hours[0], 4),
                "alone_hours": round(hours[1], 4),
            }
        )
        add(rows=rows)
    packed = measure_packed(shared, members)
    for size, seconds in zip(packed.members, packed.seconds_per_epoch, strict=True):
        print(f"packed, {size} members: {seconds:.3f} s an epoch")
    print(f"packed, once: {packed.seconds_once:.1f} s", flush=True)
    add(packed=packed._asdict())
    whole = totals(plain, alone, packed, members)
    print(f"\n{'everything':14}{'seconds':>12}{'hours':>12}{'of packed':>12}")
    for way, seconds in whole["seconds"].items():
        print(f"{way:14}{seconds:12.1f}{seconds / 3600:12.3f}{seconds / packed.seconds:11.2f}x")
    faster = whole["times_faster"]
    print(
        f"plain to alone {faster['alone_than_plain']:.2f}x, alone to packed {faster['packed_than_alone']:.2f}x, "
        f"plain to packed {faster['packed_than_plain']:.2f}x\n(plain to packed "
        f"{faster['packed_than_plain_without_repeating_standard']:.2f}x if plain, too, trains Standard once only)"
    )
    add(**whole)


if __name__ == "__main__":
    main()
