"""Small data and networks that train in seconds."""

from __future__ import annotations

import functools
import gc
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from alembic.util import pyfiles
from sqlalchemy import event
from sqlalchemy.engine import Engine
from torch import nn

from s2e.contestants import Setting
from s2e.data import LabelledData, Splits
from s2e.methods import Method, Need
from s2e.preparation import Prepared
from s2e.tasks import Member, Task

# Tiny tensors gain nothing from more threads, lose much when the machine is busy, and round by their number.
torch.set_num_threads(1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """Run one after the other where there is a GPU to share: some tests time it, some fill it."""
    return 1 if torch.cuda.is_available() else None


@pytest.fixture(autouse=True, scope="session")
def _hasty() -> Iterator[None]:
    gc.collect()
    gc.freeze()  # what was imported stays, and need not be looked through for garbage again and again
    event.listen(Engine, "connect", trust_the_machine)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pyfiles, "load_module_py", load_migrations_once(pyfiles.load_module_py))
        yield
    event.remove(Engine, "connect", trust_the_machine)


def trust_the_machine(connection: object, _: object) -> None:
    """Do not wait for the disk: processes die here, the machine does not, and waiting is much of the time it takes."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous=OFF")


def load_migrations_once(load: Callable[[str, Path], ModuleType]) -> Callable[[str, Path], ModuleType]:
    """Read Optuna's migrations, of which each study that is opened asks but the newest, once and not for each study."""
    read = functools.cache(load)
    return lambda name, path: (read if Path(path).parent.name == "versions" else load)(name, path)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


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


@pytest.fixture
def train_data() -> LabelledData:
    return blobs()


@pytest.fixture
def valid_data() -> LabelledData:
    return blobs(96, wrong=0.0, seed=1)


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
