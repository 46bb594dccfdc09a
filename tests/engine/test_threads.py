"""Training in several threads equals training in one; callbacks are called in a fixed order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait

import numpy as np
import pytest
import torch
from torch import nn

from populations import ALL_METHODS, assert_same, stop_after, with_batch_norm, with_batch_norm_and_dropout
from s2e.engine.threads import CallbackOrder, thread_count
from s2e.engine.training import train_population
from s2e.methods import Coteaching, Reweight
from small_tasks import member, task

TIMEOUT_S = 20.0
"""Longer than any test of this file takes; a thread that is still waiting after it is in a deadlock."""


# The order of callbacks


def run_together(order: CallbackOrder, works: list[Callable[[], None]]) -> list[BaseException | None]:
    """Run functions in threads; return the exception of each. Threads that do not end fail the test."""
    with ThreadPoolExecutor(len(works)) as pool:
        started: list[Future[None]] = [pool.submit(work) for work in works]
        _, unfinished = wait(started, timeout=TIMEOUT_S)
        order.cancel()  # otherwise a failing test would hang
    assert not unfinished
    return [each.exception() for each in started]


def work_of(
    order: CallbackOrder,
    thread: int,
    epochs: int,
    calls: list[tuple[int, int]],
    *,
    delay_ms: float = 1.0,
    fail_in: int = -1,
) -> Callable[[], None]:
    """Return the work of a thread: in every epoch, sleep for a random time, then append (epoch, thread) in its turn."""
    delays = np.random.default_rng(thread).exponential(delay_ms / 1000, size=epochs)

    def work() -> None:
        with order.participation(thread):
            for epoch, delay in enumerate(delays):
                time.sleep(delay)
                with order.turn(thread):
                    if epoch == fail_in:
                        raise ArithmeticError(f"thread {thread}")
                    calls.append((epoch, thread))

    return work


@pytest.mark.parametrize("threads", [1, 4])
def test_turns_are_ordered_by_epoch_and_thread(threads: int) -> None:
    for slow in range(threads):
        order, calls = CallbackOrder(threads), list[tuple[int, int]]()
        delays = [4.0 if thread == slow else 0.2 for thread in range(threads)]
        works = [work_of(order, thread, 6, calls, delay_ms=delays[thread]) for thread in range(threads)]
        assert run_together(order, works[::-1]) == [None] * threads
        assert calls == [(epoch, thread) for epoch in range(6) for thread in range(threads)]


def test_turns_are_exclusive() -> None:
    order, inside, most = CallbackOrder(4), 0, 0

    def work(thread: int) -> None:
        nonlocal inside, most
        with order.participation(thread):
            for _ in range(5):
                with order.turn(thread):
                    inside += 1
                    most = max(most, inside)
                    time.sleep(0.001)
                    inside -= 1

    run_together(order, [lambda thread=thread: work(thread) for thread in range(4)])  # type: ignore[misc]
    assert most == 1


@pytest.mark.parametrize("epochs_of_finished", [0, 2])
@pytest.mark.parametrize("finished", [0, 2])
def test_finished_threads_are_not_waited_for(finished: int, epochs_of_finished: int) -> None:
    order, calls = CallbackOrder(3), list[tuple[int, int]]()
    epochs = [epochs_of_finished if thread == finished else 5 for thread in range(3)]
    assert run_together(order, [work_of(order, thread, epochs[thread], calls) for thread in range(3)]) == [None] * 3
    assert calls == [(epoch, thread) for epoch in range(5) for thread in range(3) if epoch < epochs[thread]]


def test_exception_in_a_turn_cancels_all_turns() -> None:
    order, calls = CallbackOrder(4), list[tuple[int, int]]()
    works = [work_of(order, thread, 6, calls, fail_in=2 if thread == 1 else -1) for thread in range(4)]
    exceptions = run_together(order, works)
    assert isinstance(exceptions[1], ArithmeticError)
    assert [type(each) for each in exceptions if each is not exceptions[1]] == [CancelledError] * 3
    assert calls == [(epoch, thread) for epoch in range(2) for thread in range(4)] + [(2, 0)]


def test_exception_between_turns_does_not_affect_other_threads() -> None:
    order, calls = CallbackOrder(2), list[tuple[int, int]]()

    def failing() -> None:
        with order.participation(0):
            with order.turn(0):
                calls.append((0, 0))
            raise ArithmeticError

    exceptions = run_together(order, [failing, work_of(order, 1, 3, calls)])
    assert isinstance(exceptions[0], ArithmeticError)
    assert exceptions[1] is None
    assert calls == [(0, 0), (0, 1), (1, 1), (2, 1)]


def test_cancel_raises_in_waiting_and_later_turns() -> None:
    order, waiting, cancelled = CallbackOrder(2), threading.Event(), list[bool]()

    def second() -> None:  # the first thread never takes its turn
        waiting.set()
        try:
            with order.turn(1):
                cancelled.append(False)
        except CancelledError:
            cancelled.append(True)

    thread = threading.Thread(target=second, daemon=True)
    thread.start()
    assert waiting.wait(TIMEOUT_S)
    time.sleep(0.02)
    assert thread.is_alive()
    order.cancel()
    thread.join(TIMEOUT_S)
    assert cancelled == [True]
    with pytest.raises(CancelledError), order.turn(0):
        pytest.fail("a turn after cancel")


# Training


@pytest.fixture
def _two_threads(monkeypatch):
    monkeypatch.setattr("s2e.engine.threads.FLOPS_PER_THREAD", 1.0)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_two_threads")
def test_two_threads_equal_one(train_data, valid_data):
    shared = task(train_data, Reweight(), network=with_batch_norm, evaluate={"valid": valid_data})
    members = [member(0.5, seed=seed, method=method) for seed, method in enumerate(ALL_METHODS)]
    events, stop = [], stop_after({1: 2, 4: 3, 7: 1})
    in_two = train_population(shared, members, on_epoch=events.append, stop=stop)
    assert torch.get_num_threads() == 2
    assert {len(event.indices) for event in events} == {len(ALL_METHODS) // 2}
    torch.set_num_threads(1)
    assert_same(in_two, train_population(shared, members, stop=stop))


@pytest.mark.usefixtures("_two_threads")
def test_initial_weights_do_not_depend_on_other_threads(train_data):
    def slow_to_build():
        first = nn.Linear(6, 8)
        time.sleep(0.02)
        return nn.Sequential(first, nn.ReLU(), nn.Linear(8, 4))

    shared = task(train_data, Coteaching(), network=slow_to_build)
    members = [member(seed=seed) for seed in (1, 2, 3)]  # two in one thread; the other starts training earlier
    in_two = train_population(shared, members)
    torch.set_num_threads(1)
    assert_same(in_two, train_population(shared, members))


@pytest.mark.usefixtures("_two_threads")
def test_networks_that_draw_random_numbers_in_a_loop_train_in_one_thread(train_data):
    events = []
    shared = task(
        train_data, Coteaching(), network=with_batch_norm_and_dropout, epochs=1, batch_size=96, vectorize=False
    )
    members = [member(seed=seed, epochs=1) for seed in (1, 2)]
    train_population(shared, members, on_epoch=events.append)
    assert {event.indices for event in events} == {(0, 1)}


@pytest.mark.usefixtures("_two_threads")
def test_exception_in_a_callback_ends_all_threads(train_data):
    events = []

    def fail(event):
        events.append(event)
        if len(events) == 3:
            raise RuntimeError("enough")

    shared = task(train_data, Coteaching(), epochs=1000)
    with pytest.raises(RuntimeError, match="enough"):
        train_population(shared, [member(seed=seed, epochs=1000) for seed in (1, 2)], on_epoch=fail)
    assert len(events) == 3
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize(
    ("members", "flops", "expected"), [(1, 1e9, 1), (6, 1e5, 1), (6, 1e6, 1), (2, 1.5e7, 2), (9, 1e9, 3)]
)
def test_stacked_networks_use_as_many_threads_as_their_work_is_worth(members, flops, expected):
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert thread_count(members, 2 * members, flops, stacked=True) == expected
        assert thread_count(members, 2 * members, flops, stacked=False) == min(3, members)
    finally:
        torch.set_num_threads(before)
