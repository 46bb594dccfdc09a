"""Populations split over workers: one thread for each worker, callbacks one at a time, measured throughput.

Letters: P members.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import FIRST_EXCEPTION, CancelledError, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from statistics import mean

import numpy as np

from s2e.engine import EpochFinished, Member, Task, Trained
from s2e.engine.threads import CallbackOrder
from s2e.errors import S2EError, WorkerFailed, first_line
from s2e.studies.executors.shares import shares

log = logging.getLogger(__name__)

Finished = Callable[[EpochFinished], Collection[int]]
"""Called after every epoch of a share; returns the indices in the share of the members to stop."""

MOST_LOSSES = 5
"""Workers that may be lost in one population."""


class WorkerLost(Exception):
    """A worker that disappeared while it trained; another one can train its share."""


class Worker(ABC):
    """A device that trains shares of populations.

    Attributes:
        name: name in messages.
        speed: networks times epochs per second in its last share; None if it has had none.
    """

    name: str
    speed: float | None = None

    @abstractmethod
    def train(self, task: Task, members: Sequence[Member], finished: Finished, *, can_stop: bool) -> Trained:
        """Train members and call `finished` after every epoch; without `can_stop` it never stops any.

        Raises:
            WorkerLost: if the worker disappeared.
        """

    def cancel(self) -> None:
        """End a training that is of no use any more; called by another thread."""
        return  # it ends with its next callback


class SplitExecutor(ABC):
    """Splits every population over workers by the speeds that they had before; equally in the first one.

    If members may be stopped early, callbacks are ordered by epoch and then by share, as in one population. Decisions
    to stop are then the same whatever the speeds of the workers. Otherwise no worker waits for another.
    """

    @abstractmethod
    def workers(self, task: Task, members: Sequence[Member]) -> Sequence[Worker]:
        """Return the workers that train the members, at most one for each member."""

    def replacement(self, lost: Worker) -> Worker | None:
        """Return a worker instead of one that was lost, or None if there is no free device."""
        raise NotImplementedError

    def while_training(self) -> AbstractContextManager[None]:
        """Return a context for the time in which workers train."""
        return nullcontext()

    def train(
        self,
        task: Task,
        members: Sequence[Member],
        *,
        on_epoch: Callable[[EpochFinished], None] | None = None,
        stop: Callable[[EpochFinished], Collection[int]] | None = None,
    ) -> Trained:
        """Train P members; see `train_population`."""
        population = _Population(self, task, members, on_epoch, stop)
        while population.left:
            population.train_left(self.workers(task, [members[index] for index in population.left]))
        return population.trained()


class _Population:
    """P members that several workers train."""

    def __init__(
        self,
        executor: SplitExecutor,
        task: Task,
        members: Sequence[Member],
        on_epoch: Callable[[EpochFinished], None] | None,
        stop: Callable[[EpochFinished], Collection[int]] | None,
    ) -> None:
        self.executor, self.task, self.members, self.on_epoch, self.stop = executor, task, members, on_epoch, stop
        self.networks = np.array([task.method_of(member).networks for member in members])  # (P,)
        self.reported = np.zeros(len(members), dtype=np.int64)  # (P,) epochs that callbacks have received
        self.stopped: dict[int, int] = {}  # epoch after which a member was stopped, by its index
        self.left = list(range(len(members)))
        self._outcomes: list[tuple[list[int], Trained]] = []
        self._losses = 0
        self._problem: BaseException | None = None  # of a callback, as opposed to one of a worker

    def trained(self) -> Trained:
        """Return the outcome of all members, in their order."""
        order = [index for indices, _ in self._outcomes for index in indices]
        trained = Trained.concatenate([outcome for _, outcome in self._outcomes])
        return trained if order == sorted(order) else trained.take(np.argsort(order).tolist())

    def train_left(self, workers: Sequence[Worker]) -> None:
        """Train the members that are left; those whose worker was lost without a replacement are left again."""
        given = self._given_shares(workers)
        order = CallbackOrder(len(given), ordered=self.stop is not None)

        def train(thread: int) -> Trained | None:
            worker, indices = given[thread]
            with order.participation(thread):
                return self._train_share(worker, indices, lambda: order.turn(thread))

        with self.executor.while_training(), ThreadPoolExecutor(len(given), "s2e-worker") as pool:
            futures = [pool.submit(train, thread) for thread in range(len(given))]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
            finally:  # all are done, one has failed, or the user interrupts: any others must end
                order.cancel()
                for future, (worker, _) in zip(futures, given, strict=True):
                    if not future.done():
                        worker.cancel()
        problems = [problem for future in futures if (problem := future.exception()) is not None]
        for problem in sorted(problems, key=lambda problem: isinstance(problem, CancelledError)):
            raise problem if self._problem is None else self._problem
        outcomes = [(indices, future.result()) for (_, indices), future in zip(given, futures, strict=True)]
        self.left = [index for indices, outcome in outcomes if outcome is None for index in indices]
        self._outcomes += [(indices, outcome) for indices, outcome in outcomes if outcome is not None]

    def _given_shares(self, workers: Sequence[Worker]) -> list[tuple[Worker, list[int]]]:
        """Return the workers that receive members, with the indices of these."""
        known = [worker.speed for worker in workers if worker.speed is not None]
        speeds = [worker.speed or (mean(known) if known else 1.0) for worker in workers]
        positions = shares(self.networks[self.left].tolist(), speeds)
        given = [(worker, [self.left[each] for each in own]) for worker, own in zip(workers, positions, strict=True)]
        return [(worker, indices) for worker, indices in given if indices]

    def _train_share(
        self, worker: Worker, indices: Sequence[int], turn: Callable[[], AbstractContextManager[None]]
    ) -> Trained | None:
        """Train the members at some indices; None if the worker was lost and another one must train them later."""
        members = [self.members[index] for index in indices]
        current: Worker | None = worker
        while current is not None:
            share = _Share(self, indices, turn)
            try:
                trained = current.train(self.task, members, share.finished, can_stop=self.stop is not None)
            except WorkerLost as loss:
                self._count_loss(current, loss)
                current = self.executor.replacement(current)
                continue
            except (S2EError, CancelledError):
                raise
            except Exception as problem:
                raise WorkerFailed(f"training on {current.name} failed: {first_line(problem)}") from problem
            current.speed = share.speed() or current.speed
            return trained
        if self.stop is not None:  # decisions about the other members depend on these
            raise WorkerFailed("a worker was lost, and there is no free device to train its members on.")
        return None

    def _count_loss(self, worker: Worker, loss: WorkerLost) -> None:
        self._losses += 1
        if self._losses > MOST_LOSSES:
            raise WorkerFailed(f"{self._losses} workers were lost in one population; the last one: {loss}")
        log.warning("%s was lost (%s); its members are trained elsewhere", worker.name, loss)

    def call(self, event: EpochFinished) -> Collection[int]:
        """Call the callbacks; return the indices of the members to stop."""
        try:
            if self.on_epoch is not None:
                self.on_epoch(event)
            return () if self.stop is None else self.stop(event)
        except BaseException as problem:
            self._problem = problem
            raise


class _Share:
    """The members that one worker trains, and how fast it does."""

    def __init__(
        self, population: _Population, indices: Sequence[int], turn: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._population, self._indices, self._turn = population, indices, turn
        self._started = False
        self._measure_from_now()

    def finished(self, progress: EpochFinished) -> list[int]:
        """Call the callbacks for the members that they have not been called for; return those to stop.

        A worker that replaces a lost one reports epochs again, and members are stopped as they were.
        """
        population, epoch = self._population, progress.epoch
        indices = np.array([self._indices[own] for own in progress.indices])
        new = np.flatnonzero(population.reported[indices] < epoch)
        self._work += int(population.networks[indices[progress.curves.epochs == epoch]].sum())
        if len(new):
            event = replace(
                progress,
                indices=tuple(indices[new].tolist()),
                population_size=len(population.members),
                curves=progress.curves.take(new),
            )
            before = time.monotonic()
            with self._turn():
                self._waited += time.monotonic() - before
                for index in population.call(event):
                    population.stopped.setdefault(index, epoch)
                population.reported[indices[new]] = epoch
        if progress.epochs > 1 and not (self._started and len(new)):  # start-up, or epochs out of a checkpoint
            self._measure_from_now()
        self._started = True
        return [
            own
            for own, index in zip(progress.indices, indices.tolist(), strict=True)
            if population.stopped.get(index) == epoch
        ]

    def speed(self) -> float | None:
        """Return the networks times epochs per second, or None if that is unknown."""
        seconds = time.monotonic() - self._began - self._waited
        return self._work / seconds if self._work and seconds > 0 else None

    def _measure_from_now(self) -> None:
        self._began = time.monotonic()
        self._work = 0  # networks times epochs since then
        self._waited = 0.0  # seconds of waiting for other workers since then
