"""The ledger of a comparison: what is finished stays, and comes back as it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from s2e.methods import (
    Coteaching,
    JoCoR,
    Standard,
)
from s2e.runs.directory import Run
from s2e.workflows.entrants import Entrant
from s2e.workflows.finished import FinishedTrainings
from s2e.workflows.outcomes import Outcome
from small_tasks import setting


def an_outcome(noise: str = "pair:0.4", name: str = "standard", seed: int = 0, value: float = 0.5) -> Outcome:
    curve = np.full(3, value)
    return Outcome(noise, name, seed, "test", curve, curve, curve, curve, curve, curve, None, False)


def keys(found: Sequence[Outcome]) -> list[tuple[str, str, int]]:
    return [(one.noise, one.method, one.seed) for one in found]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", {"command": "compare"})


def test_a_new_ledger_is_empty_and_lacks_everything(run: Run) -> None:
    ledger = FinishedTrainings.of(run)
    assert not ledger.outcomes
    assert ledger.lacks(setting(), Entrant("standard", Standard()))
    assert ledger.in_order([], []) == []


def test_a_ledger_comes_back_as_it_was_written(run: Run) -> None:
    matrix = np.eye(3)
    ledger = FinishedTrainings.of(run)
    ledger.add([an_outcome(), an_outcome(seed=1)], {"pair:0.4/f-correction/0": matrix})
    ledger.add([an_outcome(name="jocor")], {"pair:0.4/f-correction/1": 2 * matrix})
    again = FinishedTrainings.of(run)
    assert keys(again.outcomes) == [("pair:0.4", "standard", 0), ("pair:0.4", "standard", 1), ("pair:0.4", "jocor", 0)]
    assert list(again.transitions) == ["pair:0.4/f-correction/0", "pair:0.4/f-correction/1"]
    np.testing.assert_array_equal(again.transitions["pair:0.4/f-correction/1"], 2 * matrix)


def test_a_training_is_told_by_its_noise_its_method_and_its_seed(run: Run) -> None:
    ledger = FinishedTrainings.of(run)
    ledger.add([an_outcome("pair:0.3", "standard", 0)], {})
    standard, jocor = Entrant("standard", Standard()), Entrant("jocor", JoCoR())
    here = setting()
    assert not ledger.lacks(here, standard)
    assert ledger.lacks(here, jocor)
    assert ledger.lacks(replace(here, draw=1), standard)
    assert ledger.lacks(replace(here, noise="none"), standard)


def test_what_is_in_a_ledger_stays_as_it_is(run: Run) -> None:
    ledger = FinishedTrainings.of(run)
    ledger.add([an_outcome(value=0.5)], {})
    ledger.add([an_outcome(value=0.7), an_outcome(seed=1)], {})
    for found in (ledger, FinishedTrainings.of(run)):
        assert [(one.seed, one.accuracy[0]) for one in found.outcomes] == [(0, 0.5), (1, 0.5)]


def test_outcomes_come_in_the_order_of_what_was_asked_for(run: Run) -> None:
    ledger = FinishedTrainings.of(run)
    done = [("b", "jocor", 1), ("a", "old", 0), ("a", "standard", 10), ("a", "standard", 2), ("b", "s2e", 0)]
    ledger.add([an_outcome(*each) for each in [*done, ("a", "jocor", 0)]], {})
    asked = [Entrant("s2e", Coteaching(), True), Entrant("standard", Standard()), Entrant("jocor", JoCoR())]
    assert keys(ledger.in_order(asked, ["b", "a"])) == [
        ("b", "s2e", 0),
        ("b", "jocor", 1),
        ("a", "standard", 2),
        ("a", "standard", 10),
        ("a", "jocor", 0),
        ("a", "old", 0),
    ]
