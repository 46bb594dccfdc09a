"""What is trained and what comes of it: members, the task they share, and the trained population.

Letters: P members, M networks in a member, G networks in all, T epochs, B batch, N samples, C classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from s2e.data.samples import LabelledData, check_trainable
from s2e.engine.batches import scaled
from s2e.engine.curves import Curves, Dynamics
from s2e.errors import InvalidInput
from s2e.methods import Method, Need
from s2e.networks.factories import Factory, check_network
from s2e.schedules.fixed import check_epochs, check_schedule

VALIDATION = "valid"
"""Name under which a task evaluates the validation part; the only thing a search looks at."""


@dataclass(frozen=True)
class Member:
    """One independent training run inside a population.

    Attributes:
        schedule: (T,) keep rates in [0, 1].
        seed: decides the initial weights of its networks.
        learning_rate: its own, before the common plan lowers it.
        labels: (N,) its own label set over the shared inputs; None for the labels of the training data.
        method: its own way to weigh samples; None for the task's.
        transition: (C, C) row-stochastic, from true to given labels, for methods that need one.
    """

    schedule: NDArray[np.float64]
    seed: int
    learning_rate: float = 1e-3
    labels: NDArray[np.int64] | None = None
    method: Method | None = None
    transition: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class Task:
    """What all members of a population share.

    Attributes:
        train: the inputs, and the labels of members that bring none of their own.
        network: factory of the architecture.
        method: how samples are weighted, for members that bring no method of their own.
        evaluate: data sets whose accuracy is recorded after every epoch; nothing here acts on it.
        epochs: T.
        batch_size: B; the rest of an epoch that does not fill a batch is left out, another one every epoch.
        seed: decides the order of the batches.
        device: where to train.
        vectorize: see `Population`.
        stream: see `feed`.
        chunk: members trained at a time; None for as many as the memory holds.
        graph: replay steps as a CUDA graph where the device can.
        fuse: compile a step before it is replayed; None does where the training is long enough to pay for it.
        clean: samples with right labels, for methods that train with some.
        remember_best: name of a data set in `evaluate`; the weights of each member's best epoch there are kept too.
    """

    train: LabelledData
    network: Factory
    method: Method
    evaluate: Mapping[str, LabelledData]
    epochs: int = 200
    batch_size: int = 128
    seed: int = 0
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    vectorize: bool | None = None
    stream: bool | None = None
    chunk: int | None = None
    graph: bool = True
    fuse: bool | None = None
    clean: LabelledData | None = None
    remember_best: str | None = None

    def method_of(self, member: Member) -> Method:
        """Return what weighs the samples of a member."""
        return member.method or self.method


@dataclass(frozen=True)
class EpochFinished:
    """Where a training stands after an epoch.

    Attributes:
        epoch: epochs done.
        epochs: T.
        indices: of the members that are trained at a time, among all of them.
        population_size: P.
        curves: of the members at `indices`, in that order, so far.
    """

    epoch: int
    epochs: int
    indices: tuple[int, ...]
    population_size: int
    curves: Curves


@dataclass(frozen=True)
class Trained:
    """Outcome of training P members.

    Attributes:
        curves: what happened by epoch.
        dynamics: what happened to every sample.
        state: weights and buffers of all G networks, {name: (G, ...)}, on the CPU.
        networks: how many of them belong to each of the P members; they stand next to each other.
        best_state: the same as `state` at each member's best epoch, where the task asked for it.
    """

    curves: Curves
    dynamics: Dynamics
    state: dict[str, Tensor]
    networks: tuple[int, ...]
    best_state: dict[str, Tensor] | None = None

    def rows(self, member: int) -> slice:
        """Return the places of a member's networks in `state`."""
        first = sum(self.networks[:member])
        return slice(first, first + self.networks[member])

    def modules(self, network: Factory, member: int = 0) -> tuple[nn.Module, ...]:
        """Return the trained networks of a member as modules on the CPU, in evaluation mode."""
        loaded = []
        for row in range(sum(self.networks))[self.rows(member)]:
            with torch.random.fork_rng(devices=[]):
                module = network()
            # Not strict: tied weights are listed once here, and buffers outside the state dict are listed too.
            module.load_state_dict({name: tensor[row] for name, tensor in self.state.items()}, strict=False)
            loaded.append(module.eval())
        return tuple(loaded)

    @classmethod
    def concatenate(cls, parts: Sequence[Trained]) -> Trained:
        """Join chunks along the members."""
        best = [part.best_state for part in parts if part.best_state is not None]
        return cls(
            Curves.concatenate([part.curves for part in parts]),
            Dynamics.concatenate([part.dynamics for part in parts]),
            _joined([part.state for part in parts]),
            tuple(count for part in parts for count in part.networks),
            _joined(best) if len(best) == len(parts) else None,
        )

    def take(self, members: Sequence[int]) -> Trained:
        """Return some of the members, in this order."""
        index = np.array(members)
        rows = [row for member in members for row in range(sum(self.networks))[self.rows(member)]]
        return Trained(
            self.curves.take(index),
            self.dynamics.take(index),
            {name: tensor[rows] for name, tensor in self.state.items()},
            tuple(self.networks[member] for member in members),
            None if self.best_state is None else {name: tensor[rows] for name, tensor in self.best_state.items()},
        )


def _joined(states: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.cat([state[name] for state in states]) for name in states[0]}


def check(task: Task, members: Sequence[Member]) -> None:
    """Refuse what no training can be made of."""
    check_trainable(task.train, task.batch_size)
    check_epochs(task.epochs)
    check_network(task.network, scaled(torch.from_numpy(task.train.inputs[:2])), task.train.classes)
    if not members:
        raise InvalidInput("`members` must hold at least one member, but got none.")
    for member in members:
        check_schedule(member.schedule, task.epochs)
        if not 0 < member.learning_rate < float("inf"):
            raise InvalidInput(f"`learning_rate` must be positive and finite, but got {member.learning_rate}.")
        if member.labels is not None and member.labels.shape != task.train.labels.shape:
            raise InvalidInput(
                f"`labels` of a member must have one entry for each of the {len(task.train)} inputs, "
                f"but got {member.labels.shape}."
            )
        _check_needs(task, member)


def _check_needs(task: Task, member: Member) -> None:
    """Refuse a member whose method needs what is not there."""
    method, classes = task.method_of(member), task.train.classes
    if Need.CLEAN_SAMPLES in method.needs and task.clean is None:
        raise InvalidInput(f"`method` {method.name} needs {Need.CLEAN_SAMPLES.value}, but got none.")
    if task.clean is not None and task.clean.sample_shape != task.train.sample_shape:
        raise InvalidInput(
            f"`clean` must hold samples of shape {task.train.sample_shape} as the training data do, "
            f"but got {task.clean.sample_shape}."
        )
    if Need.TRANSITION in method.needs and (member.transition is None or member.transition.shape != (classes, classes)):
        found = "none" if member.transition is None else f"the shape {member.transition.shape}"
        raise InvalidInput(f"`transition` must be ({classes}, {classes}) for method {method.name}, but got {found}.")
