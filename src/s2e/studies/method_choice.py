"""Searches in which methods compete: the method is one more coordinate of a trial's point.

Every sampler then works as it is: the unit interval is divided into equal parts, one for each method. The model of the
score compares methods by an indicator of each beside the keep rates, so that it learns how much they have in common.

Letters: P points, D coordinates, M methods, F features of a schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from s2e.errors import InvalidInput
from s2e.methods import Method
from s2e.schedules import Space

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

METHOD = "method"
"""Name of the coordinate."""

INDICATOR = 0.5
"""Value of a method's indicator: before any trial, scores of one schedule by two methods are expected to be similar."""


class MethodSpace(Space):
    """The schedules of a space, each trained by one of several methods.

    Args:
        schedules: the space of the schedules.
        methods: the M methods.
    """

    def __init__(self, schedules: Space, methods: Sequence[Method]) -> None:
        if not methods:
            raise InvalidInput("`methods` must hold at least one method, but is empty.")
        self.schedules, self.methods = schedules, tuple(methods)
        self.name, self.simplex = schedules.name, schedules.simplex
        self.names = (*schedules.names, METHOD)

    def unclipped(self, points: Floats, t: Floats, epochs: int) -> Floats:
        """Return the curves of the schedules, which do not depend on the method."""
        return self.schedules.unclipped(points[:, :-1], t, epochs)

    def features(self, points: ArrayLike, epochs: int, *, at: ArrayLike) -> Floats:
        """Return the features of the schedules, and an indicator of each method, (P, F + M)."""
        valid = self._valid(points)
        indicators = INDICATOR * np.eye(len(self.methods))[self._indices(valid)]
        return np.concatenate([self.schedules.features(valid[:, :-1], epochs, at=at), indicators], axis=1)

    def in_turn(self, point: Floats, number: int) -> Floats:
        """Return the point with the methods in turn, each in the middle of its part of the interval."""
        schedule = self.schedules.in_turn(point[:-1], number)
        return np.append(schedule, (number % len(self.methods) + 0.5) / len(self.methods))

    def methods_of(self, points: Floats) -> list[Method]:
        """Return the method of each point (P, D)."""
        return [self.methods[index] for index in self._indices(points)]

    def _indices(self, points: Floats) -> NDArray[np.int64]:
        """Return the index of the method of each point, (P,)."""
        count = len(self.methods)
        return np.minimum((points[:, -1] * count).astype(np.int64), count - 1)


def methods_of(space: Space, points: Floats) -> Sequence[Method | None]:
    """Return the method of each point (P, D); None where methods do not compete."""
    return space.methods_of(points) if isinstance(space, MethodSpace) else [None] * len(points)
