"""TensorBoard: event files in a directory, shown by `tensorboard --logdir DIR`."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from s2e.callbacks.interface import RunEnded, RunStarted
from s2e.callbacks.metric_logger import MetricLogger, imported

FLUSH_SECONDS = 10
"""Seconds after which what was written is in the file, also if the process is killed."""


class TensorBoardCallback(MetricLogger):
    """Writes scalars, options and results as event files of TensorBoard; needs `pip install 's2e[tensorboard]'`.

    Args:
        directory: directory of the event files; when None, `tensorboard` in the run directory, or in the working
            directory where there is none.
    """

    def __init__(self, directory: str | PathLike[str] | None = None) -> None:
        imported("tensorboard", "tensorboard")
        self.directory = directory
        self._writer: Any = None

    def open(self, started: RunStarted) -> None:
        """Open an event file and write the options as text."""
        directory = (started.directory or Path()) / "tensorboard" if self.directory is None else Path(self.directory)
        torch_tensorboard = imported("torch.utils.tensorboard", "tensorboard")
        self._writer = torch_tensorboard.SummaryWriter(str(directory), flush_secs=FLUSH_SECONDS)
        rows = "\n".join(f"| {name} | {value} |" for name, value in started.settings.items())
        self._writer.add_text(started.command, f"| option | value |\n|---|---|\n{rows}")

    def write(self, scalars: Mapping[str, float], axis: str, step: int) -> None:  # noqa: ARG002
        """Write scalars."""
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, step)

    def close(self, ended: RunEnded) -> None:
        """Write the results as scalars of step 0, and close the file."""
        self.write({f"result/{name}": value for name, value in ended.metrics.items()}, "result", 0)
        self._writer.close()
        self._writer = None
