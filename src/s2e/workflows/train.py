"""`s2e train` without parsing or printing: train one method with a given schedule, test it once, write the run."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from s2e import schedules
from s2e.data import check_preparation, check_transition_matrix, prepare, read_matrix
from s2e.engine import FinalTraining
from s2e.errors import InvalidInput
from s2e.methods import Need, method
from s2e.runs import Run, RunLocation, Session
from s2e.specs import TrainOptions
from s2e.workflows.defaults import longest, sized
from s2e.workflows.pipeline import audit_records, check_choices, folds_of, prepared_task, train_final, write_early
from s2e.workflows.progress import SILENT, ProgressListener
from s2e.workflows.run_files import about_run, result, write_columns, write_final
from s2e.workflows.time_budget import can_be_timed, expected_time, population_seconds


def train(
    options: TrainOptions, location: RunLocation, listener: ProgressListener = SILENT, *, resume: bool = False
) -> Run:
    """Train one method with a given schedule, test it once, write the run."""
    check_preparation(options.dataset, [options.noise])
    options = replace(options, training=replace(options.training, epochs=_given_epochs(options)))
    check_choices(options.training, options.method, location.execution)
    _schedule(options, longest(options.training).epochs)  # refuses invalid ones before data are loaded
    given_transition = _given_transition(options)
    session = Session("train", options, location, resume=resume)
    options = session.options
    prepared = prepare(options.dataset, options.noise, options.seed, location.root)
    training = sized(options.training, prepared.splits.train, options.dataset.data)
    schedule = _schedule(options, training.epochs)
    task = prepared_task(prepared, training, options.method, seed=options.seed, location=location)
    transition = None if given_transition is None else check_transition_matrix(given_transition, task.train.classes)
    network = str(training.network)
    with session.start(about_run(network, prepared), replace(options, training=training)) as run:
        write_columns(run, prepared, listener)
        content = {"keep_rates": schedule.tolist()}
        folds = folds_of(task, options.folds, options.seed)
        write_early(run, content)
        final = FinalTraining(task.method.name, task.method, schedule, transition=transition, folds=folds)
        if listener is not SILENT and can_be_timed(task):
            members = final.members(training.learning_rate, options.seed)
            line = expected_time(population_seconds(task, members), task.device, ["fewer `--epochs`"])
            if line is not None:
                listener.note(line)
        selected = train_final(
            task,
            [final],
            learning_rate=training.learning_rate,
            seed=options.seed,
            test=prepared.splits.test,
            listener=listener,
            stage="training",
        )
        records = audit_records(selected[-1], prepared.splits.valid if prepared.validation == "noisy" else None)
        write = partial(write_final, run, network, options.dataset, prepared, selected, records, content)
        return session.finish(result(prepared, selected, prepared.validation, searched=False), task.device, write)


def _given_epochs(options: TrainOptions) -> int | None:
    """Return the given number of epochs, or that of a schedule in a file."""
    if options.training.epochs is None and options.schedule.endswith(".json"):
        return len(schedules.parse_schedule(options.schedule))
    return options.training.epochs


def _schedule(options: TrainOptions, epochs: int) -> NDArray[np.float64]:
    """Read the schedule; a method without a keep rate needs none."""
    if options.schedule:
        return schedules.parse_schedule(options.schedule, epochs)
    if Need.SCHEDULE in method(options.method).needs:
        raise InvalidInput(
            f"`schedule` must be given for {options.method}: constant:RATE, coteaching:NOISE_RATE, or a schedule.json."
        )
    return schedules.constant(1.0, epochs)


def _given_transition(options: TrainOptions) -> ArrayLike | None:
    """Read the transition matrix, for a method that needs one; its shape is checked when the classes are known."""
    if not options.transition:
        return None
    if Need.TRANSITION not in method(options.method).needs:
        raise InvalidInput(f"`transition` must be used with a method that needs one, but {options.method} does not.")
    return read_matrix(options.transition)
