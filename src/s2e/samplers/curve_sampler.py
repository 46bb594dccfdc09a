"""The search that models the curve: expected improvement under a Gaussian process over schedules."""

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
from s2e.samplers.study_view import check_single_objective, complete, uniform
from s2e.schedules.spaces import Space

UNIFORM, NEAR = 50, 200
"""Candidates among which the expected improvement is maximised: drawn uniformly, and near good points.

Few on purpose: searching harder for the largest finds the places where the model is most wrong.
"""
ELITE = 2
"""How many of the best points are looked around."""
MOVED = 0.2
"""Share of its coordinates in which a neighbour differs from a good point."""
POOL = 400
"""Uniform points among which the next one of the start-up is chosen."""


class CurveSampler(BaseSampler):
    """Models the score as a function of the decoded curve and asks where the expected improvement is largest.

    The first trial is the most typical of many draws, the next ones are draws whose curves lie far from it and from
    each other. From then on the expected improvement under a Gaussian process over the curves of all complete trials is
    maximised over a few candidates: uniform ones, and neighbours of the points it holds best. Trials asked but not told
    yet count as scored just as predicted, so that the points of one generation differ. Like the others here, it keeps
    no state: what it asks follows from the study and its arguments.

    Args:
        space: decodes points into curves; its coordinates are the parameters of the study, floats in [0, 1].
        epochs: T, of the trainings that are scored.
        seed: of this trial's draws.
        startup: trials to complete before there is a model.
    """

    def __init__(self, space: Space, epochs: int, *, seed: int = 0, startup: int = 6) -> None:
        if seed < 0:
            raise InvalidInput(f"`seed` must be at least 0, but got {seed}.")
        if startup < 2:
            raise InvalidInput(f"`startup` must be at least 2, but got {startup}: a model needs something to go by.")
        self.space = space
        self.epochs = epochs
        self.seed = seed
        self.startup = startup

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:  # noqa: ARG002
        """Every coordinate of the space, known from the first trial on."""
        check_single_objective(study)
        return {name: FloatDistribution(0.0, 1.0) for name in self.space.names}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """One point: far from all before it at first, then the candidate with the largest expected improvement."""
        generator = np.random.default_rng(np.random.SeedSequence([self.seed, trial.number]))
        told = [one for one in complete(study) if math.isfinite(one.values[0]) and self._has_point(one)]
        running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        asked = [one for one in running if self._has_point(one)]
        if len(told) < self.startup:
            point = self._farthest([*told, *asked], generator)
        else:
            point = self._most_promising(study, told, asked, generator)
        return {name: float(u) for name, u in zip(self.space.names, point, strict=True) if name in search_space}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Parameters outside the space are drawn uniformly."""
        check_single_objective(study)
        return uniform(self.seed, study, trial, param_name, param_distribution)

    def _farthest(self, before: list[FrozenTrial], generator: np.random.Generator) -> Floats:
        """Return the uniform draw whose curve is farthest from all trials before it; at first the most typical one."""
        pool = generator.random((POOL, self.space.dimension))
        curves = self._curves(pool)
        if not before:
            return np.asarray(pool[np.sqrt(_squared_distances(curves, curves)).mean(axis=1).argmin()])
        apart = _squared_distances(curves, self._curves(self._points(before)))  # (POOL, n)
        return np.asarray(pool[apart.min(axis=1).argmax()])

    def _most_promising(
        self, study: Study, told: list[FrozenTrial], asked: list[FrozenTrial], generator: np.random.Generator
    ) -> Floats:
        sign = -1.0 if study.direction == StudyDirection.MAXIMIZE else 1.0
        points = self._points(told)  # (n, D)
        model = CurveModel(self._curves(points), np.array([sign * one.values[0] for one in told]))
        good = points[np.argsort(model.predict(self._curves(points))[0])[:ELITE]]  # (ELITE, D)
        uniform_draws = generator.random((UNIFORM, self.space.dimension))
        candidates = np.concatenate([uniform_draws, neighbours(good, NEAR, generator, share=MOVED)])
        curves = self._curves(candidates)  # (n, F)
        if not asked:
            return np.asarray(candidates[model.expected_improvement(curves).argmax()])
        running = self._curves(self._points(asked))  # (r, F)
        improvement = model.given(running).expected_improvement(curves)
        # Where scores are mostly chance, a curve believed good stays the most promising one after it was asked.
        anew = _squared_distances(curves, running).min(axis=1) > 0
        return np.asarray(candidates[np.where(anew, improvement, -1.0).argmax()])

    def _points(self, trials: list[FrozenTrial]) -> Floats:
        return np.array([[trial.params[name] for name in self.space.names] for trial in trials])

    def _curves(self, points: Floats) -> Floats:
        return self.space.decode(points, self.epochs, at=landmarks(self.epochs))

    def _has_point(self, trial: FrozenTrial) -> bool:
        """Whether the trial is in the unit cube: others may have enqueued it, or given its parameters other ranges."""
        return all(0.0 <= trial.params.get(name, -1.0) <= 1.0 for name in self.space.names)


def neighbours(points: Floats, count: int, generator: np.random.Generator, *, share: float) -> Floats:
    """Candidates (count, D) near some of the given points: a share of the coordinates moved, by a little or by more."""
    near = points[generator.integers(0, len(points), count)]  # (count, D)
    reach = generator.choice([0.02, 0.05, 0.1, 0.2], size=(count, 1))
    moved = generator.random(near.shape) < share
    return np.asarray(np.clip(near + moved * reach * generator.normal(size=near.shape), 0.0, 1.0))


def _squared_distances(first: Floats, second: Floats) -> Floats:
    """(n, m) of curves (n, F) and (m, F)."""
    return np.asarray(((first[:, None] - second) ** 2).sum(axis=2))
