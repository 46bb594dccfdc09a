"""A trained classifier on disk: weights, classes, the name of the network and its normalisation of images.

Letters: M networks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from s2e.data import LabelledData
from s2e.engine import Classifier
from s2e.errors import InvalidInput, UnreadableData, first_line
from s2e.files.fields import Fields
from s2e.files.json_text import parse_json
from s2e.networks import ChannelStatistics, Factory, NormalisedFactory, reference_network
from s2e.runs.directory import Run

WEIGHTS = "model.safetensors"


NORMALISATION = "normalisation"
"""Entry of the description of a classifier whose networks normalise images."""

VOTES = "votes"
"""Entry of the description of a classifier whose networks have different weights in the vote."""

ROUNDING = 1e-6
"""Tolerance of the sum of these weights."""


def write_classifier(
    run: Run,
    name: str,
    train: LabelledData,
    state: Mapping[str, Tensor],
    normalisation: ChannelStatistics | None = None,
    votes: Sequence[float] | None = None,
) -> None:
    """Write the weights of the M networks of a classifier.

    Args:
        run: the run to write to.
        name: name of the reference network.
        train: its training data.
        state: weights and buffers, {name: (M, ...)}.
        normalisation: by which the networks normalise images, if they do.
        votes: M weights of the networks in the vote, which sum to 1; equal ones when None.
    """
    weights = {f"network{which}.{key}": own for key, tensor in state.items() for which, own in enumerate(tensor)}
    about = {
        "classes": train.class_names,
        "network": name,
        "sample_shape": train.sample_shape,
        "networks": len(next(iter(state.values()))),
        **normalisation_to_json(normalisation),
        **votes_to_json(votes),
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
        about = described(metadata, "classifier", path)
        names, shape = class_names(about), about.shape("sample_shape")
        factory = with_normalisation(reference_network(about.text("network"), shape, len(names)), about)
        networks = restored_networks(factory, weights, "network", about.integer("networks", least=1))
        votes = read_votes(about, len(networks))
    except InvalidInput as problem:  # of the network's name, or of its weights
        raise UnreadableData(f"{str(path)!r} is damaged: {str(problem).rstrip('.')}; train it again.") from problem
    except UnreadableData as problem:
        raise UnreadableData(f"{str(problem).rstrip('.')}; train it again.") from problem
    return Classifier(networks, names, shape, votes)


def described(metadata: Mapping[str, str], key: str, path: Path) -> Fields:
    """Return the description in the metadata of a file of weights."""
    if key not in metadata:
        raise UnreadableData(f"{str(path)!r} is not a classifier of this version of s2e.")
    return Fields(parse_json(metadata[key], path), path)


def class_names(about: Fields) -> tuple[str, ...]:
    """Return the names of the classes in the description of a classifier."""
    names = about.texts("classes")
    if len(names) < 2 or len(set(names)) < len(names):
        raise about.error("classes", "the different names of two or more classes", list(names))
    return names


def normalisation_to_json(statistics: ChannelStatistics | None) -> dict[str, Any]:
    """Return the entry of a classifier's description that `with_normalisation` reads; empty if there is nothing."""
    return {} if statistics is None else {NORMALISATION: statistics._asdict()}


def votes_to_json(votes: Sequence[float] | None) -> dict[str, Any]:
    """Return the entry of a classifier's description that `read_votes` reads; empty for equal weights."""
    return {} if votes is None else {VOTES: list(votes)}


def read_votes(about: Fields, networks: int) -> tuple[float, ...] | None:
    """Return the weights of a classifier's networks in the vote; None for equal ones."""
    if VOTES not in about:
        return None
    votes = about.numbers(VOTES)
    if len(votes) != networks or min(votes) < 0 or abs(sum(votes) - 1) > ROUNDING:
        raise about.error(VOTES, f"{networks} weights that sum to 1", list(votes))
    return votes


def with_normalisation(network: Factory, about: Fields) -> Factory:
    """Return the factory of networks that normalise images as the description of a classifier says."""
    if NORMALISATION not in about:
        return network
    written = about.fields(NORMALISATION)
    mean, std = (written.numbers(name) for name in ChannelStatistics._fields)
    channels = about.shape("sample_shape")[0]
    if not len(mean) == len(std) == channels or min(std) <= 0:
        raise about.error(NORMALISATION, f"means and positive deviations of {channels} channels", written.values)
    return NormalisedFactory(network, ChannelStatistics(mean, std))


def restored_networks(
    factory: Factory, weights: Mapping[str, Tensor], prefix: str, count: int, *, may_be_large: bool = False
) -> tuple[nn.Module, ...]:
    """Return modules of a factory with the weights whose names begin with `prefix` and a number, in evaluation mode.

    Unless `may_be_large`, the shapes of the weights are compared before a module is made, so that a file cannot ask for
    a module that is larger than the file itself.
    """
    stored = {name.partition(".")[0] for name in weights if name.startswith(prefix)}
    if stored != {f"{prefix}{which}" for which in range(min(count, len(stored) + 1))}:
        raise InvalidInput(f"it must hold the weights of {count} networks, but holds those of {len(stored)}.")
    if not may_be_large:
        with torch.device("meta"):
            expected = {name: tensor.shape for name, tensor in factory().state_dict().items()}
    modules = []
    for which in range(count):
        start = f"{prefix}{which}."
        own = {key.removeprefix(start): tensor for key, tensor in weights.items() if key.startswith(start)}
        if not may_be_large and {name: tensor.shape for name, tensor in own.items()} != expected:
            raise InvalidInput(f"the weights of network {which} are not those of the network that it names.")
        module = factory()
        try:
            module.load_state_dict(own)
        except RuntimeError as problem:
            raise InvalidInput(f"the weights of network {which} cannot be loaded: {first_line(problem)}") from problem
        modules.append(module.eval())
    return tuple(modules)
