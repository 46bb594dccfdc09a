"""MLflow: one run of an experiment at a tracking URI."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from s2e.callbacks.interface import RunEnded, RunStarted
from s2e.callbacks.metric_logger import MetricLogger, imported

FLUSH_SECONDS = 2.0
"""Numbers are sent at most this often: a request takes longer than many an epoch."""

LONGEST_VALUE = 500
"""Characters of a parameter's value that MLflow keeps."""

METRICS_IN_A_REQUEST, PARAMETERS_IN_A_REQUEST = 1000, 100
"""Most that MLflow accepts."""


class MLflowCallback(MetricLogger):
    """Writes parameters, metrics and results to a run of MLflow; needs `pip install 's2e[mlflow]'`.

    The active run and the tracking URI of the process are not changed.

    Args:
        tracking_uri: URL of a server, or of a database such as "sqlite:///mlflow.db"; the setting of MLflow
            (`MLFLOW_TRACKING_URI`) when None.
        experiment: name of the experiment, which is created if it does not exist.
        run_name: name of the run; chosen by MLflow when None.
    """

    def __init__(
        self, tracking_uri: str | None = None, *, experiment: str = "s2e", run_name: str | None = None
    ) -> None:
        imported("mlflow", "mlflow")
        self.tracking_uri, self.experiment, self.run_name = tracking_uri, experiment, run_name
        self.run_id: str | None = None
        self._client: Any = None

    def open(self, started: RunStarted) -> None:
        """Create a run and write the options as parameters."""
        mlflow, entities = imported("mlflow", "mlflow"), imported("mlflow.entities", "mlflow")
        self._client, self._metric = mlflow.MlflowClient(tracking_uri=self.tracking_uri), entities.Metric
        self._waiting: list[Any] = []
        self._sent = time.monotonic()
        found = self._client.get_experiment_by_name(self.experiment)
        experiment = self._client.create_experiment(self.experiment) if found is None else found.experiment_id
        tags = {"s2e.command": started.command, "s2e.directory": str(started.directory or "")}
        self.run_id = self._client.create_run(experiment, tags=tags, run_name=self.run_name).info.run_id
        parameters = [
            entities.Param(name, str(value)[:LONGEST_VALUE] or "none") for name, value in started.settings.items()
        ]
        for first in range(0, len(parameters), PARAMETERS_IN_A_REQUEST):
            self._client.log_batch(self.run_id, params=parameters[first : first + PARAMETERS_IN_A_REQUEST])

    def write(self, scalars: Mapping[str, float], axis: str, step: int) -> None:  # noqa: ARG002
        """Write metrics, those of some seconds in one request."""
        now = int(1000 * time.time())
        self._waiting += [self._metric(name, value, now, step) for name, value in scalars.items()]
        if time.monotonic() - self._sent >= FLUSH_SECONDS:
            self._send()

    def close(self, ended: RunEnded) -> None:
        """Write the results as metrics, and end the run."""
        self.write({f"result/{name}": value for name, value in ended.metrics.items()}, "result", 0)
        self._send()
        self._client.set_terminated(self.run_id, "FINISHED" if ended.error is None else "FAILED")
        self._client = None

    def _send(self) -> None:
        while self._waiting:
            self._client.log_batch(self.run_id, metrics=self._waiting[:METRICS_IN_A_REQUEST])
            del self._waiting[:METRICS_IN_A_REQUEST]
        self._sent = time.monotonic()
