"""The paper's Table 2: random search in each space, and the test accuracy of what was found there.

draw the same numbers in every space → train them under every noise setting → choose by validation, in each space →
train the chosen schedules from fresh seeds → test

Two figures come of this. The winner of a space is the training with the best validation accuracy, itself; its own test
accuracy is the paper's figure. It is of one training, and the best of many is a lucky one: under pair noise a training
may or may not lock onto wrong classes, whatever its schedule. The other figure is of fresh trainings of the schedule
found, and tells what that schedule is worth. The test accuracy of every training of the search is recorded beside its
validation accuracy. No sampler and no choice ever looks at it: draws are random, and choices made by validation alone.

All spaces see the same noisy labels, the same initial weights and the same order of batches. Their draws are made of
the same uniform numbers, too, and of the same ones under every noise setting: spaces differ in nothing but the curves
those numbers stand for. "Single" is the best of the four spaces with one basis function, by validation; each of the
four has as many draws as any other space.

What one set of draws finds is partly luck. The whole search may be repeated with several independent sets: other
uniform numbers and other initial weights, on the same noisy labels. All sets are trained together.

Letters: T epochs, N samples.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from s2e.data.noise import achieved_rate
from s2e.data.samples import fingerprint
from s2e.engine.task import VALIDATION, Member, Task
from s2e.engine.training import train_population
from s2e.errors import InvalidInput
from s2e.experiments.figures import draw_schedules, schedule_curves
from s2e.experiments.space_results import (
    Chosen,
    SearchedSet,
    Winner,
    Winners,
    differences,
    rows_by_set,
    single_spaces,
    spreadsheet,
    summary,
    training_rows,
    winner_of,
    winner_rows,
)
from s2e.plots.drawing import render
from s2e.runs.csv_files import csv_text
from s2e.runs.directory import Run
from s2e.runs.session import RunLocation, Session
from s2e.schedules.spaces import SPACES
from s2e.seeds import derive
from s2e.specs import SearchSpec, SpacesOptions
from s2e.studies import BestTrial, GenerationFinished, epochs_left, search_schedules
from s2e.studies.plan import Search, plan_search
from s2e.workflows.finished import FinishedTrainings
from s2e.workflows.outcomes import Outcome
from s2e.workflows.pipeline import TEST
from s2e.workflows.progress import SILENT, ProgressListener
from s2e.workflows.run_files import network_name
from s2e.workflows.shared_inputs import shared_inputs

Labels = Mapping[str, NDArray[np.int64]]
"""(N,) the noisy labels of each noise setting."""


def compare_spaces(
    options: SpacesOptions, location: RunLocation, listener: ProgressListener = SILENT, *, resume: bool = False
) -> Run:
    """Search every space under every noise setting, test the schedules found, and write everything."""
    session = Session("reproduce spaces", options, location, resume=resume)
    inputs = shared_inputs(options.data, options.noises, options.training, location, seed=options.seed)
    test = inputs.test
    if test is None:
        raise InvalidInput(f"`data` must come with a test part, but {options.data} has none.")
    train, valid = inputs.task.train, inputs.task.evaluate[VALIDATION]
    task = replace(inputs.task, evaluate={VALIDATION: valid, TEST: test})  # test: recorded, used by no choice
    noisy = {noise: replace(train, labels=labels) for noise, labels in inputs.labels.items()}
    noise_rates = {noise: achieved_rate(data) for noise, data in noisy.items()}
    about = {
        "network": network_name(str(options.training.network), train),
        "data_fingerprint": fingerprint(*noisy.values(), valid, test),
        "noise_rates": noise_rates,
    }
    with session.start(about) as run:
        found, winners = _search(task, inputs.labels, session, listener)
        _write_schedules(run, found, options.noises)
        outcomes = _train_and_test(task, inputs.labels, found, options, run, listener)
        sets = [SearchedSet(*each) for each in zip(found, outcomes, winners, strict=True)]
        over_all = summary(sets)
        run.write_text("results.csv", csv_text(training_rows(sets)))
        run.write_text("winners.csv", csv_text(winner_rows(sets)))
        run.write_text("summary.csv", csv_text(spreadsheet(over_all)))
        result = {
            "summary": over_all,
            "by_set": rows_by_set(sets),
            "s2e_minus": differences(sets),
            "single": {noise: [one.single[noise] for one in sets] for noise in options.noises},
            "single_winners": {noise: [one.single_winners[noise] for one in sets] for noise in options.noises},
            "draws": options.draws,
            "sets": options.sets,
            "seeds": options.seeds,
            "epochs": options.training.epochs,
            "noise_rates": noise_rates,
            "samples": {"train": len(train), "valid": len(valid), "test": len(test)},
        }
        return session.finish(result, task.device)


# ------------------------------------------------------------------------------------------------------------ the work


def seed_of_set(seed: int, which: int) -> int:
    """Return what a set draws from and initialises networks with: the seed itself for the first, others for others."""
    return seed if which == 0 else derive(seed, "set", which)


def _search(
    task: Task, labels: Labels, session: Session[SpacesOptions], listener: ProgressListener
) -> tuple[list[Chosen], list[Winners]]:
    """Search every space under every noise setting in every set, some draws of all of them in one population at a time.

    Returns the schedules found and the winners, set by set.
    """
    options = session.options
    shape = (options.sets, len(options.noises), len(SPACES))
    size = max(1, options.together // math.prod(shape))
    searches = {}
    for which, noise, space in itertools.product(range(options.sets), labels, SPACES):
        spec = SearchSpec(space, "random", options.draws, size)
        plan = plan_search(spec, options.training, seed_of_set(options.seed, which))
        study = session.study(noise, space, *([str(which)] if which else []))
        searches[which, noise, space] = Search(plan, study, labels[noise])

    def on_generation(done: GenerationFinished) -> bool | None:
        """Report the best space and set under each noise setting: one figure for each search would be too many."""
        best = np.reshape(done.best, shape).max(axis=(0, 2))  # (noises,)
        return listener.generation(replace(done, best=tuple(best.tolist())))

    listener.stage("search", epochs_left(list(searches.values()), task.epochs))
    found = search_schedules(task, list(searches.values()), on_generation=on_generation, on_epoch=listener.epoch)
    found_by_set: list[dict[tuple[str, str], BestTrial]] = [{} for _ in range(options.sets)]
    winners_by_set: list[dict[tuple[str, str], Winner]] = [{} for _ in range(options.sets)]
    for ((which, noise, space), search), best in zip(searches.items(), found, strict=True):
        found_by_set[which][noise, space] = best
        winners_by_set[which][noise, space] = winner_of(search.study, space)
    return list(found_by_set), list(winners_by_set)


def _train_and_test(
    task: Task, labels: Labels, found: Sequence[Chosen], options: SpacesOptions, run: Run, listener: ProgressListener
) -> list[list[Outcome]]:
    """Train what was found in each space from fresh seeds, with batches in a fresh order, and test it.

    Returns the outcomes set by set. The stored trainings number the seeds through all sets.
    """
    fresh = [derive(seed_of_set(options.seed, which), "final") for which in range(options.sets)]
    task = replace(task, seed=derive(fresh[0], "batches"))
    trainings = range(options.sets * options.seeds)
    entries = [(noise, space, number) for noise, space in found[0] for number in trainings]
    stored = FinishedTrainings.of(run)
    finished = {(one.noise, one.method, one.seed) for one in stored.outcomes}
    missing = [entry for entry in entries if entry not in finished]
    parts = [missing[first : first + options.together] for first in range(0, len(missing), options.together)]
    listener.stage("final training", len(parts) * task.epochs)

    def member(noise: str, space: str, number: int) -> Member:
        which, seed = divmod(number, options.seeds)
        schedule = found[which][noise, space].schedule
        return Member(schedule, derive(fresh[which], "restart", seed), options.training.learning_rate, labels[noise])

    for part in parts:
        members = [member(*entry) for entry in part]
        curves = train_population(task, members, on_epoch=listener.epoch).curves
        outcomes = [
            Outcome.of(
                curves,
                row,
                noise=noise,
                method=space,
                seed=number,
                evaluated_on=TEST,
                keep_rates=members[row].schedule,
            )
            for row, (noise, space, number) in enumerate(part)
        ]
        stored.add(outcomes, {})
    outcome_of = {(one.noise, one.method, one.seed): one for one in stored.outcomes}
    by_set: list[list[Outcome]] = [[] for _ in range(options.sets)]
    for entry in entries:
        which, seed = divmod(entry[2], options.seeds)
        by_set[which].append(replace(outcome_of[entry], seed=seed))
    return by_set


def _write_schedules(run: Run, found: Sequence[Chosen], noises: Sequence[str]) -> None:
    """Write the schedules found in every space and set, and draw those of the spaces in the table."""
    content = [
        {"noise": noise, "space": space, "set": which}
        | {"trial": one.trial, "validation_accuracy": one.validation_accuracy}
        | {"point": one.point.tolist(), "keep_rates": one.schedule.tolist()}
        for which, chosen in enumerate(found)
        for (noise, space), one in chosen.items()
    ]
    run.write_json("schedules.json", {"schedules": content})
    figure = draw_schedules([schedule_curves(chosen, single_spaces(chosen), noises) for chosen in found])
    for kind in ("png", "svg"):
        run.write_bytes(f"schedules.{kind}", render(figure, kind))
