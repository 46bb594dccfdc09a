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
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from s2e.data import LabelledData
from s2e.engine.augmentation import draw_all
from s2e.engine.curves import Curves
from s2e.engine.lockstep import Lockstep, TaskCheckpoints
from s2e.engine.memory import chunk_size, keep_freed_memory, probe_batch
from s2e.engine.population import Population, clean_batch_size
from s2e.engine.precision import product_precision
from s2e.engine.process_setting import ProcessSetting
from s2e.engine.step import Epoch
from s2e.engine.task import EpochFinished, Member, Task, Trained, check_task
from s2e.engine.threads import EpochCallback, small_network_flops, thread_count, train_in_threads
from s2e.errors import is_out_of_memory
from s2e.networks import RANDOM_STATE_LOCK
from s2e.schedules import keep_counts
from s2e.seeds import derive

log = logging.getLogger(__name__)

Value = TypeVar("Value")


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
        self._checkpoints = TaskCheckpoints(task)

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
        if task.executor is not None:
            return task.executor.train(task, members, on_epoch=on_epoch, stop=stop)
        if task.device.type == "cpu":
            keep_freed_memory()
        size = self._chunk_size(members)
        order = _grouped_by_method(task, members)
        chunks: list[Trained] = []
        first = 0
        self._checkpoints.begin()

        def callback(epoch: int, indices: tuple[int, ...], curves: Curves) -> list[int]:
            finished = EpochFinished(epoch + 1, task.epochs, indices, len(order), curves)
            if on_epoch is not None:
                on_epoch(finished)
            stopped = set() if stop is None else set(stop(finished))
            return [row for row, index in enumerate(indices) if index in stopped]

        while first < len(order):
            chunk = order[first : first + size]
            try:
                with _current_device(task.device), _isolated_random_state(task), product_precision(task.precision):
                    chunks += self._train_indices(members, chunk, callback)
                first += len(chunk)
            except (RuntimeError, MemoryError) as problem:
                if len(chunk) == 1 or not is_out_of_memory(problem):
                    raise
                size = (len(chunk) + 1) // 2
                log.warning("out of memory with %d members at a time; continuing with %d", len(chunk), size)
            if size < len(chunk):  # outside the handler, which keeps the tensors of the failed attempt alive
                gc.collect()
                torch.cuda.empty_cache()
        self._checkpoints.end()
        self._last_sizes = (len(members), size)
        trained = Trained.concatenate(chunks)
        return trained if order == sorted(order) else trained.take(np.argsort(order).tolist())

    def _train_indices(
        self, members: Sequence[Member], indices: Sequence[int], callback: EpochCallback
    ) -> list[Trained]:
        """Train the members at some indices, small networks on a CPU with one thread for each operation.

        Whether they are small depends on network and batch, never on the number of members: rounding depends on the
        threads that share an operation, and a member must not depend on the other members.
        """

        def train(share: Sequence[int], callback: EpochCallback) -> Trained:
            return self._train_lockstep(members, share, callback)

        if self.task.device.type != "cpu" or torch.get_num_threads() == 1 or self.small_network is None:
            return [train(indices, callback)]
        flops, stacked = self.small_network
        networks = sum(self.task.method_of(members[index]).networks for index in indices)
        return train_in_threads(train, indices, callback, thread_count(len(indices), networks, flops, stacked=stacked))

    def _train_lockstep(self, members: Sequence[Member], indices: Sequence[int], callback: EpochCallback) -> Trained:
        """Train the members at some indices, which fit the memory together; `callback` returns the rows to stop."""
        task, own = self.task, [members[index] for index in indices]
        checkpoint = self._checkpoints.of(own, alone=len(own) == len(members))
        lockstep = checkpoint.restored(self._population) or Lockstep(
            Curves.empty(len(own), task.epochs, task.evaluate), self._population(own)
        )
        curves = lockstep.curves
        for number in range(lockstep.epochs):  # trained by an earlier process: stopped members are stopped already
            callback(number, tuple(indices), curves.until(number + 1))
        order = batch_order(task, lockstep.epochs)
        while lockstep.population is not None:
            number, population = lockstep.epochs, lockstep.population
            epoch = plan_epoch(task, number, population, order)
            population.step.begin_epoch(epoch)
            population.step.run(epoch.steps)
            accuracies = {name: evaluation.score() for name, evaluation in population.evaluations.items()}
            order = batch_order(task, number + 1)  # for the next epoch, while the device is busy with this one
            population.recorder.end_epoch(number, curves, population.rows)
            for name, accuracy in accuracies.items():
                by_member = accuracy.cpu().split(population.networks_per_member)
                curves.accuracy[name][population.rows, number] = [float(each.mean()) for each in by_member]
            if population.best is not None and task.keep_best_on is not None:
                population.best.update(curves.accuracy[task.keep_best_on][population.rows, number])
            lockstep.end_epoch(np.isin(population.rows, callback(number, tuple(indices), curves)))
            checkpoint.save_if_due(lockstep)
            if lockstep.population is None and population.step.captured:
                self._idle = population
        return lockstep.trained()

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
    def small_network(self) -> tuple[float, bool] | None:
        """The work of a network if each of its operations is computed by one thread; see `small_network_flops`."""
        return small_network_flops(self.task, probe_batch(self.task))


def leaves_threads_idle(task: Task) -> bool:
    """Return whether training leaves threads of PyTorch idle: on a GPU, and where one thread computes an operation."""
    if torch.get_num_threads() == 1 or task.executor is not None:
        return False
    return task.device.type != "cpu" or Trainer(task).small_network is not None


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
            with product_precision(task.precision):
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
        augmentation_draws(task, number, len(order)) if task.augmentation else None,
    )


def batch_order(task: Task, epoch: int) -> Tensor:
    """Return the order of the samples in an epoch, (S * B,), the same on every device."""
    generator = torch.Generator().manual_seed(derive(task.seed, "order", epoch))
    shuffled = torch.randperm(len(task.train), generator=generator)
    return shuffled[: len(shuffled) // task.batch_size * task.batch_size]


def augmentation_draws(task: Task, epoch: int, samples: int) -> Tensor:
    """Return the random numbers of the augmentations in an epoch, (S * B, k), the same on every device."""
    generator = torch.Generator().manual_seed(derive(task.seed, "augmentation", epoch))
    return draw_all(task.augmentation, samples, task.train.sample_shape, generator)


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
    """Seed the random state that modules use (dropout), and restore the caller's afterwards.

    Only the state of the own device is seeded: another thread may be training on another one.
    """
    seed = derive(task.seed, "modules")
    devices = [task.device] if task.device.type == "cuda" else []
    with _CPU_RANDOM_STATE.kept(), torch.random.fork_rng(devices=devices) if devices else nullcontext():
        with RANDOM_STATE_LOCK:
            if task.device.type in ("cpu", "cuda"):
                torch.default_generator.manual_seed(seed)
            else:
                torch.manual_seed(seed)
        if devices:
            torch.cuda.manual_seed(seed)  # of the current device
        yield


_CPU_RANDOM_STATE = ProcessSetting(
    torch.default_generator.get_state, torch.default_generator.set_state, RANDOM_STATE_LOCK
)
