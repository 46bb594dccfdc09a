"""The Gaussian process: the numbers of scikit-learn, of scipy and of a pencil, and the hyperparameters to be found."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import multivariate_normal, norm
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from s2e.samplers.gaussian_process import (
    JITTER,
    Hyperparameters,
    Prior,
    Process,
    fitted,
    kernel,
    negative_log_likelihood,
)

SETTINGS = [
    Hyperparameters(1.0, np.ones(1), 0.1),
    Hyperparameters(0.3, np.array([0.2, 5.0]), 0.9),
    Hyperparameters(7.0, np.array([0.05, 1.0, 40.0]), 0.02),
    Hyperparameters(1.6, np.geomspace(0.3, 3, 12), 0.3),
]
SIZES = [1, 2, 7, 40]


def observed(count, coordinates, seed=0):
    """Inputs (n, F) and values (n,) without any relation."""
    generator = np.random.default_rng([seed, count, coordinates])
    return generator.random((count, coordinates)), generator.normal(size=count)


def logarithms(how):
    return np.log([how.scale, *how.lengths, how.noise])


def drawn(inputs, how, seed=0):
    """Values (n,) of a function from the process itself, observed with its noise."""
    noisy = kernel(inputs, inputs, how) + how.noise**2 * np.eye(len(inputs))
    return np.linalg.cholesky(noisy) @ np.random.default_rng(seed).normal(size=len(inputs))


def scikit_learn(how, inputs, values):
    exact = ConstantKernel(how.scale**2) * Matern(how.lengths, nu=2.5) + WhiteKernel(how.noise**2)
    return GaussianProcessRegressor(exact, alpha=JITTER * how.scale**2, optimizer=None).fit(inputs, values)


def log_likelihood(found, inputs, values):
    """ln p(y | X, λ) by scipy's normal distribution."""
    how = Hyperparameters.of(found)
    covariance = kernel(inputs, inputs, how) + (how.noise**2 + JITTER * how.scale**2) * np.eye(len(inputs))
    return float(multivariate_normal.logpdf(values, cov=covariance, allow_singular=True))


def improbability(found, inputs, values, prior):
    """−ln of likelihood times prior."""
    means, deviations = prior.means(inputs.shape[1]), prior.deviations(inputs.shape[1])
    return -log_likelihood(found, inputs, values) - float(norm.logpdf(found, means, deviations).sum())


def slope(function, at, step=1e-5):
    """Central differences (F + 2,)."""
    steps = step * np.eye(len(at))
    return np.array([(function(at + one) - function(at - one)) / (2 * step) for one in steps])


# ----------------------------------------------------------------------------------------------------------- prediction


@pytest.mark.parametrize("how", SETTINGS, ids=lambda how: f"F={len(how.lengths)}")
@pytest.mark.parametrize("count", SIZES)
def test_means_deviations_and_likelihood_are_those_of_scikit_learn(count, how):
    inputs, values = observed(count, len(how.lengths))
    unseen = np.concatenate([inputs, 1.5 * observed(20, len(how.lengths), seed=1)[0]])
    oracle, process = scikit_learn(how, inputs, values), Process(inputs, values, how)
    expected, noisy = oracle.predict(unseen, return_std=True)
    mean, deviation = process.predict(unseen)
    np.testing.assert_allclose(mean, expected, atol=1e-6)
    np.testing.assert_allclose(deviation, np.sqrt(noisy**2 - how.noise**2), atol=1e-6)
    np.testing.assert_array_equal(process.mean(unseen), mean)
    likelihood = -negative_log_likelihood(logarithms(how), inputs, values)[0]
    np.testing.assert_allclose(likelihood, oracle.log_marginal_likelihood_value_, rtol=1e-8)


def test_three_points_match_a_case_worked_by_hand():
    """With ℓ = √5 and s = 1, k at distance d is (1 + d + d²/3) e^{−d}; (1, 0, −1) is an eigenvector of K."""
    k = [1.0, 7 / 3 * np.exp(-1), 13 / 3 * np.exp(-2), 7 * np.exp(-3)]  # by distance 0, 1, 2, 3
    noise = 0.25
    a, b, c = 1 + noise**2 + JITTER, k[1], k[2]  # K = (a b c; b a b; c b a)
    how = Hyperparameters(1.0, np.array([np.sqrt(5)]), noise)
    inputs, values = np.array([[0.0], [1.0], [2.0]]), np.array([1.0, 0.0, -1.0])
    process = Process(inputs, values, how)
    np.testing.assert_allclose(kernel(inputs, inputs, how)[0], k[:3], atol=1e-7)
    np.testing.assert_allclose(
        process.mean(np.array([[0.0], [1.0], [3.0]])), np.array([k[0] - k[2], 0.0, k[3] - k[1]]) / (a - c), atol=1e-7
    )
    determinant = (a + c) * a - 2 * b**2  # of K among symmetric vectors (x, y, x)
    x, y = (a * b - b) / determinant, (a + c - 2 * b**2) / determinant  # K (x, y, x) = (b, 1, b) = k at 1
    np.testing.assert_allclose(process.predict(np.array([[1.0]]))[1], np.sqrt(1 - 2 * b * x - y), atol=1e-7)
    by_hand = 1 / (a - c) + 0.5 * np.log((a - c) * determinant) + 1.5 * np.log(2 * np.pi)
    found, _ = negative_log_likelihood(logarithms(how), inputs, values)
    np.testing.assert_allclose(found, by_hand, atol=1e-7)


def test_several_outputs_are_what_each_of_them_is_alone():
    how = SETTINGS[2]
    inputs, _ = observed(25, 3)
    unseen, _ = observed(9, 3, seed=1)
    values = np.random.default_rng(0).normal(size=(25, 4))
    together = Process(inputs, values, how)
    mean, deviation = together.predict(unseen)
    assert mean.shape == (9, 4)
    assert deviation.shape == (9,)
    for output, alone in enumerate(Process(inputs, column, how) for column in values.T):
        np.testing.assert_allclose(mean[:, output], alone.mean(unseen), atol=1e-12)
        np.testing.assert_allclose(together.mean(unseen)[:, output], alone.mean(unseen), atol=1e-12)
        np.testing.assert_array_equal(deviation, alone.predict(unseen)[1])


def test_nothing_observed_leaves_mean_0_and_the_deviation_of_the_scale():
    process = Process(np.zeros((0, 2)), np.zeros(0), Hyperparameters(2.5, np.ones(2), 0.1))
    mean, deviation = process.predict(np.random.default_rng(0).random((3, 2)))
    np.testing.assert_array_equal(mean, np.zeros(3))
    np.testing.assert_array_equal(deviation, np.full(3, 2.5))


def test_far_from_all_inputs_nothing_is_known():
    inputs, values = observed(10, 2)
    mean, deviation = Process(inputs, values, SETTINGS[1]).predict(inputs + 1e4)
    np.testing.assert_allclose(mean, 0, atol=1e-12)
    np.testing.assert_allclose(deviation, SETTINGS[1].scale)


def test_one_input_pulls_the_mean_by_its_share_of_the_variance():
    how = Hyperparameters(2.0, np.ones(1), 1.0)
    mean, deviation = Process(np.array([[0.3]]), np.array([5.0]), how).predict(np.array([[0.3]]))
    np.testing.assert_allclose(mean, 5 * 4 / (4 + 1))  # s² / (s² + σ²)
    np.testing.assert_allclose(deviation, np.sqrt(4 - 16 / 5))


def test_a_value_observed_often_counts_like_its_mean_with_less_noise():
    inputs, _ = observed(6, 2)
    values = np.random.default_rng(0).normal(size=(6, 9))
    often = Process(np.repeat(inputs, 9, axis=0), values.ravel(), Hyperparameters(1.0, np.ones(2), 0.3))
    once = Process(inputs, values.mean(axis=1), Hyperparameters(1.0, np.ones(2), 0.1))
    unseen, _ = observed(20, 2, seed=1)
    np.testing.assert_allclose(often.predict(unseen), once.predict(unseen), atol=1e-5)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_equal_inputs_without_noise_are_no_reason_to_fail(scale):
    inputs = np.repeat(observed(4, 2)[0], 25, axis=0)  # K has rank 4 of 100, but for the jitter
    values = scale * np.repeat([1.0, -1.0, 0.5, 2.0], 25)
    mean, deviation = Process(inputs, values, Hyperparameters(scale, np.ones(2), 0.0)).predict(inputs)
    np.testing.assert_allclose(mean, values, rtol=1e-5)
    assert (deviation >= 0).all()
    assert (deviation < 1e-3 * scale).all()


# ---------------------------------------------------------------------------------------------------------------- units


@pytest.mark.parametrize("unit", [1e-9, 1e-3, 1e3, 1e9])
def test_another_unit_of_inputs_and_lengths_changes_nothing(unit):
    how = SETTINGS[2]
    scaled = Hyperparameters(how.scale, unit * how.lengths, how.noise)
    inputs, values = observed(20, 3)
    unseen, _ = observed(9, 3, seed=1)
    plain, other = Process(inputs, values, how), Process(unit * inputs, values, scaled)
    np.testing.assert_allclose(other.predict(unit * unseen), plain.predict(unseen), atol=1e-9)
    one, another = (
        negative_log_likelihood(logarithms(which), at, values) for which, at in ((how, inputs), (scaled, unit * inputs))
    )
    np.testing.assert_allclose(another[0], one[0], rtol=1e-9)
    np.testing.assert_allclose(another[1], one[1], atol=1e-8)


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_another_unit_of_values_scale_and_noise_is_another_unit_of_what_is_predicted(unit):
    inputs, values = observed(20, 2)
    unseen, _ = observed(9, 2, seed=1)
    plain = Process(inputs, values, Hyperparameters(1.2, np.ones(2), 0.1)).predict(unseen)
    other = Process(inputs, unit * values, Hyperparameters(unit * 1.2, np.ones(2), unit * 0.1)).predict(unseen)
    np.testing.assert_allclose(other, unit * np.array(plain), rtol=1e-9)


@pytest.mark.parametrize("origin", [3.0, -4096.0, 2.0**30])
def test_another_origin_of_inputs_changes_nothing(origin):
    inputs, unseen = (np.round(observed(count, 3)[0] * 2**12) / 2**12 for count in (20, 9))  # exact after the move
    _, values = observed(20, 3)
    how = SETTINGS[2]
    plain, moved = (Process(at, values, how) for at in (inputs, inputs + origin))
    np.testing.assert_allclose(moved.predict(unseen + origin), plain.predict(unseen), atol=1e-7)
    one, other = (negative_log_likelihood(logarithms(how), at, values) for at in (inputs, inputs + origin))
    np.testing.assert_allclose(other[0], one[0], rtol=1e-7)
    np.testing.assert_allclose(other[1], one[1], atol=1e-6)


@pytest.mark.parametrize("unit", [1e-4, 1e5])
def test_inputs_of_another_unit_want_a_prior_of_that_unit(unit):
    inputs, _ = observed(40, 2)
    values = drawn(inputs, Hyperparameters(1.0, np.array([0.3, 0.6]), 0.1))
    plain = fitted(inputs, values, Prior())
    with_its_prior = fitted(unit * inputs, values, Prior(length=(np.log(unit), 1.0)))
    np.testing.assert_allclose(with_its_prior.lengths, unit * plain.lengths, rtol=1e-3)
    without = fitted(unit * inputs, values, Prior())  # all inputs look equal, or all look far apart
    np.testing.assert_allclose(without.lengths, 1.0, rtol=1e-2)


# ----------------------------------------------------------------------------------------------------------- likelihood


@pytest.mark.parametrize("how", SETTINGS, ids=lambda how: f"F={len(how.lengths)}")
@pytest.mark.parametrize("count", SIZES)
def test_the_likelihood_is_that_of_a_normal_distribution_and_the_gradient_is_its_slope(count, how):
    inputs, values = observed(count, len(how.lengths))
    at = logarithms(how)
    value, gradient = negative_log_likelihood(at, inputs, values)
    np.testing.assert_allclose(value, -log_likelihood(at, inputs, values), rtol=1e-7)
    expected = slope(lambda at: negative_log_likelihood(at, inputs, values)[0], at)
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-6 * max(1.0, abs(value)))


def test_the_gradient_holds_where_jitter_is_all_that_keeps_equal_inputs_apart():
    inputs, values = (np.repeat(some, 2, axis=0) for some in observed(5, 2))
    at = np.array([0.3, -0.5, 0.5, -12.0])  # σ² = 4e-11, jitter 2e-8
    _, gradient = negative_log_likelihood(at, inputs, values)
    expected = slope(lambda at: negative_log_likelihood(at, inputs, values)[0], at, step=1e-4)
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-3)


# -------------------------------------------------------------------------------------------------------------- fitting


def test_a_prior_is_one_normal_distribution_for_each_hyperparameter_in_their_order():
    prior = Prior(scale=(0.1, 1.1), length=(0.2, 1.2), noise=(0.3, 1.3))
    assert prior.means(3).tolist() == [0.1, 0.2, 0.2, 0.2, 0.3]
    assert prior.deviations(3).tolist() == [1.1, 1.2, 1.2, 1.2, 1.3]
    how = Hyperparameters.of(np.log([1.0, 2.0, 3.0, 4.0, 5.0]))
    np.testing.assert_allclose([how.scale, *how.lengths, how.noise], [1, 2, 3, 4, 5])


CASES = [(3, 1), (10, 1), (30, 3), (12, 11), (60, 11)]


@pytest.mark.parametrize(("count", "coordinates"), CASES)
def test_what_is_fitted_is_a_stationary_point_within_four_deviations_and_beats_the_prior_mean(count, coordinates):
    prior = Prior(scale=(0.2, 0.8), length=(-0.5, 0.7), noise=(-2.0, 1.2))
    inputs, _ = observed(count, coordinates)
    values = np.sin(5 * inputs[:, 0]) + 0.1 * observed(count, coordinates, seed=1)[1]
    values = (values - values.mean()) / values.std()
    found = logarithms(fitted(inputs, values, prior))
    means, deviations = prior.means(coordinates), prior.deviations(coordinates)
    gradient = negative_log_likelihood(found, inputs, values)[1] + (found - means) / deviations**2
    assert (np.abs(found - means) < 4 * deviations).all()
    assert np.abs(gradient).max() < 5e-3  # at the prior mean it is from 1 to 100
    best, at_mean = (improbability(at, inputs, values, prior) for at in (found, means))
    assert best < at_mean - 0.1


@pytest.mark.parametrize("seed", range(4))
def test_what_is_fitted_is_the_most_probable_of_all_where_a_search_without_gradients_can_tell(seed):
    prior = Prior(length=(-0.5, 0.7))
    inputs, noise = observed(12, 1, seed)
    values = np.sin(6 * inputs[:, 0]) + 0.2 * noise
    values = (values - values.mean()) / values.std()
    found = improbability(logarithms(fitted(inputs, values, prior)), inputs, values, prior)
    searched = min(
        minimize(improbability, start, (inputs, values, prior), method="Nelder-Mead", options={"fatol": 1e-7}).fun
        for start in prior.means(1) + np.random.default_rng(0).normal(size=(4, 3))
    )
    np.testing.assert_allclose(found, searched, atol=1e-4)


def test_planted_scale_lengths_and_noise_are_found():
    planted = Hyperparameters(1.0, np.array([0.4, 1.2]), 0.2)
    found = []
    for seed in range(4):
        inputs = 4 * observed(150, 2, seed)[0]
        found.append(logarithms(fitted(inputs, drawn(inputs, planted, seed), Prior())))
    np.testing.assert_allclose(np.exp(np.mean(found, axis=0)), np.exp(logarithms(planted)), rtol=0.25)
    assert (np.std(found, axis=0) < 0.4).all()


def test_coordinates_without_influence_get_long_lengths():
    inputs, noise = observed(80, 4)
    values = np.sin(8 * inputs[:, 1]) + 0.05 * noise
    lengths = fitted(inputs, (values - values.mean()) / values.std(), Prior()).lengths
    assert lengths[1] < 1
    assert (np.delete(lengths, 1) > 5 * lengths[1]).all()


def test_values_that_are_only_noise_are_taken_for_noise():
    inputs, values = observed(200, 2)
    found = fitted(inputs, (values - values.mean()) / values.std(), Prior())
    assert found.noise > 0.8
    assert found.scale < 0.5


def test_without_values_the_prior_is_all_there_is():
    prior = Prior(scale=(0.7, 0.3), length=(-0.5, 0.7), noise=(-2.0, 0.4))
    found = fitted(np.zeros((0, 3)), np.zeros(0), prior)
    np.testing.assert_allclose(logarithms(found), [0.7, -0.5, -0.5, -0.5, -2.0])


@pytest.mark.parametrize("value", [-1.0, 0.0, 1.0])
def test_one_value_says_nothing_of_lengths_and_little_of_the_rest(value):
    prior = Prior()
    inputs, _ = observed(1, 3)
    found = logarithms(fitted(inputs, np.array([value]), prior))
    np.testing.assert_allclose(found[1:-1], 0.0, atol=1e-12)
    assert (np.abs(found - prior.means(3)) <= prior.deviations(3)).all()


def test_equal_values_are_no_reason_to_fail():
    inputs, _ = observed(20, 2)
    found = fitted(inputs, np.zeros(20), Prior())
    mean, deviation = Process(inputs, np.zeros(20), found).predict(inputs)
    np.testing.assert_array_equal(mean, 0)
    assert (deviation < found.scale).all()
    assert np.isfinite(logarithms(found)).all()


@pytest.mark.parametrize("apart", [0.0, 1.0], ids=["equal values", "contradicting values"])
def test_equal_inputs_can_be_fitted(apart):
    inputs = np.repeat(observed(3, 2)[0], 40, axis=0)
    values = np.repeat([1.0, 0.0, -1.0], 40) + apart * observed(120, 2)[1]
    prior = Prior()
    found = logarithms(fitted(inputs, values, prior))
    lowest = prior.noise[0] - 4 * prior.noise[1]
    if apart:
        np.testing.assert_allclose(np.exp(found[-1]), 1.0, rtol=0.2)
    else:
        np.testing.assert_allclose(found[-1], lowest)  # as little noise as there may be


def test_equal_arguments_are_fitted_equally():
    inputs, values = observed(30, 3)
    first, again = (logarithms(fitted(inputs, values, Prior())) for _ in range(2))
    np.testing.assert_array_equal(first, again)
