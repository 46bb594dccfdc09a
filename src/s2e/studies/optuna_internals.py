"""Undocumented parts of Optuna, reached from this module only.

`tests/studies/test_optuna_internals.py` fails when Optuna changes one of them.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from datetime import datetime
from typing import Any, TypeVar

import optuna
import sqlalchemy
import sqlalchemy.exc
from optuna.distributions import BaseDistribution
from optuna.storages import InMemoryStorage, RDBStorage
from optuna.storages._rdb import models
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.orm import Session

PRUNER_PREFIX = "completed_rung_"
"""Prefix of the system attributes in which Optuna's successive halving stores the values reported at its rungs."""

TABLES = frozenset(models.BaseModel.metadata.tables) | {"alembic_version"}
"""Names of the tables of Optuna's relational storage."""

COLUMNS = frozenset(
    (table.name, column.name) for table in models.BaseModel.metadata.tables.values() for column in table.columns
)
"""Names of its columns, each after that of its table."""

OWNER = "s2e_owner"
"""System attribute of a running trial: the owner that trains it; removed when the trial is finished.

A trial with an owner has a row in Optuna's table of heartbeats from the beginning.
"""

ASKING_KEY = 5_326
"""First part of the key of PostgreSQL's advisory lock that a process holds while it asks for trials."""

ASKING_SECONDS = 20
"""Longest time to wait for this lock: its holder may be suspended."""


class NumberTaken(Exception):
    """Another process has created a trial with the number for which this one was sampled."""


def is_in_memory(study: optuna.Study) -> bool:
    """Return whether the study is lost when the process ends."""
    return isinstance(study._storage, InMemoryStorage)


# `optuna.Trial` has public methods for the next three, but creating one calls `before_trial` of the study's sampler.


def set_user_attribute(study: optuna.Study, trial: FrozenTrial, key: str, value: Any) -> None:
    """Set a user attribute of a running trial."""
    study._storage.set_trial_user_attr(trial._trial_id, key, value)


def set_system_attribute(study: optuna.Study, trial: FrozenTrial, key: str, value: Any) -> None:
    """Set a system attribute of a running trial."""
    study._storage.set_trial_system_attr(trial._trial_id, key, value)


def report(study: optuna.Study, trial: FrozenTrial, value: float, step: int) -> None:
    """Report an intermediate value of a running trial."""
    study._storage.set_trial_intermediate_value(trial._trial_id, step, value)


def insert_trial(study: optuna.Study, trial: FrozenTrial) -> None:
    """Add a trial without the checks of `Study.add_trial`."""
    study._storage.create_new_trial(study._study_id, template_trial=trial)


def pruner_attributes(trial: FrozenTrial) -> dict[str, Any]:
    """Return the system attributes that Optuna's pruners have set."""
    return {key: value for key, value in trial.system_attrs.items() if key.startswith(PRUNER_PREFIX)}


def study_attributes(study: optuna.Study) -> dict[str, Any]:
    """Return the system attributes of the study; some of Optuna's samplers store their state in them."""
    return dict(study._storage.get_study_system_attrs(study._study_id))


def set_study_attributes(study: optuna.Study, attributes: dict[str, Any]) -> None:
    """Set system attributes of the study."""
    for key, value in attributes.items():
        study._storage.set_study_system_attr(study._study_id, key, value)


def add_trial(study: optuna.Study, trial: FrozenTrial, owner: str | None) -> None:
    """Add a running trial of an owner; raise `NumberTaken` if another process has added one of this number."""
    if owner is not None and _backend(study) is not None:
        trial = _shallow_copy(trial)
        trial.system_attrs[OWNER] = owner
    study.add_trial(trial)


@contextmanager
def asking_alone(study: optuna.Study) -> Iterator[None]:
    """Let other processes wait with asking for trials of this study, where the storage can do that."""
    backend = _backend(study)
    with nullcontext() if backend is None else backend.alone(study._study_id):
        yield


def owner_of(trial: FrozenTrial) -> str | None:
    """Return the owner of a running trial; None if it has none."""
    owner = trial.system_attrs.get(OWNER)
    return owner if isinstance(owner, str) else None


def take_over(study: optuna.Study, trial: FrozenTrial, owner: str) -> bool:
    """Change the owner of a running trial; return False if another process has done so, or has finished the trial."""
    backend = _backend(study)
    return backend is None or backend.take_over(trial, owner)


def release_trials(study: optuna.Study) -> None:
    """Remove the owners of all running trials."""
    if (backend := _backend(study)) is not None:
        backend.release_trials(study._study_id)


def record_heartbeats(study: optuna.Study, trials: Sequence[FrozenTrial]) -> None:
    """Record that the owner of these trials is alive."""
    if (backend := _backend(study)) is not None:
        backend.record_heartbeats([trial._trial_id for trial in trials])


def stale_trials(study: optuna.Study, seconds: float) -> set[int]:
    """Return the numbers of the running trials whose heartbeat is older than this."""
    backend = _backend(study)
    return set() if backend is None else backend.stale_trials(study._study_id, seconds)


def _backend(study: optuna.Study) -> AtomicTrialStorage | None:
    """Return the storage of a study that was opened by this package."""
    backend = getattr(study._storage, "_backend", None)
    return backend if isinstance(backend, AtomicTrialStorage) else None


class AtomicTrialStorage(RDBStorage):
    """Optuna's relational storage with two transactions per trial: one creates it, one finishes it.

    Optuna's own storage looks up every parameter of a new trial among those of its study, reads a running trial again
    before each change, and commits every attribute separately. With many studies in one file, this takes as long as
    training. This storage caches the trials that its process has created and writes their attributes together with
    their final states. A trial left by a killed process is stored as it was created.

    Processes may share a study. Each running trial has an owner, which alone trains it, and a heartbeat. Another
    process takes over the trials of an owner that has ended. If the owner was only slow, the first to finish the trial
    wins, and the other receives Optuna's `UpdateFinishedTrialError`.
    """

    def __init__(self, url: str, engine_kwargs: dict[str, Any] | None = None) -> None:
        self._cached_trials: dict[int, FrozenTrial] = {}  # trials created by this process, by id
        self._pending: dict[int, dict[str, str]] = {}  # user attributes not written yet, as JSON, by trial id
        self._distributions: dict[int, dict[str, BaseDistribution]] = {}  # of parameters already written, by study id
        try:
            super().__init__(url, engine_kwargs)
        except BaseException:
            if "engine" in self.__dict__:  # with connections that nothing else would close
                self.engine.dispose()
            raise

    def __getstate__(self) -> dict[Any, Any]:
        """Exclude the state that is valid in this process only."""
        return {**super().__getstate__(), "_cached_trials": {}, "_pending": {}}

    def _create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> FrozenTrial:
        template = None if template_trial is None else with_shallow_deepcopy(template_trial)
        created = super()._create_new_trial(study_id, template)
        created.__class__ = FrozenTrial
        if template_trial is not None:
            self._distributions.setdefault(study_id, {}).update(template_trial.distributions)
            if created.state == TrialState.RUNNING:
                self._cached_trials[created._trial_id] = _shallow_copy(created)
        return created

    def _get_prepared_new_trial(
        self, study_id: int, template_trial: FrozenTrial | None, session: Session
    ) -> models.TrialModel:
        if template_trial is None or OWNER not in template_trial.system_attrs:
            return self._prepared_trial(study_id, template_trial, session)
        existing = sqlalchemy.select(sqlalchemy.func.count()).where(models.TrialModel.study_id == study_id)
        if session.execute(existing).scalar_one() != template_trial.number:  # saves the work of creating it
            raise NumberTaken
        trial = self._prepared_trial(study_id, template_trial, session)
        if trial.number != template_trial.number:  # the transaction is rolled back
            raise NumberTaken
        session.add(models.TrialHeartbeatModel(trial_id=trial.trial_id, heartbeat=self._now()))
        return trial

    def _prepared_trial(self, study_id: int, template_trial: FrozenTrial | None, session: Session) -> models.TrialModel:
        known = self._distributions.get(study_id, {})
        given = {} if template_trial is None else template_trial.distributions
        if template_trial is None or not given or any(known.get(name) != one for name, one in given.items()):
            return super()._get_prepared_new_trial(study_id, template_trial, session)  # checks the distributions
        without_parameters = copy.copy(template_trial)
        without_parameters.params, without_parameters.distributions = {}, {}
        trial = super()._get_prepared_new_trial(study_id, without_parameters, session)
        parameters = [
            {
                "trial_id": trial.trial_id,
                "param_name": name,
                "param_value": distribution.to_internal_repr(template_trial.params[name]),
                "distribution_json": optuna.distributions.distribution_to_json(distribution),
            }
            for name, distribution in given.items()
        ]
        session.execute(sqlalchemy.insert(models.TrialParamModel), parameters)
        return trial

    def get_trial(self, trial_id: int) -> FrozenTrial:
        """Return a trial, from the cache if this process has created it."""
        cached = self._cached_trials.get(trial_id)
        return super().get_trial(trial_id) if cached is None else _shallow_copy(cached)

    def _get_trials(
        self,
        study_id: int,
        states: Container[TrialState] | None,
        included_trial_ids: set[int],
        trial_id_greater_than: int,
    ) -> list[FrozenTrial]:
        trial, later = models.TrialModel, models.TrialModel.trial_id > trial_id_greater_than
        requested = sqlalchemy.or_(later, trial.trial_id.in_(included_trial_ids)) if included_trial_ids else later
        with self.engine.connect() as connection:
            stored = connection.execute(
                sqlalchemy.select(trial.trial_id, trial.state).where(trial.study_id == study_id, requested)
            ).all()
        cached = [self._cached_trials.get(trial_id) for trial_id, _ in stored]
        if all(one is not None and one.state == state for one, (_, state) in zip(cached, stored, strict=True)):
            return [_shallow_copy(one) for one in cached if one is not None and (states is None or one.state in states)]
        return super()._get_trials(study_id, states, included_trial_ids, trial_id_greater_than)

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
        """Set an attribute; for a running trial of this process it is written when the trial is finished."""
        trial, pending = self._cached_trials.get(trial_id), self._pending.get(trial_id, {})
        if trial is None or trial.state.is_finished() or (key in trial.user_attrs and key not in pending):
            self._evict(trial_id)
            super().set_trial_user_attr(trial_id, key, value)
        else:
            text = json.dumps(value)
            self._pending[trial_id] = {**pending, key: text}
            trial.user_attrs[key] = json.loads(text)  # as it will be read back

    def set_trial_state_values(self, trial_id: int, state: TrialState, values: Sequence[float] | None = None) -> bool:
        """Set state and values, and write the pending attributes in the same transaction."""
        pending = self._pending.get(trial_id, {})
        try:
            self._prepare_change_of_state(trial_id, state, pending)
            done = super().set_trial_state_values(trial_id, state, values)
        except optuna.exceptions.UpdateFinishedTrialError:  # another process has taken the trial over and finished it
            self._pending.pop(trial_id, None)
            self._cached_trials.pop(trial_id, None)
            raise
        if not done:  # the trial cannot be started, or another process has written the same attributes
            self._evict(trial_id)
            return super().set_trial_state_values(trial_id, state, values)
        self._pending.pop(trial_id, None)
        trial = self._cached_trials.pop(trial_id, None)
        if trial is not None and state.is_finished():
            trial = _shallow_copy(trial)
            trial.state, trial.values = state, None if values is None else [float(value) for value in values]
            trial.system_attrs.pop(OWNER, None)
            with Session(self.engine) as session:  # set by Optuna's method
                trial.datetime_complete = session.get_one(models.TrialModel, trial_id).datetime_complete
            self._cached_trials[trial_id] = trial
        return True

    def _prepare_change_of_state(self, trial_id: int, state: TrialState, pending: dict[str, str]) -> None:
        """Add the pending attributes to the transaction of Optuna's method, and remove the owner of the trial."""
        session = self.scoped_session()  # the session of this thread, which Optuna's method uses too
        try:
            if state.is_finished():
                # The trial is locked before its owner, as in `take_over`.
                models.TrialModel.find_or_raise_by_id(trial_id, session, for_update=True)
                session.execute(_owner_rows(sqlalchemy.delete(models.TrialSystemAttributeModel), trial_id))
            session.add_all(
                models.TrialUserAttributeModel(trial_id=trial_id, key=key, value_json=text)
                for key, text in pending.items()
            )
        except BaseException:
            session.rollback()
            raise

    @contextmanager
    def alone(self, study_id: int) -> Iterator[None]:
        """Wait until no other process is asking for trials of a study; they wait while the body runs.

        This only saves the time of sampling points for numbers that others take first: where it is not possible, and
        after `ASKING_SECONDS`, the body runs nevertheless.
        """
        if self.engine.name != "postgresql":
            yield
            return
        with self.engine.connect() as connection:  # the lock ends with its transaction
            with suppress(sqlalchemy.exc.OperationalError):
                connection.execute(sqlalchemy.text(f"SET LOCAL lock_timeout = '{ASKING_SECONDS}s'"))
                connection.execute(sqlalchemy.select(sqlalchemy.func.pg_advisory_xact_lock(ASKING_KEY, study_id)))
            yield

    def take_over(self, trial: FrozenTrial, owner: str) -> bool:
        """Change the owner of a running trial; return False if another process has been faster."""
        attribute, trial_id, before = models.TrialSystemAttributeModel, trial._trial_id, owner_of(trial)
        row = {"trial_id": trial_id, "key": OWNER, "value_json": json.dumps(owner)}
        try:
            with self.engine.begin() as connection:
                running = sqlalchemy.update(models.TrialModel).values(state=TrialState.RUNNING)  # locks the trial
                running = running.where(
                    models.TrialModel.trial_id == trial_id, models.TrialModel.state == TrialState.RUNNING
                )
                if connection.execute(running).rowcount != 1:
                    return False
                if before is None:
                    connection.execute(sqlalchemy.insert(attribute).values(row))
                else:
                    changed = _owner_rows(sqlalchemy.update(attribute).values(row), trial_id)
                    unchanged = attribute.value_json == json.dumps(before)
                    if connection.execute(changed.where(unchanged)).rowcount != 1:
                        return False
                heartbeat = models.TrialHeartbeatModel
                connection.execute(sqlalchemy.delete(heartbeat).where(heartbeat.trial_id == trial_id))
                connection.execute(sqlalchemy.insert(heartbeat).values(trial_id=trial_id, heartbeat=self._now()))
        except sqlalchemy.exc.IntegrityError:  # another process has become its owner
            return False
        if trial_id in self._cached_trials:
            self._cached_trials[trial_id].system_attrs[OWNER] = owner
        return True

    def release_trials(self, study_id: int) -> None:
        """Remove the owners of all running trials of a study."""
        attribute, trial = models.TrialSystemAttributeModel, models.TrialModel
        running = sqlalchemy.select(trial.trial_id).where(trial.study_id == study_id, trial.state == TrialState.RUNNING)
        owned = (attribute.key == OWNER) & attribute.trial_id.in_(running)
        with self.engine.begin() as connection:
            if connection.execute(sqlalchemy.select(attribute.trial_id).where(owned).limit(1)).first() is not None:
                connection.execute(sqlalchemy.delete(attribute).where(owned))
        for one in self._cached_trials.values():
            one.system_attrs.pop(OWNER, None)

    def record_heartbeats(self, trial_ids: Sequence[int]) -> None:
        """Record that the owner of these trials is alive."""
        heartbeat = models.TrialHeartbeatModel
        with self.engine.begin() as connection:
            connection.execute(
                sqlalchemy.update(heartbeat).where(heartbeat.trial_id.in_(trial_ids)).values(heartbeat=self._now())
            )

    def stale_trials(self, study_id: int, seconds: float) -> set[int]:
        """Return the numbers of the running trials whose heartbeat is older than this, by the database's clock."""
        heartbeat, trial = models.TrialHeartbeatModel, models.TrialModel
        running = (
            sqlalchemy.select(trial.number, heartbeat.heartbeat, self._now())
            .join(heartbeat, heartbeat.trial_id == trial.trial_id)
            .where(trial.study_id == study_id, trial.state == TrialState.RUNNING)
        )
        with self.engine.connect() as connection:
            rows = connection.execute(running).all()
        return {number for number, recorded, now in rows if (now - recorded).total_seconds() > seconds}

    def _now(self) -> sqlalchemy.ColumnElement[datetime]:
        """Return the time of the database, in UTC: the time zone of a connection may differ between machines."""
        kind = sqlalchemy.DateTime()
        if self.engine.name == "postgresql":
            return sqlalchemy.func.timezone("UTC", sqlalchemy.func.now(), type_=kind)
        if self.engine.name in ("mysql", "mariadb"):
            return sqlalchemy.func.utc_timestamp(type_=kind)
        return sqlalchemy.func.current_timestamp(type_=kind)

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        """Set a system attribute and write it immediately."""
        self._evict(trial_id)
        super().set_trial_system_attr(trial_id, key, value)

    def set_trial_intermediate_value(self, trial_id: int, step: int, intermediate_value: float) -> None:
        """Set the value reported at a step and write it immediately."""
        self._evict(trial_id)
        super().set_trial_intermediate_value(trial_id, step, intermediate_value)

    def _set_trial_param(
        self,
        trial_id: int,
        param_name: str,
        param_value_internal: float,
        distribution: BaseDistribution,
        previous_distribution: BaseDistribution | None,
    ) -> None:
        self._evict(trial_id)
        super()._set_trial_param(trial_id, param_name, param_value_internal, distribution, previous_distribution)

    def _evict(self, trial_id: int) -> None:
        """Write the pending attributes of a trial and remove it from the cache."""
        self._cached_trials.pop(trial_id, None)
        for key, text in self._pending.pop(trial_id, {}).items():
            super().set_trial_user_attr(trial_id, key, json.loads(text))


Statement = TypeVar("Statement", sqlalchemy.Update, sqlalchemy.Delete)


def _owner_rows(statement: Statement, trial_id: int) -> Statement:
    """Restrict a statement about system attributes to the owner of one trial."""
    attribute = models.TrialSystemAttributeModel
    return statement.where(attribute.trial_id == trial_id, attribute.key == OWNER)


def _shallow_copy(trial: FrozenTrial) -> FrozenTrial:
    """Copy a trial and its dictionaries, but not their values, which are never changed in place."""
    copied = copy.copy(trial)
    copied.params, copied.distributions = dict(trial.params), dict(trial.distributions)
    copied.user_attrs, copied.system_attrs = dict(trial.user_attrs), dict(trial.system_attrs)
    copied.intermediate_values = dict(trial.intermediate_values)
    return copied


class _ShallowlyCopiedTrial(FrozenTrial):
    def __deepcopy__(self, memo: dict[int, Any]) -> FrozenTrial:
        return _shallow_copy(self)


def with_shallow_deepcopy(trial: FrozenTrial) -> FrozenTrial:
    """Return the trial with a `__deepcopy__` that does not copy the values of its dictionaries.

    These include the accuracies of every epoch; with many trials, copying them takes longer than everything else.
    """
    shallow = copy.copy(trial)
    shallow.__class__ = _ShallowlyCopiedTrial
    return shallow
