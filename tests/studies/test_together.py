"""Several searches, trained together: each finds what it finds alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest

from populations import tell_before_a_search_trains
from s2e.engine.task import EpochFinished
from s2e.errors import InvalidInput
from s2e.methods import Coteaching, JoCoR, Standard
from s2e.studies.loop import Found, GenerationFinished, epochs_left, search_schedule, search_schedules
from s2e.studies.plan import Search
from searches import EPOCHS, TRIALS, Death, K, a_plan, a_task, at, die, in_memory, quiet, trials
from small_tasks import blobs

_quiet = pytest.fixture(quiet, autouse=True)


# Several searches together


LABELS = (None, (blobs().labels + 1) % 4, blobs(seed=5).labels)
"""Of three searches over the same inputs."""


def several(studies: Sequence[optuna.Study], **changes: Any) -> list[Search]:
    """Searches that differ in labels, method, sampler and length."""
    kinds = [("newton", TRIALS, None), ("random", 2 * K + 1, JoCoR()), ("curve", TRIALS, Coteaching())]
    return [
        Search(a_plan(name, count, seed=place, **changes), study, labels, method)
        for place, ((name, count, method), study, labels) in enumerate(zip(kinds, studies, LABELS, strict=True))
    ]


def found_alone(searches: Sequence[Search]) -> list[Found]:
    """Each by itself: on its labels, by its method."""
    found = []
    for search in searches:
        own = a_task(search.method)
        if search.labels is not None:
            own = replace(own, train=replace(own.train, labels=search.labels))
        found.append(search_schedule(own, search.plan, search.study))
    return found


def assert_found(found: Sequence[Found], expected: Sequence[Found]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert (one.trial, one.validation_accuracy) == (other.trial, other.validation_accuracy)
        np.testing.assert_array_equal(one.point, other.point)
        np.testing.assert_array_equal(one.schedule, other.schedule)


@pytest.fixture(scope="module")
def each_alone() -> tuple[list[Found], list[list[tuple[Any, ...]]]]:
    searches = several([in_memory() for _ in range(3)])
    return found_alone(searches), [trials(search.study) for search in searches]


def test_several_searches_together_find_exactly_what_each_finds_alone(
    each_alone: tuple[list[Found], list[list[tuple[Any, ...]]]],
) -> None:
    searches = several([in_memory() for _ in range(3)])
    assert_found(search_schedules(a_task(), searches), each_alone[0])
    assert [trials(search.study) for search in searches] == each_alone[1]


def test_a_generation_of_every_search_is_trained_in_one_population(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    tell_before_a_search_trains(lambda _, members: sizes.append(len(members)), monkeypatch)
    told: list[GenerationFinished] = []
    epochs: list[EpochFinished] = []
    searches = several([in_memory() for _ in range(3)])
    announced = epochs_left(searches, EPOCHS)
    search_schedules(a_task(), searches, on_generation=told.append, on_epoch=epochs.append)
    assert sizes == [3 * K, 3 * K, 2 * K + 1, 2 * K, 2 * K]  # one search ends early, with a part of a generation
    assert announced == len(epochs) == 5 * EPOCHS
    errors = [[trial.values[0] for trial in search.study.trials] for search in searches]
    assert told == [
        GenerationFinished(
            sum(min(len(own), K * number) for own in errors),
            2 * TRIALS + 2 * K + 1,
            3 * K,
            tuple(1 - min(own[: K * number]) for own in errors),
        )
        for number in range(1, 6)
    ]


@pytest.mark.parametrize(("where", "after"), [("train", 1), ("train", 3), ("tell", 4), ("tell", 11), ("ask", 7)])
def test_searches_together_that_die_continue_and_find_what_they_would_have_found(
    each_alone: tuple[list[Found], list[list[tuple[Any, ...]]]],
    where: str,
    after: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    studies = [at(tmp_path / f"{which}.db") for which in range(3)]
    with monkeypatch.context() as patched:
        die(patched, where, after, studies[0])  # all of them have one name
        with pytest.raises(Death):
            search_schedules(a_task(), several(studies))
    searches, trained = several(studies), []
    left = epochs_left(searches, EPOCHS)
    assert_found(search_schedules(a_task(), searches, on_epoch=trained.append), each_alone[0])
    assert [trials(search.study) for search in searches] == each_alone[1]
    assert left == len(trained)


def test_a_search_that_joins_finished_ones_is_trained_without_them(
    each_alone: tuple[list[Found], list[list[tuple[Any, ...]]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    searches = several([in_memory() for _ in range(3)])
    search_schedules(a_task(), searches[:2])
    sizes: list[int] = []
    tell_before_a_search_trains(lambda _, members: sizes.append(len(members)), monkeypatch)
    assert_found(search_schedules(a_task(), searches), each_alone[0])
    assert sizes == 5 * [K]


def test_one_search_of_a_method_without_a_keep_rate_is_refused_before_any_is_asked() -> None:
    searches = [Search(a_plan(), in_memory()), Search(a_plan(), in_memory(), method=Standard())]
    with pytest.raises(InvalidInput, match=r"keep rate.*standard"):
        search_schedules(a_task(), searches)
    assert not any(search.study.trials for search in searches)
