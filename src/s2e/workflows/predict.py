"""`s2e predict` without parsing or printing: read samples as in training, predict, write a table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from s2e.data import ENCODING, reader_from_json
from s2e.errors import InvalidInput, UnreadableData
from s2e.runs import Run, csv_text, read_classifier


@dataclass(frozen=True, eq=False)
class Predictions:
    """The predictions of a classifier for some samples.

    Attributes:
        ids: N names of the samples.
        class_names: C names.
        probabilities: (N, C), of the vote of the classifier's networks.
    """

    ids: list[str]
    class_names: tuple[str, ...]
    probabilities: NDArray[np.float64]

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

    def table(self) -> str:
        """Return one row for each sample as comma-separated text: its ID, the prediction, and all probabilities."""
        rows = [
            {"id": name, "predicted": predicted, "probability": float(own.max())}
            | {f"p({label})": float(value) for label, value in zip(self.class_names, own.tolist(), strict=True)}
            for name, predicted, own in zip(self.ids, self.predicted, self.probabilities, strict=True)
        ]
        return csv_text(rows)


def predict(run: Run, path: Path) -> Predictions:
    """Predict the classes of the samples in a file, or a folder, like the one the run was trained on."""
    classifier = read_classifier(run)
    if not (run.path / ENCODING).is_file():
        raise UnreadableData(
            f"{str(run.path)!r} has no {ENCODING}, which describes how its data were read; train again."
        )
    samples = reader_from_json(run.read_json(ENCODING), run.path / ENCODING).read(path)
    if not len(samples.inputs):
        raise InvalidInput(f"{path} must hold samples to predict, but got none.")
    found = Predictions(samples.ids, classifier.class_names, classifier.vote(samples.inputs))
    if not found.has_prediction.any():
        raise InvalidInput(
            f"no sample of {str(path)!r} has a prediction: the outputs of the classifier are not finite. It "
            "diverged in training, or the inputs are not finite or far larger than in training."
        )
    return found
