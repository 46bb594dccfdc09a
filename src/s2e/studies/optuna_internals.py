"""Undocumented parts of Optuna, reached from this module only.

`tests/studies/test_optuna_internals.py` fails when Optuna changes one of them.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Container, Sequence
from typing import Any

import optuna
import sqlalchemy
from optuna.distributions import BaseDistribution
from optuna.storages import InMemoryStorage, RDBStorage
from optuna.storages._rdb import models
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.orm import Session

PRUNER_PREFIX = "completed_rung_"
"""Prefix of the system attributes in which Optuna's successive halving stores the values reported at its rungs."""


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


class AtomicTrialStorage(RDBStorage):
    """Optuna's relational storage with two transactions per trial: one creates it, one finishes it.

    Optuna's own storage looks up every parameter of a new trial among those of its study, reads a running trial again
    before each change, and commits every attribute separately. With many studies in one file, this takes as long as
    training. This storage caches the trials that its process has created and writes their attributes together with
    their final states. No other process changes a running trial, and a trial left by a killed process is stored as it
    was created.
    """

    def __init__(self, url: str) -> None:
        self._cached_trials: dict[int, FrozenTrial] = {}  # trials created by this process, by id
        self._pending: dict[int, dict[str, str]] = {}  # user attributes not written yet, as JSON, by trial id
        self._distributions: dict[int, dict[str, BaseDistribution]] = {}  # of parameters already written, by study id
        super().__init__(url)

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
        self.scoped_session().add_all(  # the session of this thread, which Optuna's method uses too
            models.TrialUserAttributeModel(trial_id=trial_id, key=key, value_json=text) for key, text in pending.items()
        )
        done = super().set_trial_state_values(trial_id, state, values)
        if not done:  # the trial cannot be started, or another process has written the same attributes
            self._evict(trial_id)
            return super().set_trial_state_values(trial_id, state, values)
        self._pending.pop(trial_id, None)
        trial = self._cached_trials.pop(trial_id, None)
        if trial is not None and state.is_finished():
            trial = _shallow_copy(trial)
            trial.state, trial.values = state, None if values is None else [float(value) for value in values]
            with Session(self.engine) as session:  # set by Optuna's method
                trial.datetime_complete = session.get_one(models.TrialModel, trial_id).datetime_complete
            self._cached_trials[trial_id] = trial
        return True

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
