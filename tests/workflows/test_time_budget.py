"""The expected time of a search, the line about it, and the end of a search within a budget."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from listeners import Log
from s2e.errors import InvalidInput
from s2e.runs.session import RunLocation
from s2e.studies import GenerationFinished, SearchPlan
from s2e.workflows import time_budget
from s2e.workflows.search import search
from s2e.workflows.time_budget import (
    OPTIONS,
    LimitedListener,
    PopulationTimes,
    SearchTime,
    expected_time,
    in_words,
)
from small_runs import result, save_clusters, search_options

CPU = torch.device("cpu")
TIMES = PopulationTimes(generation=50, final=40, relabelling=10)


class Clock:
    """A clock that tests advance."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time_budget, "time", made)
    return made


def plan(trials: int = 60) -> SearchPlan:
    return SearchPlan.named("coteaching", "random", epochs=4, trials=trials, generation_size=6)


def time_of(budget: float | None = None, times: PopulationTimes = TIMES) -> SearchTime:
    return SearchTime(times, CPU, budget=budget, began=1000.0, advice=OPTIONS)


# ------------------------------------------------------------------------------------------------------------- the line


def test_line_says_how_long_and_what_is_shorter() -> None:
    assert torch.get_num_threads() == 1
    assert time_of().line(plan(), 10) == "about 9 min on 1 core; `--time-budget 2m` or `--trials 12` for less"


def test_proposed_budgets_are_long_enough_for_one_generation() -> None:
    assert time_of().line(plan(), 2) == "about 2 min on 1 core"
    slow = PopulationTimes(generation=500, final=4000)
    assert time_of(times=slow).line(plan(), 10) == "about 2.5 h on 1 core; `--trials 12` for less"


def test_a_budget_is_part_of_the_line_where_it_is_shorter() -> None:
    assert time_of(120).line(plan(), 10) == "about 9 min on 1 core, at most 2m"
    assert time_of(3600).line(plan(), 10) == "about 9 min on 1 core"


def test_short_or_unknown_times_have_no_line() -> None:
    assert time_of(times=PopulationTimes(0.5, 1.0)).line(plan(), 10) is None
    assert time_of(times=PopulationTimes(50, 10, measured=False)).line(plan(), 10) is None
    assert expected_time(9.9, CPU) is None


def test_times_in_words() -> None:
    times = {0.1: "1 s", 50.4: "50 s", 89: "89 s", 90: "2 min", 540: "9 min", 5399: "90 min", 9000: "2.5 h"}
    assert {seconds: in_words(seconds) for seconds in times} == times


# ---------------------------------------------------------------------------------------------------------- the budget


def test_a_budget_below_one_generation_and_the_final_training_is_refused(clock: Clock) -> None:
    time_of(100).check(200)
    clock.now += 2
    with pytest.raises(InvalidInput) as refused:
        time_of(100).check(200)
    assert str(refused.value) == (
        "`time_budget` must be enough for one generation and the final training, about 2 min, but got 100s; give more "
        "time, or fewer epochs, as in `--epochs 178`."
    )
    time_of(1, PopulationTimes(50, 10, measured=False)).check(200)
    time_of(None).check(200)


def generations(listener: LimitedListener, clock: Clock, seconds: float, trials: int = 60) -> int:
    """Return the number of generations of a search that a listener allows, each of which takes a time."""
    for generation in range(1, trials // 6 + 1):
        clock.now += seconds
        if listener.generation(GenerationFinished(6 * generation, trials, 6, (0.5,))):
            break
    return generation


@pytest.mark.parametrize(("budget", "expected"), [(110, 1), (198, 2), (260, 4), (10_000, 10)])
def test_search_ends_so_that_the_final_training_finishes_in_time(clock: Clock, budget: float, expected: int) -> None:
    listener = time_of(budget).limited(Log())
    assert generations(listener, clock, 50) == expected
    assert listener.stopped is (expected < 10)
    assert clock.now + 40 <= 1000 + budget or expected == 1


def test_slower_generations_than_expected_end_the_search_earlier(clock: Clock) -> None:
    listener = time_of(500).limited(Log())
    assert generations(listener, clock, 100) == 4  # a fifth, and a final training of 80 s, would end after 580 s
    assert clock.now + 80 <= 1000 + 500


def test_without_measurement_the_ratio_of_networks_counts(clock: Clock) -> None:
    listener = time_of(100, PopulationTimes(12, 6, measured=False)).limited(Log())
    assert listener.has_time
    assert generations(listener, clock, 10) == 9  # 80 + 1.1 · 15 <= 100 < 90 + 1.1 · 15


def test_the_last_generation_is_no_early_end(clock: Clock) -> None:
    listener = time_of(60).limited(Log())
    assert generations(listener, clock, 50, trials=6) == 1
    assert not listener.stopped


def test_progress_is_passed_on_and_may_stop_the_search(clock: Clock) -> None:
    log = Log()
    listener = time_of().limited(log)
    listener.stage("search", 4)
    listener.note("text")
    assert generations(listener, clock, 1e9) == 10
    assert (log.stages, log.notes, len(log.generations)) == ([("search", 4)], ["text"], 10)


# -------------------------------------------------------------------------------------------------------- in a search


def test_a_search_ended_in_time_is_complete_and_continues_with_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, where = save_clusters(tmp_path / "own.npz"), RunLocation(tmp_path / "run")
    with monkeypatch.context() as patched:
        patched.setattr(LimitedListener, "_finishes_in_time", lambda *_: False)
        run = search(search_options(data, models=False, trials=6, time_budget=3600.0), where)
        first = result(run)
        again = result(search(search_options(data, models=False, trials=6, time_budget=60.0), where, resume=True))
    assert (first["status"], first["search"]["trials"], first["search"]["planned_trials"]) == ("stopped early", 2, 6)
    assert again["search"]["trials"] == 2, "no time for a further generation"
    assert again["methods"] == first["methods"]
    assert json.loads((run.path / "config.json").read_text())["options"]["time_budget"] == 60.0
    more = result(search(search_options(data, models=False, trials=6), where, resume=True))
    whole = result(search(search_options(data, models=False, trials=6), RunLocation(tmp_path / "whole")))
    assert more["status"] == "complete"
    assert (more["search"], more["methods"]) == (whole["search"], whole["methods"])


def test_a_budget_that_is_too_short_leaves_nothing_behind(tmp_path: Path) -> None:
    data = save_clusters(tmp_path / "own.npz")
    with pytest.raises(InvalidInput, match=r"`time_budget` must be enough .* `--epochs \d+`"):
        search(search_options(data, epochs=100_000, time_budget=2.0), RunLocation(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_the_line_comes_before_the_first_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_budget, "LONG_SECONDS", 0.0)
    log = Log()
    search(search_options(save_clusters(tmp_path / "own.npz"), models=False), RunLocation(tmp_path / "run"), log)
    assert [note.partition(" on ")[0][:6] for note in log.notes] == ["about "]
