"""Steps per second of the population engine against a plain PyTorch loop over the same members.

    python benchmarks/engine.py --members 1 6 32 --out engine.json

Both sides compute the same: Co-teaching with the MLP for MNIST (or the CNN for CIFAR-10), batch 128, Adam, a keep count
for each member, data resident on the device. The plain side trains one member after the other, with two `nn.Module`s
and two `torch.optim.Adam`s each. It keeps no records; the engine keeps all of its records. The sides are timed
alternately. Every number is the median time of one step of all members.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from s2e import schedules
from s2e.data import LabelledData
from s2e.engine import Member, Task
from s2e.engine.training import engine_steps
from s2e.methods import Coteaching
from s2e.networks import Factory, reference_network

SHAPES = {"mlp": (1, 28, 28), "cifar10-cnn": (3, 32, 32)}
BATCH, SAMPLES = 128, 12_800


def data(shape: tuple[int, ...]) -> LabelledData:
    """Return random pixels and labels: the time of a step does not depend on them."""
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, size=(SAMPLES, *shape), dtype=np.uint8)
    labels = generator.integers(0, 10, size=SAMPLES)
    return LabelledData(pixels, labels, tuple("0123456789"), clean_labels=labels)


def plain_step(
    train: LabelledData, network: Factory, keeps: Sequence[int], device: torch.device, *, fused: bool
) -> Callable[[int], None]:
    """Return a function that trains every member on a number of batches, one member after the other."""
    inputs = torch.from_numpy(train.inputs).to(device)
    labels = torch.from_numpy(train.labels).to(device)
    members = []
    for keep in keeps:
        pair = [network().to(device) for _ in range(2)]
        members.append((keep, pair, [torch.optim.Adam(one.parameters(), lr=1e-3, fused=fused) for one in pair]))
    order = torch.randperm(SAMPLES).to(device)
    position = 0

    def step() -> None:
        nonlocal position
        index = order[position : position + BATCH]
        position = (position + BATCH) % SAMPLES
        for keep, (one, other), optimizers in members:
            batch, batch_labels = inputs[index].float() / 255, labels[index]
            losses = [functional.cross_entropy(each(batch), batch_labels, reduction="none") for each in (one, other)]
            kept = [loss.detach().argsort()[:keep] for loss in losses]
            for optimizer, loss, selected in zip(optimizers, losses, reversed(kept), strict=True):
                optimizer.zero_grad()
                loss[selected].mean().backward()
                optimizer.step()

    def run(steps: int) -> None:
        for _ in range(steps):
            step()

    return run


def seconds_per_step(
    sides: Sequence[Callable[[int], None]], steps: int, repeats: int, device: torch.device
) -> list[float]:
    """Return the median over repeats of the mean time of a step, for each side; the first repeat is a warm-up."""
    times: list[list[float]] = [[] for _ in sides]
    for repeat in range(repeats + 1):
        for side, run in enumerate(sides):
            _synchronize(device)
            began = time.perf_counter()
            run(steps)
            _synchronize(device)
            if repeat > 0:
                times[side].append((time.perf_counter() - began) / steps)
    return [statistics.median(each) for each in times]


def measure(
    network: str, members: int, steps: int, repeats: int, device: torch.device, *, fused: bool
) -> dict[str, object]:
    """Compare both sides for one population size."""
    train = data(SHAPES[network])
    factory = reference_network(network, train.sample_shape, train.classes)
    rates = np.linspace(0.3, 0.9, members)
    task = Task(
        train, factory, Coteaching(), {}, epochs=1, batch_size=BATCH, device=device, compile=device.type == "cuda"
    )
    engine = engine_steps(task, [Member(schedules.constant(rate, 1), seed) for seed, rate in enumerate(rates)])
    plain = plain_step(train, factory, [int(rate * BATCH) for rate in rates], device, fused=fused)
    engine_seconds, plain_seconds = seconds_per_step([engine, plain], steps, repeats, device)
    return {
        "network": network,
        "members": members,
        "engine_us_per_step": round(1e6 * engine_seconds, 1),
        "engine_us_per_step_and_member": round(1e6 * engine_seconds / members, 1),
        "plain_us_per_step": round(1e6 * plain_seconds, 1),
        "times_faster": round(plain_seconds / engine_seconds, 2),
    }


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, nargs="+", default=[1, 6, 32])
    parser.add_argument("--networks", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--fused", action="store_true", help="use PyTorch's fused Adam on the plain side")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    about = {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "cpu",
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "batch": BATCH,
        "plain_adam": "fused" if arguments.fused else "default",
    }
    rows = []
    print(f"{'network':14}{'members':>8}{'engine µs':>12}{'per member':>12}{'plain µs':>12}{'faster':>9}")
    for network, members in product(arguments.networks, arguments.members):
        row = measure(network, members, arguments.steps, arguments.repeats, device, fused=arguments.fused)
        rows.append(row)
        values = list(row.values())
        print(f"{values[0]:14}{values[1]:8}{values[2]:12}{values[3]:12}{values[4]:12}{values[5]:8}x", flush=True)
        if arguments.out:
            arguments.out.write_text(json.dumps({**about, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
