"""Defaults that depend on the data, the same for all callers: network, epochs, batch size and trials.

A published data set, which is loaded by name, is trained on and searched as in the paper (`SizedTrainingSpec`).
"""

from __future__ import annotations

from dataclasses import fields, replace

from s2e.data import LabelledData
from s2e.data.catalogue import CATALOGUE
from s2e.networks import default_network
from s2e.specs import AUTO, SizedTrainingSpec, TrainingSpec
from s2e.studies import DEFAULT_GENERATIONS, GENERATIONS_ON_BENCHMARKS

LARGEST_BATCH, SMALLEST_BATCH = 128, 16
STEPS_PER_EPOCH = 10
"""Fewest steps in an epoch, if there are enough samples; with fewer, networks hardly learn."""

STEPS = 4_000
"""Steps of a training: about the number in which the reference networks learn easy patterns and then memorise."""

FEWEST_EPOCHS, MOST_EPOCHS = 40, 100
"""Schedules fall over the first tens of epochs, whatever their number."""

WIDTHS = ((2_000, 64), (10_000, 128))
"""Samples up to which the hidden layer of the MLP has this width; with more it has `LARGEST_WIDTH`, as in the paper.

Of few samples a narrow network learns as much, and its training takes a half or a third of the time.
"""
LARGEST_WIDTH = 256


def network_for(train: LabelledData) -> str:
    """Return the name of the reference network for training data."""
    name = default_network(train.sample_shape, train.classes)
    width = next((width for most, width in WIDTHS if len(train) <= most), LARGEST_WIDTH)
    return f"mlp:widths={width}" if name == "mlp" else name


def batch_size_for(samples: int) -> int:
    """Return a power of two from 16 to 128 that leaves ten steps in an epoch, but no more than the samples."""
    size = LARGEST_BATCH
    while size > SMALLEST_BATCH and samples < STEPS_PER_EPOCH * size:
        size //= 2
    return max(1, min(size, samples))


def epochs_for(samples: int, batch_size: int) -> int:
    """Return the number of epochs, from 40 to 100, that makes about 4,000 steps."""
    return min(MOST_EPOCHS, max(FEWEST_EPOCHS, STEPS // max(1, samples // batch_size)))


def is_published(data: str) -> bool:
    """Return whether a name is that of a published data set, which is trained on as in the paper.

    Digits, which are part of scikit-learn, are not: there are 1,797, and the paper does not train on them.
    """
    return data in CATALOGUE and bool(CATALOGUE[data].downloads)


def sized(training: TrainingSpec, train: LabelledData, data: str = "") -> SizedTrainingSpec:
    """Return the specification with the network, the number of epochs and the batch size decided.

    Args:
        training: how a network is trained.
        train: training data.
        data: name of the data, if they have one.
    """
    samples, paper = len(train), SizedTrainingSpec() if is_published(data) else None
    if training.network == AUTO and paper is None:
        training = replace(training, network=network_for(train))
    batch_size = training.batch_size or (batch_size_for(samples) if paper is None else paper.batch_size)
    epochs = training.epochs or (epochs_for(samples, batch_size) if paper is None else paper.epochs)
    return _with_sizes(training, epochs, batch_size)


def longest(training: TrainingSpec) -> SizedTrainingSpec:
    """Return the specification with the most epochs that may be decided, to check it before data are loaded."""
    return _with_sizes(training, training.epochs or MOST_EPOCHS, training.batch_size or SMALLEST_BATCH)


def default_generations(data: str) -> int:
    """Return the number of generations of a search on data of this name whose number of trials is not given."""
    return GENERATIONS_ON_BENCHMARKS if is_published(data) else DEFAULT_GENERATIONS


def _with_sizes(training: TrainingSpec, epochs: int, batch_size: int) -> SizedTrainingSpec:
    given = {each.name: getattr(training, each.name) for each in fields(training)}
    return SizedTrainingSpec(**{**given, "epochs": epochs, "batch_size": batch_size})
