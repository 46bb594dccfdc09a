"""Processes that share a study with a trivial objective.

As a program: take part in the study at a URL, and print every trial trained, one number in a line.

    python shared_study.py URL --trials 60 --generation-size 6 --training-seconds 0.01
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

EPOCHS = 2


def processes(url: str, count: int, *options: str) -> list[subprocess.Popen[str]]:
    """Start processes that share the study at a URL."""
    command = [sys.executable, "-W", "error", str(Path(__file__).resolve()), url, *options]
    return [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(count)]


def trained_by(process: subprocess.Popen[str], timeout: float = 120.0) -> list[int]:
    """Wait for the end of a process; return the numbers of the trials that it has trained."""
    output, errors = process.communicate(timeout=timeout)
    assert process.returncode == 0, errors
    return [int(line) for line in output.split() if line.isdecimal()]


def main() -> None:
    """Take part in a study."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--generation-size", type=int, default=6)
    parser.add_argument("--training-seconds", type=float, default=0.0)
    parser.add_argument("--training-until", type=Path, help="a file; trainings end when it exists")
    parser.add_argument("--sampler", default="random")
    parser.add_argument("--machine", help="pretend to be on another machine")
    parser.add_argument("--grace", type=float, help="age of a stale heartbeat")
    given = parser.parse_args()

    import numpy as np

    from s2e.engine import Member
    from s2e.engine.curves import Curves
    from s2e.engine.task import VALIDATION
    from s2e.studies import Search, SearchPlan, Stop, open_study, owners, run_generations
    from s2e.studies.owners import Owner

    if given.machine:
        owners._machine = lambda: given.machine
    if given.grace:
        owners.GRACE_SECONDS, owners.HEARTBEAT_SECONDS = given.grace, given.grace / 4
    numbers: list[int] = []
    keep = Owner.keep

    def keep_and_note(self: Owner, search: int, study: object, trials: Sequence[object]) -> None:
        numbers[:] = [trial.number for trial in trials]  # type: ignore[attr-defined]
        keep(self, search, study, trials)  # type: ignore[arg-type]

    Owner.keep = keep_and_note  # type: ignore[method-assign]

    def train(members: Sequence[Member], stop: Stop) -> Curves:
        print(*numbers, "begun", flush=True)  # noqa: T201
        time.sleep(given.training_seconds)
        while given.training_until is not None and not given.training_until.exists():
            time.sleep(0.05)
        curves = Curves.empty(len(members), EPOCHS, [VALIDATION])
        accuracy = np.array([np.random.default_rng(member.seed).random() for member in members])
        curves.accuracy[VALIDATION][:] = accuracy[:, None]
        curves.epochs[:] = EPOCHS
        return curves

    plan = SearchPlan.named(
        "s2e", given.sampler, epochs=EPOCHS, trials=given.trials, generation_size=given.generation_size
    )
    print("ready", flush=True)  # noqa: T201
    study = open_study(given.url, "search", {})
    run_generations(train, EPOCHS, [Search(plan, study)])


if __name__ == "__main__":
    main()
