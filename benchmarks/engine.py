"""Time of Co-teaching in the population engine against a plain PyTorch loop over the same members.

    python benchmarks/engine.py --out engine-cpu.json                 all settings, 1 to 32 members
    python benchmarks/engine.py --plain-adam default                  without PyTorch's fused Adam on the plain side
    python benchmarks/engine.py --markdown engine-cpu.json            print the tables of an earlier measurement

Both sides compute the same: Co-teaching with Adam, a keep count for each member, data resident on the device. The
plain side trains one member after the other, so that the caches hold the weights of one pair only; it has two
`nn.Module`s and two `torch.optim.Adam`s for a member and keeps no records. The engine keeps all of its records.

On a CPU the engine is timed in real trainings (`train_population`), with the threads that it chooses itself, from the
end of the first epoch to the end of the last: the work at the end of an epoch is included, set-up is not. On a GPU it
is timed in compiled steps (`engine_steps`).

The sides are timed alternately, each for about `--seconds`. Numbers are medians over `--repeats`. Wall time is the time
that passes, CPU time the sum over all threads of the process; both are given for one network and one step.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import torch

from measuring import members as measured_members
from measuring import random_data, wait
from plain_methods import batches_of, coteaching_step
from s2e.engine import EpochFinished, Task, train_population
from s2e.engine.training import engine_steps
from s2e.methods import Coteaching
from s2e.networks import Factory, reference_network
from s2e.schedules import keep_counts

CLASSES = 10
TIMED_EPOCHS = 4
"""Least number of epochs between set-up and the end of a training on a CPU.

If threads share a population, one may be ahead of another by a part of an epoch when the time is taken.
"""


@dataclass(frozen=True)
class Setting:
    """What is trained.

    Attributes:
        network: reference network with its options.
        sample_shape: shape of a sample.
        batch_size: B.
        steps: steps in an epoch; few where a step is long.
    """

    network: str
    sample_shape: tuple[int, ...]
    batch_size: int
    steps: int

    @property
    def factory(self) -> Factory:
        """Return the factory of the network."""
        return reference_network(self.network, self.sample_shape, CLASSES)

    def task(self, device: torch.device, *, samples: int) -> Task:
        """Return a task of one epoch."""
        data = random_data(self.sample_shape, samples, CLASSES)
        return Task(data, self.factory, Coteaching(), {}, epochs=1, batch_size=self.batch_size, device=device)


SETTINGS = {
    "13-64-10": Setting("mlp:widths=64", (13,), 32, steps=50),
    "13-256-10": Setting("mlp:widths=256", (13,), 16, steps=50),
    "256-256-10": Setting("mlp:widths=256", (256,), 128, steps=20),
    "784-256-10": Setting("mlp", (1, 28, 28), 128, steps=20),
    "cifar10-cnn": Setting("cifar10-cnn", (3, 32, 32), 128, steps=5),
}
"""MLPs by their widths, for tables, for 256 features and for MNIST, and the CNN for CIFAR-10."""


class Cost(NamedTuple):
    """Time of some steps of all members, in seconds."""

    steps: int
    wall: float
    cpu: float


Side: TypeAlias = Callable[[int], Cost]
"""Trains all members for at least a number of steps and returns the time of these."""


def engine_training(setting: Setting, members: int) -> Side:
    """Return the engine's side on a CPU: real trainings."""
    task = setting.task(torch.device("cpu"), samples=setting.steps * setting.batch_size)

    def run(steps: int) -> Cost:
        epochs = max(TIMED_EPOCHS, math.ceil(steps / setting.steps))
        ends: dict[int, tuple[float, float]] = {}

        def note(finished: EpochFinished) -> None:  # of an epoch, the last thread is noted last
            ends[finished.epoch] = time.perf_counter(), time.process_time()

        whole = replace(task, epochs=epochs + 1, chunk=members)
        train_population(whole, measured_members(members, whole.epochs), on_epoch=note)
        wall, cpu = (end - begin for begin, end in zip(ends[1], ends[whole.epochs], strict=True))
        return Cost(epochs * setting.steps, wall, cpu)

    return run


def engine_on_gpu(setting: Setting, members: int, device: torch.device) -> Side:
    """Return the engine's side on a GPU: compiled steps."""
    task = replace(setting.task(device, samples=100 * setting.batch_size), compile=True)
    return _timed(engine_steps(task, measured_members(members)), device)


def plain_loop(setting: Setting, members: int, device: torch.device, *, fused: bool, threads: int) -> Side:
    """Return the plain side: one member is trained after the other, with PyTorch's own threads."""
    data = random_data(setting.sample_shape, setting.steps * setting.batch_size, CLASSES)
    draw = batches_of(data, device, setting.batch_size)
    rates = [float(member.schedule[0]) for member in measured_members(members)]
    pairs = [
        coteaching_step(lambda: setting.factory().to(device), draw, keep, fused=fused)
        for keep in keep_counts(rates, setting.batch_size).tolist()
    ]

    def run(steps: int) -> None:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        for step in pairs:
            for _ in range(steps):
                step()
        torch.set_num_threads(before)

    return _timed(run, device)


def _timed(run: Callable[[int], None], device: torch.device) -> Side:
    """Return a side that waits for the device before it reads the clocks."""

    def timed(steps: int) -> Cost:
        wait(device)
        wall, cpu = time.perf_counter(), time.process_time()
        run(steps)
        wait(device)
        return Cost(steps, time.perf_counter() - wall, time.process_time() - cpu)

    return timed


def alternating_costs(sides: Sequence[Side], seconds: float, repeats: int, warm_up: int) -> list[list[Cost]]:
    """Time the sides in turn, each for about the given time; return the costs of the repeats of each side.

    Args:
        sides: what is timed.
        seconds: wall time of one timing.
        repeats: timings of each side.
        warm_up: steps in the first two, unused timings, of which the second gives the number of steps.
    """
    steps = []
    for side in sides:
        side(warm_up)
        found = side(warm_up)
        steps.append(max(1, math.ceil(seconds * found.steps / found.wall)))
    costs: list[list[Cost]] = [[] for _ in sides]
    for _ in range(repeats):
        for own, side, count in zip(costs, sides, steps, strict=True):
            own.append(side(count))
    return costs


def summary(costs: Sequence[Cost], networks: int) -> dict[str, float]:
    """Return the median microseconds of a network and step."""

    def median(seconds: Iterable[float]) -> float:
        return round(1e6 * statistics.median(seconds) / networks, 2)

    return {
        "wall_us": median(cost.wall / cost.steps for cost in costs),
        "cpu_us": median(cost.cpu / cost.steps for cost in costs),
        "steps": costs[0].steps,
    }


def measure(name: str, members: int, chosen: argparse.Namespace) -> dict[str, Any]:
    """Compare both sides for one setting and population size, as chosen on the command line."""
    setting, device = SETTINGS[name], chosen.device
    on_cpu = device.type == "cpu"
    engine = engine_training(setting, members) if on_cpu else engine_on_gpu(setting, members, device)
    plain = plain_loop(setting, members, device, fused=chosen.plain_adam == "fused", threads=chosen.plain_threads)
    costs = alternating_costs([engine, plain], chosen.seconds, chosen.repeats, setting.steps)
    networks = members * Coteaching.networks
    ours, theirs = (summary(each, networks) for each in costs)
    by_repeat = [(other.wall / other.steps) / (own.wall / own.steps) for own, other in zip(*costs, strict=True)]
    return {
        "setting": name,
        "batch": setting.batch_size,
        "members": members,
        "engine": ours,
        "plain": theirs,
        "wall_ratio": round(theirs["wall_us"] / ours["wall_us"], 2),
        "wall_ratio_of_repeats": [round(min(by_repeat), 2), round(max(by_repeat), 2)],
        "cpu_ratio": round(theirs["cpu_us"] / ours["cpu_us"], 2),
    }


def markdown(found: Mapping[str, Any]) -> str:
    """Return the rows of a measurement as a Markdown table."""
    lines = [
        "| network, batch | members | engine, wall | engine, CPU | plain, wall | plain, CPU | faster, wall (repeats) | "
        "faster, CPU |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        low, high = row["wall_ratio_of_repeats"]
        times = (row[side][clock] for side in ("engine", "plain") for clock in ("wall_us", "cpu_us"))
        lines.append(
            f"| {row['setting']}, {row['batch']} | {row['members']} | "
            + " | ".join(f"{each:.0f}" for each in times)
            + f" | {row['wall_ratio']:.2f}× ({low:.2f} to {high:.2f}) | {row['cpu_ratio']:.2f}× |"
        )
    about = (
        f"Microseconds per network and step: {found['device']}, torch {found['torch']}, {found['threads']} threads "
        f"({found['plain_threads']} on the plain side), {found['plain_adam']} Adam on the plain side."
    )
    return "\n".join([*lines, "", about])


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print a table, write JSON; or print the tables of an earlier measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", type=torch.device, default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, help="all on a CPU, 784-256-10 and the CNN on a GPU")
    parser.add_argument("--members", type=int, nargs="+", default=[1, 2, 6, 12, 32])
    parser.add_argument("--plain-adam", choices=["fused", "default"], default="fused")
    parser.add_argument("--plain-threads", type=int, default=torch.get_num_threads(), help="as many as PyTorch's")
    parser.add_argument("--seconds", type=float, default=2.0, help="time of one timing, longer where an epoch is")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, help="JSON file, written after every row")
    parser.add_argument(
        "--markdown", type=Path, metavar="JSON", help="print the tables of this file and measure nothing"
    )
    chosen = parser.parse_args(arguments)
    if chosen.markdown is not None:
        print(markdown(json.loads(chosen.markdown.read_text())))
        return
    device = chosen.device
    settings = chosen.settings or (list(SETTINGS) if device.type == "cpu" else ["784-256-10", "cifar10-cnn"])
    about = {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "cpu",
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "plain_adam": chosen.plain_adam,
        "plain_threads": chosen.plain_threads,
        "seconds": chosen.seconds,
        "repeats": chosen.repeats,
    }
    rows = []
    print("microseconds per network and step")
    print(f"{'setting':12}{'members':>8}{'engine':>10}{'CPU':>9}{'plain':>10}{'CPU':>9}{'faster':>9}{'CPU':>9}")
    for name, members in product(settings, chosen.members):
        row = measure(name, members, chosen)
        rows.append(row)
        ours, theirs = row["engine"], row["plain"]
        print(
            f"{name:12}{members:8}{ours['wall_us']:10.1f}{ours['cpu_us']:9.1f}{theirs['wall_us']:10.1f}"
            f"{theirs['cpu_us']:9.1f}{row['wall_ratio']:8.2f}x{row['cpu_ratio']:8.2f}x",
            flush=True,
        )
        if chosen.out:
            chosen.out.write_text(json.dumps({**about, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
