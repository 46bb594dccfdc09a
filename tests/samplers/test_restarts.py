"""Every algorithm, killed and continued: the points of a search do not show how often it was interrupted."""

from __future__ import annotations

import math
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import event
from sqlalchemy.engine import Engine

from s2e.engine.curves import Curves
from s2e.engine.task import VALIDATION, EpochFinished, Member
from s2e.samplers import SAMPLERS
from s2e.schedules.spaces import SPACES
from s2e.studies.loop import Stop, ask, next_generation, run_generations
from s2e.studies.plan import Search, SearchPlan
from s2e.studies.storage import open_study
from small_studies import trust_the_machine

EPOCHS, K, TRIALS = 27, 6, 24
"""Four generations: enough for tpe (10), gp (10), curve (12) and cmaes to have left what each of them starts with."""
MOMENTS = ((12, 12), (15, 18), (18, 21))
"""(told, asked) when the process dies: between two generations, while one is told, while one is asked."""

Tell = Callable[[optuna.Study, int], None]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    yield
    optuna.logging.set_verbosity(before)


def a_plan(name: str, space: str, trials: int = TRIALS) -> SearchPlan:
    return SearchPlan.named(space, name, epochs=EPOCHS, trials=trials, generation=K, seed=7)


def a_study(path: Path | None = None, name: str = "search") -> optuna.Study:
    """Open the study in this file as a new process would, with nothing from before; in memory without a file."""
    return open_study(None if path is None else f"sqlite:///{path}", name, {})


def error(params: dict[str, float]) -> float:
    return float(np.mean([(u - 0.1 * (1 + j % 7)) ** 2 for j, u in enumerate(params.values())]))


def steady(study: optuna.Study, number: int) -> None:
    study.tell(number, error(study.get_trials(deepcopy=False)[number].params))


def troubled(study: optuna.Study, number: int) -> None:
    """Tell as `steady` does, but let all kinds of trials come to a bad end, from the very first on."""
    match number % 8:
        case 0:
            study.tell(number, state=TrialState.FAIL)
        case 2:
            study.tell(number, math.inf)
        case 4:
            study.tell(number, state=TrialState.PRUNED)
        case 6 if number > K:
            study.tell(number, -math.inf)
        case _:
            steady(study, number)


CASES = [
    pytest.param(name, space, tell, marks=pytest.mark.filterwarnings("ignore:Clip non-finite values:UserWarning"))
    for name in SAMPLERS
    for space, tell in (("coteaching", troubled), ("s2e", steady), ("rbf", steady))
    if space == "coteaching"
    or (space == "s2e" and name not in ("gp", "hyperband"))  # the one takes long, the other asks what "random" asks
    or (space == "rbf" and name in ("curve", "cmaes"))  # what makes something of a space or of its dimension
]


def proceed(study: optuna.Study, plan: SearchPlan, tell: Tell, told: float = math.inf, asked: int = 0) -> None:
    """Ask and tell generations to the end, or until so many trials are told; then ask up to so many, and go no further.

    A search asks a generation when all before it are told, and a process may die after any single ask or tell.
    """
    done = sum(trial.state.is_finished() for trial in study.get_trials(deepcopy=False))
    while done < told and (generation := next_generation(Search(plan, study), EPOCHS)):
        for trial in generation[: int(min(told - done, K))]:
            tell(study, trial.number)
            done += 1
    begun = len(study.get_trials(deepcopy=False))
    if asked > begun:
        ask(study, plan, asked - begun)


def points(study: optuna.Study) -> list[dict[str, float]]:
    return [trial.params for trial in study.get_trials(deepcopy=False)]


@cache
def never_interrupted(name: str, space: str, tell: Tell) -> optuna.Study:
    study = a_study()
    proceed(study, a_plan(name, space), tell)
    return study


# ------------------------------------------------------------------------------------------------------------ restarts


@pytest.mark.parametrize(("name", "space", "tell"), CASES)
def test_a_search_that_dies_at_any_moment_asks_the_points_it_would_have_asked(
    name: str, space: str, tell: Tell, tmp_path: Path
) -> None:
    never_died = never_interrupted(name, space, tell)
    expected = points(never_died)
    file = tmp_path / "study.db"
    for told, asked in MOMENTS:
        study = a_study(file)
        proceed(study, a_plan(name, space), tell, told, asked)
        found = points(study)
        assert len(found) == asked
        assert found == expected[:asked]
    last = a_study(file)
    proceed(last, a_plan(name, space), tell)
    assert points(last) == expected
    assert [trial.values for trial in last.trials] == [trial.values for trial in never_died.trials]


@pytest.mark.parametrize(("name", "space", "tell"), CASES)
def test_all_points_differ_and_are_in_the_cube_by_the_names_of_the_space(name: str, space: str, tell: Tell) -> None:
    study = never_interrupted(name, space, tell)
    failed = study.get_trials(states=(TrialState.FAIL,))
    assert len(study.trials) == TRIALS + len(failed)  # what failed is made up for; nothing else stops or prolongs it
    assert bool(failed) == (tell is troubled)
    assert not study.get_trials(states=(TrialState.RUNNING,))
    for params in points(study):
        assert set(params) == set(SPACES[space].names)
        assert all(type(u) is float and 0 <= u <= 1 for u in params.values())
    assert len({tuple(params.values()) for params in points(study)}) == len(study.trials)


@pytest.mark.filterwarnings("ignore:Clip non-finite values:UserWarning")
def test_a_new_process_asks_the_points_the_old_one_would_have_asked(tmp_path: Path) -> None:
    told, asked = 18, 20  # a third into a generation that every algorithm has a model for
    file = tmp_path / "studies.db"
    for name in SAMPLERS:
        trials = never_interrupted(name, "coteaching", troubled).get_trials(deepcopy=False)
        a_study(file, name).add_trials([*trials[:told], *(as_asked(trial) for trial in trials[told:asked])])
    own = f"from {Path(__file__).stem} import in_a_new_process; in_a_new_process({str(file)!r})"
    support = str(Path(__file__).parents[1] / "support")
    hashes = {
        **os.environ,
        "PYTHONPATH": support,
        "PYTHONHASHSEED": "17",
    }  # no order of a set or of hashed names may matter
    subprocess.run([sys.executable, "-c", own], check=True, cwd=Path(__file__).parent, env=hashes)
    for name in SAMPLERS:
        assert points(a_study(file, name)) == points(never_interrupted(name, "coteaching", troubled)), name


def as_asked(trial: FrozenTrial) -> FrozenTrial:
    """Return a trial as it was before it was told."""
    return optuna.create_trial(
        state=TrialState.RUNNING,
        params=trial.params,
        distributions=trial.distributions,
        system_attrs=trial.system_attrs,
    )


def in_a_new_process(file: str) -> None:
    event.listen(Engine, "connect", trust_the_machine)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    for name in SAMPLERS:
        proceed(a_study(Path(file), name), a_plan(name, "coteaching"), troubled)


# ------------------------------------------------------------------------------------------------------------ pickling


@pytest.mark.parametrize(("name", "space", "tell"), CASES)
def test_a_pickled_sampler_asks_the_points_the_original_asks(name: str, space: str, tell: Tell) -> None:
    plan = a_plan(name, space)
    original, other = a_study(name="original"), a_study(name="other")
    for study in (original, other):
        study.add_trials(never_interrupted(name, space, tell).get_trials(deepcopy=False))
    original.sampler = plan.algorithm.sampler(3)
    distributions = {coordinate: FloatDistribution(0.0, 1.0) for coordinate in plan.space.names}
    for _ in range(3):  # what the first asks have left in the sampler is in its pickle
        other.sampler = pickle.loads(pickle.dumps(original.sampler))
        assert other.ask(dict(distributions)).params == original.ask(dict(distributions)).params


# ------------------------------------------------------------------------------------- trainings that are stopped early


class Death(BaseException):
    """Kills a search, past every `except Exception`."""


def train(members: Sequence[Member], stop: Stop) -> Curves:
    """Pretend to train: what a member will reach and how fast follow from its schedule and its seed."""
    curves = Curves.empty(len(members), EPOCHS, [VALIDATION])
    ends = np.array([np.random.default_rng(member.seed).uniform(0.3, 1.0) for member in members])  # (P,)
    training = np.ones(len(members), dtype=bool)
    for epoch in range(1, EPOCHS + 1):
        curves.accuracy[VALIDATION][training, epoch - 1] = (ends * (1 - 0.5**epoch))[training]
        curves.epochs[training] = epoch
        progress = EpochFinished(epoch, EPOCHS, tuple(range(len(members))), len(members), curves)
        training[list(stop(progress))] = False
    return curves


def everything(study: optuna.Study) -> list[tuple[object, ...]]:
    return [
        (trial.state, trial.params, trial.values, trial.intermediate_values, trial.user_attrs, trial.system_attrs)
        for trial in study.trials
    ]


def test_a_search_that_stops_trainings_early_dies_and_leaves_the_study_it_would_have_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, every = a_plan("hyperband", "coteaching", trials=8), 4
    never_died = a_study()
    run_generations(train, EPOCHS, [Search(plan, never_died)])
    states = [trial.state for trial in never_died.trials]
    assert {TrialState.PRUNED, TrialState.COMPLETE} == set(states)
    assert len(states) > 8  # what was saved is spent on others

    tells, tell = 0, optuna.Study.tell

    def tell_and_die(study: optuna.Study, *told: object, **how: object) -> object:
        nonlocal tells
        tells += 1
        answer = tell(study, *told, **how)  # type: ignore[arg-type]
        if tells % every == 0:
            raise Death
        return answer

    monkeypatch.setattr(optuna.Study, "tell", tell_and_die)
    for _ in range(len(states) // every + 1):
        try:
            run_generations(train, EPOCHS, [Search(plan, a_study(tmp_path / "study.db"))])
            break
        except Death:
            continue
    assert everything(a_study(tmp_path / "study.db")) == everything(never_died)
    assert tells == len(states)
