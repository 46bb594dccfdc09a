"""Studies: opened whole or not at all, held to what they were begun with, and copied into memory to try things on."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy.exc
from optuna.trial import TrialState, create_trial

from s2e.errors import RunConflict, UnreadableData

CHANGEABLE = frozenset({"trials", "baselines", "restarts"})
"""Settings that may change when a search is continued: they decide how long it goes on and what comes after it."""

REPORTED = "completed_rung_"
"""How the attributes begin in which a pruner remembers what was reported of a trial."""


def check_storage(storage: str) -> None:
    """Refuse a storage URL that cannot be opened, before anything is made."""
    try:
        _create_in_one_piece(storage)
        optuna.storages.get_storage(storage)
    except (sqlalchemy.exc.SQLAlchemyError, ImportError, ValueError) as problem:
        reason = str(problem).strip().splitlines()[0]
        raise UnreadableData(f"the storage {storage!r} could not be opened: {reason}") from problem


def _create_in_one_piece(storage: str) -> None:
    """Create the database of an SQLite URL under a hidden name and rename it, so that it is there whole or not at all.

    Optuna makes its tables one after the other. Killed in between it leaves a table without its index, and the next
    process makes a second study of the same name there, which none after it can open.
    """
    place = re.fullmatch(r"sqlite:///(.+)", storage)
    if place is None or ":memory:" in storage or "?" in storage or Path(place[1]).exists():
        return
    path = Path(place[1])
    hidden = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    made = optuna.storages.RDBStorage(f"sqlite:///{hidden}")
    made.remove_session()
    made.engine.dispose()
    try:
        os.link(hidden, path)  # not over a database another process has made meanwhile
    except OSError:
        if not path.exists():  # a file system without links
            os.replace(hidden, path)
    hidden.unlink(missing_ok=True)


def open_study(storage: str | None, name: str, settings: Mapping[str, Any]) -> optuna.Study:
    """Open or create the study at a storage URL (None: in memory), and hold it to the settings it was begun with."""
    if storage is not None:
        check_storage(storage)
    study = optuna.create_study(storage=storage, study_name=name, direction="minimize", load_if_exists=True)
    lasting = {key: value for key, value in settings.items() if key not in CHANGEABLE}
    begun_with = study.user_attrs.get("settings", lasting)
    if {key: value for key, value in begun_with.items() if key not in CHANGEABLE} != lasting:
        raise RunConflict(f"the study {name!r} at {storage} was made with other settings; use another storage or name.")
    study.set_user_attr("settings", lasting)
    return study


def drafted(study: optuna.Study) -> optuna.Study:
    """Copy a study into memory, under its name; what running trials have of reports so far is left out.

    Of a generation that is trained anew after a crash, nothing that the dead process reported must remain.
    """
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # or Optuna announces a new study
    try:
        draft = optuna.create_study(study_name=study.study_name, directions=study.directions)
    finally:
        optuna.logging.set_verbosity(verbosity)
    for trial in study.get_trials(deepcopy=False):
        if trial.state == TrialState.RUNNING:
            asked = {key: value for key, value in trial.system_attrs.items() if not key.startswith(REPORTED)}
            trial = create_trial(
                state=TrialState.RUNNING,
                params=trial.params,
                distributions=trial.distributions,
                user_attrs=trial.user_attrs,
                system_attrs=asked,
            )
        draft.add_trial(trial)
    return draft
