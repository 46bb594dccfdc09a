"""The schedule table: thousands of uniform draws from the S2E space, each trained under every noise setting.

Searching a schedule takes thousands of trainings when it is to be compared with other ways of searching, and repeated.
The table is trained once; a model of it (`tabled.py`) then answers for every point of the space.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s2e.engine.task import VALIDATION, Member
from s2e.experiments.schedule_table.propose import promising
from s2e.experiments.schedule_table.table import ScheduleTable, drawn, rounded, score
from s2e.runs.directory import Run
from s2e.runs.session import RunLocation, Session
from s2e.schedules.spaces import Space, space
from s2e.seeds import derive
from s2e.specs import TableOptions
from s2e.workflows.progress import SILENT, ProgressListener
from s2e.workflows.run_files import network_name
from s2e.workflows.shared_inputs import SharedInputs, shared_inputs

TABLE = "table.npz"


def build_table(
    options: TableOptions, location: RunLocation, listener: ProgressListener = SILENT, *, resume: bool = False
) -> Run:
    """Train every draw under every noise setting, and write the table."""
    known = space(options.space)
    session = Session("reproduce table", options, location, resume=resume)
    inputs = shared_inputs(
        options.data,
        options.noises,
        options.training,
        location,
        seed=options.seed,
        method=options.method,
        validation_share=options.validation_share,
    )
    task = inputs.task
    about = {
        "network": network_name(str(options.training.network), task.train),
        "data_fingerprint": inputs.fingerprint(),
    }
    points = drawn(options.draws, known.dimension, derive(options.seed, "draws"))  # (n, D)
    schedules = known.decode(points, options.training.epochs)  # (n, T)
    with session.start(about) as run:
        entries = np.array(list(_entries(options)))  # (n + r m, 2): draw, which training of it
        each = options.together // len(options.noises)
        parts = [entries[first : first + each] for first in range(0, len(entries), each)]
        missing = [which for which in range(len(parts)) if not (run.path / _part(which)).exists()]
        lacking = [turn for turn in range(options.rounds) if not (run.path / _found(turn)).exists()]
        listener.stage("table", (len(missing) + len(lacking)) * options.training.epochs)
        for which in missing:
            accuracy = _trained(inputs, schedules, parts[which], options, listener)  # (S, part, T)
            run.write_arrays(_part(which), {"accuracy": accuracy})
        accuracy = np.concatenate([run.read_arrays(_part(which))["accuracy"] for which in range(len(parts))], axis=1)
        made_by: dict[str, Any] = {
            **session.settings,
            **about,
            "samples": len(task.train),
            "judged": len(task.evaluate[VALIDATION]) * task.method.networks,
            "versions": session.versions,
            "device": str(task.device),
            "seconds": round(session.seconds, 1),
        }
        shape = (len(options.noises), options.again, options.times, options.training.epochs)
        again = accuracy[:, options.draws :].reshape(shape)  # (S, r, m, T)
        nothing = np.zeros((len(options.noises), 0, 1))
        table = ScheduleTable(
            options.space,
            options.noises,
            points,
            accuracy[:, : options.draws],
            again,
            np.repeat(nothing, known.dimension, axis=2),
            np.repeat(nothing, options.training.epochs, axis=2),
            made_by,
        )
        for turn in range(options.rounds):
            if turn in lacking:
                run.write_arrays(_found(turn), _look_further(inputs, table, known, turn, options, listener))
            table = _with(table, run.read_arrays(_found(turn)))
        run.write_arrays(TABLE, table.arrays())
    return run


def _entries(options: TableOptions) -> Iterator[tuple[int, int]]:
    """Every draw once, then the first of them again."""
    yield from ((draw, 0) for draw in range(options.draws))
    yield from ((draw, 1 + time) for draw in range(options.again) for time in range(options.times))


def _trained(
    inputs: SharedInputs,
    schedules: NDArray[np.float64],
    entries: NDArray[np.int64],
    options: TableOptions,
    listener: ProgressListener,
) -> NDArray[np.float64]:
    """Train some of the entries under every noise setting; return their validation accuracies (S, entries, T)."""
    members = [
        Member(schedules[draw], derive(options.seed, "table", draw, time), options.training.learning_rate, labels)
        for labels in inputs.labels.values()
        for draw, time in entries.tolist()
    ]
    return _accuracy(inputs, members, listener).reshape(len(inputs.labels), len(entries), options.training.epochs)


def _look_further(
    inputs: SharedInputs,
    table: ScheduleTable,
    known: Space,
    turn: int,
    options: TableOptions,
    listener: ProgressListener,
) -> dict[str, NDArray[np.float64]]:
    """Look for promising points under every noise setting, and train them: points (S, q, D), accuracies (S, q, T)."""
    each, points = options.together // len(options.noises), []
    for which, noise in enumerate(options.noises):
        before, accuracy = table.trained(noise)
        generator = np.random.default_rng(derive(options.seed, "promising", turn, which))
        points.append(rounded(promising(before, score(accuracy), known, options.training.epochs, each, generator)))
    members = [
        Member(schedule, derive(options.seed, "found", turn, place), options.training.learning_rate, labels)
        for own, labels in zip(points, inputs.labels.values(), strict=True)
        for place, schedule in enumerate(known.decode(own, options.training.epochs))
    ]
    shape = (len(options.noises), each, options.training.epochs)
    return {"points": np.stack(points), "accuracy": _accuracy(inputs, members, listener).reshape(shape)}


def _with(table: ScheduleTable, found: dict[str, NDArray[np.float64]]) -> ScheduleTable:
    return replace(
        table,
        found=np.concatenate([table.found, found["points"]], axis=1),
        found_accuracy=np.concatenate([table.found_accuracy, found["accuracy"]], axis=1),
    )


def _accuracy(inputs: SharedInputs, members: Sequence[Member], listener: ProgressListener) -> NDArray[np.float64]:
    """Train members and return their validation accuracies by epoch, (P, T); 0 where one diverged."""
    curves = inputs.trainer.train(members, on_epoch=listener.epoch).curves
    return np.where(curves.diverged[:, None], 0.0, curves.accuracy[VALIDATION])


def _found(turn: int) -> str:
    return f"found-{turn}.npz"


def _part(which: int) -> str:
    return f"part-{which:04}.npz"
