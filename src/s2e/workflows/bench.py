"""From prepared data to the task that is trained, and several noise settings over the same inputs in one population."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from s2e import schedules
from s2e.data import loading
from s2e.data.preparing import DataOptions, Prepared, corrupt_and_split
from s2e.data.samples import LabelledData, fingerprint
from s2e.engine.devices import device_of
from s2e.engine.task import VALIDATION, Member, Task, check
from s2e.engine.training import Trainer
from s2e.errors import InvalidInput
from s2e.methods import method
from s2e.networks.factories import default_network, reference_network
from s2e.seeds import derive

TEST = "test"
"""Name under which a final training evaluates the test part."""


@dataclass(frozen=True)
class TrainingOptions(DataOptions):
    """Data, and how classifiers are trained on it."""

    method: str = "coteaching"
    network: str = "auto"
    epochs: int = 200
    batch_size: int = 128
    learning_rate: float = 1e-3


def task_of(options: TrainingOptions, prepared: Prepared, device: str, *, order: str = "batches") -> Task:
    """Return what every candidate of a command trains on. It is handed train and validation, never test.

    Args:
        options: how classifiers are trained.
        prepared: the data.
        device: cpu, cuda, …, or auto.
        order: tells the stream of seeds that the order of the batches comes from.
    """
    train, valid = prepared.splits.train, prepared.splits.valid
    task = Task(
        train,
        reference_network(options.network, train.sample_shape, train.classes),
        method(options.method, default_network(train.sample_shape, train.classes)),
        {VALIDATION: valid},
        options.epochs,
        options.batch_size,
        derive(options.seed, order),
        device_of(device),
        clean=valid if prepared.validation == "clean" else None,
    )
    everything = schedules.constant(1.0, options.epochs)
    check(task, [Member(everything, 0, options.learning_rate, transition=np.eye(train.classes))])
    return task


def network_name(given: str, train: LabelledData) -> str:
    """Name the network that is trained: the one given, or the default for these data."""
    return given if given != "auto" else default_network(train.sample_shape, train.classes)


@dataclass(frozen=True, eq=False)
class Bench:
    """Noise settings that share their inputs and their clean validation.

    Attributes:
        task: for the labels of the first setting.
        labels: (N,) the noisy labels of each setting, by its name.
        test: kept away from the task; nothing is ever chosen by it.
    """

    task: Task
    labels: dict[str, NDArray[np.int64]]
    test: LabelledData | None

    @cached_property
    def trainer(self) -> Trainer:
        """Trains populations of the task one after the other."""
        return Trainer(self.task)

    def fingerprint(self) -> str:
        """Tell what a search is handed from other data: the labels of every setting, and validation."""
        noisy = [replace(self.task.train, labels=labels) for labels in self.labels.values()]
        return fingerprint(*noisy, *self.task.evaluate.values())


def bench(options: TrainingOptions, noises: Sequence[str], root: Path, device: str) -> Bench:
    """Draw every noise setting over the same inputs; `options.noise` is not looked at."""
    if not noises or len(set(noises)) < len(noises):
        raise InvalidInput(f"`noise` must name each noise setting once, but got {', '.join(noises) or 'none'}.")
    source = loading.load(options.data, root, label=options.label, id_column=options.id_column)
    data = [DataOptions(options.data, noise, "clean", options.validation_share, options.seed) for noise in noises]
    prepared = [corrupt_and_split(source, each, root) for each in data]
    labels = {noise: each.splits.train.labels for noise, each in zip(noises, prepared, strict=True)}
    return Bench(task_of(options, prepared[0], device), labels, prepared[0].splits.test)
