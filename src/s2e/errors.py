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


class S2EWarning(UserWarning):
    """Something that the caller should know, although the work goes on; the command line prints it as a line."""


class StorageUnavailable(S2EError, OSError):
    """The storage of a study failed while it was used; what had finished is kept, and the run can be resumed."""


class WorkerFailed(S2EError, RuntimeError):
    """A device or a machine on which a part of a population could not be trained."""


DIVERGED_ADVICE = "lower the learning rate, or scale the inputs to numbers around 1"
"""What to do where all trainings diverge."""


class TrainingDiverged(S2EError, ArithmeticError):
    """Every training so far diverged: its loss became infinite or NaN, so there is nothing to choose from."""

    def __init__(self, trainings: int) -> None:
        super().__init__(f"all {trainings} trainings diverged: their losses became infinite or NaN; {DIVERGED_ADVICE}.")


def raise_all(problems: Iterable[str | None], origin: str = "") -> None:
    """Raise one error with all problems that are not None, if any; `origin` is the file they come from."""
    text = " ".join(filter(None, problems))
    if text:
        raise InvalidInput(f"{origin}: {text}" if origin else text)


def unknown_name(kind: str, name: object, known: Iterable[str], most: int | None = None) -> InvalidInput:
    """Return the error for an unknown name, which lists the known ones (at most `most`), nearest first."""
    names = list(known)
    nearest = difflib.get_close_matches(str(name), names, n=len(names), cutoff=0.0)
    ordered = [*nearest, *(other for other in names if other not in nearest)]
    shown = listed([one_line(other, MAX_NAME) for other in ordered], len(ordered) if most is None else most)
    return InvalidInput(f"`{kind}` must be one of {shown}, but got {name!r}.")


def listed(values: Iterable[object], most: int = 5) -> str:
    """Return the first `most` values separated by commas, with an ellipsis if there are more."""
    texts = [str(value) for value in values]
    return ", ".join(texts[:most]) + (", …" if len(texts) > most else "")


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun, as in "1 label" and "2,000 labels"."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def class_title(name: str) -> str:
    """Return the name of a class for a message; a number is written as in "class 3"."""
    return f"class {name}" if name.replace(".", "", 1).removeprefix("-").isdigit() else name


OUT_OF_MEMORY = ("out of memory", "not enough memory", "can't allocate memory", "std::bad_alloc", "CUBLAS_STATUS_ALLOC")
"""Parts of messages of torch, which raises a RuntimeError if the memory of the CPU is exhausted."""


def is_out_of_memory(problem: BaseException) -> bool:
    """Return whether an error says that the memory of a device or of the machine is exhausted."""
    if isinstance(problem, RuntimeError):  # torch.OutOfMemoryError for a GPU; torch is not imported here
        return type(problem).__name__ == "OutOfMemoryError" or any(text in str(problem) for text in OUT_OF_MEMORY)
    return isinstance(problem, MemoryError)


MAX_NAME = 100
"""Characters of a name that are shown in a list: columns of a damaged table may have a name of many lines."""

MAX_REASON = 300
"""Characters of a message of another library that are shown: it may hold what was in a file."""


def first_line(problem: BaseException) -> str:
    """Return the first line of an exception's message, printable and not too long, or its type where it is empty."""
    return one_line((str(problem).strip().splitlines() or [type(problem).__name__])[0], MAX_REASON)


def one_line(text: str, most: int) -> str:
    """Return the first `most` characters of a text, with escapes for those that are not printable."""
    shown = "".join(each if each.isprintable() else repr(each)[1:-1] for each in text[:most])
    return shown if len(text) <= most else f"{shown}…"
