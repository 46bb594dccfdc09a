"""Faults of the environment in one line: a full disk, a deleted directory, too little memory, a database that fails."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator

from s2e.errors import first_line, is_out_of_memory

LOST_BY_OTHER_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS})
"""Faults while writing that closing the same file turns into other errors."""


def environment_fault(problem: BaseException) -> str | None:
    """Return what happened, without a full stop; None if the error is of another kind."""
    return next(filter(None, map(_fault, _causes(problem))), None)


def _causes(problem: BaseException) -> Iterator[BaseException]:
    """Return the error and those that it was raised from, or raised after where a write failed."""
    while True:
        yield problem
        before = problem.__context__
        if problem.__cause__ is not None:
            problem = problem.__cause__
        elif isinstance(before, OSError) and before.errno in LOST_BY_OTHER_ERRORS:
            problem = before
        else:
            return


def _fault(problem: BaseException) -> str | None:
    if isinstance(problem, BrokenPipeError):  # `s2e datasets | head`: typer ends silently
        return None
    if isinstance(problem, OSError):
        if problem.filename is None:
            return problem.strerror or first_line(problem)
        return f"{problem.strerror}: {str(problem.filename)!r}"
    if is_out_of_memory(problem):
        return f"out of memory ({first_line(problem)})" if str(problem) else "out of memory"
    if isinstance(problem, RuntimeError) and "can't start new thread" in str(problem):
        return first_line(problem)
    if _is_of(problem, "sqlalchemy.exc", "SQLAlchemyError") or _is_of(problem, "sqlite3", "Error"):
        return f"the database of the study failed: {first_line(getattr(problem, 'orig', None) or problem)}"
    if _is_of(problem, "safetensors", "SafetensorError") and "os error" in str(problem):
        return first_line(problem)
    return None


def _is_of(problem: BaseException, module: str, name: str) -> bool:
    """Return whether an error is of a class of a library, which is not imported for that."""
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(problem, kind)
