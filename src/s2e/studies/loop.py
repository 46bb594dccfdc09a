"""Searching the schedule: THE generation loop — ask K points, train them as one population, tell their scores.

The study is the only state. Every trial is asked with a sampler built anew from (seed, trial number), and written to
the study in one piece; so whatever the moment a process dies at, opening the study again continues where it was.

Letters: K points in a generation, D dimensions of the space, T epochs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import FloatDistribution
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState

from s2e.engine.curves import Curves
from s2e.engine.task import VALIDATION, EpochFinished, Member, Task
from s2e.engine.training import Trainer
from s2e.errors import InvalidInput
from s2e.methods import Need
from s2e.samplers.curve_model import CurveModel, landmarks
from s2e.samplers.study_view import complete
from s2e.schedules.spaces import Space
from s2e.seeds import derive
from s2e.studies.plan import Search, SearchPlan
from s2e.studies.pruning import GenerationPruner
from s2e.studies.storage import drafted

ENOUGH_TO_EXPECT = 12
"""Trials from which on a model of them says what to expect of a schedule."""

FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)
"""States of trials that have been trained and told."""

TRAINED = "validation_accuracy"
"""Attribute of a trial that holds its validation accuracy after every epoch it was trained for."""

Stop = Callable[[EpochFinished], Collection[int]]
"""Is asked after every epoch and names the members, by their places, that train no further."""

Train = Callable[[Sequence[Member], Stop], Curves]
"""Trains members side by side and returns what happened by epoch, in their order."""


@dataclass(frozen=True)
class Found:
    """The best trial of a search.

    Attributes:
        schedule: (T,) keep rates.
        point: (D,) in the unit cube.
        validation_accuracy: mean over the last epochs and the member's networks, of the training that was scored.
        trial: its number in the study.
    """

    schedule: NDArray[np.float64]
    point: NDArray[np.float64]
    validation_accuracy: float
    trial: int


@dataclass(frozen=True)
class GenerationFinished:
    """Observations after every generation: trials finished of all, how many a generation, the best accuracy of each search."""

    finished: int
    trials: int
    size: int
    best: tuple[float, ...]

    @property
    def place(self) -> str:
        """Say which generation of how many this was."""
        generation, generations = (-(-count // self.size) for count in (self.finished, self.trials))
        return f"generation {generation}/{generations}"


def search_schedule(
    task: Task,
    plan: SearchPlan,
    study: optuna.Study,
    *,
    on_generation: Callable[[GenerationFinished], None] | None = None,
    on_epoch: Callable[[EpochFinished], None] | None = None,
) -> Found:
    """Run the study up to `plan.trials` finished trials and return the best; continues a study begun before.

    Args:
        task: what is trained; must evaluate "valid", and the score is the error there.
        plan: what is searched and how.
        study: minimised; a fresh one or one begun with the same task and plan.
        on_generation: told after every generation.
        on_epoch: told after every epoch of a generation.
    """
    (found,) = search_schedules(task, [Search(plan, study)], on_generation=on_generation, on_epoch=on_epoch)
    return found


def search_schedules(
    task: Task,
    searches: Sequence[Search],
    *,
    on_generation: Callable[[GenerationFinished], None] | None = None,
    on_epoch: Callable[[EpochFinished], None] | None = None,
) -> list[Found]:
    """Run several studies to their ends, a generation of each in one population, and return the best of each.

    A search among others finds what it finds alone: on a CPU exactly, on a GPU to rounding.
    """
    for search in searches:
        method = search.method or task.method
        if Need.SCHEDULE not in method.needs:
            raise InvalidInput(f"`method` must have a keep rate to search a schedule for, but got {method.name}.")

    trainer = Trainer(task)

    def train(members: Sequence[Member], stop: Stop) -> Curves:
        return trainer.train(members, on_epoch=on_epoch, stop=stop).curves

    run_generations(train, task.epochs, searches, on_generation=on_generation)
    return [best(search.study, search.plan.space, task.epochs) for search in searches]


def run_generations(
    train: Train,
    epochs: int,
    searches: Sequence[Search],
    *,
    on_generation: Callable[[GenerationFinished], None] | None = None,
) -> None:
    """Run several studies to their ends: ask a generation of each, train all of them together, tell each its own."""
    while any(generation := [next_generation(search, epochs) for search in searches]):
        members = [_members(trials, epochs, search) for search, trials in zip(searches, generation, strict=True)]
        judges = [_judge(search, trials) for search, trials in zip(searches, generation, strict=True)]
        owners = np.repeat(np.arange(len(searches)), [len(own) for own in members])  # (P,)
        firsts = np.cumsum([0, *(len(own) for own in members)])
        curves = train([member for own in members for member in own], _stopping(judges, owners, firsts))
        for which, (search, trials) in enumerate(zip(searches, generation, strict=True)):
            _tell(search.study, trials, curves.take(np.arange(firsts[which], firsts[which + 1])), judges[which])
        if on_generation is not None:
            on_generation(_standing(searches, epochs))


def _judge(search: Search, trials: Sequence[FrozenTrial]) -> GenerationPruner | None:
    how = search.plan.algorithm
    return None if how.pruner is None else GenerationPruner(search.study, trials, how.pruner, how.rungs)


def _stopping(judges: Sequence[GenerationPruner | None], owners: NDArray[np.int64], firsts: NDArray[np.int64]) -> Stop:
    """Ask every search's judge about its own members."""

    def stop(progress: EpochFinished) -> list[int]:
        at = np.array(progress.indices)
        trained = progress.curves.epochs == progress.epoch  # the others have been stopped before
        stopped: list[int] = []
        for which, judge in enumerate(judges):
            rows = np.flatnonzero(trained & (owners[at] == which))
            if judge is None or not len(rows):
                continue
            members = (at[rows] - firsts[which]).tolist()
            leaving = judge.stopped(progress.epoch, members, progress.curves.take(rows))
            stopped += [int(firsts[which]) + member for member in leaving]
        return stopped

    return stop


def _standing(searches: Sequence[Search], epochs: int) -> GenerationFinished:
    return GenerationFinished(
        int(sum(cost(search.study, epochs) for search in searches)),
        sum(search.plan.trials for search in searches),
        sum(search.plan.generation for search in searches),
        tuple(1.0 - min(trial.values[0] for trial in complete(search.study)) for search in searches),
    )


def cost(study: optuna.Study, epochs: int) -> float:
    """Return what the trials of a study have cost, in full trainings: epochs trained / T."""
    return _cost(finished(study), epochs)


def _cost(trials: Iterable[FrozenTrial], epochs: int) -> float:
    return sum(len(trial.user_attrs.get(TRAINED, range(epochs))) for trial in trials) / epochs


def epochs_left(searches: Sequence[Search], epochs: int) -> int:
    """Return the epochs that searches trained together still have to train, all members of a generation at once.

    Where trainings are stopped early, one can only guess: what a trial has cost so far, it will cost.
    """
    generations = []
    for search in searches:
        done, spent = {trial.number for trial in finished(search.study)}, cost(search.study, epochs)
        each = spent / len(done) if done else 1.0
        expected = len(done) + math.ceil((search.plan.trials - spent) / each)
        left = {number // search.plan.generation for number in range(expected) if number not in done}
        generations.append(len(left))
    return max(generations, default=0) * epochs


def next_generation(search: Search, epochs: int) -> list[FrozenTrial]:
    """Return the trials to train next: those a dead process left running, then new ones to the end of a generation."""
    study, size = search.study, search.plan.generation
    asked = study.get_trials(deepcopy=False)
    running = [trial for trial in asked if trial.state == TrialState.RUNNING]
    if running and len(asked) % size == 0:
        return running
    spent = _cost((trial for trial in asked if trial.state in FINISHED), epochs)
    affordable = math.ceil(search.plan.trials - spent) - len(running)
    return running + _ask(study, search.plan, asked, max(0, min(affordable, size - len(asked) % size)))


def ask(study: optuna.Study, plan: SearchPlan, count: int) -> list[FrozenTrial]:
    """Ask for new trials and write each to the study in one piece, so that none is ever half there.

    The samplers work on a copy of the study in memory: a trial of the real one appears with all its parameters or not
    at all. A study in memory dies with the process, and is asked itself.
    """
    return _ask(study, plan, study.get_trials(deepcopy=False), count)


def _ask(study: optuna.Study, plan: SearchPlan, before: Sequence[FrozenTrial], count: int) -> list[FrozenTrial]:
    if not count:
        return []
    lasting = not isinstance(study._storage, InMemoryStorage)
    draft = drafted(study, before) if lasting else study
    distributions = {name: FloatDistribution(0.0, 1.0) for name in plan.space.names}
    first = len(before)
    for number in range(first, first + count):
        draft.sampler = plan.algorithm.sampler(derive(plan.seed, "sampler", number))
        draft.ask(dict(distributions))
        if lasting:
            study.add_trial(draft.get_trials(deepcopy=False)[number])
    return study.get_trials(deepcopy=False)[first:]


def best(study: optuna.Study, space: Space, epochs: int) -> Found:
    """Return the trial with the smallest expected validation error, the earliest of equals.

    The error of a single training is partly luck, and the smallest of many is mostly lucky. What is expected of a
    schedule is therefore judged by a model of all trials, once there are enough of them; before, by its own error.
    """
    trials = complete(study)
    points = np.stack([_point(trial, space) for trial in trials])  # (n, D)
    errors = np.array([float(trial.values[0]) for trial in trials])
    expected = errors
    if len(trials) >= ENOUGH_TO_EXPECT:
        curves = space.decode(points, epochs, at=landmarks(epochs))
        expected, _ = CurveModel(curves, errors).predict(curves)
    chosen = int(expected.argmin())
    schedule = space.decode(points[chosen][None], epochs)[0]
    return Found(schedule, points[chosen], 1.0 - float(errors[chosen]), trials[chosen].number)


def winner(study: optuna.Study) -> FrozenTrial:
    """Return the trial whose own error is the smallest, the earliest of equals; `best` judges by a model instead."""
    return min(complete(study), key=lambda trial: trial.values[0])


def _members(trials: Sequence[FrozenTrial], epochs: int, search: Search) -> list[Member]:
    if not trials:
        return []
    plan = search.plan
    points = np.stack([_point(trial, plan.space) for trial in trials])  # (K, D)
    schedules = plan.space.decode(points, epochs)  # (K, T)
    return [
        Member(schedule, derive(plan.seed, "trial", trial.number), plan.learning_rate, search.labels, search.method)
        for trial, schedule in zip(trials, schedules, strict=True)
    ]


def attribute_of(evaluated: str) -> str:
    """Return the attribute of a trial that holds its accuracy on a data set, by that one's name in the task."""
    return TRAINED if evaluated == VALIDATION else f"accuracy_{evaluated}"


def _tell(study: optuna.Study, trials: Sequence[FrozenTrial], curves: Curves, judge: GenerationPruner | None) -> None:
    """Score each member by its validation error; one that diverged is scored worst, with an error of 1.

    Accuracies on other data sets that the task evaluates are written beside, and count for nothing.
    """
    errors, epochs = 1.0 - curves.last(VALIDATION), curves.accuracy[VALIDATION].shape[1]
    for member, trial in enumerate(trials):
        trained = int(curves.epochs[member])
        if judge is not None:
            judge.write(study, member)
        running = optuna.Trial(study, trial._trial_id)
        for evaluated, accuracy in curves.accuracy.items():
            by_epoch = [round(float(value), 6) for value in accuracy[member, :trained]]
            running.set_user_attr(attribute_of(evaluated), by_epoch)
        if trained < epochs:
            study.tell(trial.number, state=TrialState.PRUNED)
        else:
            study.tell(trial.number, float(errors[member]))


def _point(trial: FrozenTrial, space: Space) -> NDArray[np.float64]:
    return np.array([trial.params[name] for name in space.names])


def finished(study: optuna.Study) -> list[FrozenTrial]:
    """Return the trials that have been trained and told, to the end or not."""
    return study.get_trials(deepcopy=False, states=FINISHED)
