"""Slow imports of a command, without searches for garbage among the objects that they create."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_has_process = False
"""Whether the command line is the program of this process."""


def has_process() -> None:
    """State that the command line is the program of this process, so that all objects of it are its own."""
    global _has_process
    _has_process = True


@contextmanager
def importing() -> Iterator[None]:
    """Import in the body: modules stay, and to search them for garbage takes as long as a fifth of the imports.

    In a process of the command line they are not searched later either.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if _has_process:
            gc.freeze()
        if enabled:
            gc.enable()
