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
    """

    name: str
    method: Method
    schedule: NDArray[np.float64]
    restarts: int = 1
    transition: NDArray[np.float64] | None = None

    def members(self, learning_rate: float, seed: int) -> list[Member]:
        """Return one member for each restart; trainings with the same seed have the same initial weights."""
        return [
            Member(
                self.schedule,
                derive(seed, "restart", restart),
                learning_rate,
                method=self.method,
                transition=self.transition,
            )
            for restart in range(self.restarts)
        ]


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
    """

    training: FinalTraining
    task: Task
    trained: Trained
    index: int
    restarts: range
    validation_accuracies: NDArray[np.float64]
    transition: NDArray[np.float64] | None

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
        selected.append(SelectedRestart(training, task, trained, index, rows, accuracies, as_trained[index].transition))
        first += training.restarts
    return selected
