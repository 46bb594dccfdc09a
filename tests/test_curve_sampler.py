"""The sampler that models scores over curves: no state but the study, no point twice, and better than chance."""

from __future__ import annotations

import pickle

import numpy as np
import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, RandomSampler, TPESampler
from optuna.trial import TrialState

from s2e.errors import InvalidInput
from s2e.relaxation import STEPS
from s2e.samplers import SAMPLERS, CurveSampler, RelaxationSampler, algorithm
from s2e.schedules import coteaching
from s2e.spaces import SPACES, CoteachingSpace, S2ESpace
from s2e.surrogate import landmarks

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


def test_the_first_points_are_uniform_and_differ_by_seed_and_trial():
    studies = [optuna.create_study(sampler=CurveSampler(LARGE, EPOCHS, seed=seed)) for seed in (0, 1)]
    for study in studies:
        for _ in range(40):  # never told, so there is never a model
            study.ask(coordinates(LARGE))
    drawn = np.concatenate([asked_points(study, LARGE).ravel() for study in studies])
    assert len(np.unique(drawn)) == len(drawn)
    assert abs(drawn.mean() - 0.5) < 5 * np.sqrt(1 / 12 / len(drawn))
    assert abs(drawn.var() - 1 / 12) < 0.01


def test_failed_pruned_infinite_and_partial_trials_take_no_part():
    told = ask_and_tell(new_study(), STARTUP).trials
    distributions = coordinates(SMALL)
    point = dict.fromkeys(SMALL.names, 0.9)
    without_a_point = optuna.create_trial(state=TrialState.FAIL)
    useless = [
        optuna.create_trial(state=TrialState.FAIL, params=point, distributions=distributions),
        optuna.create_trial(
            state=TrialState.PRUNED, params=point, distributions=distributions, intermediate_values={0: -9.0}
        ),
        optuna.create_trial(value=float("inf"), params=point, distributions=distributions),
        optuna.create_trial(value=float("-inf"), params=point, distributions=distributions),
        optuna.create_trial(value=-5.0, params={"ramp": 0.2}, distributions={"ramp": distributions["ramp"]}),
    ]
    plain, cluttered = new_study(), new_study()
    plain.add_trials([*told, *[without_a_point] * len(useless)])  # as many trials, so that the draws agree
    cluttered.add_trials([*told, *useless])
    assert plain.ask(distributions).params == cluttered.ask(distributions).params


def test_only_complete_trials_count_for_the_startup():
    study = new_study()
    for _ in range(STARTUP + K):
        study.tell(study.ask(coordinates(SMALL)), state=TrialState.FAIL)
    never_told = new_study()
    for _ in range(STARTUP + K):
        never_told.ask(coordinates(SMALL))
    np.testing.assert_array_equal(asked_points(study), asked_points(never_told))


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


@pytest.mark.parametrize("startup", [1, 0, -3])
def test_a_model_of_fewer_than_two_trials_is_refused(startup):
    with pytest.raises(InvalidInput, match=f"`startup` must be at least 2, but got {startup}"):
        CurveSampler(SMALL, EPOCHS, startup=startup)


KINDS = {
    "curve": CurveSampler,
    **dict.fromkeys(STEPS, RelaxationSampler),
    "random": RandomSampler,
    "tpe": TPESampler,
    "gp": GPSampler,
    "cmaes": CmaEsSampler,
    "hyperband": RandomSampler,
}


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_every_sampler_is_built_by_its_name_from_any_seed_and_repeats_itself(name, space):
    make = algorithm(name, space, EPOCHS, K).sampler
    points = []
    for seed in (5, 2**63 - 1, 5):
        built = make(seed)
        assert type(built) is KINDS[name]
        assert isinstance(built, BaseSampler)
        points.append(optuna.create_study(sampler=built).ask(coordinates(space)).params)
    assert points[0] == points[2]
    assert points[0] != points[1]


def test_a_relaxation_sampler_is_built_for_its_space_and_generation():
    built = algorithm("natural", LARGE, EPOCHS, 9).sampler(3)
    assert isinstance(built, RelaxationSampler)
    assert (built.step, built.generation, built.simplex, built.seed) == ("natural", 9, LARGE.simplex, 3)


def test_a_generation_too_small_for_a_step_is_refused_before_anything_is_asked():
    with pytest.raises(InvalidInput, match="`generation` must be at least 2"):
        algorithm("newton", LARGE, EPOCHS, 1)


def test_an_unknown_sampler_is_refused_with_the_known_ones_nearest_first():
    with pytest.raises(InvalidInput, match=r"`sampler` must be one of curve, .*, but got 'curves'\.") as refused:
        algorithm("curves", LARGE, EPOCHS, K)
    assert all(name in str(refused.value) for name in SAMPLERS)
    with pytest.raises(InvalidInput, match="`sampler` must be one of natural, "):
        algorithm("natura", LARGE, EPOCHS, K)
