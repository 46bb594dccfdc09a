"""`s2e reproduce spaces`: random search in each space, choices by validation, tests from fresh seeds, several sets."""

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
from listeners import Log
from populations import replace_search_trainer
from s2e.data import load
from s2e.data.preparing import corrupt_and_split
from s2e.engine import VALIDATION, Curves, Member, Task, Trained, train_population
from s2e.errors import InvalidInput, RunConflict
from s2e.experiments import spaces
from s2e.experiments.parts import folder_of
from s2e.experiments.spaces import reproduce_spaces, seed_of_set
from s2e.runs import RunLocation
from s2e.runs.directory import Run
from s2e.schedules import SPACES
from s2e.seeds import derive
from s2e.specs import DataSpec, Execution, SpacesOptions
from s2e.studies import BestTrial, SearchPlan
from s2e.workflows.pipeline import TEST, build_task
from searches import search_schedule
from small_runs import save_clusters
from space_runs import SINGLES, TWO_NOISES, compare, contents, save_clean_clusters, space_options, study, table

SEED, EPOCHS, DRAWS, SETS, SEEDS = 5, 3, 2, 2, 2
SET_SEEDS = [SEED, derive(SEED, "set", 1)]
PATIENCE_S = 60

pytestmark = pytest.mark.usefixtures("work")


class Populations(list[tuple[str, list[int]]]):
    """The purpose and the members' seeds of each trained population; the one at `stop_at` is interrupted."""

    stop_at: int | None = None

    def training(self, purpose: str) -> Callable[..., Trained]:
        def train(task: Task, members: Sequence[Member], **named: Any) -> Trained:
            if len(self) == self.stop_at:
                raise KeyboardInterrupt
            self.append((purpose, [member.seed for member in members]))
            return train_population(task, members, **named)

        return train


def recorded(patched: pytest.MonkeyPatch) -> Populations:
    populations = Populations()
    replace_search_trainer(populations.training("search"), patched)
    patched.setattr(spaces, "train_population", populations.training("final"))
    return populations


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> Populations:
    monkeypatch.setattr(spaces, "write_figure", lambda *_: None)
    return recorded(monkeypatch)


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> SpacesOptions:
    data = save_clean_clusters(tmp_path_factory.mktemp("data") / "own.npz")
    return space_options(data, sets=SETS, noises=TWO_NOISES[:1], together=30)


@pytest.fixture(scope="module")
def interrupted(options: SpacesOptions, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Populations]:
    """A run of two sets that was interrupted in the search and in the final trainings, and resumed."""
    path = tmp_path_factory.mktemp("runs") / "whole"
    with pytest.MonkeyPatch.context() as patched:
        populations = recorded(patched)
        for stop_at in (1, 3):
            populations.stop_at = stop_at
            with pytest.raises(KeyboardInterrupt):
                compare(options, path, resume=True)
        populations.stop_at = None
        run = compare(options, path, resume=True)
    return run, populations


@pytest.fixture
def whole(interrupted: tuple[Run, Populations]) -> Run:
    return interrupted[0]


# --------------------------------------------------------------------------------------------------------- computation


def task_alone(options: SpacesOptions, noise: str) -> Task:
    """Build the task of one noise setting from its own preparation, with test evaluated too."""
    source = load(options.data[0], Path("data"))
    splits = corrupt_and_split(source, DataSpec(options.data[0], validation="clean"), noise, SEED, Path("data")).splits
    evaluate = {VALIDATION: splits.valid, TEST: splits.test}
    return build_task(splits.train, evaluate, options.training, "coteaching", seed=SEED, execution=Execution("cpu"))


def search_alone(task: Task, space: str, seed: int) -> tuple[BestTrial, list[Curves]]:
    """Search one space, then train the schedule found, one seed at a time."""
    plan = SearchPlan.named(
        space, "random", epochs=EPOCHS, trials=DRAWS, generation_size=DRAWS, learning_rate=2e-3, seed=seed
    )
    best = search_schedule(task, plan, optuna.create_study(direction="minimize"))
    final = replace(task, seed=derive(derive(SEED, "final"), "batches"))
    seeds = [derive(derive(seed, "final"), "restart", which) for which in range(SEEDS)]
    return best, [train_population(final, [Member(best.schedule, each, 2e-3)]).curves for each in seeds]


@pytest.mark.parametrize(("which", "space"), [(0, "s2e"), (1, "single-3")])
def test_a_space_equals_its_search_alone(whole: Run, options: SpacesOptions, which: int, space: str) -> None:
    task = task_alone(options, TWO_NOISES[0])
    best, curves = search_alone(task, space, SET_SEEDS[which])
    schedules = whole.read_json("schedules.json")["schedules"]
    (found,) = [each for each in schedules if (each["set"], each["space"]) == (which, space)]
    assert (found["point"], found["keep_rates"]) == (best.point.tolist(), best.schedule.tolist())
    assert (found["trial"], found["validation_accuracy"]) == (best.trial, best.validation_accuracy)
    rows = [row for row in table(whole) if (row["set"], row["space"]) == (str(which), space)]
    assert [row["seed"] for row in rows] == ["0", "1"]
    for row, own in zip(rows, curves, strict=True):
        accuracy = own.accuracy[TEST][0]
        assert float(row["last_10_epochs"]) == pytest.approx(accuracy.mean(), abs=1e-6)  # all three epochs
        assert float(row["best_epoch"]) == pytest.approx(accuracy.max(), abs=1e-6)


def test_winner_is_the_best_training_of_the_search(whole: Run, options: SpacesOptions) -> None:
    task, known = task_alone(options, TWO_NOISES[0]), SPACES["mlp"]
    curves = []
    for trial in study(whole, TWO_NOISES[0], "mlp", 1).trials:
        schedule = known.decode(np.array([[trial.params[name] for name in known.names]]), EPOCHS)[0]
        member = Member(schedule, derive(SET_SEEDS[1], "trial", trial.number), 2e-3)
        curves.append(train_population(task, [member]).curves.accuracy)
    best = int(np.argmax([accuracy[VALIDATION][0].mean() for accuracy in curves]))
    (row,) = [row for row in table(whole, "winners.csv") if (row["space"], row["set"]) == ("mlp", "1")]
    assert int(row["trial"]) == best
    assert float(row["validation_accuracy"]) == pytest.approx(curves[best][VALIDATION][0].mean(), abs=1e-6)
    assert float(row["last_10_epochs"]) == pytest.approx(curves[best][TEST][0].mean(), abs=2e-6)
    assert float(row["best_epoch"]) == pytest.approx(curves[best][TEST][0].max(), abs=1e-6)


def test_spaces_share_their_draws_and_sets_do_not(whole: Run) -> None:
    drawn = {}
    for which in range(SETS):
        for space, known in SPACES.items():
            trials = study(whole, TWO_NOISES[0], space, which).trials
            drawn[which, space] = np.array([[trial.params[name] for name in known.names] for trial in trials])
    for (which, space), points in drawn.items():
        assert points.shape == (DRAWS, SPACES[space].dimension)
        np.testing.assert_array_equal(points, drawn[which, "s2e"][:, : points.shape[1]])
    both = np.stack([drawn[which, "s2e"] for which in range(SETS)])
    assert len(np.unique(both)) == both.size


def test_seeds_of_sets_differ_and_the_first_is_the_given_one() -> None:
    seeds = [seed_of_set(SEED, which) for which in range(9)]
    assert seeds[:SETS] == SET_SEEDS
    assert len(set(seeds)) == 9


# ------------------------------------------------------------------------------------------------------------ results


def test_summary_is_over_all_sets_and_seeds(whole: Run) -> None:
    rows, result = table(whole), whole.read_json("result.json")
    order = [(space, str(which), str(seed)) for space in SPACES for which in range(SETS) for seed in range(SEEDS)]
    assert [(row["space"], row["set"], row["seed"]) for row in rows] == order
    assert len(result["by_set"]) == SETS * (len(SPACES) + 1)
    flat = table(whole, "summary.csv")
    assert [row["space"] for row in flat] == [row["space"] for row in result["summary"]] == [*SPACES, "single"]
    for summed, row in zip(result["summary"], flat, strict=True):
        single = result["single"][TWO_NOISES[0]]
        own = single if summed["space"] == "single" else [summed["space"]] * SETS
        values = [float(each["last_10_epochs"]) for each in rows if own[int(each["set"])] == each["space"]]
        assert (summed["sets"], summed["seeds"], len(values)) == (SETS, SEEDS, SETS * SEEDS)
        assert summed["last_10_epochs"]["mean"] == pytest.approx(statistics.mean(values), abs=1e-5)
        assert summed["last_10_epochs"]["std"] == pytest.approx(statistics.stdev(values), abs=1e-5)
        assert float(row["last_10_epochs_std"]) == pytest.approx(summed["last_10_epochs"]["std"], abs=1e-6)
        assert float(row["winner_best_epoch"]) == pytest.approx(summed["winner"]["best_epoch"]["mean"], abs=1e-6)


def test_single_is_the_best_by_validation_in_each_set(whole: Run) -> None:
    accuracy = {
        (each["set"], each["space"]): each["validation_accuracy"]
        for each in whole.read_json("schedules.json")["schedules"]
    }
    for which, space in enumerate(whole.read_json("result.json")["single"][TWO_NOISES[0]]):
        accuracies = [accuracy[which, single] for single in SINGLES]
        assert SINGLES.index(space) == accuracies.index(max(accuracies))


def test_result_describes_the_comparison(whole: Run) -> None:
    result = whole.read_json("result.json")
    assert [result[name] for name in ("draws", "sets", "seeds", "epochs")] == [DRAWS, SETS, SEEDS, EPOCHS]
    assert result["samples"]["test"] == 96
    assert result["samples"]["train"] + result["samples"]["valid"] == 192
    assert result["noise_rates"] == {TWO_NOISES[0]: pytest.approx(0.4, abs=0.1)}
    assert (whole.path / "schedules.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in (whole.path / "schedules.svg").read_bytes()


@pytest.mark.slow
def test_test_labels_change_no_choice(whole: Run, options: SpacesOptions, trained: Populations) -> None:
    other = compare(replace(options, data=(save_clean_clusters(shuffled=True),)), "run")
    assert contents(other)["schedules.json"] == contents(whole)["schedules.json"]
    for name in ("single", "single_winners"):
        assert other.read_json("result.json")[name] == whole.read_json("result.json")[name]
    chosen = ("noise", "space", "set", "drawn_in", "trial", "validation_accuracy")
    first, second = (table(run, "winners.csv") for run in (whole, other))
    assert [[row[name] for name in chosen] for row in first] == [[row[name] for name in chosen] for row in second]
    for name in ("results.csv", "winners.csv"):
        assert contents(other)[name] != contents(whole)[name]


# --------------------------------------------------------------------------------------------- populations and resuming


def test_sets_share_populations_and_interruptions_repeat_none(interrupted: tuple[Run, Populations]) -> None:
    searches, finals = interrupted[1][:2], interrupted[1][2:]
    assert [purpose for purpose, _ in interrupted[1]] == ["search", "search", "final", "final"]
    for number, (_, seeds) in enumerate(searches):  # one draw of each of the 2 x 8 searches
        assert seeds == [derive(seed, "trial", number) for seed in SET_SEEDS for _ in SPACES]
    assert [len(seeds) for _, seeds in finals] == [30, 2]  # 2 sets x 8 spaces x 2 seeds, at most 30 together
    restarts = [derive(derive(seed, "final"), "restart", which) for seed in SET_SEEDS for which in range(SEEDS)]
    assert finals[0][1] + finals[1][1] == restarts * len(SPACES)


@pytest.mark.slow
def test_population_size_changes_no_result(whole: Run, options: SpacesOptions, trained: Populations) -> None:
    listener = Log()
    run = compare(replace(options, together=47), "run", listener)
    assert contents(run) == contents(whole)
    assert [len(seeds) for _, seeds in trained] == [32, 32]
    assert [done.finished for done in listener.generations] == [32]


@pytest.mark.slow
def test_noise_settings_share_draws_and_progress_has_the_best_of_each(
    options: SpacesOptions, trained: Populations
) -> None:
    listener = Log()
    run = compare(replace(options, noises=TWO_NOISES, sets=1, seeds=1, together=250), "run", listener)
    points = [[trial.params for trial in study(run, noise, "s2e").trials] for noise in TWO_NOISES]
    assert points[0] == points[1]
    best = [max(1 - study(run, noise, space).best_value for space in SPACES) for noise in TWO_NOISES]
    assert listener.generations[-1].best == tuple(best)
    space = "rbf"
    alone, _ = search_alone(task_alone(options, TWO_NOISES[1]), space, SEED)
    schedules = run.read_json("schedules.json")["schedules"]
    (found,) = [each for each in schedules if (each["noise"], each["space"]) == (TWO_NOISES[1], space)]
    assert (found["point"], found["validation_accuracy"]) == (alone.point.tolist(), alone.validation_accuracy)


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


@pytest.mark.slow
def test_killed_and_interrupted_processes_lose_nothing(options: SpacesOptions) -> None:
    small = ["--batch-size", "32", "--draws", "2", "--seeds", "2", "--noise", "pair:0.4"]
    command = [*small, "--epochs", "30", "--together", "8", "--data", options.data[0]]
    run, undisturbed = (Run(Path(name, folder_of(options.data[0]))) for name in ("run", "undisturbed"))
    studies, outcomes = run.path / "study.db", run.path / "outcomes.npz"
    stop(start(*command, "--out", "run"), lambda: studies.exists(), signal.SIGKILL)
    stderr = stop(start("--resume", "--out", "run"), lambda: outcomes.exists(), signal.SIGINT)
    assert stderr.endswith("s2e: interrupted; continue with: s2e reproduce spaces --resume --out run\n")
    assert "Traceback" not in stderr
    assert s2e("reproduce", "spaces", "--resume", "--out", "run").exit_code == 0
    assert s2e("reproduce", "spaces", *command, "--out", "undisturbed").exit_code == 0
    assert contents(run) == contents(undisturbed)


# ------------------------------------------------------------------------------------------------------------ refusals


def test_other_settings_are_refused_on_resume(whole: Run, options: SpacesOptions) -> None:
    for name, value in {"draws": 4, "sets": 1}.items():
        with pytest.raises(RunConflict, match=f"other settings: {name} was .* and is now {value}"):
            compare(replace(options, **{name: value}), whole.path, resume=True)


def test_other_test_labels_are_refused_on_resume(whole: Run, options: SpacesOptions) -> None:
    labels = Path(options.data[0]).read_bytes()
    try:
        save_clean_clusters(options.data[0], shuffled=True)
        with pytest.raises(RunConflict, match="the data have changed since"):
            compare(options, whole.path, resume=True)
    finally:
        Path(options.data[0]).write_bytes(labels)


def test_data_without_a_test_part_are_refused(tmp_path: Path) -> None:
    data = save_clusters(tmp_path / "own.npz", test=False)
    with pytest.raises(InvalidInput, match="`data` must come with a test part"):
        compare(space_options(data), "run")


@pytest.mark.slow
def test_data_sets_are_parts_with_one_page_and_more_are_added_on_resume(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spaces, "write_figure", lambda *_: None)
    names = ("one.npz", "two.npz")
    given = space_options(save_clean_clusters(names[0]), noises=TWO_NOISES[:1], draws=1, seeds=1)
    save_clean_clusters(names[1], shuffled=True)

    def reproduce(*data: str, resume: bool = False) -> Run:
        where = RunLocation(Path("run"), device="cpu")
        return reproduce_spaces(replace(given, data=data), where, Log(), resume=resume)

    first = reproduce(names[0]).path / names[0] / "result.json"
    before = first.stat().st_mtime_ns
    run = reproduce(*names, resume=True)
    assert first.stat().st_mtime_ns == before
    alone = compare(replace(given, data=names[1:]), "alone")
    assert (run.path / names[1] / "summary.csv").read_bytes() == (alone.path / "summary.csv").read_bytes()
    page = (run.path / "README.md").read_text()
    assert [page.count(f"\n## {name}\n") for name in names] == [1, 1]
    assert "(two.npz/schedules.png)" in page
    assert {row["data"] for row in table(run, "summary.csv")} == set(names)
