"""How a command goes along: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from s2e.engine.task import EpochFinished
from s2e.studies.loop import GenerationFinished

NAMED_APART = 4
"""Searches whose best accuracies are named one by one."""


@contextmanager
def progress(console: Console) -> Iterator[ProgressListener]:
    """Show progress while the body runs, in the way this console can."""
    if not console.is_terminal:
        yield Lines(console)
        return
    # Where a line is too narrow, words wrap below each other, for none may be cut off; figures stay as they are.
    words, figures = Column(overflow="fold"), Column(no_wrap=True)
    columns = (
        TextColumn("{task.description}", table_column=words),
        BarColumn(bar_width=12, table_column=figures),
        MofNCompleteColumn(table_column=figures),
        TimeRemainingColumn(table_column=figures),
        TextColumn("left{task.fields[best]}", table_column=words),
    )
    with Progress(*columns, console=console) as bars:
        yield Bars(bars)


class Bars:
    """One bar for each stage."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._task = TaskID(0)
        self._trained = 0.0

    def stage(self, name: str, epochs: int) -> None:
        """Start a bar."""
        self._trained = 0.0
        self._task = self._bars.add_task(name, total=epochs, best="")

    def epoch(self, progress: EpochFinished) -> None:
        """Move the bar on by what this chunk of the members is of all."""
        self._trained += len(progress.indices) / progress.population_size
        self._bars.update(self._task, completed=round(self._trained, 6))

    def generation(self, done: GenerationFinished) -> None:
        """Show the best so far."""
        self._bars.update(self._task, best=f", {done.place}, best {_best(done)}")

    def note(self, text: str) -> None:
        """Say something in passing, above the bars."""
        self._bars.console.print(text, markup=False)


class Lines:
    """One line for each stage and generation, and now and then for an epoch."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = self._said = time.monotonic()
        self._epochs = self._trained = 0.0

    def stage(self, name: str, epochs: int) -> None:
        """Announce a stage."""
        self._began = time.monotonic()
        self._epochs, self._trained = epochs, 0.0
        self._say(f"{name}: {epochs} epochs")

    def epoch(self, progress: EpochFinished) -> None:
        """Say where things stand, at most every ten seconds."""
        self._trained += len(progress.indices) / progress.population_size
        if time.monotonic() - self._said >= 10:
            members = f", {len(progress.indices)} of {progress.population_size} members"
            self._say(f"  epoch {progress.epoch}/{progress.epochs}{members}")

    def generation(self, done: GenerationFinished) -> None:
        """Say how the search stands and how long it will take."""
        spent = time.monotonic() - self._began
        left = max(0.0, spent * (self._epochs - self._trained) / self._trained) if self._trained else 0.0
        where = f"{done.place}, trial {done.finished}/{done.trials}"
        self._say(f"{where}: best validation accuracy {_best(done)}, {spent:.0f} s, about {left:.0f} s left")

    def note(self, text: str) -> None:
        """Say something in passing."""
        self._say(text)

    def _say(self, text: str) -> None:
        self._said = time.monotonic()
        self._console.print(text, markup=False)


def _best(done: GenerationFinished) -> str:
    """Name the best accuracy of each search, or where they lie when there are many."""
    if len(done.best) > NAMED_APART:
        return f"{100 * min(done.best):.2f}% to {100 * max(done.best):.2f}%"
    return " / ".join(f"{100 * best:.2f}%" for best in done.best)


class ProgressListener(Protocol):
    """Is told how a command goes along."""

    def stage(self, name: str, epochs: int) -> None:
        """Say that a part of the work begins which trains for so many epochs."""

    def epoch(self, progress: EpochFinished) -> None:
        """Say that an epoch is done."""

    def generation(self, done: GenerationFinished) -> None:
        """Say that a generation is done."""

    def note(self, text: str) -> None:
        """Say something in passing."""


class SilentListener:
    """A `ProgressListener` for when nobody is: hears everything, says nothing."""

    def stage(self, name: str, epochs: int) -> None:
        """Say nothing."""

    def epoch(self, progress: EpochFinished) -> None:
        """Say nothing."""

    def generation(self, done: GenerationFinished) -> None:
        """Say nothing."""

    def note(self, text: str) -> None:
        """Say nothing."""


SILENT = SilentListener()
