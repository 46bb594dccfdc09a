"""Stopping trainings early: an Optuna pruner is applied to the members of a generation while they train.

The pruner works on a copy of the study. Reports are written to the study when the generation is told, so a generation
whose process was killed is trained again as if nothing had been reported.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import optuna
from optuna.pruners import BasePruner
from optuna.trial import FrozenTrial

from s2e.engine import VALIDATION, Curves
from s2e.studies.optuna_internals import pruner_attributes, report, set_system_attribute
from s2e.studies.studies import copy_in_memory


class GenerationPruner:
    """Decides which members of one search's generation stop early.

    Members report in the order of their trials, so each is compared with those that reported before it at the same
    epoch, in this generation and in earlier ones. This is what an Optuna pruner does when trials run one after another.

    Args:
        study: contains all trials so far and those of this generation, which are running.
        trials: trials of this generation, in the order of the members.
        pruner: decides for one trial at a time.
        rungs: epochs after which it decides, counted from 1.
    """

    def __init__(
        self, study: optuna.Study, trials: Sequence[FrozenTrial], pruner: BasePruner, rungs: Sequence[int]
    ) -> None:
        self._study, self._trials = study, list(trials)
        self._copy = copy_in_memory(study)
        self._copy.pruner = pruner
        self._rungs = frozenset(rungs)

    def stopped(self, epoch: int, members: Sequence[int], curves: Curves) -> list[int]:
        """Return the members that stop after this epoch.

        Args:
            epoch: number of the epoch just trained, from 1.
            members: indices in this generation of the members trained in this epoch.
            curves: curves of these members, in this order.
        """
        if epoch not in self._rungs:
            return []
        errors = 1.0 - np.where(curves.diverged, 0.0, np.nan_to_num(curves.accuracy[VALIDATION][:, epoch - 1]))
        stopped = []
        for row, member in sorted(enumerate(members), key=lambda each: each[1]):
            report(self._copy, self._copied_trial(member), float(errors[row]), epoch)
            if self._copy.pruner.prune(self._copy, self._copied_trial(member)):
                stopped.append(member)
        return stopped

    def write_reports(self, member: int) -> None:
        """Write the reports of a member and the pruner's attributes to its trial in the study."""
        copied, trial = self._copied_trial(member), self._trials[member]
        for epoch, error in copied.intermediate_values.items():
            report(self._study, trial, error, epoch)
        for key, value in pruner_attributes(copied).items():
            set_system_attribute(self._study, trial, key, value)

    def _copied_trial(self, member: int) -> FrozenTrial:
        return self._copy.get_trials(deepcopy=False)[self._trials[member].number]
