"""Training a population of members in lockstep: THE epoch loop. Everything that trains goes through it.

Letters: P members, M networks in a member, T epochs, B batch, N samples, C classes.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, CancelledError, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from s2e.data.samples import LabelledData
from s2e.engine.batches import scaled
from s2e.engine.curves import Curves
from s2e.engine.memory import members_that_fit, network_bytes, small_on_a_cpu
from s2e.engine.optimizers import learning_plan
from s2e.engine.population import Crew, clean_batch_size
from s2e.engine.recorder import bytes_per_member
from s2e.engine.step import Epoch
from s2e.engine.task import EpochFinished, Member, Task, Trained, check
from s2e.engine.threads import Turns
from s2e.methods import Method, Need
from s2e.schedules.fixed import keep_counts
from s2e.seeds import derive

log = logging.getLogger(__name__)

Tell = Callable[[int, tuple[int, ...], Curves], list[int]]
"""Is told an epoch, the places of the members trained and their curves, and names the rows to stop."""


def train_population(
    task: Task,
    members: Sequence[Member],
    *,
    on_epoch: Callable[[EpochFinished], None] | None = None,
    stop: Callable[[EpochFinished], Collection[int]] | None = None,
) -> Trained:
    """Train P members in lockstep; in chunks, one after the other, when they do not fit the memory together.

    A member trained alone equals the same member trained in a population: exactly on a CPU, to rounding on a GPU.

    Args:
        task: what they share.
        members: what they do not.
        on_epoch: told after every epoch.
        stop: asked after every epoch; the members it names leave the population, which goes on without their cost.
    """
    return Trainer(task).train(members, on_epoch=on_epoch, stop=stop)


class Trainer:
    """Trains populations of one task, one after the other; `train_population` says how.

    What one population has captured on the device serves the next one where members differ in seeds and schedules
    alone, as the generations of a search do, or the chunks of a large population.

    Args:
        task: what the members of all of them share.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self._idle: Crew | None = None
        self._planned = (0, 0)  # members, and how many of them at a time

    def train(
        self,
        members: Sequence[Member],
        *,
        on_epoch: Callable[[EpochFinished], None] | None = None,
        stop: Callable[[EpochFinished], Collection[int]] | None = None,
    ) -> Trained:
        """Train P members."""
        task = self.task
        check(task, members)
        size = self._at_a_time(members)
        order = _by_method(task, members)
        parts: list[Trained] = []
        first = 0

        def tell(epoch: int, places: tuple[int, ...], curves: Curves) -> list[int]:
            progress = EpochFinished(epoch + 1, task.epochs, places, len(order), curves)
            if on_epoch is not None:
                on_epoch(progress)
            leaving = set() if stop is None else set(stop(progress))
            return [row for row, place in enumerate(places) if place in leaving]

        while first < len(order):
            now = order[first : first + size]
            try:
                with _current(task.device), _random_state_restored(task), _fast_matrix_products():
                    parts += self._train_side_by_side(members, now, tell)
                first += len(now)
            except torch.OutOfMemoryError:
                if len(now) == 1:
                    raise
                size = (len(now) + 1) // 2
                log.warning("out of memory with %d members at a time; going on with %d", len(now), size)
            if size < len(now):  # outside the handler, which keeps the failed attempt's tensors alive
                gc.collect()
                torch.cuda.empty_cache()
        self._planned = (len(members), size)
        trained = Trained.concatenate(parts)
        return trained if order == sorted(order) else trained.take(np.argsort(order).tolist())

    def _at_a_time(self, members: Sequence[Member]) -> int:
        """Return how many members to train at once; what is idle is given up where it would be in the way."""
        count, size = self._planned
        if self._idle is not None and count == len(members):
            return size
        self._idle = None
        if self.task.device.type == "cuda":
            gc.collect()  # graphs of an earlier training hold memory until then
        return self.task.chunk or _planned_chunk(self.task, members)

    def _train_side_by_side(self, members: Sequence[Member], places: Sequence[int], tell: Tell) -> list[Trained]:
        """Train the members at these places; small networks on a CPU in several threads, each with some of the members.

        An operation on a small network is too short to be shared by cores (beside another busy process, waiting for
        each other makes it many times slower), so each core takes members of its own. Whether it does depends on the
        network and the batch, never on the number of members: the rounding of an operation depends on the threads that
        share it, and a member must not depend on its company.
        """
        task, threads = self.task, torch.get_num_threads()
        if task.device.type != "cpu" or threads == 1 or not self._small:
            return [self._train_chunk(members, places, tell)]
        shares = [share.tolist() for share in np.array_split(places, min(threads, len(places)))]
        turns = Turns(len(shares))

        def train(share: int) -> Trained:
            def tell_in_turn(epoch: int, places: tuple[int, ...], curves: Curves) -> list[int]:
                with turns.mine(share):
                    return tell(epoch, places, curves)

            with turns.taken_by(share):
                return self._train_chunk(members, shares[share], tell_in_turn)

        torch.set_num_threads(1)
        try:
            with ThreadPoolExecutor(len(shares)) as pool:
                training = [pool.submit(train, share) for share in range(len(shares))]
                try:
                    wait(training, return_when=FIRST_EXCEPTION)
                finally:  # one has failed or all are done, or the user interrupts: nobody needs to go on
                    turns.end()
            problems = [problem for each in training if (problem := each.exception()) is not None]
            for problem in sorted(problems, key=lambda problem: isinstance(problem, CancelledError)):
                raise problem
            return [each.result() for each in training]
        finally:
            torch.set_num_threads(threads)

    @cached_property
    def _small(self) -> bool:
        return small_on_a_cpu(self.task.network, _probe(self.task))

    def _train_chunk(self, members: Sequence[Member], places: Sequence[int], tell: Tell) -> Trained:
        """Train the members at these places, which fit the memory together; `tell` names those to stop."""
        task = self.task
        curves = Curves.empty(len(places), task.epochs, task.evaluate)
        crew = self._crew([members[place] for place in places])
        stopped: list[tuple[NDArray[np.int64], Trained]] = []
        order = _batch_order(task, 0)
        for epoch in range(task.epochs):
            now = _epoch(task, epoch, crew, order)
            crew.lockstep.begin_epoch(now)
            crew.lockstep.run(now.steps)
            accuracies = {name: evaluation.accuracy() for name, evaluation in crew.evaluations.items()}
            order = _batch_order(task, epoch + 1)  # for the next one, while the device is still busy with this one
            crew.recorder.end_epoch(epoch, curves, crew.rows)
            for name, accuracy in accuracies.items():
                by_member = accuracy.cpu().split(crew.networks)
                curves.accuracy[name][crew.rows, epoch] = [float(own.mean()) for own in by_member]
            if crew.best is not None and task.remember_best is not None:
                crew.best.update(curves.accuracy[task.remember_best][crew.rows, epoch])
            leaving = np.isin(crew.rows, tell(epoch, tuple(places), curves))
            if leaving.any() and epoch + 1 < task.epochs:
                stopped.append(crew.outcome(curves, np.flatnonzero(leaving)))
                if leaving.all():
                    break
                crew = crew.part(np.flatnonzero(~leaving), task.epochs - epoch - 1)
        else:
            stopped.append(crew.outcome(curves, np.arange(len(crew.members))))
        self._idle = crew if crew.lockstep.captured else None
        back = np.argsort(np.concatenate([rows for rows, _ in stopped]))
        trained = Trained.concatenate([part for _, part in stopped])
        return trained if len(stopped) == 1 else trained.take(back.tolist())

    def _crew(self, members: Sequence[Member]) -> Crew:
        """Put members on the device, into what is idle there where it serves them."""
        idle, self._idle = self._idle, None
        if idle is not None and idle.serves(members):
            return idle.restart(members)
        if idle is not None:
            del idle
            gc.collect()
        return Crew.of(self.task, members)


def _by_method(task: Task, members: Sequence[Member]) -> list[int]:
    """Return the places of the members so that those of one method stand together, methods as they first appear."""
    methods = list(dict.fromkeys(task.method_of(member) for member in members))
    return sorted(range(len(members)), key=lambda place: methods.index(task.method_of(members[place])))


def engine_steps(task: Task, members: Sequence[Member]) -> Callable[[int], None]:
    """Return the bare steps of a population, for measuring them: trains every member on so many batches.

    Unlike `train_population` it does not give torch's random state back.
    """
    check(task, members)
    members = [members[place] for place in _by_method(task, members)]
    crew = Crew.of(task, members)
    first = _epoch(task, 0, crew, _batch_order(task, 0))
    left = 0

    def run(steps: int) -> None:
        nonlocal left
        while steps > 0:
            if left == 0:
                crew.lockstep.begin_epoch(first)
                left = first.steps
            now = min(steps, left)
            with _fast_matrix_products():
                crew.lockstep.run(now)
            steps, left = steps - now, left - now

    return run


def _epoch(task: Task, number: int, crew: Crew, order: Tensor) -> Epoch:
    """What holds during an epoch."""
    steps = len(order) // task.batch_size
    clean = None if crew.samples.clean is None else task.clean
    now = np.stack([member.schedule[number] for member in crew.members])  # (P,)
    return Epoch(
        number,
        order,
        steps,
        torch.from_numpy(keep_counts(now, task.batch_size)),
        torch.from_numpy(now),
        *learning_plan(number, task.epochs),
        None if clean is None else _clean_order(task, clean, number, steps),
    )


def _batch_order(task: Task, epoch: int) -> Tensor:
    """Shuffle the samples for one epoch, (S * B,), the same on every device."""
    generator = torch.Generator().manual_seed(derive(task.seed, "order", epoch))
    shuffled = torch.randperm(len(task.train), generator=generator)
    return shuffled[: len(shuffled) // task.batch_size * task.batch_size]


def _clean_order(task: Task, clean: LabelledData, epoch: int, steps: int) -> Tensor:
    """Shuffle the clean samples for one epoch, as often as its steps need them, (S * V,), the same on every device."""
    generator = torch.Generator().manual_seed(derive(task.seed, "clean order", epoch))
    needed = steps * clean_batch_size(task, clean)
    shuffled = [torch.randperm(len(clean), generator=generator) for _ in range(-(-needed // len(clean)))]
    return torch.cat(shuffled)[:needed]


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
