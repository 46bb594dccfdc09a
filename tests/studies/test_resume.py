"""A search that is killed and continued has the same trials as one that is not."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from s2e.studies import SearchPlan, finished_trials
from s2e.studies.loop import ask
from searches import (
    TRIALS,
    K,
    Killed,
    kill_search,
    make_plan,
    make_study,
    make_task,
    search_schedule,
    trial_points,
    trial_records,
)

MOMENTS = [
    ("train", 0),
    ("tell", 2),
    ("ask", 2),
    *(pytest.param(where, 0, marks=pytest.mark.slow) for where in ("tell", "ask")),
]


@pytest.fixture(scope="module", params=["newton", pytest.param("cmaes", marks=pytest.mark.slow)])
def plan(request: pytest.FixtureRequest) -> SearchPlan:
    return make_plan(request.param, TRIALS)


@pytest.fixture(scope="module")
def begun(plan: SearchPlan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study of a search up to its last generation."""
    path = tmp_path_factory.mktemp("begun") / "study.db"
    search_schedule(make_task(), replace(plan, trials=TRIALS - K), make_study(path))
    return path


@pytest.fixture(scope="module")
def uninterrupted(plan: SearchPlan) -> list[tuple[Any, ...]]:
    study = make_study()
    search_schedule(make_task(), plan, study)
    return trial_records(study)


@pytest.mark.parametrize(("where", "after"), MOMENTS)
def test_generation_killed_at_any_moment_has_the_same_trials(
    plan: SearchPlan,
    begun: Path,
    uninterrupted: list[tuple[Any, ...]],
    where: str,
    after: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copy = shutil.copy(begun, tmp_path)
    study = make_study(copy)
    with monkeypatch.context() as patched:
        kill_search(patched, where, after, study)
        with pytest.raises(Killed):
            search_schedule(make_task(), plan, study)
    reopened = make_study(copy)
    states = [trial.state.name for trial in reopened.trials[TRIALS - K :]]
    expected = {"train": K * ["RUNNING"], "ask": after * ["RUNNING"]}
    expected["tell"] = after * ["COMPLETE"] + (K - after) * ["RUNNING"]
    assert states == expected[where]

    search_schedule(make_task(), plan, reopened)
    assert trial_records(reopened) == uninterrupted


@pytest.mark.slow  # killed once at each of these moments above
@pytest.mark.parametrize("where", ["tell", "ask"])
def test_search_killed_after_every_trial_has_the_same_trials(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, whole = make_plan("newton", TRIALS), make_study()
    search_schedule(make_task(), plan, whole)
    study, kills = make_study(tmp_path / "study.db"), 0
    while len(finished_trials(study)) < TRIALS:
        with monkeypatch.context() as patched:
            kill_search(patched, where, 1, study)
            try:
                search_schedule(make_task(), plan, study)
            except Killed:
                kills += 1
    assert kills == TRIALS - 1
    assert trial_records(study) == trial_records(whole)


def test_trial_is_written_with_all_parameters_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study, plan = make_study(tmp_path / "study.db"), make_plan()
    kill_search(monkeypatch, "ask", 2, study)
    with pytest.raises(Killed):
        ask(study, plan, K)
    assert [set(params) for params in trial_points(make_study(tmp_path / "study.db"))] == 2 * [set(plan.space.names)]


def test_extended_search_first_trains_the_trials_left_running(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, study, progress = make_study(), make_study(), []
    search_schedule(make_task(), make_plan(trials=8), whole)
    with monkeypatch.context() as patched:
        kill_search(patched, "tell", 4, study)
        with pytest.raises(Killed):
            search_schedule(make_task(), make_plan(trials=5), study)
    search_schedule(make_task(), make_plan(trials=8), study, on_generation=progress.append)
    assert [done.finished for done in progress] == [6, 8]
    assert trial_records(study) == trial_records(whole)
