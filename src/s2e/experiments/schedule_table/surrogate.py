"""A model of the schedule table that answers for trainings: any point of the space, in milliseconds, time and again.

The model is a forest. What it predicts is a mean of trainings in the table, so it promises nothing beyond what was
seen, however long a search looks for it; and it is of another kind than the Gaussian process that some samplers use.

Letters: n draws in the table, m schedules asked about, T epochs, F epochs a schedule is looked at, r draws trained
several times.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2
from sklearn.ensemble import ExtraTreesRegressor

from s2e.engine.curves import Curves
from s2e.engine.task import VALIDATION, EpochFinished, Member
from s2e.errors import InvalidInput
from s2e.experiments.schedule_table.table import ScheduleTable, score
from s2e.samplers.curve_model import landmarks
from s2e.schedules.spaces import space
from s2e.studies import Stop

Floats = NDArray[np.float64]

LOOKED_AT = 9
"""Half the epochs at which the model looks at a schedule."""
TREES, SHARE_OF_EPOCHS, SMALLEST_LEAF = 100, 0.5, 2
FOLDS = 5
GOOD = 0.2
"""Share of the draws that counts as good: a search soon looks at no others."""
ALIKE = 16
"""Draws trained several times whose spread stands for the luck of a training with about their error."""


class Forest:
    """Extremely randomised trees over schedules: a schedule's outcome is a weighted mean of those in the table.

    Weights come from how often the trees put two schedules into the same leaf, so that one forest, grown on the scores,
    predicts accuracies at every epoch.

    Args:
        schedules: (n, F) keep rates.
        errors: (n,) their scores.
    """

    def __init__(self, schedules: Floats, errors: Floats) -> None:
        grown = ExtraTreesRegressor(TREES, max_features=SHARE_OF_EPOCHS, min_samples_leaf=SMALLEST_LEAF, random_state=0)
        self._trees = grown.fit(schedules, errors)
        self._leaves = self._trees.apply(schedules)  # (n, trees)
        sizes = np.zeros((self._leaves.max() + 1, TREES))
        np.add.at(sizes, (self._leaves, np.arange(TREES)), 1.0)
        self._sizes = sizes  # (nodes, trees): draws in a leaf

    def weights(self, schedules: Floats) -> Floats:
        """Return the weights (m, n) of the table's draws for schedules (m, F); every row sums to 1."""
        leaves = self._trees.apply(schedules)  # (m, trees)
        share = 1.0 / (TREES * self._sizes[leaves, np.arange(TREES)])  # (m, trees)
        weights = np.zeros((len(schedules), len(self._leaves)))
        for tree in range(TREES):
            weights += (leaves[:, None, tree] == self._leaves[:, tree]) * share[:, None, tree]
        return weights


class TableSurrogate:
    """What to expect of a training under one noise setting.

    A training that is asked for comes with the luck of its seed: a normal deviation, the same at every epoch, as large
    as trainings of one schedule with about this error usually differ in the table. That some schedules now and then
    lead to a much worse network is not drawn: it is in the mean of what happened.
    """

    def __init__(self, table: ScheduleTable, noise: str) -> None:
        self.epochs = table.epochs
        self._looked_at = landmarks(self.epochs, LOOKED_AT)
        points, self._accuracy = table.trained(noise)  # (n, D), (n, T)
        self._schedules = space(table.space).decode(points, self.epochs, at=self._looked_at)  # (n, F)
        self._errors = score(self._accuracy)
        self._draws = len(table.points)
        self._forest = Forest(self._schedules, self._errors)
        again = table.errors_again(noise)  # (r, 1 + m)
        if again.shape[0] < 1 or again.shape[1] < 2:
            raise InvalidInput("`table` must hold draws that were trained several times, but got none: see --again.")
        again = again[np.argsort(again.mean(axis=1))]
        self._again = again.mean(axis=1)  # (r,) in ascending order
        self._variances = again.var(axis=1, ddof=1)  # (r,)
        freedom = again.shape[1] - 1
        self._usual = float(chi2.median(freedom) / freedom)  # of an estimated variance, when the true one is 1

    def accuracy(self, schedules: Floats) -> Floats:
        """Return the expected validation accuracy after every epoch, (m, T), of schedules (m, T)."""
        return np.asarray(self._forest.weights(schedules[:, self._looked_at]) @ self._accuracy)

    def error(self, schedules: Floats) -> Floats:
        """Return the expected score, (m,), of schedules (m, T)."""
        return score(self.accuracy(schedules))

    def train(self, members: Sequence[Member], stop: Stop) -> Curves:
        """Stand in for training members side by side."""
        expected = self.accuracy(np.stack([member.schedule for member in members]))  # (P, T)
        drawn = [np.random.default_rng(member.seed).normal() for member in members]
        luck = np.array([self._deviation(error) for error in score(expected)]) * drawn  # (P,)
        accuracy = np.clip(expected - luck[:, None], 0.0, 1.0)
        curves = Curves.empty(len(members), self.epochs, [VALIDATION])
        training = np.ones(len(members), dtype=bool)
        for epoch in range(1, self.epochs + 1):
            curves.accuracy[VALIDATION][training, epoch - 1] = accuracy[training, epoch - 1]
            curves.epochs[training] = epoch
            stopped = stop(EpochFinished(epoch, self.epochs, tuple(range(len(members))), len(members), curves))
            training[list(stopped)] = False
        return curves

    def held_out(self) -> dict[str, float]:
        """Return how well uniform draws are predicted that the model was not told, fold by fold.

        `ceiling` is the correlation that a perfect model would reach: a draw's score is partly the luck of its seed.
        """
        fold = np.arange(len(self._errors)) % FOLDS
        predicted = np.zeros(len(self._errors))
        for held in range(FOLDS):
            told = fold != held
            forest = Forest(self._schedules[told], self._errors[told])
            predicted[~told] = forest.weights(self._schedules[~told]) @ self._errors[told]
        predicted, errors = predicted[: self._draws], self._errors[: self._draws]
        good = errors <= np.quantile(errors, GOOD)
        return {
            "correlation": _correlation(predicted, errors),
            "correlation_among_good": _correlation(predicted[good], errors[good]),
            "ceiling": float(np.sqrt(max(0.0, 1.0 - self._variances.mean() / errors.var()))),
            "rmse_among_good": float(np.sqrt(np.mean((predicted - errors)[good] ** 2))),
        }

    def _deviation(self, error: float) -> float:
        """Return the usual deviation of the repeated draws whose error is nearest."""
        count = min(ALIKE, len(self._again))
        first = int(np.clip(np.searchsorted(self._again, error) - count // 2, 0, len(self._again) - count))
        return float(np.sqrt(np.median(self._variances[first : first + count]) / self._usual))


def _correlation(first: Floats, second: Floats) -> float:
    return float(np.corrcoef(first, second)[0, 1])
