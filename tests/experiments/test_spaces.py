"""`s2e reproduce spaces`: random search in each space, chosen by validation, tested afterwards from fresh seeds."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest

from command_line import s2e
from populations import replace_search_trainer
from s2e.data import loading
from s2e.data.preparing import DataOptions, corrupt_and_split
from s2e.engine.task import Member, Task, Trained
from s2e.engine.training import train_population
from s2e.errors import RunConflict
from s2e.experiments import spaces
from s2e.experiments.space_results import best_single
from s2e.experiments.spaces import compare_spaces
from s2e.runs.directory import Run
from s2e.runs.session import RunLocation
from s2e.schedules.spaces import SPACES
from s2e.seeds import derive
from s2e.studies import BestTrial, search_schedule
from s2e.studies.plan import SearchPlan
from s2e.workflows.bench import TEST, TrainingOptions, task_of
from space_runs import (
    SMALL,
    TWO_NOISES,
    clusters,
    contents,
    found,
    found_in,
    in_an_empty_directory_without_figures,
    made,
    options,
    study,
    table,
)
from listeners import Log

SINGLES = [f"single-{i}" for i in (1, 2, 3, 4)]
PATIENCE_S = 60

work = pytest.fixture(in_an_empty_directory_without_figures, autouse=True)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return clusters(tmp_path_factory.mktemp("data") / "own.npz")


@pytest.fixture(scope="module")
def whole(data: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that nothing stopped."""
    return made(options(data), tmp_path_factory.mktemp("runs") / "whole")


class Recorded(list[tuple[str, int]]):
    """What each population was trained for, and how many members it had; the one at `stop_at` is interrupted."""

    stop_at: int | None = None


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    seen = Recorded()

    def recording(purpose: str) -> Callable[..., Trained]:
        def record(task: Task, members: Sequence[Member], **rest: Any) -> Trained:
            if len(seen) == seen.stop_at:
                raise KeyboardInterrupt
            seen.append((purpose, len(members)))
            return train_population(task, members, **rest)

        return record

    replace_search_trainer(recording("search"), monkeypatch)
    monkeypatch.setattr(spaces, "train_population", recording("final"))
    return seen


# --------------------------------------------------------------------------------------------------- what is computed


def alone(data: str, noise: str, space: str) -> tuple[BestTrial, list[Any]]:
    """Search one space on data with one noise, apart from all others, then train what was found one seed at a time."""
    source = loading.load(data, Path("data"))
    prepared = corrupt_and_split(source, DataOptions(data, noise, "clean", None, 5), Path("data"))
    task = task_of(TrainingOptions(data, seed=5, epochs=3, batch_size=32), prepared, "cpu")
    plan = SearchPlan.named(space, "random", epochs=3, trials=3, generation_size=3, learning_rate=2e-3, seed=5)
    found = search_schedule(task, plan, optuna.create_study(direction="minimize"))
    seed = derive(5, "final")
    final = replace(task, evaluate={TEST: source.test}, seed=derive(seed, "batches"))
    members = [Member(found.schedule, derive(seed, "restart", which), 2e-3) for which in range(2)]
    return found, [train_population(final, [member]).curves for member in members]


@pytest.mark.parametrize(("noise", "space"), [("pair:0.4", "s2e"), ("symmetric:0.3", "rbf"), ("pair:0.4", "single-3")])
def test_a_space_among_others_comes_to_what_it_comes_to_alone(whole: Run, data: str, noise: str, space: str) -> None:
    found, curves = alone(data, noise, space)
    chosen = found_in(whole)[noise, space]
    assert chosen["point"] == found.point.tolist()
    assert chosen["keep_rates"] == found.schedule.tolist()
    assert (chosen["trial"], chosen["validation_accuracy"]) == (found.trial, found.validation_accuracy)
    rows = [row for row in table(whole) if (row["noise"], row["space"]) == (noise, space)]
    assert [int(row["seed"]) for row in rows] == [0, 1]
    for row, own in zip(rows, curves, strict=True):
        accuracy = own.accuracy[TEST][0]
        assert float(row["last_10_epochs"]) == pytest.approx(accuracy.mean(), abs=1e-6)  # all three epochs
        assert float(row["best_epoch"]) == pytest.approx(accuracy.max(), abs=1e-6)
        assert row["evaluated_on"] == TEST


def test_there_is_one_row_for_each_noise_setting_space_and_seed_and_the_summary_is_of_them(whole: Run) -> None:
    rows = table(whole)
    wanted = [(noise, space, str(seed)) for noise in TWO_NOISES for space in SPACES for seed in range(2)]
    assert [(row["noise"], row["space"], row["seed"]) for row in rows] == wanted
    result, found = whole.read_json("result.json"), found_in(whole)
    assert len(result["summary"]) == len(TWO_NOISES) * (len(SPACES) + 1)
    for summed, in_its_set in zip(result["summary"], result["by_set"], strict=True):
        space = result["single"][summed["noise"]][0] if summed["space"] == "single" else summed["space"]
        key = summed["noise"], space
        own = [row for row in rows if (row["noise"], row["space"]) == key]
        for figure in ("last_10_epochs", "best_epoch"):
            values = [float(row[figure]) for row in own]
            assert summed[figure]["mean"] == pytest.approx(statistics.mean(values), abs=1e-5)
            assert summed[figure]["std"] == pytest.approx(statistics.stdev(values), abs=1e-5)
            assert in_its_set[figure] == summed[figure]  # there is one set only
        assert (in_its_set["noise"], in_its_set["space"]) == (summed["noise"], summed["space"])
        assert in_its_set["best_trial"] == found[key]["trial"]
        assert in_its_set["validation_accuracy"] == summed["validation_accuracy"] == found[key]["validation_accuracy"]


def test_every_space_has_as_many_draws_of_the_same_numbers_under_every_noise_setting(whole: Run) -> None:
    drawn = {}
    for noise in TWO_NOISES:
        for space, known in SPACES.items():
            trials = study(whole, noise, space).trials
            drawn[noise, space] = np.array([[trial.params[name] for name in known.names] for trial in trials])
            assert all(trial.state == optuna.trial.TrialState.COMPLETE for trial in trials)
    for (_, space), points in drawn.items():
        assert points.shape == (3, SPACES[space].dimension)
        np.testing.assert_array_equal(points, drawn[TWO_NOISES[0], "s2e"][:, : points.shape[1]])
    assert len(np.unique(drawn[TWO_NOISES[0], "s2e"])) == 60  # draws and coordinates differ


def test_the_result_says_what_it_is_of(whole: Run) -> None:
    result = whole.read_json("result.json")
    assert (result["draws"], result["seeds"], result["epochs"]) == (3, 2, 3)
    assert result["samples"]["test"] == 96
    assert result["samples"]["train"] + result["samples"]["valid"] == 192
    assert list(result["noise_rates"]) == list(TWO_NOISES)
    assert all(abs(rate - float(noise[-3:])) < 0.1 for noise, rate in result["noise_rates"].items())
    assert (whole.path / "schedules.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in (whole.path / "schedules.svg").read_bytes()


# ------------------------------------------------------------------------------------------------------ who is chosen


def test_other_test_labels_change_no_choice(whole: Run) -> None:
    other = made(options(clusters(shuffled=True)), "run")
    assert contents(other)["schedules.json"] == contents(whole)["schedules.json"]
    for name in ("single", "single_winners"):
        assert other.read_json("result.json")[name] == whole.read_json("result.json")[name]
    kept = ("noise", "space", "set", "drawn_in", "trial", "validation_accuracy")
    ours, theirs = (table(run, "winners.csv") for run in (whole, other))
    assert [[row[name] for name in kept] for row in ours] == [[row[name] for name in kept] for row in theirs]
    for name in ("results.csv", "winners.csv"):
        assert contents(other)[name] != contents(whole)[name]


def test_single_is_the_best_of_four_by_validation_and_the_first_of_equals() -> None:
    accuracies = {"s2e": 0.99, "single-1": 0.3, "single-2": 0.8, "single-3": 0.8, "single-4": 0.7, "rbf": 0.9}
    chosen = {("pair:0.4", space): found(accuracy) for space, accuracy in accuracies.items()}
    chosen |= {("none", space): found(1 - accuracy) for space, accuracy in accuracies.items()}
    assert best_single(chosen, "pair:0.4") == "single-2"
    assert best_single(chosen, "none") == "single-1"


def test_the_run_takes_the_best_single_space_of_each_noise_setting(whole: Run) -> None:
    chosen = found_in(whole)
    for noise, (space,) in whole.read_json("result.json")["single"].items():
        accuracies = [chosen[noise, each]["validation_accuracy"] for each in SINGLES]
        assert SINGLES.index(space) == accuracies.index(max(accuracies))


# ---------------------------------------------------------------------------------------------- parts of it, and again


@pytest.mark.parametrize("together", [5, 33])
def test_how_many_are_trained_at_a_time_changes_nothing(
    data: str, whole: Run, trained: Recorded, together: int
) -> None:
    watch = Log()
    apart = compare_spaces(options(data, together=together), RunLocation(Path("run"), device="cpu"), watch)
    assert contents(apart) == contents(whole)
    searches, finals = ([members for each, members in trained if each == of] for of in ("search", "final"))
    assert max(finals) <= together
    assert searches == {5: [16, 16, 16], 33: [32, 16]}[together]  # at least one draw of each of the 16 searches
    assert [done.finished for done in watch.generations] == np.cumsum(searches).tolist()
    best = [max(1 - study(apart, noise, space).best_value for space in SPACES) for noise in TWO_NOISES]
    assert watch.generations[-1].best == tuple(best)  # the best space under each noise setting


@pytest.mark.parametrize("stop_at", [1, 3, 4])
def test_a_run_that_is_stopped_goes_on_with_what_is_missing(
    data: str, whole: Run, trained: Recorded, stop_at: int
) -> None:
    trained.stop_at = stop_at
    with pytest.raises(KeyboardInterrupt):
        made(options(data, together=20), "run")
    trained.stop_at = None
    again = made(options(data, together=20), "run", resume=True)
    assert contents(again) == contents(whole)
    assert [members for _, members in trained] == [16, 16, 16, 20, 12]  # none of them twice
    if stop_at == 4:
        made(options(data, together=64), "run", resume=True)
        assert contents(again) == contents(whole)
        assert len(trained) == 5  # nothing was left to train


def start(*arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "s2e", "reproduce", "spaces", *arguments]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)


def stop(process: subprocess.Popen[str], when: Callable[[], bool], by: signal.Signals) -> str:
    deadline = time.monotonic() + PATIENCE_S
    while not when():
        assert process.poll() is None, "it ended before it could be stopped"
        assert time.monotonic() < deadline
        time.sleep(0.001)
    process.send_signal(by)
    return process.communicate(timeout=PATIENCE_S)[1]


def test_processes_that_are_killed_or_interrupted_lose_nothing(data: str) -> None:
    command = [*SMALL, "--epochs", "30", "--together", "8", "--data", data]
    run = Run("run")
    studies, outcomes = run.path / "study.db", run.path / "outcomes.npz"
    stop(start(*command, "--out", "run"), lambda: studies.exists(), signal.SIGKILL)
    said = stop(start("--resume", "--out", "run"), lambda: outcomes.exists(), signal.SIGINT)
    assert said.endswith("s2e: interrupted; continue with: s2e reproduce spaces --resume --out run\n")
    assert "Traceback" not in said
    assert s2e("reproduce", "spaces", "--resume", "--out", "run").exit_code == 0
    assert s2e("reproduce", "spaces", *command, "--out", "undisturbed").exit_code == 0
    assert contents(run) == contents(Run("undisturbed"))


def test_a_run_is_continued_only_with_the_settings_and_the_data_it_was_begun_with() -> None:
    flips = np.eye(4)
    np.savetxt("flips.csv", flips, delimiter=",")
    given = options(clusters(), noises=("pair:0.4", "asymmetric:flips.csv"), draws=1, seeds=1)
    made(given, "run")
    for name, value in {"draws": 4, "seeds": 3, "seed": 6}.items():
        with pytest.raises(RunConflict, match=f"other settings: {name} was .* and is now {value}"):
            made(replace(given, **{name: value}), "run", resume=True)
    np.savetxt("flips.csv", flips[::-1], delimiter=",")
    with pytest.raises(RunConflict, match="the data have changed since"):
        made(given, "run", resume=True)
    np.savetxt("flips.csv", flips, delimiter=",")
    clusters(shuffled=True)
    with pytest.raises(RunConflict, match="the data have changed since"):
        made(given, "run", resume=True)
    with pytest.raises(RunConflict, match="already holds a run"):
        made(given, "run")
