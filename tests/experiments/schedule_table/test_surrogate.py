"""The model of a schedule table: a forest like scikit-learn's own, the luck of a training, what it was not told."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection
from dataclasses import replace

import numpy as np
import optuna
import pytest
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesRegressor

from s2e.engine.task import VALIDATION, EpochFinished, Member
from s2e.errors import InvalidInput
from s2e.experiments.schedule_table.surrogate import (
    FOLDS,
    GOOD,
    LOOKED_AT,
    SHARE_OF_EPOCHS,
    SMALLEST_LEAF,
    TREES,
    Forest,
    TableSurrogate,
)
from s2e.experiments.schedule_table.table import ScheduleTable, drawn, published, score
from s2e.samplers.curve_model import landmarks
from s2e.schedules.spaces import space
from s2e.studies import best_trial, run_generations
from s2e.studies.plan import Search, SearchPlan

Floats = NDArray[np.float64]

NOISE, EPOCHS = "pair:0.45", 14
FAMILY = space("s2e")
AT = landmarks(EPOCHS, LOOKED_AT)


def smooth(points: Floats) -> Floats:
    """A made-up error between 0.2 and 0.6 that the curve decides."""
    return np.asarray(0.2 + 0.4 * FAMILY.decode(points, EPOCHS)[:, 1:].mean(axis=1) ** 2)


def table(
    error: Callable[[Floats], Floats] = smooth,
    *,
    draws: int = 150,
    spread: Callable[[Floats], Floats] | float = 0.0,
    again: int = 20,
    times: int = 2,
    found: int = 12,
    seed: int = 0,
) -> ScheduleTable:
    """A table with a given expected error, and luck of a given spread in every training, the same at every epoch."""
    generator = np.random.default_rng(seed)
    rising = np.linspace(-0.1, 0.0, EPOCHS)

    def accuracy(errors: Floats) -> Floats:
        deviation = spread(errors) if callable(spread) else spread
        return np.asarray(1 - (errors + deviation * generator.normal(size=errors.shape))[..., None] + rising)

    points, more = drawn(draws, FAMILY.dimension, seed), drawn(found, FAMILY.dimension, seed + 1)
    errors = error(points)
    repeated = np.repeat(errors[:again, None], times, axis=1)
    return ScheduleTable(
        "s2e",
        ("symmetric:0.2", NOISE),
        points,
        np.stack([np.full((draws, EPOCHS), 0.5), accuracy(errors)]),
        np.stack([np.full((again, times, EPOCHS), 0.5), accuracy(repeated)]),
        np.stack([np.zeros_like(more), more]),
        np.stack([np.full((found, EPOCHS), 0.5), accuracy(error(more))]),
        {"judged": 1000},
    )


def schedules(count: int, seed: int = 77) -> Floats:
    return FAMILY.decode(np.random.default_rng(seed).random((count, FAMILY.dimension)), EPOCHS)


def members(curves: Floats, first_seed: int = 0) -> list[Member]:
    return [Member(curve, first_seed + place) for place, curve in enumerate(curves)]


def never(progress: EpochFinished) -> Collection[int]:
    return ()


def trees(curves: Floats, errors: Floats) -> ExtraTreesRegressor:
    forest = ExtraTreesRegressor(TREES, max_features=SHARE_OF_EPOCHS, min_samples_leaf=SMALLEST_LEAF, random_state=0)
    return forest.fit(curves, errors)


# --------------------------------------------------------------------------------------------------------- the forest


@pytest.fixture(scope="module")
def told() -> tuple[Floats, Floats]:
    points = drawn(120, FAMILY.dimension, 4)
    return FAMILY.decode(points, EPOCHS, at=AT), smooth(points)


def test_weights_are_shares_of_the_table(told: tuple[Floats, Floats]) -> None:
    weights = Forest(*told).weights(schedules(30)[:, AT])
    assert weights.shape == (30, 120)
    assert weights.min() >= 0
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-12)


def test_weighted_errors_are_what_scikit_learn_predicts(told: tuple[Floats, Floats]) -> None:
    for asked in (schedules(30)[:, AT], told[0], told[0][:1]):
        predicted = trees(*told).predict(asked)
        np.testing.assert_allclose(Forest(*told).weights(asked) @ told[1], predicted, rtol=1e-10)


def test_weights_count_how_often_two_schedules_share_a_leaf(told: tuple[Floats, Floats]) -> None:
    asked = schedules(3)[:, AT]
    expected = np.zeros((3, 120))
    for tree in trees(*told).estimators_:
        leaf_of = tree.apply(told[0].astype(np.float32)).tolist()
        for row, leaf in enumerate(tree.apply(asked.astype(np.float32)).tolist()):
            alike = [draw for draw in range(120) if leaf_of[draw] == leaf]
            for draw in alike:
                expected[row, draw] += 1 / len(alike) / TREES
    np.testing.assert_allclose(Forest(*told).weights(asked), expected, rtol=1e-12)


def test_a_draw_has_the_largest_weight_for_itself_and_never_all_of_it(told: tuple[Floats, Floats]) -> None:
    weights = Forest(*told).weights(told[0])  # (n, n)
    own = np.diag(weights)
    assert (own >= weights.max(axis=1) - 1e-12).all()
    assert own.max() <= 1 / SMALLEST_LEAF + 1e-12
    assert own.min() > 1 / 120
    np.testing.assert_allclose(weights, weights.T, rtol=1e-12)  # sharing a leaf is mutual


def test_equal_errors_make_one_leaf_of_all_draws(told: tuple[Floats, Floats]) -> None:
    weights = Forest(told[0], np.full(120, 0.3)).weights(schedules(4)[:, AT])
    np.testing.assert_allclose(weights, 1 / 120, rtol=1e-12)


# ---------------------------------------------------------------------------------------------------- what to expect


def test_expected_errors_are_the_forests_over_draws_and_found_points() -> None:
    given = table(spread=0.02)
    points, accuracy = given.trained(NOISE)
    forest = trees(FAMILY.decode(points, EPOCHS, at=AT), score(accuracy))
    asked = schedules(25)
    np.testing.assert_allclose(TableSurrogate(given, NOISE).error(asked), forest.predict(asked[:, AT]), rtol=1e-10)


def test_what_is_expected_never_leaves_what_was_seen_at_that_epoch() -> None:
    given = table(spread=0.1)
    seen = given.trained(NOISE)[1]  # (n, T)
    expected = TableSurrogate(given, NOISE).accuracy(
        np.concatenate([schedules(200), np.ones((1, EPOCHS)), np.zeros((1, EPOCHS))])
    )
    assert expected.shape == (202, EPOCHS)
    assert (expected >= seen.min(axis=0) - 1e-12).all()
    assert (expected <= seen.max(axis=0) + 1e-12).all()


def test_each_noise_has_its_own_model() -> None:
    np.testing.assert_allclose(TableSurrogate(table(), "symmetric:0.2").error(schedules(5)), 0.5)
    with pytest.raises(InvalidInput, match=r"but got 'pair:0\.2'"):
        TableSurrogate(table(), "pair:0.2")


@pytest.mark.parametrize(("again", "times"), [(0, 2), (20, 0)])
def test_a_table_without_repeats_is_refused_as_it_says_nothing_about_luck(again: int, times: int) -> None:
    with pytest.raises(InvalidInput, match="trained several times"):
        TableSurrogate(table(again=again, times=times), NOISE)


# ------------------------------------------------------------------------------------------------------ in for training


def test_without_luck_a_training_is_what_is_expected() -> None:
    model = TableSurrogate(table(), NOISE)
    asked = schedules(4)
    curves = model.train(members(asked), never)
    np.testing.assert_allclose(curves.accuracy[VALIDATION], model.accuracy(asked), rtol=1e-12)
    np.testing.assert_allclose(1 - curves.last(VALIDATION), model.error(asked), rtol=1e-12)
    assert curves.epochs.tolist() == [EPOCHS] * 4
    assert not curves.diverged.any()


def test_the_luck_of_a_member_is_that_of_its_seed_alone() -> None:
    model = TableSurrogate(table(spread=0.02), NOISE)
    one = schedules(1)[0]
    together = model.train([Member(one, 3), Member(one, 8), Member(one, 3)], never).accuracy[VALIDATION]
    alone = model.train([Member(one, 8)], never).accuracy[VALIDATION]
    np.testing.assert_array_equal(together[0], together[2])
    np.testing.assert_allclose(together[1], alone[0], rtol=1e-12)
    assert (together[0] != together[1]).all()
    luck = together - model.accuracy(one[None])
    np.testing.assert_allclose(luck, luck[:, :1].repeat(EPOCHS, axis=1), atol=1e-12)  # the same at every epoch


def test_accuracies_stay_between_nothing_and_everything() -> None:
    accuracy = TableSurrogate(table(spread=1.0), NOISE).train(members(schedules(1).repeat(200, axis=0)), never)
    assert accuracy.accuracy[VALIDATION].min() == 0
    assert accuracy.accuracy[VALIDATION].max() == 1


def test_the_size_of_luck_is_that_of_the_repeats() -> None:
    """With few repeats each estimate of a variance is far off and lopsided; their median must not mislead."""
    model = TableSurrogate(table(spread=0.01, draws=1600, again=1600, times=2), NOISE)
    asked = schedules(2000)
    luck = (1 - model.train(members(asked), never).last(VALIDATION)) - model.error(asked)
    assert np.std(luck) == pytest.approx(0.01, rel=0.1)
    assert np.mean(luck) == pytest.approx(0, abs=5 * 0.01 / np.sqrt(2000))


def test_luck_is_as_large_as_among_schedules_of_about_this_error() -> None:
    """The worse half is ten times as chancy as the better one."""

    def two_levels(points: Floats) -> Floats:
        return np.where(smooth(points) < 0.35, 0.2, 0.5)

    def chancier(errors: Floats) -> Floats:
        return np.where(errors < 0.35, 0.002, 0.02)

    given = table(two_levels, spread=chancier, draws=300, again=150, times=20)
    model = TableSurrogate(given, NOISE)
    expected = model.error(FAMILY.decode(given.points, EPOCHS))
    for place, spread in ((int(expected.argmin()), 0.002), (int(expected.argmax()), 0.02)):
        asked = FAMILY.decode(given.points[[place]], EPOCHS).repeat(1500, axis=0)
        lucky = 1 - model.train(members(asked), never).last(VALIDATION)
        assert np.std(lucky) == pytest.approx(spread, rel=0.15)


def test_a_rare_disaster_among_the_repeats_is_not_taken_for_luck() -> None:
    given = table(spread=0.01, draws=100, again=100, times=10)
    again = given.again.copy()
    again[1, ::8, 0] -= 0.3
    asked = schedules(1).repeat(1500, axis=0)
    lucky = 1 - TableSurrogate(replace(given, again=again), NOISE).train(members(asked), never).last(VALIDATION)
    assert np.std(lucky) < 0.015


def test_members_that_are_stopped_train_no_further() -> None:
    model = TableSurrogate(table(), NOISE)
    asked = schedules(3)
    seen: list[tuple[int, list[int]]] = []

    def stop(progress: EpochFinished) -> list[int]:
        assert (progress.epochs, progress.indices, progress.population_size) == (EPOCHS, (0, 1, 2), 3)
        seen.append((progress.epoch, progress.curves.epochs.tolist()))
        known = np.isfinite(progress.curves.accuracy[VALIDATION]).sum(axis=1)
        assert known.tolist() == progress.curves.epochs.tolist()
        return {3: [1], 5: [0]}.get(progress.epoch, [])

    curves = model.train(members(asked), stop)
    assert curves.epochs.tolist() == [5, 3, EPOCHS]
    assert seen == [(epoch, [min(epoch, 5), min(epoch, 3), epoch]) for epoch in range(1, EPOCHS + 1)]
    trained = np.arange(EPOCHS) < curves.epochs[:, None]  # (P, T)
    expected = np.where(trained, model.accuracy(asked), np.nan)
    np.testing.assert_allclose(curves.accuracy[VALIDATION], expected, rtol=1e-12)


@pytest.mark.parametrize("sampler", ["random", "hyperband"])
def test_a_search_takes_it_for_a_training(sampler: str) -> None:
    model = TableSurrogate(table(), NOISE)
    plan = SearchPlan.named("s2e", sampler, epochs=EPOCHS, trials=6, generation_size=3, learning_rate=1e-3, seed=1)
    study = optuna.create_study(direction="minimize")
    run_generations(model.train, EPOCHS, [Search(plan, study)])
    found = best_trial(study, plan.space, EPOCHS)
    assert 1 - found.validation_accuracy == pytest.approx(float(model.error(found.schedule[None])[0]))


# ----------------------------------------------------------------------------------------------- what it was not told


def test_a_smooth_error_without_luck_is_predicted_nearly_perfectly() -> None:
    checked = TableSurrogate(table(draws=600), NOISE).held_out()
    assert checked["correlation"] > 0.97
    assert checked["ceiling"] == pytest.approx(1)


def test_pure_luck_is_not_predicted() -> None:
    checked = TableSurrogate(
        table(lambda points: np.full(len(points), 0.4), spread=0.05, draws=1000, again=300), NOISE
    ).held_out()
    assert abs(checked["correlation"]) < 0.12  # about four standard errors
    assert checked["ceiling"] < 0.35


def test_held_out_figures_are_those_worked_out_by_hand() -> None:
    given = table(spread=0.03, draws=83)
    points, accuracy = given.trained(NOISE)
    curves, scores = FAMILY.decode(points, EPOCHS, at=AT), score(accuracy)
    forests = [trees(*_without(fold, curves, scores)) for fold in range(FOLDS)]
    by_hand = [float(forests[place % FOLDS].predict(curves[[place]])[0]) for place in range(83)]
    errors = given.errors(NOISE).tolist()
    good = [place for place in range(83) if errors[place] <= np.quantile(errors, GOOD)]
    luck = statistics.mean(statistics.variance(row) for row in given.errors_again(NOISE).tolist())
    misses = [(by_hand[place] - errors[place]) ** 2 for place in good]
    expected = {
        "correlation": statistics.correlation(by_hand, errors),
        "correlation_among_good": statistics.correlation([by_hand[i] for i in good], [errors[i] for i in good]),
        "ceiling": (1 - luck / statistics.pvariance(errors)) ** 0.5,
        "rmse_among_good": statistics.mean(misses) ** 0.5,
    }
    assert TableSurrogate(given, NOISE).held_out() == pytest.approx(expected)


def _without(fold: int, curves: Floats, scores: Floats) -> tuple[Floats, Floats]:
    others = [place for place in range(len(scores)) if place % FOLDS != fold]
    return curves[others], scores[others]


def test_the_ceiling_is_the_correlation_of_the_truth_with_what_came_of_it() -> None:
    given = table(spread=0.03, draws=2000, again=400, times=4)
    truth = np.corrcoef(smooth(given.points), given.errors(NOISE))[0, 1]
    assert TableSurrogate(given, NOISE).held_out()["ceiling"] == pytest.approx(truth, abs=0.02)


@pytest.mark.parametrize("noise", ["symmetric:0.2", "symmetric:0.5", "pair:0.45"])
def test_the_published_table_predicts_draws_it_was_not_told(noise: str) -> None:
    checked = TableSurrogate(ScheduleTable.read(published()), noise).held_out()
    assert 0.95 < checked["correlation"] <= checked["ceiling"] + 0.01
