"""The schedule table: thousands of uniform draws from the S2E space, each trained under every noise setting.

Searching a schedule takes thousands of trainings when it is to be compared with other ways of searching, and repeated.
The table is trained once; a model of it (`tabled.py`) then answers for every point of the space.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s2e.bench import Bench, TrainingOptions, bench, network_name
from s2e.data import fingerprint
from s2e.errors import InvalidInput
from s2e.runs import CONFIG, Run
from s2e.schedule_table import FINEST, ScheduleTable, drawn
from s2e.seeds import derive
from s2e.spaces import space
from s2e.tasks import VALIDATION, Member
from s2e.training import train_population
from s2e.workplace import Place, Watch, begin, ending

NOISES = ("symmetric:0.2", "symmetric:0.5", "pair:0.45")
"""The paper's noise settings."""

TABLE = "table.npz"


@dataclass(frozen=True)
class TableOptions:
    """What is trained.

    Attributes:
        data: name or path of the data.
        noises: noise settings.
        draws: n, uniform draws from the space.
        again: r, how many of them are trained again,
        times: m times from other initial weights, to see how much of a score is luck.
        together: members trained at a time; what is finished survives an interruption.
        epochs: T.
    """

    data: str = "mnist"
    noises: tuple[str, ...] = NOISES
    space: str = "s2e"
    draws: int = 2048
    again: int = 64
    times: int = 2
    together: int = 252
    network: str = "auto"
    method: str = "coteaching"
    epochs: int = 40
    batch_size: int = 128
    learning_rate: float = 1e-3
    validation_share: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.again <= self.draws or self.draws < 1:
            raise InvalidInput(f"`0 <= again <= draws` must hold, but got again={self.again}, draws={self.draws}.")
        if self.together < len(self.noises):
            raise InvalidInput(f"`together` must be at least {len(self.noises)}, but got {self.together}.")


def build_table(options: TableOptions, place: Place, watch: Watch, *, resume: bool = False) -> Run:
    """Train every draw under every noise setting, and write the table."""
    began = time.monotonic()
    known = space(options.space)
    on = bench(
        TrainingOptions(
            options.data,
            validation_share=options.validation_share,
            seed=options.seed,
            method=options.method,
            network=options.network,
            epochs=options.epochs,
            batch_size=options.batch_size,
            learning_rate=options.learning_rate,
        ),
        options.noises,
        place.root,
        place.device,
    )
    valid = on.task.evaluate[VALIDATION]
    about = {
        "network": network_name(options.network, on.task.train),
        "data_fingerprint": fingerprint(on.task.train, valid),
    }
    run, config = begin("reproduce table", options, about, place, resume=resume)
    points = drawn(options.draws, known.dimension, derive(options.seed, "draws"))  # (n, D)
    schedules = known.decode(points, options.epochs)  # (n, T)
    with run.locked():
        run.write_json(CONFIG, config)
        entries = np.array(list(_entries(options)))  # (n + r m, 2): draw, which training of it
        each = options.together // len(options.noises)
        parts = [entries[first : first + each] for first in range(0, len(entries), each)]
        missing = [which for which in range(len(parts)) if not (run.path / _part(which)).exists()]
        watch.stage("table", len(missing) * options.epochs)
        for which in missing:
            accuracy = _trained(on, schedules, parts[which], options, watch)  # (S, part, T)
            run.write_arrays(_part(which), {"accuracy": accuracy})
        accuracy = np.concatenate([run.read_arrays(_part(which))["accuracy"] for which in range(len(parts))], axis=1)
        made_by: dict[str, Any] = {
            **asdict(options),
            **about,
            "samples": len(on.task.train),
            "judged": len(valid) * on.task.method.networks,
            "versions": config["versions"],
            "finest": FINEST,
            **ending(on.task.device, began),
        }
        shape = (len(options.noises), options.again, options.times, options.epochs)
        again = accuracy[:, options.draws :].reshape(shape)  # (S, r, m, T)
        table = ScheduleTable(options.space, options.noises, points, accuracy[:, : options.draws], again, made_by)
        run.write_arrays(TABLE, table.arrays())
    return run


def _entries(options: TableOptions) -> Iterator[tuple[int, int]]:
    """Every draw once, then the first of them again."""
    yield from ((draw, 0) for draw in range(options.draws))
    yield from ((draw, 1 + time) for draw in range(options.again) for time in range(options.times))


def _trained(
    on: Bench,
    schedules: NDArray[np.float64],
    entries: NDArray[np.int64],
    options: TableOptions,
    watch: Watch,
) -> NDArray[np.float64]:
    """Train some of the entries under every noise setting; return their validation accuracies (S, entries, T)."""
    members = [
        Member(schedules[draw], derive(options.seed, "table", draw, time), options.learning_rate, labels)
        for labels in on.labels.values()
        for draw, time in entries.tolist()
    ]
    curves = train_population(on.task, members, on_epoch=watch.epoch).curves
    accuracy = np.where(curves.diverged[:, None], 0.0, curves.accuracy[VALIDATION])
    return accuracy.reshape(len(on.labels), len(entries), options.epochs)


def _part(which: int) -> str:
    return f"part-{which:04}.npz"
