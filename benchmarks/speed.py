"""Speed of population training compared with the limits of the device; prints a table and writes a JSON file.

    python benchmarks/speed.py steps --out DIR          steps of the reference networks, with floors and targets
    python benchmarks/speed.py ready --out DIR          time until the first compiled step, and with it in torch's cache
    python benchmarks/speed.py scaling --out DIR        time against members, samples and epochs
    python benchmarks/speed.py epoch --out DIR          time of an epoch that is not spent in steps
    python benchmarks/speed.py memory --out DIR         peak memory, and a population ten times larger than fits
    python benchmarks/speed.py large --out DIR          ResNet-18: one pair and six, against one pair in plain PyTorch
    python benchmarks/speed.py agreement --out DIR      other precisions against float32, over a hundred seeds
    python benchmarks/speed.py search --out DIR         a whole search on MNIST, 60 trials of 200 epochs
    python benchmarks/speed.py draw --out DIR           figures of the measurements of `scaling`

`agreement` and `search` need MNIST (`agreement --data cifar10` needs CIFAR-10); the others use random data, since the
time of a step does not depend on the data.
`steps`, `ready`, `large` and `search` need a GPU (`large --tiny`, a small version, does not); the others also run on a
CPU. `ready` and `search` measure twice, in new processes: with an empty compiler cache and with a full one. `large`
compares with the fastest of the chosen modes of `torch.compile` in the same run.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
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
    kernels_per_step,
    members,
    random_data,
    release_memory,
    step_seconds,
    task,
    wait,
)
from plain_resnet import MODES, PlainPair
from s2e import schedules
from s2e.data import load, parse_noise
from s2e.data.noise import apply_noise
from s2e.engine import VALIDATION, Member, Task, optimizer_of, train_population
from s2e.engine import memory as engine_memory
from s2e.engine.augmentation import Crop, Flip
from s2e.engine.curves import EPOCH_INTERVALS
from s2e.engine.optimizers import SGD
from s2e.engine.training import engine_steps
from s2e.methods import Coteaching
from s2e.networks import default_network, reference_network
from s2e.plots import plot_style, render
from s2e.schedules import keep_counts

TARGETS = [  # network, members, optimizer, unit of the target, microseconds
    ("mlp", 6, "adam", "step", 62.0),
    ("mlp", 6, "sgd:momentum=0.9", "step", 55.0),
    ("mlp", 64, "adam", "member", 5.0),
    ("cifar10-cnn", 6, "adam", "step", 400.0),
    ("cifar10-cnn", 96, "adam", "member", 28.0),
    ("cifar100-cnn", 6, "adam", "network", 500.0),
]
LARGE_TARGETS = {1: 0.95, 6: 1.0}
"""Targets of `large` by pairs: images a second of the engine divided by those of plain PyTorch with one pair."""
READY_IN = 20.0
"""Target for the seconds until the first compiled step."""


# Measurements


def steps(arguments: argparse.Namespace, rates: Rates) -> dict[str, Any]:
    """Measure steps of the reference networks."""
    rows = []
    print(
        f"{'network':14}{'members':>8} {'optimizer':17}{'µs a step':>10}{'a member':>10}{'floor':>8}{'kernels':>9}"
        f"{'ready':>8}  target"
    )
    for network, count, optimizer, per, target in TARGETS:
        if arguments.networks and network not in arguments.networks:
            continue
        release_memory()
        shared = task(network, 12_800, arguments.device, compile=True, optimizer=optimizer_of(optimizer))
        began = time.perf_counter()
        run = engine_steps(shared, members(count))
        run(16)
        wait(arguments.device)
        ready = time.perf_counter() - began
        seconds = step_seconds(run, arguments.device)
        narrow = 2 if network != "mlp" else 4
        needed = work(
            shared.network,
            torch.zeros(BATCH, *SHAPES[network]),
            narrow,
            state_tensors=shared.optimizer.state_tensors,
        )
        floor = 2 * needed.seconds(rates)
        value = 1e6 * seconds / {"step": 1, "member": count, "network": 2 * count}[per]
        row = {
            "network": network,
            "members": count,
            "optimizer": optimizer,
            "microseconds": 1e6 * seconds,
            "microseconds_per_member": 1e6 * seconds / count,
            "floor_per_member": 1e6 * floor,
            "kernels": kernels_per_step(run),
            "seconds_until_ready": ready,
            "target": {"per": per, "microseconds": target, "reached": value <= target, "measured": value},
        }
        rows.append(row)
        arguments.write({"rows": rows})
        reached = "reached" if value <= target else "NOT reached"
        print(
            f"{network:14}{count:8} {optimizer:17}{1e6 * seconds:10.1f}{1e6 * seconds / count:10.2f}{1e6 * floor:8.2f}"
            f"{row['kernels'] or 0:9.1f}{ready:7.1f}s  {value:.2f} of {target:g} µs a {per}: {reached}",
            flush=True,
        )
        del run
    return {"rows": rows}


def ready(arguments: argparse.Namespace, rates: Rates) -> dict[str, Any]:  # noqa: ARG001
    """Measure the time from the creation of six members to their first compiled step."""
    rows = []
    for network in arguments.networks or SHAPES:
        command = [sys.executable, __file__, "until-ready", "--networks", network, "--members", "6"]
        cold, cached = (float(done.stdout.split()[-1]) for _, done in cold_and_cached(command))
        rows.append({"network": network, "seconds": cold, "seconds_cached": cached, "target": READY_IN})
        arguments.write({"rows": rows})
        print(f"{network:14}{cold:6.1f} s, cached {cached:.1f} s, of {READY_IN:g} s", flush=True)
    return {"rows": rows}


def scaling(arguments: argparse.Namespace, rates: Rates) -> dict[str, Any]:
    """Measure time against members, samples and epochs."""
    network, compiled = (arguments.networks or ["mlp"])[0], arguments.device.type == "cuda"
    needed = work(
        reference_network(network, SHAPES[network], CLASSES[network]), torch.zeros(BATCH, *SHAPES[network]), 4
    )
    floor = 2 * needed.seconds(rates)  # of a step and member
    by_members, by_samples, by_epochs = [], [], []
    for count in arguments.members:
        release_memory()
        run = engine_steps(task(network, 12_800, arguments.device, compile=compiled), members(count))
        seconds = step_seconds(run, arguments.device)
        by_members.append({"members": count, "microseconds_per_member": 1e6 * seconds / count, "floor": 1e6 * floor})
        print(f"{network} {count:5} members: {1e6 * seconds / count:9.2f} µs a step and member", flush=True)
        del run
    for samples in arguments.samples:
        release_memory()
        ends: list[float] = []
        shared = task(network, samples, arguments.device, epochs=EPOCH_INTERVALS, compile=compiled)
        train_population(
            shared, members(6, EPOCH_INTERVALS), on_epoch=lambda _, ends=ends: ends.append(time.perf_counter())
        )
        seconds, least = statistics.median(np.diff(ends).tolist()), 6 * floor * (samples // BATCH)
        by_samples.append({"samples": samples, "seconds_per_epoch": seconds, "floor": least})
        print(f"{network} {samples:6} samples: {1e3 * seconds:9.2f} ms an epoch of 6 members", flush=True)
    for epochs in arguments.epochs:  # the step is compiled by now: at least EPOCH_INTERVALS epochs
        release_memory()
        began = time.perf_counter()
        train_population(task(network, samples, arguments.device, epochs=epochs, compile=compiled), members(6, epochs))
        seconds, least = time.perf_counter() - began, 6 * floor * (samples // BATCH) * epochs
        by_epochs.append({"epochs": epochs, "seconds": seconds, "floor": least})
        print(f"{network} {epochs:4} epochs of {samples} samples: {seconds:7.2f} s", flush=True)
    return {"network": network, "by_members": by_members, "by_samples": by_samples, "by_epochs": by_epochs}


def epoch(arguments: argparse.Namespace, rates: Rates) -> dict[str, Any]:  # noqa: ARG001
    """Measure the share of an epoch that is spent on evaluation, records and bookkeeping."""
    samples, epochs = (54_000, 20) if arguments.device.type == "cuda" else (6_400, 6)
    compiled = arguments.device.type == "cuda"
    shared = task("mlp", samples, arguments.device, compile=compiled)
    seconds = step_seconds(engine_steps(shared, members(6)), arguments.device)
    release_memory()
    valid = random_data(SHAPES["mlp"], samples // 9)
    ends: list[float] = []
    whole = task("mlp", samples, arguments.device, compile=compiled, epochs=epochs, evaluate={VALIDATION: valid})
    train_population(whole, members(6, epochs), on_epoch=lambda _: ends.append(time.perf_counter()))
    took = statistics.median(np.diff(ends)[epochs // 2 :].tolist())
    inside = seconds * (samples // BATCH)
    share = max(0.0, 1 - inside / took)
    print(f"epoch {1e3 * took:.2f} ms, its {samples // BATCH} steps {1e3 * inside:.2f} ms: {share:.1%} for the rest")
    return {"epoch_seconds": took, "step_seconds": seconds, "steps": samples // BATCH, "share_of_the_rest": share}


def memory(arguments: argparse.Namespace, rates: Rates) -> dict[str, Any]:  # noqa: ARG001
    """Measure peak memory, and train a population ten times larger than fits."""
    rows = []
    for count in (6, 32, 96):
        if arguments.device.type == "cuda":
            release_memory()
            torch.cuda.reset_peak_memory_stats()
            engine_steps(task("mlp", 12_800, arguments.device, compile=False), members(count))(16)
            peak = torch.cuda.max_memory_allocated()
        else:  # in a new process: the peak of a process never falls
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
    shared = task("mlp", 1_280, arguments.device, epochs=2, compile=False)
    together = train_population(shared, population).curves.loss
    with _room_for(fitting, shared, arguments.device):
        in_chunks = train_population(shared, population).curves.loss
    apart = float(np.abs(together - in_chunks).max())
    print(f"40 members where {fitting} fit: losses differ by at most {apart:.2e}")
    return {
        "rows": rows,
        "bytes_per_member": each,
        "chunks": {"members": 40, "fit": fitting, "largest_difference": apart},
    }


def large(arguments: argparse.Namespace, rates: Rates) -> dict[str, Any]:  # noqa: ARG001
    """Measure pairs of ResNet-18 with crop and flip, in the engine and in plain PyTorch."""
    shared = _large_task(arguments)
    rows: list[dict[str, Any]] = []
    found = {"batch": shared.batch_size, "precision": shared.precision, "rows": rows}
    print(f"{'side':34}{'pairs':>6}{'ms a step':>11}{'images/s':>10}{'ready':>8}{'peak':>10}  of plain, target")
    for mode in ["none"] if arguments.tiny else arguments.modes:
        rows.append(_large_row(f"plain, {mode}", 1, shared.batch_size, partial(_plain_steps, shared, mode), arguments))
        arguments.write(found)
    reference = max(row["images_per_second"] for row in rows)
    for pairs in arguments.pairs:
        row = _large_row("engine", pairs, shared.batch_size, partial(engine_steps, shared, members(pairs)), arguments)
        row["ratio"], row["target"] = row["images_per_second"] / reference, LARGE_TARGETS.get(pairs)
        rows.append(row)
        arguments.write(found)
        print(f"{row['ratio']:>81.3f}, {row['target'] or 'none'}", flush=True)
    return found


def agreement(arguments: argparse.Namespace, rates: Rates) -> dict[str, Any]:  # noqa: ARG001
    """Compare training in the other precisions with float32 over some seeds, with the test part as validation."""
    loaded = load(arguments.data, arguments.data_root)
    train, valid = loaded.train, loaded.test
    noisy = apply_noise(parse_noise("symmetric:0.5"), train, np.random.default_rng(0))
    network = (arguments.networks or [default_network(train.sample_shape, train.classes)])[0]
    factory = reference_network(network, train.sample_shape, train.classes)
    schedule = schedules.coteaching(0.5, arguments.epochs[0])
    population = [Member(schedule, seed) for seed in range(arguments.seeds)]
    compiled = arguments.device.type == "cuda"
    accuracies = {}
    found: dict[str, Any] = {"data": arguments.data, "network": network, "epochs": arguments.epochs[0]}
    for precision in ("float32", "auto", "bfloat16"):
        shared = Task(
            noisy, factory, Coteaching(), {VALIDATION: valid}, epochs=arguments.epochs[0], device=arguments.device,
            compile=compiled, graph=compiled, vectorize=True, precision=precision,
        )  # fmt: skip
        own = train_population(shared, population).curves.last(VALIDATION)
        accuracies[precision] = own
        gap = own - accuracies["float32"]
        error = gap.std(ddof=1) / np.sqrt(len(gap))
        found[precision] = {"accuracies": own.tolist(), "gap": gap.mean(), "standard_error": error}
        print(
            f"{precision:9} {own.mean():.4%} ± {own.std(ddof=1):.4%} over {len(own)} seeds, minus float32 "
            f"{gap.mean():+.4%} ± {error:.4%} (standard error)",
            flush=True,
        )
        arguments.write(found)
    return found


def search(arguments: argparse.Namespace, rates: Rates) -> dict[str, Any]:  # noqa: ARG001
    """Measure a whole search from the command line, with its final training."""
    rows = []
    for generation, target in ((6, 100.0), (20, 50.0)):
        command = [
            sys.executable, "-m", "s2e", "search", "mnist", "--noise", "pair:0.45", "--trials", "60", "--epochs", "200",
            "--generation-size", str(generation), "--data-root", str(arguments.data_root), "--out", "{scratch}/run",
        ]  # fmt: skip
        times = []
        for seconds, _ in cold_and_cached(command):
            times.append(seconds)
            print(f"60 trials of 200 epochs, {generation} at a time: {seconds:.1f} s of {target:g} s", flush=True)
        cold, cached = times
        rows.append({"generation": generation, "seconds": cold, "seconds_cached": cached, "target": target})
        arguments.write({"rows": rows})
    return {"rows": rows}


def draw(arguments: argparse.Namespace, rates: Rates) -> dict[str, Any] | None:  # noqa: ARG001
    """Draw the measurements of `scaling`."""
    found = json.loads((arguments.out / "scaling.json").read_text())
    with plot_style():
        figure = _scaling_figure(found)
    for kind in ("png", "svg"):
        (arguments.out / f"scaling.{kind}").write_bytes(render(figure, kind))
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


PARTS = {each.__name__: each for each in (steps, ready, scaling, epoch, memory, large, agreement, search, draw)}


def _large_task(arguments: argparse.Namespace) -> Task:
    """Return Co-teaching of ResNet-18 on random images, or of a narrow one on small images."""
    network, side, batch, samples = (
        ("resnet18:width=4", 16, 8, 32) if arguments.tiny else ("resnet18", 32, BATCH, 12_800)
    )
    train = random_data((3, side, side), samples)
    return Task(
        train, reference_network(network, train.sample_shape, train.classes), Coteaching(), {}, epochs=1,
        batch_size=batch, device=arguments.device, compile=not arguments.tiny, precision="bfloat16",
        optimizer=SGD(momentum=0.9, weight_decay=5e-4), augmentation=(Crop(), Flip()),
    )  # fmt: skip


def _plain_steps(shared: Task, mode: str) -> Callable[[int], None]:
    """Return a function that trains the first pair of the task in plain PyTorch on a number of batches."""
    keep = int(keep_counts(members(1)[0].schedule, shared.batch_size)[0])
    return PlainPair(shared, keep, mode).run


def _large_row(
    side: str, pairs: int, batch: int, create: Callable[[], Callable[[int], None]], arguments: argparse.Namespace
) -> dict[str, Any]:
    """Measure and print the steps that `create` returns, after freeing the memory of earlier ones."""
    device, multiple = arguments.device, 1 if arguments.tiny else 16
    torch.compiler.reset()
    release_memory()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    run = create()
    run(multiple)
    wait(device)
    ready = time.perf_counter() - began
    seconds = step_seconds(run, device, at_least=0.0 if arguments.tiny else 1.0, multiple=multiple)
    peak = torch.cuda.max_memory_allocated() if device.type == "cuda" else None
    images = pairs * batch / seconds
    print(
        f"{side:34}{pairs:6}{1e3 * seconds:11.2f}{images:10.0f}{ready:7.0f}s"
        f"{'unknown' if peak is None else f'{peak / 2**30:.1f} GiB':>10}",
        flush=True,
    )
    return {
        "side": side,
        "pairs": pairs,
        "milliseconds": 1e3 * seconds,
        "images_per_second": images,
        "peak_bytes": peak,
        "seconds_until_ready": ready,
    }


@contextmanager
def _room_for(count: int, shared: Task, device: torch.device) -> Iterator[None]:
    """Limit the memory to that of `count` members: on a GPU actually, on a CPU in the planning only."""
    before = engine_memory.members_that_fit
    if device.type == "cuda":
        release_memory()
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.reset_peak_memory_stats()
        train_population(shared, members(count, shared.epochs))
        torch.cuda.set_per_process_memory_fraction(1.3 * torch.cuda.max_memory_reserved() / total)
    engine_memory.members_that_fit = lambda *_: count
    try:
        yield
    finally:
        engine_memory.members_that_fit = before
        if device.type == "cuda":
            torch.cuda.set_per_process_memory_fraction(1.0)


def _peak(count: int) -> None:
    """Print the peak memory of this process with `count` members on the CPU, without that of torch itself."""
    shared = task("mlp", 12_800, torch.device("cpu"))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    engine_steps(shared, members(count))(3)
    print(1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))


def _until_ready(network: str, count: int, device: torch.device) -> None:
    """Print the seconds from the creation of members to the end of their first compiled steps."""
    shared = task(network, 12_800, device, compile=True)
    torch.zeros(1, device=device)
    began = time.perf_counter()
    engine_steps(shared, members(count))(16)
    wait(device)
    print(time.perf_counter() - began)


def main(command_line: Sequence[str] | None = None) -> None:
    """Run one measurement, print it and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=[*PARTS, "peak", "until-ready"])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--device", type=torch.device, default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--networks", nargs="*", choices=SHAPES)
    parser.add_argument("--members", type=int, nargs="+", default=[1, 2, 6, 16, 32, 64, 128, 256])
    parser.add_argument("--samples", type=int, nargs="+", default=[6_400, 12_800, 25_600, 51_200])
    parser.add_argument("--epochs", type=int, nargs="+", default=[30, 60, 120])
    parser.add_argument("--pairs", type=int, nargs="+", default=list(LARGE_TARGETS), help="of `large`, in the engine")
    parser.add_argument(
        "--modes", nargs="+", choices=MODES, default=list(MODES[:2]), help="of `large`, torch.compile's"
    )
    parser.add_argument("--tiny", action="store_true", help="run a small version of `large` that is not compiled")
    parser.add_argument("--data", choices=["mnist", "cifar10"], default="mnist", help="of `agreement`")
    parser.add_argument("--seeds", type=int, default=100, help="of `agreement`")
    parser.add_argument("--data-root", type=Path, default=Path("data"))
    arguments = parser.parse_args(command_line)
    if arguments.part == "peak":
        _peak(arguments.members[0])
        return
    if arguments.part == "until-ready":
        _until_ready(arguments.networks[0], arguments.members[0], arguments.device)
        return
    on_cuda = arguments.device.type == "cuda"
    rates = measured_rates(arguments.device) if arguments.part in ("steps", "scaling") else Rates(1.0, 1.0)
    about = {
        "device": torch.cuda.get_device_name(arguments.device) if on_cuda else platform.processor() or "cpu",
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "batch": BATCH,
        "rates": asdict(rates) if rates.bandwidth > 1 else None,
    }

    def write(found: dict[str, Any]) -> None:
        if arguments.out is not None:
            arguments.out.mkdir(parents=True, exist_ok=True)
            (arguments.out / f"{arguments.part}.json").write_text(json.dumps({**about, **found}, indent=2) + "\n")

    arguments.write = write  # for measurements of many rows, which write each row when it is finished
    found = PARTS[arguments.part](arguments, rates)
    if found is not None:
        write(found)


if __name__ == "__main__":
    main()
