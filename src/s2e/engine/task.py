"""Descriptions of a training and its outcome: members, the task they share, progress, and the trained population.

Letters: P members, M networks in a member, G networks in all, T epochs, B batch, N samples, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from s2e.data import LabelledData, check_trainable
from s2e.engine.augmentation import Augmentation, check_augmentation
from s2e.engine.batches import scaled
from s2e.engine.checkpoints import Checkpoints
from s2e.engine.curves import Curves, Dynamics
from s2e.engine.learning_rates import LearningRatePlan, Linear, check_plan
from s2e.engine.optimizers import Adam, Optimizer, check_optimizers
from s2e.engine.precision import check_precision
from s2e.engine.scores import ACCURACY, score_of
from s2e.errors import InvalidInput
from s2e.methods import Method, Need, may_hold_out
from s2e.networks import Factory, check_network, isolated_random_state
from s2e.schedules import check_epochs, check_schedule

VALIDATION = "valid"
"""Name of the validation set in `Task.evaluate`, by which schedules and restarts are selected."""


@dataclass(frozen=True)
class Member:
    """One independent training run inside a population.

    Attributes:
        schedule: (T,) keep rates in [0, 1].
        seed: determines the initial weights of its networks.
        learning_rate: learning rate; multiplied by the factor of the plan that all members share.
        labels: (N,) labels of the shared inputs; None for those of the training data.
        method: how samples are weighted; None for the method of the task.
        transition: (C, C) row-stochastic, from true to given labels, for methods that need one.
        optimizer: None for the optimizer of the task; of the same type as those of the other members.
        held_out: (N,) bool, samples that it is not trained on. They have no weight and do not count in a batch: of the
            others the share R(t) is kept. Their losses are recorded, as of samples never trained on.
    """

    schedule: NDArray[np.float64]
    seed: int
    learning_rate: float = 1e-3
    labels: NDArray[np.int64] | None = None
    method: Method | None = None
    transition: NDArray[np.float64] | None = None
    optimizer: Optimizer | None = None
    held_out: NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class Task:
    """Settings shared by all members of a population.

    Attributes:
        train: training data; its labels are used for members whose `labels` is None.
        network: factory of the architecture.
        method: how samples are weighted, for members whose `method` is None.
        evaluate: data sets on which the score is recorded after every epoch, by name; training does not depend on it.
        epochs: T.
        batch_size: B; samples that do not fill a batch are left out, different ones in every epoch.
        seed: determines the order of the batches and the draws of augmentations.
        device: device of the training.
        vectorize: see `StackedNetworks`.
        stream: see `batch_source`.
        chunk: maximum number of members trained together; None to decide by the free memory.
        memory: bytes that the members may use together; None for those that are free.
        graph: replay steps as CUDA graphs on a CUDA device.
        compile: compile the step before it is captured; None to decide by the length of the training.
        clean: correctly labelled samples, for methods that train with them.
        keep_best_on: name of a data set in `evaluate`; the weights of each member's best epoch on it are kept as well.
        optimizer: how weights are updated, for members whose `optimizer` is None.
        plan: the factor on all learning rates by epoch.
        augmentation: random changes of the training images, in this order; the same for all members.
        precision: number formats of products: auto, float32 or bfloat16; see `precision`.
        checkpoints: where and how often the state of the training is written; None for never.
        executor: trains the populations, such as on several devices; None for this process on `device`.
        score: what is recorded on the data sets as accuracy: a name in `SCORES`.
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
    memory: int | None = None
    graph: bool = True
    compile: bool | None = None
    clean: LabelledData | None = None
    keep_best_on: str | None = None
    optimizer: Optimizer = field(default_factory=Adam)
    plan: LearningRatePlan = field(default_factory=Linear)
    augmentation: tuple[Augmentation, ...] = ()
    precision: str = "auto"
    checkpoints: Checkpoints | None = None
    executor: Executor | None = None
    score: str = ACCURACY

    def method_of(self, member: Member) -> Method:
        """Return the method of a member."""
        return member.method or self.method

    def optimizer_of(self, member: Member) -> Optimizer:
        """Return the optimizer of a member."""
        return member.optimizer or self.optimizer


@dataclass(frozen=True)
class EpochFinished:
    """Progress of a training after an epoch of one chunk of its members.

    Attributes:
        epoch: number of epochs finished, from 1.
        epochs: T.
        indices: indices of the chunk's p members among the P members.
        population_size: P.
        curves: curves of these p members, (p, T) each, in the order of `indices`; NaN after `epoch`.
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
        curves: (P, T) each, losses and accuracies by epoch.
        dynamics: (P, N) each, counts and losses by sample.
        state: weights and buffers of all G networks after training, {name: (G, ...)}, on the CPU.
        networks_per_member: P counts that sum to G; the networks of a member are adjacent in `state`.
        best_state: like `state`, at the best epoch of each member; None unless the task has `keep_best_on`.
    """

    curves: Curves
    dynamics: Dynamics
    state: dict[str, Tensor]
    networks_per_member: tuple[int, ...]
    best_state: dict[str, Tensor] | None = None

    def rows(self, member: int) -> slice:
        """Return the indices of a member's networks in `state`."""
        first = sum(self.networks_per_member[:member])
        return slice(first, first + self.networks_per_member[member])

    def modules(self, network: Factory, member: int = 0) -> tuple[nn.Module, ...]:
        """Return the M trained networks of a member as modules on the CPU, in evaluation mode."""
        return modules_of(network, {name: tensor[self.rows(member)] for name, tensor in self.state.items()})

    @classmethod
    def concatenate(cls, parts: Sequence[Trained]) -> Trained:
        """Concatenate outcomes along the members."""
        best = [part.best_state for part in parts if part.best_state is not None]
        return cls(
            Curves.concatenate([part.curves for part in parts]),
            Dynamics.concatenate([part.dynamics for part in parts]),
            _concatenated([part.state for part in parts]),
            tuple(count for part in parts for count in part.networks_per_member),
            _concatenated(best) if len(best) == len(parts) else None,
        )

    def take(self, members: Sequence[int]) -> Trained:
        """Return the outcome of some members, in the given order."""
        index = np.array(members)
        rows = [row for member in members for row in range(sum(self.networks_per_member))[self.rows(member)]]
        return Trained(
            self.curves.take(index),
            self.dynamics.take(index),
            {name: tensor[rows] for name, tensor in self.state.items()},
            tuple(self.networks_per_member[member] for member in members),
            None if self.best_state is None else {name: tensor[rows] for name, tensor in self.best_state.items()},
        )


class Executor(Protocol):
    """Trains populations on other devices or machines than `Task.device`.

    The outcome equals that of `Trainer`: exactly on CPUs, up to rounding on GPUs.
    """

    def train(
        self,
        task: Task,
        members: Sequence[Member],
        *,
        on_epoch: Callable[[EpochFinished], None] | None = None,
        stop: Callable[[EpochFinished], Collection[int]] | None = None,
    ) -> Trained:
        """Train P members; see `train_population`. Callbacks are called by one thread at a time."""


def modules_of(network: Factory, state: Mapping[str, Tensor]) -> tuple[nn.Module, ...]:
    """Return R networks with weights and buffers {name: (R, ...)} as modules on the CPU, in evaluation mode."""
    loaded = []
    for row in range(len(next(iter(state.values())))):
        with isolated_random_state():
            module = network()
        # Not strict: `state` has tied weights only once, and buffers that are not in a state dict.
        module.load_state_dict({name: tensor[row] for name, tensor in state.items()}, strict=False)
        loaded.append(module.eval())
    return tuple(loaded)


def _concatenated(states: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.cat([state[name] for state in states]) for name in states[0]}


def check_task(task: Task, members: Sequence[Member]) -> None:
    """Raise `InvalidInput` if the members cannot be trained on the task."""
    check_trainable(task.train, task.batch_size)
    check_epochs(task.epochs)
    check_plan(task.plan, task.epochs)
    check_precision(task.precision)
    score_of(task.score)
    check_augmentation(task.augmentation, task.train.sample_shape)
    check_network(task.network, scaled(torch.from_numpy(task.train.inputs[:2])), task.train.classes)
    if not members:
        raise InvalidInput("`members` must hold at least one member, but got none.")
    check_optimizers([task.optimizer_of(member) for member in members])
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
        _check_held_out(task, member)


def _check_needs(task: Task, member: Member) -> None:
    """Raise `InvalidInput` if the needs of a member's method are not met."""
    method, classes = task.method_of(member), task.train.classes
    if Need.CLEAN_SAMPLES in method.needs and task.clean is None:
        raise InvalidInput(f"`method` {method.name} needs {Need.CLEAN_SAMPLES.value}, but got none.")
    if task.clean is not None and task.clean.sample_shape != task.train.sample_shape:
        raise InvalidInput(
            f"`clean` must hold samples of shape {task.train.sample_shape} like the training data, "
            f"but got {task.clean.sample_shape}."
        )
    if Need.TRANSITION in method.needs and (member.transition is None or member.transition.shape != (classes, classes)):
        found = "none" if member.transition is None else f"the shape {member.transition.shape}"
        raise InvalidInput(f"`transition` must be ({classes}, {classes}) for method {method.name}, but got {found}.")


def _check_held_out(task: Task, member: Member) -> None:
    """Raise `InvalidInput` if a member cannot hold out the samples that it should."""
    held_out, method, samples = member.held_out, task.method_of(member), len(task.train)
    if held_out is None:
        return
    if not may_hold_out(method):
        raise InvalidInput(f"`held_out` must be None for method {method.name}, which trains on all samples.")
    if held_out.dtype != np.bool_ or held_out.shape != (samples,) or held_out.all():
        raise InvalidInput(
            f"`held_out` must be ({samples},) booleans, not all of them True, but got {held_out.dtype} of shape "
            f"{held_out.shape}."
        )
