"""Training what a search found from fresh seeds, beside what it is compared with; and what an audit reads of it.

Letters: P members, M networks in a member, N samples, S stretches of epochs, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from s2e.data.samples import LabelledData
from s2e.engine.task import VALIDATION, Member, Progress, Task, Trained
from s2e.engine.two_stage import predictions, train_in_stages
from s2e.methods import Method
from s2e.seeds import derive


@dataclass(frozen=True)
class Contender:
    """A method with its schedule under a name of its own, trained from several fresh seeds and tested once.

    Of its restarts the one with the best validation accuracy stands for it.
    """

    name: str
    method: Method
    schedule: NDArray[np.float64]
    restarts: int = 1
    transition: NDArray[np.float64] | None = None

    def members(self, learning_rate: float, seed: int) -> list[Member]:
        """Return one member for each restart; the same seed gives every contender the same initial weights."""
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
class Final:
    """The restart that stands for a contender.

    Attributes:
        contender: what was trained.
        task: what it was trained on.
        trained: all restarts of all contenders.
        chosen: its place among them.
        judged: (restarts,) validation accuracy of the contender's own restarts.
        transition: (C, C) it was trained with, given or estimated, for methods that need one.
    """

    contender: Contender
    task: Task
    trained: Trained
    chosen: int
    judged: NDArray[np.float64]
    transition: NDArray[np.float64] | None

    @property
    def state(self) -> dict[str, Tensor]:
        """Weights and buffers of its networks, {name: (M, ...)}."""
        return {name: tensor[self.trained.rows(self.chosen)] for name, tensor in self.trained.state.items()}

    def records(self, unseen: LabelledData | None = None) -> dict[str, NDArray[Any]]:
        """Return what a label audit reads of it; see `records_of`."""
        return records_of(self.task, self.trained, [self.chosen], unseen)


def records_of(
    task: Task, trained: Trained, members: Sequence[int], unseen: LabelledData | None = None
) -> dict[str, NDArray[Any]]:
    """Return what a label audit reads of every training sample, and of others whose labels are as doubtful.

    The latter were never trained on: only what the networks believe speaks about them. The M networks are those of all
    these members, whose records are summed.
    """
    dynamics, train, chosen = trained.dynamics.arrays(), task.train, list(members)
    own = {name: array if name == "seen" else array[chosen].sum(axis=0) for name, array in dynamics.items()}
    parts = [train] if unseen is None else [train, unseen]
    more = sum(map(len, parts[1:]))
    for name, array in own.items():  # (N,) or (S, N)
        own[name] = np.concatenate([array, np.zeros((*array.shape[:-1], more), dtype=array.dtype)], axis=-1)
    networks = [row for member in chosen for row in range(sum(trained.networks))[trained.rows(member)]]
    state = {name: tensor[networks] for name, tensor in trained.state.items()}
    believed = [predictions(task, state, part.inputs)[..., : train.classes] for part in parts]
    return own | {
        "rows": np.concatenate([part.rows for part in parts]),
        "labels": np.concatenate([part.labels for part in parts]),
        "probabilities": np.concatenate(believed, axis=1).astype(np.float16),  # (M, N, C)
    }


def train_contenders(
    task: Task,
    contenders: Sequence[Contender],
    *,
    learning_rate: float,
    seed: int,
    on_epoch: Callable[[Progress], None] | None = None,
) -> list[Final]:
    """Train all restarts of all contenders together; the task must evaluate "valid", which chooses among restarts."""
    members = [member for contender in contenders for member in contender.members(learning_rate, seed)]
    trained, as_trained = train_in_stages(task, members, on_epoch=on_epoch)
    finals, first = [], 0
    for contender in contenders:
        judged = trained.curves.last(VALIDATION)[first : first + contender.restarts]
        chosen = first + int(judged.argmax())
        finals.append(Final(contender, task, trained, chosen, judged, as_trained[chosen].transition))
        first += contender.restarts
    return finals
