"""Optuna studies: open one at a storage, and copy one into memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState, create_trial

from s2e.errors import RunConflict
from s2e.studies.optuna_internals import (
    insert_trial,
    pruner_attributes,
    set_study_attributes,
    study_attributes,
    with_shallow_deepcopy,
)
from s2e.studies.storage import open_storage


@contextmanager
def quiet_optuna() -> Iterator[None]:
    """Let Optuna log warnings and errors only."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(max(before, optuna.logging.WARNING))
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)


def open_study(storage: str | None, name: str, settings: Mapping[str, Any]) -> optuna.Study:
    """Open or create a study.

    Args:
        storage: URL; None for a study in memory.
        name: name of the study in its storage.
        settings: stored with a new study; those of an existing study must be equal, or `RunConflict` is raised.
    """
    opened = None if storage is None else open_storage(storage)
    with quiet_optuna():
        study = optuna.create_study(storage=opened, study_name=name, direction="minimize", load_if_exists=True)
    stored = study.user_attrs.get("settings")
    if stored is None:
        study.set_user_attr("settings", dict(settings))
    elif stored != dict(settings):
        raise RunConflict(f"the study {name!r} at {storage} was made with other settings; use another storage or name.")
    return study


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
