"""The classifier of a run: its networks, and the models of scikit-learn that vote beside them.

Letters: N samples, C classes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from s2e.engine import Classifier
from s2e.ensembles import PooledModels, flat
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

    def probabilities(self, inputs: NDArray[Any]) -> NDArray[np.float64]:
        """Return the probability of every class for inputs of the networks, (N, C)."""

        def vote() -> NDArray[np.float64]:
            return self.networks.vote(inputs)

        return vote() if self.models is None else self.models.probabilities(flat(inputs), vote)


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
        if "columns" in about:  # sparse samples, which no command has
            raise about.error("columns", "missing", about.values["columns"])
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        models = PooledModels.from_file(about, arrays, len(networks.class_names))
    except (InvalidInput, TypeError) as problem:  # TypeError: a type that NumPy does not have
        raise UnreadableData(f"{str(path)!r} is damaged: {str(problem).rstrip('.')}; train it again.") from problem
    return VotingClassifier(networks, models)
