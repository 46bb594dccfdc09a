"""A surrogate of the schedule table: predicts the training of any schedule of the space in milliseconds.

The model is a forest. Its predictions are means of trainings in the table, so it never extrapolates beyond them,
however long a search exploits it, and it is unlike the Gaussian process that some samplers use.

Letters: n trained points of the table, m schedules to predict, T epochs, F epochs used as features, r draws trained
several times.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2
from sklearn.ensemble import ExtraTreesRegressor

from s2e.engine import VALIDATION, Curves, EpochFinished, Member
from s2e.errors import InvalidInput
from s2e.experiments.schedule_table.table import ScheduleTable, last_error
from s2e.samplers import landmarks
from s2e.schedules import space
from s2e.seeds import derive
from s2e.studies import Stop

Floats = NDArray[np.float64]

LANDMARKS = 9
"""Half the number of epochs whose keep rates are features, before duplicates are removed."""
TREES, MAX_FEATURES, MIN_SAMPLES_LEAF = 100, 0.5, 2
FOLDS = 5
GOOD = 0.2
"""Share of the draws that count as good: a search soon samples only good points."""
NEIGHBOURS = 16
"""Repeated draws with the nearest errors, from which the standard deviation of a training is estimated."""


class Forest:
    """Extremely randomised trees over schedules, as weights of the schedules they were fitted to.

    A weight is how often two schedules fall into the same leaf, so that one forest, fitted to the errors, predicts
    accuracies at every epoch.

    Args:
        schedules: (n, F) keep rates.
        errors: (n,) their errors.
    """

    def __init__(self, schedules: Floats, errors: Floats) -> None:
        trees = ExtraTreesRegressor(TREES, max_features=MAX_FEATURES, min_samples_leaf=MIN_SAMPLES_LEAF, random_state=0)
        self._trees = trees.fit(schedules, errors)
        self._leaves = self._apply(schedules)  # (n, trees)
        sizes = np.zeros((self._leaves.max() + 1, self._leaves.shape[1]))
        np.add.at(sizes, (self._leaves, np.arange(self._leaves.shape[1])), 1.0)
        self._sizes = sizes  # (nodes, trees): fitted schedules in a leaf
        sums = np.zeros_like(sizes)
        np.add.at(sums, (self._leaves, np.arange(self._leaves.shape[1])), errors[:, None])
        self._means = sums / np.maximum(sizes, 1.0)  # (nodes, trees): mean error in a leaf

    def weights(self, schedules: Floats) -> Floats:
        """Return the weights (m, n) of the fitted schedules for schedules (m, F); every row sums to 1."""
        leaves = self._apply(schedules)  # (m, trees)
        trees = leaves.shape[1]
        share = 1.0 / (trees * self._sizes[leaves, np.arange(trees)])  # (m, trees)
        weights = np.zeros((len(schedules), len(self._leaves)))
        for tree in range(trees):
            weights += (leaves[:, None, tree] == self._leaves[:, tree]) * share[:, None, tree]
        return weights

    def predict(self, schedules: Floats) -> Floats:
        """Return the predicted errors (m,) of schedules (m, F): `weights` times the fitted errors."""
        leaves = self._apply(schedules)  # (m, trees)
        return np.asarray(self._means[leaves, np.arange(leaves.shape[1])].mean(axis=1))

    def _apply(self, schedules: Floats) -> NDArray[np.int64]:
        """Return the leaf of each schedule in each tree, (m, trees), without the checks and threads of the forest."""
        single = schedules.astype(np.float32)  # the type that trees compare
        return np.stack([tree.tree_.apply(single) for tree in self._trees.estimators_], axis=1)


class TableSurrogate:
    """Predicts trainings under one noise setting, with the noise of their seeds.

    The noise of a training is normal and the same at every epoch. Its standard deviation is that of repeated trainings
    in the table with about the same error. Rare failures of a schedule are not sampled; they are part of the mean.

    Args:
        table: the table.
        noise: one of its noise settings.
        resample: seed of the bootstrap sample of the trainings that the model is fitted to; None for all of them.
    """

    def __init__(self, table: ScheduleTable, noise: str, resample: int | None = None) -> None:
        self.epochs = table.epochs
        self._landmarks = landmarks(self.epochs, LANDMARKS)
        points, accuracy = table.trained(noise)  # (n, D), (n, T)
        self._schedules = space(table.space).decode(points, self.epochs, at=self._landmarks)  # (n, F)
        self._errors = last_error(accuracy)
        self._draws = len(table.points)
        fitted = np.arange(len(points))
        if resample is not None:
            generator = np.random.default_rng(derive(resample, "resample", noise))
            fitted = generator.integers(len(points), size=len(points))
        self._accuracy = accuracy[fitted]
        self._forest = Forest(self._schedules[fitted], self._errors[fitted])
        again = table.errors_again(noise)  # (r, 1 + m)
        if again.shape[0] < 1 or again.shape[1] < 2:
            raise InvalidInput("`table` must hold draws that were trained several times, but got none: see --again.")
        again = again[np.argsort(again.mean(axis=1))]
        self._repeated_errors = again.mean(axis=1)  # (r,) ascending
        self._variances = again.var(axis=1, ddof=1)  # (r,)
        freedom = again.shape[1] - 1
        self._median_variance = float(chi2.median(freedom) / freedom)  # of variance estimates, if the true one is 1
        count = min(NEIGHBOURS, len(self._repeated_errors))
        medians = np.median(np.lib.stride_tricks.sliding_window_view(self._variances, count), axis=1)
        self._deviations = np.sqrt(
            medians / self._median_variance
        )  # by the first of the `count` nearest repeated draws

    def accuracy(self, schedules: Floats) -> Floats:
        """Return the expected validation accuracy after every epoch, (m, T), of schedules (m, T)."""
        weights = self._forest.weights(schedules[:, self._landmarks])
        # One product for each schedule: how a row of a larger product is rounded may depend on its position.
        return np.stack([own @ self._accuracy for own in weights])

    def error(self, schedules: Floats) -> Floats:
        """Return the expected error over the last epochs, (m,), of schedules (m, T)."""
        return self._forest.predict(schedules[:, self._landmarks])

    def train(self, members: Sequence[Member], stop: Stop | None) -> Curves:
        """Return curves of members as if they had been trained as one population; see `run_generations`."""
        expected = self.accuracy(np.stack([member.schedule for member in members]))  # (P, T)
        normal = [np.random.default_rng(member.seed).normal() for member in members]
        noise = self._deviation(last_error(expected)) * normal  # (P,)
        accuracy = np.clip(expected - noise[:, None], 0.0, 1.0)
        curves = Curves.empty(len(members), self.epochs, [VALIDATION])
        training = np.ones(len(members), dtype=bool)
        for epoch in range(1, self.epochs + 1):
            curves.accuracy[VALIDATION][training, epoch - 1] = accuracy[training, epoch - 1]
            curves.epochs[training] = epoch
            if stop is not None:
                finished = EpochFinished(epoch, self.epochs, tuple(range(len(members))), len(members), curves)
                training[list(stop(finished))] = False
        return curves

    def held_out(self) -> dict[str, float]:
        """Return the accuracy of cross-validated predictions of the uniform draws.

        `ceiling` is the correlation of a perfect model: the error of a draw includes the noise of its seed.
        """
        fold = np.arange(len(self._errors)) % FOLDS
        predicted = np.zeros(len(self._errors))
        for held in range(FOLDS):
            fitted = fold != held
            forest = Forest(self._schedules[fitted], self._errors[fitted])
            predicted[~fitted] = forest.weights(self._schedules[~fitted]) @ self._errors[fitted]
        predicted, errors = predicted[: self._draws], self._errors[: self._draws]
        good = errors <= np.quantile(errors, GOOD)
        return {
            "correlation": _correlation(predicted, errors),
            "correlation_among_good": _correlation(predicted[good], errors[good]),
            "ceiling": float(np.sqrt(max(0.0, 1.0 - self._variances.mean() / errors.var()))),
            "rmse_among_good": float(np.sqrt(np.mean((predicted - errors)[good] ** 2))),
        }

    def measured(self, expected: Floats, normal: Floats) -> Floats:
        """Return errors as trainings would measure them, from expected errors and standard normal numbers (...)."""
        return np.asarray(expected + self._deviation(expected) * normal)

    def _deviation(self, errors: Floats) -> Floats:
        """Return standard deviations of trainings with about these errors, from the median of estimated variances."""
        count = min(NEIGHBOURS, len(self._repeated_errors))
        middle = np.searchsorted(self._repeated_errors, errors)
        return np.asarray(self._deviations[np.clip(middle - count // 2, 0, len(self._deviations) - 1)])


def _correlation(first: Floats, second: Floats) -> float:
    return float(np.corrcoef(first, second)[0, 1])
