"""How fast a population trains, beside what the device allows; a table on the screen and a JSON file.

    python benchmarks/speed.py steps --out DIR          steps of the reference networks, with floors and targets
    python benchmarks/speed.py ready --out DIR          time until the first compiled step, and with it in torch's cache
    python benchmarks/speed.py scaling --out DIR        time against members, samples and epochs
    python benchmarks/speed.py epoch --out DIR          what an epoch spends beside its steps
    python benchmarks/speed.py memory --out DIR         peak memory, and a population ten times larger than fits
    python benchmarks/speed.py agreement --out DIR      compiled training against plain float32, over ten seeds (MNIST)
    python benchmarks/speed.py search --out DIR         a whole search on MNIST, 60 trials of 200 epochs
    python benchmarks/speed.py draw --out DIR           figures of what was measured

`agreement` and `search` need MNIST; the others take made-up data: the time of a step does not depend on the numbers.
`steps`, `ready` and `search` are about a GPU; the others run on a CPU, too. Where something is compiled, it is measured
with an empty cache first, in a process of its own, and then once more.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from floors import Rates, measured_rates, work
from measuring import (
    BATCH,
    CLASSES,
    SHAPES,
    cold_and_cached,
    float32_proper,
    forget,
    kernels_per_step,
    made_up,
    members,
    step_seconds,
    task,
    wait,
)
from s2e import schedules
from s2e.data.loading import load
from s2e.data.noise import apply, parse_noise
from s2e.engine import training
from s2e.engine.curves import STRETCHES
from s2e.engine.task import VALIDATION, Member, Task
from s2e.engine.training import engine_steps, train_population
from s2e.methods import Coteaching
from s2e.networks.factories import reference_network
from s2e.plots.drawing import plot_style, render

TARGETS = [  # network, members, what the target is for, microseconds
    ("mlp", 6, "step", 80.0),
    ("mlp", 64, "member", 5.0),
    ("cifar10-cnn", 6, "step", 400.0),
    ("cifar10-cnn", 96, "member", 30.0),
    ("cifar100-cnn", 6, "network", 500.0),
]
READY_IN = 20.0
"""Seconds until the first compiled step, at most."""


# The parts


def steps(given: argparse.Namespace, rates: Rates) -> dict[str, Any]:
    """Steps of the reference networks."""
    rows = []
    print(
        f"{'network':14}{'members':>8}{'µs a step':>11}{'a member':>10}{'floor':>8}{'kernels':>9}{'ready':>8}  target"
    )
    for network, count, per, target in TARGETS:
        if given.networks and network not in given.networks:
            continue
        forget()
        shared = task(network, 12_800, given.device, fuse=True)
        began = time.perf_counter()
        run = engine_steps(shared, members(count))
        run(16)
        wait(given.device)
        ready = time.perf_counter() - began
        seconds = step_seconds(run, given.device)
        narrow = 2 if network != "mlp" else 4
        floor = 2 * work(shared.network, torch.zeros(BATCH, *SHAPES[network]), narrow).seconds(rates)
        value = 1e6 * seconds / {"step": 1, "member": count, "network": 2 * count}[per]
        row = {
            "network": network,
            "members": count,
            "microseconds": 1e6 * seconds,
            "microseconds_per_member": 1e6 * seconds / count,
            "floor_per_member": 1e6 * floor,
            "kernels": kernels_per_step(run),
            "seconds_until_ready": ready,
            "target": {"per": per, "microseconds": target, "reached": value <= target, "measured": value},
        }
        rows.append(row)
        given.write({"rows": rows})
        reached = "reached" if value <= target else "NOT reached"
        print(
            f"{network:14}{count:8}{1e6 * seconds:11.1f}{1e6 * seconds / count:10.2f}{1e6 * floor:8.2f}"
            f"{row['kernels'] or 0:9.1f}{ready:7.1f}s  {value:.2f} of {target:g} µs a {per}: {reached}",
            flush=True,
        )
        del run
    return {"rows": rows}


def ready(given: argparse.Namespace, rates: Rates) -> dict[str, Any]:  # noqa: ARG001
    """Time until the first compiled step of six members is there, counted from their making."""
    rows = []
    for network in given.networks or SHAPES:
        command = [sys.executable, __file__, "until-ready", "--networks", network, "--members", "6"]
        cold, cached = (float(done.stdout.split()[-1]) for _, done in cold_and_cached(command))
        rows.append({"network": network, "seconds": cold, "seconds_cached": cached, "target": READY_IN})
        given.write({"rows": rows})
        print(f"{network:14}{cold:6.1f} s, cached {cached:.1f} s, of {READY_IN:g} s", flush=True)
    return {"rows": rows}


def scaling(given: argparse.Namespace, rates: Rates) -> dict[str, Any]:
    """Time against members, samples and epochs."""
    network, fuse = (given.networks or ["mlp"])[0], given.device.type == "cuda"
    needed = work(
        reference_network(network, SHAPES[network], CLASSES[network]), torch.zeros(BATCH, *SHAPES[network]), 4
    )
    floor = 2 * needed.seconds(rates)  # of a step and member
    by_members, by_samples, by_epochs = [], [], []
    for count in given.members:
        forget()
        run = engine_steps(task(network, 12_800, given.device, fuse=fuse), members(count))
        seconds = step_seconds(run, given.device)
        by_members.append({"members": count, "microseconds_per_member": 1e6 * seconds / count, "floor": 1e6 * floor})
        print(f"{network} {count:5} members: {1e6 * seconds / count:9.2f} µs a step and member", flush=True)
        del run
    for samples in given.samples:
        forget()
        ends: list[float] = []
        shared = task(network, samples, given.device, epochs=STRETCHES, fuse=fuse)
        train_population(shared, members(6, STRETCHES), on_epoch=lambda _, ends=ends: ends.append(time.perf_counter()))
        seconds, least = statistics.median(np.diff(ends).tolist()), 6 * floor * (samples // BATCH)
        by_samples.append({"samples": samples, "seconds_per_epoch": seconds, "floor": least})
        print(f"{network} {samples:6} samples: {1e3 * seconds:9.2f} ms an epoch of 6 members", flush=True)
    for epochs in given.epochs:  # the step for these samples is compiled by now: records come in as many stretches
        forget()
        began = time.perf_counter()
        train_population(task(network, samples, given.device, epochs=epochs, fuse=fuse), members(6, epochs))
        seconds, least = time.perf_counter() - began, 6 * floor * (samples // BATCH) * epochs
        by_epochs.append({"epochs": epochs, "seconds": seconds, "floor": least})
        print(f"{network} {epochs:4} epochs of {samples} samples: {seconds:7.2f} s", flush=True)
    return {"network": network, "by_members": by_members, "by_samples": by_samples, "by_epochs": by_epochs}


def epoch(given: argparse.Namespace, rates: Rates) -> dict[str, Any]:  # noqa: ARG001
    """What an epoch spends on evaluation, records and bookkeeping, beside its steps."""
    samples, epochs = (54_000, 20) if given.device.type == "cuda" else (6_400, 6)
    fuse = given.device.type == "cuda"
    shared = task("mlp", samples, given.device, fuse=fuse)
    seconds = step_seconds(engine_steps(shared, members(6)), given.device)
    forget()
    valid = made_up(SHAPES["mlp"], samples // 9)
    ends: list[float] = []
    whole = task("mlp", samples, given.device, fuse=fuse, epochs=epochs, evaluate={VALIDATION: valid})
    train_population(whole, members(6, epochs), on_epoch=lambda _: ends.append(time.perf_counter()))
    took = statistics.median(np.diff(ends)[epochs // 2 :].tolist())
    inside = seconds * (samples // BATCH)
    share = max(0.0, 1 - inside / took)
    print(f"epoch {1e3 * took:.2f} ms, its {samples // BATCH} steps {1e3 * inside:.2f} ms: {share:.1%} for the rest")
    return {"epoch_seconds": took, "step_seconds": seconds, "steps": samples // BATCH, "share_of_the_rest": share}


def memory(given: argparse.Namespace, rates: Rates) -> dict[str, Any]:  # noqa: ARG001
    """Peak memory, and a population ten times larger than fits."""
    rows = []
    for count in (6, 32, 96):
        if given.device.type == "cuda":
            forget()
            torch.cuda.reset_peak_memory_stats()
            engine_steps(task("mlp", 12_800, given.device, fuse=False), members(count))(16)
            peak = torch.cuda.max_memory_allocated()
        else:  # a process of its own: what a process has once taken counts for ever
            peak = int(subprocess.check_output([sys.executable, __file__, "peak", "--members", str(count)]))
        rows.append({"members": count, "peak_bytes": peak})
        print(f"{count:4} members: peak {peak / 2**20:8.1f} MiB", flush=True)
    (small, low), (_, _), (large, high) = ((row["members"], row["peak_bytes"]) for row in rows)
    each = (high - low) / (large - small)
    middle = low + each * (32 - small)
    print(
        f"{each / 2**20:.2f} MiB a member; 32 members take {rows[1]['peak_bytes'] / middle:.3f} times the straight line"
    )
    fitting, population = 4, members(40, 2)
    shared = task("mlp", 1_280, given.device, epochs=2, fuse=False)
    together = train_population(shared, population).curves.loss
    with _room_for(fitting, shared, given.device):
        in_chunks = train_population(shared, population).curves.loss
    apart = float(np.abs(together - in_chunks).max())
    print(f"40 members where {fitting} fit: losses differ by at most {apart:.2e}")
    return {
        "rows": rows,
        "bytes_per_member": each,
        "chunks": {"members": 40, "fit": fitting, "largest_difference": apart},
    }


def agreement(given: argparse.Namespace, rates: Rates) -> dict[str, Any]:  # noqa: ARG001
    """Compiled training against plain float32 over ten seeds."""
    loaded = load("mnist", given.data_root)
    train, valid = loaded.train.take(np.arange(54_000)), loaded.train.take(np.arange(54_000, 60_000))
    noisy = apply(parse_noise("symmetric:0.5"), train, np.random.default_rng(0))
    factory = reference_network((given.networks or ["mlp"])[0], train.sample_shape, train.classes)
    schedule = schedules.coteaching(0.5, given.epochs[0])
    population = [Member(schedule, seed) for seed in range(10)]
    accuracies = {}
    for name, fuse in (("compiled", True), ("float32", False)):
        shared = Task(
            noisy, factory, Coteaching(), {VALIDATION: valid}, epochs=given.epochs[0], device=given.device,
            fuse=fuse, graph=fuse, vectorize=True,
        )  # fmt: skip
        with nullcontext() if fuse else float32_proper():
            accuracies[name] = train_population(shared, population).curves.last(VALIDATION)
        print(f"{name:9} {accuracies[name].mean():.4%} ± {accuracies[name].std(ddof=1):.4%} over ten seeds", flush=True)
    gap = accuracies["compiled"] - accuracies["float32"]
    error = gap.std(ddof=1) / np.sqrt(len(gap))
    print(f"compiled minus float32: {gap.mean():+.4%} ± {error:.4%} (standard error)")
    return {**{name: each.tolist() for name, each in accuracies.items()}, "gap": gap.mean(), "standard_error": error}


def search(given: argparse.Namespace, rates: Rates) -> dict[str, Any]:  # noqa: ARG001
    """A whole search as a user starts it, the final training included."""
    rows = []
    for generation, target in ((6, 100.0), (20, 50.0)):
        command = [
            sys.executable, "-m", "s2e", "search", "mnist", "--noise", "pair:0.45", "--trials", "60", "--epochs", "200",
            "--generation", str(generation), "--data-root", str(given.data_root), "--out", "{scratch}/run",
        ]  # fmt: skip
        times = []
        for seconds, _ in cold_and_cached(command):
            times.append(seconds)
            print(f"60 trials of 200 epochs, {generation} at a time: {seconds:.1f} s of {target:g} s", flush=True)
        cold, cached = times
        rows.append({"generation": generation, "seconds": cold, "seconds_cached": cached, "target": target})
        given.write({"rows": rows})
    return {"rows": rows}


def draw(given: argparse.Namespace, rates: Rates) -> dict[str, Any] | None:  # noqa: ARG001
    """Draw what `scaling` has measured."""
    found = json.loads((given.out / "scaling.json").read_text())
    with plot_style():
        figure = _scaling_figure(found)
    for kind in ("png", "svg"):
        (given.out / f"scaling.{kind}").write_bytes(render(figure, kind))
    return None


def _scaling_figure(found: dict[str, Any]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.2), layout="constrained")
    first, second, third = figure.subplots(1, 3)
    for axes, rows, x, y, unit, label in (
        (first, found["by_members"], "members", "microseconds_per_member", 1, "µs per step and member"),
        (second, found["by_samples"], "samples", "seconds_per_epoch", 1e3, "ms per epoch, 6 members"),
        (third, found["by_epochs"], "epochs", "seconds", 1, "seconds in all, 6 members"),
    ):
        across = [row[x] for row in rows]
        values, floor = ([unit * row[name] for row in rows] for name in (y, "floor"))
        axes.plot(across, values, "o-", color="#0072b2")
        axes.plot(across, floor, "--", color="#777777")
        middle = (across[len(across) // 2], floor[len(floor) // 2])
        axes.annotate("floor", middle, (4, -4), textcoords="offset points", va="top", color="#555555")
        axes.set(xlabel=x, ylabel=label, ylim=(0, None))
    first.set_xscale("log", base=2)
    first.set_xticks(across := [row["members"] for row in found["by_members"]], labels=map(str, across))
    first.minorticks_off()
    for axes in (second, third):
        axes.set_xlim(0, None)
    second.xaxis.set_major_formatter("{x:,.0f}")
    return figure


PARTS = {each.__name__: each for each in (steps, ready, scaling, epoch, memory, agreement, search, draw)}


@contextmanager
def _room_for(count: int, shared: Task, device: torch.device) -> Iterator[None]:
    """Leave memory for so many members only: truly on a GPU, by what the planning is told on a CPU."""
    before = training.members_that_fit
    if device.type == "cuda":
        forget()
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.reset_peak_memory_stats()
        train_population(shared, members(count, shared.epochs))
        torch.cuda.set_per_process_memory_fraction(1.3 * torch.cuda.max_memory_reserved() / total)
    training.members_that_fit = lambda *_: count
    try:
        yield
    finally:
        training.members_that_fit = before
        if device.type == "cuda":
            torch.cuda.set_per_process_memory_fraction(1.0)


def _peak(count: int) -> None:
    """Print the peak memory of this process with so many members on the CPU, less what torch itself takes."""
    shared = task("mlp", 12_800, torch.device("cpu"))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    engine_steps(shared, members(count))(3)
    print(1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))


def _until_ready(network: str, count: int, device: torch.device) -> None:
    """Print the seconds from making members until they have taken compiled steps."""
    shared = task(network, 12_800, device, fuse=True)
    torch.zeros(1, device=device)
    began = time.perf_counter()
    engine_steps(shared, members(count))(16)
    wait(device)
    print(time.perf_counter() - began)


def main() -> None:
    """Measure one part, print it and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=[*PARTS, "peak", "until-ready"])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--device", type=torch.device, default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--networks", nargs="*", choices=SHAPES)
    parser.add_argument("--members", type=int, nargs="+", default=[1, 2, 6, 16, 32, 64, 128, 256])
    parser.add_argument("--samples", type=int, nargs="+", default=[6_400, 12_800, 25_600, 51_200])
    parser.add_argument("--epochs", type=int, nargs="+", default=[30, 60, 120])
    parser.add_argument("--data-root", type=Path, default=Path("data"))
    given = parser.parse_args()
    if given.part == "peak":
        _peak(given.members[0])
        return
    if given.part == "until-ready":
        _until_ready(given.networks[0], given.members[0], given.device)
        return
    on_cuda = given.device.type == "cuda"
    rates = measured_rates(given.device) if given.part in ("steps", "scaling") else Rates(1.0, 1.0)
    about = {
        "device": torch.cuda.get_device_name(given.device) if on_cuda else platform.processor() or "cpu",
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "batch": BATCH,
        "rates": asdict(rates) if rates.bandwidth > 1 else None,
    }

    def write(found: dict[str, Any]) -> None:
        if given.out is not None:
            given.out.mkdir(parents=True, exist_ok=True)
            (given.out / f"{given.part}.json").write_text(json.dumps({**about, **found}, indent=2) + "\n")

    given.write = write  # for parts of many rows, which write each as it comes
    found = PARTS[given.part](given, rates)
    if found is not None:
        write(found)


if __name__ == "__main__":
    main()
