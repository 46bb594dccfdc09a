"""Processes that share one study with a trivial objective: trials lost, trials trained twice, trials in a second.

    python benchmarks/shared_study.py                                 # a PostgreSQL server of its own
    python benchmarks/shared_study.py --storage sqlite:////tmp/study.db --processes 4 --trials 400

    python benchmarks/shared_study.py --out docs/results/shared-study.json

The processes start together on an empty database. Prints one JSON object, with the command that repeats it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import sqlalchemy

from s2e.studies import read_trials
from s2e.studies.urls import with_driver

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from postgresql import reason_to_skip, running_server
from shared_study import processes, trained_by


def measure(url: str, count: int, trials: int, generation_size: int, timeout: float) -> dict[str, Any]:
    """Let processes train all trials of a study; count them."""
    options = ["--trials", str(trials), "--generation-size", str(generation_size)]
    running = processes(url, count, *options)
    for process in running:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    began = time.perf_counter()
    trained = [trained_by(process, timeout) for process in running]
    seconds = time.perf_counter() - began
    times = Counter(number for numbers in trained for number in numbers)
    stored = read_trials(url, "search")
    finished = {trial.number for trial in stored if trial.state.is_finished()}
    points = {tuple(trial.params.values()) for trial in stored}
    return {
        "storage": url.partition(":")[0],
        "server": server_version(url),
        "cores": os.cpu_count(),
        "processes": count,
        "trials": trials,
        "generation_size": generation_size,
        "lost": trials - len(finished & set(range(trials))),
        "too_many": len(stored) - trials,
        "trained_twice": sum(many > 1 for many in times.values()),
        "equal_points": len(stored) - len(points),
        "of_each_process": [len(numbers) for numbers in trained],
        "seconds": round(seconds, 1),
        "trials_per_second": round(trials / seconds, 1),
    }


def server_version(url: str) -> str:
    """Return the version of the database as it states it."""
    engine = sqlalchemy.create_engine(with_driver(url))
    try:
        with engine.connect() as connection:
            return ".".join(str(part) for part in connection.dialect.server_version_info or ())
    finally:
        engine.dispose()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--storage", help="URL; a PostgreSQL server is started when not given")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--generation-size", type=int, default=6)
    parser.add_argument("--timeout", type=float, default=1800.0, help="seconds")
    parser.add_argument("--out", type=Path, help="file for the JSON object")
    given = parser.parse_args()
    with ExitStack() as stack:
        url = given.storage
        if url is None:
            if (reason := reason_to_skip()) is not None:
                sys.exit(f"give --storage: {reason}")
            url = stack.enter_context(running_server()).create("shared")
        found = measure(url, given.processes, given.trials, given.generation_size, given.timeout)
    command = f"python benchmarks/shared_study.py --processes {given.processes} --trials {given.trials}"
    found = {"command": f"{command} --generation-size {given.generation_size}", **found}
    print(json.dumps(found))
    if given.out is not None:
        given.out.write_text(json.dumps(found, indent=2) + "\n")
    if found["lost"] or found["too_many"] or found["trained_twice"] or found["equal_points"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
