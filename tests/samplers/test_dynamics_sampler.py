"""The curve sampler with learning dynamics: what it uses of the trials, and where it equals the curve sampler."""

from __future__ import annotations

import numpy as np
import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import TrialState, create_trial

from s2e.samplers import CurveSampler, DynamicsSampler
from s2e.samplers.dynamics_sampler import ENOUGH_SCORES
from s2e.samplers.learning_dynamics import DEVIATIONS, MEANS, group_epochs, simulate
from s2e.samplers.study_view import VALIDATION_ACCURACY
from s2e.schedules.spaces import S2ESpace

EPOCHS, K = 40, 6
SPACE = S2ESpace()
TRUTH = MEANS + 0.7 * DEVIATIONS * np.random.default_rng(4).normal(size=len(MEANS))
UNIT = {name: FloatDistribution(0.0, 1.0) for name in SPACE.names}


def trained(points, *, epochs=EPOCHS, direction="minimize", shift=0.0, by_epoch=True):
    """A study of trainings that follow the dynamics, stopped after some epochs."""
    study = optuna.create_study(direction=direction)
    add(study, points, epochs, direction, shift, by_epoch)
    return study


def add(study, points, epochs=EPOCHS, direction="minimize", shift=0.0, by_epoch=True):
    for point, errors in zip(points, simulate(TRUTH[None], group_epochs(SPACE.decode(points, EPOCHS)))[0], strict=True):
        error = float(errors[-10:].mean()) + shift
        value = 1 - error if direction == "maximize" else error
        study.add_trial(
            create_trial(
                params=dict(zip(SPACE.names, map(float, point), strict=True)),
                distributions=UNIT,
                value=value if epochs == EPOCHS else None,
                state=TrialState.COMPLETE if epochs == EPOCHS else TrialState.PRUNED,
                user_attrs={VALIDATION_ACCURACY: [float(1 - e) for e in errors[:epochs]]} if by_epoch else {},
            )
        )


def draws(count, seed=0):
    return np.random.default_rng(seed).random((count, SPACE.dimension))


def asked(study, sampler=DynamicsSampler, count=K):
    study.sampler = sampler(SPACE, EPOCHS)
    trials = [study.ask(UNIT) for _ in range(count)]
    return np.array([[trial.params[name] for name in SPACE.names] for trial in trials])


def test_points_of_even_trials_are_those_of_the_dynamics():
    own, plain = asked(trained(draws(K)), count=1), asked(trained(draws(K)), CurveSampler, count=1)
    assert (own != plain).any()


def test_points_of_odd_trials_and_of_later_ones_are_those_of_the_curve_sampler():
    for count in (K + 1, ENOUGH_SCORES, ENOUGH_SCORES + 2):
        np.testing.assert_array_equal(
            asked(trained(draws(count)), count=1), asked(trained(draws(count)), CurveSampler, count=1)
        )


def test_scores_that_are_no_errors_are_modelled_as_by_the_curve_sampler():
    own, plain = (asked(trained(draws(K), shift=3.0), each, count=1) for each in (DynamicsSampler, CurveSampler))
    np.testing.assert_array_equal(own, plain)


def test_accuracies_are_maximised_as_errors_are_minimised():
    np.testing.assert_allclose(
        asked(trained(draws(K), direction="maximize"), count=1), asked(trained(draws(K)), count=1), atol=1e-6
    )


def expected(study):
    """What the dynamics fitted to a study expect of other points."""
    complete = [trial for trial in study.trials if trial.state == TrialState.COMPLETE]
    return DynamicsSampler(SPACE, EPOCHS)._target(study, K, complete).offsets(draws(20, seed=8))


def test_accuracies_by_epoch_are_fitted_also_those_of_a_stopped_training():
    complete = trained(draws(K))
    assert (expected(complete) != expected(trained(draws(K), by_epoch=False))).all()
    stopped, earlier = trained(draws(K)), trained(draws(K))
    add(stopped, draws(2, seed=3), EPOCHS // 2)
    add(earlier, draws(2, seed=3), EPOCHS // 4)
    assert (expected(stopped) != expected(complete)).all()
    assert (expected(stopped) != expected(earlier)).all()


def test_points_found_are_better_than_those_of_the_start():
    study = trained(draws(K))
    before = min(trial.value for trial in study.trials)
    points = asked(study)
    errors = simulate(TRUTH[None], group_epochs(SPACE.decode(points, EPOCHS)))[0, :, -10:].mean(axis=1)
    assert errors[::2].min() < before


@pytest.mark.parametrize("epochs", [1, 3, 200])
def test_any_number_of_epochs_is_modelled(epochs):
    study = optuna.create_study()
    sampler = DynamicsSampler(SPACE, epochs)
    study.sampler = sampler
    for number in range(K + 1):
        trial = study.ask(UNIT)
        trial.set_user_attr(VALIDATION_ACCURACY, [0.5 + 0.01 * number] * epochs)
        study.tell(trial, 0.5 - 0.01 * number)
    assert len(study.trials) == K + 1
