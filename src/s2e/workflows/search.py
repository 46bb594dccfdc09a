"""`s2e search` without parsing or printing: prepare → search → train the final classifier → test it once → write."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Any

from s2e import schedules
from s2e.data import Prepared, check_preparation, prepare
from s2e.engine import FinalTraining
from s2e.methods import method
from s2e.runs import Run, RunLocation, Session
from s2e.specs import AUTO, SearchOptions
from s2e.workflows.defaults import default_generations, sized
from s2e.workflows.pipeline import (
    check_choices,
    plan_for,
    prepared_task,
    schedule_content,
    search_and_train,
    time_of_search,
)
from s2e.workflows.progress import SILENT, ProgressListener
from s2e.workflows.run_files import about_run, classifier_row, estimates, result, write_columns, write_final
from s2e.workflows.time_budget import OPTIONS

ASSUMED_NOISE_RATE = 0.2
"""Noise rate of the Co-teaching baseline where the true one is unknown."""


def search(
    options: SearchOptions, location: RunLocation, listener: ProgressListener = SILENT, *, resume: bool = False
) -> Run:
    """Search a schedule, train the final classifier with it, test it once, write the run."""
    began = time.monotonic()
    check_preparation(options.dataset, [options.noise])
    check_choices(options.training, options.method, location.execution, options.search)
    session = Session("search", options, location, resume=resume)
    options = session.options
    prepared = prepare(options.dataset, options.noise, options.seed, location.root)
    training = sized(options.training, prepared.splits.train, options.dataset.data)
    score = options.classifier.score
    task = prepared_task(prepared, training, options.method, seed=options.seed, location=location, score=score)
    generations = default_generations(options.dataset.data)
    plan = plan_for(task, options.search, training, options.seed, method=options.method, generations=generations)
    stage = f"search, {plan.generation_size} at a time" if options.search.generation_size == AUTO else "search"
    search_spec = replace(options.search, trials=plan.trials, generation_size=plan.generation_size)
    options = replace(options, search=search_spec, training=training)
    network = str(training.network)
    final: dict[str, Any] = {
        "validation": prepared.validation,
        "restarts": options.restarts,
        "folds": options.folds,
        "classifier": options.classifier,
        "relabel": options.relabel,
        "baselines": _baselines(prepared, options.restarts, training.epochs) if options.baselines else (),
        "test": prepared.splits.test,
    }
    budget = options.search.time_budget
    search_time = None
    if budget is not None or listener is not SILENT:
        search_time = time_of_search(task, plan, **final, budget=budget, began=began, advice=OPTIONS)
        if not session.resumed:
            search_time.check(task.epochs)
    with session.start(about_run(network, prepared), options) as run:
        study = session.study()  # where it is refused, the directory stays new
        write_columns(run, prepared, listener)
        outcome = search_and_train(
            task,
            plan,
            study,
            **final,
            run=run,
            search_time=search_time,
            stop_early=options.search.stop_early,
            listener=listener,
            stage=stage,
        )
        searched = {
            "trials": len(study.trials),
            "planned_trials": plan.trials,
            "generation_size": plan.generation_size,
            "best_trial": outcome.found.trial,
            **({} if outcome.found.method is None else {"method": outcome.found.method.name}),
            "validation_accuracy": outcome.found.validation_accuracy,
        }
        rows = result(prepared, outcome.selected, outcome.validation, searched=True, stopped=outcome.stopped)
        rows["estimated"] = estimates(outcome.records)
        schedule = schedule_content(outcome.found)
        row = classifier_row(outcome, prepared.splits.test)
        write = partial(
            write_final,
            run,
            network,
            options.dataset,
            prepared,
            outcome.selected,
            outcome.records,
            schedule,
            outcome.ensemble,
            outcome.models,
        )
        return session.finish({**rows, "search": searched, "score": score, "classifier": row}, task.device, write)


def _baselines(prepared: Prepared, restarts: int, epochs: int) -> list[FinalTraining]:
    """Return Standard, and Co-teaching with the true noise rate, or with an assumed one where it is unknown."""
    rate = prepared.noise_rate
    assumed = "" if rate is not None else f" (assumed noise rate {ASSUMED_NOISE_RATE:.0%})"
    fixed = schedules.coteaching(ASSUMED_NOISE_RATE if rate is None else rate, epochs)
    return [
        FinalTraining("Standard", method("standard"), schedules.constant(1.0, epochs), restarts),
        FinalTraining(f"Co-teaching{assumed}", method("coteaching"), fixed, restarts),
    ]
