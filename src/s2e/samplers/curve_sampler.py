"""A sampler that models the curve: expected improvement under a Gaussian process over schedules."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from s2e.errors import InvalidInput
from s2e.samplers.curve_model import CurveModel, Floats, landmarks
from s2e.samplers.study_view import check_single_objective, complete_trials, sample_uniformly
from s2e.schedules import Space

UNIFORM_CANDIDATES, NEAR_CANDIDATES = 50, 200
"""Candidates among which the expected improvement is maximised: drawn uniformly, and near the best points.

They are few because a more thorough maximisation finds the points where the model is most wrong.
"""
BEST_POINTS = 2
"""Number of best points whose neighbours are candidates."""
MOVED_SHARE = 0.2
"""Expected share of the coordinates in which a neighbour differs from its point."""
STARTUP_CANDIDATES = 400
"""Uniform draws among which a point of the start-up is chosen."""


class CurveSampler(BaseSampler):
    """Models the score as a function of the decoded curve and asks where the expected improvement is largest.

    The first trial is the most typical of many draws; the next ones are draws whose curves are far from all earlier
    ones. After the start-up, the expected improvement under a Gaussian process over the curves of all complete trials
    is maximised over a few candidates: uniform draws, and neighbours of the points with the best predictions. Running
    trials are assumed to score as predicted, so that the points of one generation differ. The sampler keeps no state:
    the next point is a function of the study and the arguments.

    Args:
        space: decodes points into curves; its coordinates are the parameters of the study, floats in [0, 1].
        epochs: T, epochs of the scored trainings.
        seed: seed of the draws.
        startup: complete trials needed to fit a model.
    """

    def __init__(self, space: Space, epochs: int, *, seed: int = 0, startup: int = 6) -> None:
        if seed < 0:
            raise InvalidInput(f"`seed` must be at least 0, but got {seed}.")
        if startup < 2:
            raise InvalidInput(f"`startup` must be at least 2, but got {startup}: a model needs two trials.")
        self.space = space
        self.epochs = epochs
        self.seed = seed
        self.startup = startup

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:  # noqa: ARG002
        """Return every coordinate of the space."""
        check_single_objective(study)
        return {name: FloatDistribution(0.0, 1.0) for name in self.space.names}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return one point: far from earlier ones during start-up, then with the largest expected improvement."""
        generator = np.random.default_rng(np.random.SeedSequence([self.seed, trial.number]))
        scored = [one for one in complete_trials(study) if math.isfinite(one.values[0]) and self._has_point(one)]
        running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        running = [one for one in running if self._has_point(one)]
        if len(scored) < self.startup:
            point = self._farthest([*scored, *running], generator)
        else:
            point = self._most_promising(study, scored, running, generator)
        return {name: float(u) for name, u in zip(self.space.names, point, strict=True) if name in search_space}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Draw a parameter that is not a coordinate of the space uniformly."""
        check_single_objective(study)
        return sample_uniformly(self.seed, study, trial, param_name, param_distribution)

    def _farthest(self, before: list[FrozenTrial], generator: np.random.Generator) -> Floats:
        """Return the uniform draw whose curve is farthest from those of earlier trials; the most typical draw first."""
        candidates = generator.random((STARTUP_CANDIDATES, self.space.dimension))
        curves = self._curves(candidates)
        if not before:
            return np.asarray(candidates[np.sqrt(_squared_distances(curves, curves)).mean(axis=1).argmin()])
        distances = _squared_distances(curves, self._curves(self._points(before)))  # (STARTUP_CANDIDATES, n)
        return np.asarray(candidates[distances.min(axis=1).argmax()])

    def _most_promising(
        self, study: Study, scored: list[FrozenTrial], running: list[FrozenTrial], generator: np.random.Generator
    ) -> Floats:
        sign = -1.0 if study.direction == StudyDirection.MAXIMIZE else 1.0
        points = self._points(scored)  # (n, D)
        model = CurveModel(self._curves(points), np.array([sign * one.values[0] for one in scored]))
        best = points[np.argsort(model.mean(self._curves(points)))[:BEST_POINTS]]  # (BEST_POINTS, D)
        uniform_draws = generator.random((UNIFORM_CANDIDATES, self.space.dimension))
        near_best = neighbours(best, NEAR_CANDIDATES, generator, share=MOVED_SHARE)
        candidates = np.concatenate([uniform_draws, near_best])
        curves = self._curves(candidates)  # (n, F)
        if not running:
            return np.asarray(candidates[model.expected_improvement(curves).argmax()])
        running_curves = self._curves(self._points(running))  # (r, F)
        improvement = model.assuming_predictions(running_curves).expected_improvement(curves)
        # Where scores are mostly noise, a running curve may still have the largest expected improvement.
        is_new = _squared_distances(curves, running_curves).min(axis=1) > 0
        return np.asarray(candidates[np.where(is_new, improvement, -1.0).argmax()])

    def _points(self, trials: list[FrozenTrial]) -> Floats:
        return np.array([[trial.params[name] for name in self.space.names] for trial in trials])

    def _curves(self, points: Floats) -> Floats:
        return self.space.decode(points, self.epochs, at=landmarks(self.epochs))

    def _has_point(self, trial: FrozenTrial) -> bool:
        """Whether the trial is in the unit cube: it may have been enqueued, or have parameters with other ranges."""
        return all(0.0 <= trial.params.get(name, -1.0) <= 1.0 for name in self.space.names)


def neighbours(points: Floats, count: int, generator: np.random.Generator, *, share: float) -> Floats:
    """Return points (count, D) near the given points (n, D).

    About `share` of the coordinates are moved, with standard deviations of 0.02 to 0.2.
    """
    centres = points[generator.integers(0, len(points), count)]  # (count, D)
    deviation = generator.choice([0.02, 0.05, 0.1, 0.2], size=(count, 1))
    moved = generator.random(centres.shape) < share
    return np.asarray(np.clip(centres + moved * deviation * generator.normal(size=centres.shape), 0.0, 1.0))


def _squared_distances(first: Floats, second: Floats) -> Floats:
    """Return distances (n, m) of curves (n, F) and (m, F)."""
    return np.asarray(((first[:, None] - second) ** 2).sum(axis=2))
