"""`--generation-size auto`: what a search and a comparison do with the chosen size."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from command_line import TINY, s2e, save
from compare_commands import TWO_NOISES, right
from s2e.runs.directory import CONFIG, Run
from s2e.workflows import compare as comparison
from s2e.workflows import pipeline

pytestmark = pytest.mark.usefixtures("work")

RANDOM = ["--sampler", "random", "--space", "coteaching", "--generation-size", "auto"]
SEARCH = [*TINY, "--epochs", "1", "--restarts", "1", "--no-baselines", "--no-models", *RANDOM]
COMPARISON = [*TINY, "--epochs", "1", "--seeds", "2", *RANDOM]


def choosing(size: int, seen: list[Any] | None = None) -> Callable[..., int]:
    """A measurement that finds this size the largest affordable one."""

    def choose(_: Any, kinds: list[Any], sizes: Any) -> int:
        if seen is not None:
            seen.append(kinds)
        return min(size, max(sizes))

    return choose


def done(*arguments: str) -> str:
    result = s2e(*arguments)
    assert result.exit_code == 0, result.stderr
    return result.stderr


def stored(out: str) -> tuple[int, int]:
    options = Run(out).read_json(CONFIG)["options"]
    return options["generation_size"], options["trials"]


def test_on_a_cpu_auto_is_six() -> None:
    shown = done("search", save(), *SEARCH, "--trials", "30", "--out", "run")
    assert stored("run") == (6, 30)
    assert "search, 6 at a time: 5 epochs" in shown


def test_given_trials_bound_the_size() -> None:
    done("search", save(), *SEARCH, "--trials", "1", "--out", "run")
    assert stored("run") == (2, 1)


def test_without_trials_five_generations_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "choose_generation_size", choosing(2))
    done("search", save(), *SEARCH, "--out", "run")
    assert stored("run") == (2, 10)


def test_a_resumed_search_keeps_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "choose_generation_size", choosing(3))
    done("search", save(), *SEARCH, "--trials", "15", "--out", "run")
    monkeypatch.setattr(pipeline, "choose_generation_size", lambda *_: pytest.fail("measured again"))
    done("search", "--resume", "--out", "run", "--generation-size", "auto", "--trials", "18")
    assert stored("run") == (3, 18)


def test_a_comparison_chooses_for_all_its_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "figure_files", lambda _: {})
    seen: list[Any] = []
    monkeypatch.setattr(comparison, "choose_generation_size", choosing(2, seen))
    done("compare", right(), *COMPARISON, *TWO_NOISES, "--methods", "standard,s2e,s2e:jocor", "--out", "run")
    (kinds,) = seen
    assert [kind.method.name for kind in kinds] == 2 * ["coteaching", "jocor"]
    assert len({kind.labels.tobytes() for kind in kinds}) == 2  # of two noise settings
    found = json.loads(Path("run", "result.json").read_text())["search"]
    assert [(row["trials"], row["generation_size"]) for row in found] == 4 * [(10, 2)]


def test_nothing_is_measured_where_nothing_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "figure_files", lambda _: {})
    monkeypatch.setattr(comparison, "choose_generation_size", lambda *_: pytest.fail("measured"))
    done("compare", right(), *COMPARISON, "--methods", "standard", "--out", "run")
    assert stored("run") == (6, 30)
