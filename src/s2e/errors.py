"""The exceptions raised at the public boundary, each also a built-in exception, and helpers for their messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class S2EError(Exception):
    """Base of every error this package raises on purpose; the command line prints it in one line and exits with 2."""


class InvalidInput(S2EError, ValueError):
    """A value, an array or an option that cannot be used; the message states what must hold and what was given."""


class InvalidType(InvalidInput, TypeError):
    """An object without the interface that is needed; says which part of it is missing."""


class UnreadableData(S2EError, OSError):
    """A data file that is missing, truncated or corrupted, or that could not be downloaded."""


class RunConflict(S2EError, RuntimeError):
    """A run directory or study that belongs to other settings, or that another process is using."""


def raise_all(problems: Iterable[str | None], origin: str = "") -> None:
    """Raise one error with all problems that are not None, if any; `origin` is the file they come from."""
    text = " ".join(filter(None, problems))
    if text:
        raise InvalidInput(f"{origin}: {text}" if origin else text)


def unknown_name(kind: str, name: str, known: Iterable[str], most: int | None = None) -> InvalidInput:
    """Return the error for an unknown name, which lists the known ones (at most `most`), nearest first."""
    names = list(known)
    nearest = difflib.get_close_matches(name, names, n=len(names), cutoff=0.0)
    ordered = [*nearest, *(other for other in names if other not in nearest)]
    shown = listed(ordered, len(ordered) if most is None else most)
    return InvalidInput(f"`{kind}` must be one of {shown}, but got {name!r}.")


def listed(values: Iterable[object], most: int = 5) -> str:
    """Return the first `most` values separated by commas, with an ellipsis if there are more."""
    texts = [str(value) for value in values]
    return ", ".join(texts[:most]) + (", …" if len(texts) > most else "")


def first_line(problem: BaseException) -> str:
    """Return the first line of an exception's message, or its type where the message is empty."""
    return (str(problem).strip().splitlines() or [type(problem).__name__])[0]
