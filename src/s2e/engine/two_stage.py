"""Methods that take two trainings: the first one's networks give what the second one needs.

Forward correction needs a transition matrix. A member that brings none is trained twice, from the same weights: with
plain cross-entropy, which gives the matrix, and with the loss corrected by it. The matrix is read off the first network
at its best validation epoch, where there is validation: in the end it has memorised the wrong labels, predicts each
of them with certainty, and the matrix would be the identity.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from s2e.engine.inference import predictions
from s2e.engine.task import VALIDATION, EpochFinished, Member, Task, Trained
from s2e.engine.training import train_population
from s2e.methods import Need, Standard, default_percentile, estimate_transition


class Staged(NamedTuple):
    """Outcome of training in stages: what came of the members, and the members as they were trained in the end."""

    trained: Trained
    members: list[Member]


def train_in_stages(
    task: Task,
    members: Sequence[Member],
    *,
    on_epoch: Callable[[EpochFinished], None] | None = None,
    on_first: Callable[[list[int], Trained], None] | None = None,
) -> Staged:
    """Train members of any methods, in two populations where a method needs two trainings.

    The first population holds everyone who can be trained at once, and a Standard training for each member that needs
    a transition matrix; a Standard member that is there anyway, with the same seed and labels, serves for both.
    Before the second begins, `on_first` is told the places of the members that are finished, and what came of them.
    """
    waiting = [place for place, member in enumerate(members) if _waits(task, member)]
    if not waiting:
        return Staged(train_population(task, members, on_epoch=on_epoch), list(members))
    ready = [place for place in range(len(members)) if place not in set(waiting)]
    first = [members[place] for place in ready]
    served_by = {_training(task, member): place for place, member in reversed(list(enumerate(first)))}
    for place in waiting:
        plain = replace(members[place], method=Standard())
        if _training(task, plain) not in served_by:
            served_by[_training(task, plain)] = len(first)
            first.append(plain)
    remembered = VALIDATION if VALIDATION in task.evaluate else None
    trained = train_population(replace(task, remember_best=remembered), first, on_epoch=on_epoch)
    if on_first is not None and ready:
        on_first(ready, trained.take(range(len(ready))))
    sources = [served_by[_training(task, replace(members[place], method=Standard()))] for place in waiting]
    matrices = estimated_transitions(task, trained, sources)
    second = [replace(members[place], transition=matrix) for place, matrix in zip(waiting, matrices, strict=True)]
    corrected = train_population(task, second, on_epoch=on_epoch)
    together = Trained.concatenate([trained.take(range(len(ready))), corrected] if ready else [corrected])
    final = dict(zip([*ready, *waiting], [*first[: len(ready)], *second], strict=True))
    order = np.argsort([*ready, *waiting]).tolist()
    return Staged(together.take(order), [final[place] for place in range(len(members))])


def populations_needed(task: Task, members: Sequence[Member]) -> int:
    """Return how many populations `train_in_stages` trains one after the other."""
    return 2 if any(_waits(task, member) for member in members) else 1


def estimated_transitions(task: Task, trained: Trained, members: Sequence[int]) -> NDArray[np.float64]:
    """Estimate the transition matrices of some trained members, (R, C, C), from their predictions on the inputs."""
    classes, state = task.train.classes, trained.best_state or trained.state
    rows = [row for member in members for row in range(sum(trained.networks))[trained.rows(member)]]
    predicted = predictions(task, {name: tensor[rows] for name, tensor in state.items()})  # (R, N, C)
    return estimate_transition(predicted[..., :classes], percentile=default_percentile(classes))


def _waits(task: Task, member: Member) -> bool:
    return Need.TRANSITION in task.method_of(member).needs and member.transition is None


def _training(task: Task, member: Member) -> Hashable:
    """Return what tells one training from another, apart from the schedule, which Standard does not look at."""
    labels = None if member.labels is None else member.labels.tobytes()
    return task.method_of(member), member.seed, member.learning_rate, labels
