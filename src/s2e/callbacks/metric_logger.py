"""The base of the ready callbacks: turns events into named numbers, which a subclass writes."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from s2e.callbacks.interface import Callback, RunEnded, RunStarted
from s2e.callbacks.scalars import epoch_scalars, generation_scalars, tag
from s2e.engine import EpochFinished
from s2e.errors import InvalidInput, first_line
from s2e.studies import GenerationFinished

log = logging.getLogger(__name__)


def imported(module: str, extra: str) -> Any:
    """Import the library of a logger; the message names the extra that installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise InvalidInput(
            f"the library of `{extra}` must be installed to log to it: pip install 's2e[{extra}]' ({error})."
        ) from error


class MetricLogger(Callback):
    """Writes the numbers of a run to a tracker; a subclass has `open`, `write` and `close`.

    Every curve of a member of a population is one series, `stage/curve/member_INDEX`, by epoch. In a search,
    a member is trained anew in every generation, and its epochs are counted on. `search/best_validation_accuracy` is
    written by finished trials.

    A tracker that fails while the run goes on must not end it: the failure is logged as a warning, and nothing more is
    written. A failure of `open` is raised, as nothing is lost then.
    """

    def open(self, started: RunStarted) -> None:
        """Begin to record a run, with its options."""
        raise NotImplementedError

    def write(self, scalars: Mapping[str, float], axis: str, step: int) -> None:
        """Record numbers by name.

        Args:
            scalars: the numbers.
            axis: name of what `step` counts.
            step: increases with every call for the same number.
        """
        raise NotImplementedError

    def close(self, ended: RunEnded) -> None:
        """End the record of the run, with its results."""
        raise NotImplementedError

    def on_start(self, started: RunStarted) -> None:
        """Begin a record."""
        self._stage, self._counts = "", dict[int, tuple[int, int]]()
        try:
            self.open(started)
        except Exception as problem:
            raise InvalidInput(f"{type(self).__name__} could not begin a record: {first_line(problem)}") from problem
        self._working = True

    def on_stage(self, name: str, epochs: int) -> None:  # noqa: ARG002
        """Count epochs from 1 in a new stage; "search, 20 at a time" is the stage "search"."""
        self._stage, self._counts = tag("search" if name.startswith("search,") else name), {}

    def on_epoch(self, done: EpochFinished) -> None:
        """Write the values of all members of the chunk."""
        scalars = epoch_scalars(self._stage, done)
        self._guarded(self.write, scalars, tag(self._stage, "epoch"), self._step(done))

    def on_generation(self, done: GenerationFinished) -> None:
        """Write the best accuracy so far."""
        self._guarded(self.write, generation_scalars(self._stage, done), tag(self._stage, "trial"), done.finished)

    def on_end(self, ended: RunEnded) -> None:
        """Write the results and close the record."""
        self._guarded(self.close, ended)

    def _step(self, done: EpochFinished) -> int:
        """Return the epochs that a chunk's members have been trained in this stage, over all populations so far."""
        before, last = self._counts.get(done.indices[0], (0, 0))
        if done.epoch <= last:  # a new population
            before, last = before + last, 0
        self._counts[done.indices[0]] = before, done.epoch
        return before + done.epoch

    def _guarded(self, action: Any, *arguments: Any) -> None:
        """Call an action of the tracker; after a failure none is called any more."""
        if not self._working:
            return
        try:
            action(*arguments)
        except Exception as problem:
            self._working = False
            log.warning("%s failed, nothing more is written to it: %s", type(self).__name__, first_line(problem))
