"""Training a population of members in lockstep: THE epoch loop. Everything that trains goes through it.

Letters: P members, M networks in a member, T epochs, B batch, N samples, C classes.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, CancelledError, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import groupby
from threading import Event, Lock

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from s2e.data import LabelledData
from s2e.feed import feed, scaled
from s2e.lockstep import CleanSamples, Epoch, Lockstep, Part
from s2e.memory import members_that_fit, network_bytes, small_on_a_cpu
from s2e.methods import Method, Need
from s2e.optimizer import StackedAdam, learning_plan
from s2e.population import BestEpochs, Population
from s2e.records import Curves, Recorder, bytes_per_member
from s2e.schedules import keep_counts
from s2e.seeds import derive
from s2e.tasks import Member, Progress, Task, Trained, check

log = logging.getLogger(__name__)

EVALUATED_ROWS = 1 << 16
"""Samples times networks in one evaluation batch."""

Tell = Callable[[int, tuple[int, ...], Curves], list[int]]
"""Is told an epoch, the places of the members trained and their curves, and names the rows to stop."""


def train_population(
    task: Task,
    members: Sequence[Member],
    *,
    on_epoch: Callable[[Progress], None] | None = None,
    stop: Callable[[Progress], Collection[int]] | None = None,
) -> Trained:
    """Train P members in lockstep; in chunks, one after the other, when they do not fit the memory together.

    A member trained alone equals the same member trained in a population: exactly on a CPU, to rounding on a GPU.

    Args:
        task: what they share.
        members: what they do not.
        on_epoch: told after every epoch.
        stop: asked after every epoch; the members it names leave the population, which goes on without their cost.
    """
    check(task, members)
    size = task.chunk or _planned_chunk(task, members)
    order = _by_method(task, members)
    parts: list[Trained] = []
    first = 0

    def tell(epoch: int, places: tuple[int, ...], curves: Curves) -> list[int]:
        progress = Progress(epoch + 1, task.epochs, places, len(order), curves)
        if on_epoch is not None:
            on_epoch(progress)
        leaving = set() if stop is None else set(stop(progress))
        return [row for row, place in enumerate(places) if place in leaving]

    while first < len(order):
        now = order[first : first + size]
        try:
            with _current(task.device), _random_state_restored(task), _fast_matrix_products():
                parts += _train_side_by_side(task, members, now, tell)
            first += len(now)
        except torch.OutOfMemoryError:
            if len(now) == 1:
                raise
            size = (len(now) + 1) // 2
            log.warning("out of memory with %d members at a time; going on with %d", len(now), size)
        if size < len(now):  # outside the handler, which keeps the failed attempt's tensors alive
            gc.collect()
            torch.cuda.empty_cache()
    trained = Trained.concatenate(parts)
    return trained if order == sorted(order) else trained.take(np.argsort(order).tolist())


def _by_method(task: Task, members: Sequence[Member]) -> list[int]:
    """Return the places of the members so that those of one method stand together, methods as they first appear."""
    methods = list(dict.fromkeys(task.method_of(member) for member in members))
    return sorted(range(len(members)), key=lambda place: methods.index(task.method_of(members[place])))


def _train_side_by_side(task: Task, members: Sequence[Member], places: Sequence[int], tell: Tell) -> list[Trained]:
    """Train the members at these places; small networks on a CPU in several threads, each with some of the members.

    An operation on a small network is too short to be shared by cores (beside another busy process, waiting for each
    other makes it many times slower), so each core takes members of its own. Whether it does depends on the network
    and the batch, never on the number of members: the rounding of an operation depends on the threads that share it,
    and a member must not depend on its company.
    """
    threads = torch.get_num_threads()
    if task.device.type != "cpu" or threads == 1 or not small_on_a_cpu(task.network, _probe(task)):
        return [_train_chunk(task, members, places, tell)]
    shares = [share.tolist() for share in np.array_split(places, min(threads, len(places)))]
    taking_turns, ended = Lock(), Event()

    def tell_in_turn(epoch: int, places: tuple[int, ...], curves: Curves) -> list[int]:
        with taking_turns:
            if ended.is_set():
                raise CancelledError
            return tell(epoch, places, curves)

    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(len(shares)) as pool:
            training = [pool.submit(_train_chunk, task, members, share, tell_in_turn) for share in shares]
            try:
                wait(training, return_when=FIRST_EXCEPTION)
            finally:  # one has failed or all are done, or the user interrupts: nobody needs to go on
                ended.set()
        problems = [problem for each in training if (problem := each.exception()) is not None]
        for problem in sorted(problems, key=lambda problem: isinstance(problem, CancelledError)):
            raise problem
        return [each.result() for each in training]
    finally:
        torch.set_num_threads(threads)


def _train_chunk(task: Task, members: Sequence[Member], places: Sequence[int], tell: Tell) -> Trained:
    """Train the members at these places, which fit the memory together; `tell` names those to stop."""
    curves = Curves.empty(len(places), task.epochs, task.evaluate)
    evaluated = {name: _Evaluated.of(data, task.device) for name, data in task.evaluate.items()}
    crew = _Crew.of(task, [members[place] for place in places])
    stopped: list[tuple[NDArray[np.int64], Trained]] = []
    for epoch in range(task.epochs):
        now = _epoch(task, epoch, np.stack([member.schedule for member in crew.members]))
        crew.lockstep.begin_epoch(now)
        for _ in range(now.steps):
            crew.lockstep.step()
        crew.recorder.end_epoch(epoch, curves, crew.rows)
        for name, data in evaluated.items():
            accuracies = data.accuracy(crew.population).cpu().split(crew.networks)
            curves.accuracy[name][crew.rows, epoch] = [float(own.mean()) for own in accuracies]
        if crew.best is not None and task.remember_best is not None:
            crew.best.update(curves.accuracy[task.remember_best][crew.rows, epoch])
        leaving = np.isin(crew.rows, tell(epoch, tuple(places), curves))
        if leaving.any() and epoch + 1 < task.epochs:
            stopped.append(crew.outcome(curves, np.flatnonzero(leaving)))
            if leaving.all():
                break
            crew = crew.part(np.flatnonzero(~leaving))
    else:
        stopped.append(crew.outcome(curves, np.arange(len(crew.members))))
    order = np.argsort(np.concatenate([rows for rows, _ in stopped]))
    trained = Trained.concatenate([part for _, part in stopped])
    return trained if len(stopped) == 1 else trained.take(order.tolist())


@dataclass(eq=False)
class _Crew:
    """Everything on the device for the members that are still trained.

    Attributes:
        task: what they share.
        members: in the order of their networks; those of one method stand together.
        rows: (p,) their places in the curves of the chunk.
        population: their networks.
        optimizer: updates them.
        recorder: what to remember.
        lockstep: one step of all of them.
        best: their best epochs, where the task asks for them.
    """

    task: Task
    members: Sequence[Member]
    rows: NDArray[np.int64]
    population: Population
    optimizer: StackedAdam
    recorder: Recorder
    lockstep: Lockstep
    best: BestEpochs | None

    @classmethod
    def of(cls, task: Task, members: Sequence[Member]) -> _Crew:
        """Put networks, optimizer, data and records on the device."""
        owners = [member for member in members for _ in range(task.method_of(member).networks)]
        seeds = [
            derive(member.seed, "network", which)
            for member in members
            for which in range(task.method_of(member).networks)
        ]
        population = Population(task.network, seeds, task.device, vectorize=task.vectorize)
        optimizer = StackedAdam(
            list(population.parameters.values()),
            [member.learning_rate for member in owners],
            task.device,
            [task.method_of(member).may_select_nothing for member in owners],
        )
        right = None
        if task.train.clean_labels is not None:
            labels = _member_labels(task.train, members).to(task.device)  # (P, N)
            right = labels == torch.from_numpy(task.train.clean_labels).to(task.device)
        recorder = Recorder(len(members), len(task.train), task.epochs, right, task.device)
        best = BestEpochs(population, _networks(task, members)) if task.remember_best is not None else None
        rows = np.arange(len(members))
        lockstep = _lockstep(task, members, population, optimizer, recorder)
        return cls(task, members, rows, population, optimizer, recorder, lockstep, best)

    @property
    def networks(self) -> tuple[int, ...]:
        """How many networks each member has."""
        return _networks(self.task, self.members)

    def part(self, places: NDArray[np.int64]) -> _Crew:
        """Go on with some of the members, as they are now."""
        owners = np.repeat(np.arange(len(self.members)), self.networks)  # (G,)
        rows = np.flatnonzero(np.isin(owners, places)).tolist()
        members = [self.members[place] for place in places]
        population = self.population.take(rows)
        optimizer = self.optimizer.take(rows, list(population.parameters.values()))
        recorder = self.recorder.take(places.tolist())
        best = None if self.best is None else self.best.take(places, population)
        lockstep = _lockstep(self.task, members, population, optimizer, recorder)
        return _Crew(self.task, members, self.rows[places], population, optimizer, recorder, lockstep, best)

    def outcome(self, curves: Curves, places: NDArray[np.int64]) -> tuple[NDArray[np.int64], Trained]:
        """Return the rows of some of the members, and what came of them."""
        best = None if self.best is None else self.best.state()
        dynamics, state = self.recorder.dynamics(), self.population.state()
        trained = Trained(curves.take(self.rows), dynamics, state, self.networks, best)
        return self.rows[places], trained if len(places) == len(self.members) else trained.take(places.tolist())


def _networks(task: Task, members: Sequence[Member]) -> tuple[int, ...]:
    return tuple(task.method_of(member).networks for member in members)


def engine_step(task: Task, members: Sequence[Member]) -> Callable[[], None]:
    """Return the bare step of a population, for measuring it: each call trains every member on the next batch.

    Unlike `train_population` it does not give torch's random state back.
    """
    check(task, members)
    members = [members[place] for place in _by_method(task, members)]
    lockstep = _Crew.of(task, members).lockstep
    first = _epoch(task, 0, np.stack([member.schedule for member in members]))
    taken = 0

    def step() -> None:
        nonlocal taken
        if taken % first.steps == 0:
            lockstep.begin_epoch(first)
        with _fast_matrix_products():
            lockstep.step()
        taken += 1

    return step


def _lockstep(
    task: Task, members: Sequence[Member], population: Population, optimizer: StackedAdam, recorder: Recorder
) -> Lockstep:
    """Put the data on the device and make one step of everything."""
    labels = _member_labels(task.train, members).to(task.device)  # (P, N)
    steps = len(task.train) // task.batch_size
    batches = feed(torch.from_numpy(task.train.inputs), task.batch_size, task.device, stream=task.stream)
    parts = _parts(task, members)
    clean = _clean_samples(task, parts, steps)
    return Lockstep(population, parts, optimizer, batches, labels, recorder, clean=clean, use_graph=task.graph)


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


def _clean_samples(task: Task, parts: Sequence[Part], steps: int) -> CleanSamples | None:
    """Put clean samples on the device where a method trains with them."""
    if task.clean is None or not any(Need.CLEAN_SAMPLES in part.method.needs for part in parts):
        return None
    inputs = torch.from_numpy(task.clean.inputs)
    size = _clean_batch_size(task, task.clean)
    batches = feed(inputs, size, task.device, steps=steps, stream=task.stream)
    return CleanSamples(batches, torch.from_numpy(task.clean.labels).to(task.device))


def _epoch(task: Task, number: int, rates: NDArray[np.float64]) -> Epoch:
    """What holds during an epoch, for members with these keep rates (P, T)."""
    steps = len(task.train) // task.batch_size
    now = rates[:, number]
    return Epoch(
        number,
        _batch_order(task, number, steps),
        steps,
        torch.from_numpy(keep_counts(now, task.batch_size)),
        torch.from_numpy(now),
        *learning_plan(number, task.epochs),
        None if task.clean is None else _clean_order(task, task.clean, number, steps),
    )


def _member_labels(train: LabelledData, members: Sequence[Member]) -> Tensor:
    """Labels of every member, (P, N); one row shared by all where no member brings its own."""
    if all(member.labels is None for member in members):
        return torch.from_numpy(train.labels).expand(len(members), -1)
    return torch.from_numpy(np.stack([train.labels if m.labels is None else m.labels for m in members]))


def _batch_order(task: Task, epoch: int, steps: int) -> Tensor:
    """Shuffle the samples for one epoch, (S * B,), the same on every device."""
    generator = torch.Generator().manual_seed(derive(task.seed, "order", epoch))
    return torch.randperm(len(task.train), generator=generator)[: steps * task.batch_size]


def _clean_batch_size(task: Task, clean: LabelledData) -> int:
    return min(task.batch_size, len(clean))


def _clean_order(task: Task, clean: LabelledData, epoch: int, steps: int) -> Tensor:
    """Shuffle the clean samples for one epoch, as often as its steps need them, (S * V,), the same on every device."""
    generator = torch.Generator().manual_seed(derive(task.seed, "clean order", epoch))
    needed = steps * _clean_batch_size(task, clean)
    shuffled = [torch.randperm(len(clean), generator=generator) for _ in range(-(-needed // len(clean)))]
    return torch.cat(shuffled)[:needed]


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


def _planned_chunk(task: Task, members: Sequence[Member]) -> int:
    """Return how many members to train at once, by what the networks of the largest and its records need."""
    passes = max(_passes_in_memory(task.method_of(member)) for member in members)
    needed = passes * network_bytes(task.network, _probe(task)) + bytes_per_member(len(task.train))
    size = members_that_fit(needed, task.device, len(members))
    if size < len(members):
        log.warning("%d members do not fit the memory together; training %d at a time", len(members), size)
    return size


def _probe(task: Task) -> Tensor:
    """Return a batch to try a network on."""
    return scaled(torch.from_numpy(task.train.inputs[: task.batch_size]))


def _passes_in_memory(method: Method) -> int:
    """Return how many forward passes of a network are held at once: one for each, and two for clean samples."""
    return method.networks * (3 if Need.CLEAN_SAMPLES in method.needs else 1)
