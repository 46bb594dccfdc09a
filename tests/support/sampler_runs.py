"""Small comparisons of samplers: their options, their results, and the same results computed trial by trial."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from listeners import Log
from s2e.experiments.samplers import compare_samplers
from s2e.experiments.schedule_table.table import ScheduleTable, draw_points
from s2e.runs.directory import Run
from s2e.runs.session import RunLocation
from s2e.schedules import SPACES
from s2e.specs import SamplersOptions
from small_runs import options_of

K = 4
NOISES = ("pair:0.4", "symmetric:0.2")
EPOCHS = 18
"""Of the synthetic table."""


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


def write_table(path: Path) -> str:
    """Write a synthetic table in which good schedules start badly, so that early stopping stops some of the best."""
    space, draws, proposed, again = SPACES["coteaching"], 48, 4, 12
    generator = np.random.default_rng(0)
    points = draw_points(draws, len(space.names), 1)
    found = np.stack([draw_points(proposed, len(space.names), 2)] * len(NOISES))

    def accuracy(at: Any, shape: tuple[int, ...], best_rate: float) -> Any:
        """Return accuracies (*shape, n, T) of points (n, D); schedules that end at the best rate end best."""
        last = space.decode(at, EPOCHS)[:, -1]  # (n,)
        reached = 0.95 - np.abs(last - best_rate) / 2 + generator.normal(0, 0.01, size=(*shape, len(at)))
        late = np.clip((np.arange(1, EPOCHS + 1) - 3) / 5, 0, 1)  # (T,)
        return np.clip((1 - late) * (0.8 - 0.6 * reached[..., None]) + late * reached[..., None], 0, 1)

    table = ScheduleTable(
        "coteaching",
        NOISES,
        points,
        np.stack([accuracy(points, (), rate) for rate in (0.6, 0.8)]),  # (S, n, T)
        np.stack([np.moveaxis(accuracy(points[:again], (2,), rate), 0, 1) for rate in (0.6, 0.8)]),  # (S, r, m, T)
        found,
        np.stack([accuracy(found[0], (), rate) for rate in (0.6, 0.8)]),  # (S, q, T)
        {"judged": 1000, "data": "synthetic"},
    )
    np.savez(path, **table.arrays())
    return str(path)
