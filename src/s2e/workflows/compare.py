"""What `s2e compare` does, without parsing or printing: every method, every seed and every noise setting, trained side
by side on the same inputs.

prepare each noise setting → train all methods in one population → search S2E's schedules, all settings together →
train S2E from every seed → write tables and figures

A seed decides the initial weights and the draw of the noise; the split and the order of the batches are the same for
all, so members differ in nothing but what is compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s2e import schedules
from s2e.audit.relabelling import relabelled_validation, with_validation_labels
from s2e.data import loading
from s2e.data.noise import parse_noise
from s2e.data.preparing import DataOptions, Prepared, corrupt_and_split
from s2e.data.samples import LabelledData, fingerprint
from s2e.engine.task import VALIDATION, Member, Task, Trained
from s2e.engine.two_stage import populations_needed, train_in_stages
from s2e.errors import InvalidInput
from s2e.methods import Need, Standard
from s2e.runs.csv_files import csv_text
from s2e.runs.directory import CONFIG, Run
from s2e.runs.session import RunLocation, begin, begun_with, ending
from s2e.seeds import derive
from s2e.studies.generation_size import AUTO, Generation, Pace, paced, picked
from s2e.studies.loop import Found, epochs_left, search_schedules
from s2e.studies.plan import Search, SearchPlan
from s2e.studies.storage import open_study
from s2e.workflows.bench import TEST, TrainingOptions, network_name, task_of
from s2e.workflows.comparison_figures import figure_files
from s2e.workflows.entrants import ALL, Entrant, Setting, taking_part
from s2e.workflows.finished import FinishedTrainings
from s2e.workflows.outcomes import Outcome, curve_rows, result_rows, summarise
from s2e.workflows.progress import ProgressListener

MUTABLE_ON_RESUME = frozenset({"methods"})
"""What may change when a comparison is continued: more methods may join those that are finished."""

LONGEST_NOISE = 60
"""Characters of a noise setting in the name of a file, which has room for 255 bytes."""

ROUNDS = 5
"""Generations of a search whose number of trials is not given."""

NAMED_IN_A_STAGE = 3
"""Methods trained together that are named while they are; more would leave no room for a bar."""


@dataclass(frozen=True)
class CompareOptions:
    """What is compared, on which data.

    Attributes:
        data: name or path of the data.
        noises: noise settings, each as `noise.parse_noise` reads it.
        methods: names of METHODS, `s2e`, `s2e:METHOD`, or `all`: every one that these data allow.
        seeds: how often each is trained.
        noise_rate: share of wrong labels that methods are told; None to tell them the true one where it is known.
        trials: how many schedules each search trains; None for 30, or for five generations where K is picked.
        generation: K, how many of them at once; "auto" picks it from a short measurement, as `pacing` says, with all
            searches side by side, as they are trained.
        label: the column of a table that holds the labels; "" for data that are no table.
        id_column: the column of a table that names its rows; "" to number them.
    """

    data: str
    noises: tuple[str, ...] = ("none",)
    methods: tuple[str, ...] = (ALL,)
    seeds: int = 5
    noise_rate: float | None = None
    validation: str = "auto"
    validation_share: float | None = None
    seed: int = 0
    network: str = "auto"
    epochs: int = 200
    batch_size: int = 128
    learning_rate: float = 1e-3
    space: str = "s2e"
    sampler: str = "curve"
    trials: int | None = None
    generation: Generation = 6
    label: str = ""
    id_column: str = ""

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise InvalidInput(f"`seeds` must be at least 1, but got {self.seeds}.")
        if self.noise_rate is not None and not 0 <= self.noise_rate < 1:
            raise InvalidInput(f"`noise_rate` must lie in [0, 1), but got {self.noise_rate}.")
        if not self.noises or len({str(parse_noise(each)) for each in self.noises}) < len(self.noises):
            raise InvalidInput(
                f"`noises` must name each noise setting once, but got {', '.join(self.noises) or 'none'}."
            )

    def data_options(self, noise: str) -> DataOptions:
        """Return which data, for one noise setting."""
        return DataOptions(self.data, noise, self.validation, self.validation_share, self.seed)

    def training_options(self) -> TrainingOptions:
        """Return how all members are trained that do not bring a method of their own."""
        return TrainingOptions(
            self.data,
            seed=self.seed,
            method=Standard.name,
            network=self.network,
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
        )


@dataclass(frozen=True, eq=False)
class Group:
    """Settings over the same inputs, which can be trained in one population."""

    task: Task
    settings: list[Setting]


def compare(options: CompareOptions, place: RunLocation, watch: ProgressListener, *, resume: bool = False) -> Run:
    """Train every method from every seed on every noise setting, and write what came of it."""
    began = time.monotonic()
    narrowest = _pace(options, min)  # refuses a generation that is none before data are read
    settings = _settings(options, place)
    entrants, left_out = taking_part(options.methods, settings, told=options.noise_rate)
    groups = _groups(options, settings, place)
    searched = [entrant for entrant in entrants if entrant.searched]
    _plan(options, narrowest, searched)  # refuses bad names and numbers before anything is measured
    pace = _pace(options, partial(_picked, options, groups, searched), begun_with(place.out, resume=resume))
    plan, stage = _plan(options, pace, searched), "search"
    if options.generation == AUTO:
        stage += f", {pace.generation} at a time"
    options = replace(options, trials=pace.trials, generation=pace.generation)
    train = settings[0].prepared.splits.train
    about = {
        "network": network_name(options.network, train),
        "data_fingerprint": fingerprint(*(part for one in settings for part in _parts(one))),
        "noise_rates": {one.noise: one.prepared.noise_rate for one in reversed(settings)},
    }
    run, config = begin("compare", options, about, place, resume=resume, changeable=MUTABLE_ON_RESUME)
    with run.locked():
        run.write_json(CONFIG, config)
        ledger = FinishedTrainings.of(run)
        given = [entrant for entrant in entrants if not entrant.searched]
        schedule_of: dict[tuple[str, str], Found] = {}  # by noise setting and entrant
        for group in groups:
            _train(group, given, options, ledger, watch, schedule_of)
            if plan is not None:
                schedule_of |= _search(group, searched, options, plan, stage, run, config, watch)
            _train(group, searched, options, ledger, watch, schedule_of)
        _write(run, ledger.in_order(entrants, options.noises), ledger.transitions, schedule_of)
        result = {
            "summary": summarise(ledger.in_order(entrants, options.noises)),
            "evaluated_on": _evaluated_on(groups[0].task),
            "validation": settings[0].prepared.validation,
            "epochs": options.epochs,
            "seeds": options.seeds,
            "noise_rates": about["noise_rates"],
            "samples": _samples(settings[0].prepared),
            "left_out": left_out,
            "search": [
                {"noise": noise, "method": name, "trials": pace.trials, "generation": pace.generation}
                | {"best_trial": found.trial, "validation_accuracy": found.validation_accuracy}
                for (noise, name), found in schedule_of.items()
            ],
        }
        run.write_json("result.json", {**result, **ending(groups[0].task.device, began)})
    return run


# ---------------------------------------------------------------------------------------------------- what is compared


def _settings(options: CompareOptions, place: RunLocation) -> list[Setting]:
    """Draw every noise setting once for each seed."""
    source = loading.load(options.data, place.root, label=options.label, id_column=options.id_column)
    return [
        Setting(noise, draw, corrupt_and_split(source, options.data_options(noise), place.root, draw=draw))
        for noise in options.noises
        for draw in range(options.seeds)
    ]


def _groups(options: CompareOptions, settings: Sequence[Setting], place: RunLocation) -> list[Group]:
    """Put settings over the same inputs, true labels and validation together: all of them where validation is clean."""
    together: dict[tuple[bytes | None, ...], list[Setting]] = {}
    for one in settings:
        train, valid = one.prepared.splits.train, one.prepared.splits.valid
        truth = None if train.clean_labels is None else train.clean_labels.tobytes()
        together.setdefault((train.rows.tobytes(), truth, valid.labels.tobytes()), []).append(one)
    return [Group(_task(options, own[0].prepared, place), own) for own in together.values()]


def _task(options: CompareOptions, prepared: Prepared, place: RunLocation) -> Task:
    task = task_of(options.training_options(), prepared, place.device, order="comparison")
    test = prepared.splits.test
    return task if test is None else replace(task, evaluate={**task.evaluate, TEST: test})


def _pace(
    options: CompareOptions, pick: Callable[[Sequence[int]], int], begun: Mapping[str, Any] | None = None
) -> Pace:
    return paced(options.generation, options.trials, rounds=ROUNDS, pick=pick, begun=begun)


def _picked(options: CompareOptions, groups: Sequence[Group], entrants: Sequence[Entrant], sizes: Sequence[int]) -> int:
    """Pick a generation by the group that searches most at a time; the narrowest where nothing is searched."""
    group = max(groups, key=lambda group: len(_searched(group, entrants)))
    everything = schedules.constant(1.0, options.epochs)
    kinds = [
        Member(everything, 0, options.learning_rate, setting.prepared.splits.train.labels, entrant.method)
        for setting, entrant in _searched(group, entrants)
    ]
    return picked(group.task, kinds, sizes) if kinds else sizes[0]


def _searched(group: Group, entrants: Sequence[Entrant]) -> list[tuple[Setting, Entrant]]:
    """Return what schedules are searched for, side by side: each noise setting on its first draw."""
    return [(setting, entrant) for setting in group.settings if setting.draw == 0 for entrant in entrants]


def _plan(options: CompareOptions, pace: Pace, searched: Sequence[Entrant]) -> SearchPlan | None:
    if not searched:
        return None
    return SearchPlan.named(
        options.space,
        options.sampler,
        epochs=options.epochs,
        trials=pace.trials,
        generation=pace.generation,
        learning_rate=options.learning_rate,
        seed=options.seed,
    )


# ------------------------------------------------------------------------------------------------------------ the work


def _train(
    group: Group,
    entrants: Sequence[Entrant],
    options: CompareOptions,
    ledger: FinishedTrainings,
    watch: ProgressListener,
    schedule_of: Mapping[tuple[str, str], Found],
) -> None:
    """Train what is not finished yet, everything in one population, and write what is finished as soon as it is."""
    entries = [
        (setting, entrant) for entrant in entrants for setting in group.settings if ledger.lacks(setting, entrant)
    ]
    if not entries:
        return
    members = [
        Member(
            _schedule(setting, entrant, options, schedule_of),
            derive(options.seed, "compared", setting.draw),
            options.learning_rate,
            setting.prepared.splits.train.labels,
            entrant.method,
        )
        for setting, entrant in entries
    ]
    names = list(dict.fromkeys(entrant.name for _, entrant in entries))
    stage = ", ".join(names) if len(names) <= NAMED_IN_A_STAGE else f"{len(names)} methods"
    watch.stage(stage, populations_needed(group.task, members) * options.epochs)

    def keep(places: list[int], trained: Trained) -> None:
        own = [entries[place] for place in places]
        ledger.add(list(_outcomes(group.task, own, [members[place] for place in places], trained)), {})

    trained, as_trained = train_in_stages(group.task, members, on_epoch=watch.epoch, on_first=keep)
    matrices = {
        f"{setting.noise}/{entrant.name}/{setting.draw}": member.transition
        for (setting, entrant), member in zip(entries, as_trained, strict=True)
        if member.transition is not None
    }
    ledger.add(list(_outcomes(group.task, entries, as_trained, trained)), matrices)


def _schedule(
    setting: Setting,
    entrant: Entrant,
    options: CompareOptions,
    schedule_of: Mapping[tuple[str, str], Found],
) -> NDArray[np.float64]:
    """Return the keep rates: searched, made from the noise rate, or all of the samples."""
    if entrant.searched:
        return schedule_of[setting.noise, entrant.name].schedule
    rate = setting.prepared.noise_rate if options.noise_rate is None else options.noise_rate
    if Need.SCHEDULE in entrant.method.needs and rate is not None:
        return schedules.coteaching(rate, options.epochs)
    return schedules.constant(1.0, options.epochs)


def _search(
    group: Group,
    entrants: Sequence[Entrant],
    options: CompareOptions,
    plan: SearchPlan,
    stage: str,
    run: Run,
    config: Mapping[str, Any],
    watch: ProgressListener,
) -> dict[tuple[str, str], Found]:
    """Search the schedule of every noise setting on its first draw, a generation of all of them in one population.

    It is handed train and validation, never test.
    """
    task = replace(group.task, evaluate={VALIDATION: group.task.evaluate[VALIDATION]})
    searches = {}
    for setting, entrant in _searched(group, entrants):
        name = f"{config['study']}/{setting.noise}/{entrant.name}"
        lasting = {key: value for key, value in config["options"].items() if key not in MUTABLE_ON_RESUME}
        study = open_study(config["storage"] or run.storage, name, lasting)
        labels = setting.prepared.splits.train.labels
        searches[setting.noise, entrant.name] = Search(plan, study, labels, entrant.method)
    if not searches:
        return {}
    if group.settings[0].prepared.validation == "noisy":  # then the group is one setting
        watch.stage("relabelling validation", task.epochs)
        labels = relabelled_validation(
            task, learning_rate=options.learning_rate, seed=options.seed, on_epoch=watch.epoch
        )
        task = with_validation_labels(task, labels)
    watch.stage(stage, epochs_left(list(searches.values()), options.epochs))
    found = search_schedules(task, list(searches.values()), on_generation=watch.generation, on_epoch=watch.epoch)
    return dict(zip(searches, found, strict=True))


def _outcomes(
    task: Task, entries: Sequence[tuple[Setting, Entrant]], members: Sequence[Member], trained: Trained
) -> Iterator[Outcome]:
    curves, evaluated_on = trained.curves, _evaluated_on(task)
    for place, ((setting, entrant), member) in enumerate(zip(entries, members, strict=True)):
        yield Outcome(
            noise=setting.noise,
            method=entrant.name,
            seed=setting.draw,
            evaluated_on=evaluated_on,
            accuracy=curves.accuracy[evaluated_on][place],
            valid_accuracy=curves.accuracy[VALIDATION][place],
            train_accuracy=curves.train_accuracy[place],
            label_precision=curves.label_precision[place],
            kept=curves.kept[place],
            loss=curves.loss[place],
            keep_rates=member.schedule if Need.SCHEDULE in entrant.method.needs else None,
            diverged=bool(curves.diverged[place]),
        )


def _write(
    run: Run,
    outcomes: Sequence[Outcome],
    transitions: Mapping[str, NDArray[np.float64]],
    schedule_of: Mapping[tuple[str, str], Found],
) -> None:
    """Write tables, figures, the schedules found and the transition matrices estimated."""
    run.write_text("results.csv", csv_text(result_rows(outcomes)))
    run.write_text("curves.csv", csv_text(curve_rows(outcomes)))
    for name, image in figure_files(outcomes).items():
        run.write_bytes(name, image)
    if transitions:
        run.write_arrays("transitions.npz", transitions)
    for (noise, name), found in schedule_of.items():
        content = {"keep_rates": found.schedule.tolist(), "point": found.point.tolist()}
        setting = noise[-LONGEST_NOISE:]  # the end of a long path to a matrix
        run.write_json(f"schedule-{name}-{setting}.json".replace(":", "-").replace("/", "-"), content)


def _evaluated_on(task: Task) -> str:
    return TEST if TEST in task.evaluate else VALIDATION


def _parts(setting: Setting) -> list[LabelledData]:
    splits = setting.prepared.splits
    return [part for part in (splits.train, splits.valid, splits.test) if part is not None]


def _samples(prepared: Prepared) -> dict[str, int]:
    splits = prepared.splits
    parts = {"train": splits.train, "valid": splits.valid, "test": splits.test}
    return {name: len(part) for name, part in parts.items() if part is not None}
