"""Methods that need two trainings: a quantity that the second needs is estimated from the networks of the first.

Forward correction needs a transition matrix. A member without one is trained twice from the same initial weights: with
plain cross-entropy, from which the matrix is estimated, and with the loss corrected by it. The matrix is estimated at
the first network's best validation epoch, if there is validation: after the last epoch the network has memorised the
wrong labels and predicts each of them with certainty, so the matrix would be the identity.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from s2e.engine.inference import predictions
from s2e.engine.task import VALIDATION, EpochFinished, Member, Task, Trained
from s2e.engine.training import train_population
from s2e.errors import DIVERGED_ADVICE
from s2e.methods import Need, Standard, default_percentile, estimate_transition

log = logging.getLogger(__name__)


class TwoStageTrained(NamedTuple):
    """Outcome of `train_in_two_stages`."""

    trained: Trained  # of the P members
    members: list[Member]  # the P members as trained: with the estimated transition matrix if they had none


def train_in_two_stages(
    task: Task,
    members: Sequence[Member],
    *,
    on_epoch: Callable[[EpochFinished], None] | None = None,
    stop: Callable[[EpochFinished], Collection[int]] | None = None,
    on_first_stage: Callable[[list[int], Trained], None] | None = None,
    on_estimates: Callable[[dict[int, NDArray[np.float64]]], None] | None = None,
) -> TwoStageTrained:
    """Train P members of any methods, in two populations if a transition matrix has to be estimated, else in one.

    The first population has all members that can be trained immediately, and a Standard member for each that needs a
    transition matrix. If one of `members` is that Standard member, with the same seed, labels and learning rate, it is
    trained only once.

    Args:
        task: settings shared by all members.
        members: settings of each member.
        on_epoch: called after every epoch of each population.
        stop: called after every epoch of each population; returns indices of members of that population to stop.
        on_first_stage: called before the second population, if there is one, with the indices of the members that are
            finished and their outcome; not called if there are none.
        on_estimates: called before the second population, if there is one, with the estimated matrices (C, C) by the
            index of the member.
    """
    done = _train_stages(task, members, on_epoch, stop, on_first_stage, on_estimates)
    if done.trained.curves.diverged.all():
        log.warning("all trainings diverged: %s", DIVERGED_ADVICE)
    return done


def _train_stages(
    task: Task,
    members: Sequence[Member],
    on_epoch: Callable[[EpochFinished], None] | None,
    stop: Callable[[EpochFinished], Collection[int]] | None,
    on_first_stage: Callable[[list[int], Trained], None] | None,
    on_estimates: Callable[[dict[int, NDArray[np.float64]]], None] | None,
) -> TwoStageTrained:
    waiting = [index for index, member in enumerate(members) if _needs_estimate(task, member)]
    if not waiting:
        return TwoStageTrained(train_population(task, members, on_epoch=on_epoch, stop=stop), list(members))
    ready = [index for index in range(len(members)) if index not in set(waiting)]
    first = [members[index] for index in ready]
    positions = {_training_key(task, member): position for position, member in reversed(list(enumerate(first)))}
    for index in waiting:
        plain = replace(members[index], method=Standard())
        if _training_key(task, plain) not in positions:
            positions[_training_key(task, plain)] = len(first)
            first.append(plain)
    keep_best_on = VALIDATION if VALIDATION in task.evaluate else None
    trained = train_population(replace(task, keep_best_on=keep_best_on), first, on_epoch=on_epoch, stop=stop)
    if on_first_stage is not None and ready:
        on_first_stage(ready, trained.take(range(len(ready))))
    sources = [positions[_training_key(task, replace(members[index], method=Standard()))] for index in waiting]
    matrices = estimate_transitions(task, trained, sources)
    if on_estimates is not None:
        on_estimates(dict(zip(waiting, matrices, strict=True)))
    second = [replace(members[index], transition=matrix) for index, matrix in zip(waiting, matrices, strict=True)]
    corrected = train_population(task, second, on_epoch=on_epoch, stop=stop)
    together = Trained.concatenate([trained.take(range(len(ready))), corrected] if ready else [corrected])
    final = dict(zip([*ready, *waiting], [*first[: len(ready)], *second], strict=True))
    order = np.argsort([*ready, *waiting]).tolist()
    return TwoStageTrained(together.take(order), [final[index] for index in range(len(members))])


def stages_needed(task: Task, members: Sequence[Member]) -> int:
    """Return the number of populations that `train_in_two_stages` trains, 1 or 2."""
    return 2 if any(_needs_estimate(task, member) for member in members) else 1


def estimate_transitions(task: Task, trained: Trained, members: Sequence[int]) -> NDArray[np.float64]:
    """Return the transition matrices of some trained members, (R, C, C), from their predictions on the inputs.

    R is the number of networks of these members.
    """
    classes, state = task.train.classes, trained.best_state or trained.state
    rows = [row for member in members for row in range(sum(trained.networks_per_member))[trained.rows(member)]]
    predicted = predictions(task, {name: tensor[rows] for name, tensor in state.items()})  # (R, N, C)
    return estimate_transition(predicted[..., :classes], percentile=default_percentile(classes))


def _needs_estimate(task: Task, member: Member) -> bool:
    return Need.TRANSITION in task.method_of(member).needs and member.transition is None


def _training_key(task: Task, member: Member) -> Hashable:
    """Return a key that equal trainings share; it leaves out the schedule, which Standard does not use."""
    labels = None if member.labels is None else member.labels.tobytes()
    held_out = None if member.held_out is None else member.held_out.tobytes()
    return task.method_of(member), member.seed, member.learning_rate, task.optimizer_of(member), labels, held_out
