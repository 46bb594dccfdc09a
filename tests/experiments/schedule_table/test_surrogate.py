"""The surrogate of a schedule table: forest weights, expected errors, noise of trainings, held-out accuracy."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection
from dataclasses import replace

import numpy as np
import optuna
import pytest
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesRegressor

from s2e.engine import VALIDATION, EpochFinished, Member
from s2e.errors import InvalidInput
from s2e.experiments.schedule_table import surrogate
from s2e.experiments.schedule_table.surrogate import (
    FOLDS,
    GOOD,
    LANDMARKS,
    MAX_FEATURES,
    MIN_SAMPLES_LEAF,
    Forest,
    TableSurrogate,
)
from s2e.experiments.schedule_table.table import PUBLISHED, ScheduleTable, draw_points, last_error
from s2e.samplers import landmarks
from s2e.schedules import space
from s2e.seeds import derive
from s2e.studies import Search, SearchPlan, best_trial, run_generations

Floats = NDArray[np.float64]

NOISE, EPOCHS = "pair:0.45", 14
SPACE = space("s2e")
AT = landmarks(EPOCHS, LANDMARKS)
TREES, ALL_TREES = 20, surrogate.TREES


@pytest.fixture(autouse=True)
def _fewer_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surrogate, "TREES", TREES)


def smooth_error(points: Floats) -> Floats:
    """A synthetic error between 0.2 and 0.6 that depends on the curve."""
    return np.asarray(0.2 + 0.4 * SPACE.decode(points, EPOCHS)[:, 1:].mean(axis=1) ** 2)


def make_table(
    error: Callable[[Floats], Floats] = smooth_error,
    *,
    draws: int = 150,
    deviation: Callable[[Floats], Floats] | float = 0.0,
    again: int = 20,
    times: int = 2,
) -> ScheduleTable:
    """A table with a given expected error, and noise of a given deviation in every training, equal at every epoch."""
    generator = np.random.default_rng(0)
    rising = np.linspace(-0.1, 0.0, EPOCHS)

    def accuracy(errors: Floats) -> Floats:
        scale = deviation(errors) if callable(deviation) else deviation
        return np.asarray(1 - (errors + scale * generator.normal(size=errors.shape))[..., None] + rising)

    points, proposed = draw_points(draws, SPACE.dimension, 0), draw_points(12, SPACE.dimension, 1)
    errors = error(points)
    repeated = np.repeat(errors[:again, None], times, axis=1)
    return ScheduleTable(
        "s2e",
        ("symmetric:0.2", NOISE),
        points,
        np.stack([np.full((draws, EPOCHS), 0.5), accuracy(errors)]),
        np.stack([np.full((again, times, EPOCHS), 0.5), accuracy(repeated)]),
        np.stack([np.zeros_like(proposed), proposed]),
        np.stack([np.full((12, EPOCHS), 0.5), accuracy(error(proposed))]),
        {"judged": 1000},
    )


def random_schedules(count: int) -> Floats:
    return SPACE.decode(np.random.default_rng(77).random((count, SPACE.dimension)), EPOCHS)


def train(model: TableSurrogate, schedules: Floats) -> Floats:
    """Return the errors of one member for each schedule, with seeds 0, 1, …"""
    members = [Member(schedule, seed) for seed, schedule in enumerate(schedules)]
    return np.asarray(1 - model.train(members, never).last(VALIDATION))


def never(progress: EpochFinished) -> Collection[int]:
    return ()


def fitted_trees(schedules: Floats, errors: Floats) -> ExtraTreesRegressor:
    trees = ExtraTreesRegressor(TREES, max_features=MAX_FEATURES, min_samples_leaf=MIN_SAMPLES_LEAF, random_state=0)
    return trees.fit(schedules, errors)


# --------------------------------------------------------------------------------------------------------------- forest


@pytest.fixture(scope="module")
def fitted() -> tuple[Floats, Floats]:
    points = draw_points(120, SPACE.dimension, 4)
    return SPACE.decode(points, EPOCHS, at=AT), smooth_error(points)


def test_weighted_errors_equal_scikit_learns_predictions(fitted: tuple[Floats, Floats]) -> None:
    forest, trees = Forest(*fitted), fitted_trees(*fitted)
    for schedules in (random_schedules(30)[:, AT], fitted[0], fitted[0][:1]):
        weights = forest.weights(schedules)
        assert weights.min() >= 0
        np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-12)
        np.testing.assert_allclose(weights @ fitted[1], trees.predict(schedules), rtol=1e-10)


def test_weights_count_shared_leaves(fitted: tuple[Floats, Floats]) -> None:
    schedules = random_schedules(3)[:, AT]
    expected = np.zeros((3, 120))
    for tree in fitted_trees(*fitted).estimators_:
        leaf_of = tree.apply(fitted[0].astype(np.float32))
        for row, leaf in enumerate(tree.apply(schedules.astype(np.float32))):
            shared = leaf_of == leaf
            expected[row] += shared / shared.sum() / TREES
    np.testing.assert_allclose(Forest(*fitted).weights(schedules), expected, rtol=1e-12)


def test_equal_errors_give_equal_weights(fitted: tuple[Floats, Floats]) -> None:
    weights = Forest(fitted[0], np.full(120, 0.3)).weights(random_schedules(4)[:, AT])
    np.testing.assert_allclose(weights, 1 / 120, rtol=1e-12)


# --------------------------------------------------------------------------------------------------------- expectations


def test_expected_errors_are_the_forests_over_draws_and_proposals() -> None:
    table = make_table(deviation=0.02)
    points, accuracy = table.trained(NOISE)
    trees = fitted_trees(SPACE.decode(points, EPOCHS, at=AT), last_error(accuracy))
    schedules = random_schedules(25)
    np.testing.assert_allclose(
        TableSurrogate(table, NOISE).error(schedules), trees.predict(schedules[:, AT]), rtol=1e-10
    )


def test_expectations_stay_within_the_table_at_every_epoch() -> None:
    table = make_table(deviation=0.1)
    trained = table.trained(NOISE)[1]  # (n, T)
    schedules = np.concatenate([random_schedules(200), np.ones((1, EPOCHS)), np.zeros((1, EPOCHS))])
    expected = TableSurrogate(table, NOISE).accuracy(schedules)
    assert expected.shape == (202, EPOCHS)
    assert (expected >= trained.min(axis=0) - 1e-12).all()
    assert (expected <= trained.max(axis=0) + 1e-12).all()


def test_noise_settings_have_separate_surrogates() -> None:
    np.testing.assert_allclose(TableSurrogate(make_table(), "symmetric:0.2").error(random_schedules(5)), 0.5)
    with pytest.raises(InvalidInput, match=r"but got 'pair:0\.2'"):
        TableSurrogate(make_table(), "pair:0.2")


def test_table_without_repeats_is_refused() -> None:
    for table in (make_table(again=0), make_table(times=0)):
        with pytest.raises(InvalidInput, match="trained several times"):
            TableSurrogate(table, NOISE)


# ------------------------------------------------------------------------------------------------------------ trainings


def test_training_without_noise_is_the_expectation() -> None:
    model, schedules = TableSurrogate(make_table(), NOISE), random_schedules(4)
    curves = model.train([Member(schedule, 0) for schedule in schedules], never)
    np.testing.assert_allclose(curves.accuracy[VALIDATION], model.accuracy(schedules), rtol=1e-12)
    assert curves.epochs.tolist() == [EPOCHS] * 4
    assert not curves.diverged.any()


def test_noise_depends_on_the_seed_alone_and_is_equal_at_every_epoch() -> None:
    model, schedule = TableSurrogate(make_table(deviation=0.02), NOISE), random_schedules(1)[0]
    together = model.train([Member(schedule, 3), Member(schedule, 8), Member(schedule, 3)], never)
    accuracy = together.accuracy[VALIDATION]
    alone = model.train([Member(schedule, 8)], never).accuracy[VALIDATION]
    np.testing.assert_array_equal(accuracy[0], accuracy[2])
    np.testing.assert_array_equal(accuracy[1], alone[0])
    assert (accuracy[0] != accuracy[1]).all()
    noise = accuracy - model.accuracy(schedule[None])
    np.testing.assert_allclose(noise, noise[:, :1].repeat(EPOCHS, axis=1), atol=1e-12)


def test_accuracies_are_clipped_to_the_unit_interval() -> None:
    errors = train(TableSurrogate(make_table(deviation=1.0), NOISE), random_schedules(1).repeat(200, axis=0))
    assert (errors.min(), errors.max()) == (0, 1)


def test_noise_has_the_deviation_of_the_repeats() -> None:
    """The median of variances from three trainings is corrected for its bias."""
    model = TableSurrogate(make_table(deviation=0.01, draws=800, again=800), NOISE)
    schedules = random_schedules(2000)
    noise = train(model, schedules) - model.error(schedules)
    assert np.std(noise) == pytest.approx(0.01, rel=0.15)
    assert np.mean(noise) == pytest.approx(0, abs=5 * 0.01 / np.sqrt(2000))


def test_noise_depends_on_the_error() -> None:
    def two_levels(points: Floats) -> Floats:
        return np.where(smooth_error(points) < 0.35, 0.2, 0.5)

    def two_deviations(errors: Floats) -> Floats:
        return np.where(errors < 0.35, 0.002, 0.02)

    table = make_table(two_levels, deviation=two_deviations, draws=300, again=150, times=20)
    model = TableSurrogate(table, NOISE)
    schedules = SPACE.decode(table.points, EPOCHS)
    expected = model.error(schedules)
    for row, deviation in ((expected.argmin(), 0.002), (expected.argmax(), 0.02)):
        errors = train(model, schedules[[row]].repeat(1500, axis=0))
        assert np.std(errors) == pytest.approx(deviation, rel=0.15)


def test_rare_failures_do_not_increase_the_noise() -> None:
    table = make_table(deviation=0.01, draws=100, again=100, times=10)
    again = table.again.copy()
    again[1, ::8, 0] -= 0.3
    errors = train(TableSurrogate(replace(table, again=again), NOISE), random_schedules(1).repeat(1500, axis=0))
    assert np.std(errors) < 0.015


def test_stopped_members_train_no_further() -> None:
    model, schedules = TableSurrogate(make_table(), NOISE), random_schedules(3)
    seen: list[tuple[int, list[int]]] = []

    def stop(progress: EpochFinished) -> list[int]:
        assert (progress.epochs, progress.indices, progress.population_size) == (EPOCHS, (0, 1, 2), 3)
        seen.append((progress.epoch, progress.curves.epochs.tolist()))
        return {3: [1], 5: [0]}.get(progress.epoch, [])

    curves = model.train([Member(schedule, 0) for schedule in schedules], stop)
    assert seen == [(epoch, [min(epoch, 5), min(epoch, 3), epoch]) for epoch in range(1, EPOCHS + 1)]
    trained = np.arange(EPOCHS) < np.array([[5], [3], [EPOCHS]])  # (P, T)
    expected = np.where(trained, model.accuracy(schedules), np.nan)
    np.testing.assert_allclose(curves.accuracy[VALIDATION], expected, rtol=1e-12)


def test_search_with_early_stopping_runs_on_a_surrogate() -> None:
    model = TableSurrogate(make_table(), NOISE)
    plan = SearchPlan.named("s2e", "hyperband", epochs=EPOCHS, trials=6, generation_size=3, seed=1)
    study = optuna.create_study(direction="minimize")
    run_generations(model.train, EPOCHS, [Search(plan, study)])
    best = best_trial(study, plan.space, EPOCHS)
    assert 1 - best.validation_accuracy == pytest.approx(float(model.error(best.schedule[None])[0]))


# ------------------------------------------------------------------------------------------------------------- held out


def test_smooth_errors_without_noise_are_predicted() -> None:
    checked = TableSurrogate(make_table(draws=600), NOISE).held_out()
    assert checked["correlation"] > 0.97
    assert checked["ceiling"] == pytest.approx(1)


def test_pure_noise_is_not_predicted() -> None:
    table = make_table(lambda points: np.full(len(points), 0.4), deviation=0.05, draws=1000, again=300)
    checked = TableSurrogate(table, NOISE).held_out()
    assert abs(checked["correlation"]) < 0.12  # about four standard errors
    assert checked["ceiling"] < 0.35


def test_held_out_figures_equal_their_definitions() -> None:
    table = make_table(deviation=0.03, draws=83)
    points, accuracy = table.trained(NOISE)
    curves, errors = SPACE.decode(points, EPOCHS, at=AT), last_error(accuracy)
    fold = np.arange(len(errors)) % FOLDS
    trees = [fitted_trees(curves[fold != held], errors[fold != held]) for held in range(FOLDS)]
    predicted = [float(trees[draw % FOLDS].predict(curves[[draw]])[0]) for draw in range(83)]
    own = errors[:83].tolist()
    good = [draw for draw in range(83) if own[draw] <= np.quantile(own, GOOD)]
    variance = statistics.mean(statistics.variance(row) for row in table.errors_again(NOISE).tolist())
    expected = {
        "correlation": statistics.correlation(predicted, own),
        "correlation_among_good": statistics.correlation([predicted[i] for i in good], [own[i] for i in good]),
        "ceiling": (1 - variance / statistics.pvariance(own)) ** 0.5,
        "rmse_among_good": statistics.mean((predicted[draw] - own[draw]) ** 2 for draw in good) ** 0.5,
    }
    assert TableSurrogate(table, NOISE).held_out() == pytest.approx(expected)


def test_expected_error_is_that_of_the_expected_accuracies() -> None:
    model, schedules = TableSurrogate(make_table(deviation=0.03), NOISE), random_schedules(40)
    np.testing.assert_allclose(model.error(schedules), last_error(model.accuracy(schedules)), atol=1e-12)


def test_resampled_model_is_fitted_to_a_bootstrap_sample() -> None:
    table, schedules = make_table(deviation=0.03), random_schedules(40)
    points, accuracy = table.trained(NOISE)
    rows = np.random.default_rng(derive(3, "resample", NOISE)).integers(len(points), size=len(points))
    curves, errors = SPACE.decode(points, EPOCHS, at=AT)[rows], last_error(accuracy)[rows]
    model = TableSurrogate(table, NOISE, 3)
    np.testing.assert_allclose(model.error(schedules), fitted_trees(curves, errors).predict(schedules[:, AT]))
    np.testing.assert_allclose(model.error(schedules), last_error(model.accuracy(schedules)), atol=1e-12)
    assert model.held_out() == TableSurrogate(table, NOISE).held_out()


def test_measured_errors_have_the_deviation_of_trainings() -> None:
    model, schedules = TableSurrogate(make_table(deviation=0.03, again=100), NOISE), random_schedules(1)
    expected = np.full(20_000, model.error(schedules)[0])
    measured = model.measured(expected, np.random.default_rng(0).normal(size=20_000))
    trained = train(model, np.repeat(schedules, 2000, axis=0))
    assert measured.std() == pytest.approx(trained.std(), rel=0.06)
    assert measured.mean() == pytest.approx(expected[0], abs=1e-3)


@pytest.mark.slow
def test_ceiling_is_the_correlation_of_expected_and_measured_errors() -> None:
    table = make_table(deviation=0.03, draws=2000, again=400, times=4)
    correlation = np.corrcoef(smooth_error(table.points), last_error(table.accuracy[table.noises.index(NOISE)]))[0, 1]
    assert TableSurrogate(table, NOISE).held_out()["ceiling"] == pytest.approx(correlation, abs=0.02)


@pytest.mark.slow
def test_published_table_predicts_held_out_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surrogate, "TREES", ALL_TREES)
    table = ScheduleTable.read(PUBLISHED)
    for noise in table.noises:
        checked = TableSurrogate(table, noise).held_out()
        assert 0.95 < checked["correlation"] <= checked["ceiling"] + 0.01
