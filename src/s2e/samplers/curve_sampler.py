"""A sampler that models the curve: expected improvement under a Gaussian process over schedules."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from s2e.errors import InvalidInput
from s2e.samplers.curve_model import PRIOR, CurveModel, Floats, landmarks
from s2e.samplers.gaussian_process import Prior
from s2e.samplers.study_view import check_single_objective, complete_trials, sample_uniformly
from s2e.schedules import Space, coteaching_curve

UNIFORM_CANDIDATES, NEAR_CANDIDATES = 50, 200
"""Candidates among which the expected improvement is maximised: drawn uniformly, and near the best points.

They are few because a more thorough maximisation finds the points where the model is most wrong.
"""
BEST_POINTS = 2
"""Number of best points whose neighbours are candidates."""
MOVED_SHARE = 0.2
"""Expected share of the coordinates in which a neighbour differs from its point."""
FIRST_SCHEDULES = ((0.1, 0.05), (0.25, 0.2), (0.4, 0.05), (0.55, 0.2), (0.7, 0.05), (0.85, 0.2))
"""Co-teaching's schedules with which a search starts: noise rate τ, and t_k as a share of the epochs.

Six noise rates from low to high, with a fast and a slow fall in turn. Which of them is best tells most about the noise.
"""
STARTUP_CANDIDATES = 400
"""Uniform draws among which a point of the start-up is chosen."""
APPROACHES = 10
"""Rounds in which a point is moved towards a given curve, each among `NEAR_CANDIDATES` neighbours of the best ones."""
NEAREST = 20
"""Best points of a round."""
EQUAL_CURVES = 0.02
"""Root mean square difference of curves up to which they count as equal; a training cannot distinguish them."""


def _no_offsets(points: Floats) -> Floats:
    return np.zeros(len(points))


@dataclass(frozen=True, eq=False)
class Target:
    """What the Gaussian process of a curve sampler models.

    Attributes:
        values: (n,) of the scored trials, smaller is better.
        offsets: what another model expects of points (m, D), as (m,); the process models the differences.
        prior: of the hyperparameters of the process.
    """

    values: Floats
    offsets: Callable[[Floats], Floats] = _no_offsets
    prior: Prior = PRIOR


class CurveSampler(BaseSampler):
    """Models the score as a function of the decoded curve and asks where the expected improvement is largest.

    The first trials are the points of the space whose curves are nearest to Co-teaching's schedules at six noise rates.
    Where the space has no new curve near one of them, and in a longer start-up, the next trial is the draw whose curve
    is farthest from all earlier ones. After the start-up, the expected improvement under a Gaussian process over the
    curves of all complete trials is maximised over a few candidates: uniform draws, and neighbours of the points with
    the best predictions. Running trials are assumed to score as predicted, so that the points of one generation differ.
    The sampler keeps no state: the next point is a function of the study and the arguments.

    Args:
        space: decodes points into curves; its coordinates are the parameters of the study, floats in [0, 1].
        epochs: T, epochs of the scored trainings.
        seed: seed of the draws.
        startup: complete trials needed to fit a model.
        first_schedules: noise rate τ and t_k as a share of the epochs of the schedules of the first trials.
    """

    def __init__(
        self,
        space: Space,
        epochs: int,
        *,
        seed: int = 0,
        startup: int = 6,
        first_schedules: Sequence[tuple[float, float]] = FIRST_SCHEDULES,
    ) -> None:
        if seed < 0:
            raise InvalidInput(f"`seed` must be at least 0, but got {seed}.")
        if startup < 2:
            raise InvalidInput(f"`startup` must be at least 2, but got {startup}: a model needs two trials.")
        self.space = space
        self.epochs = epochs
        self.seed = seed
        self.startup = startup
        self.first_schedules = tuple(first_schedules)

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
            point = self._first_point(trial.number, [*scored, *running], generator)
        else:
            point = self._most_promising(study, trial.number, scored, running, generator)
        return {name: float(u) for name, u in zip(self.space.names, point, strict=True) if name in search_space}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Draw a parameter that is not a coordinate of the space uniformly."""
        check_single_objective(study)
        return sample_uniformly(self.seed, study, trial, param_name, param_distribution)

    def _first_point(self, number: int, before: list[FrozenTrial], generator: np.random.Generator) -> Floats:
        """Return the point of a trial of the start-up."""
        if number < len(self.first_schedules):
            noise_rate, ramp = self.first_schedules[number]
            epochs = landmarks(self.epochs)
            target = coteaching_curve(epochs, noise_rate, max(1.0, ramp * self.epochs), 1.0)  # (F,)
            point = self.space.in_turn(self._nearest(target, generator), number)
            if not before or self._squared_distance(point, before) > EQUAL_CURVES**2:
                return point
        return self.space.in_turn(self._farthest(before, generator), number)

    def _nearest(self, curve: Floats, generator: np.random.Generator) -> Floats:
        """Return a point whose curve is near a given one, (F,)."""
        points = generator.random((STARTUP_CANDIDATES, self.space.dimension))
        for _ in range(APPROACHES):
            nearest = points[np.argsort(_squared_distances(self._curves(points), curve[None])[:, 0])[:NEAREST]]
            moved = neighbours(nearest, NEAR_CANDIDATES, generator, share=MOVED_SHARE)
            points = np.concatenate([nearest, moved])
        return np.asarray(points[_squared_distances(self._curves(points), curve[None])[:, 0].argmin()])

    def _farthest(self, before: list[FrozenTrial], generator: np.random.Generator) -> Floats:
        """Return the uniform draw whose curve is farthest from those of earlier trials; the most typical draw first."""
        candidates = generator.random((STARTUP_CANDIDATES, self.space.dimension))
        features = self._features(candidates)
        if not before:
            return np.asarray(candidates[np.sqrt(_squared_distances(features, features)).mean(axis=1).argmin()])
        distances = _squared_distances(features, self._features(self._points(before)))  # (STARTUP_CANDIDATES, n)
        return np.asarray(candidates[distances.min(axis=1).argmax()])

    def _most_promising(
        self,
        study: Study,
        number: int,
        scored: list[FrozenTrial],
        running: list[FrozenTrial],
        generator: np.random.Generator,
    ) -> Floats:
        points = self._points(scored)  # (n, D)
        target = self._target(study, number, scored)
        model = CurveModel(self._features(points), target.values, target.offsets(points), prior=target.prior)
        means = model.mean(self._features(points), target.offsets(points))
        best = points[np.argsort(means)[:BEST_POINTS]]  # (BEST_POINTS, D)
        uniform_draws = generator.random((UNIFORM_CANDIDATES, self.space.dimension))
        near_best = neighbours(best, NEAR_CANDIDATES, generator, share=MOVED_SHARE)
        candidates = np.concatenate([uniform_draws, near_best])
        features = self._features(candidates)  # (n, F)
        offsets = target.offsets(candidates)  # (n,)
        if not running:
            return np.asarray(candidates[model.expected_improvement(features, offsets).argmax()])
        running_points = self._points(running)
        running_features = self._features(running_points)  # (r, F)
        model = model.assuming_predictions(running_features, target.offsets(running_points))
        improvement = model.expected_improvement(features, offsets)
        # Where scores are mostly noise, a running curve may still have the largest expected improvement.
        is_new = _squared_distances(features, running_features).min(axis=1) > 0
        return np.asarray(candidates[np.where(is_new, improvement, -1.0).argmax()])

    def _target(self, study: Study, number: int, scored: list[FrozenTrial]) -> Target:  # noqa: ARG002
        """Return what is modelled for the point of a trial: the scores themselves, without offsets."""
        sign = -1.0 if study.direction == StudyDirection.MAXIMIZE else 1.0
        return Target(np.array([sign * one.values[0] for one in scored]))

    def _squared_distance(self, point: Floats, trials: list[FrozenTrial]) -> float:
        """Return the mean squared difference of a point's curve and the nearest one of some trials."""
        distances = _squared_distances(self._features(point[None]), self._features(self._points(trials)))
        return float(distances.min()) / len(landmarks(self.epochs))

    def _points(self, trials: list[FrozenTrial]) -> Floats:
        return np.array([[trial.params[name] for name in self.space.names] for trial in trials])

    def _curves(self, points: Floats) -> Floats:
        return self.space.decode(points, self.epochs, at=landmarks(self.epochs))

    def _features(self, points: Floats) -> Floats:
        return self.space.features(points, self.epochs, at=landmarks(self.epochs))

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
