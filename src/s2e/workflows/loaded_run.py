"""A run made on the command line, opened in Python: its classifier, study, curves, schedule and label audit.

Letters: N samples, C classes, T epochs.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pandas as pd
from numpy.typing import NDArray
from torch import nn

from s2e.audit import AuditedRun, audit_run
from s2e.data.input_readers import ArrayReader, ImageReader
from s2e.data.samples import InputReader, Samples
from s2e.data.table_reader import TableReader
from s2e.engine import export_onnx
from s2e.errors import InvalidInput, InvalidType, S2EWarning, UnreadableData
from s2e.files.fields import Fields
from s2e.runs import read_configuration
from s2e.studies import load_study, storage_to_read, without_password
from s2e.workflows.classifier_runs import open_classifier_run
from s2e.workflows.predict import class_values, run_reader
from s2e.workflows.python_warnings import warns_in_python
from s2e.workflows.voting import VotingClassifier, read_voting

CURVES, SCHEDULE = "curves.npz", "schedule.json"


class RunInputs:
    """Encodes samples as the reader of a run did in training.

    Args:
        reader: the reader.
    """

    def __init__(self, reader: InputReader) -> None:
        self.reader = reader

    def encode(self, X: Any) -> NDArray[Any]:
        """Return the inputs of the networks, (N, ...), uint8 or float32; `X` as for `read`."""
        return np.asarray(self.read(X).inputs)

    def read(self, X: Any) -> Samples:
        """Return the inputs of the networks, and the samples as models take them.

        Args:
            X: a path of a file or folder; otherwise, by the data of the run, a DataFrame with the columns of the
                table (those of labels and IDs may be missing), an array of samples, or a sequence of image files or
                of `PIL.Image` images.
        """
        reader = self.reader
        if isinstance(X, (str, PathLike)):
            return reader.read(Path(X))
        if isinstance(reader, TableReader):
            frame = X if isinstance(X, pd.DataFrame) or not hasattr(X, "to_pandas") else X.to_pandas()
            if not isinstance(frame, pd.DataFrame):
                raise InvalidType(
                    f"`X` must be a DataFrame with the columns of the training table, or a path, but got "
                    f"{type(X).__name__}."
                )
            return reader.read_rows(frame)
        if isinstance(reader, ImageReader):
            images = reader.read_list(X)
            return Samples(images, [str(row) for row in range(len(images))])
        if isinstance(reader, ArrayReader):
            return reader.read_array(np.asarray(X), "`X`")
        raise InvalidType(f"`X` must be a path for data read by {type(reader).__name__}.")


class RunClassifier:
    """The classifier of a run, with the methods of a fitted scikit-learn classifier.

    Args:
        voting: its networks, and the models that vote beside them.
        inputs: encodes samples.

    Attributes:
        classes_: (C,) the classes, as integers if all names are integers, otherwise as text.
        voting: its networks and models.
        inputs: encodes samples as in training.
    """

    def __init__(self, voting: VotingClassifier, inputs: RunInputs) -> None:
        self.voting, self.inputs = voting, inputs
        self.classes_ = class_values(voting.networks.class_names)

    @property
    def networks_(self) -> tuple[nn.Module, ...]:
        """The trained modules, on the CPU in evaluation mode."""
        return self.voting.networks.networks

    @warns_in_python
    def encode(self, X: Any) -> NDArray[Any]:
        """Return the inputs of the networks; see `RunInputs.encode`."""
        return self.inputs.encode(X)

    @warns_in_python
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of every class, (N, C); `X` as for `encode`."""
        read = self.inputs.read(X)
        return self.voting.probabilities(np.asarray(read.inputs), read.model_samples)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of every sample, (N,); `X` as for `encode`."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])

    def export_onnx(self, path: str | PathLike[str]) -> None:
        """Write the networks as an ONNX model from encoded samples to probabilities; see `s2e.engine.export_onnx`."""
        if self.voting.models is not None:
            name = self.voting.models.name
            warnings.warn(f"the ONNX model holds the networks alone, not {name}", S2EWarning, stacklevel=2)
        export_onnx(self.voting.networks, path)


class LoadedRun:
    """A finished run of `s2e search` or `s2e train`; files are read when they are first used.

    Args:
        path: the run directory.
        storage: server of its study; a server that is not named here is not connected to.

    Attributes:
        path: the run directory.
    """

    def __init__(self, path: str | PathLike[str], *, storage: str | None = None) -> None:
        self._run = open_classifier_run(path)
        self._storage = storage
        self.path = self._run.path

    def __repr__(self) -> str:
        return f"s2e.load({str(self.path)!r})"

    @cached_property
    def config(self) -> dict[str, Any]:
        """What made the run: `command`, `options`, `versions`, …"""
        return read_configuration(self._run)

    @cached_property
    def result(self) -> dict[str, Any]:
        """The results, as in `result.json`."""
        if not self._run.has_results:
            raise UnreadableData(
                f"{str(self.path)!r} is not finished: it has no results; continue it with: "
                f"s2e {self.config['command']} --resume --out {self.path}"
            )
        return dict(self._run.read_fields("result.json").values)

    @cached_property
    def schedule(self) -> NDArray[np.float64]:
        """The keep rates that the classifier was trained with, (T,)."""
        return np.array(self._run.read_fields(SCHEDULE).numbers("keep_rates"))

    @cached_property
    def curves(self) -> Mapping[str, Mapping[str, NDArray[Any]]]:
        """Accuracies, losses and keep rates by epoch, (T,) each, by name of the training and quantity."""
        found: dict[str, dict[str, NDArray[Any]]] = {}
        for key, array in self._run.read_arrays(CURVES).items():
            training, _, quantity = key.partition("/")
            found.setdefault(training, {})[quantity] = array
        return found

    @cached_property
    def classifier(self) -> RunClassifier:
        """The classifier: `predict`, `predict_proba`, `classes_`, `networks_`, `export_onnx`."""
        return RunClassifier(read_voting(self._run), RunInputs(run_reader(self._run)))

    @cached_property
    def study(self) -> optuna.Study:
        """All trials of the search, an Optuna study; for a study on a server, give `storage` to `s2e.load`."""
        if self.config["command"] != "search":
            raise InvalidInput(f"{str(self.path)!r} must be a run of s2e search to have a study, but is of s2e train.")
        config = Fields(self.config, self.path / "config.json")
        stored = None if self.config.get("storage") is None else config.text("storage")
        storage = storage_to_read(self._run.storage, stored, self._storage)
        if storage is None:
            raise InvalidInput(
                f"`storage` must be given to `s2e.load` for a study on a server, and be "
                f"{without_password(stored or '')!r}, but got "
                f"{None if self._storage is None else without_password(self._storage)!r}."
            )
        return load_study(storage, config.text("study"))

    @warns_in_python
    def audit(self) -> pd.DataFrame:
        """Return the audit of the training labels, one row for each, the label of lowest quality first.

        The columns are those of `label_issues.csv`, which `s2e audit` writes; here nothing is written.
        """
        return pd.DataFrame(self.audited.table())

    @cached_property
    def audited(self) -> AuditedRun:
        """The audit with its summary and arrays."""
        return audit_run(self._run)


@warns_in_python
def load(path: str | PathLike[str], *, storage: str | None = None) -> LoadedRun:
    """Open a run of `s2e search` or `s2e train`.

    Args:
        path: the run directory.
        storage: URL of the study, as given to `--storage`, for `study` of a run whose study is on a server. A server
            that is not named here is not connected to: it would receive a password of the environment.

    Examples:
        >>> run = s2e.load("runs/search-customers")  # doctest: +SKIP
        >>> run.classifier.predict(pd.read_csv("new.csv"))  # doctest: +SKIP
    """
    return LoadedRun(path, storage=storage)
