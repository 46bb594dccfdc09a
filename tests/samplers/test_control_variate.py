"""The curve model as a control variate: unbiased estimates with less variance, and the sampler that uses it."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import optuna
import pytest
import torch
from optuna.distributions import FloatDistribution
from optuna.trial import TrialState

from s2e.errors import InvalidInput
from s2e.samplers import control_variate
from s2e.samplers.control_variate import CurveControl, Observations
from s2e.samplers.curve_model import CurveModel, landmarks
from s2e.samplers.relaxation import (
    STEPS,
    Array,
    Control,
    Layout,
    Settings,
    State,
    advance,
    estimate,
    fisher,
    sample,
    score,
    weights,
)
from s2e.samplers.relaxation_sampler import RelaxationSampler, Snapshot, StateCache, states
from s2e.schedules.fixed import coteaching
from s2e.schedules.spaces import SPACES, CoteachingSpace, RBFSpace, S2ESpace, Space
from s2e.seeds import derive

# Estimates with a control variate

LAYOUT, K = Layout(3, 2), 6
THETA = np.array([1.5, 2.0, 3.0, 2.0, 1.0, 3.0, 2.5])


def objective(points: Array) -> Array:
    """f = α_0 β_0 + β_1, whose expectation has a closed form."""
    return np.asarray(weights(points, LAYOUT)[..., 0] * points[..., 3] + points[..., 4])


def unrelated(points: Array) -> Array:
    """A model with larger errors than the values differ."""
    return np.asarray(5.0 - 3.0 * points[..., 4] ** 2 + np.sin(9 * points[..., 3]) + weights(points, LAYOUT)[..., 2])


def exact_derivatives() -> tuple[Array, Array]:
    """∇J and ∇²J of J = E[f] = θ_0/Σ · a_0/(a_0+b_0) + a_1/(a_1+b_1), by autograd."""

    def expected(theta: torch.Tensor) -> torch.Tensor:
        alpha, a, b = theta[:3], theta[3:5], theta[5:]
        return alpha[0] / alpha.sum() * a[0] / (a[0] + b[0]) + a[1] / (a[1] + b[1])

    at = torch.from_numpy(THETA)
    gradient = torch.autograd.functional.jacobian(expected, at)
    return gradient.numpy(), torch.autograd.functional.hessian(expected, at).numpy()


def repeated(
    repeats: int, count: int, draws: int, model: Callable[[Array], Array], seed: int = 0
) -> tuple[State, Array, Control]:
    """Independent generations of `count` points, each with its own `draws` virtual points."""
    generator = np.random.default_rng(seed)
    state = State(LAYOUT, np.broadcast_to(THETA, (repeats, LAYOUT.size)))
    points = sample(state.theta, LAYOUT, count, generator)
    virtual = sample(state.theta, LAYOUT, draws, generator)
    return state, points, Control(model(points), virtual, model(virtual))


def assert_mean(draws: Array, expected: Array) -> None:
    """The mean over the first axis is within five standard errors of the expected value."""
    error = draws.std(axis=0, ddof=1) / math.sqrt(len(draws))
    assert (np.abs(draws.mean(axis=0) - expected) <= 5 * error + 1e-12).all()


@pytest.mark.parametrize(
    ("model", "baseline", "count", "draws"),
    [(unrelated, "leave-one-out", 2, 9), (unrelated, None, 6, 2), (objective, "leave-one-out", 6, 2)],
)
def test_estimates_are_unbiased_for_any_model(
    model: Callable[[Array], Array], baseline: str | None, count: int, draws: int
) -> None:
    state, points, control = repeated(6_000, count, draws, model)
    found = estimate(state, points, objective(points), baseline=baseline, scaled=False, control=control)  # type: ignore[arg-type]
    gradient, hessian = exact_derivatives()
    assert_mean(found.gradient, gradient)
    assert_mean(found.hessian, hessian)


def test_estimates_equal_explicit_sums() -> None:
    state, points, control = State(LAYOUT, THETA), *repeated(1, K, 9, unrelated)[1:]
    points, values = points[0], objective(points[0])
    control = Control(control.at_points[0], control.draws[0], control.at_draws[0])
    gradient, hessian = np.zeros(LAYOUT.size), np.zeros((LAYOUT.size, LAYOUT.size))
    for some, values_there in ((control.draws, control.at_draws), (points, values - control.at_points)):
        for one in range(len(some)):
            others = [values_there[other] for other in range(len(some)) if other != one]
            share = (values_there[one] - sum(others) / len(others)) / len(some) / values.std(ddof=1)
            s = score(THETA, LAYOUT, some[one : one + 1])[0]
            gradient += share * s
            hessian += share * (np.outer(s, s) - fisher(THETA, LAYOUT))
    found = estimate(state, points, values, control=control)
    np.testing.assert_allclose(found.gradient, gradient, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.hessian, hessian, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("constant", [0.0, -7.0])
def test_constant_model_changes_nothing(constant: float) -> None:
    state, points, control = repeated(20, K, 50, lambda some: np.full(some.shape[:-1], constant))
    plain, found = (estimate(state, points, objective(points), control=given) for given in (None, control))
    np.testing.assert_allclose(found.gradient, plain.gradient, atol=0.0 if constant == 0 else 1e-12)
    np.testing.assert_allclose(found.hessian, plain.hessian, atol=0.0 if constant == 0 else 1e-12)


def test_estimates_of_a_perfect_model_are_those_of_the_virtual_draws() -> None:
    state, points, control = repeated(20, K, 500, objective)
    found = estimate(state, points, objective(points), scaled=False, control=control)
    virtual = estimate(state, control.draws, control.at_draws, scaled=False)
    np.testing.assert_array_equal(found.gradient, virtual.gradient)
    np.testing.assert_array_equal(found.hessian, virtual.hessian)


def test_model_of_nine_tenths_of_the_values_leaves_a_hundredth_of_the_variance() -> None:
    repeats, draws = 1_500, 200
    state, points, own_draws = repeated(repeats, K, draws, lambda some: 0.9 * objective(some))
    values = objective(points)
    plain = estimate(state, points, values, scaled=False)
    shared = Control(own_draws.at_points, own_draws.draws[0], own_draws.at_draws[0])
    found = estimate(state, points, values, scaled=False, control=shared)  # shared draws add no variance
    np.testing.assert_allclose(found.gradient.var(axis=0), 0.01 * plain.gradient.var(axis=0), rtol=1e-6)
    np.testing.assert_allclose(found.hessian.var(axis=0), 0.01 * plain.hessian.var(axis=0), rtol=1e-6)
    found = estimate(state, points, values, scaled=False, control=own_draws)  # own draws add about 0.81·K/draws
    ratio = found.gradient.var(axis=0) / plain.gradient.var(axis=0)
    np.testing.assert_allclose(ratio, 0.01 + 0.81 * K / draws, rtol=0.25)


def test_both_terms_are_scaled_by_the_deviation_of_the_values() -> None:
    state, points, control = repeated(7, K, 50, unrelated)
    values = objective(points)
    raw, scaled = (estimate(state, points, values, scaled=scaled, control=control) for scaled in (False, True))
    deviation = values.std(axis=-1, ddof=1)
    np.testing.assert_allclose(scaled.gradient * deviation[:, None], raw.gradient, rtol=1e-9)
    np.testing.assert_allclose(scaled.hessian * deviation[:, None, None], raw.hessian, rtol=1e-9, atol=1e-12)
    for factor in (1e-250, 3.0, 1e300):
        rescaled = Control(factor * control.at_points, control.draws, factor * control.at_draws)
        other = estimate(state, points, factor * values, control=rescaled)
        np.testing.assert_allclose(other.gradient, scaled.gradient, rtol=1e-9)
        np.testing.assert_allclose(other.hessian, scaled.hessian, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", STEPS)
def test_batch_of_states_equals_each_state_alone(name: str) -> None:
    generator = np.random.default_rng(1)
    state = State(LAYOUT, generator.uniform(1, 4, (5, LAYOUT.size)))
    points, draws = (sample(state.theta, LAYOUT, count, generator) for count in (K, 40))
    values = objective(points)
    values[2] = 0.7
    for virtual in (draws, draws[0]):  # own draws, and shared ones
        control = Control(unrelated(points), virtual, unrelated(virtual))
        together = advance(state, points, values, step=name, settings=Settings(), control=control).theta
        for one in range(5):
            own = virtual[one] if virtual.ndim == 3 else virtual
            given = Control(unrelated(points[one]), own, unrelated(own))
            lone = State(LAYOUT, state.theta[one])
            alone = advance(lone, points[one], values[one], step=name, settings=Settings(), control=given).theta
            np.testing.assert_allclose(together[one], alone, rtol=1e-9)
        np.testing.assert_array_equal(together[2], state.theta[2])  # equal values


@pytest.mark.parametrize("name", STEPS)
def test_too_few_or_equal_values_do_not_change_theta(name: str) -> None:
    state, points, control = State(LAYOUT, THETA), *repeated(1, K, 40, unrelated)[1:]
    for count, values in ((0, []), (1, [0.3]), (6, [0.1] * 6), (3, [1e300] * 3)):
        given = Control(control.at_points[0, :count], control.draws[0], control.at_draws[0])
        moved = advance(state, points[0, :count], values, step=name, settings=Settings(), control=given)
        np.testing.assert_array_equal(moved.theta, THETA)


def test_control_of_another_shape_is_refused() -> None:
    state, draws = State(LAYOUT, THETA), sample(THETA, LAYOUT, 5, np.random.default_rng(0))
    for some, values_there in (
        (draws, np.ones(4)),
        (draws[:1], np.ones(1)),
        (draws[0], np.ones(())),
        (draws[None], np.ones(5)),
    ):
        with pytest.raises(InvalidInput, match="`draws` must have shape"):
            Control(np.ones(2), some, values_there)
    for at_points, at_draws in ((np.array([1.0, math.nan]), np.ones(5)), (np.ones(2), np.full(5, math.inf))):
        with pytest.raises(InvalidInput, match="finite"):
            Control(at_points, draws, at_draws)
    for control in (
        Control(np.ones(3), draws, np.ones(5)),
        Control(np.ones(2), draws[:, :4], np.ones(5)),
        Control(np.ones(2), draws[None], np.ones((1, 5))),
    ):
        with pytest.raises(InvalidInput, match="`control` must be for values of shape"):
            estimate(state, draws[:2], [1.0, 2.0], control=control)
        with pytest.raises(InvalidInput, match="`control` must be for values of shape"):
            advance(state, draws[:2], [1.0, 2.0], step="newton", settings=Settings(), control=control)


# The sampler with the curve model


EPOCHS, DRAWS = 200, 512
AT = landmarks(EPOCHS)


@pytest.fixture(autouse=True)
def _empty_cache() -> None:
    states.clear()


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
        step=step, generation_size=K, simplex=space.simplex, seed=seed, settings=settings, control=given
    )


def searched(
    space: Space,
    generations: int,
    study: optuna.Study | None = None,
    value: Callable[[Space, optuna.Trial], float] = distance,
    make: Callable[[int], RelaxationSampler] | None = None,
) -> optuna.Study:
    """A study of `generations` generations, every trial asked by a sampler with its own seed, as in a search."""
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


@pytest.mark.parametrize(
    ("space", "step"), [(S2ESpace(), "newton"), (CoteachingSpace(), "natural"), (RBFSpace(), "gradient")]
)
def test_theta_is_the_result_of_steps_with_models_of_all_earlier_trials(space: Space, step: str) -> None:
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


@pytest.mark.parametrize("space", [SPACES[name] for name in ("s2e", "rbf")], ids=lambda space: space.name)
def test_value_that_follows_the_curve_is_predicted(space: Space) -> None:
    study = searched(space, 6, make=lambda seed: sampler(space, seed, control=False))
    found = sampler(space).snapshot(study, 0)
    assert found is not None
    points = tuple(tuple(trial.params[name] for name in found.names) for trial in study.trials)
    values = tuple(trial.values[0] for trial in study.trials)
    earlier = Observations(points[:30], values[:30])
    control = CurveControl(space, EPOCHS).predict(found.state, found.names, points[30:], generation=5, earlier=earlier)
    assert control is not None
    assert control.draws.shape == (2**13, space.dimension)
    assert np.corrcoef(control.at_points, values[30:])[0, 1] > 0.8
    drawn = dict(zip(found.names, control.draws.T, strict=True))
    decoded = space.decode(np.stack([drawn[name] for name in space.names], axis=1), EPOCHS, at=AT)
    truth = ((decoded - coteaching(0.45, EPOCHS)[AT]) ** 2).mean(axis=1)
    assert np.corrcoef(control.at_draws, truth)[0, 1] > 0.8


def test_steps_are_plain_until_there_is_a_model() -> None:
    space = S2ESpace()
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


def test_theta_does_not_depend_on_the_seed() -> None:
    study = searched(S2ESpace(), 4)
    found = []
    for seed in (0, 1, 2**63 - 1):
        states.clear()
        found.append(theta(study, 4, sampler(S2ESpace(), seed)))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_virtual_draws_differ_between_generations() -> None:
    state, earlier = State.uniform(Layout(4, 16)), Observations(((0.5,) * 20, (0.2,) * 20), (1.0, 2.0))
    model = CurveControl(S2ESpace(), EPOCHS, startup=2)
    names = S2ESpace.names
    one, other, again = (model.predict(state, names, earlier.points, generation=g, earlier=earlier) for g in (3, 4, 3))
    assert one is not None
    assert other is not None
    assert again is not None
    np.testing.assert_array_equal(one.draws, again.draws)
    assert not np.isin(one.draws, other.draws).any()


def test_cache_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cached = searched(CoteachingSpace(), 5)
    monkeypatch.setattr(StateCache, "get", lambda *_: None)
    computed = searched(CoteachingSpace(), 5)
    assert [trial.params for trial in cached.trials] == [trial.params for trial in computed.trials]


def test_one_model_is_fitted_per_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = []

    def counting(points: Array, values: Array) -> CurveModel:
        fitted.append(len(values))
        return CurveModel(points, values)

    monkeypatch.setattr(control_variate, "CurveModel", counting)
    searched(S2ESpace(), 6)
    assert fitted == [12, 18, 24]  # for the steps of generations 2, 3 and 4, from earlier trials


@pytest.mark.parametrize("changed", [3, 20])
def test_changed_value_of_an_earlier_generation_is_not_cached(changed: int) -> None:
    study, other = searched(CoteachingSpace(), 4), optuna.create_study()
    before = theta(study, 4, sampler(CoteachingSpace()))
    for trial in study.trials:
        value = trial.values[0] + (0.05 if trial.number == changed else 0.0)
        other.add_trial(optuna.create_trial(value=value, params=trial.params, distributions=trial.distributions))
    after = theta(other, 4, sampler(CoteachingSpace()))
    assert np.abs(after - before).max() > 1e-6
    states.clear()
    np.testing.assert_array_equal(theta(other, 4, sampler(CoteachingSpace())), after)


def test_maximising_the_negative_equals_minimising() -> None:
    space = CoteachingSpace()
    least = searched(space, 5)
    most = searched(space, 5, optuna.create_study(direction="maximize"), lambda *given: -distance(*given))
    assert [trial.params for trial in least.trials] == [trial.params for trial in most.trials]


def test_failed_and_infinite_trials_are_ignored() -> None:
    space = CoteachingSpace()
    clean, diverged = optuna.create_study(), optuna.create_study()
    for trial in searched(space, 5).trials:
        given = {"params": trial.params, "distributions": trial.distributions}
        complete = optuna.create_trial(value=trial.values[0], **given)
        lost = trial.number in (2, 13, 14, 20)
        clean.add_trial(optuna.create_trial(state=TrialState.FAIL, **given) if lost else complete)
        diverged.add_trial(optuna.create_trial(value=math.inf, **given) if lost else complete)
    for generation in range(6):
        found = theta(diverged, generation, sampler(space))
        np.testing.assert_array_equal(found, theta(clean, generation, sampler(space)))
    plain = theta(clean, 3, sampler(space, control=False))
    np.testing.assert_array_equal(theta(clean, 3, sampler(space)), plain)  # 11 earlier trials: no model


def test_other_parameters_are_sampled_too() -> None:
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
def test_points_differ_where_trainings_are_too_short_for_curves_to_differ(epochs: int) -> None:
    space = S2ESpace()
    control = CurveControl(space, epochs, draws=DRAWS)
    study = optuna.create_study(sampler=RelaxationSampler(generation_size=K, simplex=space.simplex, control=control))
    for _ in range(5 * K):
        trial = study.ask(coordinates(space))
        study.tell(trial, trial.params["f1_a1"])
    assert len({trial.params["f1_a1"] for trial in study.trials}) == 5 * K


@pytest.mark.slow
def test_last_generations_are_better_than_those_of_the_plain_step() -> None:
    space = S2ESpace()
    last: dict[bool, list[float]] = {False: [], True: []}
    for control, values in last.items():
        for repeat in range(4):
            make = lambda seed, r=repeat, c=control: sampler(space, derive(r, "repeat", seed), control=c)  # noqa: E731
            study = searched(space, 9, make=make)
            values.append(float(np.mean([trial.values[0] for trial in study.trials[-2 * K :]])))
    assert np.mean(last[True]) < 0.7 * np.mean(last[False])


@pytest.mark.parametrize(
    "given",
    [
        {"noise_rate": FloatDistribution(0.0, 1.0)},
        dict.fromkeys(CoteachingSpace.names, FloatDistribution(0, 2)),
        dict.fromkeys(CoteachingSpace.names, FloatDistribution(0, 1, step=0.5)),
    ],
    ids=["missing", "range", "step"],
)
def test_study_without_the_coordinates_is_refused(given: dict[str, FloatDistribution]) -> None:
    study = optuna.create_study(sampler=sampler(CoteachingSpace()))
    study.tell(study.ask(dict(given)), 1.0)
    with pytest.raises(InvalidInput, match=r"`control` must have a space .* but got .*exponent, ramp; the study has"):
        study.ask(dict(given))


def test_invalid_arguments_are_refused() -> None:
    with pytest.raises(InvalidInput, match="`epochs` must be a positive integer, but got 0"):
        CurveControl(S2ESpace(), 0)
    with pytest.raises(InvalidInput, match="`startup` must be at least 2, but got 1"):
        CurveControl(S2ESpace(), 10, startup=1)
    with pytest.raises(InvalidInput, match="`draws` must be at least 2, but got 1"):
        CurveControl(S2ESpace(), 10, draws=1)
