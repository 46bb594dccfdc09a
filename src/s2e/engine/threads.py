"""Training shares of a population in several CPU threads, with callbacks in a fixed order.

An operation on a small network is too short to be split between cores: if another process is busy, synchronising the
cores makes it many times slower. So each operation is computed by one thread, and each thread trains its own share of
the members. Stacked networks are small whatever their size: how an operation on them is rounded would depend on the
number of threads, and with it on the number of members; see `large_products`.
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
from s2e.engine.large_products import threads_for_large_products
from s2e.engine.stacked_networks import StackedNetworks
from s2e.engine.task import Task, Trained
from s2e.networks import isolated_random_state

SMALL_FLOPS = 2e7
"""Floating-point operations of a forward pass below which a network counts as small; the MLP on MNIST has 5e7."""

FLOPS_PER_THREAD = 2.5e7
"""Floating-point operations in the forward passes of a step that justify a further thread for stacked networks.

The threads of a process share Python's interpreter, in which the steps of small networks spend most of their time.
"""

EpochCallback: TypeAlias = Callable[[int, tuple[int, ...], Curves], list[int]]
"""Called with an epoch, the indices of the members in training and their curves; returns the rows to stop."""


def small_network_flops(task: Task, batch: Tensor) -> tuple[float, bool] | None:
    """Return the work of a network if each of its operations is to be computed by one thread; None if not.

    Networks that draw random numbers in a loop are not: torch has one random state, which the threads would share.

    Args:
        task: its network is measured.
        batch: (B, ...)

    Returns:
        floating-point operations of a forward pass, and whether the networks are stacked layer by layer.
    """
    with isolated_random_state():
        networks = StackedNetworks(
            task.network, [0], torch.device("cpu"), vectorize=task.vectorize, precision=task.precision
        )
        networks.forward(batch[:2], training=False)
        if networks.layered:  # only products count, and counting operations would load torch's compiler
            return 2.0 * len(batch) * sum(w.numel() for w in networks.parameters.values() if w.ndim == 3), True
        module = task.network()
        before = torch.get_rng_state()
        with FlopCounterMode(display=False) as counter:
            module(batch)
        draws = not torch.equal(before, torch.get_rng_state())
    flops = float(counter.get_total_flops())
    return None if draws or flops >= SMALL_FLOPS else (flops, False)


def thread_count(members: int, networks: int, flops: float, *, stacked: bool) -> int:
    """Return the number of threads that train small networks fastest; the outcome does not depend on it."""
    count = min(torch.get_num_threads(), members)
    return max(1, min(count, int(networks * flops / FLOPS_PER_THREAD))) if stacked else count


def train_in_threads(
    train: Callable[[Sequence[int], EpochCallback], Trained],
    indices: Sequence[int],
    callback: EpochCallback,
    count: int,
) -> list[Trained]:
    """Train an equal share of the members in each of several threads; return the outcomes in the order of `indices`.

    Args:
        train: trains the members at some indices, and calls its second argument after every epoch.
        indices: indices of the members.
        callback: called by one thread at a time, in an order that does not depend on the speed of the threads.
        count: number of threads; torch's other threads are used in large products.
    """
    threads = torch.get_num_threads()
    if count == 1:  # in the calling thread: OpenMP's workers for another thread would sleep between operations
        with one_thread_for_operations():
            return [train(indices, callback)]
    shares = [share.tolist() for share in np.array_split(indices, count)]
    order = CallbackOrder(len(shares))

    def train_share(thread: int) -> Trained:
        def ordered_callback(epoch: int, indices: tuple[int, ...], curves: Curves) -> list[int]:
            with order.turn(thread):
                return callback(epoch, indices, curves)

        with order.participation(thread), threads_for_large_products(threads // count):
            return train(shares[thread], ordered_callback)

    with one_thread_for_operations():
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


@contextmanager
def one_thread_for_operations() -> Iterator[None]:
    """Let torch compute each operation with one thread; its other threads are used in large products of this one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threads_for_large_products(threads):
            yield
    finally:
        torch.set_num_threads(threads)


class CallbackOrder:
    """Orders callbacks from several threads: by epoch, and within an epoch by the number of the thread.

    Which members are stopped may depend on earlier callbacks. It must not depend on which thread is faster.

    Args:
        threads: number of threads.
        ordered: False to call them in any order, still one at a time.
    """

    def __init__(self, threads: int, *, ordered: bool = True) -> None:
        self._ordered = ordered
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
            self._changed.wait_for(lambda: self._cancelled or not self._ordered or thread == self._next())
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
