"""Small searches: their tasks, plans and studies, and their death at a chosen moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
from torch import nn

from populations import train_searches_by
from s2e.engine.task import Task
from s2e.engine.training import train_population
from s2e.methods import MentorNet, Method
from s2e.samplers import algorithm
from s2e.schedules.spaces import SPACES
from s2e.studies.plan import SearchPlan
from s2e.studies.storage import open_study
from small_tasks import blobs, small_mlp, task

EPOCHS = 2
SAMPLERS = ("newton", "natural", "gradient", "curve", "random", "tpe", "gp", "cmaes")
K = 3
TRIALS = 5 * K
"""Enough for the samplers with a start-up of their own (10 or 12 trials) to have left it in the last generation."""


def a_task(method: Method | None = None, network: Callable[[], nn.Module] = small_mlp, **changes: object) -> Task:
    evaluate = {"valid": blobs(96, wrong=0.0, seed=1)}
    return task(
        blobs(), method or MentorNet(), network=network, evaluate=evaluate, epochs=EPOCHS, batch_size=64, **changes
    )


def a_plan(
    name: str = "newton", trials: int = 2 * K, generation: int = K, *, space: str = "s2e", **changes: Any
) -> SearchPlan:
    family = SPACES[space]
    build = algorithm(name, family, EPOCHS, generation)
    return SearchPlan(family, build, trials, generation, **{"learning_rate": 1e-2, **changes})


def in_memory() -> optuna.Study:
    return open_study(None, "search", {})


def at(path: Path) -> optuna.Study:
    """Open the study in this file as a new process would."""
    return open_study(f"sqlite:///{path}", "search", {})


def trials(study: optuna.Study) -> list[tuple[Any, ...]]:
    """Everything about the trials but their times."""
    return [(t.number, t.params, t.values, t.user_attrs, t.state) for t in study.get_trials()]


def points(study: optuna.Study) -> list[dict[str, float]]:
    return [trial.params for trial in study.get_trials()]


def quiet() -> Iterator[None]:
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    yield
    optuna.logging.set_verbosity(before)


class Death(BaseException):
    """The end of a process, at a chosen moment."""


def dying(call: Callable[..., Any], after: int, counts: Callable[..., bool]) -> Callable[..., Any]:
    """Wrap a function so that the process dies instead of the call that follows `after` of those that count."""
    made = 0

    def wrapped(*arguments: Any, **named: Any) -> Any:
        nonlocal made
        if counts(*arguments):
            if made == after:
                raise Death
            made += 1
        return call(*arguments, **named)

    return wrapped


def die(monkeypatch: pytest.MonkeyPatch, where: str, after: int, study: optuna.Study) -> None:
    """Make the search die in training, between two tells or between two asks."""

    def is_real(told: optuna.Study, *_: Any) -> bool:
        kept = type(told._storage) is type(study._storage)  # and not the draft in memory that samplers work on
        return kept and told.study_name == study.study_name

    if where == "train":
        train_searches_by(dying(train_population, after, lambda *_: True), monkeypatch)
    elif where == "tell":
        monkeypatch.setattr(optuna.Study, "tell", dying(optuna.Study.tell, after, is_real))
    else:
        monkeypatch.setattr(optuna.Study, "add_trial", dying(optuna.Study.add_trial, after, is_real))
