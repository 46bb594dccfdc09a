"""`s2e reproduce searchers` on a table of schedules: results, processes, resuming, refusals."""

from __future__ import annotations

import csv
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState

from s2e.errors import InvalidInput, RunConflict, WorkerFailed
from s2e.experiments import samplers
from s2e.experiments.samplers import WATCH_SECONDS, sampler_names
from s2e.experiments.schedule_table import surrogate
from s2e.experiments.schedule_table.surrogate import TableSurrogate
from s2e.experiments.schedule_table.table import ScheduleTable
from s2e.runs.directory import Run
from s2e.samplers import SAMPLERS
from s2e.seeds import derive
from s2e.specs import SamplersOptions
from s2e.studies import VALIDATION_ACCURACY, Search, SearchPlan, best_trial, run_generations
from sampler_runs import (
    EPOCHS,
    NOISES,
    K,
    assert_rows,
    best_by_trial,
    compare,
    numbers,
    rows,
    sampler_options,
    write_table,
)
from searches import quiet

NAMES = ("random", "curve", "hyperband")
BUDGETS = {"random": 14, "curve": 13, "hyperband": 13}

_quiet = pytest.fixture(quiet, autouse=True, scope="module")


@pytest.fixture(autouse=True, scope="module")
def _fewer_trees() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(surrogate, "TREES", 20)
        yield


@pytest.fixture
def _no_figures(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samplers, "write_figure", lambda *_: None)


@pytest.fixture(scope="module")
def table_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_table(tmp_path_factory.mktemp("table") / "table.npz")


def on_table(table_file: str, **changes: Any) -> SamplersOptions:
    small = {"on": f"table:{table_file}", "samplers": NAMES, "repeats": 3, "trials": 13, "random_trials": 14}
    return sampler_options(**{**small, **changes})


@pytest.fixture(scope="module")
def whole(table_file: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A comparison of three samplers."""
    return compare(on_table(table_file), tmp_path_factory.mktemp("runs") / "whole")


# -------------------------------------------------------------------------------------------------------------- results


@pytest.mark.parametrize("sampler", NAMES)
def test_curves_are_those_of_separate_searches(sampler: str, whole: Run, table_file: str) -> None:
    model, best = TableSurrogate(ScheduleTable.read(Path(table_file)), NOISES[1]), []
    for repeat in range(3):
        plan = SearchPlan.named(
            "coteaching",
            sampler,
            epochs=EPOCHS,
            trials=BUDGETS[sampler],
            generation_size=K,
            seed=derive(5, "searchers", sampler, repeat),
        )
        study = optuna.create_study(study_name=f"{sampler}-{repeat}")
        run_generations(model.train, EPOCHS, [Search(plan, study)])
        trials = []
        for trial in study.trials:
            point = np.array([[trial.params[name] for name in plan.space.names]])
            expected = model.error(plan.space.decode(point, EPOCHS))[0]
            error = float(expected) if trial.state == TrialState.COMPLETE else math.nan
            trials.append((len(trial.user_attrs[VALIDATION_ACCURACY]) / EPOCHS, error))
        best.append(best_by_trial(trials, BUDGETS[sampler]))
    assert_rows(whole, sampler, NOISES[1], best)
    stored = whole.read_arrays("repeats.npz")[f"{sampler}/{NOISES[1]}"]
    np.testing.assert_allclose(stored, best, atol=1e-6)
    assert len(np.unique(stored, axis=0)) == 3  # repeats differ


def test_result_summarises_the_table(whole: Run, table_file: str) -> None:
    result, table = whole.read_json("result.json"), rows(whole)
    assert (result["on"], result["repeats"], result["epochs"]) == (f"table:{table_file}", 3, EPOCHS)
    assert (result["device"], result["processes"]) == ("cpu", 1)
    assert {(row["sampler"], row["noise"], row["trainings"]) for row in result["summary"]} == {
        (sampler, noise, trainings)
        for sampler in NAMES
        for noise in NOISES
        for trainings in (12, BUDGETS[sampler])  # one of the summarised numbers, and the last
    }
    for row in result["summary"]:
        same = table[row["sampler"], row["noise"], row["trainings"]]
        for name in ("error", "low", "high"):
            assert float(same[name]) == pytest.approx(row[name], abs=1e-6)
    assert {(row["noise"], row["sampler"]) for row in result["needed"]} == set(product(NOISES, ("curve", "hyperband")))
    for row in result["needed"]:
        goal = float(table["random", row["noise"], 14]["error"])
        errors = {count: table.get((row["sampler"], row["noise"], count)) for count in range(1, 14)}
        reached = [count for count, each in errors.items() if each is not None and float(each["error"]) <= goal]
        assert (row["than"], row["needed"]) == ("random", min(reached, default=None))
        last = whole.read_arrays("repeats.npz")[f"{row['sampler']}/{row['noise']}"][:, -1]
        assert row["never"] == pytest.approx(np.mean([not error <= goal + 1e-7 for error in last.tolist()]))
    tidy = list(csv.DictReader((whole.path / "needed.csv").read_text().splitlines()))
    assert [(row["sampler"], row["needed"]) for row in tidy] == [
        (row["sampler"], "" if row["needed"] is None else str(row["needed"])) for row in result["needed"]
    ]
    assert list(result["surrogate"]) == list(NOISES)
    assert result["table"] == {"draws": 48, "others": 4}
    assert all(checked["correlation"] > 0.8 for checked in result["surrogate"].values())


@pytest.mark.parametrize("sampler", NAMES)
def test_returned_schedules_are_those_that_a_search_selects(sampler: str, whole: Run, table_file: str) -> None:
    model, returned = TableSurrogate(ScheduleTable.read(Path(table_file)), NOISES[0]), []
    for repeat in range(3):
        seed = derive(5, "searchers", sampler, repeat)
        settings = {"epochs": EPOCHS, "trials": BUDGETS[sampler], "generation_size": K, "seed": seed}
        plan = SearchPlan.named("coteaching", sampler, **settings)
        study = optuna.create_study(study_name=f"{sampler}-{repeat}")
        run_generations(model.train, EPOCHS, [Search(plan, study)])
        returned.append(model.error(best_trial(study, plan.space, EPOCHS).schedule[None])[0])
    (row,) = [
        row
        for row in whole.read_json("result.json")["summary"]
        if (row["sampler"], row["noise"], row["trainings"]) == (sampler, NOISES[0], BUDGETS[sampler])
    ]
    assert row["returned_error"] == pytest.approx(np.mean(returned))
    assert row["error"] <= row["returned_error"]  # the best seen is known to the table only


@pytest.mark.usefixtures("_no_figures")
def test_only_draws_leaves_out_the_other_points_of_the_table(table_file: str) -> None:
    table = ScheduleTable.read(Path(table_file)).only_draws()
    assert (len(table.points), table.found.shape, table.found_accuracy.shape) == (48, (2, 0, 3), (2, 0, EPOCHS))
    np.savez("draws.npz", **table.arrays())
    small = {"samplers": ("random",), "repeats": 1, "noises": NOISES[:1]}
    only = compare(on_table(table_file, only_draws=True, **small), "only")
    assert rows(only) == rows(compare(on_table("draws.npz", **small), "draws"))
    assert rows(only) != rows(compare(on_table(table_file, **small), "whole"))
    assert only.read_json("result.json")["table"] == {"draws": 48, "others": 0}


@pytest.mark.usefixtures("_no_figures")
def test_resample_fits_the_model_to_a_bootstrap_sample(table_file: str) -> None:
    small = {"samplers": ("random",), "repeats": 1, "noises": NOISES[:1]}
    runs = [compare(on_table(table_file, resample=seed, **small), f"run-{seed}") for seed in (None, 0, 1)]
    assert len({rows(run)["random", NOISES[0], 14]["error"] for run in runs}) == 3
    assert (
        len({str(run.read_json("result.json")["surrogate"]) for run in runs}) == 1
    )  # held-out errors of all trainings


def test_the_page_has_errors_numbers_of_trainings_and_the_model_of_the_table(whole: Run) -> None:
    page = (whole.path / "README.md").read_text()
    assert "3 searches of each sampler under each noise setting. Samplers of the paper: `random`" in page
    assert page.count("\n| `curve` | 13 | ") == 1
    assert "| `curve` | `random` with 14 | " in page
    assert "| of a perfect model | " in page
    assert "\n<!-- code: parsed, the command of this page -->\n" in page


def test_figure_is_written_in_two_formats(whole: Run) -> None:
    assert (whole.path / "searchers.png").read_bytes().startswith(b"\x89PNG")
    assert b"</svg>" in (whole.path / "searchers.svg").read_bytes()


@pytest.mark.usefixtures("_no_figures")
def test_single_repeats_and_trials_are_compared(table_file: str) -> None:
    run = compare(on_table(table_file, samplers=("random", "curve"), repeats=1, trials=1, random_trials=2), "run")
    assert len(rows(run)) == 2 * (1 + 2)
    for row in rows(run).values():
        assert row["error"] == row["low"] == row["high"]


def test_defaults_compare_all_samplers_on_the_published_table() -> None:
    assert SamplersOptions().on == samplers.TABLE
    assert sampler_names(SamplersOptions()) == tuple(SAMPLERS)


# ------------------------------------------------------------------------------------------------------------- resuming


@pytest.mark.slow
@pytest.mark.usefixtures("_no_figures")
def test_samplers_added_later_give_the_same_results_with_any_number_of_processes(whole: Run, table_file: str) -> None:
    compare(on_table(table_file, samplers=("random",), jobs=2), "run")
    run = compare(on_table(table_file, jobs=2), "run", resume=True)
    assert run.read_json("result.json")["processes"] == 2
    assert numbers(run) == numbers(whole)


@pytest.mark.usefixtures("_no_figures")
def test_finished_samplers_are_not_searched_again(table_file: str) -> None:
    options = on_table(table_file, samplers=("random", "hyperband"), repeats=1, noises=NOISES[:1])
    run = compare(options, "run")
    before = rows(run)
    stored = run.read_arrays("traces-random.npz")
    marked = {name: np.stack([spent, np.full_like(spent, 0.125), own]) for name, (spent, _, own) in stored.items()}
    run.write_arrays("traces-random.npz", marked)
    (run.path / "traces-hyperband.npz").unlink()
    after = rows(compare(options, "run", resume=True))
    for key, row in after.items():
        assert float(row["error"]) == 0.125 if key[0] == "random" else row == before[key]


def end_this_process(_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.usefixtures("_no_figures")
def test_a_worker_that_is_killed_leaves_finished_samplers(table_file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = on_table(table_file, samplers=("random",), repeats=1, noises=NOISES[:1])
    compare(options, "run")
    with monkeypatch.context() as patched:
        patched.setattr(samplers, "_search_on_table", end_this_process)
        with pytest.raises(WorkerFailed, match="finished samplers are kept: continue with --resume"):
            compare(replace(options, samplers=("random", "hyperband")), "run", resume=True)
    run = compare(replace(options, samplers=("random", "hyperband")), "run", resume=True)
    assert {row["sampler"] for row in run.read_json("result.json")["summary"]} == {"random", "hyperband"}


@pytest.mark.slow
@pytest.mark.usefixtures("work")
def test_a_killed_comparison_is_resumed_although_it_had_workers(table_file: str) -> None:
    command = [sys.executable, "-m", "s2e", "reproduce", "searchers", "--quiet"]
    options = ["--on", f"table:{table_file}", "--samplers", "random,curve", "--repeats", "40", "--jobs", "2"]
    small = ["--trials", "12", "--random-trials", "12"]
    process = subprocess.Popen([*command, *options, *small, "--out", "run"])
    while process.poll() is None and not Path("run", "traces-random.npz").exists():
        time.sleep(0.05)
    assert process.poll() is None, "it ended before it could be stopped"
    process.kill()
    process.wait()
    time.sleep(5 * WATCH_SECONDS)
    resumed = subprocess.run([*command, "--resume", "--out", "run"], capture_output=True, text=True, check=False)
    assert (resumed.returncode, resumed.stderr) == (0, "")


def test_other_settings_are_refused_on_resume(whole: Run, table_file: str) -> None:
    with pytest.raises(RunConflict, match="trials was 13 and is now 12"):
        compare(on_table(table_file, trials=12), whole.path, resume=True)


@pytest.mark.usefixtures("_no_figures")
def test_another_table_is_refused_on_resume(table_file: str) -> None:
    own = Path("own.npz")
    own.write_bytes(Path(table_file).read_bytes())
    options = on_table(str(own), samplers=("random",), repeats=1, noises=NOISES[:1])
    compare(options, "run")
    with np.load(own) as stored:
        arrays = dict(stored)
    np.savez(own, **{**arrays, "accuracy": np.maximum(arrays["accuracy"], 1) - 1})
    with pytest.raises(RunConflict, match="the data have changed"):
        compare(options, "run", resume=True)


# ------------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.usefixtures("work")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"samplers": ()}, "`samplers` must name each sampler once, but got none"),
        ({"samplers": ("tpe", "random", "tpe")}, "but got tpe, random, tpe"),
        (
            {"on": "digits", "only_draws": True},
            "`only_draws` must be used with a table of schedules, but got on='digits'",
        ),
        ({"on": "digits", "resample": 0}, "`resample` must be used with a table of schedules, but got on='digits'"),
        ({"samplers": ("tpe", "nonsense")}, "`sampler` must be one of .*'nonsense'"),
        ({"noises": (NOISES[0], "pair:0.3")}, f"`noise` must be one of {', '.join(NOISES)}, but got 'pair:0.3'"),
    ],
    ids=str,
)
def test_bad_options_are_refused_before_a_run_is_created(
    table_file: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        compare(on_table(table_file, **changes), "run")
    assert not Path("run").exists()
