"""Stopping trainings early: a pruner of Optuna's judges the members of a generation while they train.

It judges them on a copy of the study, and the study learns of it when the generation is told: one that was killed half
way is trained again as if nothing had been judged.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import optuna
from optuna.pruners import BasePruner
from optuna.trial import FrozenTrial

from s2e.engine.curves import Curves
from s2e.engine.task import VALIDATION
from s2e.studies.storage import REPORTED, drafted


class GenerationPruner:
    """Decides who of one search's members in a generation trains on.

    Members are judged in the order of their trials, each against those judged before it at the same epoch, here and in
    earlier generations: what a pruner of Optuna's does when trials report one after the other.

    Args:
        study: the trials so far, and those of this generation, running.
        trials: of this generation, in the order of the members.
        pruner: says who stops.
        rungs: the epochs it looks at, counted from 1.
    """

    def __init__(
        self, study: optuna.Study, trials: Sequence[FrozenTrial], pruner: BasePruner, rungs: Sequence[int]
    ) -> None:
        self._draft = drafted(study)
        self._draft.pruner = pruner
        self._numbers = [trial.number for trial in trials]
        self._rungs = frozenset(rungs)

    def stopped(self, epoch: int, members: Sequence[int], curves: Curves) -> list[int]:
        """Return which of these members stop after an epoch, counted from 1.

        Args:
            epoch: just trained.
            members: places in this generation of those that trained it.
            curves: theirs, in this order.
        """
        if epoch not in self._rungs:
            return []
        errors = 1.0 - np.where(curves.diverged, 0.0, np.nan_to_num(curves.accuracy[VALIDATION][:, epoch - 1]))
        stopped = []
        for row, member in sorted(enumerate(members), key=lambda each: each[1]):
            running = optuna.Trial(self._draft, self._trial(member)._trial_id)
            running.report(float(errors[row]), epoch)
            if running.should_prune():
                stopped.append(member)
        return stopped

    def write(self, study: optuna.Study, member: int) -> None:
        """Write what was reported of a member, and what the pruner remembers of it, to its trial in the study."""
        judged = self._trial(member)
        running = optuna.Trial(study, study.get_trials(deepcopy=False)[judged.number]._trial_id)
        for epoch, error in judged.intermediate_values.items():
            running.report(error, epoch)
        for name, value in judged.system_attrs.items():
            if name.startswith(REPORTED):
                study._storage.set_trial_system_attr(running._trial_id, name, value)

    def _trial(self, member: int) -> FrozenTrial:
        return self._draft.get_trials(deepcopy=False)[self._numbers[member]]
