"""Search algorithms compared: the best validation error each has found after how many trainings, over many repeats.

On the schedule table a search takes a second, and hundreds of them say what one cannot. On real data every training
is real: the generations of all searches are trained as one population.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import torch
from threadpoolctl import threadpool_limits

from s2e.errors import InvalidInput
from s2e.experiments.incumbent_curves import Trace, averaged, compared, rows
from s2e.experiments.schedule_table.build import NOISES
from s2e.experiments.schedule_table.surrogate import TableSurrogate
from s2e.experiments.schedule_table.table import ScheduleTable, published
from s2e.experiments.search_figures import draw_searches
from s2e.plots.drawing import render
from s2e.runs.csv_files import csv_text
from s2e.runs.directory import CONFIG, Run
from s2e.runs.session import RunLocation, begin, ending
from s2e.samplers import SAMPLERS
from s2e.seeds import derive
from s2e.studies.loop import TRAINED, epochs_left, finished, run_generations, search_schedules
from s2e.studies.plan import Search, SearchPlan
from s2e.studies.storage import open_study
from s2e.workflows.bench import TrainingOptions, bench, network_name
from s2e.workflows.progress import ProgressListener

TABLE = "table"
"""Where searches run when not on data: on the table that comes with this package."""
MUTABLE_ON_RESUME = frozenset({"samplers"})
"""What may change when a comparison is continued: more algorithms may join those that are finished."""
DEFAULT = "curve"
YARDSTICKS = ("random", "tpe")


@dataclass(frozen=True)
class SearchersOptions:
    """What is compared.

    Attributes:
        on: "table", "table:FILE" for another one than the package's, or the data on which every training is real.
        samplers: algorithms, by their names.
        noises: noise settings; all of a table's when empty.
        repeats: searches of each algorithm under each noise setting.
        trials: full trainings of a search.
        random_trials: full trainings of random search, which needs more of them.
        generation: K.
        space: the family of schedules.
        epochs: T, on data; a table has its own.
    """

    on: str = TABLE
    samplers: tuple[str, ...] = tuple(SAMPLERS)
    noises: tuple[str, ...] = ()
    repeats: int = 100
    trials: int = 60
    random_trials: int = 300
    generation: int = 6
    space: str = "s2e"
    network: str = "auto"
    epochs: int = 40
    batch_size: int = 128
    learning_rate: float = 1e-3
    validation_share: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("repeats", "trials", "random_trials", "generation"):
            if getattr(self, name) < 1:
                raise InvalidInput(f"`{name}` must be at least 1, but got {getattr(self, name)}.")
        if not self.samplers or len(set(self.samplers)) < len(self.samplers):
            raise InvalidInput(f"`samplers` must name each algorithm once, but got {', '.join(self.samplers)}.")
        for sampler in self.samplers:  # a wrong one is refused before anything is begun
            self.plan(sampler, 0, self.epochs)

    @property
    def budgets(self) -> dict[str, int]:
        """Full trainings of each algorithm."""
        return {name: self.random_trials if name == "random" else self.trials for name in self.samplers}

    def plan(self, sampler: str, repeat: int, epochs: int) -> SearchPlan:
        """Return the plan of one search; repeats differ in the seed, noise settings do not."""
        return SearchPlan.named(
            self.space,
            sampler,
            epochs=epochs,
            trials=self.budgets[sampler],
            generation=self.generation,
            learning_rate=self.learning_rate,
            seed=derive(self.seed, "searchers", sampler, repeat),
        )


def compare_searchers(
    options: SearchersOptions,
    place: RunLocation,
    watch: ProgressListener,
    *,
    jobs: int | None = None,
    resume: bool = False,
) -> Run:
    """Run every search and write what they found: tables, and a figure.

    Args:
        options: what is compared.
        place: where it works.
        watch: is told how it goes along.
        jobs: processes that search on a table; all cores when None.
        resume: continue what was begun.
    """
    began = time.monotonic()
    if options.on == TABLE or options.on.startswith(f"{TABLE}:"):
        return _on_table(options, place, watch, jobs or os.cpu_count() or 1, began, resume=resume)
    return _on_data(options, place, watch, began, resume=resume)


# -------------------------------------------------------------------------------------------------------- on the table


def _on_table(
    options: SearchersOptions, place: RunLocation, watch: ProgressListener, jobs: int, began: float, *, resume: bool
) -> Run:
    path = published() if options.on == TABLE else Path(options.on.partition(":")[2])
    table = ScheduleTable.read(path)
    noises = options.noises or table.noises
    about = {"data_fingerprint": _hashed(path), "table": dict(table.about)}
    tabled = {noise: TableSurrogate(table, noise) for noise in noises}
    run, config = begin("reproduce searchers", options, about, place, resume=resume, changeable=MUTABLE_ON_RESUME)
    with run.locked():
        run.write_json(CONFIG, config)
        with ProcessPoolExecutor(jobs, initializer=_begin_process, initargs=(tabled,)) as pool:
            for sampler in options.samplers:  # what is finished survives an interruption
                if (run.path / _file(sampler)).exists():
                    continue
                searches = product([options], [sampler], noises, range(options.repeats))
                found = pool.map(_searched_on_table, searches, chunksize=4)
                run.write_arrays(_file(sampler), dict(_stored(found)))
                watch.note(
                    f"{sampler}: {options.repeats * len(noises)} searches, {time.monotonic() - began:.0f} s so far"
                )
        traces = [trace for sampler in options.samplers for trace in _restored(sampler, run)]
        checked = {noise: model.held_out() for noise, model in tabled.items()}
        about_table = {"epochs": table.epochs, "surrogate": checked}
        _write(run, options, traces, {**about_table, **ending(torch.device("cpu"), began), "processes": jobs})
    return run


def _file(sampler: str) -> str:
    return f"traces-{sampler}.npz"


def _stored(traces: Iterable[Trace]) -> Iterator[tuple[str, Any]]:
    for trace in traces:
        yield f"{trace.noise}/{trace.repeat}", np.stack([trace.spent, trace.errors])  # (2, n)


def _restored(sampler: str, run: Run) -> Iterator[Trace]:
    for name, (spent, errors) in run.read_arrays(_file(sampler)).items():
        noise, _, repeat = name.rpartition("/")
        yield Trace(sampler, noise, int(repeat), spent, errors)


_TABLED: dict[str, TableSurrogate] = {}
"""The models that this process searches on."""


def _begin_process(tabled: dict[str, TableSurrogate]) -> None:
    _TABLED.update(tabled)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    threadpool_limits(1)
    torch.set_num_threads(1)  # one process for each core is enough


def _searched_on_table(what: tuple[SearchersOptions, str, str, int]) -> Trace:
    """Run one search; what it found counts by its expected error, not by the luck it was told."""
    options, sampler, noise, repeat = what
    model = _TABLED[noise]
    plan = options.plan(sampler, repeat, model.epochs)
    study = optuna.create_study(direction="minimize", study_name=f"{sampler}-{repeat}")
    run_generations(model.train, model.epochs, [Search(plan, study)])
    spent, points, errors = _told(study, plan, model.epochs)
    expected = model.error(plan.space.decode(points, model.epochs))
    return Trace(sampler, noise, repeat, spent, np.where(np.isnan(errors), np.nan, expected))


def _hashed(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest()


# ------------------------------------------------------------------------------------------------------------- on data


def _on_data(
    options: SearchersOptions, place: RunLocation, watch: ProgressListener, began: float, *, resume: bool
) -> Run:
    noises = options.noises or NOISES
    training = TrainingOptions(
        options.on,
        validation_share=options.validation_share,
        seed=options.seed,
        network=options.network,
        epochs=options.epochs,
        batch_size=options.batch_size,
        learning_rate=options.learning_rate,
    )
    on = bench(training, noises, place.root, place.device)
    about = {
        "network": network_name(options.network, on.task.train),
        "data_fingerprint": on.fingerprint(),
    }
    run, config = begin("reproduce searchers", options, about, place, resume=resume, changeable=MUTABLE_ON_RESUME)
    with run.locked():
        run.write_json(CONFIG, config)
        lasting = {name: value for name, value in config["options"].items() if name not in MUTABLE_ON_RESUME}
        searches = {
            (sampler, noise, repeat): Search(
                options.plan(sampler, repeat, options.epochs),
                open_study(run.storage, f"{sampler}/{noise}/{repeat}", lasting),
                on.labels[noise],
            )
            for sampler, noise, repeat in product(options.samplers, noises, range(options.repeats))
        }
        watch.stage("search", epochs_left(list(searches.values()), options.epochs))
        search_schedules(on.task, list(searches.values()), on_generation=watch.generation, on_epoch=watch.epoch)
        traces = [_trace(key, search, options.epochs) for key, search in searches.items()]
        _write(run, options, traces, {"epochs": options.epochs, **ending(on.task.device, began)})
    return run


def _trace(key: tuple[str, str, int], search: Search, epochs: int) -> Trace:
    spent, _, errors = _told(search.study, search.plan, epochs)
    return Trace(*key, spent, errors)


# ----------------------------------------------------------------------------------------------------------------- both


def _told(study: optuna.Study, plan: SearchPlan, epochs: int) -> tuple[Any, Any, Any]:
    """Return what the finished trials had cost together when each was over (n,), their points (n, D) and errors (n,).

    A trial that was stopped early has a cost, but no error: nobody would take its schedule.
    """
    trials = sorted(finished(study), key=lambda trial: trial.number)
    costs = [len(trial.user_attrs[TRAINED]) / epochs for trial in trials]
    points = np.array([[trial.params[name] for name in plan.space.names] for trial in trials])
    complete = [trial.state == optuna.trial.TrialState.COMPLETE for trial in trials]
    errors = [trial.values[0] if whole else np.nan for trial, whole in zip(trials, complete, strict=True)]
    return np.cumsum(costs), points, np.array(errors)


def _write(run: Run, options: SearchersOptions, traces: Sequence[Trace], about: Mapping[str, Any]) -> None:
    means = averaged(traces, options.budgets)
    run.write_text("searchers.csv", csv_text(rows(means)))
    run.write_arrays("repeats.npz", dict(_repeats(traces, options.budgets)))
    figure = draw_searches(means)
    for kind in ("png", "svg"):
        run.write_bytes(f"searchers.{kind}", render(figure, kind))
    run.write_json(
        "result.json",
        {
            "on": options.on,
            "repeats": options.repeats,
            "summary": [
                {"sampler": each.sampler, "noise": each.noise, "trainings": spent, "error": float(each.mean[spent - 1])}
                | {"low": float(each.low[spent - 1]), "high": float(each.high[spent - 1])}
                for each in means
                for spent in _shown(len(each.mean))
            ],
            "needed": compared(means, default=DEFAULT, yardsticks=YARDSTICKS),
            **about,
        },
    )


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
