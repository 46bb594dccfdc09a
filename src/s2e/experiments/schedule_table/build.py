"""Build the schedule table: uniform draws from a space and other points, trained under every noise setting.

Comparing samplers over many repeats takes many thousands of trainings. The table is trained once; a surrogate of it
then predicts the training of any point of the space.

The other points are those that samplers visited in earlier comparisons on data, which no single model chose, and points
that a model of all trainings so far proposes.

Letters: S noise settings, n draws, D dimensions of the space, T epochs, r draws trained again, m times each, v visited
points, q proposed points under each noise setting.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from s2e.engine import VALIDATION, Member
from s2e.experiments.schedule_table.propose import propose_points
from s2e.experiments.schedule_table.table import EVALUATED, ScheduleTable, draw_points, last_error, round_points
from s2e.experiments.schedule_table.visited import visited_points
from s2e.runs import Run, RunLocation, Session
from s2e.schedules import space
from s2e.seeds import derive
from s2e.specs import TableOptions
from s2e.workflows import SILENT, ProgressListener, SharedInputs, load_shared_inputs, network_name

TABLE = "table.npz"

Floats = NDArray[np.float64]


def build_table(
    options: TableOptions, location: RunLocation, listener: ProgressListener = SILENT, *, resume: bool = False
) -> Run:
    """Train every draw under every noise setting, visited points, then rounds of proposed ones; write the table."""
    search_space = space(options.space)
    visited = visited_points(options.visited, options.space)  # (v, D)
    session = Session("reproduce table", options, location, resume=resume)
    inputs = load_shared_inputs(
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
        "data_fingerprint": _fingerprint(inputs, visited),
    }
    points = draw_points(options.draws, search_space.dimension, derive(options.seed, "draws"))  # (n, D)
    schedules = search_space.decode(points, options.training.epochs)  # (n, T)
    entries = _entries(options)  # (n + r m, 2)
    size = options.together // len(options.noises)
    chunks = [entries[first : first + size] for first in range(0, len(entries), size)]
    visited_chunks = [range(first, min(first + size, len(visited))) for first in range(0, len(visited), size)]
    with session.start(about) as run:
        missing = [index for index in range(len(chunks)) if not (run.path / _chunk_file(index)).exists()]
        missing_visited = [
            index for index in range(len(visited_chunks)) if not (run.path / _visited_file(index)).exists()
        ]
        missing_rounds = [index for index in range(options.rounds) if not (run.path / _round_file(index)).exists()]
        populations = len(missing) + len(missing_visited) + len(missing_rounds)
        listener.stage("table", populations * options.training.epochs)
        for index in missing:
            accuracy = _train_entries(inputs, schedules, chunks[index], options, listener)  # (S, entries, T)
            run.write_arrays(_chunk_file(index), {"accuracy": accuracy})
        for index in missing_visited:
            accuracy = _train_visited(inputs, visited, visited_chunks[index], options, listener)  # (S, rows, T)
            run.write_arrays(_visited_file(index), {"accuracy": accuracy})
        settings, epochs = len(options.noises), options.training.epochs
        stored = [
            run.read_floats(_chunk_file(index), {"accuracy": (settings, len(chunk), epochs)})["accuracy"]
            for index, chunk in enumerate(chunks)
        ]
        made_by = {
            **session.settings,
            **about,
            "samples": len(task.train),
            EVALUATED: len(task.evaluate[VALIDATION]) * task.method.networks,
            "versions": session.versions,
            "device": str(task.device),
            "seconds": round(session.seconds, 1),
        }
        accuracy = np.concatenate(stored, axis=1)  # (S, n + r m, T)
        table = ScheduleTable(
            options.space,
            options.noises,
            points,
            accuracy[:, : options.draws],
            accuracy[:, options.draws :].reshape(settings, options.again, options.times, epochs),
            np.zeros((settings, 0, search_space.dimension)),
            np.zeros((settings, 0, epochs)),
            made_by,
        )
        for index, rows in enumerate(visited_chunks):
            shapes = {"accuracy": (settings, len(rows), epochs)}
            own = np.broadcast_to(visited[rows.start : rows.stop], (settings, len(rows), search_space.dimension))
            table = _with_found(table, {"points": own, **run.read_floats(_visited_file(index), shapes)})
        for index in range(options.rounds):
            if index in missing_rounds:
                run.write_arrays(_round_file(index), _train_round(inputs, table, index, options, listener))
            shapes = {"points": (settings, size, search_space.dimension), "accuracy": (settings, size, epochs)}
            table = _with_found(table, run.read_floats(_round_file(index), shapes))
        run.write_arrays(TABLE, table.arrays())
        result = {"table": TABLE, "points": len(points), "visited": len(visited)}
        return session.finish(result, task.device)


def _fingerprint(inputs: SharedInputs, visited: Floats) -> str:
    """Return the fingerprint of the data, and of the visited points if there are any."""
    if not len(visited):
        return inputs.fingerprint()
    return hashlib.blake2b(inputs.fingerprint().encode() + visited.tobytes(), digest_size=8).hexdigest()


def _entries(options: TableOptions) -> NDArray[np.int64]:
    """Return (draw, which training of it) for every training, (n + r m, 2): every draw once, then the repeats."""
    first = [(draw, 0) for draw in range(options.draws)]
    again = [(draw, 1 + time) for draw in range(options.again) for time in range(options.times)]
    return np.array(first + again)


def _train_entries(
    inputs: SharedInputs,
    schedules: Floats,
    entries: NDArray[np.int64],
    options: TableOptions,
    listener: ProgressListener,
) -> Floats:
    """Train some of the entries under every noise setting; return their validation accuracies (S, entries, T)."""
    members = [
        Member(schedules[draw], derive(options.seed, "table", draw, time), options.training.learning_rate, labels)
        for labels in inputs.labels.values()
        for draw, time in entries.tolist()
    ]
    return _train(inputs, members, listener).reshape(len(inputs.labels), len(entries), options.training.epochs)


def _train_visited(
    inputs: SharedInputs, visited: Floats, rows: range, options: TableOptions, listener: ProgressListener
) -> Floats:
    """Train some of the visited points under every noise setting; return their validation accuracies (S, rows, T)."""
    epochs = options.training.epochs
    schedules = space(options.space).decode(visited[rows.start : rows.stop], epochs)
    members = [
        Member(schedule, derive(options.seed, "visited", row), options.training.learning_rate, labels)
        for labels in inputs.labels.values()
        for row, schedule in zip(rows, schedules, strict=True)
    ]
    return _train(inputs, members, listener).reshape(len(inputs.labels), len(rows), epochs)


def _train_round(
    inputs: SharedInputs, table: ScheduleTable, index: int, options: TableOptions, listener: ProgressListener
) -> dict[str, Floats]:
    """Propose points for every noise setting, and train them; return points (S, q, D) and accuracies (S, q, T)."""
    search_space, epochs, size = space(options.space), options.training.epochs, options.together // len(options.noises)
    proposed = []
    for setting, noise in enumerate(options.noises):
        points, accuracy = table.trained(noise)
        generator = np.random.default_rng(derive(options.seed, "promising", index, setting))
        found = propose_points(points, last_error(accuracy), search_space, epochs, size, generator)
        proposed.append(round_points(found))
    members = [
        Member(schedule, derive(options.seed, "found", index, row), options.training.learning_rate, labels)
        for points, labels in zip(proposed, inputs.labels.values(), strict=True)
        for row, schedule in enumerate(search_space.decode(points, epochs))
    ]
    accuracy = _train(inputs, members, listener).reshape(len(options.noises), size, epochs)
    return {"points": np.stack(proposed), "accuracy": accuracy}


def _with_found(table: ScheduleTable, found: dict[str, Floats]) -> ScheduleTable:
    return replace(
        table,
        found=np.concatenate([table.found, found["points"]], axis=1),
        found_accuracy=np.concatenate([table.found_accuracy, found["accuracy"]], axis=1),
    )


def _train(inputs: SharedInputs, members: Sequence[Member], listener: ProgressListener) -> Floats:
    """Train members; return their validation accuracies by epoch, (P, T), or 0 for members that diverged."""
    curves = inputs.trainer.train(members, on_epoch=listener.epoch).curves
    return np.where(curves.diverged[:, None], 0.0, curves.accuracy[VALIDATION])


def _round_file(index: int) -> str:
    return f"found-{index}.npz"


def _visited_file(index: int) -> str:
    return f"visited-{index:04}.npz"


def _chunk_file(index: int) -> str:
    return f"part-{index:04}.npz"
