"""The schedule table: thousands of uniform draws from the S2E space, each trained under every noise setting.

Searching a schedule takes thousands of trainings when it is to be compared with other ways of searching, and repeated.
The table is trained once; a model of it (`tabled.py`) then answers for every point of the space.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s2e.engine.task import VALIDATION, Member
from s2e.errors import InvalidInput
from s2e.experiments.schedule_table.propose import promising
from s2e.experiments.schedule_table.table import ScheduleTable, drawn, rounded, score
from s2e.runs.directory import CONFIG, Run
from s2e.runs.session import RunLocation, begin, ending
from s2e.schedules.spaces import Space, space
from s2e.seeds import derive
from s2e.workflows.bench import Bench, TrainingOptions, bench, network_name
from s2e.workflows.progress import ProgressListener

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
        rounds: how often promising points are looked for in a model of what was trained before, and trained.
        together: members trained at a time; what is finished survives an interruption.
        epochs: T.
    """

    data: str = "mnist"
    noises: tuple[str, ...] = NOISES
    space: str = "s2e"
    draws: int = 2048
    again: int = 64
    times: int = 2
    rounds: int = 2
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
        if self.times < 1:
            raise InvalidInput(f"`times` must be at least 1, but got {self.times}.")
        if self.rounds < 0:
            raise InvalidInput(f"`rounds` must be at least 0, but got {self.rounds}.")
        if self.together < len(self.noises):
            raise InvalidInput(f"`together` must be at least {len(self.noises)}, but got {self.together}.")


def build_table(options: TableOptions, place: RunLocation, watch: ProgressListener, *, resume: bool = False) -> Run:
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
        "data_fingerprint": on.fingerprint(),
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
        lacking = [turn for turn in range(options.rounds) if not (run.path / _found(turn)).exists()]
        watch.stage("table", (len(missing) + len(lacking)) * options.epochs)
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
            **ending(on.task.device, began),
        }
        shape = (len(options.noises), options.again, options.times, options.epochs)
        again = accuracy[:, options.draws :].reshape(shape)  # (S, r, m, T)
        nothing = np.zeros((len(options.noises), 0, 1))
        table = ScheduleTable(
            options.space,
            options.noises,
            points,
            accuracy[:, : options.draws],
            again,
            np.repeat(nothing, known.dimension, axis=2),
            np.repeat(nothing, options.epochs, axis=2),
            made_by,
        )
        for turn in range(options.rounds):
            if turn in lacking:
                run.write_arrays(_found(turn), _look_further(on, table, known, turn, options, watch))
            table = _with(table, run.read_arrays(_found(turn)))
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
    watch: ProgressListener,
) -> NDArray[np.float64]:
    """Train some of the entries under every noise setting; return their validation accuracies (S, entries, T)."""
    members = [
        Member(schedules[draw], derive(options.seed, "table", draw, time), options.learning_rate, labels)
        for labels in on.labels.values()
        for draw, time in entries.tolist()
    ]
    return _accuracy(on, members, watch).reshape(len(on.labels), len(entries), options.epochs)


def _look_further(
    on: Bench, table: ScheduleTable, known: Space, turn: int, options: TableOptions, watch: ProgressListener
) -> dict[str, NDArray[np.float64]]:
    """Look for promising points under every noise setting, and train them: points (S, q, D), accuracies (S, q, T)."""
    each, points = options.together // len(options.noises), []
    for which, noise in enumerate(options.noises):
        before, accuracy = table.trained(noise)
        generator = np.random.default_rng(derive(options.seed, "promising", turn, which))
        points.append(rounded(promising(before, score(accuracy), known, options.epochs, each, generator)))
    members = [
        Member(schedule, derive(options.seed, "found", turn, place), options.learning_rate, labels)
        for own, labels in zip(points, on.labels.values(), strict=True)
        for place, schedule in enumerate(known.decode(own, options.epochs))
    ]
    shape = (len(options.noises), each, options.epochs)
    return {"points": np.stack(points), "accuracy": _accuracy(on, members, watch).reshape(shape)}


def _with(table: ScheduleTable, found: dict[str, NDArray[np.float64]]) -> ScheduleTable:
    return replace(
        table,
        found=np.concatenate([table.found, found["points"]], axis=1),
        found_accuracy=np.concatenate([table.found_accuracy, found["accuracy"]], axis=1),
    )


def _accuracy(on: Bench, members: Sequence[Member], watch: ProgressListener) -> NDArray[np.float64]:
    """Train members and return their validation accuracies by epoch, (P, T); 0 where one diverged."""
    curves = on.trainer.train(members, on_epoch=watch.epoch).curves
    return np.where(curves.diverged[:, None], 0.0, curves.accuracy[VALIDATION])


def _found(turn: int) -> str:
    return f"found-{turn}.npz"


def _part(which: int) -> str:
    return f"part-{which:04}.npz"
