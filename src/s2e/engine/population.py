"""Members in training, with their networks, data and records on the device. Members may be stopped early.

Letters: P members, M networks in a member, G networks in all, B batch, N samples, C classes, V clean samples in a
batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from s2e.data import LabelledData
from s2e.engine.augmentation import BatchAugmentation
from s2e.engine.batches import BatchSource, batch_source
from s2e.engine.curves import Curves
from s2e.engine.evaluation import Evaluation, EvaluationSet
from s2e.engine.optimizers import StackedOptimizer, StoredOptimizer, build_together
from s2e.engine.recorder import Recorder
from s2e.engine.stacked_networks import BestEpochs, StackedNetworks
from s2e.engine.step import CleanSamples, MethodGroup, TrainingStep
from s2e.engine.task import Member, Task, Trained
from s2e.methods import Need
from s2e.seeds import derive

MIN_STEPS_TO_COMPILE = 300_000
"""Steps times networks from which a step is compiled by default; compiling takes about ten seconds."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Data on the device.

    Attributes:
        batches: source of training batches, shared by all members.
        augmentation: changes these batches, if the task has augmentations.
        labels: (P, N) training labels of each member.
        eligible: (P, N) bool, False for samples that a member holds out; None if there are none.
        clean: correctly labelled samples, if a method trains with them.
        evaluation_sets: data sets on which accuracy is measured, by name.
    """

    batches: BatchSource
    augmentation: BatchAugmentation | None
    labels: Tensor
    eligible: Tensor | None
    clean: CleanSamples | None
    evaluation_sets: Mapping[str, EvaluationSet]

    @classmethod
    def on_device(cls, task: Task, members: Sequence[Member]) -> Samples:
        """Copy the data of a task to its device."""
        batches = batch_source(torch.from_numpy(task.train.inputs), task.batch_size, task.device, stream=task.stream)
        sets = {name: EvaluationSet.on_device(data, task.device) for name, data in task.evaluate.items()}
        labels = _member_labels(task.train, members).to(task.device)
        eligible = _eligible(members)
        eligible = None if eligible is None else eligible.to(task.device)
        return cls(batches, _batch_augmentation(task), labels, eligible, _clean_samples(task, members), sets)


@dataclass(frozen=True, eq=False)
class Population:
    """Members in training, with their networks, data and records on the device.

    Attributes:
        task: settings shared by all members.
        members: P members in the order of their networks; members of one method are adjacent.
        rows: (P,) rows of the members in the curves.
        networks: G networks of the members.
        optimizer: updates the networks.
        recorder: records curves and dynamics.
        samples: data on the device.
        step: one training step of all members.
        evaluations: measure accuracies, by the name of the data set.
        best: the networks at the members' best epochs, if the task has `keep_best_on`.
    """

    task: Task
    members: Sequence[Member]
    rows: NDArray[np.int64]
    networks: StackedNetworks
    optimizer: StackedOptimizer
    recorder: Recorder
    samples: Samples
    step: TrainingStep
    evaluations: Mapping[str, Evaluation]
    best: BestEpochs | None

    @classmethod
    def create(cls, task: Task, members: Sequence[Member]) -> Population:
        """Create networks, optimizer, data and records on the device."""
        owners = [member for member in members for _ in range(task.method_of(member).networks)]  # (G,)
        networks = StackedNetworks(
            task.network, _seeds(task, members), task.device, vectorize=task.vectorize, precision=task.precision
        )
        optimizer = build_together(
            [task.optimizer_of(owner) for owner in owners],
            list(networks.parameters.values()),
            [owner.learning_rate for owner in owners],
            task.device,
        )
        samples = Samples.on_device(task, members)
        correct = None
        if task.train.clean_labels is not None:
            correct = samples.labels == torch.from_numpy(task.train.clean_labels).to(task.device)  # (P, N)
        recorder = Recorder(
            len(members),
            len(task.train),
            task.epochs,
            correct,
            task.device,
            collect=task.device.type == "cpu",
            eligible=samples.eligible,
        )
        step = _training_step(task, members, networks, optimizer, recorder, samples, task.epochs)
        evaluations = _evaluations(task, networks, samples)
        rows, best = np.arange(len(members)), _best_epochs(task, members, networks)
        return cls(task, members, rows, networks, optimizer, recorder, samples, step, evaluations, best)

    @property
    def networks_per_member(self) -> tuple[int, ...]:
        """Number of networks of each member, (P,)."""
        return _networks_per_member(self.task, self.members)

    def can_restart_with(self, members: Sequence[Member]) -> bool:
        """Return whether other members differ from these in seeds and schedules only."""
        return len(members) == len(self.members) and all(
            self.task.method_of(new) == self.task.method_of(old)
            and new.learning_rate == old.learning_rate
            and self.task.optimizer_of(new) == self.task.optimizer_of(old)
            and new.labels is old.labels
            and new.transition is old.transition
            and new.held_out is old.held_out
            for new, old in zip(members, self.members, strict=True)
        )

    def restart_with(self, members: Sequence[Member]) -> Population:
        """Return a new population of other members in the same tensors, so that captured graphs stay valid."""
        self.networks.reinitialize(_seeds(self.task, members))
        self.optimizer.reset()
        self.recorder.reset()
        best = _best_epochs(self.task, members, self.networks)
        return replace(self, members=members, rows=np.arange(len(members)), best=best)

    def take(self, indices: NDArray[np.int64], epochs: int) -> Population:
        """Return a population that continues some of the members for a number of epochs."""
        owners = np.repeat(np.arange(len(self.members)), self.networks_per_member)  # (G,) member of each network
        network_rows = np.flatnonzero(np.isin(owners, indices)).tolist()
        members = [self.members[index] for index in indices]
        networks = self.networks.take(network_rows)
        optimizer = self.optimizer.take(network_rows, list(networks.parameters.values()))
        recorder = self.recorder.take(indices.tolist())
        best = None if self.best is None else self.best.take(indices, networks)
        eligible = None if self.samples.eligible is None else self.samples.eligible[indices.tolist()]
        samples = replace(self.samples, labels=self.samples.labels[indices.tolist()], eligible=eligible)
        step = _training_step(self.task, members, networks, optimizer, recorder, samples, epochs)
        evaluations, rows = _evaluations(self.task, networks, samples), self.rows[indices]
        return Population(self.task, members, rows, networks, optimizer, recorder, samples, step, evaluations, best)

    def at_rows(self, rows: NDArray[np.int64]) -> Population:
        """Return the same population at other rows of the curves, (P,)."""
        return replace(self, rows=rows)

    @property
    def resumable(self) -> bool:
        """Whether the state is complete; an optimizer of the user's may not return its own."""
        return isinstance(self.optimizer, StoredOptimizer)

    def state(self) -> dict[str, Tensor]:
        """Return all that the further training of the members depends on, by name, on the CPU."""
        parts = {"networks": self.networks.training_state(), "recorder": self.recorder.state()}
        if isinstance(self.optimizer, StoredOptimizer):
            parts["optimizer"] = self.optimizer.state()
        if self.best is not None:
            parts["best"] = self.best.state()
            parts["best scores"] = {"": torch.from_numpy(self.best.scores)}
        return {f"{part}/{name}": tensor for part, tensors in parts.items() for name, tensor in tensors.items()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continue the training of the members from what `state` returned, in place."""
        self.networks.load_training_state(part_of(state, "networks"))
        self.recorder.load_state(part_of(state, "recorder"))
        if isinstance(self.optimizer, StoredOptimizer):
            self.optimizer.load_state(part_of(state, "optimizer"))
        if self.best is not None:
            self.best.load_state(part_of(state, "best"), state["best scores/"].numpy())

    def outcome(self, curves: Curves, indices: NDArray[np.int64]) -> tuple[NDArray[np.int64], Trained]:
        """Return the rows of some of the members and the outcome of their training so far."""
        best = None if self.best is None else self.best.state()
        dynamics, state = self.recorder.dynamics(), self.networks.state()
        trained = Trained(curves.take(self.rows), dynamics, state, self.networks_per_member, best)
        return self.rows[indices], trained if len(indices) == len(self.members) else trained.take(indices.tolist())


def part_of(state: Mapping[str, Tensor], part: str) -> dict[str, Tensor]:
    """Return the tensors whose names begin with `part`/, without it."""
    prefix = f"{part}/"
    return {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}


def should_compile(task: Task, networks: int, epochs: int) -> bool:
    """Return whether to compile the step of G networks that are trained for a number of epochs on a GPU."""
    if task.compile is not None:
        return task.compile
    return epochs * (len(task.train) // task.batch_size) * networks >= MIN_STEPS_TO_COMPILE


def clean_batch_size(task: Task, clean: LabelledData) -> int:
    """Return V: the batch size, or the number of clean samples if that is smaller."""
    return min(task.batch_size, len(clean))


def _seeds(task: Task, members: Sequence[Member]) -> list[int]:
    """Return the seeds of all networks, (G,)."""
    return [
        derive(member.seed, "network", which) for member in members for which in range(task.method_of(member).networks)
    ]


def _best_epochs(task: Task, members: Sequence[Member], networks: StackedNetworks) -> BestEpochs | None:
    return None if task.keep_best_on is None else BestEpochs(networks, _networks_per_member(task, members))


def _evaluations(task: Task, networks: StackedNetworks, samples: Samples) -> dict[str, Evaluation]:
    sets = samples.evaluation_sets
    return {name: Evaluation(networks, data, task.score, use_graph=task.graph) for name, data in sets.items()}


def _networks_per_member(task: Task, members: Sequence[Member]) -> tuple[int, ...]:
    return tuple(task.method_of(member).networks for member in members)


def _training_step(
    task: Task,
    members: Sequence[Member],
    networks: StackedNetworks,
    optimizer: StackedOptimizer,
    recorder: Recorder,
    samples: Samples,
    epochs: int,
) -> TrainingStep:
    """Return the step of all members, which will be trained for a number of epochs."""
    groups = _method_groups(task, members, samples.eligible)
    clean = samples.clean if any(Need.CLEAN_SAMPLES in group.method.needs for group in groups) else None
    return TrainingStep(
        networks,
        groups,
        optimizer,
        samples.batches,
        samples.labels,
        recorder,
        clean=clean,
        augmentation=samples.augmentation,
        use_graph=task.graph,
        compile_step=should_compile(task, len(networks), epochs),
    )


def _method_groups(task: Task, members: Sequence[Member], eligible: Tensor | None) -> list[MethodGroup]:
    """Group adjacent members by method; `eligible` is that of all members, (P, N)."""
    groups: list[MethodGroup] = []
    member = network = 0
    for method, adjacent in groupby(members, key=task.method_of):
        own = list(adjacent)
        matrices = [one.transition for one in own if one.transition is not None]
        transition = torch.from_numpy(np.stack(matrices)).float().to(task.device) if matrices else None  # (p, C, C)
        next_member, next_network = member + len(own), network + len(own) * method.networks
        holding_out = any(one.held_out is not None for one in own)
        mask = eligible[member:next_member] if eligible is not None and holding_out else None  # (p, N)
        groups.append(MethodGroup(method, slice(member, next_member), slice(network, next_network), transition, mask))
        member, network = next_member, next_network
    return groups


def _batch_augmentation(task: Task) -> BatchAugmentation | None:
    if not task.augmentation:
        return None
    steps = len(task.train) // task.batch_size
    return BatchAugmentation(task.augmentation, task.train.sample_shape, task.batch_size, steps, task.device)


def _clean_samples(task: Task, members: Sequence[Member]) -> CleanSamples | None:
    """Copy the clean samples to the device if a method trains with them."""
    if task.clean is None or not any(Need.CLEAN_SAMPLES in task.method_of(member).needs for member in members):
        return None
    inputs, size = torch.from_numpy(task.clean.inputs), clean_batch_size(task, task.clean)
    steps = len(task.train) // task.batch_size
    batches = batch_source(inputs, size, task.device, steps=steps, stream=task.stream)
    return CleanSamples(batches, torch.from_numpy(task.clean.labels).to(task.device))


def _member_labels(train: LabelledData, members: Sequence[Member]) -> Tensor:
    """Return the labels of every member, (P, N); an expanded single row if all members use those of the data."""
    if all(member.labels is None for member in members):
        return torch.from_numpy(train.labels).expand(len(members), -1)
    return torch.from_numpy(np.stack([train.labels if m.labels is None else m.labels for m in members]))


def _eligible(members: Sequence[Member]) -> Tensor | None:
    """Return which samples each member may be trained on, (P, N); None if no member holds any out."""
    masks = [member.held_out for member in members]
    samples = next((len(mask) for mask in masks if mask is not None), None)
    if samples is None:
        return None
    return torch.from_numpy(np.stack([np.ones(samples, dtype=np.bool_) if mask is None else ~mask for mask in masks]))
