"""The interface of callbacks, and the events at the start and at the end of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from s2e.engine import EpochFinished
from s2e.studies import GenerationFinished


@dataclass(frozen=True)
class RunStarted:
    """The start of a search or a training, when the data are loaded and all options are checked.

    Attributes:
        command: "search", "train", "compare", or "fit" for `S2EClassifier`.
        settings: its options by name.
        directory: the run directory; None in Python, where nothing is written.
    """

    command: str
    settings: Mapping[str, Any]
    directory: Path | None = None


@dataclass(frozen=True)
class RunEnded:
    """The end of a search or a training.

    Attributes:
        metrics: results by name, such as the validation accuracy; empty after an error.
        error: what ended it; None if it was completed, or stopped by a callback.
    """

    metrics: Mapping[str, float] = field(default_factory=dict)
    error: BaseException | None = None


class Callback:
    """Receives the progress of a search or a training; a subclass overrides the methods it needs.

    A run has stages: "relabelling validation", "search", "final training". `on_epoch` is called after every epoch of
    every population, `on_generation` after every generation of a search. Either may return True to stop: a search ends
    after its generation, `s2e.train` after its epoch. Final trainings are not stopped, as they give the classifier.

    An error that a callback raises ends the run. Ctrl-C on the command line ends the process without `on_end`.

    Examples:
        >>> class StopAt(Callback):
        ...     def __init__(self, accuracy):
        ...         self.accuracy = accuracy
        ...
        ...     def on_generation(self, done):
        ...         return max(done.best) >= self.accuracy
    """

    def on_start(self, started: RunStarted) -> None:
        """Receive the start of the run, with its options."""

    def on_stage(self, name: str, epochs: int) -> None:
        """Receive the start of a stage that trains for `epochs` epochs."""

    def on_epoch(self, done: EpochFinished) -> bool | None:  # noqa: ARG002
        """Receive a finished epoch; return True to stop."""
        return None

    def on_generation(self, done: GenerationFinished) -> bool | None:  # noqa: ARG002
        """Receive a finished generation; return True to stop the search."""
        return None

    def on_end(self, ended: RunEnded) -> None:
        """Receive the end of the run, also after an error."""


class FunctionCallback(Callback):
    """A callback made of two functions, those that `s2e.search` and `s2e.train` take as `on_generation` and `on_epoch`.

    Args:
        on_epoch: called after every epoch; return True to stop.
        on_generation: called after every generation; return True to stop.
    """

    def __init__(
        self,
        *,
        on_epoch: Callable[[EpochFinished], bool | None] | None = None,
        on_generation: Callable[[GenerationFinished], bool | None] | None = None,
    ) -> None:
        self._on_epoch, self._on_generation = on_epoch, on_generation

    def on_epoch(self, done: EpochFinished) -> bool | None:
        """Call `on_epoch`."""
        return None if self._on_epoch is None else self._on_epoch(done)

    def on_generation(self, done: GenerationFinished) -> bool | None:
        """Call `on_generation`."""
        return None if self._on_generation is None else self._on_generation(done)
