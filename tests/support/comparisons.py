"""Small comparisons, the populations they train, and the same members trained alone."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest

from listeners import Log
from populations import replace_search_trainer
from s2e.data import loading
from s2e.data.preparing import Prepared, corrupt_and_split
from s2e.engine import two_stage
from s2e.engine.task import Member, Task, Trained
from s2e.engine.training import train_population
from s2e.engine.two_stage import train_in_two_stages
from s2e.methods import METHODS
from s2e.networks.factories import reference_network
from s2e.runs.directory import Run
from s2e.runs.session import RunLocation
from s2e.seeds import derive
from s2e.specs import CompareOptions, DataSpec
from s2e.workflows import compare as comparison
from s2e.workflows.compare import compare
from s2e.workflows.defaults import network_for
from s2e.workflows.finished import FinishedTrainings
from s2e.workflows.outcomes import Outcome
from small_runs import options_of
from small_tasks import blobs

EPOCHS, BATCH, RATE = 2, 64, 1e-2
NOISES = ("pair:0.4", "symmetric:0.3")
KEEP_RATE = ("mentornet", "coteaching", "coteaching+", "jocor")
"""Methods with a keep rate."""


def without_figures() -> Iterator[None]:
    """Draw no figures, which have their own tests, and let Optuna log warnings only."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(comparison, "figure_files", lambda _: {"accuracy.svg": b"<svg/>"})
        yield
    optuna.logging.set_verbosity(verbosity)


def save(path: Path, **changes: Any) -> str:
    """Write clusters with correct labels and a test part; arrays are replaced, added, or (None) omitted."""
    data, unseen = blobs(), blobs(96, wrong=0.0, seed=2)
    arrays = {"x_train": data.inputs, "y_train": data.clean_labels, "x_test": unseen.inputs, "y_test": unseen.labels}
    np.savez(path, **{name: array for name, array in {**arrays, **changes}.items() if array is not None})
    return str(path)


def correct_labels(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Data of a benchmark: correct labels, to which noise is added."""
    return save(tmp_path_factory.mktemp("data") / "correct.npz")


def unknown_noise(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Data of a user: an unknown share of the labels is wrong, and there is no test part."""
    return save(tmp_path_factory.mktemp("data") / "own.npz", y_train=blobs().labels, x_test=None, y_test=None)


def options(data: str, *methods: str, **changes: Any) -> CompareOptions:
    tiny: dict[str, Any] = {"noises": NOISES[:1], "seeds": 2, "epochs": EPOCHS, "batch_size": BATCH, "trials": 2}
    tiny |= {"generation_size": 1, "learning_rate": RATE, "sampler": "random", "space": "coteaching"}
    return options_of(CompareOptions, **{"data": data, **tiny, "methods": methods or ("all",), **changes})


def compared(given: CompareOptions, path: Path, log: Log | None = None, *, resume: bool = False) -> Run:
    return compare(given, RunLocation(path), log or Log(), resume=resume)


def outcomes(run: Run) -> dict[tuple[str, str, int], Outcome]:
    return {(one.noise, one.method, one.seed): one for one in FinishedTrainings.of(run).outcomes}


def rows(run: Run, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO((run.path / name).read_text())))


class Killed(BaseException):
    """Stands for the end of a process."""


class Trainings:
    """Records every population that is trained; `kill_after` of them, the process is killed."""

    def __init__(self, patched: pytest.MonkeyPatch, kill_after: int | None = None) -> None:
        self.members: list[list[Member]] = []
        self.tasks: list[Task] = []

        def train(task: Task, members: Sequence[Member], **named: Any) -> Trained:
            if len(self.members) == kill_after:
                raise Killed
            self.tasks.append(task)
            self.members.append(list(members))
            return train_population(task, members, **named)

        patched.setattr(two_stage, "train_population", train)
        replace_search_trainer(train, patched)

    @property
    def sizes(self) -> list[int]:
        return [len(members) for members in self.members]


def prepared(data: str, noise: str, draw: int, *, seed: int = 0, **changes: Any) -> Prepared:
    return corrupt_and_split(loading.load(data, Path()), DataSpec(data, **changes), noise, seed, Path(), draw=draw)


def coteaching_schedule(rate: float, epochs: int = EPOCHS) -> list[float]:
    """Return 1 − τ·min(t/10, 1)."""
    return [1 - rate * min(t / 10, 1) for t in range(epochs)]


def train_alone(made: Prepared, name: str, draw: int, schedule: Sequence[float], *, seed: int = 0) -> Trained:
    """Train one entrant from one seed on one noise setting, in a population of its own."""
    splits = made.splits
    parts = {"valid": splits.valid, "test": splits.test}
    task = Task(
        splits.train,
        reference_network(network_for(splits.train), splits.train.sample_shape, splits.train.classes),
        METHODS[name],
        {part: data for part, data in parts.items() if data is not None},
        len(schedule),
        BATCH,
        derive(seed, "comparison"),
        clean=comparison.halves(splits.valid, seed)[0] if name == "reweight" else None,
    )
    return train_in_two_stages(task, [Member(np.array(schedule), derive(seed, "compared", draw), RATE)]).trained


def assert_outcome(found: Outcome, trained: Trained, evaluated_on: str = "test") -> None:
    curves = trained.curves
    np.testing.assert_array_equal(found.accuracy, curves.accuracy[evaluated_on][0])
    if found.method != "reweight":  # is stopped on the half that it is not trained on
        np.testing.assert_array_equal(found.valid_accuracy, curves.accuracy["valid"][0])
    for name in ("train_accuracy", "label_precision", "kept", "loss"):
        np.testing.assert_array_equal(getattr(found, name), getattr(curves, name)[0], err_msg=name)
    assert found.diverged == curves.diverged[0]
    assert found.evaluated_on == evaluated_on
