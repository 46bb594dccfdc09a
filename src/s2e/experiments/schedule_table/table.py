"""A table of schedules that have been trained: uniform draws from a space, and what came of each.

Letters: S noise settings, n draws, D dimensions of the space, T epochs, r draws trained again, m times each, q more
points under each noise setting.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s2e.engine.curves import LAST_EPOCHS
from s2e.errors import InvalidInput, UnreadableData
from s2e.runs.directory import Run

Floats = NDArray[np.float64]

FINEST = 65535
"""Coordinates of the draws are multiples of 1 over this, so that 16 bits hold them exactly."""


@dataclass(frozen=True, eq=False)
class ScheduleTable:
    """What was trained and how well it did on validation.

    Attributes:
        space: name of the space.
        noises: names of the S noise settings.
        points: (n, D) draws, multiples of 1/65535.
        accuracy: (S, n, T) validation accuracy after every epoch, mean of a member's networks.
        again: (S, r, m, T) the same for the first r draws, trained m times more from other initial weights.
        found: (S, q, D) points that a model of the draws held promising under a noise setting, multiples of 1/65535.
        found_accuracy: (S, q, T) validation accuracy of each under that setting.
        about: what made it: data, network, method, options, versions, device.
    """

    space: str
    noises: tuple[str, ...]
    points: Floats
    accuracy: Floats
    again: Floats
    found: Floats
    found_accuracy: Floats
    about: Mapping[str, Any]

    @property
    def epochs(self) -> int:
        """T."""
        return int(self.accuracy.shape[-1])

    def errors(self, noise: str) -> Floats:
        """Return the score of every draw, (n,): the error over the last ten epochs, as a search is told it."""
        return score(self.accuracy[self._place(noise)])

    def errors_again(self, noise: str) -> Floats:
        """Return the scores of the draws that were trained several times, (r, 1 + m), the first training included."""
        place = self._place(noise)
        first = self.accuracy[place, : self.again.shape[1], None]  # (r, 1, T)
        return score(np.concatenate([first, self.again[place]], axis=1))

    def trained(self, noise: str) -> tuple[Floats, Floats]:
        """Return all points trained under a noise setting, (n + q, D), and their accuracies by epoch, (n + q, T)."""
        place = self._place(noise)
        points = np.concatenate([self.points, self.found[place]])
        return points, np.concatenate([self.accuracy[place], self.found_accuracy[place]])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything as named arrays of small numbers.

        Accuracies become counts of right predictions, so that nothing is rounded.
        """
        judged = int(self.about["judged"])
        count = np.min_scalar_type(judged)  # the smallest type that holds it
        about = json.dumps({**self.about, "space": self.space, "noises": self.noises})
        return {
            "points": np.rint(self.points * FINEST).astype(np.uint16),
            "accuracy": np.rint(self.accuracy * judged).astype(count),
            "again": np.rint(self.again * judged).astype(count),
            "found": np.rint(self.found * FINEST).astype(np.uint16),
            "found_accuracy": np.rint(self.found_accuracy * judged).astype(count),
            "about": np.frombuffer(about.encode(), dtype=np.uint8),
        }

    @classmethod
    def read(cls, path: Path) -> ScheduleTable:
        """Read a file of what `arrays` returned."""
        if not path.is_file():
            raise UnreadableData(f"{str(path)!r} is not a table of schedules: there is no such file.")
        stored = Run(path.parent).read_arrays(path.name)
        try:
            about = json.loads(stored["about"].tobytes())
            judged = int(about["judged"])
            if judged < 1:
                raise ValueError(f"`judged` must be at least 1, but got {judged}")
            points, found = (stored[name] / FINEST for name in ("points", "found"))
            accuracies = [stored[name] / judged for name in ("accuracy", "again", "found_accuracy")]
            space, noises = about.pop("space"), tuple(about.pop("noises"))
            table = cls(space, noises, points, accuracies[0], accuracies[1], found, accuracies[2], about)
            table._check_shapes()
        except (KeyError, TypeError, ValueError) as problem:
            raise UnreadableData(f"{str(path)!r} is not a table of schedules: {problem}.") from problem
        return table

    def _check_shapes(self) -> None:
        """Refuse arrays that do not belong together."""
        settings, (draws, dimension) = len(self.noises), self.points.shape
        _, repeated, times, epochs = self.again.shape
        more = self.found.shape[1]
        shapes = {
            "accuracy": (settings, draws, epochs),
            "again": (settings, min(repeated, draws), times, epochs),
            "found": (settings, more, dimension),
            "found_accuracy": (settings, more, epochs),
        }
        for name, shape in shapes.items():
            if getattr(self, name).shape != shape:
                raise ValueError(f"`{name}` must have the shape {shape}, but got {getattr(self, name).shape}")

    def _place(self, noise: str) -> int:
        if noise not in self.noises:
            raise InvalidInput(f"`noise` must be one of {', '.join(self.noises)}, but got {noise!r}.")
        return self.noises.index(noise)


def score(accuracy: Floats) -> Floats:
    """(...): the error over the last ten epochs, of accuracies by epoch, (..., T)."""
    return np.asarray(1.0 - accuracy[..., -LAST_EPOCHS:].mean(axis=-1))


def drawn(count: int, dimension: int, seed: int) -> Floats:
    """Draw uniform points (n, D) whose coordinates a table holds exactly."""
    whole = np.random.default_rng(seed).integers(0, FINEST, size=(count, dimension), endpoint=True)
    return np.asarray(whole / FINEST)


def rounded(points: Floats) -> Floats:
    """Return points with coordinates that a table holds exactly."""
    return np.asarray(np.rint(points * FINEST) / FINEST)


def published() -> Path:
    """Return where the table lies that comes with this package."""
    return Path(__file__).with_name("mnist-schedules.npz")
