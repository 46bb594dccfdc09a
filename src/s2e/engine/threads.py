"""Turns: threads that train shares of one population speak in a fixed order."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from threading import Condition


class Turns:
    """Lets threads speak in a fixed order, epoch by epoch and in each by their number.

    Who is stopped may depend on who has been told before; it must not depend on which thread is faster.
    """

    def __init__(self, threads: int) -> None:
        self._told = dict.fromkeys(range(threads), 0)  # epochs told by each thread that is still at work
        self._changed = Condition()
        self._ended = False

    @contextmanager
    def mine(self, thread: int) -> Iterator[None]:
        """Wait for the turn of a thread and hold it; when what it does then fails, nobody has a turn any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or thread == min(self._told, key=lambda who: self._told[who]))
            if self._ended:
                raise CancelledError
            try:
                yield
            except BaseException:
                self._ended = True
                raise
            finally:
                self._told[thread] += 1
                self._changed.notify_all()

    @contextmanager
    def taken_by(self, thread: int) -> Iterator[None]:
        """Take part until the end of the block, however it ends."""
        try:
            yield
        finally:
            with self._changed:
                del self._told[thread]
                self._changed.notify_all()

    def end(self) -> None:
        """Let nobody speak any more."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
