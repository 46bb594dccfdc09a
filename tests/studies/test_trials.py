"""Attributes and costs of finished trials."""

from __future__ import annotations

import pytest
from optuna.trial import TrialState, create_trial

from s2e.engine.task import VALIDATION
from s2e.studies import VALIDATION_ACCURACY, accuracy_attribute, finished_trials
from s2e.studies.trials import full_trainings
from searches import make_study


def test_data_sets_have_different_attributes() -> None:
    names = [VALIDATION, "validation", "validation_accuracy", "test", "accuracy", "accuracy_test"]
    assert len({accuracy_attribute(name) for name in names}) == len(names)
    assert accuracy_attribute(VALIDATION) == VALIDATION_ACCURACY


def test_trial_costs_the_epochs_it_was_trained_for() -> None:
    study = make_study()
    for epochs in (27, 1, 3, 27, 9):
        state = TrialState.COMPLETE if epochs == 27 else TrialState.PRUNED
        study.add_trial(create_trial(state=state, value=0.5, user_attrs={VALIDATION_ACCURACY: [0.5] * epochs}))
    study.add_trial(create_trial(state=TrialState.RUNNING))
    assert full_trainings(finished_trials(study), 27) == pytest.approx(2 + 1 / 27 + 3 / 27 + 9 / 27)
    assert full_trainings([], 27) == 0
