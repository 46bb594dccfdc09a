"""What a study keeps of every training beside its score, and who has won it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import optuna
import pytest
from numpy.typing import NDArray
from optuna.distributions import FloatDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from s2e.engine.curves import Curves
from s2e.engine.task import VALIDATION, Member
from s2e.schedules.spaces import SPACES
from s2e.studies.loop import TRAINED, Stop, attribute_of, best, run_generations, winner
from s2e.studies.plan import Search, SearchPlan

EPOCHS = 12


def fresh() -> optuna.Study:
    return optuna.create_study(direction="minimize")


def accuracies(members: int, first: float) -> NDArray[np.float64]:
    """(P, T) numbers that no rounding to six places leaves as they are, another one everywhere."""
    return first + np.arange(members * EPOCHS).reshape(members, EPOCHS) / 3000  # (P, T)


class Pretence:
    """Trains nobody, and says what came of it; the second of two may be stopped after five epochs."""

    def __init__(self, evaluated: Sequence[str], *, stopping: bool = False) -> None:
        self.evaluated, self.stopping = evaluated, stopping

    def train(self, members: Sequence[Member], _: Stop) -> Curves:
        curves = Curves.empty(len(members), EPOCHS, self.evaluated)
        for place, name in enumerate(self.evaluated):
            curves.accuracy[name][:] = accuracies(len(members), 0.2 * (1 + place))
        trained = np.full(len(members), EPOCHS)
        if self.stopping:
            trained[1:] = 5
        return replace(curves, epochs=trained)


def searched(*evaluated: str, stopping: bool = False) -> list[FrozenTrial]:
    """Spend two trainings in generations of two."""
    study = fresh()
    plan = SearchPlan.named("coteaching", "random", epochs=EPOCHS, trials=2, generation=2)
    run_generations(Pretence(evaluated, stopping=stopping).train, EPOCHS, [Search(plan, study)])
    return study.trials


def test_a_trial_has_its_accuracy_on_every_data_set_evaluated_after_every_epoch() -> None:
    for member, trial in enumerate(searched(VALIDATION, "test", "other")):
        for place, name in enumerate([TRAINED, "accuracy_test", "accuracy_other"]):
            wanted = [round(value, 6) for value in accuracies(2, 0.2 * (1 + place))[member].tolist()]
            assert trial.user_attrs[name] == wanted
        assert len(trial.user_attrs) == 3


def test_a_search_that_evaluates_validation_only_writes_that_only() -> None:
    assert [list(trial.user_attrs) for trial in searched(VALIDATION)] == [[TRAINED]] * 2


def test_no_point_and_no_score_depends_on_what_else_is_evaluated() -> None:
    alone, beside = searched(VALIDATION), searched(VALIDATION, "test")
    assert [trial.params for trial in alone] == [trial.params for trial in beside]
    assert [trial.values for trial in alone] == [trial.values for trial in beside]


def test_the_score_is_of_validation_also_where_that_is_not_evaluated_first() -> None:
    first, second = (searched(*names) for names in [(VALIDATION,), ("test", VALIDATION)])
    shifted = [trial.values[0] + 0.2 for trial in second]  # the second data set is 0.2 more accurate
    assert [trial.values[0] for trial in first] == pytest.approx(shifted)


def test_a_training_that_was_stopped_has_the_epochs_it_was_trained_for() -> None:
    trials = searched(VALIDATION, "test", stopping=True)
    assert [trial.state == TrialState.PRUNED for trial in trials] == [False, True, False]
    for name in (TRAINED, "accuracy_test"):
        assert [len(trial.user_attrs[name]) for trial in trials] == [EPOCHS, 5, EPOCHS]


def test_no_two_data_sets_share_an_attribute() -> None:
    names = [VALIDATION, "validation", "validation_accuracy", "test", "accuracy", "accuracy_test"]
    assert len({attribute_of(name) for name in names}) == len(names)
    assert attribute_of(VALIDATION) == TRAINED


# ----------------------------------------------------------------------------------------------------- who has won


def told(*errors: float | None) -> optuna.Study:
    """Trials with these errors in the space of Co-teaching, points next to each other; None for one still running."""
    study = fresh()
    for number, error in enumerate(errors):
        point = dict.fromkeys(SPACES["coteaching"].names, 0.5 + 0.001 * number)
        study.add_trial(
            create_trial(
                state=TrialState.RUNNING if error is None else TrialState.COMPLETE,
                values=None if error is None else [error],
                params=point,
                distributions={name: FloatDistribution(0.0, 1.0) for name in point},
            )
        )
    return study


def test_the_winner_has_the_smallest_error_of_its_own_and_is_the_earliest_of_equals() -> None:
    assert winner(told(0.3, 0.1, 0.2, 0.1)).number == 1
    assert winner(told(0.1)).number == 0


def test_only_complete_trials_win() -> None:
    study = told(None, 0.3, 0.2)
    study.add_trial(create_trial(state=TrialState.PRUNED, values=[0.1]))
    assert winner(study).number == 2


def test_a_lucky_training_wins_though_its_schedule_is_not_the_best_to_be_expected() -> None:
    errors = [0.4 - 0.01 * number for number in range(24)]  # better and better, but for one
    errors[3] = 0.1
    study = told(*errors)
    assert winner(study).number == 3
    assert best(study, SPACES["coteaching"], EPOCHS).trial == 23
