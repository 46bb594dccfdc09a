"""`s2e compare` without parsing or printing: every method, seed and noise setting, trained in populations.

prepare each noise setting → train all methods in one population → search S2E's schedules, all settings together →
train S2E from every seed → write tables and figures

A seed decides the initial weights and the draw of the noise. The split and the order of the batches are the same for
all, so members differ only in method, seed and noise.

Every method may be stopped at the epoch that is best on the clean validation samples. A method that trains with clean
samples gets one half of them, and is stopped on the other; `s2e-noisy-validation` has none, and is not stopped.
Oracles use the true labels; they are trained like Standard.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np
from numpy.typing import NDArray

from s2e import schedules
from s2e.data import (
    LabelledData,
    Prepared,
    check_preparation,
    corrupt_and_split,
    fingerprint,
    hold_out,
    in_rows,
    load_source,
    with_at_most,
    with_noise,
)
from s2e.engine import VALIDATION, Member, Task, Trained, stages_needed, train_in_two_stages
from s2e.errors import InvalidInput, counted
from s2e.methods import Need, Standard
from s2e.runs import Run, RunLocation, Session, csv_text
from s2e.seeds import derive
from s2e.specs import AUTO, CompareOptions, SizedTrainingSpec
from s2e.studies import (
    BestTrial,
    Search,
    SearchPlan,
    choose_generation_size,
    plan_search,
)
from s2e.workflows.comparison_figures import figure_files
from s2e.workflows.defaults import longest, sized
from s2e.workflows.entrants import Entrant, Setting, check_entrant_names, entrants_for
from s2e.workflows.finished import FinishedTrainings
from s2e.workflows.outcomes import (
    HELD_OUT,
    TEST,
    TEST_PART,
    UNUSED,
    Outcome,
    curve_rows,
    result_rows,
    summarise,
)
from s2e.workflows.pipeline import check_choices, find_schedules, prepared_task, schedule_content
from s2e.workflows.progress import SILENT, ProgressListener
from s2e.workflows.run_files import network_name, write_columns
from s2e.workflows.status import Status
from s2e.workflows.time_budget import can_be_timed, expected_time, population_seconds

LONGEST_NOISE = 60
"""Most characters of a noise setting in a file name, which may have 255 bytes."""

MOST_NAMED = 3
"""Most methods trained together that are named in the progress; more would leave no space for a bar."""

Schedules = Mapping[tuple[str, str, int], BestTrial]
"""Schedules found, by noise setting, entrant and index of the search."""


@dataclass(frozen=True, eq=False)
class Group:
    """Settings over the same inputs, which can be trained in one population."""

    task: Task
    settings: list[Setting]

    def searched(self, entrants: Sequence[Entrant], searches: int) -> list[tuple[Setting, Entrant]]:
        """Return the searches that run in one population: each noise setting on its first draws."""
        return [
            (setting, entrant)
            for setting in self.settings
            if setting.draw < searches
            for entrant in entrants
            if entrant.searched and not entrant.noisy_validation
        ]


def compare(
    options: CompareOptions, location: RunLocation, listener: ProgressListener = SILENT, *, resume: bool = False
) -> Run:
    """Train every method from every seed on every noise setting, and write tables and figures."""
    check_preparation(options.dataset, options.noises)
    check_choices(options.training, Standard.name, location.execution)
    check_entrant_names(options.methods)
    plan_search(options.search, longest(options.training), options.seed)  # raises an error for unknown names
    session = Session("compare", options, location, resume=resume)
    options = session.options
    settings = _settings(options, location)
    entrants, left_out = entrants_for(options.methods, settings, noise_rate=options.noise_rate)
    training = sized(options.training, settings[0].prepared.splits.train, options.dataset.data)
    options = replace(options, training=training)
    groups = _groups(options, training, settings, location, halve=_trains_on_clean(entrants))
    plan = _plan(options, training, groups, entrants)
    stage = f"search, {plan.generation_size} at a time" if options.search.generation_size == AUTO else "search"
    search_spec = replace(options.search, trials=plan.trials, generation_size=plan.generation_size)
    noise_rates = {one.noise: one.prepared.noise_rate for one in reversed(settings)}
    about = {
        "network": network_name(str(options.training.network), settings[0].prepared.splits.train),
        "data_fingerprint": fingerprint(*(part for one in settings for part in _parts(one.prepared).values())),
        "noise_rates": noise_rates,
    }
    with session.start(about, replace(options, search=search_spec)) as run:
        write_columns(run, settings[0].prepared, listener)
        if (line := _evaluation_note(settings[0].prepared)) is not None:
            listener.note(line)
        finished = FinishedTrainings.of(run)
        fixed = [entrant for entrant in entrants if not entrant.searched]
        if listener is not SILENT and (line := _expected_time(groups, entrants, plan, options, finished)) is not None:
            listener.note(line)
        found: dict[tuple[str, str, int], BestTrial] = {}
        for group in groups:
            _train(group, fixed, session, options, finished, listener, found)
            for search in (_search, _search_on_noisy_validation):
                found |= search(group, entrants, plan, stage, session, listener)
                names = {name for _, name, _ in found}
                searched = [entrant for entrant in entrants if entrant.searched and entrant.name in names]
                _train(group, searched, session, options, finished, listener, found)
        outcomes = finished.in_order(entrants, options.noises)
        result = {
            "status": Status.of(stopped=False, diverged=any(one.diverged for one in outcomes)).value,
            "summary": summarise(outcomes),
            "evaluated_on": _evaluated_on(settings[0].prepared),
            "validation": settings[0].prepared.validation,
            "epochs": training.epochs,
            "seeds": options.seeds,
            "searches": options.searches,
            "noise_rates": noise_rates,
            "test_part": options.test_part or None,
            **finished.made_on(),
            "samples": {name: len(part) for name, part in _parts(settings[0].prepared).items()},
            "left_out": left_out,
            "search": [
                {"noise": noise, "method": name, "search": index, "trials": plan.trials}
                | {"generation_size": plan.generation_size, "best_trial": best.trial}
                | {"validation_accuracy": best.validation_accuracy}
                for (noise, name, index), best in found.items()
            ],
        }
        write = partial(_write, run, outcomes, finished.transitions, found)
        return session.finish(result, groups[0].task.device, write)


# ---------------------------------------------------------------------------------------------------------- entrants


def _settings(options: CompareOptions, location: RunLocation) -> list[Setting]:
    """Draw every noise setting once for each seed."""
    spec, root = options.dataset, location.root
    source = with_at_most(load_source(spec, root), options.samples, options.seed)
    settings = []
    for noise, draw in product(options.noises, range(options.seeds)):
        prepared = replace(corrupt_and_split(source, spec, noise, options.seed, root, draw=draw), source=source)
        settings.append(Setting(noise, draw, _with_unseen_part(prepared, options.seed)))
    return settings


def _with_unseen_part(prepared: Prepared, seed: int) -> Prepared:
    """Return the data with a part that no method uses: without a test part, half of the validation part.

    Reweight trains on the validation part, and schedules are selected by it.
    """
    splits = prepared.splits
    if splits.test is not None:
        return prepared
    try:
        valid, unseen = hold_out(splits.valid, 0.5, np.random.default_rng(derive(seed, "unseen")))
    except InvalidInput as problem:
        raise InvalidInput(
            "a comparison needs a test part, or at least two validation samples of one class, of which it evaluates "
            f"one, but got {counted(len(splits.valid), 'validation sample')}; hold out more with --validation-share."
        ) from problem
    return replace(prepared, splits=replace(splits, valid=valid, test=unseen))


def _evaluated_on(prepared: Prepared) -> str:
    """Return the name of the part that methods are evaluated on."""
    has_test = prepared.source is not None and prepared.source.test is not None
    return TEST if has_test or prepared.validation == "clean" else HELD_OUT


def _evaluation_note(prepared: Prepared) -> str | None:
    """Return a line about the samples that are evaluated where the data have no test part."""
    unseen = prepared.splits.test
    if unseen is None or (prepared.source is not None and prepared.source.test is not None):
        return None
    labels = ", with their noisy labels" if _evaluated_on(prepared) == HELD_OUT else ""
    return f"no test part: methods are evaluated on {counted(len(unseen), 'sample')} that none of them uses{labels}"


def _trains_on_clean(entrants: Sequence[Entrant]) -> bool:
    return any(Need.CLEAN_SAMPLES in entrant.method.needs for entrant in entrants)


def _groups(
    options: CompareOptions,
    training: SizedTrainingSpec,
    settings: Sequence[Setting],
    location: RunLocation,
    *,
    halve: bool = False,
) -> list[Group]:
    """Group settings with the same inputs, true labels and validation: all of them where validation is clean.

    `halve` divides the clean validation samples into those that a method trains with and those on which it is stopped.
    """
    groups: dict[tuple[bytes | None, ...], list[Setting]] = {}
    for one in settings:
        train, valid = one.prepared.splits.train, one.prepared.splits.valid
        truth = None if train.clean_labels is None else train.clean_labels.tobytes()
        groups.setdefault((train.rows.tobytes(), truth, valid.labels.tobytes()), []).append(one)
    return [Group(_task(options, training, own[0].prepared, location, halve=halve), own) for own in groups.values()]


def _task(
    options: CompareOptions, training: SizedTrainingSpec, prepared: Prepared, location: RunLocation, *, halve: bool
) -> Task:
    """Return the task that the members of a group share; every entrant has its own method."""
    task = prepared_task(prepared, training, Standard.name, seed=options.seed, location=location, order="comparison")
    evaluate, test = dict(task.evaluate), prepared.splits.test
    if test is not None:
        evaluate[_evaluated_on(prepared)] = test
        if options.test_rows is not None:
            evaluate[TEST_PART] = in_rows(test, options.test_rows)
    if halve and task.clean is not None:
        trained_on, evaluate[UNUSED] = halves(task.clean, options.seed)
        task = replace(task, clean=trained_on)
    return replace(task, evaluate=evaluate)


def halves(clean: LabelledData, seed: int) -> tuple[LabelledData, LabelledData]:
    """Return two halves of clean samples: to train with, and to choose an epoch on."""
    try:
        return hold_out(clean, 0.5, np.random.default_rng(derive(seed, "halves")))
    except InvalidInput as problem:
        raise InvalidInput(
            "a method that trains with clean samples needs at least two of one class, one to choose an epoch on, but "
            f"got {counted(len(clean), 'validation sample')}; hold out more with --validation-share."
        ) from problem


def _plan(
    options: CompareOptions, training: SizedTrainingSpec, groups: Sequence[Group], entrants: Sequence[Entrant]
) -> SearchPlan:
    """Plan the searches; the generation size is chosen for the group with the most searches."""
    group = max(groups, key=lambda group: len(group.searched(entrants, options.searches)))
    keep_all = schedules.constant(1.0, training.epochs)
    kinds = [
        Member(keep_all, 0, training.learning_rate, setting.prepared.splits.train.labels, entrant.method)
        for setting, entrant in group.searched(entrants, options.searches)
    ]
    return plan_search(
        options.search,
        training,
        options.seed,
        choose=partial(choose_generation_size, group.task, kinds) if kinds else min,
    )


# --------------------------------------------------------------------------------------------------------- trainings


def _train(
    group: Group,
    entrants: Sequence[Entrant],
    session: Session[CompareOptions],
    options: CompareOptions,
    finished: FinishedTrainings,
    listener: ProgressListener,
    found: Schedules,
) -> None:
    """Train the unfinished members in one population, and store every training as soon as it is finished."""
    entries = [
        (setting, entrant) for entrant in entrants for setting in group.settings if finished.lacks(setting, entrant)
    ]
    if not entries:
        return
    members = [_member(setting, entrant, options, finished, found, group.task.epochs) for setting, entrant in entries]
    names = list(dict.fromkeys(entrant.name for _, entrant in entries))
    stage = ", ".join(names) if len(names) <= MOST_NAMED else f"{len(names)} methods"
    listener.stage(stage, stages_needed(group.task, members) * group.task.epochs)

    def store(indices: list[int], trained: Trained) -> None:
        own = [entries[index] for index in indices]
        outcomes = list(_outcomes(own, [members[index] for index in indices], trained))
        finished.add(outcomes, {}, session.made_on(group.task.device))

    def store_matrices(matrices: dict[int, NDArray[np.float64]]) -> None:
        named = {}
        for index, matrix in matrices.items():
            setting, entrant = entries[index]
            named[_training_name(setting.noise, entrant.name, setting.draw)] = matrix
        finished.add([], named)

    trained, as_trained = train_in_two_stages(
        group.task, members, on_epoch=listener.epoch, on_first_stage=store, on_estimates=store_matrices
    )
    finished.add(list(_outcomes(entries, as_trained, trained)), {}, session.made_on(group.task.device))


def _member(
    setting: Setting,
    entrant: Entrant,
    options: CompareOptions,
    finished: FinishedTrainings,
    found: Schedules,
    epochs: int,
) -> Member:
    train = setting.prepared.splits.train
    return Member(
        _schedule(setting, entrant, options, epochs, found),
        derive(options.seed, "compared", setting.draw),
        options.training.learning_rate,
        entrant.labels(train),
        entrant.method,
        finished.transitions.get(_training_name(setting.noise, entrant.name, setting.draw)),
        held_out=entrant.held_out(train),
    )


def _expected_time(
    groups: Sequence[Group],
    entrants: Sequence[Entrant],
    plan: SearchPlan,
    options: CompareOptions,
    finished: FinishedTrainings,
) -> str | None:
    """Return a line about the time of all unfinished trainings and searches; None if it is short or unknown."""
    if not can_be_timed(groups[0].task):
        return None
    seconds, keep_all = 0.0, schedules.constant(1.0, groups[0].task.epochs)

    def member(setting: Setting, entrant: Entrant) -> Member:
        return Member(keep_all, 0, options.training.learning_rate, setting.prepared.splits.train.labels, entrant.method)

    for group in groups:
        for searched in (False, True):
            own = [entrant for entrant in entrants if entrant.searched == searched]
            left = [(setting, one) for one in own for setting in group.settings if finished.lacks(setting, one)]
            seconds += population_seconds(group.task, [member(*entry) for entry in left])
        kinds = [[member(*entry) for entry in group.searched(entrants, options.searches)]]
        kinds += [
            [member(setting, entrant)] for setting, entrant in _searched_on_noisy(group, entrants, options.searches)
        ]
        for kind in kinds:
            generation = [each for each in kind for _ in range(plan.generation_size)]
            seconds += -(-plan.trials // plan.generation_size) * population_seconds(group.task, generation)
    less = (
        ["fewer `--seeds`", "fewer `--trials`"]
        if any(entrant.searched for entrant in entrants)
        else ["fewer `--seeds`"]
    )
    return expected_time(seconds, groups[0].task.device, less)


def _training_name(noise: str, method: str, seed: int) -> str:
    """Return the name of a training among the stored transition matrices."""
    return f"{noise}/{method}/{seed}"


def _schedule(
    setting: Setting, entrant: Entrant, options: CompareOptions, epochs: int, found: Schedules
) -> NDArray[np.float64]:
    """Return the keep rates: searched, computed from the noise rate, or constantly 1."""
    if entrant.searched:
        return found[setting.noise, entrant.name, setting.draw % options.searches].schedule
    rate = setting.prepared.noise_rate if options.noise_rate is None else options.noise_rate
    if Need.SCHEDULE in entrant.method.needs and rate is not None:
        return schedules.coteaching(rate, epochs)
    return schedules.constant(1.0, epochs)


def _search(
    group: Group,
    entrants: Sequence[Entrant],
    plan: SearchPlan,
    stage: str,
    session: Session[CompareOptions],
    listener: ProgressListener,
) -> dict[tuple[str, str, int], BestTrial]:
    """Search the schedules of a group; the search gets training and validation data, never the test part."""
    searches = {
        (setting.noise, entrant.name, setting.draw): _search_of(setting, entrant, plan, session)
        for setting, entrant in group.searched(entrants, session.options.searches)
    }
    if not searches:
        return {}
    task = replace(group.task, evaluate={VALIDATION: group.task.evaluate[VALIDATION]})
    noisy = group.settings[0].prepared.validation == "noisy"  # then the group is one setting
    found, _ = find_schedules(task, list(searches.values()), relabel=noisy, listener=listener, stage=stage)
    return dict(zip(searches, found, strict=True))


def _search_of(setting: Setting, entrant: Entrant, plan: SearchPlan, session: Session[CompareOptions]) -> Search:
    """Return the search of an entrant on one draw of a noise setting; each draw has other points and weights."""
    draw, train = setting.draw, setting.prepared.splits.train
    study = session.study(setting.noise, entrant.name, *([str(draw)] if draw else []))
    return Search(replace(plan, seed=seed_of_search(plan.seed, draw)), study, train.labels, entrant.method)


def seed_of_search(seed: int, index: int) -> int:
    """Return the seed of one of several searches: `seed` itself for the first, derived for the others."""
    return seed if index == 0 else derive(seed, "search", index)


def _searched_on_noisy(group: Group, entrants: Sequence[Entrant], searches: int) -> list[tuple[Setting, Entrant]]:
    """Return the searches with noisy validation, each in a population of its own: their validation labels differ."""
    return [
        (setting, entrant)
        for setting in group.settings
        if setting.draw < searches
        for entrant in entrants
        if entrant.noisy_validation
    ]


def _search_on_noisy_validation(
    group: Group,
    entrants: Sequence[Entrant],
    plan: SearchPlan,
    stage: str,
    session: Session[CompareOptions],
    listener: ProgressListener,
) -> dict[tuple[str, str, int], BestTrial]:
    """Search schedules without clean samples: the labels of the validation part get the noise of the training part.

    They are relabelled before schedules are compared on them, as in `s2e search --validation noisy`.
    """
    options, found = session.options, {}
    for setting, entrant in _searched_on_noisy(group, entrants, options.searches):
        splits, draw = setting.prepared.splits, setting.draw
        noisy = with_noise(splits.valid, options.dataset, setting.noise, options.seed, session.location.root, draw=draw)
        task = replace(group.task, train=splits.train, evaluate={VALIDATION: noisy}, clean=None)
        search = _search_of(setting, entrant, plan, session)
        (best,), _ = find_schedules(task, [search], relabel=True, listener=listener, stage=f"{stage}, noisy validation")
        found[setting.noise, entrant.name, draw] = best
    return found


def _outcomes(
    entries: Sequence[tuple[Setting, Entrant]], members: Sequence[Member], trained: Trained
) -> Iterator[Outcome]:
    for index, ((setting, entrant), member) in enumerate(zip(entries, members, strict=True)):
        yield Outcome.of(
            trained.curves,
            index,
            noise=setting.noise,
            method=entrant.name,
            seed=setting.draw,
            evaluated_on=_evaluated_on(setting.prepared),
            keep_rates=member.schedule if Need.SCHEDULE in entrant.method.needs else None,
            chosen_on=_chosen_on(entrant),
        )


def _chosen_on(entrant: Entrant) -> str | None:
    """Return the part on which an epoch of an entrant may be chosen; None if it has no such samples."""
    if entrant.noisy_validation:
        return None
    return UNUSED if Need.CLEAN_SAMPLES in entrant.method.needs else VALIDATION


def _write(
    run: Run, outcomes: Sequence[Outcome], transitions: Mapping[str, NDArray[np.float64]], found: Schedules
) -> None:
    """Write tables, figures, the schedules found and the transition matrices estimated."""
    run.write_text("results.csv", csv_text(result_rows(outcomes)))
    run.write_text("curves.csv", csv_text(curve_rows(outcomes)))
    for name, image in figure_files(outcomes).items():
        run.write_bytes(name, image)
    finished = {_training_name(one.noise, one.method, one.seed) for one in outcomes}
    if matrices := {name: matrix for name, matrix in transitions.items() if name in finished}:
        run.write_arrays("transitions.npz", matrices)
    for (noise, name, index), best in found.items():
        setting = noise[-LONGEST_NOISE:]  # the end of a long path to a matrix
        file = f"schedule-{name}-{setting}{f'-search-{index}' if index else ''}.json"
        run.write_json(file.replace(":", "-").replace("/", "-"), schedule_content(best))


def _parts(prepared: Prepared) -> dict[str, LabelledData]:
    splits = prepared.splits
    parts = {"train": splits.train, "valid": splits.valid, _evaluated_on(prepared): splits.test}
    return {name: part for name, part in parts.items() if part is not None}
