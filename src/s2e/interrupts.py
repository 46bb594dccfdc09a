"""Ctrl-C ends the process at once, with one line and exit code 130.

Only small modules of the standard library are imported here, so that this works before slow imports.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import NoReturn

INTERRUPTED = "s2e: interrupted"


def _plain_last_line() -> str:
    line_break = "\n" if os.isatty(2) else ""  # after the ^C that a terminal shows
    return f"{line_break}{INTERRUPTED}"


last_line: ContextVar[Callable[[], str]] = ContextVar("last_line", default=_plain_last_line)
"""Returns the line that is printed when Ctrl-C is pressed."""

_cleanups: list[Callable[[], object]] = []
"""Actions to run before the process ends, the last first."""


def end_on_ctrl_c() -> None:
    """Make Ctrl-C end the process from now on, unless it is ignored, as for a background job of a script."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _stop)


def ignore_ctrl_c() -> None:
    """Ignore Ctrl-C from now on: the work is done, and only the interpreter still has to exit."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def cleaned_up_by(action: Callable[[], object]) -> Iterator[None]:
    """Run an action after the body, also if Ctrl-C ends the process in it; the action may start twice."""
    _cleanups.append(action)
    try:
        yield
    finally:
        action()
        _cleanups.remove(action)


def _stop(*_: object) -> NoReturn:
    """End the process at once, with one line, when Ctrl-C is pressed.

    A KeyboardInterrupt does not always arrive: during a write to the study, SQLAlchemy logs it with a traceback or
    raises another error, which Optuna treats as a busy database and retries; the callback of a weak reference drops it;
    torch aborts the process while it is being imported. Little has to be cleaned up: a run can be resumed wherever its
    process ended, unfinished files have hidden names, and `cleaned_up_by` registers the rest.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C prints nothing more
    try:
        line = os.fsencode(f"{last_line.get()()}\n")
        stderr = os.dup(2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # the thread that draws a bar must not draw over the line
        os.write(stderr, line)
    finally:
        try:
            for action in reversed(_cleanups):
                with suppress(Exception):
                    action()
        finally:
            os._exit(130)
