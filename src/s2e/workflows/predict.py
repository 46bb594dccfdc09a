"""`s2e predict` without parsing or printing: read samples as in training, predict, score where labels are given.

Letters: N samples, C classes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from s2e.data import ENCODING, reader_from_json
from s2e.data.column_values import value_texts
from s2e.data.input_readers import INPUT_KEYS, ArrayReader, ImageReader
from s2e.data.samples import InputReader
from s2e.data.table_encoding import with_text_names
from s2e.data.table_files import read_table
from s2e.data.table_reader import TableReader
from s2e.errors import InvalidInput, UnreadableData
from s2e.files.arrays import read_npz
from s2e.runs import Run
from s2e.workflows.voting import read_voting

LABEL_KEYS = {key: key.replace("x", "y").replace("X", "y").replace("inputs", "labels") for key in INPUT_KEYS}
"""Keys of the labels in an .npz file, by those of the inputs."""

PREDICTED, CONFIDENCE = "predicted_label", "confidence"
DECIMALS = 6
"""Of probabilities in tables."""


@dataclass(frozen=True, eq=False)
class Predictions:
    """The predictions of a classifier for some samples.

    Attributes:
        ids: N names of the samples.
        class_names: C names.
        probabilities: (N, C), of the vote of the classifier's networks.
        columns: N rows, the columns of the samples to keep: those of a table, otherwise the IDs.
        labels: N given labels, "" where one is missing; None if none are given.
    """

    ids: list[str]
    class_names: tuple[str, ...]
    probabilities: NDArray[np.float64]
    columns: pd.DataFrame
    labels: list[str] | None = None

    @property
    def predicted(self) -> list[str]:
        """Return the most probable class of every sample; "" where there is no prediction."""
        best = np.where(self.has_prediction, self.probabilities.argmax(axis=1), -1)
        return [self.class_names[index] if index >= 0 else "" for index in best.tolist()]

    @property
    def has_prediction(self) -> NDArray[np.bool_]:
        """Return whether the probabilities of each sample are finite, (N,)."""
        finite: NDArray[np.bool_] = np.isfinite(self.probabilities.sum(axis=1))
        return finite

    @property
    def without_prediction(self) -> list[str]:
        """Return the IDs of the samples without a prediction."""
        return [name for name, has in zip(self.ids, self.has_prediction.tolist(), strict=True) if not has]

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of samples by predicted class, the most frequent first."""
        return dict(Counter(name for name in self.predicted if name).most_common())

    @property
    def labelled(self) -> int:
        """Return the number of samples with a given label."""
        return sum(1 for label in self.labels or () if label)

    @property
    def accuracy(self) -> float | None:
        """Return the share of given labels that are predicted; None if none are given."""
        if not self.labels or not self.labelled:
            return None
        pairs = zip(self.labels, self.predicted, strict=True)
        return sum(1 for label, predicted in pairs if label and label == predicted) / self.labelled

    def table(self, *, probabilities: bool = False) -> pd.DataFrame:
        """Return the samples with their predictions, and optionally the probability of every class.

        Columns of the samples that have the names of predictions, as after an earlier prediction, are replaced.
        """
        has = self.has_prediction
        classes = class_values(self.class_names)
        best = pd.Series(
            classes[self.probabilities.argmax(axis=1)], dtype="Int64" if classes.dtype.kind == "i" else object
        )
        found: dict[str, Any] = {
            PREDICTED: best.where(pd.Series(has), None),
            CONFIDENCE: _rounded(self.probabilities.max(axis=1)),
        }
        if probabilities:
            found |= {f"p({name})": _rounded(self.probabilities[:, c]) for c, name in enumerate(self.class_names)}
        kept = self.columns[[name for name in self.columns.columns if name not in found]].reset_index(drop=True)
        return pd.concat([kept, pd.DataFrame(found)], axis=1)

    def summary(self) -> dict[str, Any]:
        """Return what was predicted, ready for JSON."""
        return {
            "samples": len(self.ids),
            "predicted": self.counts,
            "without_prediction": self.without_prediction,
            "labelled": self.labelled,
            "accuracy": self.accuracy,
        }


def predict(run: Run, path: Path) -> Predictions:
    """Predict the classes of the samples in a file, or a folder, like the one the run was trained on."""
    voting = read_voting(run)
    classifier = voting.networks
    reader = run_reader(run)
    if isinstance(reader, TableReader):
        columns = with_text_names(read_table(path))
        samples = reader.read_rows(columns)
    else:
        samples = reader.read(path)
        columns = pd.DataFrame({"id": pd.Series(samples.ids, dtype=object)})  # names may not be UTF-8
    if not len(samples.inputs):
        raise InvalidInput(f"{path} must hold samples to predict, but got none.")
    probabilities = voting.probabilities(samples.inputs, samples.model_samples)
    labels = _given_labels(reader, path, samples.ids, columns, classifier.class_names)
    found = Predictions(samples.ids, classifier.class_names, probabilities, columns, labels)
    if not found.has_prediction.any():
        raise InvalidInput(
            f"no sample of {str(path)!r} has a prediction: the outputs of the classifier are not finite. It "
            "diverged in training, or the inputs are not finite or far larger than in training."
        )
    return found


def run_reader(run: Run) -> InputReader:
    """Return the reader of the data that a run was trained on."""
    if not (run.path / ENCODING).is_file():
        raise UnreadableData(
            f"{str(run.path)!r} has no {ENCODING}, which describes how its data were read; train again."
        )
    return reader_from_json(run.read_json(ENCODING), run.path / ENCODING)


def class_values(names: tuple[str, ...]) -> NDArray[Any]:
    """Return the classes (C,) as integers if all names are integers, otherwise as text."""
    try:
        numbers = [int(name) for name in names]
    except ValueError:
        return np.array(names, dtype=object)
    return np.array(numbers if [str(number) for number in numbers] == list(names) else names)


def _given_labels(
    reader: InputReader, path: Path, ids: list[str], columns: pd.DataFrame, class_names: tuple[str, ...]
) -> list[str] | None:
    """Return the labels that come with the samples: of the label column, the arrays or the class folders."""
    if isinstance(reader, TableReader):
        if reader.label not in columns:
            return None
        codes, texts = value_texts(columns[reader.label], reader.label)
        return [texts[code] if code >= 0 else "" for code in codes.tolist()]
    if isinstance(reader, ImageReader):
        folders = [PurePosixPath(name).parent.name for name in ids]
        return folders if set(folders) <= set(class_names) else None
    return _labels_of_arrays(path, class_names) if isinstance(reader, ArrayReader) else None


def _labels_of_arrays(path: Path, class_names: tuple[str, ...]) -> list[str] | None:
    """Return the labels in an .npz file as names of classes; None if there are none, or others."""

    def select(found: Collection[str]) -> list[str]:
        inputs = next(key for key in INPUT_KEYS if key in found)
        return [key for key in (LABEL_KEYS[inputs],) if key in found]

    for array in read_npz(path, select).values():
        if array.ndim != 1 or array.dtype.kind not in "iuUS":
            return None
        texts = [str(value) for value in array.tolist()]
        if set(texts) <= set(class_names):
            return texts
        if array.dtype.kind in "iu" and array.size and array.min() >= 0 and array.max() < len(class_names):
            return [class_names[index] for index in array.tolist()]  # positions, as in training
    return None


def _rounded(values: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    rounded: NDArray[np.float64] = values.astype(np.float64).round(DECIMALS)
    return rounded
