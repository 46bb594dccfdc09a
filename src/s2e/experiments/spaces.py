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
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s2e.data.noise import achieved_rate, parse_noise
from s2e.data.samples import fingerprint
from s2e.engine.task import VALIDATION, Member, Task
from s2e.engine.training import train_population
from s2e.errors import InvalidInput
from s2e.experiments.figures import draw_schedules, schedule_curves
from s2e.experiments.schedule_table.build import NOISES
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
from s2e.runs.directory import CONFIG, Run
from s2e.runs.session import RunLocation, begin, ending
from s2e.schedules.spaces import SPACES
from s2e.seeds import derive
from s2e.studies.loop import Found, GenerationFinished, epochs_left, search_schedules
from s2e.studies.plan import Search, SearchPlan
from s2e.studies.storage import open_study
from s2e.workflows.bench import TEST, TrainingOptions, bench, network_name
from s2e.workflows.finished import FinishedTrainings
from s2e.workflows.outcomes import Outcome
from s2e.workflows.progress import ProgressListener

Labels = Mapping[str, NDArray[np.int64]]
"""(N,) the noisy labels of each noise setting."""

MUTABLE_ON_RESUME = frozenset({"together"})
"""What may change when a run is continued: how many are trained at a time changes none of them."""


@dataclass(frozen=True)
class SpacesOptions:
    """What is searched and trained.

    Attributes:
        data: name or path of the data, with a test part.
        noises: noise settings.
        draws: schedules drawn in each space, under each noise setting.
        sets: how often all of this is repeated with other draws.
        seeds: how often what was found is trained and tested, in each set.
        together: trainings at a time; what is finished survives an interruption.
        epochs: T.
    """

    data: str = "mnist"
    noises: tuple[str, ...] = NOISES
    draws: int = 50
    sets: int = 1
    seeds: int = 5
    together: int = 250
    network: str = "auto"
    epochs: int = 200
    batch_size: int = 128
    learning_rate: float = 1e-3
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("draws", "sets", "seeds", "together"):
            if getattr(self, name) < 1:
                raise InvalidInput(f"`{name}` must be at least 1, but got {getattr(self, name)}.")
        if not self.noises or len({str(parse_noise(each)) for each in self.noises}) < len(self.noises):
            named = ", ".join(self.noises) or "none"
            raise InvalidInput(f"`noise` must name each noise setting once, but got {named}.")

    def training_options(self) -> TrainingOptions:
        """Return how every schedule is trained: by Co-teaching, as in the paper."""
        return TrainingOptions(
            self.data,
            seed=self.seed,
            network=self.network,
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
        )


def compare_spaces(options: SpacesOptions, place: RunLocation, watch: ProgressListener, *, resume: bool = False) -> Run:
    """Search every space under every noise setting, test what was found, and write it all."""
    began = time.monotonic()
    on = bench(options.training_options(), options.noises, place.root, place.device)
    test = on.test
    if test is None:
        raise InvalidInput(f"`data` must come with a test part, but {options.data} has none.")
    train, valid = on.task.train, on.task.evaluate[VALIDATION]
    task = replace(on.task, evaluate={VALIDATION: valid, TEST: test})  # test: recorded beside, looked at by no choice
    noisy = {noise: replace(train, labels=labels) for noise, labels in on.labels.items()}
    about = {
        "network": network_name(options.network, train),
        "data_fingerprint": fingerprint(*noisy.values(), valid, test),
        "noise_rates": {noise: achieved_rate(data) for noise, data in noisy.items()},
    }
    changeable = MUTABLE_ON_RESUME | (_unmentioned(place, options) if resume else set())
    run, config = begin("reproduce spaces", options, about, place, resume=resume, changeable=changeable)
    with run.locked():
        run.write_json(CONFIG, config)
        found, winners = _search(task, on.labels, options, run, config, watch)
        _write_schedules(run, found, options.noises)
        outcomes = _train_and_test(task, on.labels, found, options, run, watch)
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
            "epochs": options.epochs,
            "noise_rates": about["noise_rates"],
            "samples": {"train": len(train), "valid": len(valid), "test": len(test)},
        }
        run.write_json("result.json", {**result, **ending(on.task.device, began)})
    return run


def _unmentioned(place: RunLocation, options: SpacesOptions) -> frozenset[str]:
    """Name `sets` where the run to continue says nothing of it: it is from before there were several, and has one."""
    run = Run(place.out)
    silent = run.exists and "sets" not in run.read_json(CONFIG)["options"]
    return frozenset({"sets"} if silent and options.sets == 1 else ())


# ------------------------------------------------------------------------------------------------------------ the work


def seed_of_set(seed: int, which: int) -> int:
    """Return what a set draws from and initialises networks with: the seed itself for the first, others for others."""
    return seed if which == 0 else derive(seed, "set", which)


def _search(
    task: Task, labels: Labels, options: SpacesOptions, run: Run, config: Mapping[str, Any], watch: ProgressListener
) -> tuple[list[Chosen], list[Winners]]:
    """Search every space under every noise setting in every set, some draws of all of them in one population at a time.

    Returns what was found and the winners, set by set.
    """
    shape = (options.sets, len(options.noises), len(SPACES))
    generation = max(1, options.together // math.prod(shape))
    # Of how many sets a study is one, and how many are trained at a time, changes nothing in it.
    lasting = {name: value for name, value in config["options"].items() if name not in MUTABLE_ON_RESUME | {"sets"}}
    searches = {}
    for which, noise, space in itertools.product(range(options.sets), labels, SPACES):
        plan = SearchPlan.named(
            space,
            "random",
            epochs=options.epochs,
            trials=options.draws,
            generation=generation,
            learning_rate=options.learning_rate,
            seed=seed_of_set(options.seed, which),
        )
        name = f"{config['study']}/{noise}/{space}" + (f"/{which}" if which else "")
        study = open_study(config["storage"] or run.storage, name, lasting)
        searches[which, noise, space] = Search(plan, study, labels[noise])

    def told(done: GenerationFinished) -> None:
        """Tell of the best space and set under each noise setting: a figure for each search would be too many."""
        best = np.reshape(done.best, shape).max(axis=(0, 2))  # (noises,)
        watch.generation(replace(done, best=tuple(best.tolist())))

    watch.stage("search", epochs_left(list(searches.values()), options.epochs))
    found = search_schedules(task, list(searches.values()), on_generation=told, on_epoch=watch.epoch)
    found_by_set: list[dict[tuple[str, str], Found]] = [{} for _ in range(options.sets)]
    winners_by_set: list[dict[tuple[str, str], Winner]] = [{} for _ in range(options.sets)]
    for ((which, noise, space), search), best in zip(searches.items(), found, strict=True):
        found_by_set[which][noise, space] = best
        winners_by_set[which][noise, space] = winner_of(search.study, space)
    return list(found_by_set), list(winners_by_set)


def _train_and_test(
    task: Task, labels: Labels, found: Sequence[Chosen], options: SpacesOptions, run: Run, watch: ProgressListener
) -> list[list[Outcome]]:
    """Train what was found in each space from fresh seeds, with batches in a fresh order, and test it.

    Returns the outcomes set by set. The ledger, which knows of no sets, counts seeds through all of them.
    """
    fresh = [derive(seed_of_set(options.seed, which), "final") for which in range(options.sets)]
    task = replace(task, seed=derive(fresh[0], "batches"))
    trainings = range(options.sets * options.seeds)
    entries = [(noise, space, number) for noise, space in found[0] for number in trainings]
    ledger = FinishedTrainings.of(run)
    finished = {(one.noise, one.method, one.seed) for one in ledger.outcomes}
    missing = [entry for entry in entries if entry not in finished]
    parts = [missing[first : first + options.together] for first in range(0, len(missing), options.together)]
    watch.stage("final training", len(parts) * options.epochs)

    def member(noise: str, space: str, number: int) -> Member:
        which, seed = divmod(number, options.seeds)
        schedule = found[which][noise, space].schedule
        return Member(schedule, derive(fresh[which], "restart", seed), options.learning_rate, labels[noise])

    for part in parts:
        members = [member(*entry) for entry in part]
        curves = train_population(task, members, on_epoch=watch.epoch).curves
        outcomes = [
            Outcome(
                noise=noise,
                method=space,
                seed=number,
                evaluated_on=TEST,
                accuracy=curves.accuracy[TEST][row],
                valid_accuracy=curves.accuracy[VALIDATION][row],
                train_accuracy=curves.train_accuracy[row],
                label_precision=curves.label_precision[row],
                kept=curves.kept[row],
                loss=curves.loss[row],
                keep_rates=members[row].schedule,
                diverged=bool(curves.diverged[row]),
            )
            for row, (noise, space, number) in enumerate(part)
        ]
        ledger.add(outcomes, {})
    outcome_of = {(one.noise, one.method, one.seed): one for one in ledger.outcomes}
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
