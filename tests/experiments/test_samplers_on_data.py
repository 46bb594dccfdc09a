"""`s2e reproduce searchers` on data: every training is real, and all searches share one population."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from populations import call_before_search_training
from s2e.data import prepare
from s2e.engine import VALIDATION, Member, Task
from s2e.experiments import samplers
from s2e.runs.directory import Run
from s2e.seeds import derive
from s2e.specs import DataSpec, Execution, SamplersOptions
from s2e.studies import VALIDATION_ACCURACY, SearchPlan
from s2e.workflows.pipeline import build_task
from sampler_runs import NOISES, K, assert_rows, best_by_trial, compare, numbers, sampler_options
from searches import Killed, quiet, search_schedule, trial_records
from small_runs import save_clusters

NAMES = ("random", "hyperband")
BUDGETS = {"random": 4, "hyperband": 3}

_quiet = pytest.fixture(quiet, autouse=True, scope="module")


@pytest.fixture(autouse=True, scope="module")
def _no_figures() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(samplers, "write_figure", lambda *_: None)
        yield


def on_data(data: str, **changes: Any) -> SamplersOptions:
    budget = {"samplers": NAMES, "noises": NOISES, "trials": 3, "random_trials": 4}
    training = {"epochs": 4, "batch_size": 64, "learning_rate": 1e-2}
    return sampler_options(on=data, **{**budget, **training, **changes})


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_clusters(tmp_path_factory.mktemp("data") / "own.npz")


@pytest.fixture(scope="module")
def whole(data: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return compare(on_data(data), tmp_path_factory.mktemp("runs") / "whole")


@pytest.mark.parametrize("sampler", NAMES)
def test_searches_equal_those_run_alone(sampler: str, whole: Run, data: str) -> None:
    noise, training = NOISES[1], on_data(data).training
    splits = prepare(DataSpec(data, validation="clean"), noise, 5, Path("data")).splits
    task = build_task(
        splits.train, {VALIDATION: splits.valid}, training, "coteaching", seed=5, execution=Execution("cpu")
    )
    best = []
    for repeat in range(2):
        plan = SearchPlan.named(
            "coteaching",
            sampler,
            epochs=4,
            trials=BUDGETS[sampler],
            generation_size=K,
            learning_rate=1e-2,
            seed=derive(5, "searchers", sampler, repeat),
        )
        alone = optuna.create_study(study_name=f"{sampler}/{noise}/{repeat}")
        search_schedule(task, plan, alone)
        among_others = optuna.load_study(study_name=alone.study_name, storage=whole.storage)
        assert trial_records(among_others) == trial_records(alone)
        errors = [trial.values[0] if trial.state == TrialState.COMPLETE else math.nan for trial in alone.trials]
        costs = [len(trial.user_attrs[VALIDATION_ACCURACY]) / 4 for trial in alone.trials]
        best.append(best_by_trial(list(zip(costs, errors, strict=True)), BUDGETS[sampler]))
    assert_rows(whole, sampler, noise, best)


def test_result_has_no_surrogate(whole: Run) -> None:
    result = whole.read_json("result.json")
    assert (result["epochs"], result["device"]) == (4, "cpu")
    assert "surrogate" not in result


@pytest.mark.slow
@pytest.mark.usefixtures("work")
def test_killed_comparison_is_resumed_with_an_added_sampler(
    whole: Run, data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare(on_data(data, samplers=("random",)), "run")
    generations: list[int] = []

    def kill_in_second(_task: Task, members: Sequence[Member]) -> None:
        generations.append(len(members))
        if len(generations) == 2:
            raise Killed

    with monkeypatch.context() as patched:
        call_before_search_training(kill_in_second, patched)
        with pytest.raises(Killed):
            compare(on_data(data), "run", resume=True)
    assert numbers(compare(on_data(data), "run", resume=True)) == numbers(whole)
