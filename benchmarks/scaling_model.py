"""Cost model of a search on many devices: time against devices, simulated with the engine's own split of populations.

    python benchmarks/scaling_model.py --out docs/results/scaling-model

Nothing is trained. The time of a training step on one device was measured (docs/results/speed-h200); everything else is
an assumption in `Assumptions`, written to the JSON and above the table.

Letters: K points in a generation, T epochs, d devices.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from s2e.studies.executors.shares import shares

RESULTS = Path(__file__).parents[1] / "docs" / "results"
DEVICES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)
WORTH_IT = 1.5
"""A doubling of the devices is said to pay if the search becomes faster by this factor."""


@dataclass(frozen=True)
class Assumptions:
    """What is not measured, with its meaning."""

    start: float = 30.0  # seconds until workers have started, with compilation
    asking: float = 2.0  # seconds in which a generation is asked and told, on one core
    bandwidth: float = 1e9  # bytes per second at which the process that searches receives results
    result_bytes: float = 2.6e6  # bytes of the result of one member: twelve numbers of 4 bytes for 54,000 samples
    spread: float = 0.05  # standard deviation of the logarithm of the devices' speeds; constant in time
    losses: float = 0.002  # workers lost per device and hour
    replacing: float = 30.0  # seconds until the worker that replaces a lost one trains
    checkpoint: float = 180.0  # seconds between checkpoints; a lost worker loses half of it on average
    seed: int = 0


@dataclass(frozen=True)
class Workload:
    """A search.

    Attributes:
        name: in the table.
        generations: generations in all.
        generation_size: K.
        epochs: T.
        work: factor on the measured time of a step.
        saturated: one member fills a device, so that a step of several takes their number as long.
    """

    name: str
    generations: int
    generation_size: int
    epochs: int = 200
    work: float = 1.0
    saturated: bool = False


WORKLOADS = (
    Workload("the default search: 60 trials, 6 at a time", 10, 6),
    Workload("12,000 trials, 1,200 at a time", 10, 1200),
    Workload("12,000 trials, 1,200 at a time, a network with 100 times the work", 10, 1200, 200, 100.0, True),
)


class Device:
    """Measured times of one device."""

    def __init__(self, scaling: Path, epoch: Path) -> None:
        measured = json.loads(scaling.read_text(encoding="utf-8"))
        rows = measured["by_members"]
        self.name, self.network = str(measured["device"]), str(measured["network"])
        self.steps = int(json.loads(epoch.read_text(encoding="utf-8"))["steps"])
        self._members = np.array([row["members"] for row in rows], dtype=float)
        self._seconds = self._members * np.array([row["microseconds_per_member"] for row in rows]) / 1e6

    def step_seconds(self, members: int, *, saturated: bool) -> float:
        """Return the time of a step of some members: interpolated, and proportional beyond the largest measured."""
        largest = self._members[-1]
        if members > largest or saturated:
            return float(self._seconds[-1] * members / largest)
        return float(np.interp(members, self._members, self._seconds))


def generation_seconds(
    device: Device,
    load: Workload,
    speeds: np.ndarray,
    known: np.ndarray,
    assumed: Assumptions,
    rng: np.random.Generator,
) -> float:
    """Return the time of one generation: asking, the slowest share with its lost workers, and receiving results."""
    slowest = 0.0
    for share, speed in zip(shares([1.0] * load.generation_size, known.tolist()), speeds, strict=True):
        if share:
            steps = load.epochs * device.steps
            seconds = load.work * steps * device.step_seconds(len(share), saturated=load.saturated) / speed
            lost = rng.poisson(assumed.losses * seconds / 3600)
            seconds += lost * (assumed.replacing + min(assumed.checkpoint, seconds) / 2)
            slowest = max(slowest, seconds)
    return assumed.asking + slowest + load.generation_size * assumed.result_bytes / assumed.bandwidth


def search_seconds(device: Device, load: Workload, devices: int, assumed: Assumptions) -> float:
    """Return T(d) = start + sum over generations of (asking + slowest share + receiving), of one simulated search."""
    rng = np.random.default_rng([assumed.seed, devices])
    speeds = np.exp(rng.normal(0.0, assumed.spread, devices))
    used = speeds[: load.generation_size]  # at most one worker for each member
    known, total = np.ones(len(used)), assumed.start
    for _ in range(load.generations):
        total += generation_seconds(device, load, used, known, assumed, rng)
        known = used  # measured in the first generation
    return float(total)


def simulate(device: Device, assumed: Assumptions) -> list[dict[str, Any]]:
    """Return one row for each workload and number of devices."""
    rows = []
    for load in WORKLOADS:
        alone = search_seconds(device, load, 1, assumed)
        for devices in DEVICES:
            seconds = search_seconds(device, load, devices, assumed)
            rows.append(
                {
                    "search": load.name,
                    "devices": devices,
                    "seconds": seconds,
                    "speed_up": alone / seconds,
                    "efficiency": alone / seconds / devices,
                    "device_hours": devices * seconds / 3600,
                }
            )
    return rows


def largest_that_pays(rows: Sequence[dict[str, Any]]) -> int:
    """Return the largest number of devices that one search should use: every doubling up to it pays."""
    best = rows[0]["devices"]
    for before, after in pairwise(rows):
        if before["seconds"] / after["seconds"] < WORTH_IT:
            break
        best = after["devices"]
    return int(best)


def table(device: Device, assumed: Assumptions, rows: Sequence[dict[str, Any]]) -> str:
    """Return the assumptions and the results as Markdown."""
    lines = [
        f"Measured: steps of {device.network} on one {device.name}, {device.steps} steps in an epoch. Assumed: "
        + ", ".join(f"{item.name} {getattr(assumed, item.name):g}" for item in fields(assumed))
        + ".",
        "",
    ]
    for load in WORKLOADS:
        own = [row for row in rows if row["search"] == load.name]
        lines += [
            f"**{load.name[0].upper()}{load.name[1:]}**, {load.epochs} epochs. "
            f"Doubling the devices pays up to {largest_that_pays(own)}.",
            "",
            "| devices | time | speed-up | efficiency | device hours |",
            "|---:|---:|---:|---:|---:|",
        ]
        lines += [
            f"| {row['devices']:,} | {_duration(row['seconds'])} | {row['speed_up']:.1f} | {row['efficiency']:.0%} "
            f"| {row['device_hours']:.2f} |"
            for row in own
        ]
        lines.append("")
    return "\n".join(lines)


def _duration(seconds: float) -> str:
    if seconds < 600:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 36000 else f"{seconds / 3600:.1f} h"


def main() -> None:
    """Simulate all workloads; write `scaling.json` and `table.md`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS / "scaling-model")
    parser.add_argument("--measured", type=Path, default=RESULTS / "speed-h200", help="folder of scaling.json")
    for item in fields(Assumptions):
        kind = int if item.name == "seed" else float
        parser.add_argument(f"--{item.name.replace('_', '-')}", type=kind, default=item.default)
    given = parser.parse_args()
    assumed = Assumptions(**{item.name: getattr(given, item.name) for item in fields(Assumptions)})
    device = Device(given.measured / "scaling.json", given.measured / "epoch.json")
    rows = simulate(device, assumed)
    given.out.mkdir(parents=True, exist_ok=True)
    about = {"device": device.name, "network": device.network, "assumptions": asdict(assumed)}
    content = {**about, "searches": [asdict(load) for load in WORKLOADS], "rows": rows}
    (given.out / "scaling.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    text = table(device, assumed, rows)
    (given.out / "table.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
