"""The paper's Table 2: random search in each space, and the test accuracy of the schedules found.

draw the same numbers in every space → train them under every noise setting → choose by validation, in each space →
train the chosen schedules from fresh seeds → test

This gives two accuracies. The winner of a space is the training with the best validation accuracy; its own test
accuracy is what the paper reports. It belongs to a single training, and the best of many is partly chance: under pair
noise a training may or may not converge to wrong classes, whatever its schedule. The other accuracy is of fresh
trainings with the schedule found, and measures that schedule. The test accuracy of every training of the search is
recorded next to its validation accuracy; no sampler and no choice uses it.

All spaces share the noisy labels, the initial weights, the order of the batches and the uniform numbers of their draws,
which are also the same under every noise setting: spaces differ only in the curves that the numbers decode to. "Single"
is the best of the four spaces with one basis function, by validation; each of the four has `draws` draws.

One set of draws depends on chance. The whole search can be repeated with independent sets, with other uniform
numbers and other initial weights on the same noisy labels. All sets are trained together.

Letters: N samples.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from s2e.data import achieved_rate, check_preparation, fingerprint, in_rows
from s2e.engine import VALIDATION, Member, Task, train_population
from s2e.errors import InvalidInput
from s2e.experiments.claims import Claim
from s2e.experiments.figures import schedule_curves, write_figure
from s2e.experiments.pages import PAGE, RESULT, made_of
from s2e.experiments.parts import OF_ITS_PARTS, Part, folder_of, made_parts
from s2e.experiments.published import MNIST_HALF
from s2e.experiments.scales import data_sets
from s2e.experiments.space_page import COMMAND, claims_of, figures_of, page_of
from s2e.experiments.space_results import (
    BestTrials,
    SearchedSet,
    Winner,
    Winners,
    differences,
    flat_rows,
    rows_by_set,
    single_spaces,
    summary,
    training_rows,
    winner_of,
    winner_rows,
)
from s2e.runs import Run, RunLocation, Session, csv_text
from s2e.schedules import SPACES
from s2e.seeds import derive
from s2e.specs import DataSpec, SearchSpec, SpacesOptions, rows_of
from s2e.studies import (
    BestTrial,
    GenerationFinished,
    Search,
    epochs_left,
    plan_search,
    resolve_execution,
    search_schedules,
)
from s2e.workflows import (
    SILENT,
    TEST,
    TEST_PART,
    FinishedTrainings,
    Outcome,
    ProgressListener,
    load_shared_inputs,
    network_name,
)

Labels = Mapping[str, NDArray[np.int64]]
"""Noisy labels (N,) by noise setting."""


def reproduce_spaces(
    options: SpacesOptions, location: RunLocation, listener: ProgressListener = SILENT, *, resume: bool = False
) -> Run:
    """Compare the spaces on each data set, and write one page for all; each data set is a part, a run of its own."""
    for name in options.data:
        check_preparation(DataSpec(name), options.noises)
    session = Session(COMMAND, options, location, resume=resume)
    names = data_sets(options.data, options.scale, location.root, listener)
    parts = [Part(folder_of(name), COMMAND, compare_spaces, replace(options, data=(name,))) for name in names]
    with session.start({**OF_ITS_PARTS, "data_sets": list(names)}) as run:
        made = {part.name: each for part, each in made_parts(parts, session.location, listener)}
        results = {name: each.read_json(RESULT) for name, each in zip(names, made.values(), strict=True)}
        claims = [Claim.from_row(row) for result in results.values() for row in result["claims"]]
        rows = [{"data": name, **row} for name, result in results.items() for row in flat_rows(result["summary"])]
        columns = list(dict.fromkeys(column for row in rows for column in row))

        def write() -> None:
            run.write_text("summary.csv", csv_text([{column: row.get(column) for column in columns} for row in rows]))
            folders = {name: part.name for name, part in zip(names, parts, strict=True)}
            run.write_text(PAGE, page_of(run, results, claims, made_of(made), options, folders=folders))

        result = {"parts": list(made), "claims": [claim.row() for claim in claims], "by_data": results}
        return session.finish(result, resolve_execution(session.location.execution)[0], write)


def compare_spaces(
    options: SpacesOptions, location: RunLocation, listener: ProgressListener = SILENT, *, resume: bool = False
) -> Run:
    """Search every space under every noise setting, test the schedules found, and write the results.

    The options name one data set.
    """
    (data,) = options.data
    session = Session(COMMAND, options, location, resume=resume)
    inputs = load_shared_inputs(
        data, options.noises, options.training, location, seed=options.seed, samples=options.samples
    )
    test = inputs.test
    if test is None:
        raise InvalidInput(f"`data` must come with a test part, but {data} has none.")
    train, valid = inputs.task.train, inputs.task.evaluate[VALIDATION]
    evaluate = {VALIDATION: valid, TEST: test}  # test: recorded, never used for a choice
    if data == "mnist":
        evaluate[TEST_PART] = in_rows(test, rows_of("test_part", MNIST_HALF))
    task = replace(inputs.task, evaluate=evaluate)
    noisy = {noise: replace(train, labels=labels) for noise, labels in inputs.labels.items()}
    noise_rates = {noise: achieved_rate(data) for noise, data in noisy.items()}
    about = {
        "network": network_name(str(options.training.network), train),
        "data_fingerprint": fingerprint(*noisy.values(), valid, test),
        "noise_rates": noise_rates,
    }
    with session.start(about) as run:
        found, winners = _search(task, inputs.labels, session, listener)
        _write_schedules(run, found)
        outcomes = _train_and_test(task, inputs.labels, found, options, run, listener)
        sets = [SearchedSet(*each) for each in zip(found, outcomes, winners, strict=True)]
        over_sets = summary(sets)
        curves = [schedule_curves(best_trials, single_spaces(best_trials), options.noises) for best_trials in found]
        claims = claims_of(data, over_sets, curves)
        result = {
            "data": data,
            "test_part": MNIST_HALF if TEST_PART in task.evaluate else None,
            "claims": [claim.row() for claim in claims],
            "summary": over_sets,
            "by_set": rows_by_set(sets),
            "s2e_minus": differences(sets),
            "single": {noise: [each.single[noise] for each in sets] for noise in options.noises},
            "single_winners": {noise: [each.single_winners[noise] for each in sets] for noise in options.noises},
            "draws": options.draws,
            "sets": options.sets,
            "seeds": options.seeds,
            "epochs": options.training.epochs,
            "noise_rates": noise_rates,
            "samples": {"train": len(train), "valid": len(valid), "test": len(test)},
        }

        def write_tables() -> None:
            run.write_text("results.csv", csv_text(training_rows(sets)))
            run.write_text("winners.csv", csv_text(winner_rows(sets)))
            run.write_text("summary.csv", csv_text(flat_rows(over_sets)))
            for name, drawn in figures_of(data, curves).items():
                write_figure(run, name, drawn)
            made = {data: {**session.made_on(task.device), "data_fingerprint": about["data_fingerprint"]}}
            run.write_text(PAGE, page_of(run, {data: result}, claims, made, options))

        return session.finish(result, task.device, write_tables)


def seed_of_set(seed: int, index: int) -> int:
    """Return the seed of a set's draws and initial weights: `seed` itself for the first set, derived for the others."""
    return seed if index == 0 else derive(seed, "set", index)


def _search(
    task: Task, labels: Labels, session: Session[SpacesOptions], listener: ProgressListener
) -> tuple[list[BestTrials], list[Winners]]:
    """Search every space under every noise setting in every set, a few draws of each in one population at a time.

    Returns the best trials and the winners, set by set.
    """
    options = session.options
    shape = (options.sets, len(options.noises), len(SPACES))
    size = max(1, options.together // math.prod(shape))
    searches = {}
    for index, noise, space in itertools.product(range(options.sets), labels, SPACES):
        spec = SearchSpec(space, "random", options.draws, size)
        plan = plan_search(spec, options.training, seed_of_set(options.seed, index))
        study = session.study(noise, space, *([str(index)] if index else []))
        searches[index, noise, space] = Search(plan, study, labels[noise])

    def on_generation(done: GenerationFinished) -> bool | None:
        """Report the best accuracy under each noise setting; one number for each search would be too many."""
        best = np.reshape(done.best, shape).max(axis=(0, 2))  # (noises,)
        return listener.generation(replace(done, best=tuple(best.tolist())))

    listener.stage("search", epochs_left(list(searches.values()), task.epochs))
    best_trials = search_schedules(task, list(searches.values()), on_generation=on_generation, on_epoch=listener.epoch)
    found: list[dict[tuple[str, str], BestTrial]] = [{} for _ in range(options.sets)]
    winners: list[dict[tuple[str, str], Winner]] = [{} for _ in range(options.sets)]
    for ((index, noise, space), search), best in zip(searches.items(), best_trials, strict=True):
        found[index][noise, space] = best
        winners[index][noise, space] = winner_of(search.study, space)
    return list(found), list(winners)


def _train_and_test(
    task: Task,
    labels: Labels,
    found: Sequence[BestTrials],
    options: SpacesOptions,
    run: Run,
    listener: ProgressListener,
) -> list[list[Outcome]]:
    """Train the schedules found from fresh seeds and with fresh batches, test them, and return the outcomes by set.

    Stored trainings are numbered across sets: the number is set · seeds + seed.
    """
    fresh = [derive(seed_of_set(options.seed, index), "final") for index in range(options.sets)]
    task = replace(task, seed=derive(fresh[0], "batches"))
    trainings = range(options.sets * options.seeds)
    entries = [(noise, space, number) for noise, space in found[0] for number in trainings]
    stored = FinishedTrainings.of(run)
    finished = {(outcome.noise, outcome.method, outcome.seed) for outcome in stored.outcomes}
    missing = [entry for entry in entries if entry not in finished]
    chunks = [missing[first : first + options.together] for first in range(0, len(missing), options.together)]
    listener.stage("final training", len(chunks) * task.epochs)

    def member(noise: str, space: str, number: int) -> Member:
        index, seed = divmod(number, options.seeds)
        schedule = found[index][noise, space].schedule
        return Member(schedule, derive(fresh[index], "restart", seed), options.training.learning_rate, labels[noise])

    for chunk in chunks:
        members = [member(*entry) for entry in chunk]
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
            for row, (noise, space, number) in enumerate(chunk)
        ]
        stored.add(outcomes, {})
    outcome_of = {(outcome.noise, outcome.method, outcome.seed): outcome for outcome in stored.outcomes}
    by_set: list[list[Outcome]] = [[] for _ in range(options.sets)]
    for entry in entries:
        index, seed = divmod(entry[2], options.seeds)
        by_set[index].append(replace(outcome_of[entry], seed=seed))
    return by_set


def _write_schedules(run: Run, found: Sequence[BestTrials]) -> None:
    """Write the schedules found in every space and set."""
    schedules = [
        {
            "noise": noise,
            "space": space,
            "set": index,
            "trial": best.trial,
            "validation_accuracy": best.validation_accuracy,
            "point": best.point.tolist(),
            "keep_rates": best.schedule.tolist(),
        }
        for index, best_trials in enumerate(found)
        for (noise, space), best in best_trials.items()
    ]
    run.write_json("schedules.json", {"schedules": schedules})
