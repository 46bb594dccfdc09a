"""Weights & Biases: one run of a project."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

from s2e.callbacks.interface import RunEnded, RunStarted
from s2e.callbacks.metric_logger import MetricLogger, imported


class WandbCallback(MetricLogger):
    """Writes configuration, metrics and results to a run of Weights & Biases; needs `pip install 's2e[wandb]'`.

    Args:
        project: name of the project.
        name: name of the run; chosen by Weights & Biases when None.
        mode: "online", "offline" or "disabled"; the setting of Weights & Biases (`WANDB_MODE`) when None.
        directory: parent directory of its files; the working directory when None.
    """

    def __init__(
        self,
        project: str = "s2e",
        *,
        name: str | None = None,
        mode: str | None = None,
        directory: str | PathLike[str] | None = None,
    ) -> None:
        imported("wandb", "wandb")
        self.project, self.name, self.mode, self.directory = project, name, mode, directory
        self._run: Any = None

    def open(self, started: RunStarted) -> None:
        """Begin a run with the options as its configuration."""
        wandb = imported("wandb", "wandb")
        self._run = wandb.init(
            project=self.project,
            name=self.name,
            mode=self.mode,
            dir=self.directory,
            job_type=started.command,
            config={**started.settings, "run_directory": str(started.directory or "")},
            reinit="create_new",  # a run that the caller has begun is not touched
            settings=wandb.Settings(console="off"),
        )
        self._known: set[str] = set()

    def write(self, scalars: Mapping[str, float], axis: str, step: int) -> None:
        """Write metrics, each drawn over its axis: the steps of the run itself count requests."""
        for name in scalars.keys() - self._known:
            self._run.define_metric(name, step_metric=axis)
            self._known.add(name)
        self._run.log({**scalars, axis: step})

    def close(self, ended: RunEnded) -> None:
        """Write the results to the summary, and end the run."""
        self._run.summary.update({f"result/{name}": value for name, value in ended.metrics.items()})
        self._run.finish(exit_code=0 if ended.error is None else 1)
        self._run = None
