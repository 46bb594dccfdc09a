"""Training shares of a population in several CPU threads, with callbacks in a fixed order.

An operation on a small network is too short to be split between cores: if another process is busy, synchronising the
cores makes it many times slower. So each thread trains its own share of the members.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, CancelledError, ThreadPoolExecutor, wait
from contextlib import contextmanager
from threading import Condition
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from s2e.engine.curves import Curves
from s2e.engine.task import Trained
from s2e.networks import Factory

SMALL_FLOPS = 2e7
"""Floating-point operations of a forward pass below which a network counts as small; the MLP on MNIST has 5e7."""

EpochCallback: TypeAlias = Callable[[int, tuple[int, ...], Curves], list[int]]
"""Called with an epoch, the indices of the members in training and their curves; returns the rows to stop."""


def too_small_to_split(network: Factory, batch: Tensor) -> bool:
    """Return whether the operations of a network on a batch (B, ...) are too short to be split between CPU cores.

    False for networks that draw random numbers: torch has one random state, which the threads would share.
    """
    with torch.random.fork_rng(devices=[]):
        module = network()
        before = torch.get_rng_state()
        with FlopCounterMode(display=False) as counter:
            module(batch)
        draws = not torch.equal(before, torch.get_rng_state())
    return counter.get_total_flops() < SMALL_FLOPS and not draws


def train_in_threads(
    train: Callable[[Sequence[int], EpochCallback], Trained], indices: Sequence[int], callback: EpochCallback
) -> list[Trained]:
    """Train an equal share of the members in each of torch's threads; return the outcomes in the order of `indices`.

    Args:
        train: trains the members at some indices, and calls its second argument after every epoch.
        indices: indices of the members.
        callback: called by one thread at a time, in an order that does not depend on the speed of the threads.
    """
    threads = torch.get_num_threads()
    shares = [share.tolist() for share in np.array_split(indices, min(threads, len(indices)))]
    order = CallbackOrder(len(shares))

    def train_share(thread: int) -> Trained:
        def ordered_callback(epoch: int, indices: tuple[int, ...], curves: Curves) -> list[int]:
            with order.turn(thread):
                return callback(epoch, indices, curves)

        with order.participation(thread):
            return train(shares[thread], ordered_callback)

    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(len(shares)) as pool:
            futures = [pool.submit(train_share, thread) for thread in range(len(shares))]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
            finally:  # all are done, one has failed, or the user interrupts: any others must stop
                order.cancel()
        problems = [problem for future in futures if (problem := future.exception()) is not None]
        for problem in sorted(problems, key=lambda problem: isinstance(problem, CancelledError)):
            raise problem
        return [future.result() for future in futures]
    finally:
        torch.set_num_threads(threads)


class CallbackOrder:
    """Orders callbacks from several threads: by epoch, and within an epoch by the number of the thread.

    Which members are stopped may depend on earlier callbacks. It must not depend on which thread is faster.

    Args:
        threads: number of threads.
    """

    def __init__(self, threads: int) -> None:
        self._callbacks = dict.fromkeys(range(threads), 0)  # of each thread that still participates
        self._changed = Condition()
        self._cancelled = False

    @contextmanager
    def turn(self, thread: int) -> Iterator[None]:
        """Wait for the turn of a thread and hold it during the block; an exception in the block cancels all turns.

        Raises:
            CancelledError: if the turns are cancelled.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._cancelled or thread == self._next())
            if self._cancelled:
                raise CancelledError
            try:
                yield
            except BaseException:
                self._cancelled = True
                raise
            finally:
                self._callbacks[thread] += 1
                self._changed.notify_all()

    @contextmanager
    def participation(self, thread: int) -> Iterator[None]:
        """Let other threads wait for the turns of this one until the end of the block, even if that raises."""
        try:
            yield
        finally:
            with self._changed:
                del self._callbacks[thread]
                self._changed.notify_all()

    def cancel(self) -> None:
        """Raise `CancelledError` in all waiting and later turns."""
        with self._changed:
            self._cancelled = True
            self._changed.notify_all()

    def _next(self) -> int:
        return min(self._callbacks, key=lambda thread: self._callbacks[thread])
