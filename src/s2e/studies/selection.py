"""Selection of the best trial of a study."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.trial import FrozenTrial

from s2e.methods import Method
from s2e.samplers import CurveModel, complete_trials, landmarks
from s2e.schedules import Space
from s2e.studies.method_choice import methods_of
from s2e.studies.trials import point_of

MIN_TRIALS_TO_MODEL = 12
"""Minimum number of complete trials to compare them by a model of their errors."""


@dataclass(frozen=True)
class BestTrial:
    """The best trial of a search.

    Attributes:
        schedule: (T,) keep rates.
        point: (D,) in the unit cube.
        validation_accuracy: mean over the last epochs and the member's networks, of the training that was scored.
        trial: its number in the study.
        method: its method, where methods compete; None where all trials have the same.
    """

    schedule: NDArray[np.float64]
    point: NDArray[np.float64]
    validation_accuracy: float
    trial: int
    method: Method | None = None


def best_trial(study: optuna.Study, space: Space, epochs: int) -> BestTrial:
    """Return the trial with the smallest expected validation error, the earliest of equals; see `best_of`."""
    return best_of(complete_trials(study), space, epochs)


def best_of(trials: Sequence[FrozenTrial], space: Space, epochs: int) -> BestTrial:
    """Return the complete trial with the smallest expected validation error, the earliest of equals.

    The error of a single training is noisy, and the smallest of many is mostly chance. The expected error of a schedule
    is therefore the mean of a model of all trials, or the trial's own error while there are too few trials to model.
    """
    points = np.stack([point_of(trial, space) for trial in trials])  # (n, D)
    errors = np.array([float(trial.values[0]) for trial in trials])
    expected = errors
    if len(trials) >= MIN_TRIALS_TO_MODEL:
        features = space.features(points, epochs, at=landmarks(epochs))
        expected, _ = CurveModel(features, errors).predict(features)
    chosen = int(expected.argmin())
    schedule = space.decode(points[chosen][None], epochs)[0]
    (method,) = methods_of(space, points[chosen][None])
    return BestTrial(schedule, points[chosen], 1.0 - float(errors[chosen]), trials[chosen].number, method)


def lowest_error_trial(study: optuna.Study) -> FrozenTrial:
    """Return the trial with the smallest measured error, the earliest of equals; `best_trial` uses a model."""
    return min(complete_trials(study), key=lambda trial: trial.values[0])
