"""Turns: threads speak epoch by epoch and in each by their number, whichever of them is faster."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait

import numpy as np
import pytest

from s2e.engine.threads import Turns

PATIENCE_S = 20.0
"""Longer than any of this takes; a thread that still waits then would wait for ever."""


def together(turns: Turns, works: list[Callable[[], None]]) -> list[BaseException | None]:
    """Run what threads do at the same time; return how each ended. Threads that never end fail the test."""
    with ThreadPoolExecutor(len(works)) as pool:
        started: list[Future[None]] = [pool.submit(work) for work in works]
        _, stuck = wait(started, timeout=PATIENCE_S)
        turns.end()  # or a test that fails would hang
    assert not stuck
    return [each.exception() for each in started]


def speaker(
    turns: Turns, thread: int, epochs: int, said: list[tuple[int, int]], *, delay_ms: float = 1.0, fails: int = -1
) -> Callable[[], None]:
    """Return a thread's work: in every epoch, take a random time and then say (epoch, thread) in turn."""
    delays = np.random.default_rng(thread).exponential(delay_ms / 1000, size=epochs)

    def work() -> None:
        with turns.taken_by(thread):
            for epoch, delay in enumerate(delays):
                time.sleep(delay)
                with turns.mine(thread):
                    if epoch == fails:
                        raise ArithmeticError(f"thread {thread}")
                    said.append((epoch, thread))

    return work


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_speak_epoch_by_epoch_and_by_number_whatever_each_takes(threads: int) -> None:
    for slow in range(threads):  # one of them is always the last to be ready
        turns, said = Turns(threads), list[tuple[int, int]]()
        delays = [4.0 if thread == slow else 0.2 for thread in range(threads)]
        works = [speaker(turns, thread, 6, said, delay_ms=delays[thread]) for thread in range(threads)]
        assert together(turns, works[::-1]) == [None] * threads
        assert said == [(epoch, thread) for epoch in range(6) for thread in range(threads)]


def test_one_speaks_at_a_time() -> None:
    turns, inside, most = Turns(4), 0, 0

    def work(thread: int) -> None:
        nonlocal inside, most
        with turns.taken_by(thread):
            for _ in range(5):
                with turns.mine(thread):
                    inside += 1
                    most = max(most, inside)
                    time.sleep(0.001)
                    inside -= 1

    together(turns, [lambda thread=thread: work(thread) for thread in range(4)])  # type: ignore[misc]
    assert most == 1


@pytest.mark.parametrize("leaves_after", [0, 2])
@pytest.mark.parametrize("leaver", [0, 1, 2])
def test_a_thread_that_is_done_is_not_waited_for(leaver: int, leaves_after: int) -> None:
    turns, said = Turns(3), list[tuple[int, int]]()
    epochs = [leaves_after if thread == leaver else 5 for thread in range(3)]
    assert together(turns, [speaker(turns, thread, epochs[thread], said) for thread in range(3)]) == [None] * 3
    assert said == [(epoch, thread) for epoch in range(5) for thread in range(3) if epoch < epochs[thread]]


def test_what_fails_in_a_turn_ends_every_wait_and_nobody_speaks_afterwards() -> None:
    turns, said = Turns(4), list[tuple[int, int]]()
    works = [speaker(turns, thread, 6, said, fails=2 if thread == 1 else -1) for thread in range(4)]
    ends = together(turns, works)
    assert isinstance(ends[1], ArithmeticError)
    assert [type(end) for end in ends if end is not ends[1]] == [CancelledError] * 3
    assert said == [(epoch, thread) for epoch in range(2) for thread in range(4)] + [(2, 0)]


def test_what_fails_between_turns_ends_no_one_elses_work() -> None:
    turns, said = Turns(2), list[tuple[int, int]]()

    def failing() -> None:
        with turns.taken_by(0):
            with turns.mine(0):
                said.append((0, 0))
            raise ArithmeticError

    ends = together(turns, [failing, speaker(turns, 1, 3, said)])
    assert isinstance(ends[0], ArithmeticError)
    assert ends[1] is None
    assert said == [(0, 0), (0, 1), (1, 1), (2, 1)]


def test_nobody_speaks_after_the_end() -> None:
    turns, said = Turns(2), list[tuple[int, int]]()
    turns.end()
    assert [type(end) for end in together(turns, [speaker(turns, thread, 2, said) for thread in range(2)])] == [
        CancelledError
    ] * 2
    assert said == []


def test_the_end_wakes_those_that_wait() -> None:
    turns, waiting, ended = Turns(2), threading.Event(), list[bool]()

    def second() -> None:  # the first thread never says a word
        waiting.set()
        try:
            with turns.mine(1):
                ended.append(False)
        except CancelledError:
            ended.append(True)

    thread = threading.Thread(target=second, daemon=True)
    thread.start()
    assert waiting.wait(PATIENCE_S)
    time.sleep(0.02)
    assert thread.is_alive()
    turns.end()
    thread.join(PATIENCE_S)
    assert ended == [True]
