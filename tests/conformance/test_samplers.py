"""Every sampler: Optuna's test suite for those of this package, then all of them in a search.

The suite samples parameters "x" and "y" of all kinds and ranges. Where one of its tests is narrowed or left out, a
comment gives the reason.
"""

from __future__ import annotations

import math
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import optuna
import pytest
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import event
from sqlalchemy.engine import Engine

from s2e.errors import InvalidInput
from s2e.samplers import SAMPLERS, CurveSampler, DynamicsSampler, RelaxationSampler, sampler_spec
from s2e.samplers.control_variate import CurveControl
from s2e.samplers.relaxation import STEPS
from s2e.schedules.spaces import SPACES, Space
from s2e.studies import Search, SearchPlan
from s2e.studies.loop import ask, next_generation
from searches import make_study, quiet, trial_points
from small_studies import skip_disk_sync

suite = pytest.importorskip("optuna.testing.pytest_samplers", reason="needs Optuna 4.6")

if TYPE_CHECKING:
    from s2e.schedules.spaces import Floats

SamplerFactory = Callable[[], BaseSampler]
UNIT = FloatDistribution(0.0, 1.0)
EPOCHS, K, TRIALS = 20, 6, 24
"""Four generations: more trials than the start-up of any sampler."""

_quiet = pytest.fixture(quiet, autouse=True)


class Rays(Space):
    """Curves 1 − x̄ t/T, x̄ the mean of the coordinates, with the given names."""

    name = "rays"

    def __init__(self, *names: str) -> None:
        self.names = names

    def unclipped(self, points: Floats, t: Floats, epochs: int) -> Floats:
        return 1 - points.mean(axis=1, keepdims=True) * t / epochs  # (P, M)


class BasicSuite(suite.BasicSamplerTestCase):
    """The basic part of the suite with each kind of parameter in one combination, not in all of them."""

    @suite.parametrize_suggest_method("y")
    def test_combination_of_different_distributions_objective(
        self, sampler: SamplerFactory, suggest_method_y: Callable[[optuna.Trial], float]
    ) -> None:
        super().test_combination_of_different_distributions_objective(
            sampler, lambda trial: trial.suggest_float("x", 0, 1), suggest_method_y
        )


class TestRelaxationSampler(BasicSuite, suite.RelativeSamplerTestCase, suite.SingleOnlySamplerTestCase):
    """Without a simplex, because parameters of the suite's studies differ between trials.

    Generations of two, so that the ten trials of a test make up to four steps.
    """

    @pytest.fixture
    def sampler(self) -> SamplerFactory:
        return lambda: RelaxationSampler(generation_size=2)

    # The relative space has floats without log or step only.
    @pytest.mark.parametrize("x_distribution", [UNIT, FloatDistribution(-10, 300)])
    def test_sample_relative_numerical(self, sampler: SamplerFactory, x_distribution: FloatDistribution) -> None:
        super().test_sample_relative_numerical(sampler, x_distribution, UNIT)

    test_sample_relative_categorical = None  # for the same reason
    test_sample_relative_mixed = None  # for the same reason


class TestControlledRelaxationSampler(BasicSuite, suite.SingleOnlySamplerTestCase):
    """Its only coordinate is "x"; every complete trial must have it as a float in [0, 1]."""

    @pytest.fixture
    def sampler(self) -> SamplerFactory:
        control = CurveControl(Rays("x"), EPOCHS, startup=2, draws=64)
        return lambda: RelaxationSampler(generation_size=2, control=control)

    def test_single_parameter_objective(self, sampler: SamplerFactory) -> None:
        super().test_single_parameter_objective(sampler, lambda trial: trial.suggest_float("x", 0, 1))

    test_float = test_int = test_categorical = None  # as in TestRelaxationSampler
    # Each has an "x" that is missing, or of another range or kind.
    test_dynamic_range_objective = None
    test_nan_objective_value = None
    test_partial_fixed_sampling = None
    test_sample_single_distribution = None
    test_conditional_parameter_objective = None


class TestCurveSamplerOutsideItsSpace(BasicSuite, suite.SingleOnlySamplerTestCase):
    """No parameter of the suite is a coordinate, so all are drawn independently."""

    @pytest.fixture
    def sampler(self) -> SamplerFactory:
        return lambda: CurveSampler(Rays("u", "v"), EPOCHS, startup=2)

    test_float = test_int = test_categorical = None  # test_single_parameter_objective has all kinds


class TestCurveSamplerInItsSpace(BasicSuite):
    """Its only coordinate is "x", which may have any range: a point outside of it is drawn independently."""

    @pytest.fixture
    def sampler(self) -> SamplerFactory:
        return lambda: CurveSampler(Rays("x"), EPOCHS, startup=2)

    @pytest.mark.parametrize(("low", "high"), [(0, 1), (-1, 1), (5, 6)])
    def test_single_parameter_objective(self, sampler: SamplerFactory, low: float, high: float) -> None:
        super().test_single_parameter_objective(sampler, lambda trial: trial.suggest_float("x", low, high))

    test_float = test_int = test_categorical = None  # as in TestCurveSamplerOutsideItsSpace
    test_conditional_parameter_objective = None  # its "x" is categorical
    test_sample_single_distribution = None  # it has no "x"


class TestCurveSamplerRelative(suite.RelativeSamplerTestCase):
    """Its coordinates are "x" and "y"."""

    @pytest.fixture
    def sampler(self) -> SamplerFactory:
        return lambda: CurveSampler(Rays("x", "y"), EPOCHS, startup=2)

    def test_sample_relative_numerical(self, sampler: SamplerFactory) -> None:
        super().test_sample_relative_numerical(sampler, UNIT, UNIT)

    test_sample_relative_categorical = None  # no coordinate is categorical
    test_sample_relative_mixed = None  # no coordinate is categorical


# Every sampler by name, and a sampler object


class LatticeSampler(BaseSampler):
    """A user's sampler: each coordinate is a multiple of √2 modulo 1, moved halfway to the best trial."""

    def infer_relative_search_space(self, *_: Any) -> dict[str, BaseDistribution]:
        return {}

    def sample_relative(self, *_: Any) -> dict[str, Any]:
        return {}

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, _: BaseDistribution
    ) -> float:
        complete = [one for one in study.get_trials(deepcopy=False) if one.state == TrialState.COMPLETE]
        best = min(complete, key=lambda one: one.values[0], default=None)
        u = math.sqrt(2) * (trial.number + 1) * (1 + sum(param_name.encode())) % 1
        return u if best is None else 0.5 * (u + best.params[param_name])


KINDS = {
    "curve": CurveSampler,
    "curve-dynamics": DynamicsSampler,
    **dict.fromkeys((*STEPS, "newton-curve"), RelaxationSampler),
    "random": RandomSampler,
    "tpe": TPESampler,
    "tpe-multivariate": TPESampler,
    "gp": GPSampler,
    "cmaes": CmaEsSampler,
    "hyperband": RandomSampler,
}
OBJECT = "object"
EVERY = (*SAMPLERS, OBJECT)


def named(name: str) -> str | BaseSampler:
    return LatticeSampler() if name == OBJECT else name


def plan_of(name: str, space: str) -> SearchPlan:
    return SearchPlan.named(space, named(name), epochs=EPOCHS, trials=TRIALS, generation_size=K, seed=7)


@pytest.mark.parametrize(
    ("name", "space"),
    [*((name, "s2e") for name in EVERY), *zip(["newton", "curve", "cmaes"] * len(SPACES), SPACES, strict=False)],
)
def test_points_decode_to_schedules(name: str, space: str) -> None:
    study, plan = make_study(), plan_of(name, space)
    generator = np.random.default_rng(0)
    for asked in (0, 2 * K):
        for point in generator.random((asked, plan.space.dimension)):
            params = dict(zip(plan.space.names, point.tolist(), strict=True))
            value = float(((point - 0.3) ** 2).mean())
            study.add_trial(optuna.create_trial(params=params, distributions=dict.fromkeys(params, UNIT), value=value))
        trials = ask(study, plan, 2)
        assert all(trial.state == TrialState.RUNNING for trial in trials)
        assert all(set(trial.params) == set(plan.space.names) for trial in trials)
        points = np.array([[trial.params[name] for name in plan.space.names] for trial in trials])  # (2, D)
        assert (points[0] != points[1]).any()
        assert plan.space.decode(points, EPOCHS).shape == (2, EPOCHS)  # refuses points outside the unit cube


@pytest.mark.parametrize("name", SAMPLERS)
def test_sampler_is_built_by_name_from_any_seed(name: str) -> None:
    space, points = SPACES["coteaching"], []
    for seed in (5, 2**63 - 1, 5):
        built = sampler_spec(name, space, EPOCHS, K).build(seed)
        assert type(built) is KINDS[name]
        points.append(optuna.create_study(sampler=built).ask(dict.fromkeys(space.names, UNIT)).params)
    assert points[0] == points[2]
    assert points[0] != points[1]


@pytest.mark.parametrize(("name", "multivariate"), [("tpe", False), ("tpe-multivariate", True)])
def test_tpe_has_the_stated_settings(name: str, multivariate: bool) -> None:
    space = SPACES["coteaching"]
    stated = TPESampler(seed=5, n_startup_trials=10, multivariate=multivariate, constant_liar=True)
    asked = []
    for sampler in (sampler_spec(name, space, EPOCHS, K).build(5), stated):
        study = optuna.create_study(sampler=sampler)
        for _ in range(12):
            trial = study.ask(dict.fromkeys(space.names, UNIT))
            study.tell(trial, sum(trial.params.values()))
        asked.append([study.ask(dict.fromkeys(space.names, UNIT)).params for _ in range(3)])
    assert asked[0] == asked[1]


def test_relaxation_sampler_is_built_for_its_space_and_generation_size() -> None:
    built = sampler_spec("natural", SPACES["s2e"], EPOCHS, 9).build(3)
    assert isinstance(built, RelaxationSampler)
    assert (built.step, built.generation_size, built.simplex, built.seed) == ("natural", 9, SPACES["s2e"].simplex, 3)


def test_sampler_object_is_used_for_every_trial() -> None:
    sampler = LatticeSampler()
    spec = sampler_spec(sampler, SPACES["s2e"], EPOCHS, K)
    assert spec.build(0) is spec.build(1) is sampler
    assert (spec.pruner, spec.rungs) == (None, ())


def test_generation_size_of_one_is_refused_for_the_relaxation() -> None:
    with pytest.raises(InvalidInput, match="`generation_size` must be at least 2"):
        sampler_spec("newton", SPACES["s2e"], EPOCHS, 1)


@pytest.mark.parametrize("sampler", [None, 3, RandomSampler, lambda seed: RandomSampler(seed)])
def test_other_objects_are_refused(sampler: Any) -> None:
    with pytest.raises(InvalidInput, match="must be the name of a sampler or an `optuna"):
        sampler_spec(sampler, SPACES["s2e"], EPOCHS, K)


def test_unknown_name_is_refused_with_the_nearest_names_first() -> None:
    with pytest.raises(InvalidInput, match=r"`sampler` must be one of curve, .*, but got 'curves'\.") as refused:
        sampler_spec("curves", SPACES["s2e"], EPOCHS, K)
    assert all(name in str(refused.value) for name in SAMPLERS)


# Every sampler in a search that is killed and continued


Tell = Callable[[optuna.Study, int], None]


def tell_errors(study: optuna.Study, number: int) -> None:
    params = study.get_trials(deepcopy=False)[number].params
    study.tell(number, float(np.mean([(u - 0.1 * (1 + j % 7)) ** 2 for j, u in enumerate(params.values())])))


def tell_all_outcomes(study: optuna.Study, number: int) -> None:
    """Tell errors, infinities, failed and pruned trials."""
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
            tell_errors(study, number)


CASES = [
    pytest.param(name, space, tell, marks=pytest.mark.filterwarnings("ignore:Clip non-finite values:UserWarning"))
    for name, space, tell in (
        *((name, "coteaching", tell_all_outcomes) for name in EVERY),
        ("cmaes", "s2e", tell_errors),  # its state in the study is large
    )
]
MOMENTS = ((12, 12), (15, 18), (18, 21))
"""(told, asked) when the process is killed: between two generations, while one is told, while one is asked."""


def proceed(study: optuna.Study, plan: SearchPlan, tell: Tell, told: float = math.inf, asked: int = 0) -> None:
    """Ask and tell generations to the end, or until `told` trials are told; then ask up to `asked` trials."""
    done = sum(trial.state.is_finished() for trial in study.get_trials(deepcopy=False))
    while done < told and (generation := next_generation(Search(plan, study), EPOCHS)):
        for trial in generation[: int(min(told - done, K))]:
            tell(study, trial.number)
            done += 1
    begun = len(study.get_trials(deepcopy=False))
    if asked > begun:
        ask(study, plan, asked - begun)


@cache
def uninterrupted(name: str, space: str, tell: Tell) -> optuna.Study:
    study = make_study()
    proceed(study, plan_of(name, space), tell)
    return study


@pytest.mark.parametrize(("name", "space", "tell"), CASES)
def test_killed_search_asks_the_same_points(name: str, space: str, tell: Tell, tmp_path: Path) -> None:
    expected = trial_points(uninterrupted(name, space, tell))
    for told, asked in MOMENTS:
        study = make_study(tmp_path / "study.db")
        proceed(study, plan_of(name, space), tell, told, asked)
        assert trial_points(study) == expected[:asked]
    last = make_study(tmp_path / "study.db")
    proceed(last, plan_of(name, space), tell)
    assert trial_points(last) == expected


@pytest.mark.parametrize(("name", "space", "tell"), CASES)
def test_points_differ_and_lie_in_the_cube(name: str, space: str, tell: Tell) -> None:
    study = uninterrupted(name, space, tell)
    failed = study.get_trials(states=(TrialState.FAIL,))
    assert len(study.trials) == TRIALS + len(failed)  # failed trials are replaced
    assert not study.get_trials(states=(TrialState.RUNNING,))
    for params in trial_points(study):
        assert set(params) == set(SPACES[space].names)
        assert all(type(u) is float and 0 <= u <= 1 for u in params.values())
    assert len({tuple(params.values()) for params in trial_points(study)}) == len(study.trials)


@pytest.mark.parametrize(("name", "space", "tell"), CASES[: len(EVERY)])
def test_pickled_sampler_asks_the_same_points(name: str, space: str, tell: Tell) -> None:
    plan = plan_of(name, space)
    original, other = make_study(name="original"), make_study(name="other")
    for study in (original, other):
        study.add_trials(uninterrupted(name, space, tell).get_trials(deepcopy=False))
    original.sampler = plan.sampler.build(3)
    distributions: dict[str, BaseDistribution] = dict.fromkeys(plan.space.names, UNIT)
    for _ in range(3):  # the pickle includes state from earlier asks
        other.sampler = pickle.loads(pickle.dumps(original.sampler))
        assert other.ask(distributions).params == original.ask(distributions).params


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Clip non-finite values:UserWarning")
def test_new_process_asks_the_same_points(tmp_path: Path) -> None:
    told, asked = 18, 20  # a generation after the start-up of every sampler
    file = tmp_path / "studies.db"
    for name in EVERY:
        trials = uninterrupted(name, "coteaching", tell_all_outcomes).get_trials(deepcopy=False)
        make_study(file, name).add_trials([*trials[:told], *(as_asked(trial) for trial in trials[told:asked])])
    code = f"from {Path(__file__).stem} import in_a_new_process; in_a_new_process({str(file)!r})"
    support = str(Path(__file__).parents[1] / "support")
    environment = {**os.environ, "PYTHONPATH": support, "PYTHONHASHSEED": "17"}  # the order of hashes must not matter
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent, env=environment)
    for name in EVERY:
        expected = trial_points(uninterrupted(name, "coteaching", tell_all_outcomes))
        assert trial_points(make_study(file, name)) == expected, name


def as_asked(trial: FrozenTrial) -> FrozenTrial:
    """Return the trial as it was before it was told."""
    return optuna.create_trial(
        state=TrialState.RUNNING,
        params=trial.params,
        distributions=trial.distributions,
        system_attrs=trial.system_attrs,
    )


def in_a_new_process(file: str) -> None:
    event.listen(Engine, "connect", skip_disk_sync)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    for name in EVERY:
        proceed(make_study(Path(file), name), plan_of(name, "coteaching"), tell_all_outcomes)
