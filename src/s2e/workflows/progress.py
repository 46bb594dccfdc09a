"""Progress of a workflow: the listener interface, and its display as bars on a terminal or as plain lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
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

from s2e.engine import EpochFinished
from s2e.errors import counted
from s2e.studies import GenerationFinished

MOST_NAMED = 4
"""Most searches whose best accuracies are shown one by one."""

SECONDS_BETWEEN_LINES = 10


class ProgressListener(Protocol):
    """Receives the progress of a workflow."""

    def stage(self, name: str, epochs: int) -> None:
        """Begin a stage that trains for `epochs` epochs."""

    def epoch(self, progress: EpochFinished) -> None:
        """Receive a finished epoch."""

    def generation(self, done: GenerationFinished) -> bool | None:
        """Receive a finished generation; return True to stop the search."""

    def note(self, text: str) -> None:
        """Receive a message."""


class Callbacks:
    """A listener that calls two functions, either of which may return True to stop.

    Attributes:
        stopped: whether one of them did.
    """

    def __init__(
        self,
        *,
        on_epoch: Callable[[EpochFinished], bool | None] | None = None,
        on_generation: Callable[[GenerationFinished], bool | None] | None = None,
    ) -> None:
        self._on_epoch, self._on_generation = on_epoch, on_generation
        self.stopped = False

    def stage(self, name: str, epochs: int) -> None:
        """Ignore a stage."""

    def epoch(self, progress: EpochFinished) -> None:
        """Call `on_epoch`."""
        if self._on_epoch is not None and self._on_epoch(progress) is True:
            self.stopped = True

    def generation(self, done: GenerationFinished) -> bool | None:
        """Call `on_generation`."""
        if self._on_generation is not None and self._on_generation(done) is True:
            self.stopped = done.finished < done.trials
            return True
        return None

    def note(self, text: str) -> None:
        """Ignore a message."""

    def members_to_stop(self, progress: EpochFinished) -> tuple[int, ...]:
        """Return the members to stop after an epoch: all, once a function has returned True."""
        return progress.indices if self.stopped else ()


SILENT = Callbacks()
"""Ignores all progress."""


@contextmanager
def progress(console: Console) -> Iterator[ProgressListener]:
    """Show progress on a console while the body runs: as bars on a terminal, else as lines."""
    if not console.is_terminal:
        yield Lines(console)
        return
    # On a narrow terminal, words wrap so that none is cut off; figures stay on one line.
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
        """Advance the bar by the share of members trained."""
        self._trained += len(progress.indices) / progress.population_size
        self._bars.update(self._task, completed=round(self._trained, 6))

    def generation(self, done: GenerationFinished) -> None:
        """Show the best so far."""
        self._bars.update(self._task, best=f", {done.position}, best {_best(done)}")

    def note(self, text: str) -> None:
        """Print a message above the bars."""
        self._bars.console.print(text, markup=False)


class Lines:
    """One line for each stage and generation, and one every ten seconds in between."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = self._printed = time.monotonic()
        self._epochs = self._trained = 0.0

    def stage(self, name: str, epochs: int) -> None:
        """Print the name of a stage."""
        self._began = time.monotonic()
        self._epochs, self._trained = epochs, 0.0
        self._print(f"{name}: {epochs} epochs")

    def epoch(self, progress: EpochFinished) -> None:
        """Print the epoch, at most every ten seconds."""
        self._trained += len(progress.indices) / progress.population_size
        if time.monotonic() - self._printed >= SECONDS_BETWEEN_LINES:
            members = f", {len(progress.indices)} of {counted(progress.population_size, 'member')}"
            self._print(f"  epoch {progress.epoch}/{progress.epochs}{members}")

    def generation(self, done: GenerationFinished) -> None:
        """Print the best accuracy and the remaining time."""
        spent = time.monotonic() - self._began
        left = max(0.0, spent * (self._epochs - self._trained) / self._trained) if self._trained else 0.0
        position = f"{done.position}, trial {done.finished}/{done.trials}"
        self._print(f"{position}: best validation accuracy {_best(done)}, {spent:.0f} s, about {left:.0f} s left")

    def note(self, text: str) -> None:
        """Print a message."""
        self._print(text)

    def _print(self, text: str) -> None:
        self._printed = time.monotonic()
        self._console.print(text, markup=False)


def _best(done: GenerationFinished) -> str:
    """Return the best accuracy of each search, or their range when there are many."""
    if len(done.best) > MOST_NAMED:
        return f"{100 * min(done.best):.2f}% to {100 * max(done.best):.2f}%"
    return " / ".join(f"{100 * best:.2f}%" for best in done.best)
