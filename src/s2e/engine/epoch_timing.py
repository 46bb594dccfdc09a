"""The time of an epoch of a population, measured on a few steps of a real training.

Letters: P members, B batch, S steps of an epoch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from s2e.data import LabelledData
from s2e.engine.learning_rates import Constant
from s2e.engine.task import EpochFinished, Member, Task
from s2e.engine.training import Trainer
from s2e.methods import Need

EPOCHS = 3
"""Epochs of a measured training; the first, in which libraries choose their kernels, is not timed."""

MIN_SECONDS = 0.1
"""Duration of the timed epochs from which a measurement is exact enough."""

GROWTH = 4
"""Least factor on the steps of an epoch from one measurement to the next, while they are too short."""


def epoch_seconds(task: Task, members: Sequence[Member], *, min_seconds: float = MIN_SECONDS) -> float:
    """Return the expected seconds of an epoch of P members, evaluation included.

    They are trained on the first batches, more of them until the training lasts long enough to be timed, or until they
    are all. Torch's random state is restored, and no checkpoint is written. A step that a long training on a GPU would
    compile is not compiled here, so the time is an upper bound there.

    Args:
        task: settings shared by all members; trained on its device, also where it has an executor.
        members: the population.
        min_seconds: duration of the timed epochs from which no longer measurement follows.
    """
    all_steps = max(1, len(task.train) // task.batch_size)
    steps = min(all_steps, -(-task.train.classes // task.batch_size))
    while True:
        shortened, own = _shortened(task, members, steps, steps / all_steps)
        timer = _EpochTimer()
        Trainer(shortened).train(own, on_epoch=timer)
        if steps == all_steps or timer.seconds >= min_seconds:
            return timer.seconds / (EPOCHS - 1) * all_steps / steps
        enough = min(all_steps, math.ceil(steps * min_seconds / timer.seconds)) if timer.seconds else 0
        steps = min(all_steps, max(GROWTH * steps, enough))


def _shortened(task: Task, members: Sequence[Member], steps: int, share: float) -> tuple[Task, list[Member]]:
    """Return the task with the first batches of its epochs and the same share of its evaluation, and its members.

    The labels are replaced, because each class must have a sample; the time does not depend on them.
    """
    rows = np.arange(len(task.train) if share == 1 else steps * task.batch_size)
    first = task.train.take(rows)
    shortened = replace(
        task,
        train=replace(first, labels=rows % first.classes, clean_labels=None),
        evaluate={name: _first(data, share) for name, data in task.evaluate.items()},
        epochs=EPOCHS,
        plan=Constant(),
        compile=False,
        checkpoints=None,
        executor=None,
    )
    needed = any(Need.TRANSITION in task.method_of(member).needs for member in members)
    transition = np.eye(task.train.classes) if needed else None  # with many classes, the largest array of all
    return shortened, [
        replace(
            member,
            schedule=np.ones(EPOCHS),
            labels=None,
            transition=transition,
            held_out=None,
        )
        for member in members
    ]


def _first(data: LabelledData, share: float) -> LabelledData:
    return data.take(np.arange(math.ceil(share * len(data))))


class _EpochTimer:
    """Measures the epochs of a training from the end of the first, in several threads or chunks of the population."""

    def __init__(self) -> None:
        self._times: dict[tuple[int, ...], list[float]] = {}

    def __call__(self, progress: EpochFinished) -> None:
        self._times.setdefault(progress.indices, []).append(time.perf_counter())

    @property
    def seconds(self) -> float:
        """Length of the union of the timed intervals: threads run at the same time, chunks one after the other."""
        seconds, end = 0.0, -math.inf
        for times in sorted(self._times.values()):
            seconds += max(0.0, times[-1] - max(times[0], end))
            end = max(end, times[-1])
        return seconds
