"""Learning dynamics: a step by hand, causality, limits, and a fit that finds the schedules of known dynamics."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import spearmanr

from s2e.samplers.learning_dynamics import (
    DEVIATIONS,
    FIRST_LEARNT,
    LEAST_ERROR,
    MEANS,
    MOST_WRONG,
    NAMES,
    STEPS,
    WEIGHTS,
    WINDOWS,
    fit,
    group_epochs,
    observe,
    predict,
    simulate,
)
from s2e.schedules.spaces import S2ESpace

SCORED = 0.25


def schedules(count, seed=0, epochs=STEPS):
    points = np.random.default_rng(seed).random((count, S2ESpace().dimension))
    return group_epochs(S2ESpace().decode(points, epochs))


def by_hand(parameters, rates):
    """The errors of one training, written with plain numbers as in the module's description."""
    theta = dict(zip(NAMES, parameters, strict=True))
    wrong, p, c = MOST_WRONG * expit(theta["ε"]), FIRST_LEARNT * expit(theta["p at first"]), expit(theta["c"])
    s, kappa, delta, alpha, beta, v = (math.exp(theta[name]) for name in ("s", "κ", "δ", "α", "β", "v"))
    m, errors, steps = 0.0, [], len(rates)
    for step, rate in enumerate(rates):
        pace = (1.0 if step < 0.4 * steps else (1 - step / steps) / 0.6) * STEPS / steps
        d = p * (1 - c * m)
        q = (1 - d) * wrong * rate + d * s * math.log1p(math.exp((rate - 1 + wrong) / s))
        q = min(q, wrong, rate)
        limit = 1 - v * max(0.0, 1 - wrong - (rate - q))
        kept = m * math.exp(-pace * delta * (1 - q / wrong))
        m = kept + (1 - m) * (1 - math.exp(-pace * kappa * q / wrong))
        m = min(max(m, 0.0), 1.0)
        p += (limit - p) * (1 - math.exp(-pace * alpha * (rate - q))) - pace * beta * q * p
        p = min(max(p, 0.0), 1.0)
        least, by_learnt, by_memorised, power = (math.exp(theta[name]) for name in ("e_0", "e_p", "e_m", "γ"))
        errors.append(least + by_learnt * (1 - p) + by_memorised * max(m, 1e-6) ** power)
    return errors


@pytest.mark.parametrize("steps", [7, STEPS])
def test_simulated_errors_are_those_by_hand(steps):
    generator = np.random.default_rng(1)
    parameters = MEANS + 0.5 * DEVIATIONS * generator.normal(size=(3, len(MEANS)))
    rates = generator.random((4, steps))
    errors = simulate(parameters, rates)
    for q, n in np.ndindex(3, 4):
        assert errors[q, n] == pytest.approx(by_hand(parameters[q], rates[n]), rel=1e-9)


def test_errors_depend_on_earlier_keep_rates_only():
    rates = schedules(5)
    changed = rates.copy()
    changed[:, 20:] = 1.0
    before, after = (simulate(MEANS[None], each)[0] for each in (rates, changed))
    np.testing.assert_array_equal(before[:, :20], after[:, :20])
    assert (before[:, 20:] != after[:, 20:]).any(axis=0).all()


def test_keeping_all_memorises_wrong_labels_and_keeping_the_right_share_does_not():
    wrong = MOST_WRONG / 2  # ε of the means
    rates = np.stack([np.ones(STEPS), np.full(STEPS, 1 - wrong)])
    everything, right_share = simulate(MEANS[None], rates)[0, :, -1]
    assert everything > 2 * right_share


def test_a_fit_to_few_trainings_ranks_other_schedules():
    truth = MEANS + 0.4 * DEVIATIONS * np.random.default_rng(4).normal(size=len(MEANS))
    trained, others = schedules(8, seed=1), schedules(200, seed=2)
    fitted = fit(trained, observe(simulate(truth[None], trained)[0], SCORED), SCORED)
    expected = predict(truth, others, SCORED)
    assert spearmanr(predict(fitted, others, SCORED), expected).statistic > 0.95


def test_windows_that_are_unknown_do_not_count():
    trained = schedules(6, seed=1)
    observed = observe(simulate(MEANS[None], trained)[0], SCORED)
    unknown = np.full((3, len(WEIGHTS)), np.nan)
    more = fit(np.concatenate([trained, schedules(3, seed=5)]), np.concatenate([observed, unknown]), SCORED)
    np.testing.assert_allclose(more, fit(trained, observed, SCORED), rtol=1e-6)


def test_windows_are_logarithms_of_mean_errors_and_unknown_after_the_last_epoch_trained():
    errors = np.linspace(0.5, 0.1, STEPS)
    errors[21:] = np.nan
    observed = observe(errors, SCORED)
    assert len(observed) == len(WINDOWS) == len(WEIGHTS)
    assert observed[2] == pytest.approx(np.log(errors[4:8].mean()))
    np.testing.assert_array_equal(np.isnan(observed), [False] * 6 + [True] * 5)
    assert observe(np.zeros(STEPS), SCORED)[-1] == pytest.approx(np.log(LEAST_ERROR))


@pytest.mark.parametrize("epochs", [1, 2, 5, 39, 40, 41, 200])
def test_steps_are_of_nearly_equal_length_and_there_are_errors_in_the_last_window(epochs):
    grouped = group_epochs(np.arange(epochs, dtype=np.float64)[None])
    assert grouped.shape == (1, min(epochs, STEPS))
    assert (np.diff(grouped[0]) > 0).all()
    if epochs <= STEPS:
        np.testing.assert_array_equal(grouped[0], np.arange(epochs))
    assert np.isfinite(observe(np.full(grouped.shape, 0.3), min(1.0, 10 / epochs))[:, -1]).all()
