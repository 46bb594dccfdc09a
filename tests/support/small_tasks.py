"""Small data, tasks and members that train in seconds."""

from __future__ import annotations

import numpy as np
from torch import nn

from s2e.data.preparing import Prepared
from s2e.data.samples import LabelledData, Splits
from s2e.engine.task import Member, Task
from s2e.methods import Method, Need
from s2e.workflows.entrants import Setting

TRANSITION = np.eye(4) * 0.7 + np.roll(np.eye(4), 1, axis=1) * 0.3
"""What `blobs` does to its labels; for methods that need it."""


def blobs(
    samples: int = 192, classes: int = 4, features: int = 6, *, wrong: float = 0.3, seed: int = 0
) -> LabelledData:
    """Gaussian clusters, a share of them mislabelled."""
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
    """A noise setting of a comparison, on next to no data."""
    part = LabelledData(np.zeros((4, *shape), dtype=np.float32), np.arange(4) % 2, ("a", "b"))
    return Setting("pair:0.3", 0, Prepared(Splits(part, part, None), validation, noise_rate))
