"""Small comparisons of search spaces: their data, their options, what they leave, and a result that is made up."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest

from command_line import save
from s2e.experiments import spaces
from s2e.experiments.spaces import SpacesOptions, compare_spaces
from s2e.runs.directory import Run
from s2e.runs.session import RunLocation
from s2e.schedules.spaces import SPACES
from s2e.studies import BestTrial
from small_tasks import blobs
from listeners import Log

TWO_NOISES = ("pair:0.4", "symmetric:0.3")
SMALL = ["--epochs", "3", "--batch-size", "32", "--draws", "2", "--seeds", "2", "--noise", "pair:0.4"]


def in_an_empty_directory_without_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty directory, and draw figures only where they are looked at."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(spaces, "rendered", lambda *_: b"")
    return tmp_path


def clusters(name: str | Path = "own.npz", *, shuffled: bool = False) -> str:
    """Write clusters with right labels and a test part, whose labels may be shuffled."""
    unseen = blobs(96, wrong=0.0, seed=2)
    y_test = np.random.default_rng(0).permutation(unseen.labels) if shuffled else unseen.labels
    return save(str(name), y_train=blobs().clean_labels, x_test=unseen.inputs, y_test=y_test)


def options(data: str, **changes: Any) -> SpacesOptions:
    small = SpacesOptions(data, TWO_NOISES, draws=3, seeds=2, epochs=3, batch_size=32, learning_rate=2e-3, seed=5)
    return replace(small, **changes)


def made(given: SpacesOptions, path: Path | str, *, resume: bool = False) -> Run:
    return compare_spaces(given, RunLocation(Path(path), device="cpu"), Log(), resume=resume)


def contents(run: Run) -> dict[str, bytes]:
    return {
        name: (run.path / name).read_bytes() for name in ("results.csv", "winners.csv", "summary.csv", "schedules.json")
    }


def table(run: Run, name: str = "results.csv") -> list[dict[str, str]]:
    return list(csv.DictReader((run.path / name).read_text().splitlines()))


def found_in(run: Run) -> dict[tuple[str, str], dict[str, Any]]:
    return {(one["noise"], one["space"]): one for one in run.read_json("schedules.json")["schedules"]}


def study(run: Run, noise: str, space: str) -> optuna.Study:
    return optuna.load_study(study_name=f"reproduce spaces/{noise}/{space}", storage=run.storage)


def found(accuracy: float, rate: float = 0.5) -> BestTrial:
    return BestTrial(np.full(3, rate), np.zeros(4), accuracy, 0)


def result(**changes: Any) -> dict[str, Any]:
    """A result in which every space under every noise setting has a figure of its own."""
    single = {"pair:0.4": ["single-3"], "symmetric:0.3": ["single-1"]}
    summary = [
        {"noise": noise, "space": space, "sets": 1, "seeds": 2, "diverged": 0}
        | {"last_10_epochs": {"mean": 0.1 * which + 0.01 * place, "std": 0.001}}
        | {"best_epoch": {"mean": 0.5 + 0.1 * which + 0.01 * place, "std": None}}
        for which, noise in enumerate(TWO_NOISES)
        for place, space in enumerate(SPACES)
    ]
    summary += [{**row, "space": "single"} for row in summary if row["space"] == single[row["noise"]][0]]
    others = [
        {"noise": noise, "space": space, "mean": 0.01 * sign * place, "standard_error": None}
        for noise, sign in zip(TWO_NOISES, (1, -1), strict=True)
        for place, space in enumerate(["coteaching", "single", "rbf", "mlp"])
    ]
    about = {"s2e_minus": others, "draws": 50, "sets": 1, "seeds": 2, "epochs": 200, "seconds": 9.0, "device": "cpu"}
    return {"summary": summary, "single": single, **about, **changes}
