"""Studies: opened whole or not at all, held to what they were begun with, and copied into memory to try things on."""

from __future__ import annotations

import copy
import json
import os
import re
import threading
import weakref
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy
import sqlalchemy.exc
from optuna.distributions import BaseDistribution
from optuna.storages import BaseStorage, RDBStorage
from optuna.storages._rdb import models
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy.orm import Session

from s2e.errors import RunConflict, UnreadableData

MUTABLE_ON_RESUME = frozenset({"trials", "baselines", "restarts"})
"""Settings that may change when a search is continued: they decide how long it goes on and what comes after it."""

REPORTED = "completed_rung_"
"""How the attributes begin in which a pruner remembers what was reported of a trial."""

_OPEN: weakref.WeakValueDictionary[tuple[object, ...], BaseStorage] = weakref.WeakValueDictionary()
"""Storages by what they are, for as long as a study of theirs is in use."""


class AtomicTrialStorage(RDBStorage):
    """Optuna's relational storage, which writes a trial twice: whole when it is created, whole when it is finished.

    Optuna's own looks every parameter of a new trial up among those of its study, reads a running trial again before
    each change, and commits every attribute by itself. With many studies in one file, that takes as long as training.
    Here the trials that this process has created are remembered, and their attributes are written together with their
    states: nobody else changes a running trial, and one that a dead process has left is as it was created.
    """

    def __init__(self, url: str) -> None:
        self._own: dict[int, FrozenTrial] = {}  # trials of this process as they are, by id
        self._held: dict[int, dict[str, str]] = {}  # attributes not written yet, as JSON
        self._distributions: dict[int, dict[str, BaseDistribution]] = {}  # of parameters written before, by study
        super().__init__(url)

    def __getstate__(self) -> dict[Any, Any]:
        """Leave out what is only true in this process."""
        return {**super().__getstate__(), "_own": {}, "_held": {}}

    def _create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> FrozenTrial:
        made = super()._create_new_trial(study_id, None if template_trial is None else _lightly_copied(template_trial))
        made.__class__ = FrozenTrial
        if template_trial is not None:
            self._distributions.setdefault(study_id, {}).update(template_trial.distributions)
            if made.state == TrialState.RUNNING:
                self._own[made._trial_id] = _copied(made)
        return made

    def _get_prepared_new_trial(
        self, study_id: int, template_trial: FrozenTrial | None, session: Session
    ) -> models.TrialModel:
        known = self._distributions.get(study_id, {})
        given = {} if template_trial is None else template_trial.distributions
        if template_trial is None or not given or any(known.get(name) != one for name, one in given.items()):
            return super()._get_prepared_new_trial(study_id, template_trial, session)  # which checks them
        bare = copy.copy(template_trial)
        bare.params, bare.distributions = {}, {}
        trial = super()._get_prepared_new_trial(study_id, bare, session)
        parameters = [
            {
                "trial_id": trial.trial_id,
                "param_name": name,
                "param_value": one.to_internal_repr(template_trial.params[name]),
                "distribution_json": optuna.distributions.distribution_to_json(one),
            }
            for name, one in given.items()
        ]
        session.execute(sqlalchemy.insert(models.TrialParamModel), parameters)
        return trial

    def get_trial(self, trial_id: int) -> FrozenTrial:
        """Return a trial; one of this process as it is remembered."""
        own = self._own.get(trial_id)
        return super().get_trial(trial_id) if own is None else _copied(own)

    def _get_trials(
        self,
        study_id: int,
        states: Container[TrialState] | None,
        included_trial_ids: set[int],
        trial_id_greater_than: int,
    ) -> list[FrozenTrial]:
        trial, later = models.TrialModel, models.TrialModel.trial_id > trial_id_greater_than
        asked_for = sqlalchemy.or_(later, trial.trial_id.in_(included_trial_ids)) if included_trial_ids else later
        with self.engine.connect() as connection:
            stored = connection.execute(
                sqlalchemy.select(trial.trial_id, trial.state).where(trial.study_id == study_id, asked_for)
            ).all()
        own = [self._own.get(number) for number, _ in stored]
        if all(one is not None and one.state == state for one, (_, state) in zip(own, stored, strict=True)):
            return [_copied(one) for one in own if one is not None and (states is None or one.state in states)]
        return super()._get_trials(study_id, states, included_trial_ids, trial_id_greater_than)

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
        """Set an attribute; of a running trial of this process it is written when the trial is finished."""
        own, held = self._own.get(trial_id), self._held.get(trial_id, {})
        if own is None or own.state.is_finished() or (key in own.user_attrs and key not in held):
            self._forget(trial_id)
            super().set_trial_user_attr(trial_id, key, value)
        else:
            text = json.dumps(value)
            self._held[trial_id] = {**held, key: text}
            own.user_attrs[key] = json.loads(text)  # as it will be read back

    def set_trial_state_values(self, trial_id: int, state: TrialState, values: Sequence[float] | None = None) -> bool:
        """Set state and values, and write the attributes held back with them, in one transaction."""
        held = self._held.get(trial_id, {})
        self.scoped_session().add_all(  # the session of this thread, which Optuna's part works with
            models.TrialUserAttributeModel(trial_id=trial_id, key=key, value_json=text) for key, text in held.items()
        )
        done = super().set_trial_state_values(trial_id, state, values)
        if not done:  # it is not to be started, or somebody else has written the same attributes
            self._forget(trial_id)
            return super().set_trial_state_values(trial_id, state, values)
        self._held.pop(trial_id, None)
        own = self._own.pop(trial_id, None)
        if own is not None and state.is_finished():
            own = _copied(own)
            own.state, own.values = state, None if values is None else [float(value) for value in values]
            with Session(self.engine) as session:  # only Optuna knows what the clock showed
                own.datetime_complete = session.get_one(models.TrialModel, trial_id).datetime_complete
            self._own[trial_id] = own
        return True

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        """Set an attribute of Optuna's at once."""
        self._forget(trial_id)
        super().set_trial_system_attr(trial_id, key, value)

    def set_trial_intermediate_value(self, trial_id: int, step: int, intermediate_value: float) -> None:
        """Set what was reported at a step at once."""
        self._forget(trial_id)
        super().set_trial_intermediate_value(trial_id, step, intermediate_value)

    def _set_trial_param(
        self,
        trial_id: int,
        param_name: str,
        param_value_internal: float,
        distribution: BaseDistribution,
        previous_distribution: BaseDistribution | None,
    ) -> None:
        self._forget(trial_id)
        super()._set_trial_param(trial_id, param_name, param_value_internal, distribution, previous_distribution)

    def _forget(self, trial_id: int) -> None:
        """Write what is held back of a trial, and read it from now on: it is changed in other ways than by a search."""
        self._own.pop(trial_id, None)
        for key, text in self._held.pop(trial_id, {}).items():
            super().set_trial_user_attr(trial_id, key, json.loads(text))


def _copied(trial: FrozenTrial) -> FrozenTrial:
    """Copy a trial and the dictionaries in it, but not what is in these: nobody changes that."""
    copied = copy.copy(trial)
    copied.params, copied.distributions = dict(trial.params), dict(trial.distributions)
    copied.user_attrs, copied.system_attrs = dict(trial.user_attrs), dict(trial.system_attrs)
    copied.intermediate_values = dict(trial.intermediate_values)
    return copied


class _LightlyCopied(FrozenTrial):
    """A trial that is copied without what is in its dictionaries, wherever Optuna makes a deep copy of it.

    Its accuracies of every epoch are among that, and copying them takes longer than all else with many trials.
    """

    def __deepcopy__(self, memo: dict[int, Any]) -> FrozenTrial:
        return _copied(self)


def _lightly_copied(trial: FrozenTrial) -> FrozenTrial:
    light = copy.copy(trial)
    light.__class__ = _LightlyCopied
    return light


def check_storage(storage: str) -> None:
    """Refuse a storage URL that cannot be opened, before anything is made."""
    _opened(storage)


def _opened(url: str) -> BaseStorage:
    """Open a storage and check its tables, or return what this process has open there already.

    It is closed as soon as the last study that uses it is gone.
    """
    try:
        _create_in_one_piece(url)
        key = _identity(url)
        storage = None if key is None else _OPEN.get(key)
        if storage is None:
            backend = AtomicTrialStorage(url)
            storage = optuna.storages.get_storage(backend)
            weakref.finalize(storage, _close, backend.engine, os.getpid())
            if key is not None:
                _OPEN[key] = storage
    except (sqlalchemy.exc.SQLAlchemyError, ImportError, ValueError) as problem:
        reason = str(problem).strip().splitlines()[0]
        raise UnreadableData(f"the storage {url!r} could not be opened: {reason}") from problem
    return storage


def _identity(url: str) -> tuple[object, ...] | None:
    """Return what tells an open storage from others, None for one that cannot be opened twice: a database in memory.

    A file is told by its inode: another one may be put in its place. A forked process must not use connections of its
    parent.
    """
    place = sqlalchemy.make_url(url)
    if place.get_backend_name() != "sqlite":
        return os.getpid(), url
    try:
        found = os.stat(place.database or ":memory:")
    except OSError:
        return None
    return os.getpid(), url, found.st_dev, found.st_ino


def _close(engine: sqlalchemy.Engine, process: int) -> None:
    engine.dispose(close=os.getpid() == process)  # a forked process leaves its parent's connections alone


def _create_in_one_piece(storage: str) -> None:
    """Create the database of an SQLite URL under a hidden name and rename it, so that it is there whole or not at all.

    Optuna makes its tables one after the other. Killed in between it leaves a table without its index, and the next
    process makes a second study of the same name there, which none after it can open.
    """
    place = re.fullmatch(r"sqlite:///(.+)", storage)
    if place is None or ":memory:" in storage or "?" in storage or Path(place[1]).exists():
        return
    path = Path(place[1])
    hidden = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    made = optuna.storages.RDBStorage(f"sqlite:///{hidden}")
    made.remove_session()
    made.engine.dispose()
    try:
        os.link(hidden, path)  # not over a database another process has made meanwhile
    except OSError:
        if not path.exists():  # a file system without links
            os.replace(hidden, path)
    hidden.unlink(missing_ok=True)


@contextmanager
def quiet_optuna() -> Iterator[None]:
    """Let Optuna say only what is a warning, for a while."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(max(before, optuna.logging.WARNING))
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)


def open_study(storage: str | None, name: str, settings: Mapping[str, Any]) -> optuna.Study:
    """Open or create the study at a storage URL (None: in memory), and hold it to the settings it was begun with."""
    opened = None if storage is None else _opened(storage)
    with quiet_optuna():
        study = optuna.create_study(storage=opened, study_name=name, direction="minimize", load_if_exists=True)
    lasting = {key: value for key, value in settings.items() if key not in MUTABLE_ON_RESUME}
    begun_with = study.user_attrs.get("settings")
    if begun_with is None:
        study.set_user_attr("settings", lasting)
    elif {key: value for key, value in begun_with.items() if key not in MUTABLE_ON_RESUME} != lasting:
        raise RunConflict(f"the study {name!r} at {storage} was made with other settings; use another storage or name.")
    return study


def drafted(study: optuna.Study, trials: Sequence[FrozenTrial] | None = None) -> optuna.Study:
    """Copy a study into memory, under its name; what running trials have of reports so far is left out.

    Of a generation that is trained anew after a crash, nothing that the dead process reported must remain. The trials
    may be given where they have just been read.
    """
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # or Optuna announces a new study
    try:
        draft = optuna.create_study(study_name=study.study_name, directions=study.directions)
    finally:
        optuna.logging.set_verbosity(verbosity)
    for trial in study.get_trials(deepcopy=False) if trials is None else trials:
        if trial.state == TrialState.RUNNING:
            asked = {key: value for key, value in trial.system_attrs.items() if not key.startswith(REPORTED)}
            trial = create_trial(
                state=TrialState.RUNNING,
                params=trial.params,
                distributions=trial.distributions,
                user_attrs=trial.user_attrs,
                system_attrs=asked,
            )
        elif trial.state.is_finished():
            trial = _lightly_copied(trial)
        draft._storage.create_new_trial(draft._study_id, template_trial=trial)  # without checking it once more
    return draft
