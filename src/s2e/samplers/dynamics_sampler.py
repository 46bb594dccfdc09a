"""The curve sampler with a model of learning dynamics, which uses the errors after every epoch of all trainings."""

from __future__ import annotations

import math

import numpy as np
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from s2e.engine import LAST_EPOCHS
from s2e.samplers.curve_model import PRIOR, Floats
from s2e.samplers.curve_sampler import CurveSampler, Target
from s2e.samplers.gaussian_process import Prior
from s2e.samplers.learning_dynamics import LEAST_ERROR, fit, group_epochs, observe, predict
from s2e.samplers.study_view import VALIDATION_ACCURACY

PRIOR_OF_DIFFERENCES = Prior(length=PRIOR.length, noise=(-1.0, 0.7))
"""What the dynamics leave unexplained is noise to a larger part than the scores are."""

TRUST = 0.8
"""Share of the differences between schedules that the dynamics expect from which the process starts."""

ENOUGH_SCORES = 18
"""Scores from which on a Gaussian process alone is used: it then knows more than the dynamics, which may mislead."""


class DynamicsSampler(CurveSampler):
    """A curve sampler that asks every other early point by a model of learning dynamics.

    That model explains logarithms of errors as those of fitted dynamics plus a Gaussian process over curves. The
    dynamics are fitted to the validation accuracies by epoch of all finished trials, also of those that were stopped
    early, and to the scores. If a score is not an error in [0, 1], the sampler is a `CurveSampler`.
    """

    def _target(self, study: Study, number: int, scored: list[FrozenTrial]) -> Target:
        if number % 2 or len(scored) >= ENOUGH_SCORES:
            return super()._target(study, number, scored)
        scores = np.array([one.values[0] for one in scored])
        errors = 1.0 - scores if study.direction == StudyDirection.MAXIMIZE else scores
        if ((errors < 0) | (errors > 1)).any():
            return super()._target(study, number, scored)
        share = min(1.0, LAST_EPOCHS / self.epochs)
        pruned = study.get_trials(deepcopy=False, states=(TrialState.PRUNED,))
        stopped = sorted((one for one in pruned if self._has_point(one)), key=lambda one: one.number)
        values = np.log(np.maximum(errors, LEAST_ERROR))  # (n,)
        observed = np.stack([self._observed(one, share) for one in [*scored, *stopped]])  # (n + s, W)
        observed[: len(scored), -1] = values
        observed[len(scored) :, -1] = np.nan
        parameters = fit(self._rates(self._points([*scored, *stopped])), observed, share)

        def offsets(points: Floats) -> Floats:
            return TRUST * predict(parameters, self._rates(points), share)

        return Target(values, offsets, PRIOR_OF_DIFFERENCES)

    def _observed(self, trial: FrozenTrial, share: float) -> Floats:
        """Return logarithms of the errors of a trial in windows, (W,), NaN where it was not trained."""
        by_epoch = trial.user_attrs.get(VALIDATION_ACCURACY, [])[: self.epochs]
        errors = np.full(self.epochs, math.nan)
        errors[: len(by_epoch)] = 1.0 - np.array(by_epoch, dtype=np.float64)
        return observe(group_epochs(errors[None])[0], share)

    def _rates(self, points: Floats) -> Floats:
        """Return keep rates by step, (m, M), of points (m, D)."""
        return group_epochs(self.space.decode(points, self.epochs))
