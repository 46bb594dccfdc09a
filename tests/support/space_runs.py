"""Small comparisons of spaces: their data and options, their results, and synthetic results."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import optuna

from command_line import save
from listeners import Log
from s2e.experiments.spaces import compare_spaces
from s2e.runs.directory import Run
from s2e.runs.session import RunLocation
from s2e.schedules import SPACES
from s2e.specs import SpacesOptions
from s2e.studies import BestTrial
from small_runs import options_of
from small_tasks import blobs

TWO_NOISES = ("pair:0.4", "symmetric:0.3")
SINGLES = [f"single-{i}" for i in (1, 2, 3, 4)]


def save_clean_clusters(path: Path | str = "own.npz", *, shuffled: bool = False) -> str:
    """Write clusters with correct labels and a test part, whose labels may be shuffled."""
    unseen = blobs(96, wrong=0.0, seed=2)
    y_test = np.random.default_rng(0).permutation(unseen.labels) if shuffled else unseen.labels
    return save(str(path), y_train=blobs().clean_labels, x_test=unseen.inputs, y_test=y_test)


def space_options(data: str, **changes: Any) -> SpacesOptions:
    small = {"draws": 2, "seeds": 2, "epochs": 3, "batch_size": 64, "learning_rate": 2e-3, "seed": 5}
    return options_of(SpacesOptions, **{"data": (data,), "noises": TWO_NOISES, **small, **changes})


def compare(options: SpacesOptions, path: Path | str, listener: Log | None = None, *, resume: bool = False) -> Run:
    return compare_spaces(options, RunLocation(Path(path), device="cpu"), listener or Log(), resume=resume)


def contents(run: Run) -> dict[str, bytes]:
    names = ("results.csv", "winners.csv", "summary.csv", "schedules.json")
    return {name: (run.path / name).read_bytes() for name in names}


def table(run: Run, name: str = "results.csv") -> list[dict[str, str]]:
    return list(csv.DictReader((run.path / name).read_text().splitlines()))


def study(run: Run, noise: str, space: str, which: int = 0) -> optuna.Study:
    name = f"reproduce spaces/{noise}/{space}" + (f"/{which}" if which else "")
    return optuna.load_study(study_name=name, storage=run.storage)


def found(accuracy: float, rate: float = 0.5) -> BestTrial:
    """A best trial with this validation accuracy and a constant schedule."""
    return BestTrial(np.full(3, rate), np.zeros(4), accuracy, 0)


def result(**changes: Any) -> dict[str, Any]:
    """A synthetic result in which all accuracies of a space under a noise setting are unique."""
    single, single_winners = (
        {noise: [space] for noise, space in zip(TWO_NOISES, spaces, strict=True)}
        for spaces in (("single-3", "single-1"), ("single-2", "single-4"))
    )
    summary = [
        {
            "noise": noise,
            "space": space,
            "sets": 1,
            "seeds": 2,
            "diverged": 0,
            "last_10_epochs": {"mean": 0.1 * setting + 0.01 * index, "std": 0.001},
            "best_epoch": {"mean": 0.5 + 0.1 * setting + 0.01 * index, "std": None},
        }
        for setting, noise in enumerate(TWO_NOISES)
        for index, space in enumerate(SPACES)
    ]
    summary += [{**row, "space": "single"} for row in summary if row["space"] == single[row["noise"]][0]]
    for index, row in enumerate(summary):
        mean = 0.3 + 0.01 * index
        row["winner"] = {"last_10_epochs": {"mean": mean, "std": None}, "best_epoch": {"mean": mean + 0.3, "std": None}}
    differences = [
        {
            "noise": noise,
            "space": space,
            "mean": 0.01 * sign * index,
            "standard_error": None,
            "winner": {"last_10_epochs": {"mean": 0.001 * sign * (index - 2), "standard_error": None}},
        }
        for noise, sign in zip(TWO_NOISES, (1, -1), strict=True)
        for index, space in enumerate(["coteaching", "single", "rbf", "mlp"])
    ]
    about = {"draws": 50, "sets": 1, "seeds": 2, "epochs": 200, "seconds": 9.0, "device": "cpu"}
    rows = {"summary": summary, "s2e_minus": differences, "single": single, "single_winners": single_winners}
    return {**rows, **about, **changes}
