"""Several processes that start a run in one directory at the same time: one does, and the run is its own."""

from __future__ import annotations

import os
import time
from pathlib import Path

from s2e.errors import RunConflict
from s2e.runs.directory import CONFIG, Run
from s2e.runs.session import RunLocation, Session
from small_runs import search_options

PROCESSES, ROUNDS = 4, 15


def start(path: Path, seed: int, moment: float) -> int:
    """Start a run in another process at a moment; its exit code is 0 if it did and 2 if it was refused."""
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        session = Session("search", search_options("own.npz", seed=seed), RunLocation(path))
        time.sleep(max(0.0, moment - time.monotonic()))
        with session.start({"data_fingerprint": "1"}) as run:
            code = 0 if run.read_json(CONFIG)["options"]["seed"] == seed else 3
    except RunConflict:
        code = 2
    finally:
        os._exit(code)


def test_one_process_starts_the_run_and_its_config_stays(tmp_path: Path) -> None:
    for number in range(ROUNDS):
        path, moment = tmp_path / str(number), time.monotonic() + 0.03
        processes = [start(path, seed, moment) for seed in range(PROCESSES)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]
        assert sorted(codes) == [0] + [2] * (PROCESSES - 1)
        assert Run.open(path).read_json(CONFIG)["options"]["seed"] == codes.index(0)
