"""Small data, tasks and members that train in seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from torch import nn

from s2e.data.samples import LabelledData, Splits
from s2e.engine.task import Member, Task
from s2e.methods import Method, Need

if TYPE_CHECKING:
    from s2e.workflows.entrants import Setting

TRANSITION = np.eye(4) * 0.7 + np.roll(np.eye(4), 1, axis=1) * 0.3
"""Transition matrix of the labels of `blobs`, for methods that need one."""


def blobs(
    samples: int = 192, classes: int = 4, features: int = 6, *, wrong: float = 0.3, seed: int = 0
) -> LabelledData:
    """Gaussian clusters, one per class, with a share of wrong labels."""
    generator = np.random.default_rng(seed)
    clean = generator.permutation(np.arange(samples) % classes).astype(np.int64)
    centres = np.random.default_rng(99).normal(size=(classes, features)) * 2
    inputs = (centres[clean] + generator.normal(size=(samples, features))).astype(np.float32)
    noisy = np.where(generator.random(samples) < wrong, (clean + 1) % classes, clean)
    return LabelledData(inputs, noisy, tuple("abcdefgh"[:classes]), clean_labels=clean)


def small_mlp(features: int = 6, classes: int = 4) -> nn.Module:
    return nn.Sequential(nn.Linear(features, 16), nn.ReLU(), nn.Linear(16, classes))


def task(train: LabelledData, method: Method, *, network: object = small_mlp, **changes: object) -> Task:
    clean = blobs(96, wrong=0.0, seed=1) if Need.CLEAN_SAMPLES in method.needs else None
    settings = {"evaluate": {}, "epochs": 4, "batch_size": 32, "clean": clean, **changes}
    return Task(train, network, method, **settings)  # type: ignore[arg-type]


def member(keep: float = 0.7, *, seed: int = 0, epochs: int = 4, **changes: object) -> Member:
    schedule = np.linspace(1.0, keep, epochs)
    return Member(schedule, seed, **{"transition": TRANSITION, **changes})  # type: ignore[arg-type]


def setting(noise_rate: float | None = 0.3, validation: str = "clean", shape: tuple[int, ...] = (6,)) -> Setting:
    """A noise setting of a comparison, with four samples."""
    from s2e.data.preparing import Prepared  # here, since tests of the engine need neither
    from s2e.workflows.entrants import Setting

    part = LabelledData(np.zeros((4, *shape), dtype=np.float32), np.arange(4) % 2, ("a", "b"))
    return Setting("pair:0.3", 0, Prepared(Splits(part, part, None), validation, noise_rate))
