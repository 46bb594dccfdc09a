"""The model of scores over curves: it learns what is smooth, knows what it does not know, and hopes accordingly."""

from __future__ import annotations

import numpy as np
import pytest

from s2e.spaces import S2ESpace
from s2e.surrogate import LANDMARKS, CurveModel, landmarks

EPOCHS = 200
TARGET = np.linspace(0.9, 0.5, len(landmarks(EPOCHS)))


def drawn_curves(count, seed=0):
    generator = np.random.default_rng(seed)
    space = S2ESpace()
    return space.decode(generator.random((count, space.dimension)), EPOCHS, at=landmarks(EPOCHS))


def score(curves):
    """Smaller is better: distance to a curve nobody knows, early epochs counting more."""
    return ((curves - TARGET) ** 2 @ np.linspace(2, 0.5, len(TARGET))) + 0.1 * np.sin(3 * curves[:, 0])


def fitted(count=50, noise=0.0):
    curves = drawn_curves(count)
    return CurveModel(curves, score(curves) + noise * np.random.default_rng(9).normal(size=count)), curves


def test_a_smooth_function_of_the_curve_is_recovered():
    model, _ = fitted()
    unseen = drawn_curves(300, seed=1)
    mean, deviation = model.predict(unseen)
    assert mean.shape == deviation.shape == (300,)
    assert np.corrcoef(mean, score(unseen))[0, 1] > 0.98
    assert np.abs(mean - score(unseen)).mean() < 0.1 * score(unseen).std()


def test_the_deviation_tells_how_far_off_a_prediction_may_be():
    model, _ = fitted(noise=0.02)
    unseen = drawn_curves(300, seed=1)
    mean, deviation = model.predict(unseen)
    within = np.abs(score(unseen) - mean) < 2.5 * deviation
    assert within.mean() > 0.9
    assert np.median(deviation) < 0.5 * score(unseen).std()


def test_scores_that_are_only_noise_are_averaged_not_believed():
    curves = drawn_curves(40)
    noise = np.random.default_rng(3).normal(size=40)
    mean, _ = CurveModel(curves, noise).predict(curves)
    assert mean.std() < 0.7 * noise.std()


def test_another_unit_and_another_zero_of_the_scores_change_nothing_else():
    curves, unseen = drawn_curves(30), drawn_curves(20, seed=1)
    plain, scaled = (CurveModel(curves, a * score(curves) + b) for a, b in ((1.0, 0.0), (100.0, -7.0)))
    (mean, deviation), (scaled_mean, scaled_deviation) = plain.predict(unseen), scaled.predict(unseen)
    np.testing.assert_allclose(scaled_mean, 100 * mean - 7, rtol=1e-3)
    np.testing.assert_allclose(scaled_deviation, 100 * deviation, rtol=1e-2)
    assert plain.expected_improvement(unseen).argmax() == scaled.expected_improvement(unseen).argmax()


def test_equal_arguments_make_equal_models():
    first, again = (fitted(20)[0].predict(drawn_curves(10, seed=1)) for _ in range(2))
    np.testing.assert_array_equal(first, again)


def test_expected_improvement_equals_a_monte_carlo_estimate():
    model, curves = fitted(25, noise=0.05)
    unseen = drawn_curves(40, seed=1)
    best = model.predict(curves)[0].min()
    mean, deviation = model.predict(unseen)
    draws = mean + deviation * np.random.default_rng(0).normal(size=(100_000, 1))
    estimate = np.maximum(best - draws, 0)
    error = estimate.std(axis=0) / np.sqrt(len(draws))
    assert (np.abs(model.expected_improvement(unseen) - estimate.mean(axis=0)) < 5 * error + 1e-5).all()


def test_improvement_is_expected_nowhere_where_the_model_is_sure_of_worse():
    model, curves = fitted()
    improvement = model.expected_improvement(curves)
    told = score(curves)
    assert (improvement >= -1e-12).all()
    assert improvement[told.argmax()] < 1e-6 * told.std()
    unseen = drawn_curves(300, seed=1)
    hoped = model.expected_improvement(unseen)
    better = score(unseen) < np.quantile(score(unseen), 0.2)
    assert hoped[better].mean() > 10 * hoped[~better].mean()


def test_improvement_is_measured_against_the_best_mean_not_a_lucky_score():
    curves = np.repeat(drawn_curves(6), 6, axis=0)  # every curve scored six times
    values = score(curves) + 0.01 * np.random.default_rng(0).normal(size=len(curves))
    lucky = values.copy()
    lucky[score(curves).argmin()] -= 0.2
    model = CurveModel(curves, lucky)
    mean, deviation = model.predict(curves)
    assert lucky.min() < mean.min() - 0.05
    best = mean.argmin()
    height = deviation[best] / np.sqrt(2 * np.pi)  # what is expected where the mean is the target itself
    np.testing.assert_allclose(model.expected_improvement(curves)[best], height)


def test_believed_curves_lose_their_deviation_and_hardly_move_the_means():
    model, curves = fitted(10)
    asked, unseen = drawn_curves(3, seed=1), drawn_curves(100, seed=2)
    believed = model.given(asked)
    before, after = model.predict(asked), believed.predict(asked)
    assert (after[1] < 0.7 * before[1]).all()
    spread = score(curves).std()
    np.testing.assert_allclose(after[0], before[0], atol=0.02 * spread)
    np.testing.assert_allclose(believed.predict(unseen)[0], model.predict(unseen)[0], atol=0.1 * spread)
    assert (believed.expected_improvement(asked) < model.expected_improvement(asked)).all()


def test_believed_curves_lose_their_deviation_where_scores_are_noisy_too():
    model, _ = fitted(30, noise=0.3)
    asked = drawn_curves(3, seed=1)
    assert (model.given(asked).predict(asked)[1] < 0.85 * model.predict(asked)[1]).all()


def test_believing_leaves_the_model_it_started_from_alone():
    model, _ = fitted(15)
    unseen = drawn_curves(10, seed=1)
    before = model.predict(unseen)
    model.given(unseen).given(drawn_curves(2, seed=3))
    np.testing.assert_array_equal(model.predict(unseen), before)


def test_believing_twice_is_believing_both_at_once():
    model, _ = fitted(15)
    asked, unseen = drawn_curves(2, seed=1), drawn_curves(10, seed=2)
    one_by_one = model.given(asked[:1]).given(asked[1:])
    np.testing.assert_allclose(one_by_one.predict(unseen)[0], model.given(asked).predict(unseen)[0], atol=1e-3)


@pytest.mark.parametrize("values", [np.zeros(5), np.full(5, 0.3)])
def test_equal_scores_are_no_reason_to_fail(values):
    model = CurveModel(drawn_curves(5), values)
    mean, deviation = model.predict(drawn_curves(4, seed=1))
    np.testing.assert_allclose(mean, values[0], atol=1e-6)
    assert np.isfinite(deviation).all()
    assert np.isfinite(model.expected_improvement(drawn_curves(4, seed=1))).all()


def test_equal_curves_are_no_reason_to_fail():
    curves = np.ones((4, 1))  # what T = 1 makes of every point
    model = CurveModel(curves, np.array([1.0, 2.0, 3.0, 4.0]))
    np.testing.assert_allclose(model.predict(curves[:1])[0], 2.5, atol=1e-3)
    assert np.isfinite(model.given(curves[:2]).expected_improvement(curves)).all()


@pytest.mark.parametrize("epochs", [1, 2, 3, 5, 20, 200, 10_000])
def test_landmarks_are_different_epochs_of_the_run_in_their_order(epochs):
    found = landmarks(epochs)
    assert found.dtype == np.int64
    assert 1 <= len(found) <= LANDMARKS
    assert (np.diff(found) > 0).all()
    assert found[0] >= 0
    assert found[-1] == epochs - 1


def test_landmarks_match_values_worked_by_hand_and_are_dense_early():
    assert landmarks(1).tolist() == [0]
    assert landmarks(2).tolist() == [1]
    assert landmarks(5).tolist() == [1, 2, 3, 4]
    assert landmarks(200).tolist() == [1, 2, 3, 6, 11, 19, 34, 61, 111, 199]  # powers of 199^(1/9) = 1.80
    assert S2ESpace().decode(np.zeros((1, 20)), 200, at=landmarks(200)).shape == (1, 10)
