"""`s2e reproduce memorization`: populations, their storage, and what is said about the curves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from listeners import Log
from s2e.engine import Member, Task, Trained, train_population
from s2e.errors import UnreadableData
from s2e.experiments import memorization
from s2e.experiments.memorization import (
    TrainingSetting,
    random_schedule,
    read_population,
    reproduce_memorization,
    studies,
)
from s2e.experiments.memorization_results import Trainings, claims_of, is_memorised, together
from s2e.runs import Run, RunLocation
from s2e.specs import MemorizationOptions
from space_runs import save_clean_clusters

pytestmark = pytest.mark.usefixtures("work")

EPOCHS = 3
FILES = ("results.csv", "curves.csv", "data.csv", "config.json")


@pytest.fixture(autouse=True)
def _no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memorization, "write_figure", lambda *_: None)


def options(data: str) -> MemorizationOptions:
    return MemorizationOptions((data,), ("pair:0.4", "symmetric:0.3"), EPOCHS, seeds=2, samples=160, scale="laptop")


def made(given: MemorizationOptions, path: str, *, resume: bool = False) -> Run:
    return reproduce_memorization(given, RunLocation(Path(path), device="cpu"), Log(), resume=resume)


class Killed(BaseException):
    """Stands for the end of a process."""


def test_killed_and_resumed_equals_uninterrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memorization, "studies", few)
    given, trained = options(save_clean_clusters()), []

    def train(task: Task, members: list[Member], **named: Any) -> Trained:
        if len(trained) == 1 and not resumed:
            raise Killed
        trained.append(len(members))
        return train_population(task, members, **named)

    monkeypatch.setattr(memorization, "train_population", train)
    resumed = False
    with pytest.raises(Killed):
        made(given, "killed")
    resumed = True
    killed = made(given, "killed", resume=True)
    assert trained == [2 * 2 * 2 + 2, 2 * 2]  # two rates and a random schedule together; other batches apart
    whole = made(given, "whole")
    for name in ("results.csv", "curves.csv"):
        assert (killed.path / name).read_bytes() == (whole.path / name).read_bytes()
    assert killed.read_json("result.json")["claims"] == whole.read_json("result.json")["claims"]
    page = (killed.path / "README.md").read_text()
    assert "    s2e reproduce memorization " in page
    assert "scale laptop" in page
    assert "![accuracy by epoch: Learning rates](learning-rates.png)" in page


def few(data: Any, *, small: bool) -> dict[str, dict[str, TrainingSetting]]:
    assert small
    base = TrainingSetting(data[0], batch_size=32)
    return {
        "data": {data[0]: base},
        "learning-rates": {"0.001": base, "0.01": TrainingSetting(data[0], batch_size=32, learning_rate=1e-2)},
        "schedules": {
            "none (R = 1)": base,
            "Co-teaching's": base,
            "random 1": TrainingSetting(data[0], batch_size=32, schedule="random-0"),
        },
        "batch-sizes": {"16": TrainingSetting(data[0], batch_size=16)},
    }


def test_each_study_varies_one_choice() -> None:
    for small in (False, True):
        declared = studies(("mnist", "cifar10"), small=small)
        base = TrainingSetting("mnist" if small else "cifar10")
        for study, field in (("optimizers", "optimizer"), ("batch-sizes", "batch_size"), ("networks", "network")):
            assert base in declared[study].values()
            assert len({getattr(setting, field) for setting in declared[study].values()}) == len(declared[study])
        assert len({setting.population for setting in declared["learning-rates"].values()}) == 1
    assert len(declared["networks"]) == 2
    assert len(studies(("mnist", "cifar10"))["networks"]) == 4


def test_random_schedules_are_keep_rates_and_differ() -> None:
    first, second = (random_schedule(index, 0, 40) for index in range(2))
    assert first.shape == (40,)
    assert ((first >= 0) & (first <= 1)).all()
    assert (first != second).any()
    np.testing.assert_array_equal(first, random_schedule(0, 0, 40))


def trainings(test: list[float], train: list[float]) -> Trainings:
    return Trainings(np.array([train]), np.array([test]), np.ones((1, len(test))))


RISES_AND_FALLS = trainings([0.2, 0.8, *[0.6] * 10], [0.2, 0.5, *[0.9] * 10])
ONLY_RISES = trainings([0.2, *[0.8] * 11], [0.2, 0.5, *[0.9] * 10])


def test_memorised_means_that_test_falls_while_training_rises() -> None:
    row = RISES_AND_FALLS.row()
    assert (row["test_peak"], row["peak_epoch"], row["test_last"]) == (0.8, 1, pytest.approx(0.6))
    assert is_memorised(row)
    assert not is_memorised(ONLY_RISES.row())


def test_claims_count_the_curves_and_compare_the_schedules() -> None:
    by_noise = {"pair:0.4": RISES_AND_FALLS}
    named = {"none (R = 1)": by_noise, "Co-teaching's": {"pair:0.4": ONLY_RISES}, "random 1": by_noise}
    shown = {"data": {"mnist": by_noise, "digits": {"pair:0.4": ONLY_RISES}}, "schedules": named}
    first, second = claims_of(shown)
    assert (first.verdict.value, first.found) == (
        "in part",
        "in 1 of 2 curves (data 1 of 2); a drop counts from 0.5 points",
    )
    assert second.verdict.value == "reproduced"
    assert list(together(named)) == ["none (R = 1)", "Co-teaching's", "random (1 draw)"]
    named["random 1"] = {"pair:0.4": ONLY_RISES}  # gains as much as Co-teaching's
    assert claims_of({"schedules": named})[-1].verdict.value == "not reproduced"


@pytest.mark.parametrize("about", [["cpu", "0123"], ["cpu", "0123", "soon"], ["cpu", "0123", "nan"], [1.0, 2.0, 3.0]])
def test_population_without_its_device_fingerprint_and_seconds_is_refused(tmp_path: Path, about: list[object]) -> None:
    share = np.full((1, 3), 0.5)
    arrays = {"train": share, "test": share, "precision": share, "about": np.array(about)}
    Run(tmp_path).write_arrays("population-all.npz", arrays)
    entries = [(TrainingSetting("digits"), "pair:0.4", 0)]
    with pytest.raises(UnreadableData, match="`about` is missing or no device, fingerprint and seconds; remove it"):
        read_population(Run(tmp_path), "all", entries, 3)
