"""A comparison stores which devices trained, and the seconds of all its sessions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from s2e.errors import UnreadableData
from s2e.runs.directory import Run
from s2e.workflows.finished import OUTCOMES, FinishedTrainings
from s2e.workflows.outcomes import Outcome


def outcome(seed: int) -> Outcome:
    curve = np.full(3, 0.5)
    return Outcome("pair:0.45", "standard", seed, "test", *[curve] * 7, keep_rates=None, diverged=False)


def test_devices_and_seconds_of_all_sessions_are_kept(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", {})
    first = FinishedTrainings.of(run)
    assert first.made_on() == {}
    first.add([outcome(0)], {}, {"device": "a GPU", "seconds": 4.0})
    first.add([outcome(1)], {}, {"device": "a GPU", "seconds": 7.5})
    second = FinishedTrainings.of(run)
    assert second.made_on() == {"device": "a GPU", "seconds": 7.5}
    second.add([outcome(2)], {}, {"device": "cpu", "seconds": 2.0})
    assert FinishedTrainings.of(run).made_on() == {"device": "a GPU, cpu", "seconds": 9.5}


@pytest.mark.parametrize("damaged", [{"seconds": np.array(np.nan)}, {"devices": np.array([1])}])
def test_damaged_devices_and_seconds_are_refused(tmp_path: Path, damaged: dict[str, np.ndarray]) -> None:
    run = Run.create(tmp_path / "run", {})
    FinishedTrainings.of(run).add([outcome(0)], {}, {"device": "cpu", "seconds": 1.0})
    run.write_arrays(OUTCOMES, {**run.read_arrays(OUTCOMES), **damaged})
    with pytest.raises(UnreadableData, match=r"`devices` must be names, and `seconds` a number"):
        FinishedTrainings.of(run)
