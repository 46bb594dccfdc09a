"""Settings of the process that trainings change, also several of them in threads of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Generic, TypeVar

Value = TypeVar("Value")


class ProcessSetting(Generic[Value]):
    """A setting of the process, restored when the last of the threads that change it has finished.

    Args:
        keep: called by the first of them; returns what `restore` needs.
        restore: called by the last of them.
        lock: held meanwhile.
    """

    def __init__(
        self, keep: Callable[[], Value], restore: Callable[[Value], object], lock: AbstractContextManager[object]
    ) -> None:
        self._keep, self._restore, self._lock = keep, restore, lock
        self._changing = 0
        self._before: Value | None = None

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep the setting for the caller; the body may change it."""
        with self._lock:
            if self._changing == 0:
                self._before = self._keep()
            self._changing += 1
        try:
            yield
        finally:
            with self._lock:
                self._changing -= 1
                if self._changing == 0 and self._before is not None:
                    self._restore(self._before)
