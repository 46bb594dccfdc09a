"""Final trainings: schedules trained from several new seeds, of which validation selects one.

Letters: M networks in a member, T epochs, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from s2e.engine.task import VALIDATION, EpochFinished, Member, Task, Trained
from s2e.engine.two_stage import train_in_two_stages
from s2e.methods import Method
from s2e.seeds import derive


@dataclass(frozen=True)
class FinalTraining:
    """A method with its schedule, trained from several new seeds.

    Attributes:
        name: name of the training in results.
        method: how samples are weighted.
        schedule: (T,) keep rates.
        restarts: number of seeds.
        transition: (C, C), for methods that need one; None to estimate it.
        folds: (N,) the fold, from 0, of each training sample. For each fold one more member is trained, which holds it
            out; it is never selected. None for no such members.
        labels: (N,) labels to train on; None for the given ones.
    """

    name: str
    method: Method
    schedule: NDArray[np.float64]
    restarts: int = 1
    transition: NDArray[np.float64] | None = None
    folds: NDArray[np.int64] | None = None
    labels: NDArray[np.int64] | None = None

    def members(self, learning_rate: float, seed: int) -> list[Member]:
        """Return one member for each restart, then one for each fold.

        Trainings with the same seed have the same initial weights.
        """
        restarts = [
            Member(
                self.schedule,
                derive(seed, "restart", restart),
                learning_rate,
                self.labels,
                self.method,
                self.transition,
            )
            for restart in range(self.restarts)
        ]
        of_folds = [
            Member(
                self.schedule, derive(seed, "fold", fold), learning_rate, self.labels, self.method, held_out=held_out
            )
            for fold, held_out in enumerate(self.held_out)
        ]
        return restarts + of_folds

    @property
    def held_out(self) -> list[NDArray[np.bool_]]:
        """The samples of each fold, (N,) each; empty without folds."""
        return [] if self.folds is None else [self.folds == fold for fold in range(int(self.folds.max()) + 1)]


@dataclass(frozen=True, eq=False)
class SelectedRestart:
    """The restart of a final training with the best validation accuracy.

    Attributes:
        training: the final training.
        task: task on which it was trained.
        trained: outcome of all restarts of all final trainings.
        index: index of the selected restart in `trained`.
        restarts: indices of all restarts of this training in `trained`.
        validation_accuracies: (restarts,) validation accuracy of each restart of this training.
        transition: (C, C) given or estimated transition matrix, for methods that need one.
        fold_members: indices in `trained` of the members that held a fold out, by fold.
    """

    training: FinalTraining
    task: Task
    trained: Trained
    index: int
    restarts: range
    validation_accuracies: NDArray[np.float64]
    transition: NDArray[np.float64] | None
    fold_members: tuple[int, ...] = ()

    @property
    def held_out(self) -> dict[int, NDArray[np.bool_]]:
        """The training samples, (N,) bool, that each of these members held out, by its index."""
        return dict(zip(self.fold_members, self.training.held_out, strict=True))

    @property
    def states(self) -> list[dict[str, Tensor]]:
        """Weights and buffers of all restarts of this training, {name: (M, ...)} each, the selected one first."""
        finished = ~self.trained.curves.diverged
        others = [row for row in self.restarts if row != self.index and finished[row]]
        rows = [self.trained.rows(row) for row in (self.index, *others)]
        return [{name: tensor[own] for name, tensor in self.trained.state.items()} for own in rows]

    @property
    def state(self) -> dict[str, Tensor]:
        """Weights and buffers of its networks, {name: (M, ...)}."""
        return {name: tensor[self.trained.rows(self.index)] for name, tensor in self.trained.state.items()}


def train_restarts(
    task: Task,
    trainings: Sequence[FinalTraining],
    *,
    learning_rate: float,
    seed: int,
    on_epoch: Callable[[EpochFinished], None] | None = None,
) -> list[SelectedRestart]:
    """Train all restarts of all final trainings together, and select one restart of each.

    Args:
        task: settings shared by all; `evaluate` must contain the validation set, by which restarts are selected.
        trainings: the final trainings.
        learning_rate: initial learning rate of all members.
        seed: determines the seeds of the restarts.
        on_epoch: called after every epoch.
    """
    members = [member for training in trainings for member in training.members(learning_rate, seed)]
    trained, as_trained = train_in_two_stages(task, members, on_epoch=on_epoch)
    selected, first = [], 0
    for training in trainings:
        accuracies = trained.curves.last(VALIDATION)[first : first + training.restarts]
        index = first + int(accuracies.argmax())
        rows = range(first, first + training.restarts)
        end = rows.stop + len(training.held_out)
        of_folds = tuple(range(rows.stop, end))
        transition = as_trained[index].transition
        selected.append(SelectedRestart(training, task, trained, index, rows, accuracies, transition, of_folds))
        first = end
    return selected
