"""Results of a comparison of spaces: winners, Single, means over sets, and paired differences."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.trial import create_trial

from s2e.experiments.space_results import (
    SearchedSet,
    Winner,
    differences,
    flat_rows,
    rows_by_set,
    single_spaces,
    summary,
    training_rows,
    winner_of,
    winner_rows,
)
from s2e.schedules import SPACES
from s2e.studies import VALIDATION_ACCURACY
from s2e.workflows.outcomes import Outcome
from s2e.workflows.pipeline import TEST
from space_runs import found

NOISE = "pair:0.4"
LAST, BEST = "last_10_epochs", "best_epoch"


# -------------------------------------------------------------------------------------------------------------- winners


def study_of(*trials: tuple[float, Sequence[float]], diverged: bool = False) -> optuna.Study:
    """A study of trials with these errors and test accuracies by epoch."""
    study = optuna.create_study(direction="minimize")
    for error, accuracy in trials:
        attributes = {VALIDATION_ACCURACY: [0.5] * 12, "accuracy_test": list(accuracy)}
        study.add_trial(create_trial(value=error, user_attrs=attributes | ({"diverged": True} if diverged else {})))
    return study


LOW_THEN_HIGH = [0.0, 0.95, *[0.5] * 5, *[0.75] * 5]  # 12 epochs; the mean of the last ten is 0.625


def test_winner_is_the_first_best_by_validation_with_its_own_test_accuracy() -> None:
    winner = winner_of(study_of((0.3, [0.9] * 12), (0.25, LOW_THEN_HIGH), (0.25, [1.0] * 12)), "rbf")
    assert winner == Winner("rbf", 1, 0.75, {LAST: 0.625, BEST: 0.95})


def test_diverged_winner_counts_as_0_over_the_last_epochs() -> None:
    winner = winner_of(study_of((1.0, LOW_THEN_HIGH), diverged=True), "rbf")
    assert winner.test_accuracy == {LAST: 0.0, BEST: 0.95}


# ------------------------------------------------------------------------------------------------------------ all sets


def trained_to(space: str, seed: int, accuracy: float) -> Outcome:
    curve = np.full(3, accuracy)
    return Outcome(NOISE, space, seed, TEST, *([curve] * 8), diverged=False)


def a_set(
    validation: dict[str, float], tested: dict[str, tuple[float, float]], won: dict[str, tuple[float, float, float]]
) -> SearchedSet:
    """One set; accuracies of spaces that are not named are 0.

    Args:
        validation: validation accuracy of the best trials.
        tested: test accuracy of the final trainings from two seeds.
        won: validation accuracy and both test accuracies of the winners.
    """
    best = {(NOISE, space): found(validation.get(space, 0.0)) for space in SPACES}
    outcomes = [trained_to(space, seed, tested.get(space, (0, 0))[seed]) for space in SPACES for seed in range(2)]
    winners = {
        (NOISE, space): Winner(space, trial, valid, {LAST: last, BEST: top})
        for trial, space in enumerate(SPACES)
        for valid, last, top in [won.get(space, (0.0, 0.0, 0.0))]
    }
    return SearchedSet(best, outcomes, winners)


@pytest.fixture
def two() -> list[SearchedSet]:
    """Two sets with different single spaces, chosen by validation although others are better on test."""
    return [
        a_set(
            {"single-2": 0.6, "single-4": 0.5},
            {"s2e": (0.8, 1.0), "single-2": (0.5, 0.7), "single-4": (0.9, 0.9), "rbf": (0.9, 0.9)},
            {"s2e": (0.5, 0.7, 0.9), "rbf": (0.9, 0.9, 0.9), "single-1": (0.6, 0.4, 0.5), "single-4": (0.5, 0.9, 1.0)},
        ),
        a_set(
            {"single-2": 0.1, "single-4": 0.4},
            {"s2e": (0.7, 0.7), "single-2": (0.9, 0.9), "single-4": (0.3, 0.5), "rbf": (0.9, 0.9)},
            {"s2e": (0.5, 0.9, 0.9), "rbf": (0.9, 0.6, 0.7), "single-1": (0.4, 0.9, 1.0), "single-4": (0.7, 0.6, 0.7)},
        ),
    ]


def row_of(rows: Sequence[dict[str, Any]], space: str) -> dict[str, Any]:
    (row,) = [row for row in rows if row["space"] == space]
    return row


def test_single_is_the_first_best_of_four_by_validation() -> None:
    accuracies = {"s2e": 0.99, "single-1": 0.3, "single-2": 0.8, "single-3": 0.8, "single-4": 0.7, "rbf": 0.9}
    best = {(NOISE, space): found(accuracy) for space, accuracy in accuracies.items()}
    best |= {("none", space): found(1 - accuracy) for space, accuracy in accuracies.items()}
    assert single_spaces(best) == {NOISE: "single-2", "none": "single-1"}


def test_single_is_chosen_in_each_set_separately_for_winners(two: list[SearchedSet]) -> None:
    assert [each.single[NOISE] for each in two] == ["single-2", "single-4"]
    assert [each.single_winners[NOISE] for each in two] == ["single-1", "single-4"]


def test_summary_of_single_is_over_the_chosen_spaces(two: list[SearchedSet]) -> None:
    single = row_of(summary(two), "single")
    assert single[LAST] == pytest.approx({"mean": 0.5, "std": statistics.stdev([0.5, 0.7, 0.3, 0.5])})
    assert (single["sets"], single["seeds"], single["validation_accuracy"]) == (2, 2, pytest.approx(0.5))
    assert single["winner"]["validation_accuracy"] == pytest.approx(0.65)
    assert single["winner"][LAST] == pytest.approx({"mean": 0.5, "std": statistics.stdev([0.4, 0.6])})
    assert single["winner"][BEST] == pytest.approx({"mean": 0.6, "std": statistics.stdev([0.5, 0.7])})
    assert row_of(summary(two[:1]), "single")["winner"][BEST] == {"mean": 0.5, "std": None}


def test_rows_by_set_have_the_best_trial_and_the_winner(two: list[SearchedSet]) -> None:
    rows = [row for row in rows_by_set(two) if row["space"] == "single"]
    assert [(row["set"], row["validation_accuracy"]) for row in rows] == [(0, 0.6), (1, 0.4)]
    assert [row[LAST]["mean"] for row in rows] == pytest.approx([0.6, 0.4])
    winner = {"drawn_in": "single-4", "trial": list(SPACES).index("single-4"), "validation_accuracy": 0.7}
    assert rows[1]["winner"] == {**winner, LAST: 0.6, BEST: 0.7}


def test_training_rows_have_each_training_once(two: list[SearchedSet]) -> None:
    rows = [(row["space"], row["set"], row["seed"]) for row in training_rows(two)]
    assert rows == [(space, which, seed) for space in SPACES for which in (0, 1) for seed in (0, 1)]


def test_winner_rows_have_single_and_its_space(two: list[SearchedSet]) -> None:
    rows = winner_rows(two)
    assert [(row["space"], row["set"]) for row in rows] == [(space, m) for space in (*SPACES, "single") for m in (0, 1)]
    assert all(row["drawn_in"] == row["space"] for row in rows[:-2])
    assert [row["drawn_in"] for row in rows[-2:]] == ["single-1", "single-4"]
    assert [[row[name] for name in (LAST, BEST)] for row in rows[-2:]] == [[0.4, 0.5], [0.6, 0.7]]


def test_differences_are_paired_within_sets(two: list[SearchedSet]) -> None:
    rows = differences(two)
    assert [row["space"] for row in rows] == ["coteaching", "single", "rbf", "mlp"]
    single, rbf = row_of(rows, "single"), row_of(rows, "rbf")
    assert single["by_set"] == pytest.approx([0.3, 0.3])
    assert (single["mean"], single["standard_error"]) == pytest.approx((0.3, 0.0))  # both vary, in the same way
    assert rbf["by_set"] == pytest.approx([0.0, -0.2])
    assert (rbf["mean"], rbf["standard_error"]) == pytest.approx((-0.1, 0.1))
    assert rbf["winner"][LAST]["by_set"] == pytest.approx([-0.2, 0.3])
    assert (rbf["winner"][LAST]["mean"], rbf["winner"][LAST]["standard_error"]) == pytest.approx((0.05, 0.25))
    assert rbf["winner"][BEST]["by_set"] == pytest.approx([0.0, 0.2])
    alone = row_of(differences(two[1:]), "rbf")
    assert (alone["mean"], alone["standard_error"]) == (pytest.approx(-0.2), None)


def test_flat_rows_have_a_column_for_each_number() -> None:
    winner = {"validation_accuracy": 0.5, BEST: {"mean": 0.6, "std": None}}
    row = {"space": "s2e", BEST: {"mean": 0.5, "std": 0.1}, "sets": 2, "winner": winner}
    assert flat_rows([row]) == [
        {
            "space": "s2e",
            "best_epoch": 0.5,
            "best_epoch_std": 0.1,
            "sets": 2,
            "winner_validation_accuracy": 0.5,
            "winner_best_epoch": 0.6,
            "winner_best_epoch_std": None,
        }
    ]
