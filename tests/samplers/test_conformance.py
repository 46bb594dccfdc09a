"""Optuna's own test suite for samplers, over the samplers written here; then every algorithm, on every space.

The suite asks for parameters "x" and "y" of all kinds and ranges. Where a check of it is narrowed or left out below,
the reason stands beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, RandomSampler, TPESampler
from optuna.trial import TrialState

from s2e.errors import InvalidInput
from s2e.samplers import SAMPLERS, CurveControl, CurveSampler, RelaxationSampler, algorithm
from s2e.samplers.relaxation import STEPS
from s2e.schedules.spaces import SPACES, Space
from s2e.studies.loop import ask
from s2e.studies.plan import SearchPlan

suite = pytest.importorskip("optuna.testing.pytest_samplers", reason="came with Optuna 4.6")

if TYPE_CHECKING:
    from s2e.schedules.spaces import Floats

SamplerMaker = Callable[[], BaseSampler]
UNIT = FloatDistribution(0.0, 1.0)
SYMMETRIC = FloatDistribution(-1.0, 1.0)
EPOCHS, K = 20, 6


class Rays(Space):
    """Curves 1 − x̄ t/T, x̄ the mean of the coordinates: a space with the names it is told."""

    name = "rays"

    def __init__(self, *names: str) -> None:
        self.names = names

    def unclipped(self, points: Floats, t: Floats, epochs: int) -> Floats:
        return 1 - points.mean(axis=1, keepdims=True) * t / epochs  # (P, M)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    yield
    optuna.logging.set_verbosity(before)


def told(study: optuna.Study, *points: tuple[dict[str, Any], FloatDistribution, float]) -> optuna.Study:
    for params, given, value in points:
        study.add_trial(optuna.create_trial(params=params, distributions=dict.fromkeys(params, given), value=value))
    return study


GOOD = [({"x": 0.2}, UNIT, 1.0), ({"x": 0.8}, UNIT, 2.0), ({"x": 0.5}, UNIT, 1.5)]


# ------------------------------------------------------------------------------------------------------ the relaxation


class TestRelaxationSampler(suite.BasicSamplerTestCase, suite.RelativeSamplerTestCase, suite.SingleOnlySamplerTestCase):
    """The whole suite but for parameters that are no plain floats, in the relative part of it.

    Generations of two, so that the ten trials of a check make up to four steps. No simplex: the suite's parameters are
    alone in their studies, come and go, and one kind at a time; a simplex of them would be refused, as it should.
    """

    @pytest.fixture(params=STEPS)
    def sampler(self, request: pytest.FixtureRequest) -> SamplerMaker:
        return lambda: RelaxationSampler(step=request.param, generation=2)

    # A Beta fits floats without log or step. All other kinds are never in the relative space, so there is nothing for
    # `sample_relative` to return for them; the basic part of the suite asks for them as an objective does.
    @pytest.mark.parametrize("x_distribution", [SYMMETRIC, UNIT, FloatDistribution(-10, 300)])
    @pytest.mark.parametrize("y_distribution", [SYMMETRIC, UNIT])
    def test_sample_relative_numerical(
        self, sampler: SamplerMaker, x_distribution: FloatDistribution, y_distribution: FloatDistribution
    ) -> None:
        super().test_sample_relative_numerical(sampler, x_distribution, y_distribution)

    test_sample_relative_categorical = None  # for the reason above
    test_sample_relative_mixed = None  # for the reason above

    def test_what_is_no_plain_float_is_left_out_of_the_relative_space(self, sampler: SamplerMaker) -> None:
        study = optuna.create_study(sampler=sampler())
        kinds = {
            "log": FloatDistribution(0.1, 1, log=True),
            "stepped": FloatDistribution(0, 1, step=0.25),
            "integer": optuna.distributions.IntDistribution(0, 5),
            "categorical": optuna.distributions.CategoricalDistribution(["a", "b"]),
            "single": FloatDistribution(1, 1),
            "plain": UNIT,
        }
        study.tell(study.ask(kinds), 1.0)
        trial = suite._create_new_trial(study)
        assert study.sampler.infer_relative_search_space(study, trial) == {"plain": UNIT}
        assert set(study.sampler.sample_relative(study, trial, kinds)) == {"plain"}

    def test_points_are_spread_over_the_whole_range_whatever_it_is(self, sampler: SamplerMaker) -> None:
        low, high = -10, 300
        for trials in (0, 1):  # drawn independently, and relative to one trial, which makes no step
            study = optuna.create_study(sampler=sampler())
            for _ in range(trials):
                study.tell(study.ask({"x": FloatDistribution(low, high)}), 1.0)
            drawn = np.array([study.ask({"x": FloatDistribution(low, high)}).params["x"] for _ in range(200)])
            counts, _ = np.histogram(drawn, bins=4, range=(low, high))
            assert counts.sum() == 200
            assert counts.min() > 50 - 5 * np.sqrt(200 * 0.25 * 0.75)

    def test_a_trial_that_ends_with_another_range_while_a_point_is_sampled_takes_no_part(
        self, sampler: SamplerMaker
    ) -> None:
        # The space is inferred before: the sampler has no say in what other processes tell in between.
        plain, cluttered = (optuna.create_study(sampler=sampler()) for _ in range(2))
        told(plain, *GOOD[:2]).add_trials([optuna.create_trial(state=TrialState.FAIL)] * 2)
        told(cluttered, *GOOD[:2], ({"x": 9.0}, FloatDistribution(0, 10), 0.0), ({"y": 0.1}, UNIT, 3.0))
        first, second = (
            study.sampler.sample_relative(study, suite._create_new_trial(study), {"x": UNIT})
            for study in (plain, cluttered)
        )
        assert first == second


# -------------------------------------------------------------------- the relaxation with the curve model as a control


def controlled(step: str, *names: str) -> SamplerMaker:
    control = CurveControl(Rays(*names), EPOCHS, startup=2, draws=64)
    return lambda: RelaxationSampler(step=step, generation=2, control=control)


class TestControlledRelaxationInItsSpace(suite.BasicSamplerTestCase, suite.SingleOnlySamplerTestCase):
    """The basic part where its "x" is the only coordinate of the controlling model's space.

    Every complete trial must have the coordinates, as floats in [0, 1]; a study without them is refused. That is for
    the checks left out below, whose "x" is missing, or has another range or another kind.
    """

    @pytest.fixture(params=STEPS)
    def sampler(self, request: pytest.FixtureRequest) -> SamplerMaker:
        return controlled(request.param, "x")

    def test_single_parameter_objective(self, sampler: SamplerMaker) -> None:
        super().test_single_parameter_objective(sampler, lambda trial: trial.suggest_float("x", 0, 1))

    @suite.parametrize_suggest_method("y")
    def test_combination_of_different_distributions_objective(
        self, sampler: SamplerMaker, suggest_method_y: Callable[[optuna.Trial], float]
    ) -> None:
        super().test_combination_of_different_distributions_objective(
            sampler, lambda trial: trial.suggest_float("x", 0, 1), suggest_method_y
        )

    @pytest.mark.parametrize(("low", "high"), [(0, 5), (0, 20), (20, 30)])
    def test_dynamic_range_objective(self, sampler: SamplerMaker, low: int, high: int) -> None:
        # What the suite does to "x" and "y", done to those that are no coordinates.
        study = optuna.create_study(sampler=sampler())
        for first, last in ((0, 10), (low, high)):
            study.optimize(
                lambda trial, first=first, last=last: (  # type: ignore[misc]
                    trial.suggest_float("x", 0, 1)
                    + trial.suggest_float("y", first, last)
                    + trial.suggest_int("z", first, last)
                ),
                n_trials=10,
            )
        assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 20

    def test_nan_objective_value(self, sampler: SamplerMaker) -> None:
        study = optuna.create_study(sampler=sampler())
        for value in (3.0, 2.0, float("nan"), 4.0, float("nan"), 1.0):
            study.optimize(lambda trial, value=value: trial.suggest_float("x", 0, 1) * 0 + value, n_trials=1)  # type: ignore[misc]
        assert [trial.state for trial in study.trials].count(TrialState.FAIL) == 2
        assert study.best_value == 1.0

    test_partial_fixed_sampling = None  # its "x" is in [−1, 1]
    test_sample_single_distribution = None  # no "x" in it
    test_conditional_parameter_objective = None  # its "x" is categorical

    @pytest.mark.parametrize("given", [SYMMETRIC, FloatDistribution(0, 1, step=0.5), None])
    def test_a_study_without_the_coordinates_is_refused(
        self, sampler: SamplerMaker, given: FloatDistribution | None
    ) -> None:
        study = optuna.create_study(sampler=sampler())
        study.tell(study.ask({"y": UNIT} if given is None else {"x": given}), 1.0)
        with pytest.raises(InvalidInput, match="`control` must be of a space whose coordinates every complete trial"):
            study.ask({"x": UNIT})


class TestControlledRelaxationInItsPlane(suite.RelativeSamplerTestCase):
    """The relative part, where "x" and "y" are the coordinates of the controlling model's space."""

    @pytest.fixture(params=STEPS)
    def sampler(self, request: pytest.FixtureRequest) -> SamplerMaker:
        return controlled(request.param, "x", "y")

    def test_sample_relative_numerical(self, sampler: SamplerMaker) -> None:
        super().test_sample_relative_numerical(sampler, UNIT, UNIT)  # what a coordinate is

    test_sample_relative_categorical = None  # no coordinate is categorical
    test_sample_relative_mixed = None  # no coordinate is categorical

    # Its "x" and "y" are in [−10, 10], not coordinates; what it asks for holds in [0, 1] as well.
    def test_trial_relative_params(self, sampler: SamplerMaker) -> None:
        study = optuna.create_study(sampler=sampler())
        for number in range(8):  # four generations: the model has a say in the last two
            trial = study.ask({"x": UNIT, "y": UNIT})
            assert trial.relative_params == ({} if number == 0 else trial.params)  # nothing to go by at first
            study.tell(trial, sum(trial.params.values()))

    def test_a_fixed_coordinate_is_refused_like_a_missing_one(self, sampler: SamplerMaker) -> None:
        with pytest.warns(optuna.exceptions.ExperimentalWarning):
            study = optuna.create_study(sampler=optuna.samplers.PartialFixedSampler({"x": 0.25}, sampler()))
        study.tell(study.ask({"x": UNIT, "y": UNIT}), 1.0)
        with pytest.raises(InvalidInput, match=r"`control` must be of a space .* but got x; floats of the study are y"):
            study.ask({"x": UNIT, "y": UNIT})


# ------------------------------------------------------------------------------------------------------ the curve model


class TestCurveSamplerOutsideItsSpace(suite.BasicSamplerTestCase, suite.SingleOnlySamplerTestCase):
    """The basic part, whole: every parameter of the suite rides along beside the space's own.

    Not the relative part: what is no coordinate is drawn independently, so it is never in the relative space.
    """

    @pytest.fixture
    def sampler(self) -> SamplerMaker:
        return lambda: CurveSampler(Rays("u", "v"), EPOCHS, startup=2)


class TestCurveSamplerInItsSpace(suite.BasicSamplerTestCase, suite.RelativeSamplerTestCase):
    """The suite where its "x" is the space's only coordinate, which is a float in [0, 1] by definition.

    Optuna itself refuses a parameter that is a float in one trial and something else in another, before it asks the
    sampler; so of the suite's kinds of "x" the plain floats are left. Their range may be any: a point that does not fit
    it is drawn independently, and a trial outside the cube does not count.
    """

    @pytest.fixture
    def sampler(self) -> SamplerMaker:
        return lambda: CurveSampler(Rays("x"), EPOCHS, startup=2)

    @pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 10), (-1, 1), (5, 6)])
    def test_single_parameter_objective(self, sampler: SamplerMaker, low: float, high: float) -> None:
        super().test_single_parameter_objective(sampler, lambda trial: trial.suggest_float("x", low, high))

    @pytest.mark.parametrize("high", [1, 10])
    @suite.parametrize_suggest_method("y")
    def test_combination_of_different_distributions_objective(
        self, sampler: SamplerMaker, high: float, suggest_method_y: Callable[[optuna.Trial], float]
    ) -> None:
        super().test_combination_of_different_distributions_objective(
            sampler, lambda trial: trial.suggest_float("x", 0, high), suggest_method_y
        )

    test_conditional_parameter_objective = None  # its "x" is categorical; the class below has its "y" and "z"
    test_sample_single_distribution = None  # no "x" in it: the class above says all there is to say
    # The class below has the relative part: its studies have two parameters, "x" and "y".
    test_sample_relative_numerical = None
    test_sample_relative_categorical = None
    test_sample_relative_mixed = None


class TestCurveSamplerInItsPlane(suite.RelativeSamplerTestCase):
    """The relative part, where "x" and "y" are the coordinates of the space."""

    @pytest.fixture
    def sampler(self) -> SamplerMaker:
        return lambda: CurveSampler(Rays("x", "y"), EPOCHS, startup=2)

    def test_sample_relative_numerical(self, sampler: SamplerMaker) -> None:
        super().test_sample_relative_numerical(sampler, UNIT, UNIT)  # what a coordinate is

    def test_one_coordinate_may_be_fixed(self, sampler: SamplerMaker) -> None:
        fixed = {"x": 0.25}
        with pytest.warns(optuna.exceptions.ExperimentalWarning):
            study = optuna.create_study(sampler=optuna.samplers.PartialFixedSampler(fixed, sampler()))
        for _ in range(5):
            trial = study.ask({"x": UNIT, "y": UNIT})
            study.tell(trial, sum(trial.params.values()))
        assert {trial.params["x"] for trial in study.trials} == {0.25}
        assert len({trial.params["y"] for trial in study.trials}) > 1

    test_sample_relative_categorical = None  # no coordinate is categorical
    test_sample_relative_mixed = None  # no coordinate is categorical

    def test_sampled_relative_to_enough_trials_a_point_is_in_the_square_and_of_plain_floats(
        self, sampler: SamplerMaker
    ) -> None:
        # The suite samples after one trial; the model begins with the second.
        study = optuna.create_study(sampler=sampler())
        for _ in range(4):
            trial = study.ask({"x": UNIT, "y": UNIT})
            study.tell(trial, sum(trial.params.values()))
        for _ in range(4):
            new = suite._create_new_trial(study)
            point = study.sampler.sample_relative(study, new, {"x": UNIT, "y": UNIT})
            assert list(point) == ["x", "y"]
            assert all(type(u) is float and 0 <= u <= 1 for u in point.values())


class TestCurveSamplerWithHalfOfItsSpaceAtATime:
    """The suite's conditional objective, where its "y" and "z", never both in one trial, are the coordinates."""

    def test_conditional_parameter_objective(self) -> None:
        def sampler() -> BaseSampler:
            return CurveSampler(Rays("y", "z"), EPOCHS, startup=2)

        suite.BasicSamplerTestCase().test_conditional_parameter_objective(sampler)


@pytest.mark.parametrize("running", [False, True])
def test_a_trial_outside_the_cube_is_not_there_for_the_curve_model(running: bool) -> None:
    plain, cluttered = (optuna.create_study(sampler=CurveSampler(Rays("x"), EPOCHS, startup=2)) for _ in range(2))
    told(plain, *GOOD).add_trial(optuna.create_trial(state=TrialState.FAIL))
    if running:
        told(cluttered, *GOOD).ask({"x": FloatDistribution(5, 6)})
    else:
        told(cluttered, *GOOD, ({"x": 7.0}, FloatDistribution(0, 10), 0.0))
    assert plain.ask({"x": UNIT}).params == cluttered.ask({"x": UNIT}).params


def test_a_curve_is_what_counts_and_not_the_range_its_coordinates_had() -> None:
    narrow, wide = (optuna.create_study(sampler=CurveSampler(Rays("x"), EPOCHS, startup=2)) for _ in range(2))
    told(narrow, *GOOD, ({"x": 0.7}, UNIT, 0.5))
    told(wide, *GOOD, ({"x": 0.7}, FloatDistribution(-10, 10), 0.5))
    assert narrow.ask({"x": UNIT}).params == wide.ask({"x": UNIT}).params


@pytest.mark.filterwarnings("ignore:Fixed parameter:UserWarning")
def test_an_enqueued_point_outside_the_cube_does_not_stop_the_curve_model() -> None:
    study = told(optuna.create_study(sampler=CurveSampler(Rays("x"), EPOCHS, startup=2)), *GOOD)
    study.enqueue_trial({"x": 1.5})
    running = study.ask({"x": UNIT})
    assert running.params == {"x": 1.5}  # Optuna warns and lets it pass
    assert 0 <= study.ask({"x": UNIT}).params["x"] <= 1
    study.tell(running, 0.0)
    assert 0 <= study.ask({"x": UNIT}).params["x"] <= 1


# ------------------------------------------------------------------------------------- every algorithm, on every space


def with_history(space: Space, trials: int) -> optuna.Study:
    """Make a study with that many complete uniform trials, more than any algorithm starts up with."""
    generator = np.random.default_rng(0)
    study = optuna.create_study()
    for point in generator.random((trials, space.dimension)):
        params = dict(zip(space.names, point.tolist(), strict=True))
        value = float(((point - 0.3) ** 2).mean())
        study.add_trial(optuna.create_trial(params=params, distributions=dict.fromkeys(space.names, UNIT), value=value))
    return study


@pytest.mark.parametrize("trials", [0, 2 * K])
@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_every_algorithm_asks_points_of_every_space_that_decode_to_schedules(
    space: Space, name: str, trials: int
) -> None:
    plan = SearchPlan(space, algorithm(name, space, EPOCHS, K), generation=K)
    study = with_history(space, trials)
    asked = ask(study, plan, 2)
    assert [trial.number for trial in asked] == [trials, trials + 1]
    assert all(trial.state == TrialState.RUNNING for trial in asked)
    assert all(set(trial.params) == set(space.names) for trial in asked)
    points = np.array([[trial.params[coordinate] for coordinate in space.names] for trial in asked])  # (2, D)
    assert (points[0] != points[1]).any()
    keep = space.decode(points, EPOCHS)  # refuses what is not in the unit cube
    assert keep.shape == (2, EPOCHS)


KINDS = {
    "curve": CurveSampler,
    **dict.fromkeys((*STEPS, "newton-curve"), RelaxationSampler),
    "random": RandomSampler,
    "tpe": TPESampler,
    "gp": GPSampler,
    "cmaes": CmaEsSampler,
    "hyperband": RandomSampler,
}


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_every_sampler_is_built_by_its_name_from_any_seed_and_repeats_itself(name: str, space: Space) -> None:
    make = algorithm(name, space, EPOCHS, K).sampler
    points = []
    for seed in (5, 2**63 - 1, 5):
        built = make(seed)
        assert type(built) is KINDS[name]
        assert isinstance(built, BaseSampler)
        points.append(optuna.create_study(sampler=built).ask(dict.fromkeys(space.names, UNIT)).params)
    assert points[0] == points[2]
    assert points[0] != points[1]


def test_a_relaxation_sampler_is_built_for_its_space_and_generation() -> None:
    built = algorithm("natural", SPACES["s2e"], EPOCHS, 9).sampler(3)
    assert isinstance(built, RelaxationSampler)
    assert (built.step, built.generation, built.simplex, built.seed) == ("natural", 9, SPACES["s2e"].simplex, 3)


def test_a_generation_too_small_for_a_step_is_refused_before_anything_is_asked() -> None:
    with pytest.raises(InvalidInput, match="`generation` must be at least 2"):
        algorithm("newton", SPACES["s2e"], EPOCHS, 1)


def test_an_unknown_sampler_is_refused_with_the_known_ones_nearest_first() -> None:
    with pytest.raises(InvalidInput, match=r"`sampler` must be one of curve, .*, but got 'curves'\.") as refused:
        algorithm("curves", SPACES["s2e"], EPOCHS, K)
    assert all(name in str(refused.value) for name in SAMPLERS)
    with pytest.raises(InvalidInput, match="`sampler` must be one of natural, "):
        algorithm("natura", SPACES["s2e"], EPOCHS, K)
