"""Ctrl-C ends the process where it stands, with one line and exit code 130.

Only small modules of the standard library are imported here, so that this holds before anything slow is imported.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import NoReturn

INTERRUPTED = "s2e: interrupted"


def _plain_farewell() -> str:
    below_what_was_typed = "\n" if os.isatty(2) else ""  # a terminal shows ^C there
    return f"{below_what_was_typed}{INTERRUPTED}"


farewell: ContextVar[Callable[[], str]] = ContextVar("farewell", default=_plain_farewell)
"""Gives what is said when Ctrl-C is pressed."""

_tidying: list[Callable[[], object]] = []
"""What is still to be done before the process ends, the last first."""


def end_on_ctrl_c() -> None:
    """Have Ctrl-C end the process from now on, unless it is ignored, as behind an & in a script."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _stop)


def ignore_ctrl_c() -> None:
    """Let Ctrl-C do nothing from now on: all is done and said, and only Python itself is left to end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def tidied_by(action: Callable[[], object]) -> Iterator[None]:
    """Do something after the body, also where Ctrl-C ends the process within it; it may be begun twice."""
    _tidying.append(action)
    try:
        yield
    finally:
        action()
        _tidying.remove(action)


def _stop(*_: object) -> NoReturn:
    """End the process where it stands, with one line, when Ctrl-C is pressed.

    Not by raising KeyboardInterrupt, which does not always arrive: in the middle of a write to the study SQLAlchemy
    logs it with a traceback, or raises an error of its own instead, which Optuna takes for a busy database and tries
    again; the callback of a weak reference drops it; torch, while it is imported, aborts the process. And little has
    to be put in order first: a run can be continued wherever its process died, what was half written lies under a
    hidden name, and `tidied_by` names the rest.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # pressed twice, it is said once
    try:
        line = os.fsencode(f"{farewell.get()()}\n")
        stderr = os.dup(2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # or the thread that draws a bar may draw over the line
        os.write(stderr, line)
    finally:
        try:
            for action in reversed(_tidying):
                with suppress(Exception):
                    action()
        finally:
            os._exit(130)
