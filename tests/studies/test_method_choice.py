"""Searches in which methods compete."""

from __future__ import annotations

import numpy as np
import optuna
import pytest

from s2e.errors import InvalidInput
from s2e.methods import METHODS, SEARCHABLE
from s2e.samplers.curve_model import CurveModel, landmarks
from s2e.samplers.registry import sampler_spec
from s2e.schedules import space
from s2e.studies.method_choice import METHOD, MethodSpace, methods_of
from s2e.studies.selection import best_trial

EPOCHS = 20
SCHEDULES = space("coteaching")
COMPETING = MethodSpace(SCHEDULES, [METHODS[name] for name in SEARCHABLE])
POINTS = np.random.default_rng(0).random((40, COMPETING.dimension))


def test_schedules_do_not_depend_on_the_method() -> None:
    np.testing.assert_array_equal(COMPETING.decode(POINTS, EPOCHS), SCHEDULES.decode(POINTS[:, :-1], EPOCHS))


def test_the_interval_is_divided_equally_between_the_methods() -> None:
    ends = np.array([0.0, 0.249, 0.25, 0.5, 0.75, 1.0])
    points = np.column_stack([np.full((6, 3), 0.5), ends])
    assert [each.name for each in COMPETING.methods_of(points)] == [SEARCHABLE[i] for i in (0, 0, 1, 2, 3, 3)]


def test_points_of_a_plain_space_have_no_method() -> None:
    assert list(methods_of(SCHEDULES, POINTS[:2, :-1])) == [None, None]


def test_no_methods_are_refused() -> None:
    with pytest.raises(InvalidInput, match="must hold at least one method"):
        MethodSpace(SCHEDULES, [])


def test_with_one_method_the_model_equals_that_of_the_schedules() -> None:
    only = MethodSpace(SCHEDULES, [METHODS["jocor"]])
    at, errors = landmarks(EPOCHS), np.random.default_rng(1).random(40)
    plain = SCHEDULES.features(POINTS[:, :-1], EPOCHS, at=at)
    predicted = CurveModel(only.features(POINTS, EPOCHS, at=at), errors).mean(only.features(POINTS, EPOCHS, at=at))
    np.testing.assert_allclose(predicted, CurveModel(plain, errors).mean(plain), rtol=1e-4)


def error_of(trial: optuna.Trial | optuna.trial.FrozenTrial, good: str) -> float:
    point = np.array([trial.params[name] for name in COMPETING.names])
    (method,) = COMPETING.methods_of(point[None])
    keep_rate = COMPETING.decode(point[None], EPOCHS)[0, -1]
    return float((keep_rate - 0.6) ** 2 + 0.1 * (method.name != good))


@pytest.mark.parametrize("good", SEARCHABLE)
def test_the_curve_sampler_finds_the_best_method(good: str) -> None:
    study = optuna.create_study()
    for number in range(24):
        study.sampler = sampler_spec("curve", COMPETING, EPOCHS, 1).build(number)
        trial = study.ask({name: optuna.distributions.FloatDistribution(0, 1) for name in COMPETING.names})
        study.tell(trial, error_of(trial, good))
    found = best_trial(study, COMPETING, EPOCHS)
    assert found.method == METHODS[good]
    asked = [int(trial.params[METHOD] * len(SEARCHABLE)) for trial in study.trials[:4]]
    assert asked == [0, 1, 2, 3]  # in turn


@pytest.mark.parametrize("sampler", ["newton-curve", "tpe", "random"])
def test_other_samplers_draw_the_method_like_any_coordinate(sampler: str) -> None:
    study = optuna.create_study()
    for number in range(12):
        study.sampler = sampler_spec(sampler, COMPETING, EPOCHS, 6).build(number)
        trial = study.ask({name: optuna.distributions.FloatDistribution(0, 1) for name in COMPETING.names})
        study.tell(trial, error_of(trial, "jocor"))
    assert len({trial.params[METHOD] for trial in study.trials}) == 12
