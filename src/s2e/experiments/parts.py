"""Experiments made of parts: each part is a run of its own in a folder of the experiment, and is made only once.

A killed experiment continues with the part that was killed; finished parts are not even loaded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from s2e.runs import Run, RunLocation, is_finished
from s2e.workflows import ProgressListener

Workflow = Callable[..., Run]
"""A function of options, location and listener, with the keyword `resume`."""

OF_ITS_PARTS = {"data_fingerprint": "of its parts"}
"""What an experiment of parts stores instead of the fingerprint of its data: each part has its own."""


@dataclass(frozen=True)
class Part:
    """A part of an experiment.

    Attributes:
        name: name of its folder.
        command: name of the command that makes such runs.
        workflow: makes the run.
        options: its options.
    """

    name: str
    command: str
    workflow: Workflow
    options: Any


def folder_of(data: str) -> str:
    """Return the name of a part for a data set: its name, or that of its file."""
    return re.sub(r"[^\w.-]+", "-", PurePath(data).name).strip(".") or "data"


def made_parts(parts: Iterable[Part], location: RunLocation, listener: ProgressListener) -> Iterator[tuple[Part, Run]]:
    """Make each part that is not finished, in its folder below the experiment's, and yield all as they are finished."""
    for part in parts:
        own = replace(location, out=location.out / part.name)
        if is_finished(part.command, part.options, own):
            listener.note(f"{part.name}: finished before")
            yield part, Run.open(own.out)
        else:
            listener.note(f"{part.name}:")
            yield part, part.workflow(part.options, own, listener, resume=True)
