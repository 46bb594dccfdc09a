"""When a search is long enough: no schedule is expected to improve on the best by more than validation can tell."""

from __future__ import annotations

import math

import numpy as np
import optuna

from s2e.samplers import CurveModel, complete_trials, landmarks, neighbours
from s2e.schedules import Space
from s2e.studies.trials import point_of

CANDIDATES = 512
"""Schedules of each kind among which a better one is looked for: uniform draws, and neighbours of the best."""
BEST_POINTS, MOVED_SHARE = 2, 0.2
"""Best points whose neighbours are candidates, and the expected share of the coordinates in which they differ."""

MIN_TRIALS = 18
"""Trials before which no search ends: a model of fewer knows too little of what it has not seen."""

SHARE_OF_ERROR = 0.3
"""Improvements below this share of the standard error of a validation accuracy are not worth a generation."""


def is_long_enough(
    study: optuna.Study, space: Space, epochs: int, samples: int, generator: np.random.Generator
) -> bool:
    """Return whether the largest expected improvement is small against the standard error of validation.

    Args:
        study: the trials so far; of fewer than `MIN_TRIALS`, the answer is no.
        space: the family of schedules.
        epochs: T, epochs of every training.
        samples: number of validation samples.
        generator: draws the candidates.
    """
    trials = complete_trials(study)
    if len(trials) < MIN_TRIALS:
        return False
    points = np.stack([point_of(trial, space) for trial in trials])  # (n, D)
    errors = np.array([float(trial.values[0]) for trial in trials])
    features = space.features(points, epochs, at=landmarks(epochs))
    model = CurveModel(features, errors)
    best_points = points[np.argsort(model.mean(features))[:BEST_POINTS]]
    near_best = neighbours(best_points, CANDIDATES, generator, share=MOVED_SHARE)
    candidates = np.concatenate([generator.random((CANDIDATES, points.shape[1])), near_best])
    expected = model.expected_improvement(space.features(candidates, epochs, at=landmarks(epochs)))
    best = float(np.clip(errors.min(), 1 / samples, 1 - 1 / samples))
    standard_error = math.sqrt(best * (1 - best) / samples)
    return bool(expected.max() < SHARE_OF_ERROR * standard_error)
