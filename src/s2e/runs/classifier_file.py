"""A trained classifier on disk and back: its weights, and what is needed to use them.

Letters: M networks, N samples, C classes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from torch import Tensor, nn

from s2e.data.samples import LabelledData
from s2e.engine.inference import Classifier
from s2e.errors import UnreadableData
from s2e.networks.factories import reference_network
from s2e.runs.directory import Run

WEIGHTS = "model.safetensors"


def write_classifier(run: Run, name: str, train: LabelledData, state: Mapping[str, Tensor]) -> None:
    """Write the weights of the M networks of a member.

    Args:
        run: where to.
        name: of the reference network.
        train: what it was trained on.
        state: {name: (M, ...)}.
    """
    weights = {f"network{which}.{key}": own for key, tensor in state.items() for which, own in enumerate(tensor)}
    about = {
        "classes": train.class_names,
        "network": name,
        "sample_shape": train.sample_shape,
        "networks": len(next(iter(state.values()))),
    }
    run.write_weights(WEIGHTS, weights, {"classifier": json.dumps(about)})  # in one piece: the order of several varies


def read_classifier(run: Run) -> Classifier:
    """Read what `write_classifier` wrote."""
    path = run.path / WEIGHTS
    if not path.is_file():
        raise UnreadableData(f"{str(run.path)!r} holds no trained classifier yet: there is no {WEIGHTS} in it.")
    try:
        weights, words = run.read_weights(WEIGHTS)
        about = json.loads(words["classifier"])
        names, shape = tuple(about["classes"]), tuple(about["sample_shape"])
        factory = reference_network(about["network"], shape, len(names))
        networks = [with_weights(factory(), weights, f"network{which}.") for which in range(about["networks"])]
    except (UnreadableData, KeyError, TypeError, ValueError, RuntimeError) as problem:
        raise UnreadableData(
            f"{str(path)!r} is not a classifier of this version of s2e ({problem}); train it again."
        ) from problem
    return Classifier(tuple(networks), names, shape)


def with_weights(module: nn.Module, weights: Mapping[str, Tensor], prefix: str) -> nn.Module:
    """Return the module with those of the weights whose names have the prefix, in evaluation mode."""
    own = {key.removeprefix(prefix): tensor for key, tensor in weights.items() if key.startswith(prefix)}
    module.load_state_dict(own)
    return module.eval()
