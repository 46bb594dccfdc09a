"""The sampler that models scores over curves: far apart at first, then where most is expected; all from the study."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import TrialState
from scipy.stats import norm

from s2e.errors import InvalidInput
from s2e.samplers import CurveSampler, algorithm
from s2e.samplers.curve_model import CurveModel, _fitted, landmarks
from s2e.samplers.curve_sampler import ELITE, MOVED, NEAR, POOL, UNIFORM, neighbours
from s2e.schedules.fixed import coteaching
from s2e.schedules.spaces import SPACES, CoteachingSpace, S2ESpace

EPOCHS, K, STARTUP = 200, 6, 12
AT = landmarks(EPOCHS)
SMALL, LARGE = CoteachingSpace(), S2ESpace()


@pytest.fixture(autouse=True)
def _quiet():
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    yield
    optuna.logging.set_verbosity(before)


def coordinates(space):
    return {name: FloatDistribution(0.0, 1.0) for name in space.names}


def curve(space, params):
    return space.decode([[params[name] for name in space.names]], EPOCHS, at=AT)[0]


def distance(space, params):
    """Mean squared distance of a decoded curve to the one Co-teaching would use for 45 % noise."""
    return float(((curve(space, params) - coteaching(0.45, EPOCHS)[AT]) ** 2).mean())


def new_study(space=SMALL, **settings):
    return optuna.create_study(sampler=CurveSampler(space, EPOCHS, startup=STARTUP), **settings)


def ask_and_tell(study, trials, space=SMALL, value=distance):
    """Generations of K, every one asked whole before any of it is told."""
    while len(study.trials) < trials:
        asked = [study.ask(coordinates(space)) for _ in range(K)]
        for trial in asked:
            study.tell(trial, value(space, trial.params))
    return study


def asked_points(study, space=SMALL):
    return np.array([[trial.params[name] for name in space.names] for trial in study.trials])


def draws_of(trial, seed=0):
    """The random numbers of a trial, from their beginning."""
    return np.random.default_rng(np.random.SeedSequence([seed, trial]))


def as_point(space, params):
    return np.array([params[name] for name in space.names])


def curves_of(space, points):
    return space.decode(points, EPOCHS, at=AT)


def complete_trial(space, point, value):
    params = dict(zip(space.names, np.asarray(point).tolist(), strict=True))
    return optuna.create_trial(value=value, params=params, distributions=coordinates(space))


# --------------------------------------------------------------------------------------------- before there is a model


def farthest_by_brute_force(space, trial, before):
    """Of all points of the pool, the one whose nearest curve among those before is farthest away.

    The first of all is the one whose curve is nearest to those of the others on average.
    """
    pool = draws_of(trial).random((POOL, space.dimension))
    if not before:
        curves = curves_of(space, pool)
        return min(pool, key=lambda point: np.linalg.norm(curves - curves_of(space, [point]), axis=1).mean())
    best, farthest, taken = None, -1.0, [curve(space, params) for params in before]
    for point in pool:
        own = curves_of(space, [point])[0]
        nearest = min(float(np.sqrt(((own - other) ** 2).sum())) for other in taken)
        if nearest > farthest:
            best, farthest = point, nearest
    return best


@pytest.mark.parametrize("space", [SMALL, LARGE], ids=["coteaching", "s2e"])
def test_in_the_start_up_a_point_is_the_farthest_of_its_pool_from_all_told_and_all_running(space):
    study, before = new_study(space), []
    for number in range(STARTUP):
        trial = study.ask(coordinates(space))
        expected = farthest_by_brute_force(space, number, before)
        np.testing.assert_array_equal(as_point(space, trial.params), expected)
        before.append(trial.params)
        if number % 3 == 0:  # the others keep running
            study.tell(trial, distance(space, trial.params))


def test_the_first_point_is_uniform():
    studies = [optuna.create_study(sampler=CurveSampler(LARGE, EPOCHS, seed=seed)) for seed in range(100)]
    drawn = np.array([as_point(LARGE, study.ask(coordinates(LARGE)).params) for study in studies]).ravel()  # (2000,)
    assert len(np.unique(drawn)) == len(drawn)
    counts, _ = np.histogram(drawn, bins=10, range=(0, 1))
    assert np.abs(counts - 200).max() < 5 * np.sqrt(200 * 0.9)


def useless(space):
    """Trials of all kinds from which nothing is to be learnt; some would be very good."""
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


@pytest.mark.parametrize("told", [0, STARTUP - 1, STARTUP], ids=["first", "start-up", "model"])
def test_failed_pruned_waiting_infinite_partial_and_outside_trials_take_no_part(told):
    known = ask_and_tell(new_study(), STARTUP).trials[:told]
    clutter = useless(SMALL)
    plain, cluttered = new_study(), new_study()
    plain.add_trials([*known, *[optuna.create_trial(state=TrialState.FAIL)] * len(clutter)])  # the same trial number
    cluttered.add_trials([*known, *clutter])
    for study in (plain, cluttered):
        assert len(study.trials) == told + len(clutter)
    number = told + len(clutter)
    asked = [asked_by_sampler(study, number) for study in (plain, cluttered)]
    assert asked[0] == asked[1]


def asked_by_sampler(study, number, space=SMALL):
    """What the sampler itself says: `Study.ask` would take a waiting trial first."""
    study.add_trial(optuna.create_trial(state=TrialState.RUNNING))
    return study.sampler.sample_relative(study, study.trials[number], coordinates(space))


def test_as_long_as_all_fail_every_point_is_like_a_first_one():
    study = new_study()
    for number in range(STARTUP + K):
        trial = study.ask(coordinates(SMALL))
        np.testing.assert_array_equal(as_point(SMALL, trial.params), farthest_by_brute_force(SMALL, number, []))
        study.tell(trial, state=TrialState.FAIL)


def test_as_long_as_none_is_told_there_is_no_model():
    study, before = new_study(), []
    for number in range(STARTUP + K):
        params = study.ask(coordinates(SMALL)).params
        np.testing.assert_array_equal(as_point(SMALL, params), farthest_by_brute_force(SMALL, number, before))
        before.append(params)


@pytest.mark.parametrize("space", [SMALL, LARGE], ids=["coteaching", "s2e"])
def test_the_start_up_covers_the_space_of_curves_better_than_uniform_draws(space):
    everywhere = curves_of(space, np.random.default_rng(0).random((2000, space.dimension)))
    between, uncovered = {"startup": [], "uniform": []}, {"startup": [], "uniform": []}
    for seed in range(15):
        study = optuna.create_study(sampler=CurveSampler(space, EPOCHS, seed=seed))
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


# -------------------------------------------------------------------------------------------------------- with a model


@pytest.mark.parametrize("running", [0, 1, 4])
@pytest.mark.parametrize("space", [SMALL, LARGE], ids=["coteaching", "s2e"])
def test_with_a_model_a_point_is_the_most_promising_of_its_candidates_running_ones_believed(
    space, running, monkeypatch
):
    looked_around = []
    monkeypatch.setattr(
        "s2e.samplers.curve_sampler.neighbours",
        lambda *given, share: looked_around.append(given[0]) or neighbours(*given, share=share),
    )
    chance = np.random.default_rng(0)
    points = chance.random((40, space.dimension))
    values = ((curves_of(space, points) - coteaching(0.45, EPOCHS)[AT]) ** 2).mean(axis=1)
    values += 0.03 * chance.normal(size=len(points))  # so that the best scores are not those of the best curves
    study = new_study(space)
    study.add_trials([complete_trial(space, *one) for one in zip(points, values.tolist(), strict=True)])
    known = curves_of(space, points)
    model = CurveModel(known, values)
    elite = sorted(range(len(points)), key=lambda one: model.predict(known[one][None])[0][0])[:ELITE]
    assert set(elite) != set(np.argsort(values)[:ELITE].tolist())
    for _ in range(running):
        asked = curve(space, study.ask(coordinates(space)).params)[None]
        model, known = model.given(asked), np.concatenate([known, asked])
    generator = draws_of(len(study.trials))
    uniform = generator.random((UNIFORM, space.dimension))
    candidates = np.concatenate([uniform, neighbours(points[elite], NEAR, generator, share=MOVED)])
    mean, deviation = model.predict(curves_of(space, candidates))
    gap = model.predict(known)[0].min() - mean
    improvement = gap * norm.cdf(gap / deviation) + deviation * norm.pdf(gap / deviation)  # E[max(best − y, 0)]
    best = max(range(len(candidates)), key=lambda one: improvement[one])
    np.testing.assert_array_equal(as_point(space, study.ask(coordinates(space)).params), candidates[best])
    np.testing.assert_array_equal(looked_around, [points[elite]] * (running + 1))


def test_candidates_near_good_points_are_in_the_cube_and_differ_from_one_of_them_in_a_few_coordinates():
    points = np.random.default_rng(0).random((3, 20))
    points[0, :10] = 1.0
    near = neighbours(points, 3000, np.random.default_rng(1), share=0.4)
    assert near.shape == (3000, 20)
    assert ((near >= 0) & (near <= 1)).all()
    moved = near[:, None] != points  # (3000, 3, D)
    origin = moved.sum(axis=2).argmin(axis=1)  # (3000,)
    assert np.abs(np.bincount(origin) / 3000 - 1 / 3).max() < 0.05
    inner = moved[origin > 0, origin[origin > 0]]  # where nothing is cut off at 1
    assert abs(inner.mean() - 0.4) < 0.02
    step = np.abs(near - points[origin]).max(axis=1)
    assert np.quantile(step, 0.1) < 0.06
    assert np.quantile(step, 0.9) > 0.2


def test_no_curve_is_asked_twice_in_a_generation_however_much_of_the_scores_is_chance():
    for seed in range(4):
        chance = np.random.default_rng(seed)
        study = optuna.create_study(sampler=CurveSampler(SMALL, EPOCHS, seed=seed))
        study.add_trials([complete_trial(SMALL, chance.random(3), chance.normal()) for _ in range(20)])
        asked = np.array([curve(SMALL, study.ask(coordinates(SMALL)).params) for _ in range(8)])
        assert len(np.unique(asked, axis=0)) == 8


def test_remembering_what_was_fitted_changes_no_point():
    remembering, forgetting = new_study(), new_study()
    ask_and_tell(remembering, STARTUP + 2 * K)
    while len(forgetting.trials) < STARTUP + 2 * K:
        asked = []
        for _ in range(K):
            _fitted.cache_clear()
            asked.append(forgetting.ask(coordinates(SMALL)))
        for trial in asked:
            forgetting.tell(trial, distance(SMALL, trial.params))
    np.testing.assert_array_equal(asked_points(remembering), asked_points(forgetting))


def test_studies_that_are_asked_in_threads_ask_what_they_ask_alone():
    def searched(seed):
        study = optuna.create_study(sampler=CurveSampler(SMALL, EPOCHS, seed=seed))
        return asked_points(ask_and_tell(study, STARTUP + 2 * K))

    alone = [searched(seed) for seed in range(4)]
    _fitted.cache_clear()
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(searched, range(4)))
    np.testing.assert_array_equal(together, alone)


def test_one_study_may_be_asked_and_told_in_several_threads():
    study = ask_and_tell(new_study(), STARTUP)

    def one(_):
        trial = study.ask(coordinates(SMALL))
        study.tell(trial, distance(SMALL, trial.params))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(one, range(12)))
    assert {trial.state for trial in study.trials} == {TrialState.COMPLETE}
    assert len(np.unique(asked_points(study), axis=0)) == STARTUP + 12


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_points_asked_before_any_is_told_differ_and_so_do_their_curves(space):
    study = ask_and_tell(new_study(space), STARTUP, space)
    asked = [study.ask(coordinates(space)).params for _ in range(K)]
    points = np.array([[params[name] for name in space.names] for params in asked])
    curves = np.array([curve(space, params) for params in asked])
    assert ((points >= 0) & (points <= 1)).all()
    for one in range(K):
        for other in range(one):
            assert np.abs(points[one] - points[other]).max() > 1e-2
            assert np.abs(curves[one] - curves[other]).max() > 1e-3


def test_a_reopened_study_asks_the_point_it_would_have_asked(tmp_path):
    url = f"sqlite:///{tmp_path / 'study.db'}"
    ask_and_tell(new_study(study_name="s", storage=url), STARTUP + K)
    reopened = optuna.load_study(study_name="s", storage=url, sampler=CurveSampler(SMALL, EPOCHS))
    in_memory = ask_and_tell(new_study(), STARTUP + K)
    for _ in range(2):  # the second one with the first still running
        assert reopened.ask(coordinates(SMALL)).params == in_memory.ask(coordinates(SMALL)).params


def test_maximising_the_negative_is_minimising():
    least = ask_and_tell(new_study(), STARTUP + K)
    most = ask_and_tell(
        new_study(direction="maximize"), STARTUP + K, value=lambda space, params: -distance(space, params)
    )
    np.testing.assert_array_equal(asked_points(least), asked_points(most))


def test_the_first_points_do_not_depend_on_what_was_told():
    one = ask_and_tell(new_study(), STARTUP)
    other = ask_and_tell(new_study(), STARTUP, value=lambda _, params: params["ramp"])
    np.testing.assert_array_equal(asked_points(one), asked_points(other))
    after = [study.ask(coordinates(SMALL)).params for study in (one, other)]
    assert after[0] != after[1]


def test_enqueued_points_are_asked_as_they_are_and_learnt_from():
    study = new_study()
    target = {"noise_rate": 0.45, "exponent": 0.5, "ramp": 0.0909}
    study.enqueue_trial(target)
    assert study.ask(coordinates(SMALL)).params == target
    study.tell(0, distance(SMALL, target))
    ask_and_tell(study, STARTUP + 2 * K)
    assert distance(SMALL, study.trials[-1].params) < 0.01


def test_pickling_keeps_the_next_point():
    study = ask_and_tell(new_study(), STARTUP)
    other = optuna.create_study(sampler=pickle.loads(pickle.dumps(study.sampler)))
    other.add_trials(study.trials)
    assert other.ask(coordinates(SMALL)).params == study.ask(coordinates(SMALL)).params


def test_parameters_outside_the_space_may_ride_along():
    study = new_study()
    for _ in range(STARTUP + 2):
        trial = study.ask(coordinates(SMALL))
        assert 1 <= trial.suggest_int("layers", 1, 4) <= 4
        assert trial.suggest_categorical("method", ["a", "b"]) in ("a", "b")
        study.tell(trial, distance(SMALL, trial.params))
    assert len({trial.params["layers"] for trial in study.trials}) > 1


def test_parameters_outside_the_space_are_drawn_independently():
    trial = new_study().ask(coordinates(SMALL))
    assert trial.suggest_float("one", 0, 1) != trial.suggest_float("other", 0, 1)


@pytest.mark.parametrize("epochs", [1, 2])
def test_trainings_too_short_for_curves_to_differ_still_get_points(epochs):
    study = optuna.create_study(sampler=CurveSampler(LARGE, epochs, startup=3))
    ask_and_tell(study, 2 * K, LARGE, value=lambda _, params: params["f1_a1"])
    assert len(np.unique(asked_points(study, LARGE), axis=0)) == 2 * K


def test_equal_scores_are_no_reason_to_stop():
    study = ask_and_tell(new_study(), STARTUP + K, value=lambda *_: 0.5)
    assert len(np.unique(asked_points(study), axis=0)) == STARTUP + K


@pytest.mark.parametrize(("space", "factor"), [(LARGE, 0.6), (SMALL, 0.2)], ids=["s2e", "coteaching"])
def test_36_trials_come_nearer_to_an_unknown_curve_than_random_ones(space, factor):
    best = {"curve": [], "random": []}
    for name, found in best.items():
        for seed in range(3):
            study = optuna.create_study(sampler=algorithm(name, space, EPOCHS, K).sampler(seed))
            found.append(ask_and_tell(study, 36, space).best_value)
    assert np.mean(best["curve"]) < factor * np.mean(best["random"])


def test_a_negative_seed_is_refused():
    with pytest.raises(InvalidInput, match="`seed` must be at least 0, but got -1"):
        CurveSampler(SMALL, EPOCHS, seed=-1)


@pytest.mark.parametrize("startup", [1, 0, -3])
def test_a_model_of_fewer_than_two_trials_is_refused(startup):
    with pytest.raises(InvalidInput, match=f"`startup` must be at least 2, but got {startup}"):
        CurveSampler(SMALL, EPOCHS, startup=startup)
