"""Optuna has the undocumented parts that are used, and a trial is written in two transactions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
import sqlalchemy
from optuna.pruners import _successive_halving
from optuna.storages import BaseStorage, InMemoryStorage, RDBStorage
from optuna.storages._rdb import models
from optuna.trial import FrozenTrial, TrialState

from s2e.studies.loop import ask
from s2e.studies.optuna_internals import (
    PRUNER_PREFIX,
    AtomicTrialStorage,
    is_in_memory,
    report,
    set_system_attribute,
    set_user_attribute,
)
from s2e.studies.plan import SearchPlan
from searches import make_plan, make_study

SOURCES = Path(inspect.getfile(AtomicTrialStorage)).parents[1]
WRITING = {"INSERT", "UPDATE", "DELETE"}


# Names and signatures


@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        (RDBStorage._create_new_trial, "study_id template_trial"),
        (RDBStorage._get_prepared_new_trial, "study_id template_trial session"),
        (RDBStorage._get_trials, "study_id states included_trial_ids trial_id_greater_than"),
        (RDBStorage._set_trial_param, "trial_id param_name param_value_internal distribution previous_distribution"),
        (RDBStorage.get_trial, "trial_id"),
        (RDBStorage.set_trial_user_attr, "trial_id key value"),
        (RDBStorage.set_trial_system_attr, "trial_id key value"),
        (RDBStorage.set_trial_intermediate_value, "trial_id step intermediate_value"),
        (RDBStorage.set_trial_state_values, "trial_id state values"),
        (BaseStorage.create_new_trial, "study_id template_trial"),
        (BaseStorage.set_study_system_attr, "study_id key value"),
        (BaseStorage.get_study_system_attrs, "study_id"),
    ],
    ids=lambda value: getattr(value, "__qualname__", ""),
)
def test_storage_methods_have_the_expected_parameters(method: Callable[..., Any], parameters: str) -> None:
    assert list(inspect.signature(method).parameters) == ["self", *parameters.split()]


@pytest.mark.parametrize(
    ("model", "attributes"),
    [
        (models.TrialModel, {"trial_id", "study_id", "state", "datetime_complete"}),
        (models.TrialParamModel, {"trial_id", "param_name", "param_value", "distribution_json"}),
        (models.TrialUserAttributeModel, {"trial_id", "key", "value_json"}),
    ],
)
def test_tables_have_the_expected_attributes(model: type, attributes: set[str]) -> None:
    assert attributes <= set(dir(model))


def test_studies_storages_and_trials_have_the_expected_attributes(tmp_path: Path) -> None:
    study, stored = make_study(), make_study(tmp_path / "study.db")
    assert isinstance(study._storage, InMemoryStorage)
    assert (is_in_memory(study), is_in_memory(stored)) == (True, False)
    assert isinstance(study._study_id, int)
    assert isinstance(ask(study, make_plan("random"), 1)[0]._trial_id, int)
    backend = AtomicTrialStorage("sqlite:///:memory:")
    assert isinstance(backend.engine, sqlalchemy.Engine)
    assert isinstance(backend.scoped_session(), sqlalchemy.orm.Session)
    assert "__dict__" in dir(FrozenTrial)  # its class can be replaced


def test_pruner_attributes_have_the_expected_prefix() -> None:
    assert _successive_halving._completed_rung_key(0).startswith(PRUNER_PREFIX)


def test_no_other_module_reaches_undocumented_parts() -> None:
    private = ("study._storage", "._trial_id", "._study_id", "optuna.storages._", "optuna.trial._", "completed_rung_")
    found = [
        f"{path.name}: {part}"
        for path in SOURCES.rglob("*.py")
        for part in private
        if path.name != "optuna_internals.py" and part in path.read_text(encoding="utf-8")
    ]
    assert found == []


# Writing


@pytest.fixture
def statements() -> Iterator[list[str]]:
    """The statements sent to any database, and a COMMIT after those that write."""
    sent: list[str] = []

    def executed(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        sent.append(statement.split()[0])

    def committed(connection: Any) -> None:
        if sent and set(sent[len(sent) - sent[::-1].index("COMMIT") if "COMMIT" in sent else 0 :]) & WRITING:
            sent.append("COMMIT")

    sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", executed)
    sqlalchemy.event.listen(sqlalchemy.Engine, "commit", committed)
    yield sent
    sqlalchemy.event.remove(sqlalchemy.Engine, "before_cursor_execute", executed)
    sqlalchemy.event.remove(sqlalchemy.Engine, "commit", committed)


def asked_and_told(study: optuna.Study, plan: SearchPlan, statements: list[str]) -> tuple[list[str], list[str]]:
    """The statements that ask for a trial, and those that tell it with two attributes."""
    statements.clear()
    (trial,) = ask(study, plan, 1)
    asked = list(statements)
    statements.clear()
    set_user_attribute(study, trial, "one", [0.1, 0.2])
    set_user_attribute(study, trial, "other", {"a": None})
    study.tell(trial.number, 0.5)
    return asked, list(statements)


def test_trial_is_written_in_two_commits_whose_statements_do_not_depend_on_its_parameters(
    tmp_path: Path, statements: list[str]
) -> None:
    sent = {}
    for space in ("coteaching", "s2e"):  # 3 and 20 parameters
        study, plan = make_study(tmp_path / "study.db", space), make_plan("random", space=space)
        ask(study, plan, 2)  # the first trial of a study checks its distributions
        sent[space] = asked_and_told(study, plan, statements)
        assert [part.count("COMMIT") for part in sent[space]] == [1, 1]
    assert sent["coteaching"] == sent["s2e"]
    assert len([*sent["s2e"][0], *sent["s2e"][1]]) < 25


def stored_trials(path: Path) -> list[FrozenTrial]:
    return optuna.load_study(study_name="search", storage=f"sqlite:///{path}").get_trials()


@pytest.mark.parametrize("outcome", [{"values": 0.25}, {"state": TrialState.PRUNED}, {"state": TrialState.FAIL}])
def test_cached_trials_equal_stored_trials(tmp_path: Path, outcome: dict[str, Any]) -> None:
    path = tmp_path / "study.db"
    study = make_study(path)
    for trial in ask(study, make_plan("random"), 3):
        assert study.get_trials() == stored_trials(path)
        set_user_attribute(study, trial, "curve", (0.5, 0.75))
        set_user_attribute(study, trial, "curve", (0.5, 0.8))
        if trial.number == 1:
            report(study, trial, 0.3, 2)
        elif trial.number == 2:
            set_system_attribute(study, trial, "noted", 1)
        assert study.get_trials()[trial.number].user_attrs == {"curve": [0.5, 0.8]}
        told = study.tell(trial.number, **outcome)
        assert told == stored_trials(path)[trial.number] == study.get_trials()[trial.number]
        assert told.user_attrs == {"curve": [0.5, 0.8]}
    assert study.get_trials() == stored_trials(path)
    assert [trial.intermediate_values for trial in stored_trials(path)] == [{}, {2: 0.3}, {}]
    assert [trial.system_attrs for trial in study.get_trials()] == [{}, {}, {"noted": 1}]


def test_attributes_of_an_unfinished_trial_are_not_written(tmp_path: Path) -> None:
    study = make_study(tmp_path / "study.db")
    (trial,) = ask(study, make_plan("random"), 1)
    set_user_attribute(study, trial, "curve", [0.5])
    del study
    (left,) = make_study(tmp_path / "study.db").trials
    assert (left.state, left.user_attrs, left.params) == (TrialState.RUNNING, {}, trial.params)


def test_attribute_written_by_another_process_is_overwritten(tmp_path: Path) -> None:
    study = make_study(tmp_path / "study.db")
    (trial,) = ask(study, make_plan("random"), 1)
    set_user_attribute(study, trial, "curve", [0.5])
    other = optuna.load_study(study_name="search", storage=f"sqlite:///{tmp_path / 'study.db'}")
    set_user_attribute(other, trial, "curve", [0.1])
    study.tell(trial.number, 0.5)
    (told,) = other.trials
    assert (told.state, told.values, told.user_attrs) == (TrialState.COMPLETE, [0.5], {"curve": [0.5]})


def test_trials_of_another_process_are_visible_immediately(tmp_path: Path) -> None:
    study = make_study(tmp_path / "study.db")
    ask(study, make_plan("random"), 2)
    other = optuna.load_study(study_name="search", storage=f"sqlite:///{tmp_path / 'study.db'}")
    other.tell(0, 0.5)
    assert [trial.values for trial in study.get_trials()] == [[0.5], None]
    other.add_trial(optuna.trial.create_trial(value=0.3))
    states = [(trial.state.name, trial.values) for trial in study.get_trials()]
    assert states == [("COMPLETE", [0.5]), ("RUNNING", None), ("COMPLETE", [0.3])]


def test_trial_with_another_distribution_is_refused(tmp_path: Path) -> None:
    study, plan = make_study(tmp_path / "study.db"), make_plan("random", space="coteaching")
    ask(study, plan, 2)
    name = plan.space.names[0]
    categories = optuna.distributions.CategoricalDistribution(["a", "b"])
    with pytest.raises(ValueError, match="distribution"):
        study.add_trial(optuna.trial.create_trial(params={name: "a"}, distributions={name: categories}, value=0.5))
    assert len(study.trials) == len(make_study(tmp_path / "study.db").trials) == 2
