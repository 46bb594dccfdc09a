"""Training a population of members in lockstep: THE epoch loop. Everything that trains goes through it.

Letters: P members, M networks in a member, T epochs, B batch, N samples, C classes.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from s2e.data import LabelledData, check_trainable
from s2e.errors import InvalidInput
from s2e.feed import feed, scaled
from s2e.lockstep import Lockstep
from s2e.memory import members_that_fit, network_bytes
from s2e.methods import Method
from s2e.networks import Factory, check_network
from s2e.optimizer import StackedAdam, learning_plan
from s2e.population import Population
from s2e.records import Curves, Dynamics, Recorder, bytes_per_member
from s2e.schedules import check_epochs, check_schedule, keep_counts
from s2e.seeds import derive

log = logging.getLogger(__name__)

EVALUATED_ROWS = 1 << 16
"""Samples times networks in one evaluation batch."""


@dataclass(frozen=True)
class Member:
    """One independent training run inside a population.

    Attributes:
        schedule: (T,) keep rates in [0, 1].
        seed: decides the initial weights of its networks.
        learning_rate: its own, before the common plan lowers it.
        labels: (N,) its own label set over the shared inputs; None for the labels of the training data.
    """

    schedule: NDArray[np.float64]
    seed: int
    learning_rate: float = 1e-3
    labels: NDArray[np.int64] | None = None


@dataclass(frozen=True)
class Task:
    """What all members of a population share.

    Attributes:
        train: the inputs, and the labels of members that bring none of their own.
        network: factory of the architecture.
        method: how samples are weighted.
        evaluate: data sets whose accuracy is recorded after every epoch; nothing here acts on it.
        epochs: T.
        batch_size: B; the rest of an epoch that does not fill a batch is left out, another one every epoch.
        seed: decides the order of the batches.
        device: where to train.
        vectorize: see `Population`.
        stream: see `feed`.
        chunk: members trained at a time; None for as many as the memory holds.
        graph: replay steps as a CUDA graph where the device can.
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


@dataclass(frozen=True)
class Progress:
    """Where a training stands after an epoch: epochs done of T, for members `first` to `last` (exclusive) of P."""

    epoch: int
    epochs: int
    first: int
    last: int
    members: int
    curves: Curves


@dataclass(frozen=True)
class Trained:
    """Outcome of training P members.

    Attributes:
        curves: what happened by epoch.
        dynamics: what happened to every sample.
        state: weights and buffers, {name: (P, M, ...)}, on the CPU.
    """

    curves: Curves
    dynamics: Dynamics
    state: dict[str, Tensor]

    def modules(self, network: Factory, member: int = 0) -> tuple[nn.Module, ...]:
        """Return the trained networks of a member as modules on the CPU, in evaluation mode."""
        networks = next(iter(self.state.values())).shape[1]
        loaded = []
        for which in range(networks):
            with torch.random.fork_rng(devices=[]):
                module = network()
            # Not strict: tied weights are listed once here, and buffers outside the state dict are listed too.
            module.load_state_dict({name: tensor[member, which] for name, tensor in self.state.items()}, strict=False)
            loaded.append(module.eval())
        return tuple(loaded)

    @classmethod
    def concatenate(cls, parts: Sequence[Trained]) -> Trained:
        """Join chunks along the members."""
        return cls(
            Curves.concatenate([part.curves for part in parts]),
            Dynamics.concatenate([part.dynamics for part in parts]),
            {name: torch.cat([part.state[name] for part in parts]) for name in parts[0].state},
        )


def train_population(
    task: Task, members: Sequence[Member], *, on_epoch: Callable[[Progress], None] | None = None
) -> Trained:
    """Train P members in lockstep; in chunks, one after the other, when they do not fit the memory together.

    A member trained alone equals the same member trained in a population: exactly on a CPU, to rounding on a GPU.
    """
    check(task, members)
    size = task.chunk or _planned_chunk(task, len(members))
    parts: list[Trained] = []
    first = 0
    while first < len(members):
        now = members[first : first + size]

        def tell(epoch: int, curves: Curves, first: int = first, last: int = first + len(now)) -> None:
            if on_epoch is not None:
                on_epoch(Progress(epoch + 1, task.epochs, first, last, len(members), curves))

        try:
            parts.append(_train_chunk(task, now, tell))
            first += len(now)
        except torch.OutOfMemoryError:
            if len(now) == 1:
                raise
            size = (len(now) + 1) // 2
            log.warning("out of memory with %d members at a time; going on with %d", len(now), size)
        if size < len(now):  # outside the handler, which keeps the failed attempt's tensors alive
            gc.collect()
            torch.cuda.empty_cache()
    return Trained.concatenate(parts)


def _train_chunk(task: Task, members: Sequence[Member], tell: Callable[[int, Curves], None]) -> Trained:
    """Train members that fit the memory together."""
    with _current(task.device), _random_state_restored(task), _fast_matrix_products():
        keep = torch.from_numpy(
            keep_counts(np.stack([member.schedule for member in members]), task.batch_size)
        )  # (P, T)
        steps = len(task.train) // task.batch_size
        curves = Curves.empty(len(members), task.epochs, task.evaluate)
        population, lockstep, recorder = _build(task, members)
        evaluated = {name: _Evaluated.of(data, task.device) for name, data in task.evaluate.items()}
        for epoch in range(task.epochs):
            order = _batch_order(task, epoch, steps)
            lockstep.begin_epoch(epoch, order, steps, keep[:, epoch], *learning_plan(epoch, task.epochs))
            for _ in range(steps):
                lockstep.step()
            recorder.end_epoch(epoch, curves)
            for name, data in evaluated.items():
                accuracy = data.accuracy(population).view(len(members), -1).mean(dim=1)  # (P,)
                curves.accuracy[name][:, epoch] = accuracy.cpu().numpy()
            tell(epoch, curves)
        state = {
            name: tensor.unflatten(0, (len(members), task.method.networks))
            for name, tensor in population.state().items()
        }
        return Trained(curves, recorder.dynamics(), state)


def engine_step(task: Task, members: Sequence[Member]) -> Callable[[], None]:
    """Return the bare step of a population, for measuring it: each call trains every member on the next batch.

    Unlike `train_population` it does not give torch's random state back.
    """
    check(task, members)
    _, lockstep, _ = _build(task, members)
    keep = torch.from_numpy(keep_counts(np.stack([member.schedule for member in members]), task.batch_size))  # (P, T)
    steps = len(task.train) // task.batch_size
    taken = 0

    def step() -> None:
        nonlocal taken
        if taken % steps == 0:
            lockstep.begin_epoch(0, _batch_order(task, 0, steps), steps, keep[:, 0], *learning_plan(0, task.epochs))
        with _fast_matrix_products():
            lockstep.step()
        taken += 1

    return step


def _build(task: Task, members: Sequence[Member]) -> tuple[Population, Lockstep, Recorder]:
    """Put networks, optimizer, data and records on the device."""
    networks = task.method.networks
    seeds = [derive(member.seed, "network", which) for member in members for which in range(networks)]
    population = Population(task.network, seeds, task.device, vectorize=task.vectorize)
    rates = [member.learning_rate for member in members for _ in range(networks)]
    optimizer = StackedAdam(list(population.parameters.values()), rates, task.device)
    labels = _member_labels(task.train, members).to(task.device)  # (P, N)
    clean = None
    if task.train.clean_labels is not None:
        clean = labels == torch.from_numpy(task.train.clean_labels).to(task.device)
    recorder = Recorder(len(members), len(task.train), task.epochs, clean, task.device)
    batches = feed(torch.from_numpy(task.train.inputs), task.batch_size, task.device, stream=task.stream)
    lockstep = Lockstep(population, task.method, optimizer, batches, labels, recorder, use_graph=task.graph)
    return population, lockstep, recorder


def _member_labels(train: LabelledData, members: Sequence[Member]) -> Tensor:
    """Labels of every member, (P, N); one row shared by all where no member brings its own."""
    if all(member.labels is None for member in members):
        return torch.from_numpy(train.labels).expand(len(members), -1)
    return torch.from_numpy(np.stack([train.labels if m.labels is None else m.labels for m in members]))


def _batch_order(task: Task, epoch: int, steps: int) -> Tensor:
    """Shuffle the samples for one epoch, (S * B,), the same on every device."""
    generator = torch.Generator().manual_seed(derive(task.seed, "order", epoch))
    return torch.randperm(len(task.train), generator=generator)[: steps * task.batch_size]


@dataclass(frozen=True)
class _Evaluated:
    """A data set on the device, with true labels where they are known to be judged by."""

    inputs: Tensor
    labels: Tensor

    @classmethod
    def of(cls, data: LabelledData, device: torch.device) -> _Evaluated:
        return cls(torch.from_numpy(data.inputs).to(device), torch.from_numpy(data.labels).to(device))

    @torch.no_grad()
    def accuracy(self, population: Population) -> Tensor:
        """Share of right predictions of every network, (G,)."""
        size = max(1, EVALUATED_ROWS // len(population))
        right = torch.zeros(len(population), dtype=torch.float64, device=self.labels.device)
        for inputs, labels in zip(self.inputs.split(size), self.labels.split(size), strict=True):
            predicted = population.forward(scaled(inputs), training=False).argmax(dim=-1)  # (G, B)
            right += (predicted == labels).sum(dim=-1)
        return right / len(self.labels)


def _current(device: torch.device) -> AbstractContextManager[None]:
    """Make a CUDA device the current one, for the streams and graphs of a training on it."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


@contextmanager
def _random_state_restored(task: Task) -> Iterator[None]:
    """Seed what modules draw from (dropout), and leave the caller's random state as it was."""
    devices = [task.device] if task.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(derive(task.seed, "modules"))
        yield


@contextmanager
def _fast_matrix_products() -> Iterator[None]:
    """Let float32 matrix products use the tensor cores' tf32; a CPU ignores it."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _planned_chunk(task: Task, members: int) -> int:
    """Return how many members to train at once, by what a network and its records need."""
    probe = scaled(torch.from_numpy(task.train.inputs[: task.batch_size]))
    per_network = network_bytes(task.network, probe)
    size = members_that_fit(
        task.method.networks * per_network + bytes_per_member(len(task.train)), task.device, members
    )
    if size < members:
        log.warning("%d members do not fit the memory together; training %d at a time", members, size)
    return size


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
