"""The relaxation's sampler with a model of the curve: no state but the study, no seed in θ, less noise in its steps."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import TrialState

from s2e.errors import InvalidInput
from s2e.samplers import control_variate as control_module
from s2e.samplers.control_variate import CurveControl, Observations
from s2e.samplers.curve_model import CurveModel, landmarks
from s2e.samplers.relaxation import STEPS, Array, Control, Layout, Settings, State, advance, sample
from s2e.samplers.relaxation_sampler import RelaxationSampler, Snapshot, _controlled_step
from s2e.schedules.fixed import coteaching
from s2e.schedules.spaces import SPACES, CoteachingSpace, RBFSpace, S2ESpace, Space
from s2e.seeds import derive

EPOCHS, K, DRAWS = 200, 6, 512
AT = landmarks(EPOCHS)
EVERY_SPACE = pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)


@pytest.fixture(autouse=True)
def _quiet_and_nothing_remembered() -> Iterator[None]:
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    _controlled_step.cache_clear()
    yield
    optuna.logging.set_verbosity(before)


def coordinates(space: Space) -> dict[str, FloatDistribution]:
    return {name: FloatDistribution(0.0, 1.0) for name in space.names}


def curves(space: Space, trials: list[optuna.trial.FrozenTrial]) -> Array:
    return space.decode([[trial.params[name] for name in space.names] for trial in trials], EPOCHS, at=AT)


def distance(space: Space, trial: optuna.trial.FrozenTrial | optuna.Trial) -> float:
    """Mean squared distance of a decoded curve to the one Co-teaching would use for 45 % noise."""
    return float(((curves(space, [trial]) - coteaching(0.45, EPOCHS)[AT]) ** 2).mean())  # type: ignore[list-item]


def sampler(
    space: Space,
    seed: int = 0,
    step: str = "newton",
    *,
    control: bool = True,
    startup: int = 12,
    settings: Settings | None = None,
) -> RelaxationSampler:
    given = CurveControl(space, EPOCHS, startup=startup, draws=DRAWS) if control else None
    return RelaxationSampler(
        step=step, generation=K, simplex=space.simplex, seed=seed, settings=settings, control=given
    )


def searched(
    space: Space,
    generations: int,
    study: optuna.Study | None = None,
    value: Callable[[Space, optuna.Trial], float] = distance,
    make: Callable[[int], RelaxationSampler] | None = None,
) -> optuna.Study:
    """A study of so many generations, every trial asked by a sampler of its own seed, as a search does it."""
    study = study or optuna.create_study()
    for generation in range(generations):
        asked = []
        for number in range(generation * K, (generation + 1) * K):
            seed = derive(0, "sampler", number)
            study.sampler = make(seed) if make else sampler(space, seed)
            asked.append(study.ask(coordinates(space)))
        for trial in asked:
            study.tell(trial, value(space, trial))
    return study


def theta(study: optuna.Study, generation: int, relaxed: RelaxationSampler) -> Array:
    found = relaxed.snapshot(study, generation)
    assert isinstance(found, Snapshot)
    return found.state.theta


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("space", [S2ESpace(), CoteachingSpace(), RBFSpace()], ids=["s2e", "coteaching", "rbf"])
def test_theta_is_the_fold_of_steps_each_with_a_model_of_all_trials_before_it(space: Space, step: str) -> None:
    """The chain written out, with curves made from the trials' parameters by name."""
    study, settings = searched(space, 4), Settings(rate=0.5, radius=0.7)
    names = [*space.simplex, *sorted(set(space.names) - set(space.simplex))]
    state = State.uniform(Layout(len(space.simplex), len(names) - len(space.simplex)))
    for generation in range(5):
        found = theta(study, generation, sampler(space, step=step, settings=settings))
        np.testing.assert_array_equal(found, state.theta)
        before, own = study.trials[: generation * K], study.trials[generation * K : (generation + 1) * K]
        control = None
        if len(before) >= 12 and own:
            model = CurveModel(curves(space, before), np.array([trial.values[0] for trial in before]))
            generator = np.random.default_rng(derive(0, "virtual", generation))
            draws = sample(state.theta, state.layout, DRAWS, generator)
            by_name = dict(zip(names, draws.T, strict=True))
            drawn = space.decode(np.stack([by_name[name] for name in space.names], axis=1), EPOCHS, at=AT)
            control = Control(model.predict(curves(space, own))[0], draws, model.predict(drawn)[0])
        points = np.array([[trial.params[name] for name in names] for trial in own]).reshape(-1, len(names))
        values = [trial.values[0] for trial in own]
        state = advance(state, points, values, step=step, settings=settings, control=control)


@EVERY_SPACE
def test_a_value_that_follows_the_curve_is_foreseen_in_every_space(space: Space) -> None:
    study = searched(space, 6, make=lambda seed: sampler(space, seed, control=False))
    found = sampler(space).snapshot(study, 0)
    assert found is not None
    points = tuple(tuple(trial.params[name] for name in found.names) for trial in study.trials)
    values = tuple(trial.values[0] for trial in study.trials)
    told = Observations(points[:30], values[:30])
    control = CurveControl(space, EPOCHS).predict(found.state, found.names, points[30:], generation=5, earlier=told)
    assert control is not None
    assert control.draws.shape == (2**13, space.dimension)
    assert np.corrcoef(control.at_points, values[30:])[0, 1] > 0.8
    drawn = dict(zip(found.names, control.draws.T, strict=True))
    decoded = space.decode(np.stack([drawn[name] for name in space.names], axis=1), EPOCHS, at=AT)
    truth = ((decoded - coteaching(0.45, EPOCHS)[AT]) ** 2).mean(axis=1)
    assert np.corrcoef(control.at_draws, truth)[0, 1] > 0.8


@EVERY_SPACE
def test_generations_before_there_is_a_model_are_those_of_the_plain_step_and_later_ones_are_not(space: Space) -> None:
    study = searched(space, 4)
    for generation in range(3):  # the step to the third has 12 earlier trials
        plain, found = (theta(study, generation, sampler(space, control=given)) for given in (False, True))
        np.testing.assert_array_equal(plain, found)
    for generation in (3, 4):
        plain, found = (theta(study, generation, sampler(space, control=given)) for given in (False, True))
        assert np.abs(plain - found).max() > 1e-3
        assert np.isfinite(found).all()
    later = theta(study, 3, sampler(space, startup=13))
    np.testing.assert_array_equal(later, theta(study, 3, sampler(space, control=False)))
    assert all(0 <= u <= 1 for trial in study.trials for u in trial.params.values())


def test_theta_follows_from_the_trials_and_not_from_the_seed() -> None:
    study = searched(S2ESpace(), 4)
    found = []
    for seed in (0, 1, 2**63 - 1):
        _controlled_step.cache_clear()
        found.append(theta(study, 4, sampler(S2ESpace(), seed)))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_virtual_draws_differ_from_generation_to_generation() -> None:
    state, told = State.uniform(Layout(4, 16)), Observations(((0.5,) * 20, (0.2,) * 20), (1.0, 2.0))
    model = CurveControl(S2ESpace(), EPOCHS, startup=2)
    names = S2ESpace.names
    one, other, again = (model.predict(state, names, told.points, generation=g, earlier=told) for g in (3, 4, 3))
    assert one is not None
    assert other is not None
    assert again is not None
    np.testing.assert_array_equal(one.draws, again.draws)
    assert not np.isin(one.draws, other.draws).any()


def test_what_is_remembered_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    remembered = searched(CoteachingSpace(), 5)
    monkeypatch.setattr("s2e.samplers.relaxation_sampler._controlled_step", _controlled_step.__wrapped__)
    anew = searched(CoteachingSpace(), 5)
    assert [trial.params for trial in remembered.trials] == [trial.params for trial in anew.trials]


def test_one_model_is_fitted_for_each_generation_though_every_trial_has_its_own_sampler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fitted = []

    def counting(points: Array, values: Array) -> CurveModel:
        fitted.append(len(values))
        return CurveModel(points, values)

    monkeypatch.setattr(control_module, "CurveModel", counting)
    searched(S2ESpace(), 6)
    assert fitted == [12, 18, 24]  # the steps over generations 2, 3 and 4, of earlier trials alone


@pytest.mark.parametrize("changed", [3, 20])
def test_a_value_of_an_earlier_generation_changes_what_is_remembered_of_a_later_one(changed: int) -> None:
    study, other = searched(CoteachingSpace(), 4), optuna.create_study()
    before = theta(study, 4, sampler(CoteachingSpace()))
    for trial in study.trials:
        value = trial.values[0] + (0.05 if trial.number == changed else 0.0)
        other.add_trial(optuna.create_trial(value=value, params=trial.params, distributions=trial.distributions))
    after = theta(other, 4, sampler(CoteachingSpace()))
    assert np.abs(after - before).max() > 1e-6
    _controlled_step.cache_clear()
    np.testing.assert_array_equal(theta(other, 4, sampler(CoteachingSpace())), after)


def test_a_reopened_study_and_a_pickled_sampler_ask_the_point_they_would_have_asked(tmp_path: Path) -> None:
    url, space = f"sqlite:///{tmp_path / 'study.db'}", RBFSpace()
    searched(space, 4, optuna.create_study(study_name="s", storage=url))
    in_memory = searched(space, 4)
    in_memory.sampler = sampler(space, 7)
    asked = in_memory.ask(coordinates(space)).params
    for built in (sampler(RBFSpace(), 7), pickle.loads(pickle.dumps(in_memory.sampler))):
        _controlled_step.cache_clear()
        reopened = optuna.load_study(study_name="s", storage=url, sampler=built)
        other = optuna.create_study(sampler=built)
        other.add_trials(reopened.trials)
        assert other.ask(coordinates(space)).params == asked


def test_maximising_the_negative_is_minimising() -> None:
    space = CoteachingSpace()
    least = searched(space, 5)
    most = searched(space, 5, optuna.create_study(direction="maximize"), lambda *given: -distance(*given))
    assert [trial.params for trial in least.trials] == [trial.params for trial in most.trials]


def test_trials_that_failed_or_diverged_take_no_part() -> None:
    space = CoteachingSpace()
    clean, diverged = optuna.create_study(), optuna.create_study()
    for trial in searched(space, 5).trials:
        given = {"params": trial.params, "distributions": trial.distributions}
        told = optuna.create_trial(value=trial.values[0], **given)
        lost = trial.number in (2, 13, 14, 20)
        clean.add_trial(optuna.create_trial(state=TrialState.FAIL, **given) if lost else told)
        diverged.add_trial(optuna.create_trial(value=math.inf, **given) if lost else told)
    for generation in range(6):
        found = theta(diverged, generation, sampler(space))
        np.testing.assert_array_equal(found, theta(clean, generation, sampler(space)))
    plain = theta(clean, 3, sampler(space, control=False))
    np.testing.assert_array_equal(theta(clean, 3, sampler(space)), plain)  # 11 earlier trials are too few


def test_parameters_outside_the_space_may_ride_along() -> None:
    space, study = CoteachingSpace(), optuna.create_study(sampler=sampler(CoteachingSpace()))
    for _ in range(5 * K):
        trial = study.ask({**coordinates(space), "middle": FloatDistribution(-3.0, 5.0)})
        trial.suggest_int("layers", 1, 4)
        study.tell(trial, distance(space, trial))
    found = sampler(space).snapshot(study, 5)
    assert found is not None
    assert found.names == ("exponent", "middle", "noise_rate", "ramp")
    assert found.state.theta.max() > 1


@pytest.mark.parametrize("epochs", [1, 2])
def test_trainings_too_short_for_curves_to_differ_still_get_points(epochs: int) -> None:
    space = S2ESpace()
    control = CurveControl(space, epochs, draws=DRAWS)
    study = optuna.create_study(sampler=RelaxationSampler(generation=K, simplex=space.simplex, control=control))
    for _ in range(5 * K):
        trial = study.ask(coordinates(space))
        study.tell(trial, trial.params["f1_a1"])
    assert len({trial.params["f1_a1"] for trial in study.trials}) == 5 * K


def test_the_last_generations_are_better_than_those_of_the_plain_step() -> None:
    space = S2ESpace()
    last: dict[bool, list[float]] = {False: [], True: []}
    for control, values in last.items():
        for repeat in range(4):
            make = lambda seed, r=repeat, c=control: sampler(space, derive(r, "repeat", seed), control=c)  # noqa: E731
            study = searched(space, 9, make=make)
            values.append(float(np.mean([trial.values[0] for trial in study.trials[-2 * K :]])))
    assert np.mean(last[True]) < 0.7 * np.mean(last[False])


def test_a_study_without_the_coordinates_of_the_space_is_refused() -> None:
    for given in (
        {"noise_rate": FloatDistribution(0.0, 1.0)},
        dict.fromkeys(CoteachingSpace.names, FloatDistribution(0, 2)),
    ):
        study = optuna.create_study(sampler=sampler(CoteachingSpace()))
        study.tell(study.ask(given), 1.0)
        with pytest.raises(InvalidInput, match=r"`control` must be of a space .* but got .*exponent, ramp; floats of"):
            study.ask(given)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(InvalidInput, match="`epochs` must be a positive integer, but got 0"):
        CurveControl(S2ESpace(), 0)
    with pytest.raises(InvalidInput, match="`startup` must be at least 2, but got 1"):
        CurveControl(S2ESpace(), 10, startup=1)
    with pytest.raises(InvalidInput, match="`draws` must be at least 2, but got 1"):
        CurveControl(S2ESpace(), 10, draws=1)
