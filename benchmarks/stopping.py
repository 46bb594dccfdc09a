"""What a search loses by ending early: where it ends on the schedule table, and the schedule it then returns.

Every search trains all trials; `is_long_enough` is asked after every generation, with each number of validation
samples. A score has the noise of a training in the table, and that of the validation samples, drawn independently for
every score. Networks that are evaluated on the same samples differ by less.

    python benchmarks/stopping.py --out docs/results/stopping/stopping.json
    python benchmarks/stopping.py --markdown docs/results/stopping/stopping.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import optuna

from s2e.engine import VALIDATION, Curves, Member
from s2e.experiments.schedule_table.surrogate import TableSurrogate
from s2e.experiments.schedule_table.table import PUBLISHED, ScheduleTable
from s2e.studies import GenerationFinished, Search, SearchPlan, Stop, best_trial, is_long_enough, run_generations

GENERATION_SIZE = 6


def one_search(surrogate: TableSurrogate, samples: int, trials: int, seed: int) -> tuple[int, float, float]:
    """Return the trials of a search that ends early, and the expected errors of what it and the whole one return."""
    epochs = surrogate.epochs
    plan = SearchPlan.named("s2e", "curve", epochs=epochs, trials=trials, generation_size=GENERATION_SIZE, seed=seed)
    search = Search(plan, optuna.create_study(direction="minimize"))
    generator = np.random.default_rng([seed, samples])
    ends: list[tuple[int, float]] = []

    def train(members: Sequence[Member], stop: Stop | None) -> Curves:
        curves = surrogate.train(members, stop)
        share = curves.accuracy[VALIDATION][:, -1]
        error = generator.normal(size=len(members)) * np.sqrt(share * (1 - share) / samples)
        curves.accuracy[VALIDATION] = np.clip(curves.accuracy[VALIDATION] + error[:, None], 0.0, 1.0)
        return curves

    def returned() -> float:
        return float(surrogate.error(best_trial(search.study, plan.space, epochs).schedule[None])[0])

    def on_generation(_: GenerationFinished) -> None:
        draws = np.random.default_rng([seed, 1])
        if not ends and is_long_enough(search.study, plan.space, epochs, samples, draws):
            ends.append((len(search.study.trials), returned()))

    run_generations(train, epochs, [search], on_generation=on_generation)
    whole = returned()
    ended, error = ends[0] if ends else (trials, whole)
    return ended, error, whole


def measure(table: ScheduleTable, samples: Sequence[int], repeats: int, trials: int) -> list[dict[str, Any]]:
    """Return a row for each noise setting and number of validation samples; ± is a 95% interval of the mean."""
    rows = []
    for noise in table.noises:
        surrogate = TableSurrogate(table, noise)
        for count in samples:
            found = np.array([one_search(surrogate, count, trials, seed) for seed in range(repeats)])  # (R, 3)
            lost = 100 * (found[:, 1] - found[:, 2])
            error = found[:, 2].mean()
            rows.append(
                {
                    "noise": noise,
                    "validation_samples": count,
                    "trials": found[:, 0].mean(),
                    "fewest": int(found[:, 0].min()),
                    "most": int(found[:, 0].max()),
                    "lost_points": lost.mean(),
                    "interval": 1.96 * lost.std(ddof=1) / np.sqrt(repeats) if repeats > 1 else 0.0,
                    "standard_error_points": 100 * float(np.sqrt(error * (1 - error) / count)),
                }
            )
            print(_line(rows[-1]), flush=True)
    return rows


def markdown(found: dict[str, Any]) -> str:
    """Return the rows as a table."""
    head = [
        f"| noise | validation samples | trials of {found['trials']}, mean (fewest to most) | error of the returned "
        "schedule, minus that after all trials | standard error of validation |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*head, *map(_line, found["rows"])])


def _line(row: dict[str, Any]) -> str:
    return (
        f"| {row['noise']} | {row['validation_samples']:,} | {row['trials']:.0f} ({row['fewest']} to {row['most']}) | "
        f"{row['lost_points']:+.2f} ± {row['interval']:.2f} points | {row['standard_error_points']:.2f} points |"
    )


def main(command_line: Sequence[str] | None = None) -> None:
    """Measure and write, or print what was written as a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=Path, default=PUBLISHED)
    parser.add_argument("--samples", type=int, nargs="+", default=[300, 1000, 5999])
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    arguments = parser.parse_args(command_line)
    if arguments.markdown is not None:
        print(markdown(json.loads(arguments.markdown.read_text())))
        return
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    rows = measure(ScheduleTable.read(arguments.table), arguments.samples, arguments.repeats, arguments.trials)
    if arguments.out is not None:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        about = {"repeats": arguments.repeats, "trials": arguments.trials, "rows": rows}
        arguments.out.write_text(json.dumps(about, indent=2) + "\n")


if __name__ == "__main__":
    main()
