"""`s2e reproduce searchers` on data, where every training is real: many searches in one population."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from populations import tell_before_a_search_trains
from s2e.data.preparing import DataOptions, prepare
from s2e.engine.task import Member, Task
from s2e.errors import RunConflict
from s2e.experiments.search_algorithms import SearchersOptions
from s2e.runs.directory import Run
from s2e.seeds import derive
from s2e.studies.loop import TRAINED, search_schedule
from s2e.studies.plan import SearchPlan
from s2e.workflows.bench import TrainingOptions, task_of
from searcher_runs import (
    NOISES,
    K,
    assert_rows,
    best_by_hand,
    clusters,
    compared,
    in_an_empty_directory_without_figures,
    numbers,
    quiet,
)

TRAINED_FOR_REAL = ("random", "hyperband")
COMPLETE = TrialState.COMPLETE

work = pytest.fixture(in_an_empty_directory_without_figures, autouse=True)
_quiet = pytest.fixture(quiet, autouse=True, scope="module")


def on_data(data: str, **changes: Any) -> SearchersOptions:
    small = SearchersOptions(
        data,
        TRAINED_FOR_REAL,
        NOISES,
        repeats=2,
        trials=3,
        random_trials=4,
        generation=K,
        space="coteaching",
        epochs=4,
        batch_size=32,
        learning_rate=1e-2,
        seed=5,
    )
    return replace(small, **changes)


def trials_of(study: optuna.Study) -> list[tuple[Any, ...]]:
    return [(t.number, t.state, t.params, t.values, t.user_attrs, t.intermediate_values) for t in study.trials]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return clusters(str(tmp_path_factory.mktemp("data") / "own.npz"))


@pytest.fixture(scope="module")
def trained(data: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return compared(on_data(data), tmp_path_factory.mktemp("runs") / "trained")


@pytest.mark.parametrize("sampler", TRAINED_FOR_REAL)
def test_searches_on_data_are_those_that_run_alone(sampler: str, trained: Run, data: str) -> None:
    budget = 4 if sampler == "random" else 3
    for noise in NOISES:
        training = TrainingOptions(data, noise, "clean", None, 5, epochs=4, batch_size=32)
        task = task_of(training, prepare(DataOptions(data, noise, "clean", None, 5), Path("data")), "cpu")
        best = []
        for repeat in range(2):
            plan = SearchPlan.named(
                "coteaching",
                sampler,
                epochs=4,
                trials=budget,
                generation=K,
                learning_rate=1e-2,
                seed=derive(5, "searchers", sampler, repeat),
            )
            alone = optuna.create_study(study_name=f"{sampler}/{noise}/{repeat}")
            search_schedule(task, plan, alone)
            beside = optuna.load_study(study_name=alone.study_name, storage=trained.storage)
            assert trials_of(beside) == trials_of(alone)
            found = [
                (len(trial.user_attrs[TRAINED]) / 4, trial.values[0] if trial.state == COMPLETE else math.nan)
                for trial in alone.trials
            ]
            best.append(best_by_hand(found, budget))
        assert_rows(trained, sampler, noise, best)


def test_on_data_there_is_no_model_to_judge(trained: Run) -> None:
    result = trained.read_json("result.json")
    assert (result["epochs"], result["device"]) == (4, "cpu")
    assert "surrogate" not in result


class Death(BaseException):
    """The end of a process."""


def test_a_comparison_on_data_that_dies_is_continued_and_algorithms_may_join(
    trained: Run, data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared(on_data(data, samplers=("random",)), "run")
    generations: list[int] = []

    def die_in_the_second(_task: Task, members: Sequence[Member]) -> None:
        generations.append(len(members))
        if len(generations) == 2:
            raise Death

    with monkeypatch.context() as patched:
        tell_before_a_search_trains(die_in_the_second, patched)
        with pytest.raises(Death):
            compared(on_data(data), "run", resume=True)
    assert numbers(compared(on_data(data), "run", resume=True)) == numbers(trained)


def test_a_comparison_on_data_is_not_continued_with_other_settings(trained: Run, data: str) -> None:
    with pytest.raises(RunConflict, match="learning_rate was"):
        compared(on_data(data, learning_rate=1e-3), trained.path, resume=True)
