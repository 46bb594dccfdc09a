"""A trained classifier on disk: weights, classes and the name of the network.

Letters: M networks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from torch import Tensor, nn

from s2e.data import LabelledData
from s2e.engine import Classifier
from s2e.errors import UnreadableData
from s2e.networks import reference_network
from s2e.runs.directory import Run

WEIGHTS = "model.safetensors"


def write_classifier(run: Run, name: str, train: LabelledData, state: Mapping[str, Tensor]) -> None:
    """Write the weights of the M networks of a member.

    Args:
        run: the run to write to.
        name: name of the reference network.
        train: its training data.
        state: weights and buffers, {name: (M, ...)}.
    """
    weights = {f"network{which}.{key}": own for key, tensor in state.items() for which, own in enumerate(tensor)}
    about = {
        "classes": train.class_names,
        "network": name,
        "sample_shape": train.sample_shape,
        "networks": len(next(iter(state.values()))),
    }
    run.write_weights(
        WEIGHTS, weights, {"classifier": json.dumps(about)}
    )  # a single entry: the order of several is not deterministic


def read_classifier(run: Run) -> Classifier:
    """Read the classifier that `write_classifier` wrote."""
    path = run.path / WEIGHTS
    if not path.is_file():
        raise UnreadableData(f"{str(run.path)!r} holds no trained classifier yet: {WEIGHTS} is missing.")
    try:
        weights, metadata = run.read_weights(WEIGHTS)
        about = json.loads(metadata["classifier"])
        names, shape = tuple(about["classes"]), tuple(about["sample_shape"])
        factory = reference_network(about["network"], shape, len(names))
        networks = [with_weights(factory(), weights, f"network{which}.") for which in range(about["networks"])]
    except (UnreadableData, KeyError, TypeError, ValueError, RuntimeError) as problem:
        raise UnreadableData(
            f"{str(path)!r} is not a classifier of this version of s2e ({problem}); train it again."
        ) from problem
    return Classifier(tuple(networks), names, shape)


def with_weights(module: nn.Module, weights: Mapping[str, Tensor], prefix: str) -> nn.Module:
    """Load the weights whose names have the prefix into a module, and return it in evaluation mode."""
    own = {key.removeprefix(prefix): tensor for key, tensor in weights.items() if key.startswith(prefix)}
    module.load_state_dict(own)
    return module.eval()
