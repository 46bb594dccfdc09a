"""In Python, what the package logs as a warning is a warning of class `S2EWarning`; the command line prints lines."""

from __future__ import annotations

import logging
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from threading import Lock
from typing import ParamSpec, TypeVar

from s2e.errors import S2EWarning
from s2e.specs import SearchOptions, leaves

P = ParamSpec("P")
Result = TypeVar("Result")

PACKAGE = "s2e"
ARGUMENTS = {leaf.metadata["flag"]: leaf.name for leaf, _ in leaves(SearchOptions) if "flag" in leaf.metadata}
"""Arguments in Python of options with another name."""


class _ToWarnings(logging.Handler):
    """Turns records of the package into warnings at the line outside the package that called it."""

    def emit(self, record: logging.LogRecord) -> None:
        """Warn with the message of a record."""
        warnings.warn(as_python(record.getMessage()), S2EWarning, stacklevel=_stack_level())


_handler = _ToWarnings(logging.WARNING)
_lock = Lock()
_users = 0


@contextmanager
def warnings_in_python() -> Iterator[None]:
    """Turn what the package logs as a warning in the body into warnings; may be nested, and used in threads."""
    global _users
    logger = logging.getLogger(PACKAGE)
    with _lock:
        _users += 1
        logger.addHandler(_handler)  # a second time changes nothing
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                logger.removeHandler(_handler)


def warns_in_python(function: Callable[P, Result]) -> Callable[P, Result]:
    """Run a function of the public interface in `warnings_in_python`."""

    @wraps(function)
    def warning(*args: P.args, **kwargs: P.kwargs) -> Result:
        with warnings_in_python():
            return function(*args, **kwargs)

    return warning


def as_python(text: str) -> str:
    """Return a message with the names of options as those of arguments: --batch-size as `batch_size`."""
    return re.sub(
        r"(?<![\w-])--[a-z][a-z-]*", lambda found: f"`{ARGUMENTS.get(found[0], found[0][2:].replace('-', '_'))}`", text
    )


def _stack_level() -> int:
    """Return the number of frames from the handler to the first one outside this package and `logging`."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in (PACKAGE, "logging"):
        level, frame = level + 1, frame.f_back
    return level
