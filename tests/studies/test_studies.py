"""Opening a study with its settings, and copying one into memory."""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest

from s2e.errors import RunConflict
from s2e.studies import open_study
from s2e.studies.loop import ask
from s2e.studies.optuna_internals import report, set_study_attributes, set_system_attribute, set_user_attribute
from s2e.studies.studies import copy_in_memory
from searches import make_plan, make_study, trial_records


def test_settings_of_an_existing_study_must_be_equal(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'study.db'}"
    for _ in range(2):
        open_study(url, "search", {"epochs": 6, "validation_share": None})
    for other in ({"epochs": 7, "validation_share": None}, {"epochs": 6}, {}):
        with pytest.raises(RunConflict, match="other settings"):
            open_study(url, "search", other)
    open_study(url, "another", {"epochs": 7})


def test_the_value_of_a_study_has_a_name_for_dashboards(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'study.db'}"
    open_study(url, "search", {"epochs": 6})
    assert optuna.load_study(study_name="search", storage=url).metric_names == ["validation error"]


def test_copy_has_the_trials_of_its_study_and_does_not_change_them(tmp_path: Path) -> None:
    study = make_study(tmp_path / "study.db")
    for trial in ask(study, make_plan("random"), 3)[:2]:
        set_user_attribute(study, trial, "curve", [0.5])
        study.tell(trial.number, 0.5)
    set_study_attributes(study, {"sample": 3})
    before, copied = trial_records(study), copy_in_memory(study)
    assert trial_records(copied) == before
    assert copied._storage.get_study_system_attrs(copied._study_id) == {
        "sample": 3,
        "study:metric_names": ["validation error"],
    }
    for trial in copied.get_trials():
        trial.user_attrs["curve"] = None
        trial.params.clear()
    assert all(trial.params for trial in copied.get_trials(deepcopy=False))
    assert trial_records(study) == before


def test_copy_leaves_out_the_reports_of_running_trials() -> None:
    study = make_study()
    for trial in ask(study, make_plan("random"), 2):
        report(study, trial, 0.3, 1)
        set_system_attribute(study, trial, "completed_rung_0", 0.3)
        set_system_attribute(study, trial, "other", 1)
    study.tell(0, 0.3)
    finished, running = copy_in_memory(study).trials
    assert (finished.intermediate_values, finished.system_attrs) == ({1: 0.3}, {"completed_rung_0": 0.3, "other": 1})
    assert (running.intermediate_values, running.system_attrs) == ({}, {"other": 1})


def test_study_of_another_program_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'study.db'}"
    other = optuna.create_study(storage=url, study_name="search", direction="minimize")
    open_study(url, "search", {"epochs": 6})  # without trials, it may be one that a killed process has created
    foreign = optuna.create_study(storage=url, study_name="another")
    foreign.tell(foreign.ask(), 0.5)
    with pytest.raises(RunConflict, match="it has trials but no settings of s2e"):
        open_study(url, "another", {"epochs": 6})
    assert other.user_attrs == {"settings": {"epochs": 6}}
