"""Searches that die anywhere and return: the study holds in the end what it would have held."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from s2e.studies import loop
from s2e.studies.loop import finished, search_schedule
from s2e.studies.plan import SearchPlan
from searches import TRIALS, Death, K, a_plan, a_task, at, die, in_memory, points, quiet, trials

_quiet = pytest.fixture(quiet, autouse=True)


# Death and return


PLACES = [("train", 0), *(("tell", after) for after in range(K)), *(("ask", after) for after in range(K))]
RESUMED = {"newton": "s2e", "random": "coteaching", "tpe": "coteaching", "cmaes": "s2e", "curve": "coteaching"}
"""Samplers and the spaces they search here: the large one where its simplex matters, elsewhere the quick one."""


@pytest.fixture(scope="module", params=RESUMED)
def resumed(request: pytest.FixtureRequest) -> SearchPlan:
    return a_plan(request.param, TRIALS, space=RESUMED[request.param])


@pytest.fixture(scope="module")
def begun(resumed: SearchPlan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study of a search up to its last generation."""
    path = tmp_path_factory.mktemp("begun") / "study.db"
    search_schedule(a_task(), replace(resumed, trials=TRIALS - K), at(path))
    return path


@pytest.fixture(scope="module")
def uninterrupted(resumed: SearchPlan) -> list[tuple[Any, ...]]:
    study = in_memory()
    search_schedule(a_task(), resumed, study)
    return trials(study)


@pytest.mark.parametrize(("where", "after"), PLACES, ids=lambda value: str(value))
def test_a_generation_that_dies_anywhere_gives_the_trials_it_would_have_given(
    resumed: SearchPlan,
    begun: Path,
    uninterrupted: list[tuple[Any, ...]],
    where: str,
    after: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copy = shutil.copy(begun, tmp_path)
    study = at(copy)
    with monkeypatch.context() as patched:
        die(patched, where, after, study)
        with pytest.raises(Death):
            search_schedule(a_task(), resumed, study)
    reopened = at(copy)
    states = [trial.state.name for trial in reopened.trials[TRIALS - K :]]
    expected = {"train": K * ["RUNNING"], "ask": after * ["RUNNING"]}
    expected["tell"] = after * ["COMPLETE"] + (K - after) * ["RUNNING"]
    assert states == expected[where]

    search_schedule(a_task(), resumed, reopened)
    assert trials(reopened) == uninterrupted


@pytest.mark.parametrize("where", ["tell", "ask"])
def test_a_search_that_dies_after_every_single_trial_gives_the_trials_it_would_have_given(
    resumed: SearchPlan,
    uninterrupted: list[tuple[Any, ...]],
    where: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    study, deaths = at(tmp_path / "study.db"), 0
    while len(finished(study)) < TRIALS:
        with monkeypatch.context() as patched:
            die(patched, where, 1, study)
            try:
                search_schedule(a_task(), resumed, study)
            except Death:
                deaths += 1
    assert deaths == TRIALS - 1
    assert trials(study) == uninterrupted


def test_a_point_is_written_to_the_study_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study, plan = at(tmp_path / "study.db"), a_plan()
    die(monkeypatch, "ask", 2, study)
    with pytest.raises(Death):
        loop.ask(study, plan, K)
    assert [set(params) for params in points(at(tmp_path / "study.db"))] == 2 * [set(plan.space.names)]


def test_an_extended_search_first_trains_what_a_dead_process_left(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, study, told = in_memory(), in_memory(), []
    search_schedule(a_task(), a_plan(trials=8), whole)
    with monkeypatch.context() as patched:
        die(patched, "tell", 4, study)
        with pytest.raises(Death):
            search_schedule(a_task(), a_plan(trials=5), study)
    search_schedule(a_task(), a_plan(trials=8), study, on_generation=told.append)
    assert [done.finished for done in told] == [6, 8]
    assert trials(study) == trials(whole)
