"""Ctrl-C, SIGTERM and SIGHUP end the process at once, with one line and exit code 128 plus the signal's number.

Only small modules of the standard library are imported here, so that this works before slow imports.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import NoReturn

INTERRUPTED = "s2e: interrupted"

HANDLED = {
    signal.SIGINT: INTERRUPTED,
    signal.SIGTERM: f"{INTERRUPTED} by SIGTERM",
    signal.SIGHUP: f"{INTERRUPTED} by SIGHUP",
}
"""The signals that end the process, with what is printed then."""


def _plain_last_line(what: str) -> str:
    line_break = "\n" if os.isatty(2) else ""  # after the ^C that a terminal shows
    return f"{line_break}{what}"


last_line: ContextVar[Callable[[str], str]] = ContextVar("last_line", default=_plain_last_line)
"""Returns the line that is printed when a signal ends the process, from one of `HANDLED`."""

_cleanups: list[Callable[[], object]] = []
"""Actions to run before the process ends, the last first."""

_process = 0
"""The process that handles signals; forked ones inherit its handlers, but neither its line nor its actions."""


def end_on_signals() -> None:
    """Make signals end the process from now on, except those that are ignored, as behind nohup or & in a script."""
    global _process
    _process = os.getpid()
    for number in HANDLED:
        if signal.getsignal(number) in (signal.default_int_handler, signal.SIG_DFL):
            signal.signal(number, _stop)


def ignore_ctrl_c() -> None:
    """Ignore Ctrl-C from now on: the work is done, and only the interpreter still has to exit."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def cleaned_up_by(action: Callable[[], object]) -> Iterator[None]:
    """Run an action after the body, also if a signal ends the process in it; the action may start twice."""
    _cleanups.append(action)
    try:
        yield
    finally:
        action()
        _cleanups.remove(action)


def _stop(number: int, _frame: object) -> NoReturn:
    """End the process at once, with one line, after a signal such as that of Ctrl-C.

    A KeyboardInterrupt does not always arrive: during a write to the study, SQLAlchemy logs it with a traceback or
    raises another error, which Optuna treats as a busy database and retries; the callback of a weak reference drops it;
    torch aborts the process while it is being imported. Little has to be cleaned up: a run can be resumed wherever its
    process ended, unfinished files have hidden names, and `cleaned_up_by` registers the rest.
    """
    for each in HANDLED:
        signal.signal(each, signal.SIG_IGN)  # a second signal prints nothing more
    code = 128 + number
    if os.getpid() != _process:
        os._exit(code)
    try:
        line = os.fsencode(f"{last_line.get()(HANDLED[signal.Signals(number)])}\n")
        stderr = os.dup(2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # the thread that draws a bar must not draw over the line
        os.write(stderr, line)  # fails if a closed terminal sent SIGHUP
    finally:
        try:
            _end_children()
            for action in reversed(_cleanups):
                with suppress(Exception):
                    action()
        finally:
            os._exit(code)


def _end_children() -> None:
    """End the processes of a pool: a terminal sends Ctrl-C to them as well, others send signals to this one only."""
    if "multiprocessing" in sys.modules:
        from multiprocessing import active_children

        with suppress(Exception):
            for child in active_children():
                child.kill()
