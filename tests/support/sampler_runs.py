"""Small comparisons of samplers: their options, their results, and the same results computed trial by trial."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from listeners import Log
from s2e.experiments.samplers import compare_samplers
from s2e.runs.directory import Run
from s2e.runs.session import RunLocation
from s2e.specs import SamplersOptions
from small_runs import options_of

K = 4
NOISES = ("pair:0.4", "symmetric:0.2")


def sampler_options(**changes: Any) -> SamplersOptions:
    small = {"repeats": 2, "generation_size": K, "space": "coteaching", "jobs": 1, "seed": 5}
    return options_of(SamplersOptions, **{**small, **changes})


def compare(options: SamplersOptions, path: Path | str, *, resume: bool = False) -> Run:
    return compare_samplers(options, RunLocation(Path(path), device="cpu"), Log(), resume=resume)


def numbers(run: Run) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return the table, the repeats, and the result without seconds and processes."""
    result = run.read_json("result.json")
    for name in ("seconds", "processes"):
        result.pop(name, None)
    repeats = {name: best.tolist() for name, best in run.read_arrays("repeats.npz").items()}
    return (run.path / "searchers.csv").read_text(), repeats, result


def rows(run: Run) -> dict[tuple[str, str, int], dict[str, str]]:
    read = csv.DictReader((run.path / "searchers.csv").read_text().splitlines())
    return {(row["sampler"], row["noise"], int(row["trainings"])): row for row in read}


def best_by_trial(trials: Sequence[tuple[float, float]], budget: int) -> list[float]:
    """Return the smallest error by full trainings spent, from the cost and the error of each trial."""
    best = []
    for allowed in range(1, budget + 1):
        spent, errors = 0.0, [math.inf]
        for cost, error in trials:
            spent += cost
            if spent <= allowed + 1e-6 and not math.isnan(error):
                errors.append(error)
        best.append(min(errors))
    return best


def assert_rows(run: Run, sampler: str, noise: str, best: Sequence[Sequence[float]]) -> None:
    """Compare the table with the mean over repeats and its confidence band, computed here."""
    table, repeats = rows(run), len(best)
    for trainings, errors in enumerate(zip(*best, strict=True), start=1):
        mean = sum(errors) / repeats
        variance = sum((error - mean) ** 2 for error in errors) / (repeats - 1)
        row = table[sampler, noise, trainings]
        band = 1.96 * math.sqrt(variance / repeats)
        assert [float(row[name]) for name in ("error", "low", "high")] == pytest.approx(
            [mean, mean - band, mean + band], abs=2e-6
        )
        assert row["repeats"] == str(repeats)
    assert (sampler, noise, len(best[0]) + 1) not in table
