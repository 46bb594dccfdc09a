"""The relaxation sampler: its points follow from the study, in any order of asking and telling."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import optuna
import pytest
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.trial import TrialState

from s2e.errors import InvalidInput
from s2e.samplers import RelaxationSampler
from s2e.samplers.relaxation import STEPS, Settings, State, advance

ALPHAS = ("alpha0", "alpha1", "alpha2")
BETAS = ("beta0", "beta1", "beta2", "beta3")
SPACE: dict[str, BaseDistribution] = {name: FloatDistribution(0.0, 1.0) for name in (*ALPHAS, *BETAS)}
K = 4


def sampler(step: str = "newton", seed: int = 0, simplex: tuple[str, ...] = ALPHAS) -> RelaxationSampler:
    return RelaxationSampler(step=step, generation_size=K, simplex=simplex, seed=seed)


def bowl(params: dict[str, float]) -> float:
    return sum((params[name] - 0.2) ** 2 for name in BETAS) + params["alpha0"]


def ask_and_tell(study: optuna.Study, trials: int, value: Callable[[dict[str, float]], float] = bowl) -> None:
    """Ask all trials of a generation before telling them."""
    while len(study.trials) < trials:
        asked = [study.ask(SPACE) for _ in range(K)]
        for trial in asked:
            study.tell(trial, value(trial.params))


def points(study: optuna.Study) -> np.ndarray:
    return np.array([[trial.params[name] for name in SPACE] for trial in study.trials])


@pytest.mark.slow  # `conformance/test_samplers.py` reopens the studies of every sampler
def test_reopened_study_asks_the_same_point(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'study.db'}"
    study = optuna.create_study(study_name="s", storage=url, sampler=sampler())
    ask_and_tell(study, 3 * K)
    reopened = optuna.load_study(study_name="s", storage=url, sampler=sampler())
    in_memory = optuna.create_study(sampler=sampler())
    ask_and_tell(in_memory, 3 * K)
    first = study.ask(SPACE)
    study.tell(first, state=TrialState.FAIL)  # has number 12, and is ignored
    assert first.params == in_memory.ask(SPACE).params
    in_memory.ask(SPACE)
    assert reopened.ask(SPACE).params == in_memory.trials[-1].params
    assert first.params != reopened.trials[-1].params


def test_order_of_asking_and_telling_within_a_generation_does_not_matter() -> None:
    together, one_by_one = (optuna.create_study(sampler=sampler()) for _ in range(2))
    ask_and_tell(together, 4 * K)
    one_by_one.optimize(lambda trial: bowl({name: trial.suggest_float(name, 0, 1) for name in SPACE}), n_trials=4 * K)
    np.testing.assert_allclose(points(together), points(one_by_one), rtol=1e-9, atol=1e-12)


def test_pickled_sampler_asks_the_same_point() -> None:
    study = optuna.create_study(sampler=sampler())
    ask_and_tell(study, 2 * K)
    other = optuna.create_study(sampler=pickle.loads(pickle.dumps(study.sampler)))
    other.add_trials(study.trials)
    assert other.ask(SPACE).params == study.ask(SPACE).params


def test_maximising_the_negative_equals_minimising() -> None:
    least = optuna.create_study(sampler=sampler())
    most = optuna.create_study(direction="maximize", sampler=sampler())
    ask_and_tell(least, 4 * K)
    ask_and_tell(most, 4 * K, lambda params: -bowl(params))
    np.testing.assert_array_equal(points(least), points(most))


def test_equal_values_leave_sampling_uniform() -> None:
    relaxed, uniform = (optuna.create_study(sampler=sampler(seed=3)) for _ in range(2))
    ask_and_tell(relaxed, 5 * K, lambda _: 0.1)
    for _ in range(5 * K):  # never told, so sampled uniformly
        uniform.ask(SPACE)
    np.testing.assert_allclose(points(relaxed), points(uniform), rtol=1e-12, atol=1e-14)


def test_first_points_are_uniform_and_differ_by_seed_trial_and_name() -> None:
    studies = [optuna.create_study(sampler=sampler(seed=seed)) for seed in (0, 1)]
    for study in studies:
        for _ in range(60):
            study.ask(SPACE)
    drawn = np.concatenate([points(study).ravel() for study in studies])
    assert len(np.unique(drawn)) == len(drawn)
    assert abs(drawn.mean() - 0.5) < 5 * np.sqrt(1 / 12 / len(drawn))
    assert abs(drawn.var() - 1 / 12) < 0.01


def test_first_point_is_the_same_in_every_process() -> None:
    assert optuna.create_study(sampler=sampler()).ask(SPACE).params["alpha0"] == 0.20224964409252877


def test_later_generations_are_better_than_the_first() -> None:
    first, last = [], []
    for seed in range(4):
        study = optuna.create_study(sampler=sampler(seed=seed))
        ask_and_tell(study, 15 * K)
        values = [trial.values[0] for trial in study.trials]
        first.append(np.mean(values[:K]))
        last.append(np.mean(values[-3 * K :]))
    assert np.mean(last) < 0.7 * np.mean(first)
    assert np.sum(np.less(last, first)) >= 3


@pytest.mark.parametrize("step", STEPS)
def test_snapshot_is_the_result_of_one_step_per_generation(step: str) -> None:
    study = optuna.create_study(sampler=sampler(step))
    relaxed = sampler(step)
    assert relaxed.snapshot(study, 0) is None
    ask_and_tell(study, 3 * K)
    expected: State | None = None
    for generation in range(4):
        found = relaxed.snapshot(study, generation)
        assert found is not None
        assert found.names == (*ALPHAS, *BETAS)
        expected = expected or State.uniform(found.state.layout)
        np.testing.assert_array_equal(found.state.theta, expected.theta)
        own = slice(generation * K, (generation + 1) * K)
        values = [trial.values[0] for trial in study.trials[own]]
        expected = advance(expected, points(study)[own], values, step=step, settings=Settings()) if values else expected
    assert expected is not None
    assert expected.theta.max() > 1


def test_failed_pruned_running_and_infinite_trials_are_ignored() -> None:
    study = optuna.create_study(sampler=sampler())
    trials = [study.ask(SPACE) for _ in range(2 * K)]
    study.tell(trials[0], state=TrialState.FAIL)
    trials[1].report(0.0, 0)
    study.tell(trials[1], state=TrialState.PRUNED)
    study.tell(trials[2], 1.0)  # trials[3] stays running
    for trial, value in zip(trials[K:], (float("inf"), 1.0, 2.0, 3.0), strict=True):
        study.tell(trial, value)
    before, after = (sampler().snapshot(study, generation) for generation in (1, 2))
    assert before is not None
    assert after is not None
    np.testing.assert_array_equal(before.state.theta, 1.0)  # one complete trial: no step
    finite = advance(before.state, points(study)[K + 1 :], [1.0, 2.0, 3.0], step="newton", settings=Settings())
    np.testing.assert_array_equal(after.state.theta, finite.theta)


def test_enqueued_trials_and_those_of_other_samplers_are_used() -> None:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    ask_and_tell(study, K)
    study.sampler = sampler()
    study.enqueue_trial(dict.fromkeys(SPACE, 0.0))
    study.enqueue_trial(dict.fromkeys(SPACE, 1.0))
    study.enqueue_trial({"beta0": 0.5})
    ask_and_tell(study, 3 * K)
    np.testing.assert_array_equal(points(study)[K], 0.0)
    assert ((points(study) >= 0) & (points(study) <= 1)).all()
    found = sampler().snapshot(study, 3)
    assert found is not None
    assert np.isfinite(found.state.theta).all()


def test_other_kinds_of_parameters_are_sampled_independently() -> None:
    def objective(trial: optuna.Trial) -> float:
        trial.suggest_float("rate", 1e-4, 1.0, log=True)
        trial.suggest_float("share", 0.0, 1.0, step=0.25)
        trial.suggest_int("depth", 1, 5)
        trial.suggest_categorical("kind", ["a", "b"])
        trial.suggest_float("fixed", 2.0, 2.0)
        return trial.suggest_float("wide", -10.0, 30.0) ** 2

    studies = [optuna.create_study(sampler=sampler(simplex=())) for _ in range(2)]
    for study in studies:
        study.optimize(objective, n_trials=10 * K)
    assert [trial.params for trial in studies[0].trials] == [trial.params for trial in studies[1].trials]
    found = sampler(simplex=()).snapshot(studies[0], 10)
    assert found is not None
    assert found.names == ("wide",)
    assert found.state.theta.max() > 1
    assert {trial.params["kind"] for trial in studies[0].trials} == {"a", "b"}
    assert {trial.params["depth"] for trial in studies[0].trials} == {1, 2, 3, 4, 5}


def test_study_without_plain_floats_has_no_snapshot() -> None:
    study = optuna.create_study(sampler=sampler(simplex=()))
    study.optimize(lambda trial: trial.suggest_int("depth", 1, 5), n_trials=2 * K)
    assert sampler(simplex=()).snapshot(study, 2) is None


def test_parallel_threads() -> None:
    study = optuna.create_study(sampler=sampler())
    study.optimize(
        lambda trial: bowl({name: trial.suggest_float(name, 0, 1) for name in SPACE}), n_trials=3 * K, n_jobs=2
    )
    assert all(trial.state == TrialState.COMPLETE for trial in study.trials)


def test_incomplete_simplex_is_refused() -> None:
    study = optuna.create_study(sampler=sampler(simplex=("alpha0", "alpha9")))
    study.tell(study.ask(SPACE), 1.0)
    with pytest.raises(InvalidInput, match="got alpha9; the study has alpha0, alpha1"):
        study.ask(SPACE)
    with pytest.raises(InvalidInput, match="alpha9"):
        sampler(simplex=("alpha0", "alpha9")).snapshot(study, 1)


def test_several_objectives_are_refused() -> None:
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler())
    with pytest.raises(InvalidInput, match="one objective"):
        study.ask(SPACE)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"one of natural, .*but got 'naturl'"):
        RelaxationSampler(step="naturl")
    with pytest.raises(InvalidInput, match="generation_size"):
        RelaxationSampler(generation_size=1)
    for simplex in ("alpha", ["alpha"], ["alpha", "alpha"]):
        with pytest.raises(InvalidInput, match="simplex"):
            RelaxationSampler(simplex=simplex)
    with pytest.raises(InvalidInput, match="seed"):
        RelaxationSampler(seed=-1)


def with_trials(study: optuna.Study, *trials: tuple[dict[str, float], FloatDistribution, float]) -> optuna.Study:
    for params, given, value in trials:
        study.add_trial(optuna.create_trial(params=params, distributions=dict.fromkeys(params, given), value=value))
    return study


def new_trial(study: optuna.Study) -> optuna.trial.FrozenTrial:
    study.add_trial(optuna.create_trial(state=TrialState.RUNNING))
    return study.trials[-1]


def test_relative_space_has_plain_floats_only() -> None:
    study = optuna.create_study(sampler=sampler(simplex=()))
    kinds: dict[str, BaseDistribution] = {
        "log": FloatDistribution(0.1, 1, log=True),
        "stepped": FloatDistribution(0, 1, step=0.25),
        "integer": optuna.distributions.IntDistribution(0, 5),
        "categorical": optuna.distributions.CategoricalDistribution(["a", "b"]),
        "single": FloatDistribution(1, 1),
        "plain": FloatDistribution(0, 1),
    }
    study.tell(study.ask(kinds), 1.0)
    trial = new_trial(study)
    assert study.sampler.infer_relative_search_space(study, trial) == {"plain": FloatDistribution(0, 1)}
    assert set(study.sampler.sample_relative(study, trial, kinds)) == {"plain"}


@pytest.mark.parametrize("trials", [0, 1])  # sampled independently, and relative to one trial, which makes no step
def test_points_cover_the_range_of_a_parameter(trials: int) -> None:
    low, high = -10, 300
    study = optuna.create_study(sampler=sampler(simplex=()))
    for _ in range(trials):
        study.tell(study.ask({"x": FloatDistribution(low, high)}), 1.0)
    drawn = np.array([study.ask({"x": FloatDistribution(low, high)}).params["x"] for _ in range(200)])
    counts, _ = np.histogram(drawn, bins=4, range=(low, high))
    assert counts.sum() == 200
    assert counts.min() > 50 - 5 * np.sqrt(200 * 0.25 * 0.75)


def test_trial_completed_with_another_range_while_sampling_is_ignored() -> None:
    # The space is inferred first; another process may complete trials in between.
    unit = FloatDistribution(0, 1)
    good = [({"x": 0.2}, unit, 1.0), ({"x": 0.8}, unit, 2.0)]
    plain, with_ignored = (optuna.create_study(sampler=RelaxationSampler(generation_size=2)) for _ in range(2))
    with_trials(plain, *good).add_trials([optuna.create_trial(state=TrialState.FAIL)] * 2)
    with_trials(with_ignored, *good, ({"x": 9.0}, FloatDistribution(0, 10), 0.0), ({"y": 0.1}, unit, 3.0))
    first, second = (
        study.sampler.sample_relative(study, new_trial(study), {"x": unit}) for study in (plain, with_ignored)
    )
    assert first == second
