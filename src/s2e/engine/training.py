"""The epoch loop: a population of members trained in lockstep.

Letters: P members, M networks in a member, T epochs, B batch, N samples, S steps of an epoch, V clean samples in a
batch.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from s2e.data import LabelledData
from s2e.engine.curves import Curves
from s2e.engine.memory import chunk_size, probe_batch
from s2e.engine.population import Population, clean_batch_size
from s2e.engine.step import Epoch
from s2e.engine.task import EpochFinished, Member, Task, Trained, check_task
from s2e.engine.threads import EpochCallback, too_small_to_split, train_in_threads
from s2e.schedules import keep_counts
from s2e.seeds import derive

log = logging.getLogger(__name__)


def train_population(
    task: Task,
    members: Sequence[Member],
    *,
    on_epoch: Callable[[EpochFinished], None] | None = None,
    stop: Callable[[EpochFinished], Collection[int]] | None = None,
) -> Trained:
    """Train P members in lockstep, or in consecutive chunks if they do not fit the memory together.

    A member trained alone equals the same member trained in a population: exactly on a CPU, up to rounding on a GPU.

    Args:
        task: settings shared by all members.
        members: settings of each member.
        on_epoch: called after every epoch of every chunk.
        stop: called after every epoch; returns indices of members to stop. The others continue in a smaller population.
    """
    return Trainer(task).train(members, on_epoch=on_epoch, stop=stop)


class Trainer:
    """Trains populations of one task, one after the other; see `train_population`.

    Graphs captured for one population are reused for the next if their members differ only in seeds and schedules, as
    the generations of a search and the chunks of a large population do.

    Args:
        task: settings shared by all members of all populations.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self._idle: Population | None = None  # from an earlier training, with its captured step
        self._last_sizes = (0, 0)  # members, and members in a chunk

    def train(
        self,
        members: Sequence[Member],
        *,
        on_epoch: Callable[[EpochFinished], None] | None = None,
        stop: Callable[[EpochFinished], Collection[int]] | None = None,
    ) -> Trained:
        """Train P members."""
        task = self.task
        check_task(task, members)
        size = self._chunk_size(members)
        order = _grouped_by_method(task, members)
        chunks: list[Trained] = []
        first = 0

        def callback(epoch: int, indices: tuple[int, ...], curves: Curves) -> list[int]:
            finished = EpochFinished(epoch + 1, task.epochs, indices, len(order), curves)
            if on_epoch is not None:
                on_epoch(finished)
            stopped = set() if stop is None else set(stop(finished))
            return [row for row, index in enumerate(indices) if index in stopped]

        while first < len(order):
            chunk = order[first : first + size]
            try:
                with _current_device(task.device), _isolated_random_state(task), _tf32_matrix_products():
                    chunks += self._train_indices(members, chunk, callback)
                first += len(chunk)
            except torch.OutOfMemoryError:
                if len(chunk) == 1:
                    raise
                size = (len(chunk) + 1) // 2
                log.warning("out of memory with %d members at a time; continuing with %d", len(chunk), size)
            if size < len(chunk):  # outside the handler, which keeps the tensors of the failed attempt alive
                gc.collect()
                torch.cuda.empty_cache()
        self._last_sizes = (len(members), size)
        trained = Trained.concatenate(chunks)
        return trained if order == sorted(order) else trained.take(np.argsort(order).tolist())

    def _train_indices(
        self, members: Sequence[Member], indices: Sequence[int], callback: EpochCallback
    ) -> list[Trained]:
        """Train the members at some indices, small networks on a CPU in several threads.

        The choice depends on network and batch, never on the number of members: rounding depends on the threads that
        share an operation, and a member must not depend on the other members.
        """

        def train(share: Sequence[int], callback: EpochCallback) -> Trained:
            return self._train_lockstep(members, share, callback)

        if self.task.device.type == "cpu" and torch.get_num_threads() > 1 and self._small_network:
            return train_in_threads(train, indices, callback)
        return [train(indices, callback)]

    def _train_lockstep(self, members: Sequence[Member], indices: Sequence[int], callback: EpochCallback) -> Trained:
        """Train the members at some indices, which fit the memory together; `callback` returns the rows to stop."""
        task = self.task
        curves = Curves.empty(len(indices), task.epochs, task.evaluate)
        population = self._population([members[index] for index in indices])
        outcomes: list[tuple[NDArray[np.int64], Trained]] = []
        order = batch_order(task, 0)
        for number in range(task.epochs):
            epoch = plan_epoch(task, number, population, order)
            population.step.begin_epoch(epoch)
            population.step.run(epoch.steps)
            accuracies = {name: evaluation.accuracy() for name, evaluation in population.evaluations.items()}
            order = batch_order(task, number + 1)  # for the next epoch, while the device is busy with this one
            population.recorder.end_epoch(number, curves, population.rows)
            for name, accuracy in accuracies.items():
                by_member = accuracy.cpu().split(population.networks_per_member)
                curves.accuracy[name][population.rows, number] = [float(own.mean()) for own in by_member]
            if population.best is not None and task.keep_best_on is not None:
                population.best.update(curves.accuracy[task.keep_best_on][population.rows, number])
            stopped = np.isin(population.rows, callback(number, tuple(indices), curves))
            if stopped.any() and number + 1 < task.epochs:
                outcomes.append(population.outcome(curves, np.flatnonzero(stopped)))
                if stopped.all():
                    break
                population = population.take(np.flatnonzero(~stopped), task.epochs - number - 1)
        else:
            outcomes.append(population.outcome(curves, np.arange(len(population.members))))
        self._idle = population if population.step.captured else None
        order_of_rows = np.argsort(np.concatenate([rows for rows, _ in outcomes]))
        trained = Trained.concatenate([outcome for _, outcome in outcomes])
        return trained if len(outcomes) == 1 else trained.take(order_of_rows.tolist())

    def _population(self, members: Sequence[Member]) -> Population:
        """Put members on the device, in the tensors of the idle population if possible."""
        idle, self._idle = self._idle, None
        if idle is not None and idle.can_restart_with(members):
            return idle.restart_with(members)
        if idle is not None:
            del idle
            gc.collect()
        return Population.create(self.task, members)

    def _chunk_size(self, members: Sequence[Member]) -> int:
        """Return how many members to train together; releases the idle population if it cannot be reused."""
        count, size = self._last_sizes
        if self._idle is not None and count == len(members):
            return size
        self._idle = None
        if self.task.device.type == "cuda":
            gc.collect()  # graphs of an earlier training hold memory until then
        return self.task.chunk or chunk_size(self.task, members)

    @cached_property
    def _small_network(self) -> bool:
        return too_small_to_split(self.task.network, probe_batch(self.task))


def engine_steps(task: Task, members: Sequence[Member]) -> Callable[[int], None]:
    """Return a function that trains a population on a number of batches, for measuring the time of steps.

    Unlike `train_population`, it changes torch's random state.
    """
    check_task(task, members)
    members = [members[index] for index in _grouped_by_method(task, members)]
    population = Population.create(task, members)
    epoch = plan_epoch(task, 0, population, batch_order(task, 0))
    left = 0

    def run(steps: int) -> None:
        nonlocal left
        while steps > 0:
            if left == 0:
                population.step.begin_epoch(epoch)
                left = epoch.steps
            now = min(steps, left)
            with _tf32_matrix_products():
                population.step.run(now)
            steps, left = steps - now, left - now

    return run


def plan_epoch(task: Task, number: int, population: Population, order: Tensor) -> Epoch:
    """Return the settings of an epoch, given the order of its samples (S * B,)."""
    steps = len(order) // task.batch_size
    clean = None if population.samples.clean is None else task.clean
    keep_rates = np.stack([member.schedule[number] for member in population.members])  # (P,)
    return Epoch(
        number,
        order,
        steps,
        torch.from_numpy(keep_counts(keep_rates, task.batch_size)),
        torch.from_numpy(keep_rates),
        task.plan.factor(number, task.epochs),
        None if clean is None else clean_batch_order(task, clean, number, steps),
    )


def batch_order(task: Task, epoch: int) -> Tensor:
    """Return the order of the samples in an epoch, (S * B,), the same on every device."""
    generator = torch.Generator().manual_seed(derive(task.seed, "order", epoch))
    shuffled = torch.randperm(len(task.train), generator=generator)
    return shuffled[: len(shuffled) // task.batch_size * task.batch_size]


def clean_batch_order(task: Task, clean: LabelledData, epoch: int, steps: int) -> Tensor:
    """Return the order of the clean samples in an epoch, repeated as often as needed, (S * V,)."""
    generator = torch.Generator().manual_seed(derive(task.seed, "clean order", epoch))
    needed = steps * clean_batch_size(task, clean)
    shuffled = [torch.randperm(len(clean), generator=generator) for _ in range(-(-needed // len(clean)))]
    return torch.cat(shuffled)[:needed]


def _grouped_by_method(task: Task, members: Sequence[Member]) -> list[int]:
    """Return the indices of the members with those of one method adjacent, methods in order of first appearance."""
    methods = list(dict.fromkeys(task.method_of(member) for member in members))
    return sorted(range(len(members)), key=lambda index: methods.index(task.method_of(members[index])))


def _current_device(device: torch.device) -> AbstractContextManager[None]:
    """Make a CUDA device the current one, for streams and graphs."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


@contextmanager
def _isolated_random_state(task: Task) -> Iterator[None]:
    """Seed the random state that modules use (dropout), and restore the caller's afterwards."""
    devices = [task.device] if task.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(derive(task.seed, "modules"))
        yield


@contextmanager
def _tf32_matrix_products() -> Iterator[None]:
    """Let float32 matrix products use tf32 on tensor cores; without effect on a CPU."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
