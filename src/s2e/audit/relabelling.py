"""Validation labels that nobody vouches for, relabelled before schedules are compared by them.

How often a classifier agrees with doubtful labels says which of two is better, if the noise is symmetric, but it says
so in a low voice: with a share ρ of wrong labels among two classes a difference of δ in accuracy shows as (1 − 2ρ) δ,
and the luck of the draw stays what it was. So a population of Co-teaching pairs is trained first, told noise rates from
low to high. What they have learnt from the other samples and the label that was given are two witnesses for every
sample held out; an audit of all samples weighs them, and a label that is probably wrong is replaced by the likeliest
other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from s2e import schedules
from s2e.audit.evidence import Evidence, records_of
from s2e.audit.label_model import audit
from s2e.engine.task import VALIDATION, EpochFinished, Member, Task
from s2e.engine.training import train_population
from s2e.methods import Coteaching
from s2e.seeds import derive

TOLD = (0.2, 0.32, 0.44, 0.56, 0.68, 0.8)
"""Noise rates that Co-teaching is told, from one that trusts most labels to one that trusts few."""


def relabelled_validation(
    task: Task, *, learning_rate: float, seed: int, on_epoch: Callable[[EpochFinished], None] | None = None
) -> NDArray[np.int64]:
    """Return the labels of the validation part, relabelled.

    Args:
        task: what is searched for; evaluates "valid", whose labels are as doubtful as those trained on.
        learning_rate: of every member.
        seed: decides their initial weights.
        on_epoch: called after every epoch.
    """
    members = [
        Member(
            schedules.coteaching(told, task.epochs), derive(seed, "mending", place), learning_rate, method=Coteaching()
        )
        for place, told in enumerate(TOLD)
    ]
    trained = train_population(task, members, on_epoch=on_epoch)
    evidence = Evidence.from_records(records_of(task, trained, range(len(members)), task.evaluate[VALIDATION]))
    return audit(evidence).suggested[len(task.train) :]


def with_validation_labels(task: Task, labels: NDArray[np.int64]) -> Task:
    """Return the task with other labels of the validation part."""
    valid = task.evaluate[VALIDATION]
    return replace(task, evaluate={**task.evaluate, VALIDATION: replace(valid, labels=labels)})
