"""Small comparisons of search algorithms: their data, what they leave, and their table computed by hand."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import optuna
import pytest

from command_line import save
from s2e.experiments import search_algorithms
from s2e.experiments.search_algorithms import SearchersOptions, compare_searchers
from s2e.runs.directory import Run
from s2e.runs.session import RunLocation
from small_tasks import blobs
from listeners import Log

K = 4
NOISES = ("pair:0.4", "symmetric:0.2")


def in_an_empty_directory_without_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty directory, and draw figures only where they are looked at."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(search_algorithms, "rendered", lambda *_: b"")
    return tmp_path


def quiet() -> Iterator[None]:
    """Let Optuna say nothing but errors."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    yield
    optuna.logging.set_verbosity(before)


def clusters(name: str = "own.npz") -> str:
    """Write clusters with right labels."""
    return save(name, y_train=blobs().clean_labels)


def compared(options: SearchersOptions, path: Path | str, *, jobs: int = 1, resume: bool = False) -> Run:
    return compare_searchers(options, RunLocation(Path(path), device="cpu"), Log(), jobs=jobs, resume=resume)


def numbers(run: Run) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Everything a comparison found: the table, the repeats, and the result but for when and where."""
    result = run.read_json("result.json")
    for name in ("seconds", "processes"):
        result.pop(name, None)
    repeats = {name: found.tolist() for name, found in run.read_arrays("repeats.npz").items()}
    return (run.path / "searchers.csv").read_text(), repeats, result


def rows(run: Run) -> dict[tuple[str, str, int], dict[str, str]]:
    read = csv.DictReader((run.path / "searchers.csv").read_text().splitlines())
    return {(row["sampler"], row["noise"], int(row["trainings"])): row for row in read}


def best_by_hand(trials: Sequence[tuple[float, float]], budget: int) -> list[float]:
    """The smallest error by whole trainings spent, of (cost, error) by trial."""
    best = []
    for paid in range(1, budget + 1):
        spent, known = 0.0, [math.inf]
        for cost, error in trials:
            spent += cost
            if spent <= paid + 1e-6 and not math.isnan(error):
                known.append(error)
        best.append(min(known))
    return best


def assert_rows(run: Run, sampler: str, noise: str, best: Sequence[Sequence[float]]) -> None:
    """Compare the table with the mean of repeats and its standard error, computed here."""
    table, repeats = rows(run), len(best)
    for spent, found in enumerate(zip(*best, strict=True), start=1):
        mean = sum(found) / repeats
        variance = sum((each - mean) ** 2 for each in found) / (repeats - 1)
        row = table[sampler, noise, spent]
        band = 1.96 * math.sqrt(variance / repeats)
        assert [float(row[name]) for name in ("error", "low", "high")] == pytest.approx(
            [mean, mean - band, mean + band], abs=2e-6
        )
        assert row["repeats"] == str(repeats)
    assert (sampler, noise, len(best[0]) + 1) not in table
