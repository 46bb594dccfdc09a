"""The model of scores over curves: it learns what is smooth, knows what it does not know, and hopes accordingly."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from s2e.samplers.curve_model import LANDMARKS, PRIOR, CurveModel, _fitted, landmarks
from s2e.samplers.gaussian_process import JITTER
from s2e.samplers.gaussian_process import fitted as most_probable
from s2e.schedules.spaces import S2ESpace

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


@pytest.mark.parametrize("values", [np.zeros(5), np.full(5, 0.3), np.full(5, 1e9)])
def test_equal_scores_are_no_reason_to_fail(values):
    model = CurveModel(drawn_curves(5), values)
    mean, deviation = model.predict(drawn_curves(4, seed=1))
    np.testing.assert_allclose(mean, values[0], rtol=1e-6)
    assert np.isfinite(deviation).all()
    assert np.isfinite(model.expected_improvement(drawn_curves(4, seed=1))).all()


@pytest.mark.parametrize("count", [3, 6, 12])
def test_equal_scores_are_equal_whatever_their_mean_rounds_to(count):
    curves, unseen = drawn_curves(count), drawn_curves(30, seed=1)
    plain, rounded = (CurveModel(curves, np.full(count, value)) for value in (0.0, 0.1))
    np.testing.assert_allclose(rounded.expected_improvement(unseen), plain.expected_improvement(unseen), rtol=1e-6)


def test_equal_curves_are_no_reason_to_fail():
    curves = np.ones((4, 1))  # what T = 1 makes of every point
    model = CurveModel(curves, np.array([1.0, 2.0, 3.0, 4.0]))
    np.testing.assert_allclose(model.predict(curves[:1])[0], 2.5, atol=1e-3)
    assert np.isfinite(model.given(curves[:2]).expected_improvement(curves)).all()


def test_the_model_is_a_gaussian_process_over_standardised_scores_and_its_beliefs_are_observations():
    """scikit-learn's, with the hyperparameters that are most probable for the scores that were told."""
    curves, asked, unseen = drawn_curves(25), drawn_curves(4, seed=1), drawn_curves(40, seed=2)
    values = score(curves) + 0.05 * np.random.default_rng(0).normal(size=25)
    middle, spread = values.mean(), values.std()
    how = most_probable(curves, (values - middle) / spread, PRIOR)

    def oracle(curves, values):
        exact = ConstantKernel(how.scale**2) * Matern(how.lengths, nu=2.5)
        known = GaussianProcessRegressor(exact, alpha=how.noise**2 + JITTER * how.scale**2, optimizer=None)
        return known.fit(curves, (values - middle) / spread)

    told = oracle(curves, values)
    believed = oracle(np.concatenate([curves, asked]), np.append(values, middle + spread * told.predict(asked)))
    model = CurveModel(curves, values)
    for ours, theirs in ((model, told), (model.given(asked), believed)):
        mean, deviation = theirs.predict(unseen, return_std=True)
        np.testing.assert_allclose(ours.predict(unseen)[0], middle + spread * mean, atol=1e-6 * spread)
        np.testing.assert_allclose(ours.predict(unseen)[1], spread * deviation, atol=1e-6 * spread)


def test_improvement_is_measured_against_believed_curves_too():
    model, curves = fitted(12)
    asked = drawn_curves(300, seed=1)
    hoped = asked[model.predict(asked)[0].argmin()][None]  # better than any that was told
    assert model.predict(hoped)[0] < model.predict(curves)[0].min()
    believed = model.given(hoped)
    mean, deviation = believed.predict(hoped)
    np.testing.assert_allclose(believed.expected_improvement(hoped), deviation / np.sqrt(2 * np.pi))
    np.testing.assert_allclose(mean, model.predict(hoped)[0], atol=0.05 * score(curves).std())


# ------------------------------------------------------------------------------------------------ remembering what fits


def test_models_of_the_same_trials_are_fitted_once_and_no_differently_from_anew():
    curves, values, unseen = drawn_curves(20), score(drawn_curves(20)), drawn_curves(9, seed=1)
    _fitted.cache_clear()
    first = CurveModel(curves, values).predict(unseen)
    remembered = CurveModel(curves, values).predict(unseen)
    assert (_fitted.cache_info().misses, _fitted.cache_info().hits) == (1, 1)
    _fitted.cache_clear()
    anew = CurveModel(curves, values).predict(unseen)
    np.testing.assert_array_equal(first, remembered)
    np.testing.assert_array_equal(first, anew)


def test_searches_that_take_turns_find_their_models_again():
    searches = [(drawn_curves(15, seed), score(drawn_curves(15, seed))) for seed in range(30)]
    _fitted.cache_clear()
    for _ in range(3):
        for curves, values in searches:
            CurveModel(curves, values)
    assert _fitted.cache_info().misses == 30


def test_other_trials_are_not_taken_for_those_remembered():
    curves, unseen = drawn_curves(20), drawn_curves(9, seed=1)
    values = score(curves)
    CurveModel(curves, values)
    changed = [(curves, values[::-1]), (curves[::-1], values), (curves[:10], values[:10]), (curves[:, :5], values)]
    for some, scores in changed:
        remembering = CurveModel(some, scores).predict(unseen[:, : some.shape[1]])
        _fitted.cache_clear()
        np.testing.assert_array_equal(CurveModel(some, scores).predict(unseen[:, : some.shape[1]]), remembering)


def test_curves_that_lie_otherwise_in_memory_make_the_same_model():
    curves, unseen = drawn_curves(20), drawn_curves(9, seed=1)
    plain = CurveModel(curves, score(curves)).predict(unseen)
    strided = np.repeat(curves, 2, axis=1)[:, ::2]
    for other in (np.asfortranarray(curves), strided):
        np.testing.assert_allclose(CurveModel(other, score(curves)).predict(unseen), plain, atol=1e-12)


# ------------------------------------------------------------------------------------------------------------ landmarks


@pytest.mark.parametrize("each", [2, LANDMARKS, 9])
@pytest.mark.parametrize("epochs", [1, 2, 3, 4, 5, 10, 20, 40, 199, 200, 10_000])
def test_landmarks_are_different_epochs_of_the_run_in_their_order(epochs, each):
    found = landmarks(epochs, each)
    assert found.dtype == np.int64
    assert 1 <= len(found) <= 2 * each
    assert (np.diff(found) > 0).all()
    assert found[0] == min(1, epochs - 1)  # nothing is to be seen at epoch 0 but where it is the only one
    assert found[-1] == epochs - 1


@pytest.mark.parametrize("epochs", [1, 2, 3, 5, 20, 40, 200, 1000])
def test_landmarks_leave_no_gap_wider_than_a_fifth_of_the_run(epochs):
    gaps = np.diff([0, *landmarks(epochs)])
    assert gaps.max() <= epochs / 5 + 1


def test_landmarks_match_values_worked_by_hand_and_are_dense_early():
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
