"""Comparison of samplers: the smallest validation error found against full trainings spent, over many repeats.

On the schedule table a search takes about a second, so that hundreds of repeats are feasible. On data every training
is real; the generations of all searches are trained as one population.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import torch
from numpy.typing import NDArray
from optuna.trial import FrozenTrial, TrialState
from threadpoolctl import threadpool_limits

from s2e.errors import InvalidInput, UnreadableData, WorkerFailed
from s2e.experiments.claims import Claim
from s2e.experiments.figures import draw_incumbents, write_figure
from s2e.experiments.incumbent_curves import (
    IncumbentCurve,
    best_errors,
    curve_rows,
    mean_curves,
    mean_returned,
    trainings_needed,
    trials_within,
)
from s2e.experiments.pages import PAGE
from s2e.experiments.sampler_page import COMMAND, claims_of, page_of
from s2e.experiments.schedule_table.surrogate import TableSurrogate
from s2e.experiments.schedule_table.table import PUBLISHED, ScheduleTable
from s2e.files.fields import shown
from s2e.runs import Run, RunLocation, Session, csv_text
from s2e.samplers import SAMPLERS
from s2e.seeds import derive
from s2e.specs import ALL, PAPER_NOISES, SamplersOptions
from s2e.studies import (
    VALIDATION_ACCURACY,
    Search,
    SearchPlan,
    best_of,
    finished_trials,
    open_study,
    plan_search,
    point_of,
    run_generations,
)
from s2e.workflows import SILENT, ProgressListener, find_schedules, load_shared_inputs, network_name

TABLE = "table"
"""Value of `on` for the published table; `table:FILE` is another one."""
REFERENCES = ("random", "tpe", "tpe-multivariate")
"""Samplers whose final error the others are compared with."""
SUMMARISED = (12, 30, 60, 120)
"""Numbers of trainings in the summary, besides the last."""

Floats = NDArray[np.float64]


def compare_samplers(
    options: SamplersOptions, location: RunLocation, listener: ProgressListener = SILENT, *, resume: bool = False
) -> Run:
    """Run every search, and write the errors found as tables and a figure."""
    samplers = sampler_names(options)
    if not samplers or len(set(samplers)) < len(samplers):
        raise InvalidInput(f"`samplers` must name each sampler once, but got {', '.join(samplers) or 'none'}.")
    for sampler in samplers:
        plan_of(options, sampler, 0, options.training.epochs)  # raises if the options are invalid
    on_table = is_table(options.on)
    for name, given in (("only_draws", options.only_draws), ("resample", options.resample is not None)):
        if given and not on_table:
            raise InvalidInput(f"`{name}` must be used with a table of schedules, but got on={options.on!r}.")
    session = Session(COMMAND, options, location, resume=resume)
    return _compare_on_table(session, listener) if on_table else _compare_on_data(session, listener)


def is_table(on: str) -> bool:
    """Return whether `on` names a table of schedules, and not data."""
    return on == TABLE or on.startswith(f"{TABLE}:")


def read_table(on: str, *, only_draws: bool) -> tuple[ScheduleTable, str]:
    """Return the published table of schedules or that of `table:FILE`, and the fingerprint of its file."""
    if not is_table(on):
        raise InvalidInput(f"`on` must be {TABLE} or {TABLE}:FILE, but got {on!r}.")
    path = PUBLISHED if on == TABLE else Path(on.partition(":")[2])
    table = ScheduleTable.read(path)
    fingerprint = hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest()
    return table.only_draws() if only_draws else table, fingerprint


def sampler_names(options: SamplersOptions) -> tuple[str, ...]:
    """Return the names of the samplers that are compared."""
    return tuple(SAMPLERS) if options.samplers == (ALL,) else options.samplers


def budget_of(options: SamplersOptions, sampler: str) -> int:
    """Return B, the full trainings that a sampler may spend."""
    return options.random_trials if sampler == "random" else options.search.trials or 0  # the options check it


def plan_of(options: SamplersOptions, sampler: str, repeat: int, epochs: int) -> SearchPlan:
    """Return the plan of one search; its seed depends on the repeat, not on the noise setting."""
    spec = replace(options.search, sampler=sampler, trials=budget_of(options, sampler))
    training = replace(options.training, epochs=epochs)
    return plan_search(spec, training, derive(options.seed, "searchers", sampler, repeat))


# --------------------------------------------------------------------------------------------------------- on the table


def _compare_on_table(session: Session[SamplersOptions], listener: ProgressListener) -> Run:
    """Search on surrogates of a table, each search in one of several processes."""
    options = session.options
    table, fingerprint = read_table(options.on, only_draws=options.only_draws)
    noises = options.noises or table.noises
    jobs = options.jobs or os.cpu_count() or 1
    surrogates = {noise: TableSurrogate(table, noise, options.resample) for noise in noises}
    with session.start({"data_fingerprint": fingerprint, "table": dict(table.about)}) as run:
        with ProcessPoolExecutor(jobs, initializer=_start_process, initargs=(surrogates, os.getpid())) as pool:
            for sampler in sampler_names(options):  # samplers already finished are kept after an interruption
                if (run.path / _file(sampler)).exists():
                    continue
                searches = product([options], [sampler], noises, range(options.repeats))
                try:
                    _write_curves(run, sampler, pool.map(_search_on_table, searches, chunksize=4))
                except BrokenProcessPool as problem:
                    raise WorkerFailed(
                        f"one of {jobs} processes that search on the table ended, perhaps because memory was short; "
                        "finished samplers are kept: continue with --resume, and with fewer --jobs."
                    ) from problem
                listener.note(f"{sampler}: {options.repeats * len(noises)} searches, {session.seconds:.0f} s so far")
        curves = [curve for sampler in sampler_names(options) for curve in _read_curves(run, sampler)]
        held_out = {noise: surrogate.held_out() for noise, surrogate in surrogates.items()}
        trainings = {"draws": len(table.points), "others": table.found.shape[1]}
        about = {"epochs": table.epochs, "table": trainings, "surrogate": held_out, "processes": jobs}
        return _finish(run, session, curves, about, torch.device("cpu"), fingerprint)


def _file(sampler: str) -> str:
    return f"traces-{sampler}.npz"


def _write_curves(run: Run, sampler: str, curves: Iterable[IncumbentCurve]) -> None:
    arrays = {
        f"{curve.noise}/{curve.repeat}": np.stack([curve.spent, curve.errors, curve.returned])  # (3, n)
        for curve in curves
    }
    run.write_arrays(_file(sampler), arrays)


def _read_curves(run: Run, sampler: str) -> Iterator[IncumbentCurve]:
    for name, curve in run.read_arrays(_file(sampler)).items():
        noise, _, repeat = name.rpartition("/")
        if not repeat.isdecimal() or curve.dtype != np.float64 or curve.ndim != 2 or len(curve) != 3:
            raise UnreadableData(
                f"{str(run.path / _file(sampler))!r} is damaged: {shown(name)} is not the curve of a search."
            )
        yield IncumbentCurve(sampler, noise, int(repeat), *curve)


_SURROGATES: dict[str, TableSurrogate] = {}
"""The surrogates of a worker process, by noise setting."""


WATCH_SECONDS = 0.5
"""Time between two looks of a worker process at its parent."""


def _start_process(surrogates: dict[str, TableSurrogate], parent: int) -> None:
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    _SURROGATES.update(surrogates)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    threadpool_limits(1)  # there is one process for each core
    torch.set_num_threads(1)


def _end_with(parent: int) -> None:
    """End this process when its parent has ended, also by SIGKILL: it would wait forever, and hold the run's lock."""
    while os.getppid() == parent:
        time.sleep(WATCH_SECONDS)
    os._exit(1)


def _search_on_table(search: tuple[SamplersOptions, str, str, int]) -> IncumbentCurve:
    """Run one search; the curve has the expected errors of its schedules, without the noise of the search's scores."""
    options, sampler, noise, repeat = search
    surrogate = _SURROGATES[noise]
    plan = plan_of(options, sampler, repeat, surrogate.epochs)
    study = optuna.create_study(direction="minimize", study_name=f"{sampler}-{repeat}")
    run_generations(surrogate.train, surrogate.epochs, [Search(plan, study)])
    spent, points, errors = _trials(study, plan, surrogate.epochs)
    expected = np.where(np.isnan(errors), np.nan, surrogate.error(plan.space.decode(points, surrogate.epochs)))
    returned = _returned(study, plan, surrogate.epochs, spent, expected)
    return IncumbentCurve(sampler, noise, repeat, spent, expected, returned)


# -------------------------------------------------------------------------------------------------------------- on data


def _compare_on_data(session: Session[SamplersOptions], listener: ProgressListener) -> Run:
    """Search on data, all searches together."""
    options = session.options
    noises = options.noises or PAPER_NOISES
    inputs = load_shared_inputs(
        options.on,
        noises,
        options.training,
        session.location,
        seed=options.seed,
        validation_share=options.validation_share,
    )
    epochs = inputs.task.epochs
    about = {
        "network": network_name(str(options.training.network), inputs.task.train),
        "data_fingerprint": inputs.fingerprint(),
    }
    fixed = {name: value for name, value in session.settings.items() if name not in options.MUTABLE_ON_RESUME}
    with session.start(about) as run:
        searches = {
            (sampler, noise, repeat): Search(
                plan_of(options, sampler, repeat, epochs),
                # Not `session.study`: Hyperband assigns brackets by study name, and published results have these names.
                open_study(run.storage, f"{sampler}/{noise}/{repeat}", fixed),
                inputs.labels[noise],
            )
            for sampler, noise, repeat in product(sampler_names(options), noises, range(options.repeats))
        }
        find_schedules(inputs.task, list(searches.values()), listener=listener)
        curves = []
        for key, search in searches.items():
            spent, _, errors = _trials(search.study, search.plan, epochs)
            returned = _returned(search.study, search.plan, epochs, spent, errors)
            curves.append(IncumbentCurve(*key, spent, errors, returned))
        return _finish(run, session, curves, {"epochs": epochs}, inputs.task.device, about["data_fingerprint"])


# ----------------------------------------------------------------------------------------------------------------- both


def _trials(study: optuna.Study, plan: SearchPlan, epochs: int) -> tuple[Floats, Floats, Floats]:
    """Return full trainings spent (n,), points (n, D) and errors (n,) of the finished trials, by number.

    A trial that was stopped early has a cost but no error: its schedule would not be selected.
    """
    trials = _by_number(study)
    costs = [len(trial.user_attrs[VALIDATION_ACCURACY]) / epochs for trial in trials]
    points = np.stack([point_of(trial, plan.space) for trial in trials])
    errors = [trial.values[0] if trial.state == TrialState.COMPLETE else np.nan for trial in trials]
    return np.cumsum(costs), points, np.array(errors)


def _by_number(study: optuna.Study) -> list[FrozenTrial]:
    return sorted(finished_trials(study), key=lambda trial: trial.number)


def _returned(study: optuna.Study, plan: SearchPlan, epochs: int, spent: Floats, errors: Floats) -> Floats:
    """Return the error of the schedule that the search would return, (n,), at the summarised numbers of trainings."""
    trials, returned = _by_number(study), np.full(len(spent), np.nan)
    for trainings in summarised(plan.trials):
        within = trials_within(spent, trainings)
        complete = {trial.number: row for row, trial in enumerate(trials[:within]) if np.isfinite(errors[row])}
        if complete:
            best = best_of([trials[row] for row in complete.values()], plan.space, epochs)
            returned[within - 1] = errors[complete[best.trial]]
    return returned


def summarised(budget: int) -> list[int]:
    """Return the numbers of trainings in the summary of a sampler."""
    return [*(count for count in SUMMARISED if count < budget), budget]


def _finish(
    run: Run,
    session: Session[SamplersOptions],
    curves: Sequence[IncumbentCurve],
    about: Mapping[str, Any],
    device: torch.device,
    fingerprint: str,
) -> Run:
    """Write the tables, the figure, the page and the result."""
    result = _write_results(run, session.options, curves, about)
    claims = [Claim.from_row(row) for row in result["claims"]]
    made = {session.options.on: {**session.made_on(device), "data_fingerprint": fingerprint}}
    text = page_of(run, result, claims, made, session.options.scale)
    return session.finish(result, device, lambda: run.write_text(PAGE, text))


def _write_results(
    run: Run, options: SamplersOptions, curves: Sequence[IncumbentCurve], about: Mapping[str, Any]
) -> dict[str, Any]:
    """Write the tables and the figure; return the result."""
    budgets = {sampler: budget_of(options, sampler) for sampler in sampler_names(options)}
    errors = best_errors(curves, budgets)
    means = mean_curves(errors)
    needed = trainings_needed(errors, references=REFERENCES, seed=options.seed)
    run.write_text("searchers.csv", csv_text(curve_rows(means)))
    run.write_text("needed.csv", csv_text(needed))
    repeats = {f"{sampler}/{noise}": best.astype(np.float32) for (sampler, noise), best in errors.items()}
    run.write_arrays("repeats.npz", repeats)
    write_figure(run, "searchers", draw_incumbents(means))
    return {
        "on": options.on,
        "repeats": options.repeats,
        "claims": [claim.row() for claim in claims_of(means, options.search.trials or 0)],
        "summary": [
            _known({**mean.row(trainings), **mean_returned(searches, trainings)})
            for mean in means
            for searches in [[curve for curve in curves if (curve.sampler, curve.noise) == (mean.sampler, mean.noise)]]
            for trainings in summarised(mean.budget)
        ],
        "needed": needed,
        **about,
    }


def _known(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with None in place of NaN, which JSON does not have."""
    return {name: None if value != value else value for name, value in row.items()}
