"""Finished trials of a study: points, accuracies by epoch, costs, and whether training diverged."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.trial import FrozenTrial, TrialState

from s2e.engine import VALIDATION
from s2e.errors import UnreadableData
from s2e.samplers import VALIDATION_ACCURACY
from s2e.schedules import Space

FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)
"""States of trials that were trained for all epochs, or stopped early."""

DIVERGED = "diverged"
"""User attribute of a trial whose loss stopped being finite: True; absent from the others."""


def finished_trials(study: optuna.Study) -> list[FrozenTrial]:
    """Return the trials that were trained for all epochs, or stopped early."""
    return study.get_trials(deepcopy=False, states=FINISHED)


def diverged_trials(study: optuna.Study) -> int:
    """Return the number of trials whose training diverged."""
    return sum(trial.user_attrs.get(DIVERGED, False) for trial in finished_trials(study))


def check_stored(trial: FrozenTrial) -> None:
    """Raise `UnreadableData` for a finished trial that a search cannot have stored."""
    if trial.state not in FINISHED:
        return
    by_epoch = trial.user_attrs.get(VALIDATION_ACCURACY, [])
    points = list(trial.params.values())
    complete = trial.state == TrialState.PRUNED or (trial.values is not None and len(trial.values) == 1)
    if not (
        complete
        and isinstance(by_epoch, list)
        and all(isinstance(number, (int, float)) for number in [*by_epoch, *points, *(trial.values or ())])
        and isinstance(trial.user_attrs.get(DIVERGED, False), bool)
    ):
        raise UnreadableData(f"trial {trial.number} of its study is damaged; restore the database, or search again.")


def accuracy_attribute(evaluated: str) -> str:
    """Return the user attribute with the accuracy by epoch on a data set, given its name in the task."""
    return VALIDATION_ACCURACY if evaluated == VALIDATION else f"accuracy_{evaluated}"


def full_trainings(trials: Iterable[FrozenTrial], epochs: int) -> float:
    """Return the cost of finished trials in full trainings: epochs trained / T."""
    return sum(len(trial.user_attrs.get(VALIDATION_ACCURACY, range(epochs))) for trial in trials) / epochs


def point_of(trial: FrozenTrial, space: Space) -> NDArray[np.float64]:
    """Return the trial's point, (D,)."""
    return np.array([trial.params[name] for name in space.names])
