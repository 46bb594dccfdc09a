"""The generation loop: ask K points, train them as one population, tell their scores.

The study is the only state. Every trial is asked by a sampler built from (seed, trial number) and written to the study
atomically. If the process is killed, the search can be continued by opening the study again.

Letters: K points in a generation, D dimensions of the space, T epochs, P members of all searches.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import FloatDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from s2e.engine import VALIDATION, Curves, EpochFinished, Member, Task, Trained, Trainer
from s2e.errors import InvalidInput, TrainingDiverged, counted
from s2e.methods import Need
from s2e.samplers import complete_trials
from s2e.seeds import derive
from s2e.studies.method_choice import methods_of
from s2e.studies.optuna_internals import (
    NumberTaken,
    add_trial,
    asking_alone,
    is_in_memory,
    set_study_attributes,
    set_user_attribute,
    study_attributes,
)
from s2e.studies.owners import Owner, owner_of_trials, trials_of_others
from s2e.studies.plan import Search, SearchPlan
from s2e.studies.pruning import GenerationPruner
from s2e.studies.selection import BestTrial, best_trial
from s2e.studies.storage import storage_faults
from s2e.studies.studies import copy_in_memory
from s2e.studies.trials import (
    DIVERGED,
    FINISHED,
    accuracy_attribute,
    diverged_trials,
    finished_trials,
    full_trainings,
    point_of,
)

log = logging.getLogger(__name__)

WAIT_SECONDS = 1.0
"""Time between two looks at a study of which only other processes have trials in training."""

Stop = Callable[[EpochFinished], Collection[int]]
"""Called after every epoch; returns the indices of the members that stop training."""

Train = Callable[[Sequence[Member], Stop | None], Curves]
"""Trains members as one population and returns their curves, in their order; stops none early without a `Stop`."""


@dataclass(frozen=True)
class GenerationFinished:
    """Progress of searches trained together, after a generation.

    Attributes:
        finished: full trainings spent, over all searches, rounded down.
        trials: full trainings to spend, over all searches.
        generation_size: points in a generation, over all searches.
        best: best validation accuracy so far, of each search.
    """

    finished: int
    trials: int
    generation_size: int
    best: tuple[float, ...]

    @property
    def position(self) -> str:
        """The number of the generation and the total, as text."""
        generation, generations = (-(-count // self.generation_size) for count in (self.finished, self.trials))
        return f"generation {generation}/{generations}"


OnGeneration = Callable[[GenerationFinished], bool | None]
"""Called after every generation; returns True to end the search."""


def search_schedules(
    task: Task,
    searches: Sequence[Search],
    *,
    on_generation: OnGeneration | None = None,
    on_epoch: Callable[[EpochFinished], None] | None = None,
    on_trained: Callable[[Sequence[Member], Trained], None] | None = None,
) -> list[BestTrial]:
    """Run several studies to their ends, a generation of each in one population, and return the best trial of each.

    A search has the same trials as when it runs alone: exactly on a CPU, up to rounding on a GPU. `on_trained` receives
    the members of a generation with their weights before the studies receive the scores.
    """
    for search in searches:
        method = search.method or task.method
        if Need.SCHEDULE not in method.needs:
            raise InvalidInput(f"`method` must have a keep rate to search a schedule for, but got {method.name}.")

    trainer = Trainer(task)

    def train(members: Sequence[Member], stop: Stop | None) -> Curves:
        trained = trainer.train(members, on_epoch=on_epoch, stop=stop)
        if on_trained is not None:
            on_trained(members, trained)
        return trained.curves

    run_generations(train, task.epochs, searches, on_generation=on_generation)
    return [best_trial(search.study, search.plan.space, task.epochs) for search in searches]


@storage_faults()
def run_generations(
    train: Train, epochs: int, searches: Sequence[Search], *, on_generation: OnGeneration | None = None
) -> None:
    """Run several studies to their ends: ask a generation of each, train all members together, tell each study.

    Other processes may run the same studies: each trains trials of its own, and all return when all trials have ended.
    """
    with owner_of_trials() as owner:
        _run_generations(train, epochs, searches, on_generation, owner)


def _run_generations(
    train: Train, epochs: int, searches: Sequence[Search], on_generation: OnGeneration | None, owner: Owner
) -> None:
    while any(generations := _next_generations(searches, epochs, owner)):
        pairs = list(zip(searches, generations, strict=True))
        members = [member for search, trials in pairs for member in _members(search, trials, epochs)]  # (P,)
        pruners = [_pruner(search, trials) for search, trials in pairs]
        bounds = np.cumsum([0, *(len(trials) for trials in generations)])  # search i has members bounds[i]…bounds[i+1]
        curves = train(members, _stop(pruners, bounds))
        for i, (search, trials) in enumerate(pairs):
            _tell(search, trials, curves.take(np.arange(bounds[i], bounds[i + 1])), pruners[i])
        if curves.diverged.all():
            _check_not_all_diverged(searches)
        if on_generation is not None and on_generation(_progress(searches, epochs)):
            return


def _check_not_all_diverged(searches: Sequence[Search]) -> None:
    """Raise `TrainingDiverged` if every finished trial of all searches has diverged: later ones would, too."""
    finished = sum(len(finished_trials(search.study)) for search in searches)
    if sum(diverged_trials(search.study) for search in searches) == finished:
        raise TrainingDiverged(finished)


def _next_generations(searches: Sequence[Search], epochs: int, owner: Owner) -> list[list[FrozenTrial]]:
    """Return the trials of each search to train next; all are empty when all searches have ended.

    While only other processes have trials in training, wait: one of them may end before its trials do.
    """
    waited = False
    while True:
        generations = []
        for index, search in enumerate(searches):
            with asking_alone(search.study):
                generations.append(next_generation(search, epochs, owner))
            owner.keep(index, search.study, generations[-1])
        if any(generations) or not (others := sum(trials_of_others(search.study) for search in searches)):
            return generations
        if not waited:
            log.warning("waiting for %s of other processes", counted(others, "trial"))
        waited = True
        time.sleep(WAIT_SECONDS)


def next_generation(search: Search, epochs: int, owner: Owner | None = None) -> list[FrozenTrial]:
    """Return the trials to train next: those that ended processes left running, then new ones to complete a generation.

    Args:
        search: plan and study.
        epochs: T, epochs of every training.
        owner: becomes the owner of the trials; None if no other process uses the study.
    """
    study, plan, size = search.study, search.plan, search.plan.generation_size
    own: list[FrozenTrial] = []
    while True:
        trials = study.get_trials(deepcopy=False)
        running = [trial for trial in trials if trial.state == TrialState.RUNNING]
        own += running if owner is None else owner.take_over(study, trials)
        if own and len(trials) % size == 0:
            return own
        spent = full_trainings((trial for trial in trials if trial.state in FINISHED), epochs)
        affordable = math.ceil(plan.trials - spent) - len(running)
        count = max(0, min(affordable, size - len(trials) % size))
        asked = ask(study, plan, count, trials, owner)
        own += asked
        if len(asked) == count:  # otherwise another process has asked at the same time
            return own


def ask(
    study: optuna.Study,
    plan: SearchPlan,
    count: int,
    trials: Sequence[FrozenTrial] | None = None,
    owner: Owner | None = None,
) -> list[FrozenTrial]:
    """Ask for `count` new trials and write each to the study atomically.

    Samplers work on a copy of the study in memory, so a trial appears in the study with all its parameters or not at
    all. A study in memory is lost with its process, so it is asked directly.

    Args:
        study: study to which the trials are added.
        plan: plan of the search.
        count: number of new trials.
        trials: all trials of the study, if they have just been read.
        owner: trains the trials; fewer are returned if another process asks at the same time, as the points depend on
            the numbers of the trials.
    """
    if not count:
        return []
    before = study.get_trials(deepcopy=False) if trials is None else trials
    copied = study if is_in_memory(study) else copy_in_memory(study, before)
    distributions = {name: FloatDistribution(0.0, 1.0) for name in plan.space.names}
    end = len(before) + count
    for number in range(len(before), end):
        attributes = study_attributes(copied)
        copied.sampler = _sampler(plan, number)
        copied.ask(dict(distributions))
        if copied is not study:
            try:
                add_trial(study, copied.get_trials(deepcopy=False)[number], None if owner is None else owner.name)
            except NumberTaken:
                end = number
                break
            now = study_attributes(copied)
            set_study_attributes(study, {key: now[key] for key in now if now[key] != attributes.get(key)})
    return study.get_trials(deepcopy=False)[len(before) : end]


def _sampler(plan: SearchPlan, number: int) -> BaseSampler:
    """Build the sampler of trial `number`."""
    return plan.sampler.build(derive(plan.seed, "sampler", number))


def _members(search: Search, trials: Sequence[FrozenTrial], epochs: int) -> list[Member]:
    if not trials:
        return []
    plan = search.plan
    points = np.stack([point_of(trial, plan.space) for trial in trials])  # (K, D)
    schedules = plan.space.decode(points, epochs)  # (K, T)
    rows = zip(trials, schedules, methods_of(plan.space, points), strict=True)
    return [
        Member(
            schedule,
            derive(plan.seed, "trial", trial.number),
            plan.learning_rate,
            search.labels,
            method or search.method,
        )
        for trial, schedule, method in rows
    ]


def _pruner(search: Search, trials: Sequence[FrozenTrial]) -> GenerationPruner | None:
    spec = search.plan.sampler
    return None if spec.pruner is None else GenerationPruner(search.study, trials, spec.pruner, spec.rungs)


def _stop(pruners: Sequence[GenerationPruner | None], bounds: NDArray[np.int64]) -> Stop | None:
    """Apply the pruner of each search to its own members, whose indices `bounds` delimits; None without pruners."""
    if not any(pruners):
        return None  # devices that train a part each need not wait for each other's decisions

    def stop(progress: EpochFinished) -> list[int]:
        indices = np.array(progress.indices)
        trained = progress.curves.epochs == progress.epoch  # the others were stopped before
        stopped: list[int] = []
        for pruner, first, end in zip(pruners, bounds[:-1], bounds[1:], strict=True):
            rows = np.flatnonzero(trained & (indices >= first) & (indices < end))
            if pruner is not None and len(rows):
                members = (indices[rows] - first).tolist()
                pruned = pruner.stopped(progress.epoch, members, progress.curves.take(rows))
                stopped += [int(first) + member for member in pruned]
        return stopped

    return stop


def _tell(search: Search, trials: Sequence[FrozenTrial], curves: Curves, pruner: GenerationPruner | None) -> None:
    """Tell the study the validation error of each member; a member that diverged has an error of 1.

    Accuracies on all evaluated data sets are stored as attributes of the trial.
    """
    for member, trial in enumerate(trials):
        with suppress(optuna.exceptions.UpdateFinishedTrialError):  # finished by a process that had taken it over
            _tell_trial(search, trial, curves, member, pruner)


def _tell_trial(
    search: Search, trial: FrozenTrial, curves: Curves, member: int, pruner: GenerationPruner | None
) -> None:
    study = search.study
    errors, epochs = 1.0 - curves.last(VALIDATION), curves.accuracy[VALIDATION].shape[1]
    trained = int(curves.epochs[member])
    if pruner is not None:
        pruner.write_reports(member)
    for evaluated, accuracy in curves.accuracy.items():
        by_epoch = [round(float(value), 6) for value in accuracy[member, :trained]]
        set_user_attribute(study, trial, accuracy_attribute(evaluated), by_epoch)
    if curves.diverged[member]:
        set_user_attribute(study, trial, DIVERGED, True)
    study.sampler = _sampler(search.plan, trial.number)  # `tell` calls its `after_trial`
    if trained < epochs:
        study.tell(trial.number, state=TrialState.PRUNED, skip_if_finished=True)
    else:
        study.tell(trial.number, float(errors[member]), skip_if_finished=True)


def _progress(searches: Sequence[Search], epochs: int) -> GenerationFinished:
    return GenerationFinished(
        int(sum(full_trainings(finished_trials(search.study), epochs) for search in searches)),
        sum(search.plan.trials for search in searches),
        sum(search.plan.generation_size for search in searches),
        tuple(1.0 - min(trial.values[0] for trial in complete_trials(search.study)) for search in searches),
    )


def epochs_left(searches: Sequence[Search], epochs: int) -> int:
    """Return the epochs that searches trained together still have to train; members of a generation count once.

    If trainings are stopped early this is an estimate: later trials are assumed to cost as much as those so far.
    """
    generations = []
    for search in searches:
        finished = finished_trials(search.study)
        done, spent = {trial.number for trial in finished}, full_trainings(finished, epochs)
        each = spent / len(done) if done else 1.0
        expected = len(done) + math.ceil((search.plan.trials - spent) / each)
        left = {number // search.plan.generation_size for number in range(expected) if number not in done}
        generations.append(len(left))
    return max(generations, default=0) * epochs
