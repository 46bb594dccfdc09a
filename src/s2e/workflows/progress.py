"""Progress of a workflow: the listener interface, callbacks, and its display as bars on a terminal or as lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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

from s2e.callbacks import Callback, RunEnded, RunStarted
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


class CallbackListener:
    """A listener that passes progress on to callbacks, any of which may return True to stop.

    Args:
        callbacks: the callbacks, in this order.
        started: what they receive at the start: before the first stage, when all input is checked.
        shown: receives the progress as well.

    Attributes:
        stopped: whether one of them stopped the search or the training before its end.
        metrics: results, which the callbacks receive at the end.
    """

    def __init__(
        self,
        callbacks: Sequence[Callback] = (),
        started: RunStarted | None = None,
        shown: ProgressListener | None = None,
    ) -> None:
        self._callbacks, self._started, self._shown = tuple(callbacks), started, shown
        self._begun: list[Callback] | None = None
        self.stopped = False
        self.metrics: Mapping[str, float] = {}

    def stage(self, name: str, epochs: int) -> None:
        """Begin a stage, and with the first one the run."""
        if self._begun is None and self._started is not None:
            self._begun = []
            for callback in self._callbacks:
                callback.on_start(self._started)
                self._begun.append(callback)
        if self._shown is not None:
            self._shown.stage(name, epochs)
        for callback in self._callbacks:
            callback.on_stage(name, epochs)

    def epoch(self, progress: EpochFinished) -> None:
        """Pass on a finished epoch."""
        if self._shown is not None:
            self._shown.epoch(progress)
        answers = [callback.on_epoch(progress) for callback in self._callbacks]
        self.stopped |= any(answer is True for answer in answers)

    def generation(self, done: GenerationFinished) -> bool | None:
        """Pass on a finished generation."""
        answers = [] if self._shown is None else [self._shown.generation(done)]
        answers += [callback.on_generation(done) for callback in self._callbacks]
        if self.stopped or any(answer is True for answer in answers):
            self.stopped = done.finished < done.trials
            return True
        return None

    def note(self, text: str) -> None:
        """Show a message."""
        if self._shown is not None:
            self._shown.note(text)

    def members_to_stop(self, progress: EpochFinished) -> tuple[int, ...]:
        """Return the members to stop after an epoch: all, once a callback has returned True."""
        return progress.indices if self.stopped else ()

    def end(self, error: BaseException | None = None) -> None:
        """End the run for the callbacks that received its start."""
        ended = RunEnded({} if error is not None else self.metrics, error)
        for callback in self._begun or ():
            callback.on_end(ended)


@contextmanager
def notified(
    callbacks: Sequence[Callback], started: RunStarted, shown: ProgressListener | None = None
) -> Iterator[CallbackListener]:
    """Pass progress in the body on to callbacks, and its end; the body sets `metrics`."""
    listener = CallbackListener(callbacks, started, shown)
    try:
        yield listener
    except BaseException as error:
        listener.end(error)
        raise
    listener.end()


SILENT = CallbackListener()
"""Ignores all progress."""


@contextmanager
def progress(console: Console, worded: Callable[[str], str] = str) -> Iterator[ProgressListener]:
    """Show progress on a console while the body runs: as bars on a terminal, else as lines.

    Args:
        console: where it is shown.
        worded: returns the text of a message as it is shown; the command line writes options instead of arguments.
    """
    if not console.is_terminal:
        yield Lines(console, worded)
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
        yield Bars(bars, worded)


class Bars:
    """One bar for each stage."""

    def __init__(self, bars: Progress, worded: Callable[[str], str] = str) -> None:
        self._bars, self._worded = bars, worded
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
        self._bars.console.print(self._worded(text), markup=False)


class Lines:
    """One line for each stage and generation, and one every ten seconds in between."""

    def __init__(self, console: Console, worded: Callable[[str], str] = str) -> None:
        self._console, self._worded = console, worded
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
        self._print(self._worded(text))

    def _print(self, text: str) -> None:
        self._printed = time.monotonic()
        self._console.print(text, markup=False)


def _best(done: GenerationFinished) -> str:
    """Return the best accuracy of each search, or their range when there are many."""
    if len(done.best) > MOST_NAMED:
        return f"{100 * min(done.best):.2f}% to {100 * max(done.best):.2f}%"
    return " / ".join(f"{100 * best:.2f}%" for best in done.best)
