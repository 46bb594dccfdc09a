"""Time that trainings spend on their checkpoints.

    python benchmarks/checkpoints.py --out checkpoints.json           a checkpoint after each of six epochs
    python benchmarks/checkpoints.py --settings 784-256-10 --interval 180 --epochs 200        as often as in a run
    python benchmarks/checkpoints.py --markdown checkpoints.json      print the table of an earlier measurement

The time of a checkpoint is all that the engine does for it after an epoch: find out whether one is due, name it by a
digest of weights and data (for the first one), copy weights, optimizer and records, and write the file to the disk.
A run writes one every 180 seconds, or less often where writing would take more than 2% of the time; `share in a run`
follows from the longest time of a checkpoint.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from measuring import members, random_data, wait
from s2e.engine import Checkpoints, Task, train_population
from s2e.engine.checkpoints import SUFFIX, pause
from s2e.engine.lockstep import Lockstep, PopulationCheckpoint
from s2e.methods import Coteaching
from s2e.networks import reference_network

CLASSES = 10


@dataclass(frozen=True)
class Setting:
    """What is trained with Co-teaching and Adam.

    Attributes:
        network: reference network with its options.
        sample_shape: shape of a sample.
        samples: N; the records of a member grow with it.
        batch_size: B.
        members: P.
    """

    network: str
    sample_shape: tuple[int, ...]
    samples: int
    batch_size: int
    members: int


SETTINGS = {
    "13-64-10": Setting("mlp:widths=64", (13,), 2_000, 32, 12),
    "784-256-10": Setting("mlp", (1, 28, 28), 60_000, 128, 6),
    "cifar10-cnn": Setting("cifar10-cnn", (3, 32, 32), 2_000, 128, 6),
    "resnet18": Setting("resnet18", (3, 32, 32), 256, 128, 1),
}
"""A table, MNIST, and few samples of images, because steps of the larger networks take long on a CPU."""


@dataclass
class Spent:
    """What a training spends on checkpoints.

    Attributes:
        seconds: for each file, from the end of the epoch until it is written.
        sizes: bytes of each file.
        not_due: seconds after all epochs without one.
    """

    seconds: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    not_due: float = 0.0


@contextmanager
def checkpoints_timed(directory: Path, device: torch.device) -> Iterator[Spent]:
    """Time what the engine does for checkpoints after every epoch of a training without chunks and threads."""
    spent, save_if_due = Spent(), PopulationCheckpoint.save_if_due

    def timed(checkpoint: PopulationCheckpoint, lockstep: Lockstep) -> None:
        before = [path.stat().st_ino for path in directory.glob(f"*{SUFFIX}")]
        wait(device)  # for the training
        began = time.perf_counter()
        save_if_due(checkpoint, lockstep)
        seconds = time.perf_counter() - began
        new = [found.st_size for path in directory.glob(f"*{SUFFIX}") if (found := path.stat()).st_ino not in before]
        if new:
            spent.seconds.append(seconds)
            spent.sizes.append(sum(new))
        else:
            spent.not_due += seconds

    with mock.patch.object(PopulationCheckpoint, "save_if_due", timed):
        yield spent


def measure(name: str, chosen: argparse.Namespace) -> dict[str, Any]:
    """Train a setting with checkpoints; return what they take."""
    setting = SETTINGS[name]
    with tempfile.TemporaryDirectory(dir=chosen.directory) as scratch:
        usual = Checkpoints(Path(scratch))
        share = math.inf if chosen.interval == 0 else usual.max_share
        task = Task(
            random_data(setting.sample_shape, setting.samples, CLASSES),
            reference_network(setting.network, setting.sample_shape, CLASSES),
            Coteaching(),
            {},
            epochs=chosen.epochs,
            batch_size=setting.batch_size,
            device=chosen.device,
            checkpoints=Checkpoints(usual.directory, chosen.interval, share),
        )
        began = time.perf_counter()
        with checkpoints_timed(usual.directory, chosen.device) as spent:
            train_population(task, members(setting.members, chosen.epochs))
        whole = time.perf_counter() - began
    longest = max(spent.seconds)
    between = pause(usual.interval, longest, usual.max_share)
    return {
        "setting": name,
        "samples": setting.samples,
        "members": setting.members,
        "files": len(spent.seconds),
        "megabytes": round(max(spent.sizes) / 1e6, 2),
        "median_seconds": round(statistics.median(spent.seconds), 4),
        "longest_seconds": round(longest, 4),
        "training_seconds": round(whole, 1),
        "share_percent": round(100 * (sum(spent.seconds) + spent.not_due) / whole, 3),
        "share_in_a_run_percent": round(100 * longest / (between + longest), 3),
    }


def markdown(found: Mapping[str, Any]) -> str:
    """Return the rows of a measurement as a Markdown table."""
    lines = [
        "| network | samples | members | checkpoint, MB | median, s | longest, s | share in a run |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['setting']} | {row['samples']:,} | {row['members']} | {row['megabytes']:.1f} | "
        f"{row['median_seconds']:.3f} | {row['longest_seconds']:.3f} | {row['share_in_a_run_percent']:.2f}% |"
        for row in found["rows"]
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print a table, write JSON; or print the table of an earlier measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", type=torch.device, default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--epochs", type=int, default=6, help="epochs of a training")
    parser.add_argument("--interval", type=float, default=0.0, help="seconds between two files; 0: after every epoch")
    parser.add_argument("--directory", type=Path, help="where the files are written; a temporary one when not given")
    parser.add_argument("--out", type=Path, help="JSON file, written after every row")
    parser.add_argument("--markdown", type=Path, metavar="JSON", help="print the table of this file, measure nothing")
    chosen = parser.parse_args(arguments)
    if chosen.markdown is not None:
        print(markdown(json.loads(chosen.markdown.read_text())))
        return
    torch.set_num_threads(1)  # several threads would write a file each
    device = chosen.device
    about = {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "cpu",
        "torch": torch.__version__,
        "epochs": chosen.epochs,
        "interval": chosen.interval,
    }
    rows: list[dict[str, Any]] = []
    for name in chosen.settings:
        rows.append(measure(name, chosen))
        if chosen.out:
            chosen.out.write_text(json.dumps({**about, "rows": rows}, indent=2) + "\n")
    print(markdown({"rows": rows}))


if __name__ == "__main__":
    main()
