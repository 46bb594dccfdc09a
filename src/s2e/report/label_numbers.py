"""The numbers of a label audit that a report shows: confusion, class balance, noise matrix, reliability.

Letters: N samples, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s2e.audit import AuditedRun

MAX_CLASSES = 20
"""Maximum number of classes in a table of classes; of more, those with the most errors are shown."""

MAX_LARGE, MAX_HALF, MAX_SHORT = 7, 10, 4
"""Most classes of a matrix with large cells, most classes on half of the page, longest name over a small column."""

BINS = 10
"""Number of intervals of quality in a reliability diagram."""


@dataclass(frozen=True)
class ClassMatrix:
    """The part of a (C, C) matrix that is shown.

    Attributes:
        names: names of the classes shown, in rows and columns.
        rows: entries: counts, or shares of the row.
        shares: entries as shares of their row.
        total: number of all classes.
    """

    names: tuple[str, ...]
    rows: tuple[tuple[float, ...], ...]
    shares: tuple[tuple[float, ...], ...]
    total: int

    @property
    def dense(self) -> bool:
        """Whether the cells are drawn small."""
        return len(self.names) > MAX_LARGE

    @property
    def wide(self) -> bool:
        """Whether the matrix needs the whole width of the page."""
        return len(self.names) > MAX_HALF

    @property
    def long(self) -> bool:
        """Whether the names of small columns are written vertically."""
        return self.dense and max(map(len, self.names)) > MAX_SHORT


@dataclass(frozen=True)
class ClassCount:
    """Number of samples of a class: as labelled, and as estimated."""

    name: str
    given: int
    estimated: int


@dataclass(frozen=True)
class Balance:
    """The number of samples of the classes shown, and of all classes."""

    counts: tuple[ClassCount, ...]
    total: int

    @property
    def largest(self) -> int:
        """The largest number."""
        return max(max(each.given, each.estimated) for each in self.counts)


@dataclass(frozen=True, eq=False)
class Reliability:
    """How well qualities agree with known true labels, over intervals of quality that have samples.

    Attributes:
        quality: mean quality in each interval.
        correct: share of labels that are correct in each interval.
        counts: number of labels in each interval.
    """

    quality: NDArray[np.float64]
    correct: NDArray[np.float64]
    counts: NDArray[np.int64]


def noise_matrix(audited: AuditedRun) -> ClassMatrix:
    """Return the estimated noise matrix: rows are true classes, columns given labels; empty with too many classes."""
    transition, names = audited.audit.transition, audited.class_names
    errors = transition - np.diag(transition.diagonal())
    shown = _most(errors.sum(axis=0) + errors.sum(axis=1))
    part = tuple(tuple(row) for row in transition[np.ix_(shown, shown)].tolist())
    return ClassMatrix(tuple(names[index] for index in shown), part, part, len(names))


def confusion(audited: AuditedRun) -> ClassMatrix:
    """Return the number of labels by given label (row) and estimated class (column)."""
    given, estimated, names = audited.labels, audited.audit.suggested, audited.class_names
    wrong = given != estimated
    shown = _most(np.bincount(np.concatenate([given[wrong], estimated[wrong]]), minlength=len(names)))
    place = np.full(len(names), len(shown))  # classes that are not shown share the last row and column
    place[shown] = np.arange(len(shown))
    counts = np.zeros((len(shown) + 1, len(shown) + 1), dtype=np.int64)
    np.add.at(counts, (place[given], place[estimated]), 1)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    rows, of_row = (tuple(tuple(row) for row in matrix[:-1, :-1].tolist()) for matrix in (counts, shares))
    return ClassMatrix(tuple(names[index] for index in shown), rows, of_row, len(names))


def _most(errors: NDArray[Any]) -> NDArray[np.int64]:
    """Return the classes with the most errors, at most `MAX_CLASSES`, in order."""
    return np.sort(np.argsort(-errors, kind="stable")[:MAX_CLASSES])


def balance(audited: AuditedRun) -> Balance:
    """Return the number of samples of each class; of many classes, those that change most."""
    classes = len(audited.class_names)
    given = np.bincount(audited.labels, minlength=classes)
    estimated = np.bincount(audited.audit.suggested, minlength=classes)
    shown = _most(np.abs(given - estimated))
    counts = [ClassCount(audited.class_names[index], int(given[index]), int(estimated[index])) for index in shown]
    return Balance(tuple(counts), classes)


def reliability(audited: AuditedRun) -> Reliability | None:
    """Compare qualities with the true labels; None if they are unknown. Reviewed labels are left out."""
    if audited.true is None or audited.reviewed.all():
        return None
    quality = audited.audit.quality[~audited.reviewed]
    correct = (audited.true == audited.labels)[~audited.reviewed]
    interval = np.minimum((quality * BINS).astype(np.int64), BINS - 1)
    counts = np.bincount(interval, minlength=BINS)
    used = counts > 0
    return Reliability(
        np.bincount(interval, quality, BINS)[used] / counts[used],
        np.bincount(interval, correct, BINS)[used] / counts[used],
        counts[used],
    )
