"""Searching the schedule: THE generation loop — ask K points, train them as one population, tell their scores.

The study is the only state. Every trial is asked with a sampler built anew from (seed, trial number), and written to
the study in one piece; so whatever the moment a process dies at, opening the study again continues where it was.

Letters: K points in a generation, D dimensions of the space, T epochs.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import sqlalchemy.exc
from numpy.typing import NDArray
from optuna.distributions import FloatDistribution
from optuna.trial import FrozenTrial, TrialState

from s2e.errors import InvalidInput, RunConflict, UnreadableData
from s2e.methods import Method, Need
from s2e.records import Curves
from s2e.samplers import SamplerFactory
from s2e.seeds import derive
from s2e.spaces import Space
from s2e.surrogate import CurveModel, landmarks
from s2e.tasks import VALIDATION, Member, Progress, Task
from s2e.training import train_population

log = logging.getLogger(__name__)

CHANGEABLE = frozenset({"trials", "baselines", "restarts"})
"""Settings that may change when a search is continued: they decide how long it goes on and what comes after it."""


ENOUGH_TO_EXPECT = 12
"""Trials from which on a model of them says what to expect of a schedule."""


@dataclass(frozen=True)
class SearchPlan:
    """What a search is, apart from the data and the networks.

    Attributes:
        space: the family of schedules.
        sampler: builds the sampler of a trial from its seed.
        trials: how many schedules to train.
        generation: K, how many of them are asked, trained and told together.
        learning_rate: of every member.
        seed: decides the points and the networks' initial weights.
    """

    space: Space
    sampler: SamplerFactory
    trials: int = 60
    generation: int = 6
    learning_rate: float = 1e-3
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("trials", "generation"):
            if getattr(self, name) < 1:
                raise InvalidInput(f"`{name}` must be at least 1, but got {getattr(self, name)}.")


@dataclass(frozen=True, eq=False)
class Search:
    """One search among several that are trained together.

    Attributes:
        plan: what is searched and how.
        study: minimised; a fresh one or one begun with the same task and plan.
        labels: (N,) the labels it is for; None for those of the training data.
        method: the method it is for; None for the task's.
    """

    plan: SearchPlan
    study: optuna.Study
    labels: NDArray[np.int64] | None = None
    method: Method | None = None


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
class GenerationDone:
    """Told after every generation: trials finished of all, how many a generation, the best accuracy of each search."""

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
    on_generation: Callable[[GenerationDone], None] | None = None,
    on_epoch: Callable[[Progress], None] | None = None,
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
    on_generation: Callable[[GenerationDone], None] | None = None,
    on_epoch: Callable[[Progress], None] | None = None,
) -> list[Found]:
    """Run several studies to their ends, a generation of each in one population, and return the best of each.

    A search among others finds what it finds alone: on a CPU exactly, on a GPU to rounding.
    """
    for search in searches:
        method = search.method or task.method
        if Need.SCHEDULE not in method.needs:
            raise InvalidInput(f"`method` must have a keep rate to search a schedule for, but got {method.name}.")
    while any(generation := [next_generation(search.study, search.plan) for search in searches]):
        members = [_members(trials, task, search) for search, trials in zip(searches, generation, strict=True)]
        trained = train_population(task, list(chain.from_iterable(members)), on_epoch=on_epoch)
        told = 0
        for search, trials in zip(searches, generation, strict=True):
            _tell(search.study, trials, trained.curves.take(np.arange(told, told + len(trials))))
            told += len(trials)
        if on_generation is not None:
            on_generation(_standing(searches))
    return [best(search.study, search.plan.space, task.epochs) for search in searches]


def _standing(searches: Sequence[Search]) -> GenerationDone:
    return GenerationDone(
        sum(finished(search.study) for search in searches),
        sum(search.plan.trials for search in searches),
        sum(search.plan.generation for search in searches),
        tuple(1.0 - min(trial.values[0] for trial in _complete(search.study)) for search in searches),
    )


def check_storage(storage: str) -> None:
    """Refuse a storage URL that cannot be opened, before anything is made."""
    try:
        _create_in_one_piece(storage)
        optuna.storages.get_storage(storage)
    except (sqlalchemy.exc.SQLAlchemyError, ImportError, ValueError) as problem:
        reason = str(problem).strip().splitlines()[0]
        raise UnreadableData(f"the storage {storage!r} could not be opened: {reason}") from problem


def _create_in_one_piece(storage: str) -> None:
    """Create the database of an SQLite URL under a hidden name and rename it, so that it is there whole or not at all.

    Optuna makes its tables one after the other. Killed in between it leaves a table without its index, and the next
    process makes a second study of the same name there, which none after it can open.
    """
    place = re.fullmatch(r"sqlite:///(.+)", storage)
    if place is None or ":memory:" in storage or "?" in storage or Path(place[1]).exists():
        return
    path = Path(place[1])
    hidden = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    made = optuna.storages.RDBStorage(f"sqlite:///{hidden}")
    made.remove_session()
    made.engine.dispose()
    try:
        os.link(hidden, path)  # not over a database another process has made meanwhile
    except OSError:
        if not path.exists():  # a file system without links
            os.replace(hidden, path)
    hidden.unlink(missing_ok=True)


def open_study(storage: str | None, name: str, settings: Mapping[str, Any]) -> optuna.Study:
    """Open or create the study at a storage URL (None: in memory), and hold it to the settings it was begun with."""
    if storage is not None:
        check_storage(storage)
    study = optuna.create_study(storage=storage, study_name=name, direction="minimize", load_if_exists=True)
    lasting = {key: value for key, value in settings.items() if key not in CHANGEABLE}
    begun_with = study.user_attrs.get("settings", lasting)
    if {key: value for key, value in begun_with.items() if key not in CHANGEABLE} != lasting:
        raise RunConflict(f"the study {name!r} at {storage} was made with other settings; use another storage or name.")
    study.set_user_attr("settings", lasting)
    return study


def epochs_left(searches: Sequence[Search], epochs: int) -> int:
    """Return the epochs that searches trained together still have to train, all members of a generation at once."""
    generations = []
    for search in searches:
        done = {trial.number for trial in _complete(search.study)}
        left = {number // search.plan.generation for number in range(search.plan.trials) if number not in done}
        generations.append(len(left))
    return max(generations, default=0) * epochs


def next_generation(study: optuna.Study, plan: SearchPlan) -> list[FrozenTrial]:
    """Return the trials to train next: those a dead process left running, then new ones to the end of a generation."""
    asked = study.get_trials(deepcopy=False)
    running = [trial for trial in asked if trial.state == TrialState.RUNNING]
    if running and len(asked) % plan.generation == 0:
        return running
    end = min(plan.trials, (len(asked) // plan.generation + 1) * plan.generation)
    return running + ask(study, plan, max(0, end - len(asked)))


def ask(study: optuna.Study, plan: SearchPlan, count: int) -> list[FrozenTrial]:
    """Ask for new trials and write each to the study in one piece, so that none is ever half there.

    The samplers work on a copy of the study in memory: a trial of the real one appears with all its parameters or not
    at all.
    """
    draft = _draft(study)
    distributions = {name: FloatDistribution(0.0, 1.0) for name in plan.space.names}
    asked = []
    for number in range(len(draft.trials), len(draft.trials) + count):
        draft.sampler = plan.sampler(derive(plan.seed, "sampler", number))
        draft.ask(dict(distributions))
        study.add_trial(draft.get_trials()[number])
        asked.append(study.get_trials(deepcopy=False)[number])
    return asked


def _draft(study: optuna.Study) -> optuna.Study:
    """Copy a study into memory, without Optuna announcing it as a new one."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        draft = optuna.create_study(directions=study.directions)
    finally:
        optuna.logging.set_verbosity(verbosity)
    draft.add_trials(study.get_trials(deepcopy=False))
    return draft


def best(study: optuna.Study, space: Space, epochs: int) -> Found:
    """Return the trial with the smallest expected validation error, the earliest of equals.

    The error of a single training is partly luck, and the smallest of many is mostly lucky. What is expected of a
    schedule is therefore judged by a model of all trials, once there are enough of them; before, by its own error.
    """
    trials = sorted(_complete(study), key=lambda trial: trial.number)
    points = np.stack([_point(trial, space) for trial in trials])  # (n, D)
    errors = np.array([float(trial.values[0]) for trial in trials])
    expected = errors
    if len(trials) >= ENOUGH_TO_EXPECT:
        curves = space.decode(points, epochs, at=landmarks(epochs))
        expected, _ = CurveModel(curves, errors).predict(curves)
    chosen = int(expected.argmin())
    schedule = space.decode(points[chosen][None], epochs)[0]
    return Found(schedule, points[chosen], 1.0 - float(errors[chosen]), trials[chosen].number)


def _members(trials: Sequence[FrozenTrial], task: Task, search: Search) -> list[Member]:
    if not trials:
        return []
    plan = search.plan
    points = np.stack([_point(trial, plan.space) for trial in trials])  # (K, D)
    schedules = plan.space.decode(points, task.epochs)  # (K, T)
    return [
        Member(schedule, derive(plan.seed, "trial", trial.number), plan.learning_rate, search.labels, search.method)
        for trial, schedule in zip(trials, schedules, strict=True)
    ]


def _tell(study: optuna.Study, trials: Sequence[FrozenTrial], curves: Curves) -> None:
    """Score each member by its validation error; one that diverged is scored worst, with an error of 1."""
    errors = 1.0 - curves.last(VALIDATION)
    for trial, error, curve in zip(trials, errors, curves.accuracy[VALIDATION], strict=True):
        running = optuna.Trial(study, trial._trial_id)
        running.set_user_attr("validation_accuracy", [round(float(value), 6) for value in curve])
        study.tell(trial.number, float(error))


def _point(trial: FrozenTrial, space: Space) -> NDArray[np.float64]:
    return np.array([trial.params[name] for name in space.names])


def finished(study: optuna.Study) -> int:
    """Return how many trials have been trained and told."""
    return len(_complete(study))


def _complete(study: optuna.Study) -> list[FrozenTrial]:
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
