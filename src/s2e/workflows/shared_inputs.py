"""Several noise settings over the same inputs, which the members of one population can share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from s2e.data import LabelledData, check_preparation, corrupt_and_split, fingerprint, loading, with_at_most
from s2e.engine import Task, Trainer
from s2e.runs import RunLocation
from s2e.specs import DataSpec, SizedTrainingSpec
from s2e.workflows.pipeline import check_choices, prepared_task


@dataclass(frozen=True, eq=False)
class SharedInputs:
    """Noise settings that share their inputs and their clean validation part.

    Attributes:
        task: task with the labels of the first setting.
        labels: (N,) the noisy labels of each setting, by its name.
        test: test part; not part of the task, and not used for any selection.
    """

    task: Task
    labels: dict[str, NDArray[np.int64]]
    test: LabelledData | None

    @cached_property
    def trainer(self) -> Trainer:
        """The trainer of all populations of the task."""
        return Trainer(self.task)

    def fingerprint(self) -> str:
        """Return the fingerprint of all data that a search uses: the labels of every setting, and validation."""
        noisy = [replace(self.task.train, labels=labels) for labels in self.labels.values()]
        return fingerprint(*noisy, *self.task.evaluate.values())


def load_shared_inputs(
    data: str,
    noises: Sequence[str],
    training: SizedTrainingSpec,
    location: RunLocation,
    *,
    seed: int,
    method: str = "coteaching",
    validation_share: float | None = None,
    samples: int | None = None,
) -> SharedInputs:
    """Load data and draw every noise setting over the same inputs, with a clean validation part.

    Args:
        data: name or path of the data.
        noises: noise settings.
        training: how members are trained.
        location: directory of the data, and the device.
        seed: seed of the noise, the split and the order of the batches.
        method: method of members without one of their own.
        validation_share: share of the training samples to hold out; None for the default.
        samples: most training samples, and most test samples, to use; None for all.
    """
    spec = DataSpec(data, validation="clean", validation_share=validation_share)
    check_preparation(spec, noises)
    check_choices(training, method, location.execution)
    source = with_at_most(loading.load(data, location.root), samples, seed)
    prepared = [corrupt_and_split(source, spec, noise, seed, location.root) for noise in noises]
    labels = {noise: each.splits.train.labels for noise, each in zip(noises, prepared, strict=True)}
    task = prepared_task(prepared[0], training, method, seed=seed, location=location)
    return SharedInputs(task, labels, prepared[0].splits.test)
