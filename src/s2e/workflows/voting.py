"""The classifier of a run: its networks, and the models of scikit-learn that vote beside them.

Letters: N samples, C classes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from s2e.data import ENCODING, reader_from_json
from s2e.data.model_samples import ModelSamples
from s2e.data.table_reader import TableReader
from s2e.engine import Classifier
from s2e.ensembles import NETWORKS, PooledModels, flat
from s2e.errors import InvalidInput, UnreadableData
from s2e.runs import Run, described, read_classifier

MODELS = "models.safetensors"
"""File of a run with the data that the models were fitted to; they are fitted again when it is read."""


@dataclass(frozen=True, eq=False)
class VotingClassifier:
    """The classifier of a run.

    Attributes:
        networks: its networks.
        models: models that vote beside them; None if the networks predict alone.
    """

    networks: Classifier
    models: PooledModels | None = None

    def probabilities(self, inputs: NDArray[Any], model_samples: ModelSamples | None = None) -> NDArray[np.float64]:
        """Return the probability of every class, (N, C).

        Args:
            inputs: (N, ...) of the networks.
            model_samples: the same samples as the models take them; None where these take the inputs.
        """

        def vote() -> NDArray[np.float64]:
            return self.networks.vote(inputs)

        if self.models is None:
            return vote()
        return self.models.probabilities(flat(inputs) if model_samples is None else model_samples, vote)


def voters_title(networks: int, votes: Mapping[str, float]) -> str:
    """Return what votes in a classifier, that with most votes first, as "6 networks and extra-trees".

    Args:
        networks: number of networks.
        votes: share of the votes of each model, by name; `NETWORKS` for the networks.
    """
    own = f"{networks} networks" if networks > 1 else "one network"
    *others, last = [own if name == NETWORKS else name for name in sorted(votes, key=lambda name: -votes[name])]
    return f"{', '.join(others)} and {last}" if others else last


def write_models(run: Run, models: PooledModels | None) -> None:
    """Write the models of a run; that there are none if an earlier result of the run had some."""
    if models is None and not (run.path / MODELS).exists():
        return
    arrays = {} if models is None else models.arrays()
    about = {} if models is None else models.about()
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
    run.write_weights(MODELS, tensors, {"models": json.dumps(about)})


def read_voting(run: Run) -> VotingClassifier:
    """Read the classifier of a run."""
    networks, path = read_classifier(run), run.path / MODELS
    if not path.is_file():
        return VotingClassifier(networks)
    try:
        tensors, metadata = run.read_weights(MODELS)
        about = described(metadata, "models", path)
        if "weights" not in about:
            return VotingClassifier(networks)
        if "columns" in about and about.values["columns"] != (
            terms := _terms(run)
        ):  # they say how much memory is needed
            raise about.error("columns", f"{terms}, the terms of {ENCODING}", about.values["columns"])
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        models = PooledModels.from_file(about, arrays, len(networks.class_names))
    except (InvalidInput, TypeError) as problem:  # TypeError: a type that NumPy does not have
        raise UnreadableData(f"{str(path)!r} is damaged: {str(problem).rstrip('.')}; train it again.") from problem
    return VotingClassifier(networks, models)


def _terms(run: Run) -> int:
    """Return the number of terms of the text columns of a run."""
    if not (run.path / ENCODING).is_file():
        return 0
    reader = reader_from_json(run.read_json(ENCODING), run.path / ENCODING)
    return sum(column.terms for column in reader.encoder.texts) if isinstance(reader, TableReader) else 0
