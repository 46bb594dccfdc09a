"""Selection of the best trial, by a model of all trials or by its own error."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import TrialState, create_trial

from s2e.schedules.spaces import SPACES
from s2e.studies import best_trial, lowest_error_trial
from searches import make_study

EPOCHS = 40
SPACE = SPACES["coteaching"]
GOOD = [(0.50 + 0.002 * step, 0.3, 0.4) for step in range(6)]
BAD = [(0.10 + 0.002 * step, 0.3, 0.4) for step in range(6)]
"""Points with similar curves: about half of the samples is dropped, or about a tenth."""
GOOD_ERRORS = [0.21, 0.20, 0.22, 0.21, 0.20, 0.21]
BAD_ERRORS = [0.40, 0.41, 0.40, 0.18, 0.42, 0.39]  # one is low by chance


def study_of(
    points: Sequence[tuple[float, ...]], errors: Sequence[float], states: Sequence[TrialState] | None = None
) -> optuna.Study:
    study = make_study()
    for point, error, state in zip(points, errors, states or [TrialState.COMPLETE] * len(errors), strict=True):
        study.add_trial(
            create_trial(
                state=state,
                value=error if state in (TrialState.COMPLETE, TrialState.PRUNED) else None,
                params=dict(zip(SPACE.names, point, strict=True)),
                distributions={name: FloatDistribution(0.0, 1.0) for name in SPACE.names},
            )
        )
    return study


@pytest.mark.parametrize("missing", [0, 1])
def test_outlier_among_bad_neighbours_is_the_best_only_of_few(missing: int) -> None:
    points, errors = BAD + GOOD[missing:], BAD_ERRORS + GOOD_ERRORS[missing:]
    study = study_of(points, errors)
    found = best_trial(study, SPACE, EPOCHS)
    assert found.trial in ([3] if len(points) < 12 else range(6, 12))
    assert lowest_error_trial(study).number == 3
    assert found.validation_accuracy == 1 - errors[found.trial]  # the measured one, not the expected one
    assert found.point.tolist() == list(points[found.trial])
    np.testing.assert_array_equal(found.schedule, SPACE.decode(found.point[None], EPOCHS)[0])


def test_trial_among_good_neighbours_is_the_best_of_many() -> None:
    study = study_of(BAD + GOOD, [0.4] * 6 + [0.3, 0.2, 0.1, 0.2, 0.3, 0.3])
    assert best_trial(study, SPACE, EPOCHS).trial in range(6, 12)
    spread = [(0.05 + 0.06 * step, 0.3, 0.4) for step in range(14)]
    study = study_of(spread, [0.1 + 0.05 * abs(step - 8) for step in range(14)])
    assert best_trial(study, SPACE, EPOCHS).trial in (7, 8, 9)


@pytest.mark.parametrize("count", [4, 14])
def test_only_complete_trials_are_the_best(count: int) -> None:
    points = np.random.default_rng(0).random((count, 3)).tolist()
    states = [TrialState.RUNNING, TrialState.PRUNED, TrialState.FAIL] + [TrialState.COMPLETE] * (count - 3)
    study = study_of(points, [0.0, 0.0, 0.0, *(0.5 - 0.01 * number for number in range(3, count))], states)
    assert best_trial(study, SPACE, EPOCHS).trial >= 3
    assert lowest_error_trial(study).number == count - 1


@pytest.mark.parametrize("count", [4, 12])
def test_earliest_of_equal_trials_is_the_best(count: int) -> None:
    study = study_of(np.random.default_rng(0).random((count, 3)).tolist(), [1.0] * count)
    assert best_trial(study, SPACE, EPOCHS).trial == 0
    assert lowest_error_trial(study).number == 0
