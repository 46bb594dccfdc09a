"""Optuna studies: open one at a storage, and copy one into memory."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning, StorageInternalError
from optuna.trial import FrozenTrial, TrialState, create_trial

from s2e.errors import RunConflict, S2EError, UnreadableData, first_line
from s2e.studies.optuna_internals import (
    insert_trial,
    pruner_attributes,
    release_trials,
    set_study_attributes,
    study_attributes,
    with_shallow_deepcopy,
)
from s2e.studies.storage import open_storage, quiet_optuna, storage_faults
from s2e.studies.trials import check_stored
from s2e.studies.urls import sqlite_path, without_password

SETTINGS = "settings"
"""User attribute of a study: what defines its objective."""

METRIC = "validation error"
"""Name of a trial's value in dashboards, plots and tables of Optuna."""

DATA_FINGERPRINT = "data_fingerprint"
"""The setting that identifies the data."""


@contextmanager
def _named_when_damaged(storage: str | None) -> Iterator[None]:
    """Turn what a damaged database makes Optuna raise, which can be anything, into one line with its name."""
    try:
        yield
    except S2EError:
        raise
    except Exception as problem:
        if storage is None:
            raise
        cause = problem.__cause__ if isinstance(problem, StorageInternalError) and problem.__cause__ else problem
        raise UnreadableData(
            f"the storage {without_password(storage)!r} could not be read: {first_line(cause)}"
        ) from problem


def open_study(storage: str | None, name: str, settings: Mapping[str, Any], *, exclusive: bool = False) -> optuna.Study:
    """Open or create a study.

    Args:
        storage: URL; None for a study in memory.
        name: name of the study in its storage.
        settings: what defines the objective, the data included; stored with a new study. Those of an existing study
            must be equal, or `RunConflict` is raised.
        exclusive: whether no other process can be using the study, so that its running trials are of ended processes.
    """
    opened = None if storage is None else open_storage(storage)
    with _named_when_damaged(storage), storage_faults(), quiet_optuna(optuna.logging.ERROR):
        study = optuna.create_study(storage=opened, study_name=name, direction="minimize", load_if_exists=True)
        if SETTINGS not in study.user_attrs and not study.get_trials(deepcopy=False):
            study.set_user_attr(SETTINGS, dict(settings))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ExperimentalWarning)  # the name is for display only
                study.set_metric_names([METRIC])
        stored = study.user_attrs.get(SETTINGS)  # another process may have written its own meanwhile
        if len(study.directions) != 1:
            raise ValueError(f"the study {name!r} must have one direction, but has {len(study.directions)}.")
        study_attributes(study)  # damage is found here, not in the search
        for trial in study.get_trials(deepcopy=False):
            check_stored(trial)
    if stored != dict(settings):
        raise RunConflict(
            f"the study {name!r} at {without_password(storage or 'memory')} was made with other settings: "
            f"{'; '.join(differences(stored, settings))}; use another storage or name, or the same data and options."
        )
    if exclusive:
        release_trials(study)
    return study


def load_study(storage: str, name: str) -> optuna.Study:
    """Open an existing study; no file is created."""
    with _named_when_damaged(storage):
        path = sqlite_path(storage)
    if path is not None and not path.is_file():
        raise UnreadableData(f"the storage {without_password(storage)!r} could not be opened: the file does not exist.")
    opened = open_storage(storage)
    with _named_when_damaged(storage), storage_faults(), quiet_optuna(optuna.logging.ERROR):
        if name not in optuna.get_all_study_names(opened):
            raise UnreadableData(f"the storage {without_password(storage)!r} has no study {name!r}.")
        study = optuna.load_study(study_name=name, storage=opened)
        study.get_trials(deepcopy=False)  # damage is found here
    return study


def differences(before: Any, now: Mapping[str, Any]) -> list[str]:
    """Return how settings differ from those that were stored, one text for each."""
    if not isinstance(before, Mapping):
        return ["it has trials but no settings of s2e"]
    return [
        "the data have changed since"
        if name == DATA_FINGERPRINT
        else f"{name} was {before.get(name)!r} and is now {now.get(name)!r}"
        for name in {**before, **now}
        if before.get(name) != now.get(name) or (name in before) != (name in now)
    ]


def copy_in_memory(study: optuna.Study, trials: Sequence[FrozenTrial] | None = None) -> optuna.Study:
    """Copy a study into memory, without the reports and pruner attributes of its running trials.

    A generation that is trained again after its process was killed must not use the reports of that process.

    Args:
        study: study to copy.
        trials: all trials of the study, if they have just been read.
    """
    with quiet_optuna():
        copied = optuna.create_study(study_name=study.study_name, directions=study.directions)
    set_study_attributes(copied, study_attributes(study))
    for trial in study.get_trials(deepcopy=False) if trials is None else trials:
        if trial.state == TrialState.RUNNING:
            reported = pruner_attributes(trial)
            trial = create_trial(
                state=TrialState.RUNNING,
                params=trial.params,
                distributions=trial.distributions,
                user_attrs=trial.user_attrs,
                system_attrs={key: value for key, value in trial.system_attrs.items() if key not in reported},
            )
        elif trial.state.is_finished():
            trial = with_shallow_deepcopy(trial)
        insert_trial(copied, trial)
    return copied
