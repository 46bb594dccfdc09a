"""The history of a search: its trials against their cost, and the spread of its schedules over time.

The spread is defined for every sampler: the points of consecutive trials are decoded to schedules, and their standard
deviation describes the sampler's distribution at that time.

Letters: n trials, D dimensions of the space, T epochs.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.trial import FrozenTrial, TrialState

from s2e.errors import first_line
from s2e.runs import Run
from s2e.schedules import space
from s2e.studies import FINISHED, VALIDATION_ACCURACY, read_trials, storage_to_read, without_password

Floats = NDArray[np.float64]

TOLERANCE = 1e-6
"""Of accuracies, which are computed from rounded numbers."""

MIN_GROUP_SIZE = 4
"""Fewer schedules give a poor estimate of the spread: smaller generations are grouped."""


@dataclass(frozen=True)
class FinishedTrial:
    """A finished trial.

    Attributes:
        number: number in the study.
        cost: cost of the search up to and including this trial, in full trainings.
        accuracy: last validation accuracy.
        pruned: whether its training was stopped early.
    """

    number: int
    cost: float
    accuracy: float
    pruned: bool


@dataclass(frozen=True, eq=False)
class TrialGroup:
    """The schedules of one generation or of several consecutive ones.

    Attributes:
        first: number of the first generation, from 1.
        last: number of the last generation.
        schedules: (n, T).
    """

    first: int
    last: int
    schedules: Floats

    @property
    def generations(self) -> str:
        """The numbers of the generations."""
        return f"{self.first}" if self.first == self.last else f"{self.first} to {self.last}"

    @property
    def title(self) -> str:
        """The generations as a title."""
        return f"Generation{'' if self.first == self.last else 's'} {self.generations}"

    @property
    def mean(self) -> Floats:
        """(T,) mean over the group."""
        return np.asarray(self.schedules.mean(axis=0))

    @property
    def deviation(self) -> Floats:
        """(T,) standard deviation over the group."""
        return np.asarray(self.schedules.std(axis=0))

    @property
    def spread(self) -> float:
        """Root mean square of the deviation over the epochs: sqrt(1/T Σ_t σ(t)²)."""
        return float(np.sqrt((self.deviation**2).mean()))


@dataclass(frozen=True, eq=False)
class SearchHistory:
    """The history of one search.

    Attributes:
        title: name of the searched method in a comparison; "" elsewhere.
        trials: finished trials, in order.
        selected: number of the selected trial; None if none is selected yet.
        groups: schedules of consecutive trials, in order.
        problem: why the history is unavailable; "" if it is available.
    """

    title: str
    trials: tuple[FinishedTrial, ...] = ()
    selected: int | None = None
    groups: tuple[TrialGroup, ...] = ()
    problem: str = ""

    @property
    def best_so_far(self) -> Floats:
        """(n,) best accuracy of a complete trial so far; NaN before the first."""
        accuracies = [np.nan if trial.pruned else trial.accuracy for trial in self.trials]
        return np.asarray(np.fmax.accumulate(accuracies)) if accuracies else np.empty(0)

    @property
    def phases(self) -> tuple[TrialGroup, ...]:
        """The first, the middle and the last group, without repeats."""
        indices = sorted({0, (len(self.groups) - 1) // 2, len(self.groups) - 1}) if self.groups else []
        return tuple(self.groups[index] for index in indices)


def search_history(
    run: Run, config: Mapping[str, Any], study: str, selected: int | None, title: str = "", *, named: str | None = None
) -> SearchHistory:
    """Read the history of a search from its study; a study that cannot be read gives a history with a problem.

    Args:
        run: the run directory.
        config: its configuration.
        study: name of the study.
        selected: number of the selected trial; None if none is selected yet.
        title: name of the searched method in a comparison.
        named: server that the caller names; no other one is connected to.
    """
    storage = storage_to_read(run.storage, config.get("storage"), named)
    if storage is None:
        url = without_password(config["storage"])
        command = shlex.join(["s2e", "report", str(run.path), "--storage", url])
        return SearchHistory(
            title, problem=f"The study is at {url}. A report connects to no server by itself; to show it: {command}"
        )
    try:
        finished = [trial for trial in read_trials(storage, study) if trial.state in FINISHED]
        if not finished:
            return SearchHistory(title, problem="No trial has finished yet.")
        costs, groups = _with_costs(finished, config["options"]["epochs"]), _groups(finished, config["options"])
    except Exception as error:  # a damaged database can make Optuna raise anything
        problem = f"The study at {without_password(storage)} could not be read: {first_line(error)}"
        return SearchHistory(title, problem=problem)
    return SearchHistory(title, costs, selected, groups)


def _with_costs(trials: Sequence[FrozenTrial], epochs: int) -> tuple[FinishedTrial, ...]:
    cost, found = 0.0, []
    for trial in trials:
        by_epoch = np.asarray(trial.user_attrs.get(VALIDATION_ACCURACY, []), dtype=np.float64).reshape(-1)
        cost += (len(by_epoch) or epochs) / epochs
        pruned = trial.state == TrialState.PRUNED
        if pruned and not len(by_epoch):
            continue
        accuracy = float(by_epoch[-1] if pruned else 1.0 - trial.values[0])
        if not -TOLERANCE <= accuracy <= 1 + TOLERANCE:
            raise ValueError(f"the accuracy of trial {trial.number} must lie in 0..1, but got {accuracy}.")
        found.append(FinishedTrial(trial.number, cost, accuracy, pruned))
    return tuple(found)


def _groups(trials: Sequence[FrozenTrial], options: Mapping[str, Any]) -> tuple[TrialGroup, ...]:
    """Split the trials into groups of whole generations; a last group of less than half the size is merged."""
    family, size = space(options["space"]), int(options["generation_size"])
    per_group = -(-MIN_GROUP_SIZE // size)  # generations
    points = np.array([[float(trial.params[name]) for name in family.names] for trial in trials])  # (n, D)
    if not ((points >= 0) & (points <= 1)).all():
        raise ValueError("the points of its trials must lie in 0..1, but do not.")
    schedules = family.decode(points, options["epochs"])  # (n, T)
    generations = np.array([trial.number // size for trial in trials])
    groups = [np.flatnonzero(generations // per_group == group) for group in np.unique(generations // per_group)]
    if len(groups) > 1 and 2 * len(groups[-1]) < len(groups[-2]):
        groups[-2:] = [np.concatenate(groups[-2:])]
    return tuple(
        TrialGroup(int(generations[rows[0]]) + 1, int(generations[rows[-1]]) + 1, schedules[rows]) for rows in groups
    )
