"""Search algorithms compared: the best validation error each has found after how many trainings, over many repeats.

On the schedule table a search takes a second, and hundreds of them say what one cannot. On real data every training
is real: the generations of all searches are trained as one population.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import torch
from threadpoolctl import threadpool_limits

from s2e.errors import InvalidInput
from s2e.experiments.incumbent_curves import Trace, averaged, compared, rows
from s2e.experiments.schedule_table.surrogate import TableSurrogate
from s2e.experiments.schedule_table.table import ScheduleTable, published
from s2e.experiments.search_figures import draw_searches
from s2e.plots import render
from s2e.runs.csv_files import csv_text
from s2e.runs.directory import Run
from s2e.runs.session import RunLocation, Session
from s2e.samplers import SAMPLERS
from s2e.seeds import derive
from s2e.specs import ALL, PAPER_NOISES, SearchersOptions
from s2e.studies import VALIDATION_ACCURACY, finished_trials, run_generations
from s2e.studies.plan import Search, SearchPlan, plan_search
from s2e.workflows.pipeline import find_schedules
from s2e.workflows.progress import SILENT, ProgressListener
from s2e.workflows.run_files import network_name
from s2e.workflows.shared_inputs import shared_inputs

TABLE = "table"
"""Where searches run when not on data: the table that comes with this package."""
DEFAULT = "curve"
YARDSTICKS = ("random", "tpe")


@dataclass(frozen=True)
class Comparison:
    """What is compared: the options, with the samplers by name and the budget of each."""

    options: SearchersOptions

    @property
    def samplers(self) -> tuple[str, ...]:
        """Names of the samplers, each once."""
        names = self.options.samplers
        return tuple(SAMPLERS) if names == (ALL,) else names

    @property
    def budgets(self) -> dict[str, int]:
        """Full trainings of each sampler."""
        trials, random_trials = self.options.search.trials or 0, self.options.random_trials
        return {name: random_trials if name == "random" else trials for name in self.samplers}

    def plan(self, sampler: str, repeat: int, epochs: int) -> SearchPlan:
        """Return the plan of one search; repeats differ in the seed, noise settings do not."""
        spec = replace(self.options.search, sampler=sampler, trials=self.budgets[sampler])
        training = replace(self.options.training, epochs=epochs)
        return plan_search(spec, training, derive(self.options.seed, "searchers", sampler, repeat))

    def check(self) -> None:
        """Refuse unknown or repeated samplers."""
        if len(set(self.samplers)) < len(self.samplers):
            raise InvalidInput(f"`samplers` must name each sampler once, but got {', '.join(self.samplers)}.")
        for sampler in self.samplers:
            self.plan(sampler, 0, self.options.training.epochs)


def compare_searchers(
    options: SearchersOptions, location: RunLocation, listener: ProgressListener = SILENT, *, resume: bool = False
) -> Run:
    """Run every search and write what they found: tables, and a figure."""
    Comparison(options).check()
    session = Session("reproduce searchers", options, location, resume=resume)
    if options.on == TABLE or options.on.startswith(f"{TABLE}:"):
        return _on_table(session, listener)
    return _on_data(session, listener)


# -------------------------------------------------------------------------------------------------------- on the table


def _on_table(session: Session[SearchersOptions], listener: ProgressListener) -> Run:
    options, comparison = session.options, Comparison(session.options)
    path = published() if options.on == TABLE else Path(options.on.partition(":")[2])
    table = ScheduleTable.read(path)
    noises = options.noises or table.noises
    jobs = options.jobs or os.cpu_count() or 1
    models = {noise: TableSurrogate(table, noise) for noise in noises}
    with session.start({"data_fingerprint": _hashed(path), "table": dict(table.about)}) as run:
        with ProcessPoolExecutor(jobs, initializer=_begin_process, initargs=(models,)) as pool:
            for sampler in comparison.samplers:  # finished samplers survive an interruption
                if (run.path / _file(sampler)).exists():
                    continue
                searches = product([comparison], [sampler], noises, range(options.repeats))
                found = pool.map(_searched_on_table, searches, chunksize=4)
                run.write_arrays(_file(sampler), dict(_stored(found)))
                listener.note(f"{sampler}: {options.repeats * len(noises)} searches, {session.seconds:.0f} s so far")
        traces = [trace for sampler in comparison.samplers for trace in _restored(sampler, run)]
        checked = {noise: model.held_out() for noise, model in models.items()}
        about = {"epochs": table.epochs, "surrogate": checked, "processes": jobs}
        return session.finish(_write(run, comparison, traces, about), torch.device("cpu"))


def _file(sampler: str) -> str:
    return f"traces-{sampler}.npz"


def _stored(traces: Iterable[Trace]) -> Iterator[tuple[str, Any]]:
    for trace in traces:
        yield f"{trace.noise}/{trace.repeat}", np.stack([trace.spent, trace.errors])  # (2, n)


def _restored(sampler: str, run: Run) -> Iterator[Trace]:
    for name, (spent, errors) in run.read_arrays(_file(sampler)).items():
        noise, _, repeat = name.rpartition("/")
        yield Trace(sampler, noise, int(repeat), spent, errors)


_MODELS: dict[str, TableSurrogate] = {}
"""The models that this process searches on."""


def _begin_process(models: dict[str, TableSurrogate]) -> None:
    _MODELS.update(models)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    threadpool_limits(1)
    torch.set_num_threads(1)  # one process for each core is enough


def _searched_on_table(what: tuple[Comparison, str, str, int]) -> Trace:
    """Run one search; what it found counts by its expected error, not by the luck it was told."""
    comparison, sampler, noise, repeat = what
    model = _MODELS[noise]
    plan = comparison.plan(sampler, repeat, model.epochs)
    study = optuna.create_study(direction="minimize", study_name=f"{sampler}-{repeat}")
    run_generations(model.train, model.epochs, [Search(plan, study)])
    spent, points, errors = _told(study, plan, model.epochs)
    expected = model.error(plan.space.decode(points, model.epochs))
    return Trace(sampler, noise, repeat, spent, np.where(np.isnan(errors), np.nan, expected))


def _hashed(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest()


# ------------------------------------------------------------------------------------------------------------- on data


def _on_data(session: Session[SearchersOptions], listener: ProgressListener) -> Run:
    options, comparison = session.options, Comparison(session.options)
    noises = options.noises or PAPER_NOISES
    inputs = shared_inputs(
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
    with session.start(about) as run:
        searches = {
            (sampler, noise, repeat): Search(
                comparison.plan(sampler, repeat, epochs),
                session.study(sampler, noise, str(repeat)),
                inputs.labels[noise],
            )
            for sampler, noise, repeat in product(comparison.samplers, noises, range(options.repeats))
        }
        find_schedules(inputs.task, list(searches.values()), listener=listener)
        traces = [_trace(key, search, epochs) for key, search in searches.items()]
        return session.finish(_write(run, comparison, traces, {"epochs": epochs}), inputs.task.device)


def _trace(key: tuple[str, str, int], search: Search, epochs: int) -> Trace:
    spent, _, errors = _told(search.study, search.plan, epochs)
    return Trace(*key, spent, errors)


# ----------------------------------------------------------------------------------------------------------------- both


def _told(study: optuna.Study, plan: SearchPlan, epochs: int) -> tuple[Any, Any, Any]:
    """Return what the finished trials had cost together when each was over (n,), their points (n, D) and errors (n,).

    A trial that was stopped early has a cost, but no error: nobody would take its schedule.
    """
    trials = sorted(finished_trials(study), key=lambda trial: trial.number)
    costs = [len(trial.user_attrs[VALIDATION_ACCURACY]) / epochs for trial in trials]
    points = np.array([[trial.params[name] for name in plan.space.names] for trial in trials])
    complete = [trial.state == optuna.trial.TrialState.COMPLETE for trial in trials]
    errors = [trial.values[0] if whole else np.nan for trial, whole in zip(trials, complete, strict=True)]
    return np.cumsum(costs), points, np.array(errors)


def _write(run: Run, comparison: Comparison, traces: Sequence[Trace], about: Mapping[str, Any]) -> dict[str, Any]:
    """Write tables and the figure; return the result."""
    means = averaged(traces, comparison.budgets)
    run.write_text("searchers.csv", csv_text(rows(means)))
    run.write_arrays("repeats.npz", dict(_repeats(traces, comparison.budgets)))
    figure = draw_searches(means)
    for kind in ("png", "svg"):
        run.write_bytes(f"searchers.{kind}", render(figure, kind))
    return {
        "on": comparison.options.on,
        "repeats": comparison.options.repeats,
        "summary": [
            {"sampler": each.sampler, "noise": each.noise, "trainings": spent, "error": float(each.mean[spent - 1])}
            | {"low": float(each.low[spent - 1]), "high": float(each.high[spent - 1])}
            for each in means
            for spent in _shown(len(each.mean))
        ],
        "needed": compared(means, default=DEFAULT, yardsticks=YARDSTICKS),
        **about,
    }


def _shown(budget: int) -> list[int]:
    """Numbers of trainings that a table shows: 30, 60, 120, … and the last."""
    return sorted({spent for spent in (12, 30, 60, 120) if spent < budget} | {budget})


def _repeats(traces: Sequence[Trace], budgets: Mapping[str, int]) -> Iterator[tuple[str, Any]]:
    """Every repeat's smallest error by trainings spent, (R, B), by algorithm and noise setting."""
    together: dict[tuple[str, str], list[Any]] = {}
    for trace in traces:
        together.setdefault((trace.sampler, trace.noise), []).append(trace.best(budgets[trace.sampler]))
    for (sampler, noise), found in together.items():
        yield f"{sampler}/{noise}", np.stack(found).astype(np.float32)
