"""The members that are being trained, with everything of theirs on the device; some may leave before the end.

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

from s2e.data.samples import LabelledData
from s2e.engine.batches import Feed, feed
from s2e.engine.curves import Curves
from s2e.engine.evaluation import Evaluation, EvaluationSet
from s2e.engine.optimizers import StackedAdam
from s2e.engine.recorder import Recorder
from s2e.engine.stacked_networks import BestEpochs, Population
from s2e.engine.step import CleanSamples, Lockstep, Part
from s2e.engine.task import Member, Task, Trained
from s2e.methods import Need
from s2e.seeds import derive

WORTH_COMPILING = 300_000
"""Steps times networks from which on a step is compiled: it takes some ten seconds the first time."""


@dataclass(frozen=True, eq=False)
class _Samples:
    """What the members are trained on, and judged by, on the device.

    Attributes:
        batches: of the inputs, shared by all.
        labels: (P, N) of every member.
        clean: samples with right labels, where a method trains with them.
        judged: data sets that accuracies are measured on, by name.
    """

    batches: Feed
    labels: Tensor
    clean: CleanSamples | None
    judged: Mapping[str, EvaluationSet]

    @classmethod
    def of(cls, task: Task, members: Sequence[Member]) -> _Samples:
        batches = feed(torch.from_numpy(task.train.inputs), task.batch_size, task.device, stream=task.stream)
        judged = {name: EvaluationSet.of(data, task.device) for name, data in task.evaluate.items()}
        return cls(batches, _member_labels(task.train, members).to(task.device), _clean_samples(task, members), judged)


@dataclass(frozen=True, eq=False)
class Crew:
    """Everything on the device for the members that are still trained.

    Attributes:
        task: what they share.
        members: in the order of their networks; those of one method stand together.
        rows: (p,) their places among the members the crew began with.
        population: their networks.
        optimizer: updates them.
        recorder: what to remember.
        samples: what they are trained on.
        lockstep: one step of all of them.
        evaluations: measure their accuracies, by the name of the data set.
        best: their best epochs, where the task asks for them.
    """

    task: Task
    members: Sequence[Member]
    rows: NDArray[np.int64]
    population: Population
    optimizer: StackedAdam
    recorder: Recorder
    samples: _Samples
    lockstep: Lockstep
    evaluations: Mapping[str, Evaluation]
    best: BestEpochs | None

    @classmethod
    def of(cls, task: Task, members: Sequence[Member]) -> Crew:
        """Put networks, optimizer, data and records on the device."""
        owners = [member for member in members for _ in range(task.method_of(member).networks)]
        population = Population(task.network, _seeds(task, members), task.device, vectorize=task.vectorize)
        optimizer = StackedAdam(
            list(population.parameters.values()),
            [member.learning_rate for member in owners],
            task.device,
        )
        samples = _Samples.of(task, members)
        right = None
        if task.train.clean_labels is not None:
            right = samples.labels == torch.from_numpy(task.train.clean_labels).to(task.device)  # (P, N)
        recorder = Recorder(len(members), len(task.train), task.epochs, right, task.device)
        lockstep = _lockstep(task, members, population, optimizer, recorder, samples, task.epochs)
        evaluations = _evaluations(task, population, samples)
        rows, best = np.arange(len(members)), _best(task, members, population)
        return cls(task, members, rows, population, optimizer, recorder, samples, lockstep, evaluations, best)

    @property
    def networks(self) -> tuple[int, ...]:
        """How many networks each member has."""
        return _networks(self.task, self.members)

    def serves(self, members: Sequence[Member]) -> bool:
        """Tell whether other members differ from these in seeds and schedules alone."""
        return len(members) == len(self.members) and all(
            self.task.method_of(new) == self.task.method_of(old)
            and new.learning_rate == old.learning_rate
            and new.labels is old.labels
            and new.transition is old.transition
            for new, old in zip(members, self.members, strict=True)
        )

    def restart(self, members: Sequence[Member]) -> Crew:
        """Begin anew with other members that this crew serves, in the same tensors: what was captured serves them."""
        self.population.restart(_seeds(self.task, members))
        self.optimizer.restart()
        self.recorder.restart()
        best = _best(self.task, members, self.population)
        return replace(self, members=members, rows=np.arange(len(members)), best=best)

    def part(self, places: NDArray[np.int64], epochs_left: int) -> Crew:
        """Go on with some of the members, as they are now, for so many epochs."""
        owners = np.repeat(np.arange(len(self.members)), self.networks)  # (G,)
        rows = np.flatnonzero(np.isin(owners, places)).tolist()
        members = [self.members[place] for place in places]
        population = self.population.take(rows)
        optimizer = self.optimizer.take(rows, list(population.parameters.values()))
        recorder = self.recorder.take(places.tolist())
        best = None if self.best is None else self.best.take(places, population)
        samples = replace(self.samples, labels=self.samples.labels[places.tolist()])
        lockstep = _lockstep(self.task, members, population, optimizer, recorder, samples, epochs_left)
        evaluations, own = _evaluations(self.task, population, samples), self.rows[places]
        return Crew(self.task, members, own, population, optimizer, recorder, samples, lockstep, evaluations, best)

    def outcome(self, curves: Curves, places: NDArray[np.int64]) -> tuple[NDArray[np.int64], Trained]:
        """Return the rows of some of the members, and what came of them."""
        best = None if self.best is None else self.best.state()
        dynamics, state = self.recorder.dynamics(), self.population.state()
        trained = Trained(curves.take(self.rows), dynamics, state, self.networks, best)
        return self.rows[places], trained if len(places) == len(self.members) else trained.take(places.tolist())


def worth_compiling(task: Task, networks: int, epochs: int) -> bool:
    """Tell whether the step of so many networks, taken for so many epochs, is to be compiled on a GPU."""
    if task.fuse is not None:
        return task.fuse
    return epochs * (len(task.train) // task.batch_size) * networks >= WORTH_COMPILING


def clean_batch_size(task: Task, clean: LabelledData) -> int:
    """V, as many clean samples as there are in a batch, or all of fewer."""
    return min(task.batch_size, len(clean))


def _seeds(task: Task, members: Sequence[Member]) -> list[int]:
    """Seeds of all networks, (G,)."""
    return [
        derive(member.seed, "network", which) for member in members for which in range(task.method_of(member).networks)
    ]


def _best(task: Task, members: Sequence[Member], population: Population) -> BestEpochs | None:
    return None if task.remember_best is None else BestEpochs(population, _networks(task, members))


def _evaluations(task: Task, population: Population, samples: _Samples) -> dict[str, Evaluation]:
    return {name: Evaluation(population, data, use_graph=task.graph) for name, data in samples.judged.items()}


def _networks(task: Task, members: Sequence[Member]) -> tuple[int, ...]:
    return tuple(task.method_of(member).networks for member in members)


def _lockstep(
    task: Task,
    members: Sequence[Member],
    population: Population,
    optimizer: StackedAdam,
    recorder: Recorder,
    samples: _Samples,
    epochs: int,
) -> Lockstep:
    """Make one step of everything, to be taken for so many epochs."""
    parts = _parts(task, members)
    clean = samples.clean if any(Need.CLEAN_SAMPLES in part.method.needs for part in parts) else None
    return Lockstep(
        population,
        parts,
        optimizer,
        samples.batches,
        samples.labels,
        recorder,
        clean=clean,
        use_graph=task.graph,
        fuse=worth_compiling(task, len(population), epochs),
    )


def _parts(task: Task, members: Sequence[Member]) -> list[Part]:
    """Part the members by method."""
    parts: list[Part] = []
    member = network = 0
    for method, group in groupby(members, key=task.method_of):
        own = list(group)
        given = [one.transition for one in own if one.transition is not None]
        transition = torch.from_numpy(np.stack(given)).float().to(task.device) if given else None  # (p, C, C)
        last_member, last_network = member + len(own), network + len(own) * method.networks
        parts.append(Part(method, slice(member, last_member), slice(network, last_network), transition))
        member, network = last_member, last_network
    return parts


def _clean_samples(task: Task, members: Sequence[Member]) -> CleanSamples | None:
    """Put clean samples on the device where a method trains with them."""
    if task.clean is None or not any(Need.CLEAN_SAMPLES in task.method_of(member).needs for member in members):
        return None
    inputs, size = torch.from_numpy(task.clean.inputs), clean_batch_size(task, task.clean)
    steps = len(task.train) // task.batch_size
    batches = feed(inputs, size, task.device, steps=steps, stream=task.stream)
    return CleanSamples(batches, torch.from_numpy(task.clean.labels).to(task.device))


def _member_labels(train: LabelledData, members: Sequence[Member]) -> Tensor:
    """Labels of every member, (P, N); one row shared by all where no member brings its own."""
    if all(member.labels is None for member in members):
        return torch.from_numpy(train.labels).expand(len(members), -1)
    return torch.from_numpy(np.stack([train.labels if m.labels is None else m.labels for m in members]))
