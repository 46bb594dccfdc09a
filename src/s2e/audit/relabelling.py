"""Relabelling of a validation part with noisy labels, before schedules are compared on it.

Agreement with noisy labels ranks two classifiers correctly if the noise is symmetric, but with a weak signal: with a
share ρ of wrong labels among two classes, a difference of δ in accuracy shows as (1 − 2ρ) δ, while its standard error
stays the same. Therefore a population of Co-teaching pairs is trained first, with noise rates from low to high. For
every held-out sample, their predictions and the given label are two independent pieces of evidence. An audit of all
samples combines them, and the most probable label replaces the given one, except for labels of doubtful classes. Pairs
whose training diverged are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from s2e import schedules
from s2e.audit.evidence import Evidence, records_of
from s2e.audit.label_model import audit
from s2e.engine import VALIDATION, EpochFinished, Member, Task, train_population
from s2e.errors import TrainingDiverged
from s2e.methods import Coteaching
from s2e.seeds import derive

ASSUMED_NOISE_RATES = (0.2, 0.32, 0.44, 0.56, 0.68, 0.8)
"""Noise rates of the Co-teaching schedules, from one that keeps most samples to one that keeps few."""


def relabelled_validation(
    task: Task, *, learning_rate: float, seed: int, on_epoch: Callable[[EpochFinished], None] | None = None
) -> NDArray[np.int64]:
    """Return the labels of the validation part, relabelled.

    Args:
        task: data and network; evaluates "valid", whose labels are as noisy as the training labels.
        learning_rate: initial learning rate of every member.
        seed: seed of their initial weights.
        on_epoch: called after every epoch.
    """
    members = [
        Member(
            schedules.coteaching(rate, task.epochs),
            derive(seed, "relabelling", index),
            learning_rate,
            method=Coteaching(by_class=getattr(task.method, "by_class", False)),
        )
        for index, rate in enumerate(ASSUMED_NOISE_RATES)
    ]
    trained = train_population(task, members, on_epoch=on_epoch)
    usable = np.flatnonzero(~trained.curves.diverged).tolist()
    if not usable:
        raise TrainingDiverged(len(members))
    evidence = Evidence.from_records(records_of(task, trained, usable, task.evaluate[VALIDATION]))
    found = audit(evidence)
    labels = np.where(found.doubtful[evidence.labels], evidence.labels, found.suggested)
    return labels[len(task.train) :]


def with_validation_labels(task: Task, labels: NDArray[np.int64]) -> Task:
    """Return the task with other validation labels."""
    valid = task.evaluate[VALIDATION]
    return replace(task, evaluate={**task.evaluate, VALIDATION: replace(valid, labels=labels)})
