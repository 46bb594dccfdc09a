"""The generation loop: what a study holds in the end, whatever happened on the way."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
import torch
from optuna.distributions import FloatDistribution
from optuna.trial import TrialState
from torch import nn

from conftest import blobs, small_mlp, task
from s2e import searching
from s2e.errors import InvalidInput, RunConflict, UnreadableData
from s2e.methods import Coteaching, JoCoR, MentorNet, Method, Standard
from s2e.records import LAST_EPOCHS
from s2e.samplers import algorithm
from s2e.searching import (
    Found,
    GenerationDone,
    Search,
    SearchPlan,
    best,
    epochs_left,
    finished,
    search_schedule,
    search_schedules,
)
from s2e.seeds import derive
from s2e.spaces import SPACES
from s2e.studies import CHANGEABLE, open_study
from s2e.tasks import Member, Progress, Task, Trained
from s2e.training import train_population

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


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    yield
    optuna.logging.set_verbosity(before)


# What a search leaves


@pytest.mark.parametrize("method", [MentorNet(), Coteaching()], ids=lambda method: method.name)
def test_a_study_holds_exactly_the_trials_asked_for_all_complete(method: Method) -> None:
    study = in_memory()
    search_schedule(a_task(method), a_plan(trials=2 * K + 1), study)
    assert [trial.number for trial in study.trials] == list(range(2 * K + 1))
    assert {trial.state for trial in study.trials} == {TrialState.COMPLETE}
    assert len(finished(study)) == 2 * K + 1


def test_a_trial_is_scored_by_its_validation_error_over_the_last_epochs() -> None:
    study = in_memory()
    search_schedule(a_task(), a_plan(), study)
    for trial in study.trials:
        curve = trial.user_attrs["validation_accuracy"]
        assert len(curve) == EPOCHS
        assert trial.values[0] == pytest.approx(1 - np.mean(curve[-LAST_EPOCHS:]), abs=1e-6)


def test_a_trial_is_its_point_trained_alone_from_the_seed_of_its_number() -> None:
    study, plan = in_memory(), a_plan()
    search_schedule(a_task(), plan, study)
    for number in (1, K + 1):
        trial = study.trials[number]
        members = searching._members([trial], EPOCHS, Search(plan, study))
        assert members[0].seed == derive(plan.seed, "trial", number)
        alone = train_population(a_task(), members).curves.last("valid")[0]
        assert trial.values[0] == 1 - alone


def test_the_best_trial_is_the_one_with_the_smallest_validation_error() -> None:
    study, plan = in_memory(), a_plan()
    found = search_schedule(a_task(), plan, study)
    errors = [trial.values[0] for trial in study.trials]
    assert found.trial == int(np.argmin(errors))
    assert found.validation_accuracy == pytest.approx(1 - min(errors))
    assert found.point.tolist() == [study.trials[found.trial].params[name] for name in plan.space.names]
    np.testing.assert_array_equal(found.schedule, plan.space.decode(found.point[None], EPOCHS)[0])


@pytest.mark.parametrize("where", ["memory", "file"])
def test_of_equal_trials_the_earliest_is_the_best(where: str, tmp_path: Path) -> None:
    study, plan = in_memory() if where == "memory" else at(tmp_path / "study.db"), a_plan()
    for trial, error in zip(searching.ask(study, plan, 4), [0.5, 0.2, 0.2, 0.3], strict=True):
        study.tell(trial.number, error)
    assert best(study, plan.space, EPOCHS).trial == 1


def test_generations_are_told_with_the_best_so_far() -> None:
    study, told = in_memory(), []
    search_schedule(a_task(), a_plan(trials=2 * K + 1), study, on_generation=told.append)
    errors = [trial.values[0] for trial in study.trials]
    assert told == [GenerationDone(n, 2 * K + 1, K, (1 - min(errors[:n]),)) for n in (K, 2 * K, 2 * K + 1)]


def test_the_epochs_announced_are_the_epochs_trained() -> None:
    study, plan, epochs = in_memory(), a_plan(trials=2 * K + 1), []
    announced = epochs_left([Search(plan, study)], EPOCHS)
    search_schedule(a_task(), plan, study, on_epoch=epochs.append)
    assert announced == len(epochs) == 3 * EPOCHS
    assert epochs_left([Search(plan, study)], EPOCHS) == 0


# Determinism


@pytest.mark.parametrize("name", SAMPLERS)
def test_equal_seeds_give_equal_points_and_values_wherever_the_study_lies(name: str, tmp_path: Path) -> None:
    one, stored = in_memory(), at(tmp_path / "study.db")
    for study in (one, stored):
        search_schedule(a_task(), a_plan(name, TRIALS - 1), study)
    assert trials(one) == trials(stored) == trials(at(tmp_path / "study.db"))


@pytest.mark.parametrize("name", SAMPLERS)
def test_all_points_of_a_search_differ_and_another_seed_gives_others(name: str) -> None:
    one, other = in_memory(), in_memory()
    for seed, study in enumerate((one, other)):
        search_schedule(a_task(), a_plan(name, TRIALS, seed=seed), study)
    everything = [tuple(params.values()) for study in (one, other) for params in points(study)]
    assert len(set(everything)) == 2 * TRIALS


def test_the_steps_of_the_relaxation_share_their_first_generation_and_then_part() -> None:
    asked = []
    for name in ("newton", "natural", "gradient"):
        study = in_memory()
        search_schedule(a_task(), a_plan(name), study)
        asked.append(points(study))
    assert asked[0][:K] == asked[1][:K] == asked[2][:K]
    assert asked[0][K] != asked[1][K] != asked[2][K] != asked[0][K]


# Members that diverge


def one_in_two_is_broken() -> nn.Module:
    """Not a number anywhere when the first weight that is drawn is positive: as the seed has it."""
    network = small_mlp()
    first = network.get_parameter("0.weight")
    if first[0, 0] > 0:
        nn.init.constant_(first, float("nan"))
    return network


def test_a_member_that_diverges_is_told_with_an_error_of_1_and_the_others_go_on() -> None:
    study, plan = in_memory(), a_plan()
    found = search_schedule(a_task(network=one_in_two_is_broken), plan, study)
    broken = []
    for number in range(plan.trials):
        torch.manual_seed(derive(derive(plan.seed, "trial", number), "network", 0))
        broken.append(bool(one_in_two_is_broken().get_parameter("0.weight").isnan().any()))
    assert 0 < sum(broken) < len(broken)
    assert [trial.values[0] == 1.0 for trial in study.trials] == broken
    assert not broken[found.trial]


def test_a_search_in_which_everything_diverges_still_ends() -> None:
    study = in_memory()
    found = search_schedule(a_task(), a_plan(learning_rate=1e35), study)
    assert [trial.values for trial in study.trials] == [[1.0]] * (2 * K)
    assert found.validation_accuracy == 0
    assert found.trial == 0


# Sizes


def test_a_generation_larger_than_the_search_is_trained_as_one() -> None:
    study, told = in_memory(), []
    search_schedule(a_task(), a_plan(trials=3, generation=8), study, on_generation=told.append)
    assert [done.finished for done in told] == [3]


def test_a_generation_of_one_works_with_a_sampler_that_allows_it() -> None:
    study, told = in_memory(), []
    search_schedule(a_task(), a_plan("random", trials=3, generation=1), study, on_generation=told.append)
    assert [done.finished for done in told] == [1, 2, 3]


def test_random_points_do_not_depend_on_the_size_of_a_generation() -> None:
    asked = []
    for generation in (1, 3, 8):
        study = in_memory()
        search_schedule(a_task(), a_plan("random", trials=4, generation=generation), study)
        asked.append(trials(study))
    assert asked[0] == asked[1] == asked[2]


@pytest.mark.parametrize("name", ["newton", "random"])
def test_more_trials_continue_the_generations_by_number(name: str) -> None:
    """A search of 5 in generations of 3, extended to 8, fills the second generation up and opens a third."""
    whole, extended, told = in_memory(), in_memory(), []
    search_schedule(a_task(), a_plan(name, trials=8), whole)
    search_schedule(a_task(), a_plan(name, trials=5), extended)
    search_schedule(a_task(), a_plan(name, trials=8), extended, on_generation=told.append)
    assert [done.finished for done in told] == [6, 8]
    assert trials(extended) == trials(whole)


def test_fewer_trials_than_there_are_train_nothing_and_forget_nothing() -> None:
    study, epochs = in_memory(), []
    found = search_schedule(a_task(), a_plan(), study)
    again = search_schedule(a_task(), a_plan(trials=2), study, on_epoch=epochs.append)
    assert not epochs
    assert again.trial == found.trial
    assert len(finished(study)) == 2 * K


@pytest.mark.parametrize("name", ["trials", "generation"])
@pytest.mark.parametrize("value", [0, -3])
def test_a_plan_without_trials_or_members_is_refused(name: str, value: int) -> None:
    with pytest.raises(InvalidInput, match=f"`{name}` must be at least 1, but got {value}"):
        replace(a_plan(), **{name: value})


def test_a_generation_of_one_is_refused_for_the_relaxation() -> None:
    with pytest.raises(InvalidInput, match="`generation` must be at least 2"):
        a_plan("newton", generation=1)


def test_a_method_without_a_keep_rate_is_refused_before_anything_is_asked() -> None:
    study = in_memory()
    with pytest.raises(InvalidInput, match=r"keep rate.*standard"):
        search_schedule(a_task(Standard()), a_plan(), study)
    assert not study.trials


# Death and return


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
        monkeypatch.setattr(searching, "train_population", dying(train_population, after, lambda *_: True))
    elif where == "tell":
        monkeypatch.setattr(optuna.Study, "tell", dying(optuna.Study.tell, after, is_real))
    else:
        monkeypatch.setattr(optuna.Study, "add_trial", dying(optuna.Study.add_trial, after, is_real))


PLACES = [("train", 0), *(("tell", after) for after in range(K)), *(("ask", after) for after in range(K))]
RESUMED = {"newton": "s2e", "random": "coteaching", "tpe": "coteaching", "cmaes": "s2e", "curve": "coteaching"}
"""Samplers and the spaces they search here: the large one where its simplex matters, elsewhere the quick one."""


@pytest.fixture(scope="module", params=RESUMED)
def resumed(request: pytest.FixtureRequest) -> SearchPlan:
    return a_plan(request.param, TRIALS, space=RESUMED[request.param])


@pytest.fixture(scope="module")
def begun(resumed: SearchPlan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study of a search up to its last generation."""
    path = tmp_path_factory.mktemp("begun") / "study.db"
    search_schedule(a_task(), replace(resumed, trials=TRIALS - K), at(path))
    return path


@pytest.fixture(scope="module")
def uninterrupted(resumed: SearchPlan) -> list[tuple[Any, ...]]:
    study = in_memory()
    search_schedule(a_task(), resumed, study)
    return trials(study)


@pytest.mark.parametrize(("where", "after"), PLACES, ids=lambda value: str(value))
def test_a_generation_that_dies_anywhere_gives_the_trials_it_would_have_given(
    resumed: SearchPlan,
    begun: Path,
    uninterrupted: list[tuple[Any, ...]],
    where: str,
    after: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copy = shutil.copy(begun, tmp_path)
    study = at(copy)
    with monkeypatch.context() as patched:
        die(patched, where, after, study)
        with pytest.raises(Death):
            search_schedule(a_task(), resumed, study)
    reopened = at(copy)
    states = [trial.state.name for trial in reopened.trials[TRIALS - K :]]
    expected = {"train": K * ["RUNNING"], "ask": after * ["RUNNING"]}
    expected["tell"] = after * ["COMPLETE"] + (K - after) * ["RUNNING"]
    assert states == expected[where]

    search_schedule(a_task(), resumed, reopened)
    assert trials(reopened) == uninterrupted


@pytest.mark.parametrize("where", ["tell", "ask"])
def test_a_search_that_dies_after_every_single_trial_gives_the_trials_it_would_have_given(
    resumed: SearchPlan,
    uninterrupted: list[tuple[Any, ...]],
    where: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    study, deaths = at(tmp_path / "study.db"), 0
    while len(finished(study)) < TRIALS:
        with monkeypatch.context() as patched:
            die(patched, where, 1, study)
            try:
                search_schedule(a_task(), resumed, study)
            except Death:
                deaths += 1
    assert deaths == TRIALS - 1
    assert trials(study) == uninterrupted


def test_a_point_is_written_to_the_study_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study, plan = at(tmp_path / "study.db"), a_plan()
    die(monkeypatch, "ask", 2, study)
    with pytest.raises(Death):
        searching.ask(study, plan, K)
    assert [set(params) for params in points(at(tmp_path / "study.db"))] == 2 * [set(plan.space.names)]


def test_an_extended_search_first_trains_what_a_dead_process_left(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, study, told = in_memory(), in_memory(), []
    search_schedule(a_task(), a_plan(trials=8), whole)
    with monkeypatch.context() as patched:
        die(patched, "tell", 4, study)
        with pytest.raises(Death):
            search_schedule(a_task(), a_plan(trials=5), study)
    search_schedule(a_task(), a_plan(trials=8), study, on_generation=told.append)
    assert [done.finished for done in told] == [6, 8]
    assert trials(study) == trials(whole)


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

    def trained(task: Task, members: Sequence[Member], **named: Any) -> Trained:
        sizes.append(len(members))
        return train_population(task, members, **named)

    monkeypatch.setattr(searching, "train_population", trained)
    told: list[GenerationDone] = []
    epochs: list[Progress] = []
    searches = several([in_memory() for _ in range(3)])
    announced = epochs_left(searches, EPOCHS)
    search_schedules(a_task(), searches, on_generation=told.append, on_epoch=epochs.append)
    assert sizes == [3 * K, 3 * K, 2 * K + 1, 2 * K, 2 * K]  # one search ends early, with a part of a generation
    assert announced == len(epochs) == 5 * EPOCHS
    errors = [[trial.values[0] for trial in search.study.trials] for search in searches]
    assert told == [
        GenerationDone(
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

    def trained(task: Task, members: Sequence[Member], **named: Any) -> Trained:
        sizes.append(len(members))
        return train_population(task, members, **named)

    monkeypatch.setattr(searching, "train_population", trained)
    assert_found(search_schedules(a_task(), searches), each_alone[0])
    assert sizes == 5 * [K]


def test_one_search_of_a_method_without_a_keep_rate_is_refused_before_any_is_asked() -> None:
    searches = [Search(a_plan(), in_memory()), Search(a_plan(), in_memory(), method=Standard())]
    with pytest.raises(InvalidInput, match=r"keep rate.*standard"):
        search_schedules(a_task(), searches)
    assert not any(search.study.trials for search in searches)


# Which trial is the best


LONG = 40
"""Epochs, for curves that differ."""


def scored(schedules: Sequence[tuple[float, float, float]], errors: Sequence[float]) -> optuna.Study:
    """Make a study of schedules of Co-teaching's space, given as points of the cube, with these errors."""
    study, names = in_memory(), SPACES["coteaching"].names
    for point, error in zip(schedules, errors, strict=True):
        params = dict(zip(names, point, strict=True))
        distributions = {name: FloatDistribution(0.0, 1.0) for name in names}
        study.add_trial(optuna.trial.create_trial(params=params, distributions=distributions, value=error))
    return study


GOOD = [(0.50 + 0.002 * step, 0.3, 0.4) for step in range(6)]
BAD = [(0.10 + 0.002 * step, 0.3, 0.4) for step in range(6)]
"""Curves next to each other: about half is dropped, or about a tenth."""
GOOD_ERRORS = [0.21, 0.20, 0.22, 0.21, 0.20, 0.21]
BAD_ERRORS = [0.40, 0.41, 0.40, 0.18, 0.42, 0.39]  # with one lucky training


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_lucky_trial_among_bad_neighbours_is_chosen_only_while_trials_are_few(missing: int) -> None:
    points, errors = BAD + GOOD[missing:], BAD_ERRORS + GOOD_ERRORS[missing:]
    study = scored(points, errors)
    found = best(study, SPACES["coteaching"], LONG)
    if len(points) < 12:
        assert found.trial == 3
    else:
        assert found.trial in range(6, 12)
    assert found.validation_accuracy == 1 - errors[found.trial]  # what was seen, not what is expected
    assert found.point.tolist() == list(points[found.trial])
    np.testing.assert_array_equal(found.schedule, SPACES["coteaching"].decode(found.point[None], LONG)[0])


def test_a_trial_that_is_good_for_a_reason_is_chosen_among_many_too() -> None:
    study = scored(BAD + GOOD, [0.4] * 6 + [0.3, 0.2, 0.1, 0.2, 0.3, 0.3])
    assert best(study, SPACES["coteaching"], LONG).trial in range(6, 12)
    spread = [(0.05 + 0.06 * step, 0.3, 0.4) for step in range(14)]
    study = scored(spread, [0.1 + 0.05 * abs(step - 8) for step in range(14)])
    assert best(study, SPACES["coteaching"], LONG).trial in (7, 8, 9)


@pytest.mark.parametrize("count", [4, 14])
def test_trials_that_are_only_running_or_failed_are_never_the_best(count: int) -> None:
    study, plan = in_memory(), a_plan("random", count)
    asked = searching.ask(study, plan, count)
    study.tell(0, state=TrialState.FAIL)
    for trial in asked[2:]:
        study.tell(trial.number, 0.5 - 0.01 * trial.number)
    assert best(study, plan.space, LONG).trial >= 2


@pytest.mark.parametrize("count", [3, 12, 20])
def test_of_trials_that_are_all_alike_the_first_is_the_best(count: int) -> None:
    study, plan = in_memory(), a_plan("random", count)
    for trial in searching.ask(study, plan, count):
        study.tell(trial.number, 1.0)  # everything diverged
    assert best(study, plan.space, LONG).trial == 0


# Opening studies


def test_a_study_is_held_to_the_settings_it_was_begun_with(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'study.db'}"
    open_study(url, "search", {"epochs": 6, "validation_share": None})
    open_study(url, "search", {"epochs": 6, "validation_share": None})
    with pytest.raises(RunConflict, match="other settings"):
        open_study(url, "search", {"epochs": 7, "validation_share": None})
    open_study(url, "another", {"epochs": 7})


@pytest.mark.parametrize("name", sorted(CHANGEABLE))
def test_a_study_may_be_continued_with_another_number_of(name: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'study.db'}"
    open_study(url, "search", {"epochs": 6, name: 1})
    open_study(url, "search", {"epochs": 6, name: 2})


def test_a_storage_that_cannot_be_opened_is_unreadable_data(tmp_path: Path) -> None:
    damaged = tmp_path / "study.db"
    damaged.write_bytes(b"this is no database, however long one looks at it" * 100)
    for url in ("garbage", f"sqlite:///{tmp_path}/nowhere/study.db", f"sqlite:///{damaged}"):
        with pytest.raises(UnreadableData, match="could not be opened"):
            open_study(url, "search", {})


def test_a_database_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "study.db"
    url = f"sqlite:///{path}"

    def killed(*_: object) -> None:
        raise SystemExit  # as a process that is killed once the tables are made, but not put in place

    with monkeypatch.context() as patched:
        patched.setattr("s2e.studies.os.link", killed)
        with pytest.raises(SystemExit):
            open_study(url, "search", {})
    assert not path.exists()
    for _ in range(2):
        assert open_study(url, "search", {}).trials == []
    assert path.exists()
