"""The Gaussian process against scikit-learn, scipy and a case worked by hand; its fitted hyperparameters."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import multivariate_normal, norm
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from s2e.samplers.gaussian_process import (
    JITTER,
    GaussianProcess,
    Hyperparameters,
    Prior,
    SparseGaussianProcess,
    fit_hyperparameters,
    kernel,
    negative_log_likelihood,
)

HYPERPARAMETERS = [
    Hyperparameters(1.0, np.ones(1), 0.1),
    Hyperparameters(0.3, np.array([0.2, 5.0]), 0.9),
    Hyperparameters(7.0, np.array([0.05, 1.0, 40.0]), 0.02),
    Hyperparameters(1.6, np.geomspace(0.3, 3, 12), 0.3),
]
CASES = list(zip([1, 2, 7, 40], HYPERPARAMETERS, strict=True))


def observed(count, coordinates, seed=0):
    """Independent inputs (n, F) and values (n,)."""
    generator = np.random.default_rng([seed, count, coordinates])
    return generator.random((count, coordinates)), generator.normal(size=count)


def logarithms(hyperparameters):
    return np.log([hyperparameters.scale, *hyperparameters.lengths, hyperparameters.noise])


def drawn(inputs, hyperparameters, seed=0):
    """Values (n,) drawn from the process, with noise."""
    noisy = kernel(inputs, inputs, hyperparameters) + hyperparameters.noise**2 * np.eye(len(inputs))
    return np.linalg.cholesky(noisy) @ np.random.default_rng(seed).normal(size=len(inputs))


def scikit_learn(hyperparameters, inputs, values):
    exact = ConstantKernel(hyperparameters.scale**2) * Matern(hyperparameters.lengths, nu=2.5) + WhiteKernel(
        hyperparameters.noise**2
    )
    return GaussianProcessRegressor(exact, alpha=JITTER * hyperparameters.scale**2, optimizer=None).fit(inputs, values)


def log_likelihood(found, inputs, values):
    """ln p(y | X, λ) by scipy's normal distribution."""
    hyperparameters = Hyperparameters.from_logarithms(found)
    covariance = kernel(inputs, inputs, hyperparameters) + hyperparameters.diagonal * np.eye(len(inputs))
    return float(multivariate_normal.logpdf(values, cov=covariance, allow_singular=True))


def improbability(found, inputs, values, prior):
    """−ln of likelihood times prior."""
    means, deviations = prior.means(inputs.shape[1]), prior.deviations(inputs.shape[1])
    return -log_likelihood(found, inputs, values) - float(norm.logpdf(found, means, deviations).sum())


def slope(function, at, step=1e-5):
    """Central differences (F + 2,)."""
    steps = step * np.eye(len(at))
    return np.array([(function(at + one) - function(at - one)) / (2 * step) for one in steps])


# Prediction


@pytest.mark.parametrize(("count", "hyperparameters"), CASES)
def test_predictions_and_likelihood_equal_scikit_learn(count, hyperparameters):
    inputs, values = observed(count, len(hyperparameters.lengths))
    unseen = np.concatenate([inputs, 1.5 * observed(20, len(hyperparameters.lengths), seed=1)[0]])
    oracle, process = scikit_learn(hyperparameters, inputs, values), GaussianProcess(inputs, values, hyperparameters)
    expected, noisy = oracle.predict(unseen, return_std=True)
    mean, deviation = process.predict(unseen)
    np.testing.assert_allclose(mean, expected, atol=1e-6)
    np.testing.assert_allclose(deviation, np.sqrt(noisy**2 - hyperparameters.noise**2), atol=1e-6)
    np.testing.assert_array_equal(process.mean(unseen), mean)
    likelihood = -negative_log_likelihood(logarithms(hyperparameters), inputs, values)[0]
    np.testing.assert_allclose(likelihood, oracle.log_marginal_likelihood_value_, rtol=1e-8)


def test_three_points_match_a_case_worked_by_hand():
    """With ℓ = √5 and s = 1, k at distance d is (1 + d + d²/3) e^{−d}; (1, 0, −1) is an eigenvector of K."""
    k = [1.0, 7 / 3 * np.exp(-1), 13 / 3 * np.exp(-2), 7 * np.exp(-3)]  # by distance 0, 1, 2, 3
    noise = 0.25
    a, b, c = 1 + noise**2 + JITTER, k[1], k[2]  # K = (a b c; b a b; c b a)
    hyperparameters = Hyperparameters(1.0, np.array([np.sqrt(5)]), noise)
    inputs, values = np.array([[0.0], [1.0], [2.0]]), np.array([1.0, 0.0, -1.0])
    process = GaussianProcess(inputs, values, hyperparameters)
    np.testing.assert_allclose(kernel(inputs, inputs, hyperparameters)[0], k[:3], atol=1e-7)
    np.testing.assert_allclose(
        process.mean(np.array([[0.0], [1.0], [3.0]])), np.array([k[0] - k[2], 0.0, k[3] - k[1]]) / (a - c), atol=1e-7
    )
    determinant = (a + c) * a - 2 * b**2  # of K among symmetric vectors (x, y, x)
    x, y = (a * b - b) / determinant, (a + c - 2 * b**2) / determinant  # K (x, y, x) = (b, 1, b) = k at 1
    np.testing.assert_allclose(process.predict(np.array([[1.0]]))[1], np.sqrt(1 - 2 * b * x - y), atol=1e-7)
    by_hand = 1 / (a - c) + 0.5 * np.log((a - c) * determinant) + 1.5 * np.log(2 * np.pi)
    found, _ = negative_log_likelihood(logarithms(hyperparameters), inputs, values)
    np.testing.assert_allclose(found, by_hand, atol=1e-7)


def test_each_output_equals_a_separate_process():
    hyperparameters = HYPERPARAMETERS[2]
    inputs, _ = observed(25, 3)
    unseen, _ = observed(9, 3, seed=1)
    values = np.random.default_rng(0).normal(size=(25, 4))
    together = GaussianProcess(inputs, values, hyperparameters)
    mean, deviation = together.predict(unseen)
    assert mean.shape == (9, 4)
    assert deviation.shape == (9,)
    for output, alone in enumerate(GaussianProcess(inputs, column, hyperparameters) for column in values.T):
        np.testing.assert_allclose(mean[:, output], alone.mean(unseen), atol=1e-12)
        np.testing.assert_allclose(together.mean(unseen)[:, output], alone.mean(unseen), atol=1e-12)
        np.testing.assert_array_equal(deviation, alone.predict(unseen)[1])


def test_prior_has_mean_0_and_the_deviation_of_the_scale():
    process = GaussianProcess(np.zeros((0, 2)), np.zeros(0), Hyperparameters(2.5, np.ones(2), 0.1))
    mean, deviation = process.predict(np.random.default_rng(0).random((3, 2)))
    np.testing.assert_array_equal(mean, np.zeros(3))
    np.testing.assert_array_equal(deviation, np.full(3, 2.5))
    inputs, values = observed(10, 2)
    mean, deviation = GaussianProcess(inputs, values, HYPERPARAMETERS[1]).predict(inputs + 1e4)  # far from all inputs
    np.testing.assert_allclose(mean, 0, atol=1e-12)
    np.testing.assert_allclose(deviation, HYPERPARAMETERS[1].scale)


def test_mean_at_one_input_is_its_share_of_the_variance():
    hyperparameters = Hyperparameters(2.0, np.ones(1), 1.0)
    mean, deviation = GaussianProcess(np.array([[0.3]]), np.array([5.0]), hyperparameters).predict(np.array([[0.3]]))
    np.testing.assert_allclose(mean, 5 * 4 / (4 + 1))  # s² / (s² + σ²)
    np.testing.assert_allclose(deviation, np.sqrt(4 - 16 / 5))


def test_repeated_observations_equal_their_mean_with_less_noise():
    inputs, _ = observed(6, 2)
    values = np.random.default_rng(0).normal(size=(6, 9))
    often = GaussianProcess(np.repeat(inputs, 9, axis=0), values.ravel(), Hyperparameters(1.0, np.ones(2), 0.3))
    once = GaussianProcess(inputs, values.mean(axis=1), Hyperparameters(1.0, np.ones(2), 0.1))
    unseen, _ = observed(20, 2, seed=1)
    np.testing.assert_allclose(often.predict(unseen), once.predict(unseen), atol=1e-5)


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_equal_inputs_without_noise_are_accepted(scale):
    inputs = np.repeat(observed(4, 2)[0], 25, axis=0)  # without jitter, K has rank 4 of 100
    values = scale * np.repeat([1.0, -1.0, 0.5, 2.0], 25)
    mean, deviation = GaussianProcess(inputs, values, Hyperparameters(scale, np.ones(2), 0.0)).predict(inputs)
    np.testing.assert_allclose(mean, values, rtol=1e-5)
    assert (deviation >= 0).all()
    assert (deviation < 1e-3 * scale).all()


# Units


@pytest.mark.parametrize("unit", [1e-9, 1e9])
def test_unit_of_inputs_and_lengths_does_not_matter(unit):
    hyperparameters = HYPERPARAMETERS[2]
    scaled = Hyperparameters(hyperparameters.scale, unit * hyperparameters.lengths, hyperparameters.noise)
    inputs, values = observed(20, 3)
    unseen, _ = observed(9, 3, seed=1)
    plain, other = GaussianProcess(inputs, values, hyperparameters), GaussianProcess(unit * inputs, values, scaled)
    np.testing.assert_allclose(other.predict(unit * unseen), plain.predict(unseen), atol=1e-9)
    one, another = (
        negative_log_likelihood(logarithms(which), at, values)
        for which, at in ((hyperparameters, inputs), (scaled, unit * inputs))
    )
    np.testing.assert_allclose(another[0], one[0], rtol=1e-9)
    np.testing.assert_allclose(another[1], one[1], atol=1e-8)


def test_predictions_have_the_unit_of_the_values():
    unit = 1e6
    inputs, values = observed(20, 2)
    unseen, _ = observed(9, 2, seed=1)
    plain = GaussianProcess(inputs, values, Hyperparameters(1.2, np.ones(2), 0.1)).predict(unseen)
    other = GaussianProcess(inputs, unit * values, Hyperparameters(unit * 1.2, np.ones(2), unit * 0.1)).predict(unseen)
    np.testing.assert_allclose(other, unit * np.array(plain), rtol=1e-9)


@pytest.mark.parametrize("origin", [3.0, 2.0**30])
def test_origin_of_inputs_does_not_matter(origin):
    inputs, unseen = (np.round(observed(count, 3)[0] * 2**12) / 2**12 for count in (20, 9))  # exact after the move
    _, values = observed(20, 3)
    hyperparameters = HYPERPARAMETERS[2]
    plain, moved = (GaussianProcess(at, values, hyperparameters) for at in (inputs, inputs + origin))
    np.testing.assert_allclose(moved.predict(unseen + origin), plain.predict(unseen), atol=1e-7)
    one, other = (negative_log_likelihood(logarithms(hyperparameters), at, values) for at in (inputs, inputs + origin))
    np.testing.assert_allclose(other[0], one[0], rtol=1e-7)
    np.testing.assert_allclose(other[1], one[1], atol=1e-6)


@pytest.mark.parametrize("unit", [1e-4, 1e5])
def test_prior_must_have_the_unit_of_the_inputs(unit):
    inputs, _ = observed(40, 2)
    values = drawn(inputs, Hyperparameters(1.0, np.array([0.3, 0.6]), 0.1))
    plain = fit_hyperparameters(inputs, values, Prior())
    with_its_prior = fit_hyperparameters(unit * inputs, values, Prior(length=(np.log(unit), 1.0)))
    np.testing.assert_allclose(with_its_prior.lengths, unit * plain.lengths, rtol=1e-3)
    without = fit_hyperparameters(unit * inputs, values, Prior())  # all inputs are equal or far apart
    np.testing.assert_allclose(without.lengths, 1.0, rtol=1e-2)


# Likelihood


@pytest.mark.parametrize(("count", "hyperparameters"), CASES)
def test_likelihood_and_its_gradient_equal_scipy_and_finite_differences(count, hyperparameters):
    inputs, values = observed(count, len(hyperparameters.lengths))
    at = logarithms(hyperparameters)
    value, gradient = negative_log_likelihood(at, inputs, values)
    np.testing.assert_allclose(value, -log_likelihood(at, inputs, values), rtol=1e-7)
    expected = slope(lambda at: negative_log_likelihood(at, inputs, values)[0], at)
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-6 * max(1.0, abs(value)))


def test_gradient_is_correct_where_jitter_dominates():
    inputs, values = (np.repeat(some, 2, axis=0) for some in observed(5, 2))
    at = np.array([0.3, -0.5, 0.5, -12.0])  # σ² = 4e-11, jitter 2e-8
    _, gradient = negative_log_likelihood(at, inputs, values)
    expected = slope(lambda at: negative_log_likelihood(at, inputs, values)[0], at, step=1e-4)
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-3)


# Fitting


def test_prior_has_one_mean_and_deviation_per_hyperparameter():
    prior = Prior(scale=(0.1, 1.1), length=(0.2, 1.2), noise=(0.3, 1.3))
    assert prior.means(3).tolist() == [0.1, 0.2, 0.2, 0.2, 0.3]
    assert prior.deviations(3).tolist() == [1.1, 1.2, 1.2, 1.2, 1.3]
    hyperparameters = Hyperparameters.from_logarithms(np.log([1.0, 2.0, 3.0, 4.0, 5.0]))
    np.testing.assert_allclose(
        [hyperparameters.scale, *hyperparameters.lengths, hyperparameters.noise], [1, 2, 3, 4, 5]
    )


@pytest.mark.parametrize(("count", "coordinates"), [(3, 1), (30, 3), (60, 11)])
def test_fit_is_a_stationary_point_within_four_deviations(count, coordinates):
    prior = Prior(scale=(0.2, 0.8), length=(-0.5, 0.7), noise=(-2.0, 1.2))
    inputs, _ = observed(count, coordinates)
    values = np.sin(5 * inputs[:, 0]) + 0.1 * observed(count, coordinates, seed=1)[1]
    values = (values - values.mean()) / values.std()
    found = logarithms(fit_hyperparameters(inputs, values, prior))
    means, deviations = prior.means(coordinates), prior.deviations(coordinates)
    gradient = negative_log_likelihood(found, inputs, values)[1] + (found - means) / deviations**2
    assert (np.abs(found - means) < 4 * deviations).all()
    assert np.abs(gradient).max() < 5e-3  # at the prior mean it is from 1 to 100
    best, at_mean = (improbability(at, inputs, values, prior) for at in (found, means))
    assert best < at_mean - 0.1


@pytest.mark.parametrize("seed", range(2))
def test_fit_is_the_global_maximum_found_without_gradients(seed):
    prior = Prior(length=(-0.5, 0.7))
    inputs, noise = observed(12, 1, seed)
    values = np.sin(6 * inputs[:, 0]) + 0.2 * noise
    values = (values - values.mean()) / values.std()
    found = improbability(logarithms(fit_hyperparameters(inputs, values, prior)), inputs, values, prior)
    searched = min(
        minimize(improbability, start, (inputs, values, prior), method="Nelder-Mead", options={"fatol": 1e-7}).fun
        for start in prior.means(1) + np.random.default_rng(0).normal(size=(4, 3))
    )
    np.testing.assert_allclose(found, searched, atol=1e-4)


def test_true_hyperparameters_are_recovered():
    true = Hyperparameters(1.0, np.array([0.4, 1.2]), 0.2)
    found = []
    for seed in range(4):
        inputs = 4 * observed(150, 2, seed)[0]
        found.append(logarithms(fit_hyperparameters(inputs, drawn(inputs, true, seed), Prior())))
    np.testing.assert_allclose(np.exp(np.mean(found, axis=0)), np.exp(logarithms(true)), rtol=0.25)
    assert (np.std(found, axis=0) < 0.4).all()


def test_irrelevant_coordinates_get_long_lengths():
    inputs, noise = observed(80, 4)
    values = np.sin(8 * inputs[:, 1]) + 0.05 * noise
    lengths = fit_hyperparameters(inputs, (values - values.mean()) / values.std(), Prior()).lengths
    assert lengths[1] < 1
    assert (np.delete(lengths, 1) > 5 * lengths[1]).all()


def test_noise_is_fitted_as_noise():
    inputs, values = observed(200, 2)
    found = fit_hyperparameters(inputs, (values - values.mean()) / values.std(), Prior())
    assert found.noise > 0.8
    assert found.scale < 0.5


def test_fit_without_values_is_the_prior_mean():
    prior = Prior(scale=(0.7, 0.3), length=(-0.5, 0.7), noise=(-2.0, 0.4))
    found = fit_hyperparameters(np.zeros((0, 3)), np.zeros(0), prior)
    np.testing.assert_allclose(logarithms(found), [0.7, -0.5, -0.5, -0.5, -2.0])


def test_fit_of_one_value_stays_near_the_prior():
    value = 1.0
    prior = Prior()
    inputs, _ = observed(1, 3)
    found = logarithms(fit_hyperparameters(inputs, np.array([value]), prior))
    np.testing.assert_allclose(found[1:-1], 0.0, atol=1e-12)
    assert (np.abs(found - prior.means(3)) <= prior.deviations(3)).all()


def test_equal_values_are_fitted():
    inputs, _ = observed(20, 2)
    found = fit_hyperparameters(inputs, np.zeros(20), Prior())
    mean, deviation = GaussianProcess(inputs, np.zeros(20), found).predict(inputs)
    np.testing.assert_array_equal(mean, 0)
    assert (deviation < found.scale).all()
    assert np.isfinite(logarithms(found)).all()


@pytest.mark.parametrize("apart", [0.0, 1.0], ids=["equal values", "contradicting values"])
def test_equal_inputs_are_fitted(apart):
    inputs = np.repeat(observed(3, 2)[0], 40, axis=0)
    values = np.repeat([1.0, 0.0, -1.0], 40) + apart * observed(120, 2)[1]
    prior = Prior()
    found = logarithms(fit_hyperparameters(inputs, values, prior))
    lowest = prior.noise[0] - 4 * prior.noise[1]
    if apart:
        np.testing.assert_allclose(np.exp(found[-1]), 1.0, rtol=0.2)
    else:
        np.testing.assert_allclose(found[-1], lowest)  # the smallest noise allowed


@pytest.mark.parametrize(("count", "hyperparameters"), CASES)
def test_sparse_process_is_exact_if_it_represents_all_inputs(count, hyperparameters):
    inputs, values = observed(count, len(hyperparameters.lengths))
    unseen, _ = observed(9, len(hyperparameters.lengths), seed=1)
    exact = GaussianProcess(inputs, values, hyperparameters)
    sparse = SparseGaussianProcess(inputs, values, inputs, hyperparameters)
    for one, other in (
        (exact, sparse),
        (exact.assuming_predictions(unseen[:3]), sparse.assuming_predictions(unseen[:3])),
    ):
        np.testing.assert_allclose(other.mean(unseen), one.mean(unseen), atol=1e-4 * hyperparameters.scale)
        for found, expected in zip(other.predict(unseen), one.predict(unseen), strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-4 * hyperparameters.scale)


def test_sparse_process_is_certain_only_near_the_inputs_it_represents():
    hyperparameters = Hyperparameters(1.0, np.ones(1), 0.1)
    inputs = np.linspace(0, 10, 200)[:, None]
    sparse = SparseGaussianProcess(inputs, np.sin(inputs[:, 0]), inputs[:100:4], hyperparameters)
    mean, deviation = sparse.predict(np.array([[2.0], [9.0]]))
    np.testing.assert_allclose(mean[0], np.sin(2.0), atol=0.02)
    assert deviation[0] < 0.05
    assert deviation[1] > 0.9
    assert sparse.assuming_predictions(np.array([[9.0]])).predict(np.array([[9.0]]))[1] < 0.11
