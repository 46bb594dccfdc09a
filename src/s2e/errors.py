"""What can go wrong at the public boundary, as a few exceptions that also inherit the ecosystem's."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


class S2EError(Exception):
    """Base of every error this package raises on purpose; the command line prints it in one line and exits with 2."""


class InvalidInput(S2EError, ValueError):
    """A value, an array or an option that cannot be used; says what must hold, what was got and what to do."""


class UnreadableData(S2EError, OSError):
    """A data file that is missing, truncated or corrupted, or that could not be downloaded."""


class RunConflict(S2EError, RuntimeError):
    """A run directory or study that belongs to other settings, or that another process is using."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InvalidInput:
    """Error for a name nobody knows, listing the ones that exist, nearest first."""
    names = list(known)
    nearest = difflib.get_close_matches(name, names, n=len(names), cutoff=0.0)
    ordered = [*nearest, *(other for other in names if other not in nearest)]
    return InvalidInput(f"`{kind}` must be one of {', '.join(ordered)}, but got {name!r}.")


def listed(values: Sequence[str], most: int = 5) -> str:
    """Write the first of some values for a sentence, and that there are more."""
    return ", ".join(values[:most]) + (", …" if len(values) > most else "")


def first_line(problem: BaseException) -> str:
    """Return the first line of what another program has to say about a problem, or its kind where it says nothing."""
    return (str(problem).strip().splitlines() or [type(problem).__name__])[0]
