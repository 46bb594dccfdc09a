"""The model of scores over curves: predictions, expected improvement, caching, landmarks."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from s2e.samplers.curve_model import LANDMARKS, PRIOR, CurveModel, _fit, _process, landmarks
from s2e.samplers.gaussian_process import fit_hyperparameters
from s2e.schedules.spaces import S2ESpace

EPOCHS = 200
TARGET = np.linspace(0.9, 0.5, len(landmarks(EPOCHS)))


def drawn_curves(count, seed=0):
    generator = np.random.default_rng(seed)
    space = S2ESpace()
    return space.decode(generator.random((count, space.dimension)), EPOCHS, at=landmarks(EPOCHS))


def score(curves):
    """Weighted distance to a target curve, smaller is better."""
    return ((curves - TARGET) ** 2 @ np.linspace(2, 0.5, len(TARGET))) + 0.1 * np.sin(3 * curves[:, 0])


def fitted_model(count=50, noise=0.0):
    curves = drawn_curves(count)
    return CurveModel(curves, score(curves) + noise * np.random.default_rng(9).normal(size=count)), curves


def test_smooth_function_of_the_curve_is_recovered():
    model, _ = fitted_model()
    unseen = drawn_curves(300, seed=1)
    mean, deviation = model.predict(unseen)
    assert mean.shape == deviation.shape == (300,)
    assert np.corrcoef(mean, score(unseen))[0, 1] > 0.98
    assert np.abs(mean - score(unseen)).mean() < 0.1 * score(unseen).std()


def test_deviation_is_calibrated():
    model, _ = fitted_model(noise=0.02)
    unseen = drawn_curves(300, seed=1)
    mean, deviation = model.predict(unseen)
    within = np.abs(score(unseen) - mean) < 2.5 * deviation
    assert within.mean() > 0.9
    assert np.median(deviation) < 0.5 * score(unseen).std()


def test_noise_is_averaged():
    curves = drawn_curves(40)
    noise = np.random.default_rng(3).normal(size=40)
    mean, _ = CurveModel(curves, noise).predict(curves)
    assert mean.std() < 0.7 * noise.std()


def test_predictions_scale_with_the_scores():
    curves, unseen = drawn_curves(30), drawn_curves(20, seed=1)
    plain, scaled = (CurveModel(curves, a * score(curves) + b) for a, b in ((1.0, 0.0), (100.0, -7.0)))
    (mean, deviation), (scaled_mean, scaled_deviation) = plain.predict(unseen), scaled.predict(unseen)
    np.testing.assert_allclose(scaled_mean, 100 * mean - 7, rtol=1e-3)
    np.testing.assert_allclose(scaled_deviation, 100 * deviation, rtol=1e-2)
    assert plain.expected_improvement(unseen).argmax() == scaled.expected_improvement(unseen).argmax()


def test_expected_improvement_equals_a_monte_carlo_estimate():
    model, curves = fitted_model(25, noise=0.05)
    unseen = drawn_curves(40, seed=1)
    best = model.predict(curves)[0].min()
    mean, deviation = model.predict(unseen)
    draws = mean + deviation * np.random.default_rng(0).normal(size=(100_000, 1))
    estimate = np.maximum(best - draws, 0)
    error = estimate.std(axis=0) / np.sqrt(len(draws))
    assert (np.abs(model.expected_improvement(unseen) - estimate.mean(axis=0)) < 5 * error + 1e-5).all()


def test_expected_improvement_vanishes_where_the_model_is_confident_of_worse():
    model, curves = fitted_model()
    improvement = model.expected_improvement(curves)
    scores = score(curves)
    assert (improvement >= -1e-12).all()
    assert improvement[scores.argmax()] < 1e-6 * scores.std()
    unseen = drawn_curves(300, seed=1)
    improvement = model.expected_improvement(unseen)
    better = score(unseen) < np.quantile(score(unseen), 0.2)
    assert improvement[better].mean() > 10 * improvement[~better].mean()


def test_target_of_expected_improvement_is_the_best_mean():
    curves = np.repeat(drawn_curves(6), 6, axis=0)  # every curve scored six times
    values = score(curves) + 0.01 * np.random.default_rng(0).normal(size=len(curves))
    noisy = values.copy()
    noisy[score(curves).argmin()] -= 0.2
    model = CurveModel(curves, noisy)
    mean, deviation = model.predict(curves)
    assert noisy.min() < mean.min() - 0.05
    best = mean.argmin()
    height = deviation[best] / np.sqrt(2 * np.pi)  # the value where the mean is the target
    np.testing.assert_allclose(model.expected_improvement(curves)[best], height)


def test_assumed_predictions_reduce_the_deviation_and_keep_the_means():
    model, curves = fitted_model(10)
    asked, unseen = drawn_curves(3, seed=1), drawn_curves(100, seed=2)
    assumed = model.assuming_predictions(asked)
    before, after = model.predict(asked), assumed.predict(asked)
    assert (after[1] < 0.7 * before[1]).all()
    spread = score(curves).std()
    np.testing.assert_allclose(after[0], before[0], atol=0.02 * spread)
    np.testing.assert_allclose(assumed.predict(unseen)[0], model.predict(unseen)[0], atol=0.1 * spread)
    assert (assumed.expected_improvement(asked) < model.expected_improvement(asked)).all()


@pytest.mark.parametrize("values", [np.zeros(5), np.full(5, 0.3), np.full(5, 1e9)])
def test_equal_scores_are_predicted_everywhere(values):
    model = CurveModel(drawn_curves(5), values)
    mean, deviation = model.predict(drawn_curves(4, seed=1))
    np.testing.assert_allclose(mean, values[0], rtol=1e-6)
    assert np.isfinite(deviation).all()
    assert np.isfinite(model.expected_improvement(drawn_curves(4, seed=1))).all()


def test_rounding_of_the_mean_of_equal_scores_is_ignored():
    count = 6
    curves, unseen = drawn_curves(count), drawn_curves(30, seed=1)
    plain, rounded = (CurveModel(curves, np.full(count, value)) for value in (0.0, 0.1))
    np.testing.assert_allclose(rounded.expected_improvement(unseen), plain.expected_improvement(unseen), rtol=1e-6)


def test_equal_curves_have_the_mean_score():
    curves = np.ones((4, 1))  # as with T = 1
    model = CurveModel(curves, np.array([1.0, 2.0, 3.0, 4.0]))
    np.testing.assert_allclose(model.predict(curves[:1])[0], 2.5, atol=1e-3)
    assert np.isfinite(model.assuming_predictions(curves[:2]).expected_improvement(curves)).all()


def test_model_equals_scikit_learn_and_assumed_predictions_are_observations():
    curves, asked, unseen = drawn_curves(25), drawn_curves(4, seed=1), drawn_curves(40, seed=2)
    values = score(curves) + 0.05 * np.random.default_rng(0).normal(size=25)
    centre, spread = values.mean(), values.std()
    fit = fit_hyperparameters(curves, (values - centre) / spread, PRIOR)

    def oracle(curves, values):
        exact = ConstantKernel(fit.scale**2) * Matern(fit.lengths, nu=2.5)
        known = GaussianProcessRegressor(exact, alpha=fit.diagonal, optimizer=None)
        return known.fit(curves, (values - centre) / spread)

    scored = oracle(curves, values)
    assumed = oracle(np.concatenate([curves, asked]), np.append(values, centre + spread * scored.predict(asked)))
    model = CurveModel(curves, values)
    for ours, theirs in ((model, scored), (model.assuming_predictions(asked), assumed)):
        mean, deviation = theirs.predict(unseen, return_std=True)
        np.testing.assert_allclose(ours.predict(unseen)[0], centre + spread * mean, atol=1e-6 * spread)
        np.testing.assert_allclose(ours.predict(unseen)[1], spread * deviation, atol=1e-6 * spread)


def test_target_of_expected_improvement_includes_assumed_predictions():
    model, curves = fitted_model(12)
    asked = drawn_curves(300, seed=1)
    best = asked[model.predict(asked)[0].argmin()][None]  # better than all scored curves
    assert model.predict(best)[0] < model.predict(curves)[0].min()
    assumed = model.assuming_predictions(best)
    mean, deviation = assumed.predict(best)
    np.testing.assert_allclose(assumed.expected_improvement(best), deviation / np.sqrt(2 * np.pi))
    np.testing.assert_allclose(mean, model.predict(best)[0], atol=0.05 * score(curves).std())


# Caching


def clear_caches():
    _fit.cache_clear()
    _process.cache_clear()


def test_equal_trials_are_fitted_once():
    curves, values, unseen = drawn_curves(20), score(drawn_curves(20)), drawn_curves(9, seed=1)
    clear_caches()
    first = CurveModel(curves, values).predict(unseen)
    cached = CurveModel(curves, values).predict(unseen)
    assert (_process.cache_info().misses, _process.cache_info().hits, _fit.cache_info().misses) == (1, 1, 1)
    clear_caches()
    refitted = CurveModel(curves, values).predict(unseen)
    np.testing.assert_array_equal(first, cached)
    np.testing.assert_array_equal(first, refitted)


def test_cache_is_large_enough_for_many_searches():
    searches = [(drawn_curves(15, seed), score(drawn_curves(15, seed))) for seed in range(30)]
    _fit.cache_clear()
    for _ in range(3):
        for curves, values in searches:
            CurveModel(curves, values)
    assert _fit.cache_info().misses == 30


def test_other_trials_are_fitted_again():
    curves, unseen = drawn_curves(20), drawn_curves(9, seed=1)
    values = score(curves)
    CurveModel(curves, values)
    changed = [(curves, values[::-1]), (curves[::-1], values), (curves[:10], values[:10]), (curves[:, :5], values)]
    for some, scores in changed:
        cached = CurveModel(some, scores).predict(unseen[:, : some.shape[1]])
        clear_caches()
        np.testing.assert_array_equal(CurveModel(some, scores).predict(unseen[:, : some.shape[1]]), cached)


def test_memory_layout_of_curves_does_not_matter():
    curves, unseen = drawn_curves(20), drawn_curves(9, seed=1)
    plain = CurveModel(curves, score(curves)).predict(unseen)
    strided = np.repeat(curves, 2, axis=1)[:, ::2]
    for other in (np.asfortranarray(curves), strided):
        np.testing.assert_allclose(CurveModel(other, score(curves)).predict(unseen), plain, atol=1e-12)


# Landmarks


@pytest.mark.parametrize("each", [2, LANDMARKS, 9])
def test_landmarks_are_increasing_epochs_of_the_run(each):
    for epochs in (1, 2, 3, 4, 5, 10, 20, 40, 199, 200, 10_000):
        found = landmarks(epochs, each)
        assert found.dtype == np.int64
        assert 1 <= len(found) <= 2 * each
        assert (np.diff(found) > 0).all()
        assert found[0] == min(1, epochs - 1)  # curves do not differ at epoch 0
        assert found[-1] == epochs - 1
        assert np.diff([0, *landmarks(epochs)]).max() <= epochs / 5 + 1


def test_landmarks_match_values_worked_by_hand():
    assert landmarks(1).tolist() == [0]
    assert landmarks(2).tolist() == [1]
    # 4^(k/5) = 1, 1.3, 1.7, 2.3, 3.03, 4, and 1, 1.6, 2.2, 2.8, 3.4, 4
    assert landmarks(5).tolist() == [1, 2, 3, 4]
    # 19^(k/5) = 1, 1.8, 3.2, 5.9, 10.5, 19, and 4, 7, 10, 13, 16, 19
    assert landmarks(20).tolist() == [1, 2, 3, 4, 6, 7, 10, 11, 13, 16, 19]
    # 39^(k/5) = 1, 2.1, 4.3, 9.01, 18.7, 39, and 8, 14.2, 20.4, 26.6, 32.8, 39
    assert landmarks(40).tolist() == [1, 2, 4, 8, 9, 14, 19, 20, 27, 33, 39]
    # 199^(k/5) = 1, 2.9, 8.3, 24, 69.1, 199, and 40, 71.8, 103.6, 135.4, 167.2, 199
    assert landmarks(200).tolist() == [1, 3, 8, 24, 40, 69, 72, 104, 135, 167, 199]
    assert landmarks(200, 2).tolist() == [1, 40, 199]
    assert S2ESpace().decode(np.zeros((1, 20)), 200, at=landmarks(200)).shape == (1, 11)


def test_a_model_with_offsets_models_the_differences():
    generator = np.random.default_rng(0)
    curves, values, offsets = generator.random((9, 4)), generator.random(9), generator.random(9)
    others, expected = generator.random((5, 4)), generator.random(5)
    model, differences = CurveModel(curves, values, offsets), CurveModel(curves, values - offsets)
    np.testing.assert_allclose(model.mean(others, expected), expected + differences.mean(others))
    (mean, deviation), (plain_mean, plain_deviation) = model.predict(others, expected), differences.predict(others)
    np.testing.assert_allclose(mean, expected + plain_mean)
    np.testing.assert_allclose(deviation, plain_deviation)


def test_equal_offsets_change_no_expected_improvement():
    generator = np.random.default_rng(1)
    curves, values, others, running = (generator.random(shape) for shape in ((9, 4), 9, (5, 4), (2, 4)))
    model, plain = CurveModel(curves, values, np.full(9, 0.3)), CurveModel(curves, values)
    improvement = model.expected_improvement(others, np.full(5, 0.3))
    np.testing.assert_allclose(improvement, plain.expected_improvement(others), rtol=1e-6)
    assumed = model.assuming_predictions(running, np.full(2, 0.3)).expected_improvement(others, np.full(5, 0.3))
    np.testing.assert_allclose(assumed, plain.assuming_predictions(running).expected_improvement(others), rtol=1e-6)
