"""Final trainings: schedules trained from several fresh seeds, of which validation selects one.

Letters: P members, M networks in a member, N samples, S stretches of epochs, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from s2e.engine.task import VALIDATION, EpochFinished, Member, Task, Trained
from s2e.engine.two_stage import train_in_stages
from s2e.methods import Method
from s2e.seeds import derive


@dataclass(frozen=True)
class FinalTraining:
    """A method with its schedule under a name of its own, trained from several fresh seeds and tested once.

    Of its restarts the one with the best validation accuracy stands for it.
    """

    name: str
    method: Method
    schedule: NDArray[np.float64]
    restarts: int = 1
    transition: NDArray[np.float64] | None = None

    def members(self, learning_rate: float, seed: int) -> list[Member]:
        """Return one member for each restart; the same seed gives every training the same initial weights."""
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
    """The restart that stands for a training.

    Attributes:
        training: what was trained.
        task: what it was trained on.
        trained: all restarts of all trainings.
        chosen: its place among them.
        judged: (restarts,) validation accuracy of the training's own restarts.
        transition: (C, C) it was trained with, given or estimated, for methods that need one.
    """

    training: FinalTraining
    task: Task
    trained: Trained
    chosen: int
    judged: NDArray[np.float64]
    transition: NDArray[np.float64] | None

    @property
    def state(self) -> dict[str, Tensor]:
        """Weights and buffers of its networks, {name: (M, ...)}."""
        return {name: tensor[self.trained.rows(self.chosen)] for name, tensor in self.trained.state.items()}


def train_restarts(
    task: Task,
    trainings: Sequence[FinalTraining],
    *,
    learning_rate: float,
    seed: int,
    on_epoch: Callable[[EpochFinished], None] | None = None,
) -> list[SelectedRestart]:
    """Train all restarts of all trainings together; the task must evaluate "valid", which chooses among restarts."""
    members = [member for training in trainings for member in training.members(learning_rate, seed)]
    trained, as_trained = train_in_stages(task, members, on_epoch=on_epoch)
    finals, first = [], 0
    for training in trainings:
        judged = trained.curves.last(VALIDATION)[first : first + training.restarts]
        chosen = first + int(judged.argmax())
        finals.append(SelectedRestart(training, task, trained, chosen, judged, as_trained[chosen].transition))
        first += training.restarts
    return finals
