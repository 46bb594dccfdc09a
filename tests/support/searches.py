"""Small searches: tasks, plans, studies, and processes killed at a chosen moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from torch import nn

from populations import replace_search_trainer
from s2e.engine.curves import Curves
from s2e.engine.task import VALIDATION, EpochFinished, Member, Task
from s2e.engine.training import train_population
from s2e.methods import MentorNet, Method
from s2e.studies import Stop, open_study
from s2e.studies.loop import OnGeneration, search_schedules
from s2e.studies.plan import Search, SearchPlan
from s2e.studies.selection import BestTrial
from small_tasks import blobs, small_mlp, task

EPOCHS = 2
K = 3
TRIALS = 5 * K
"""Enough for samplers with a start-up of 10 or 12 trials to have left it in the last generation."""


def quiet() -> Iterator[None]:
    """Let Optuna log errors only; the body of a fixture."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    yield
    optuna.logging.set_verbosity(before)


def make_task(method: Method | None = None, network: Callable[[], nn.Module] = small_mlp, **changes: Any) -> Task:
    evaluate = {"valid": blobs(96, wrong=0.0, seed=1)}
    return task(
        blobs(),
        method or MentorNet(),
        network=network,
        **{"evaluate": evaluate, "epochs": EPOCHS, "batch_size": 64, **changes},
    )


def make_plan(
    sampler: str | optuna.samplers.BaseSampler = "newton",
    trials: int = 2 * K,
    generation_size: int = K,
    *,
    space: str = "s2e",
    epochs: int = EPOCHS,
    seed: int = 0,
    learning_rate: float = 1e-2,
) -> SearchPlan:
    return SearchPlan.named(
        space,
        sampler,
        epochs=epochs,
        trials=trials,
        generation_size=generation_size,
        learning_rate=learning_rate,
        seed=seed,
    )


def make_study(path: Path | None = None, name: str = "search") -> optuna.Study:
    """Open the study in this file as a new process would; without a file, a new one in memory."""
    return open_study(None if path is None else f"sqlite:///{path}", name, {})


def trial_records(study: optuna.Study) -> list[tuple[Any, ...]]:
    """Everything about the trials except their times."""
    return [
        (t.number, t.state, t.params, t.values, t.intermediate_values, t.user_attrs, t.system_attrs)
        for t in study.get_trials()
    ]


def trial_points(study: optuna.Study) -> list[dict[str, float]]:
    return [trial.params for trial in study.get_trials(deepcopy=False)]


def simulated_training(
    accuracy_of: Callable[[Member], np.ndarray],
) -> Callable[[Sequence[Member], Stop | None], Curves]:
    """Train nothing: each member has these accuracies (T,) until it is stopped."""

    def train(members: Sequence[Member], stop: Stop | None) -> Curves:
        accuracy = np.stack([accuracy_of(member) for member in members])  # (P, T)
        epochs = accuracy.shape[1]
        curves = Curves.empty(len(members), epochs, [VALIDATION])
        training = np.ones(len(members), dtype=bool)
        for epoch in range(1, epochs + 1):
            curves.accuracy[VALIDATION][training, epoch - 1] = accuracy[training, epoch - 1]
            curves.epochs[training] = epoch
            if stop is not None:
                finished = EpochFinished(epoch, epochs, tuple(range(len(members))), len(members), curves)
                training[list(stop(finished))] = False
        return curves

    return train


class Killed(BaseException):
    """The end of a process at a chosen moment."""


def kill_search(monkeypatch: pytest.MonkeyPatch, where: str, after: int, study: optuna.Study) -> None:
    """Kill the search instead of its next training ("train"), tell or ask, after this many of them."""

    def is_stored(told: optuna.Study, *_: Any) -> bool:
        stored = type(told._storage) is type(study._storage)  # not the copy in memory that samplers use
        return stored and told.study_name == study.study_name

    if where == "train":
        replace_search_trainer(_killed_after(after, train_population, lambda *_: True), monkeypatch)
    elif where == "tell":
        monkeypatch.setattr(optuna.Study, "tell", _killed_after(after, optuna.Study.tell, is_stored))
    else:
        monkeypatch.setattr(optuna.Study, "add_trial", _killed_after(after, optuna.Study.add_trial, is_stored))


def _killed_after(count: int, function: Callable[..., Any], counts: Callable[..., bool]) -> Callable[..., Any]:
    calls = 0

    def wrapped(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        if counts(*arguments):
            if calls == count:
                raise Killed
            calls += 1
        return function(*arguments, **named)

    return wrapped


def search_schedule(
    task: Task,
    plan: SearchPlan,
    study: optuna.Study,
    *,
    on_generation: OnGeneration | None = None,
    on_epoch: Callable[[EpochFinished], None] | None = None,
) -> BestTrial:
    """Run the study up to `plan.trials` finished trials and return the best.

    Args:
        task: what is trained; must evaluate "valid", and the score is the error there.
        plan: what is searched and how.
        study: minimised; a new one, or one begun with the same task and plan, which is continued.
        on_generation: called after every generation; returns True to end the search.
        on_epoch: called after every epoch of a generation.
    """
    (found,) = search_schedules(task, [Search(plan, study)], on_generation=on_generation, on_epoch=on_epoch)
    return found
