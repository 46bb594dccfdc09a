"""The finished trainings of a comparison: stored, read again, and never replaced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from s2e.methods import Coteaching, JoCoR, Standard
from s2e.runs.directory import Run
from s2e.workflows.entrants import Entrant
from s2e.workflows.finished import FinishedTrainings
from s2e.workflows.outcomes import Outcome
from small_tasks import setting

STANDARD, JOCOR = Entrant("standard", Standard()), Entrant("jocor", JoCoR())


def an_outcome(noise: str = "pair:0.3", name: str = "standard", seed: int = 0, value: float = 0.5) -> Outcome:
    curve = np.full(3, value)
    return Outcome(noise, name, seed, "test", *([curve] * 7), None, False)


def keys(found: Sequence[Outcome]) -> list[tuple[str, str, int]]:
    return [(one.noise, one.method, one.seed) for one in found]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", {"command": "compare"})


def test_new_run_has_no_finished_trainings(run: Run) -> None:
    finished = FinishedTrainings.of(run)
    assert finished.lacks(setting(), STANDARD)
    assert finished.in_order([], []) == finished.outcomes == []


def test_stored_trainings_are_read_again(run: Run) -> None:
    finished = FinishedTrainings.of(run)
    finished.add([an_outcome(), an_outcome(seed=1)], {"pair:0.3/f-correction/0": np.eye(3)})
    finished.add([an_outcome(name="jocor")], {"pair:0.3/f-correction/1": 2 * np.eye(3)})
    again = FinishedTrainings.of(run)
    assert keys(again.outcomes) == [("pair:0.3", "standard", 0), ("pair:0.3", "standard", 1), ("pair:0.3", "jocor", 0)]
    assert list(again.transitions) == ["pair:0.3/f-correction/0", "pair:0.3/f-correction/1"]
    np.testing.assert_array_equal(again.transitions["pair:0.3/f-correction/1"], 2 * np.eye(3))


def test_training_is_identified_by_noise_method_and_seed(run: Run) -> None:
    finished, here = FinishedTrainings.of(run), setting()
    finished.add([an_outcome()], {})
    assert not finished.lacks(here, STANDARD)
    assert finished.lacks(here, JOCOR)
    assert finished.lacks(replace(here, draw=1), STANDARD)
    assert finished.lacks(replace(here, noise="none"), STANDARD)


def test_stored_training_is_not_replaced(run: Run) -> None:
    finished = FinishedTrainings.of(run)
    finished.add([an_outcome(value=0.5)], {})
    finished.add([an_outcome(value=0.7), an_outcome(seed=1)], {})
    for found in (finished, FinishedTrainings.of(run)):
        assert [(one.seed, one.accuracy[0]) for one in found.outcomes] == [(0, 0.5), (1, 0.5)]


def test_outcomes_are_in_the_requested_order(run: Run) -> None:
    finished = FinishedTrainings.of(run)
    done = [("b", "jocor", 1), ("a", "old", 0), ("a", "standard", 10), ("a", "standard", 2), ("b", "s2e", 0)]
    finished.add([an_outcome(*each) for each in [*done, ("a", "jocor", 0)]], {})
    requested = [Entrant("s2e", Coteaching(), searched=True), STANDARD, JOCOR]
    assert keys(finished.in_order(requested, ["b", "a"])) == [
        ("b", "s2e", 0),
        ("b", "jocor", 1),
        ("a", "standard", 2),
        ("a", "standard", 10),
        ("a", "jocor", 0),
        ("a", "old", 0),
    ]
