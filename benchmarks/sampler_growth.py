"""CPU time in which a search asks its next generation, against the number of its finished trials.

A study with random points and noisy scores is written to SQLite and opened again, as by `--resume`. The first
generation after that reads all trials; the next ones are what a running search asks. The median of those is reported.

    python benchmarks/sampler_growth.py --out sampler_growth.json
    python benchmarks/sampler_growth.py --samplers curve newton tpe --trials 100 1500
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import statistics
import tempfile
import time
from itertools import product
from pathlib import Path

import numpy as np
import optuna
from optuna.distributions import FloatDistribution

from s2e.samplers import SAMPLERS, landmarks
from s2e.schedules import Space
from s2e.schedules import space as space_named
from s2e.studies import Search, SearchPlan
from s2e.studies.loop import next_generation
from s2e.studies.studies import open_study
from s2e.studies.trials import VALIDATION_ACCURACY

EPOCHS, K = 200, 6


def write_trials(storage: str, space: Space, count: int) -> None:
    """Write a study of finished trials, with an accuracy for each epoch as a search has it."""
    generator = np.random.default_rng(count)
    points = generator.random((count, space.dimension))
    curves = space.decode(points, EPOCHS, at=landmarks(EPOCHS))
    values = ((curves - np.linspace(1.0, 0.55, curves.shape[1])) ** 2).mean(axis=1) + 0.01 * generator.normal(
        size=count
    )
    distributions = {name: FloatDistribution(0.0, 1.0) for name in space.names}
    open_study(storage, "growth", {}).add_trials(
        optuna.create_trial(
            value=float(value),
            params=dict(zip(space.names, point, strict=True)),
            distributions=distributions,
            user_attrs={VALIDATION_ACCURACY: generator.random(EPOCHS).round(6).tolist()},
        )
        for point, value in zip(points.tolist(), values, strict=True)
    )
    gc.collect()  # closes the storage


def measure(sampler: str, space: Space, storage: str, trials: int, generations: int) -> dict[str, object]:
    """Return the CPU seconds of the first generation and the median of the next ones."""
    plan = SearchPlan.named(
        space, sampler, epochs=EPOCHS, trials=trials + K * (generations + 2), generation_size=K, seed=1
    )
    search, seconds = Search(plan, open_study(storage, "growth", {})), []
    for _ in range(generations + 1):
        began = time.process_time()
        asked = next_generation(search, EPOCHS)
        seconds.append(time.process_time() - began)
        for trial in asked:
            search.study.tell(trial.number, 0.02)
    median = statistics.median(seconds[1:])
    return {
        "sampler": sampler,
        "trials": trials,
        "cpu_s_per_generation": round(median, 3),
        "first_s": round(seconds[0], 3),
    }


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, nargs="+", default=[100, 300, 600, 1500, 5000])
    parser.add_argument("--samplers", nargs="+", choices=SAMPLERS, default=["curve"])
    parser.add_argument("--space", default="s2e")
    parser.add_argument("--generations", type=int, default=5, help="generations of which the median is taken")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    space, rows = space_named(arguments.space), []
    print(f"{'sampler':14}{'trials':>8}{'CPU s':>10}{'first':>10}")
    for trials, sampler in product(arguments.trials, arguments.samplers):
        with tempfile.TemporaryDirectory() as folder:
            storage = f"sqlite:///{folder}/study.db"
            write_trials(storage, space, trials)
            row = measure(sampler, space, storage, trials, arguments.generations)
            gc.collect()
        rows.append(row)
        print(f"{sampler:14}{trials:8}{row['cpu_s_per_generation']:10}{row['first_s']:10}", flush=True)
        if arguments.out:
            about = {"processor": platform.processor(), "space": arguments.space, "generation_size": K}
            arguments.out.write_text(json.dumps({**about, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
