"""The curve sampler: Co-teaching's schedules first, then points with the largest expected improvement."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import TrialState
from scipy.stats import norm

from s2e.errors import InvalidInput
from s2e.samplers import CurveSampler, sampler_spec
from s2e.samplers.curve_model import CurveModel, _fit, _process, landmarks
from s2e.samplers.curve_sampler import (
    BEST_POINTS,
    FIRST_SCHEDULES,
    MOVED_SHARE,
    NEAR_CANDIDATES,
    STARTUP_CANDIDATES,
    UNIFORM_CANDIDATES,
    neighbours,
)
from s2e.schedules.fixed import coteaching
from s2e.schedules.spaces import SPACES, CoteachingSpace, S2ESpace, Space

EPOCHS, K, STARTUP = 200, 6, 12
AT = landmarks(EPOCHS)
SMALL, LARGE = CoteachingSpace(), S2ESpace()


def coordinates(space):
    return {name: FloatDistribution(0.0, 1.0) for name in space.names}


def curve(space, params):
    return space.decode([[params[name] for name in space.names]], EPOCHS, at=AT)[0]


def distance(space, params):
    """Mean squared distance of a decoded curve to the one Co-teaching would use for 45 % noise."""
    return float(((curve(space, params) - coteaching(0.45, EPOCHS)[AT]) ** 2).mean())


def new_study(space=SMALL, **settings):
    return optuna.create_study(sampler=CurveSampler(space, EPOCHS, startup=STARTUP), **settings)


def spread_study(space=SMALL):
    """A study whose start-up is spread over the space from its first trial."""
    return optuna.create_study(sampler=CurveSampler(space, EPOCHS, startup=STARTUP, first_schedules=()))


def ask_and_tell(study, trials, space=SMALL, value=distance):
    """Ask all trials of a generation before telling them."""
    while len(study.trials) < trials:
        asked = [study.ask(coordinates(space)) for _ in range(K)]
        for trial in asked:
            study.tell(trial, value(space, trial.params))
    return study


def asked_points(study, space=SMALL):
    return np.array([[trial.params[name] for name in space.names] for trial in study.trials])


def draws_of(trial, seed=0):
    """The random stream of a trial."""
    return np.random.default_rng(np.random.SeedSequence([seed, trial]))


def as_point(space, params):
    return np.array([params[name] for name in space.names])


def curves_of(space, points):
    return space.decode(points, EPOCHS, at=AT)


def complete_trial(space, point, value):
    params = dict(zip(space.names, np.asarray(point).tolist(), strict=True))
    return optuna.create_trial(value=value, params=params, distributions=coordinates(space))


# Start-up


def farthest_by_brute_force(space, trial, before):
    """The candidate whose curve is farthest from the nearest earlier curve; the most typical candidate first."""
    candidates = draws_of(trial).random((STARTUP_CANDIDATES, space.dimension))
    if not before:
        curves = curves_of(space, candidates)
        return min(candidates, key=lambda point: np.linalg.norm(curves - curves_of(space, [point]), axis=1).mean())
    best, farthest, earlier = None, -1.0, [curve(space, params) for params in before]
    for point in candidates:
        own = curves_of(space, [point])[0]
        nearest = min(float(np.sqrt(((own - other) ** 2).sum())) for other in earlier)
        if nearest > farthest:
            best, farthest = point, nearest
    return best


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_search_starts_near_schedules_of_coteaching_at_all_noise_rates(space):
    study = new_study(space)
    for noise_rate, ramp in FIRST_SCHEDULES:
        trial = study.ask(coordinates(space))
        target = 1 - noise_rate * np.minimum(landmarks(EPOCHS) / (ramp * EPOCHS), 1)
        assert np.sqrt(((curve(space, trial.params) - target) ** 2).mean()) < 0.11
        study.tell(trial, 0.5)


def test_space_without_new_curves_near_the_first_schedules_is_covered():
    class Rising(Space):
        """Curves far from those of Co-teaching, all of which are nearest to one of them."""

        name = "rising"
        names = ("low", "high")

        def unclipped(self, points, t, epochs):
            return 0.2 * points[:, :1] + 0.2 * points[:, 1:] * t / epochs

    study = new_study(Rising())
    points = np.array([as_point(Rising, study.ask(coordinates(Rising)).params) for _ in FIRST_SCHEDULES])
    apart = np.abs(points[:, None] - points).max(axis=2) + np.eye(len(points))
    assert apart.min() > 0.15


@pytest.mark.parametrize("space", [SMALL, LARGE], ids=["coteaching", "s2e"])
def test_startup_point_is_the_candidate_farthest_from_complete_and_running_trials(space):
    study, before = spread_study(space), []
    for number in range(STARTUP):
        trial = study.ask(coordinates(space))
        expected = farthest_by_brute_force(space, number, before)
        np.testing.assert_array_equal(as_point(space, trial.params), expected)
        before.append(trial.params)
        if number % 3 == 0:  # the others keep running
            study.tell(trial, distance(space, trial.params))


def test_first_point_is_uniform_without_first_schedules():
    samplers = [CurveSampler(LARGE, EPOCHS, seed=seed, first_schedules=()) for seed in range(40)]
    studies = [optuna.create_study(sampler=sampler) for sampler in samplers]
    drawn = np.array([as_point(LARGE, study.ask(coordinates(LARGE)).params) for study in studies]).ravel()  # (800,)
    assert len(np.unique(drawn)) == len(drawn)
    counts, _ = np.histogram(drawn, bins=10, range=(0, 1))
    assert np.abs(counts - 80).max() < 5 * np.sqrt(80 * 0.9)


def ignored_trials(space):
    """Trials of all kinds that must be ignored; some would be very good."""
    distributions, point = coordinates(space), dict.fromkeys(space.names, 0.9)
    first, *others = space.names
    wide = {**distributions, first: FloatDistribution(-9.0, 9.0)}
    return [
        optuna.create_trial(state=TrialState.FAIL, params=point, distributions=distributions),
        optuna.create_trial(
            state=TrialState.PRUNED, value=-9.0, params=point, distributions=distributions, intermediate_values={0: -9}
        ),
        optuna.create_trial(state=TrialState.WAITING, params=point, distributions=distributions),
        optuna.create_trial(value=float("inf"), params=point, distributions=distributions),
        optuna.create_trial(value=float("-inf"), params=point, distributions=distributions),
        *(
            optuna.create_trial(
                state=state, value=value, params=params, distributions={name: wide[name] for name in params}
            )
            for state, value in ((TrialState.COMPLETE, -5.0), (TrialState.RUNNING, None))
            for params in ({}, {first: 0.2}, dict.fromkeys(others, 0.2), {**point, first: 1.2}, {**point, first: -0.2})
        ),
    ]


@pytest.mark.parametrize("complete", [0, STARTUP - 1, STARTUP], ids=["first", "start-up", "model"])
def test_failed_pruned_waiting_infinite_partial_and_outside_trials_are_ignored(complete):
    known = ask_and_tell(new_study(), STARTUP).trials[:complete]
    ignored = ignored_trials(SMALL)
    plain, with_ignored = new_study(), new_study()
    plain.add_trials([*known, *[optuna.create_trial(state=TrialState.FAIL)] * len(ignored)])  # the same trial number
    with_ignored.add_trials([*known, *ignored])
    for study in (plain, with_ignored):
        assert len(study.trials) == complete + len(ignored)
    number = complete + len(ignored)
    asked = [asked_by_sampler(study, number) for study in (plain, with_ignored)]
    assert asked[0] == asked[1]


def asked_by_sampler(study, number, space=SMALL):
    """Call the sampler directly: `Study.ask` would take a waiting trial first."""
    study.add_trial(optuna.create_trial(state=TrialState.RUNNING))
    return study.sampler.sample_relative(study, study.trials[number], coordinates(space))


def test_failed_trials_do_not_end_the_startup():
    study = spread_study()
    for number in range(STARTUP + 2):
        trial = study.ask(coordinates(SMALL))
        if number in (0, STARTUP + 1):
            np.testing.assert_array_equal(as_point(SMALL, trial.params), farthest_by_brute_force(SMALL, number, []))
        study.tell(trial, state=TrialState.FAIL)


def test_running_trials_do_not_end_the_startup():
    study, before = spread_study(), []
    for number in range(STARTUP + 2):
        params = study.ask(coordinates(SMALL)).params
        if number > STARTUP:
            np.testing.assert_array_equal(as_point(SMALL, params), farthest_by_brute_force(SMALL, number, before))
        before.append(params)


@pytest.mark.parametrize("space", [SMALL, LARGE], ids=["coteaching", "s2e"])
def test_startup_covers_the_space_of_curves_better_than_uniform_draws(space):
    everywhere = curves_of(space, np.random.default_rng(0).random((2000, space.dimension)))
    between, uncovered = {"startup": [], "uniform": []}, {"startup": [], "uniform": []}
    for seed in range(6):
        study = optuna.create_study(sampler=CurveSampler(space, EPOCHS, seed=seed, first_schedules=()))
        points = {
            "startup": np.array([as_point(space, study.ask(coordinates(space)).params) for _ in range(STARTUP)]),
            "uniform": np.random.default_rng(seed).random((STARTUP, space.dimension)),
        }
        for kind, some in points.items():
            curves = curves_of(space, some)
            apart = np.sqrt(((curves[:, None] - curves) ** 2).sum(axis=2)) + 9 * np.eye(STARTUP)
            between[kind].append(apart.min(axis=1).mean())
            nearest = np.sqrt(((everywhere[:, None] - curves) ** 2).sum(axis=2)).min(axis=1)  # (2000,)
            uncovered[kind].append(np.quantile(nearest, 0.99))
    assert np.mean(between["startup"]) > 1.4 * np.mean(between["uniform"])
    assert np.mean(uncovered["startup"]) < 0.85 * np.mean(uncovered["uniform"])


# With a model


@pytest.mark.parametrize(("space", "running"), [(SMALL, 0), (LARGE, 0), (LARGE, 4)])
def test_point_is_the_candidate_with_the_largest_expected_improvement(space, running, monkeypatch):
    centres_used = []
    monkeypatch.setattr(
        "s2e.samplers.curve_sampler.neighbours",
        lambda *given, share: centres_used.append(given[0]) or neighbours(*given, share=share),
    )
    chance = np.random.default_rng(0)
    points = chance.random((40, space.dimension))
    values = ((curves_of(space, points) - coteaching(0.45, EPOCHS)[AT]) ** 2).mean(axis=1)
    values += 0.03 * chance.normal(size=len(points))  # so that the best scores are not those of the best curves
    study = new_study(space)
    study.add_trials([complete_trial(space, *one) for one in zip(points, values.tolist(), strict=True)])
    known = curves_of(space, points)
    model = CurveModel(known, values)
    best_points = sorted(range(len(points)), key=lambda one: model.predict(known[one][None])[0][0])[:BEST_POINTS]
    assert set(best_points) != set(np.argsort(values)[:BEST_POINTS].tolist())
    for _ in range(running):
        asked = curve(space, study.ask(coordinates(space)).params)[None]
        model, known = model.assuming_predictions(asked), np.concatenate([known, asked])
    generator = draws_of(len(study.trials))
    uniform = generator.random((UNIFORM_CANDIDATES, space.dimension))
    candidates = np.concatenate(
        [uniform, neighbours(points[best_points], NEAR_CANDIDATES, generator, share=MOVED_SHARE)]
    )
    mean, deviation = model.predict(curves_of(space, candidates))
    gap = model.predict(known)[0].min() - mean
    improvement = gap * norm.cdf(gap / deviation) + deviation * norm.pdf(gap / deviation)  # E[max(best − y, 0)]
    best = max(range(len(candidates)), key=lambda one: improvement[one])
    np.testing.assert_array_equal(as_point(space, study.ask(coordinates(space)).params), candidates[best])
    np.testing.assert_array_equal(centres_used, [points[best_points]] * (running + 1))


def test_neighbours_lie_in_the_cube_and_differ_in_a_share_of_the_coordinates():
    points = np.random.default_rng(0).random((3, 20))
    points[0, :10] = 1.0
    near = neighbours(points, 3000, np.random.default_rng(1), share=0.4)
    assert near.shape == (3000, 20)
    assert ((near >= 0) & (near <= 1)).all()
    moved = near[:, None] != points  # (3000, 3, D)
    origin = moved.sum(axis=2).argmin(axis=1)  # (3000,)
    assert np.abs(np.bincount(origin) / 3000 - 1 / 3).max() < 0.05
    inner = moved[origin > 0, origin[origin > 0]]  # not clipped at 1
    assert abs(inner.mean() - 0.4) < 0.02
    step = np.abs(near - points[origin]).max(axis=1)
    assert np.quantile(step, 0.1) < 0.06
    assert np.quantile(step, 0.9) > 0.2


def test_curves_of_a_generation_differ_when_scores_are_noise():
    for seed in range(4):
        chance = np.random.default_rng(seed)
        study = optuna.create_study(sampler=CurveSampler(SMALL, EPOCHS, seed=seed))
        study.add_trials([complete_trial(SMALL, chance.random(3), chance.normal()) for _ in range(20)])
        asked = np.array([curve(SMALL, study.ask(coordinates(SMALL)).params) for _ in range(8)])
        assert len(np.unique(asked, axis=0)) == 8


def test_studies_in_threads_ask_the_same_points_as_alone():
    def searched(seed):
        study = optuna.create_study(sampler=CurveSampler(SMALL, EPOCHS, seed=seed))
        return asked_points(ask_and_tell(study, STARTUP + 2 * K))

    alone = [searched(seed) for seed in range(4)]
    _fit.cache_clear()
    _process.cache_clear()
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(searched, range(4)))
    np.testing.assert_array_equal(together, alone)


def test_one_study_can_be_used_in_several_threads():
    study = ask_and_tell(new_study(), STARTUP)

    def one(_):
        trial = study.ask(coordinates(SMALL))
        study.tell(trial, distance(SMALL, trial.params))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(one, range(12)))
    assert {trial.state for trial in study.trials} == {TrialState.COMPLETE}
    assert len(np.unique(asked_points(study), axis=0)) == STARTUP + 12


@pytest.mark.parametrize("space", [SPACES["coteaching"], SPACES["rbf"], SPACES["s2e"]], ids=lambda space: space.name)
def test_points_and_curves_of_a_generation_differ(space):
    study = ask_and_tell(new_study(space), STARTUP, space)
    asked = [study.ask(coordinates(space)).params for _ in range(K)]
    points = np.array([[params[name] for name in space.names] for params in asked])
    curves = np.array([curve(space, params) for params in asked])
    assert ((points >= 0) & (points <= 1)).all()
    for one in range(K):
        for other in range(one):
            assert np.abs(points[one] - points[other]).max() > 1e-2
            assert np.abs(curves[one] - curves[other]).max() > 1e-3


@pytest.mark.slow  # `conformance/test_samplers.py` reopens the studies of every sampler
def test_reopened_study_asks_the_same_point(tmp_path):
    url = f"sqlite:///{tmp_path / 'study.db'}"
    ask_and_tell(new_study(study_name="s", storage=url), STARTUP + K)
    reopened = optuna.load_study(study_name="s", storage=url, sampler=CurveSampler(SMALL, EPOCHS))
    in_memory = ask_and_tell(new_study(), STARTUP + K)
    for _ in range(2):  # the second while the first is running
        assert reopened.ask(coordinates(SMALL)).params == in_memory.ask(coordinates(SMALL)).params


def test_maximising_the_negative_equals_minimising():
    least = ask_and_tell(new_study(), STARTUP + K)
    most = ask_and_tell(
        new_study(direction="maximize"), STARTUP + K, value=lambda space, params: -distance(space, params)
    )
    np.testing.assert_array_equal(asked_points(least), asked_points(most))


def test_startup_points_do_not_depend_on_scores():
    one = ask_and_tell(new_study(), STARTUP)
    other = ask_and_tell(new_study(), STARTUP, value=lambda _, params: params["ramp"])
    np.testing.assert_array_equal(asked_points(one), asked_points(other))
    after = [study.ask(coordinates(SMALL)).params for study in (one, other)]
    assert after[0] != after[1]


def test_enqueued_points_are_used_by_the_model():
    study = new_study()
    target = {"noise_rate": 0.45, "exponent": 0.5, "ramp": 0.0909}
    study.enqueue_trial(target)
    assert study.ask(coordinates(SMALL)).params == target
    study.tell(0, distance(SMALL, target))
    ask_and_tell(study, STARTUP + 2 * K)
    assert distance(SMALL, study.trials[-1].params) < 0.01


def test_other_parameters_are_sampled_too():
    study = new_study()
    for _ in range(STARTUP + 2):
        trial = study.ask(coordinates(SMALL))
        assert 1 <= trial.suggest_int("layers", 1, 4) <= 4
        assert trial.suggest_categorical("method", ["a", "b"]) in ("a", "b")
        assert trial.suggest_float("one", 0, 1) != trial.suggest_float("other", 0, 1)
        study.tell(trial, distance(SMALL, trial.params))
    assert len({trial.params["layers"] for trial in study.trials}) > 1


@pytest.mark.parametrize("epochs", [1, 2])
def test_points_differ_where_trainings_are_too_short_for_curves_to_differ(epochs):
    study = optuna.create_study(sampler=CurveSampler(LARGE, epochs, startup=3))
    ask_and_tell(study, 2 * K, LARGE, value=lambda _, params: params["f1_a1"])
    assert len(np.unique(asked_points(study, LARGE), axis=0)) == 2 * K


def test_equal_scores_are_accepted():
    study = ask_and_tell(new_study(), STARTUP + K, value=lambda *_: 0.5)
    assert len(np.unique(asked_points(study), axis=0)) == STARTUP + K


@pytest.mark.parametrize(
    ("space", "factor"),
    [pytest.param(LARGE, 0.6, marks=pytest.mark.slow), (SMALL, 0.2)],
    ids=["s2e", "coteaching"],
)
def test_36_trials_find_a_better_curve_than_random_search(space, factor):
    best = {"curve": [], "random": []}
    for name, found in best.items():
        for seed in range(3):
            study = optuna.create_study(sampler=sampler_spec(name, space, EPOCHS, K).build(seed))
            found.append(ask_and_tell(study, 36, space).best_value)
    assert np.mean(best["curve"]) < factor * np.mean(best["random"])


def test_invalid_arguments_are_refused():
    with pytest.raises(InvalidInput, match="`seed` must be at least 0, but got -1"):
        CurveSampler(SMALL, EPOCHS, seed=-1)
    with pytest.raises(InvalidInput, match="`startup` must be at least 2, but got 1"):
        CurveSampler(SMALL, EPOCHS, startup=1)


# Trials outside the cube


UNIT, WIDE = FloatDistribution(0.0, 1.0), FloatDistribution(-10.0, 10.0)


def study_with(*last):
    """A study with a model; the last trial has the given noise rate, range and value."""
    study = new_study()
    points = np.random.default_rng(0).random((STARTUP, 3))
    study.add_trials([complete_trial(SMALL, point, value) for value, point in enumerate(points)])
    for noise_rate, range_, value in last:
        params = {"noise_rate": noise_rate, "exponent": 0.5, "ramp": 0.5}
        distributions = {**coordinates(SMALL), "noise_rate": range_}
        study.add_trial(optuna.create_trial(value=value, params=params, distributions=distributions))
    return study


def test_range_of_a_parameter_does_not_matter():
    narrow, wide = (study_with((0.7, range_, -1.0)) for range_ in (UNIT, WIDE))
    assert narrow.ask(coordinates(SMALL)).params == wide.ask(coordinates(SMALL)).params


@pytest.mark.filterwarnings("ignore:Fixed parameter:UserWarning")
def test_enqueued_point_outside_the_cube_is_ignored():
    study, reference = study_with(), study_with()
    study.enqueue_trial({"noise_rate": 1.5, "exponent": 0.5, "ramp": 0.5})
    outside = study.ask(coordinates(SMALL))
    assert outside.params["noise_rate"] == 1.5
    reference.add_trial(optuna.create_trial(state=TrialState.FAIL))
    running = study.ask(coordinates(SMALL)).params
    assert running == reference.ask(coordinates(SMALL)).params
    study.tell(outside, -9.0)
    assert study.ask(coordinates(SMALL)).params == reference.ask(coordinates(SMALL)).params


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_coordinate_can_be_fixed():
    fixed = optuna.samplers.PartialFixedSampler({"ramp": 0.25}, CurveSampler(SMALL, EPOCHS, startup=2))
    study = optuna.create_study(sampler=fixed)
    for _ in range(5):
        trial = study.ask(coordinates(SMALL))
        study.tell(trial, sum(trial.params.values()))
    assert {trial.params["ramp"] for trial in study.trials} == {0.25}
    assert len({trial.params["exponent"] for trial in study.trials}) > 1
