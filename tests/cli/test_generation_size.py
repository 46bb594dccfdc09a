"""`--generation auto` on the command line: what a search and a comparison make of the generation that is picked."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from command_line import TINY, assert_refused, s2e, save
from compare_commands import TWO_NOISES, right, tables
from populations import tell_before_a_search_trains, train_searches_by
from s2e.engine.task import Member, Task, Trained
from s2e.engine.training import train_population
from s2e.runs.directory import CONFIG, Run
from s2e.studies import generation_size
from s2e.studies.loop import search_schedule
from s2e.studies.plan import SearchPlan
from s2e.studies.storage import open_study
from s2e.workflows import compare as comparison
from s2e.workflows import search as commands

pytestmark = pytest.mark.usefixtures("work")


@pytest.fixture(autouse=True)
def _no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw no figures."""
    monkeypatch.setattr(comparison, "figure_files", lambda _: {})


# A search

SEARCH = [*TINY, "--epochs", "1", "--restarts", "1", "--no-baselines", "--sampler", "random", "--space", "coteaching"]


def finding(size: int) -> Callable[..., int]:
    """A measurement that finds this the widest, or the widest allowed."""
    return lambda _, __, sizes: min(size, max(sizes))


def study_of(path: str) -> list[tuple[dict[str, float], float]]:
    run = Run(path)
    study = open_study(run.storage, "search", run.read_json(CONFIG)["options"])
    return [(trial.params, trial.values[0]) for trial in study.trials]


def searched(out: str, *arguments: str) -> Any:
    done = s2e("search", *arguments, "--out", out)
    assert done.exit_code == 0, done.stderr
    return done


def numbers(out: str) -> tuple[int, int]:
    """K and the trials, which the configuration, the study and the result must agree on."""
    run = Run(out)
    options, result = run.read_json(CONFIG)["options"], run.read_json("result.json")["search"]
    assert (options["generation"], options["trials"]) == (result["generation"], result["trials"])
    assert len(study_of(out)) == result["trials"]
    return result["generation"], result["trials"]


def test_on_a_cpu_auto_is_the_search_of_sixty_trials_six_at_a_time() -> None:
    done = searched("auto", save(), *SEARCH, "--generation", "auto")
    plain = searched("plain", save(), *SEARCH)
    assert numbers("auto") == numbers("plain") == (6, 60)
    assert study_of("auto") == study_of("plain")
    assert Path("auto", "schedule.json").read_text() == Path("plain", "schedule.json").read_text()
    assert "\nsearch, 6 at a time: 10 epochs\ngeneration 1/10, trial 6/60" in done.stderr
    assert "\nsearch: 10 epochs\n" in plain.stderr


@pytest.mark.parametrize(("trials", "expected"), [(20, 4), (9, 2), (1, 2)])
def test_trials_that_are_given_bound_the_generation(trials: int, expected: int) -> None:
    searched("run", save(), *SEARCH, "--generation", "auto", "--trials", str(trials))
    assert numbers("run") == (expected, trials)


def test_a_wide_generation_is_searched_for_as_many_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "DEFAULT_GENERATIONS", 2)
    monkeypatch.setattr(generation_size, "picked", finding(8))
    done = searched("run", save(), *SEARCH, "--generation", "auto")
    assert numbers("run") == (8, 16)
    assert "\nsearch, 8 at a time: 2 epochs\n" in done.stderr


def test_what_is_measured_is_one_member_of_the_search_on_its_own_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[Task, list[Member]]] = []

    def spy(task: Task, kinds: list[Member], sizes: Sequence[int]) -> int:
        seen.append((task, kinds))
        return sizes[0]

    monkeypatch.setattr(generation_size, "picked", spy)
    searched("run", save(), *SEARCH, "--generation", "auto", "--trials", "2", "--method", "jocor")
    ((measured_task, (kind,)),) = seen
    assert measured_task.method.name == "jocor"
    assert (measured_task.batch_size, measured_task.epochs, len(kind.schedule)) == (32, 1, 1)


@pytest.mark.parametrize("again", [[], ["--generation", "auto"], ["--generation", "auto", "--trials", "20"]])
def test_a_continued_search_keeps_its_generation_whatever_would_be_measured_now(again: list[str]) -> None:
    data = save()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(generation_size, "picked", finding(3))
        never_stopped = ["search", data, *SEARCH, "--generation", "auto", "--trials", "20"]
        assert s2e(*never_stopped, "--out", "never stopped").exit_code == 0
        interrupt_in(2, patched)
        assert s2e(*never_stopped, "--out", "run").exit_code == 130
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(generation_size, "picked", lambda *_: pytest.fail("measured again"))
        searched("run", "--resume", *again)
    assert numbers("run") == (3, 20)
    assert study_of("run") == study_of("never stopped")


def interrupt_in(generation: int, patched: pytest.MonkeyPatch) -> None:
    trained = 0

    def train(task: Task, members: Sequence[Member], **named: Any) -> Trained:
        nonlocal trained
        if trained == generation:
            raise KeyboardInterrupt
        trained += 1
        return train_population(task, members, **named)

    train_searches_by(train, patched)


def test_more_trials_of_a_picked_generation_continue_it() -> None:
    searched("run", save(), *SEARCH, "--generation", "auto", "--trials", "10")
    searched("run", "--resume", "--generation", "auto", "--trials", "30")
    assert numbers("run") == (2, 30)


def test_a_fixed_generation_gives_the_study_of_the_plain_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation_size, "picked", lambda *_: pytest.fail("measured"))
    tasks: list[Task] = []

    def spy(task: Task, plan: SearchPlan, *rest: Any, **named: Any) -> Any:
        tasks.append(task)
        return search_schedule(task, plan, *rest, **named)

    monkeypatch.setattr(commands, "search_schedule", spy)
    searched("run", save(), *SEARCH, "--generation", "7", "--trials", "16")
    assert numbers("run") == (7, 16)
    plan = SearchPlan.named("coteaching", "random", epochs=1, trials=16, generation=7)
    study = open_study(None, "expected", {})
    found = search_schedule(tasks[0], plan, study)
    assert study_of("run") == [(trial.params, trial.values[0]) for trial in study.trials]
    assert json.loads(Path("run", "schedule.json").read_text())["keep_rates"] == found.schedule.tolist()


@pytest.mark.parametrize("command", ["search", "compare"])
@pytest.mark.parametrize("word", ["many", "2.5", "", "AUTO"])
def test_a_generation_that_is_neither_a_number_nor_auto_is_refused_in_one_line(command: str, word: str) -> None:
    refused = s2e(command, "nowhere.npz", "--out", "run", "--generation", word)
    assert_refused(refused, f"`generation` must be a positive integer or auto, but got '{word}'")


@pytest.mark.parametrize(
    ("arguments", "mention"),
    [
        (["--generation", "-3"], "`generation` must be at least 1, but got -3"),
        (["--generation", "auto", "--trials", "0"], "`trials` must be at least 1, but got 0"),
        (["--generation", "auto", "--sampler", "moon"], "`sampler` must be one of"),
        (["--generation", "auto", "--method", "standard"], "`method` must have a keep rate"),
    ],
)
def test_bad_input_beside_it_is_refused_before_anything_is_measured(
    arguments: list[str], mention: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generation_size, "picked", lambda *_: pytest.fail("measured"))
    assert_refused(s2e("search", save(), *SEARCH, *arguments, "--out", "run"), mention)


# A comparison


COMPARISON = [*TINY, "--epochs", "1", "--seeds", "2", "--sampler", "random", "--space", "coteaching"]
COMPARISON += ["--generation", "auto"]


def picking(size: int, patched: pytest.MonkeyPatch) -> list[list[Member]]:
    """Let a measurement find this the widest, and return what it is asked about."""
    seen: list[list[Member]] = []

    def picked(_: Task, kinds: list[Member], sizes: Sequence[int]) -> int:
        seen.append(kinds)
        return min(size, max(sizes))

    patched.setattr(comparison, "picked", picked)
    return seen


def populations(patched: pytest.MonkeyPatch) -> list[int]:
    """Return how many members each generation of the searches has, as they are trained."""
    sizes: list[int] = []
    tell_before_a_search_trains(lambda _, members: sizes.append(len(members)), patched)
    return sizes


def test_on_a_cpu_auto_searches_thirty_schedules_six_at_a_time() -> None:
    data = right()
    for out, generation in (("run", "auto"), ("fixed", "6")):
        shown = s2e("compare", data, *COMPARISON, "--generation", generation, "--methods", "s2e", "--out", out)
        assert shown.exit_code == 0, shown.stderr
        options = json.loads(Path(out, CONFIG).read_text())["options"]
        assert (options["generation"], options["trials"]) == (6, 30)
        stage = "search, 6 at a time" if generation == "auto" else "search"
        assert f"{stage}: 5 epochs\n" in shown.stderr
    assert tables("run") == tables("fixed")


def test_the_generation_is_picked_for_all_searches_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "ROUNDS", 2)
    seen, trained = picking(8, monkeypatch), populations(monkeypatch)
    arguments = [*COMPARISON, *TWO_NOISES, "--methods", "standard,s2e,s2e:jocor", "--out", "run"]
    assert s2e("compare", right(), *arguments).exit_code == 0
    (kinds,) = seen
    assert [kind.method and kind.method.name for kind in kinds] == 2 * ["coteaching", "jocor"]
    assert len({kind.labels.tobytes() for kind in kinds if kind.labels is not None}) == 2  # of two noise settings
    assert trained == 2 * [4 * 8]
    found = json.loads(Path("run", "result.json").read_text())["search"]
    assert [(row["trials"], row["generation"]) for row in found] == 4 * [(16, 8)]


def test_searches_that_are_trained_apart_are_measured_by_the_largest_population(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen, trained = picking(8, monkeypatch), populations(monkeypatch)
    arguments = [*COMPARISON, *TWO_NOISES, "--methods", "s2e,s2e:jocor", "--validation", "noisy", "--trials", "10"]
    assert s2e("compare", right(), *arguments, "--out", "run").exit_code == 0
    assert [len(kinds) for kinds in seen] == [2]
    assert trained == 2 * 5 * [2 * 2]  # a fifth of ten trials, of two methods


@pytest.mark.parametrize("again", [(), ("--generation", "auto")])
def test_a_continued_comparison_keeps_its_generation_whatever_would_be_measured_now(again: tuple[str, ...]) -> None:
    arguments = [right(), *COMPARISON, "--noise", "pair:0.4", "--methods", "standard,s2e"]
    with pytest.MonkeyPatch.context() as patched:
        picking(3, patched)
        assert s2e("compare", *arguments, "--out", "never_stopped").exit_code == 0
        interrupt_in(1, patched)
        assert s2e("compare", *arguments, "--out", "run").exit_code == 130
    with pytest.MonkeyPatch.context() as patched:
        seen = picking(12, patched)
        continued = s2e("compare", "--resume", "--out", "run", *again, "--methods", "standard,s2e,s2e:jocor")
        assert continued.exit_code == 0, continued.stderr
        assert (
            s2e("compare", "--resume", "--out", "never_stopped", "--methods", "standard,s2e,s2e:jocor").exit_code == 0
        )
    assert seen == []
    options = json.loads(Path("run", CONFIG).read_text())["options"]
    assert (options["generation"], options["trials"]) == (3, 15)
    assert tables("run") == tables("never_stopped")


def test_where_nothing_is_searched_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = picking(12, monkeypatch)
    assert s2e("compare", right(), *COMPARISON, "--methods", "standard", "--out", "run").exit_code == 0
    options = json.loads(Path("run", CONFIG).read_text())["options"]
    assert (seen, options["generation"], options["trials"]) == ([], 6, 30)


def test_bad_input_beside_it_is_refused_before_a_comparison_measures_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = picking(12, monkeypatch)
    refused = s2e("compare", right(), *COMPARISON, "--methods", "s2e", "--sampler", "moon", "--out", "run")
    assert_refused(refused, "`sampler` must be one of")
    assert seen == []
