"""A table of trained schedules: points of a space, and the validation accuracy of each after every epoch.

Letters: S noise settings, n draws, D dimensions of the space, T epochs, r draws trained again, m times each, q other
points under each noise setting.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s2e.engine import LAST_EPOCHS
from s2e.errors import InvalidInput, UnreadableData, first_line
from s2e.files.fields import Fields
from s2e.files.json_text import parse_json
from s2e.runs import Run

Floats = NDArray[np.float64]

RESOLUTION = 65535
"""Coordinates are multiples of 1 / 65535, so that 16 bits store them exactly."""

EVALUATED = "judged"
"""Key in `about`: predictions behind each accuracy, validation samples × networks of a member."""

PUBLISHED = Path(__file__).with_name("mnist-schedules.npz")
"""The table distributed with this package."""


@dataclass(frozen=True, eq=False)
class ScheduleTable:
    """Points and validation accuracies.

    Attributes:
        space: name of the space.
        noises: names of the S noise settings.
        points: (n, D) uniform draws, multiples of 1/65535.
        accuracy: (S, n, T) validation accuracy after every epoch, mean of a member's networks.
        again: (S, r, m, T) the same for the first r draws, trained m more times from other initial weights.
        found: (S, q, D) other points of each noise setting, multiples of 1/65535: visited by samplers in comparisons on
            data, then proposed by a model of the trainings.
        found_accuracy: (S, q, T) validation accuracy of each under its noise setting.
        about: how the table was made: data, network, method, options, versions, device.
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

    def errors_again(self, noise: str) -> Floats:
        """Return the errors of the draws trained several times, (r, 1 + m), the first training included."""
        index = self._index(noise)
        first = self.accuracy[index, : self.again.shape[1], None]  # (r, 1, T)
        return last_error(np.concatenate([first, self.again[index]], axis=1))

    def trained(self, noise: str) -> tuple[Floats, Floats]:
        """Return all points trained under a noise setting, (n + q, D), and their accuracies by epoch, (n + q, T)."""
        index = self._index(noise)
        points = np.concatenate([self.points, self.found[index]])
        return points, np.concatenate([self.accuracy[index], self.found_accuracy[index]])

    def only_draws(self) -> ScheduleTable:
        """Return the table without the points that were not drawn uniformly."""
        return replace(self, found=self.found[:, :0], found_accuracy=self.found_accuracy[:, :0])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything as named arrays of small integers; accuracies become counts, so that nothing is rounded."""
        evaluated = int(self.about[EVALUATED])
        count = np.min_scalar_type(evaluated)  # the smallest type that holds it
        about = json.dumps({**self.about, "space": self.space, "noises": self.noises})
        return {
            "points": np.rint(self.points * RESOLUTION).astype(np.uint16),
            "accuracy": np.rint(self.accuracy * evaluated).astype(count),
            "again": np.rint(self.again * evaluated).astype(count),
            "found": np.rint(self.found * RESOLUTION).astype(np.uint16),
            "found_accuracy": np.rint(self.found_accuracy * evaluated).astype(count),
            "about": np.frombuffer(about.encode(), dtype=np.uint8),
        }

    @classmethod
    def read(cls, path: Path) -> ScheduleTable:
        """Read a table from a file with the arrays of `arrays`."""
        if not path.is_file():
            raise UnreadableData(f"{str(path)!r} is not a table of schedules: there is no such file.")
        stored = Run(path.parent).read_arrays(path.name)
        try:
            fields = Fields(parse_json(stored["about"].tobytes(), path), path)
            evaluated = fields.integer(EVALUATED, least=1)
            points, found = (_shares(stored, name, RESOLUTION) for name in ("points", "found"))
            accuracies = [_shares(stored, name, evaluated) for name in ("accuracy", "again", "found_accuracy")]
            space, noises = fields.text("space"), fields.texts("noises")
            about = {name: value for name, value in fields.values.items() if name not in ("space", "noises")}
            table = cls(space, noises, points, accuracies[0], accuracies[1], found, accuracies[2], about)
            table._check_shapes()
        except (LookupError, TypeError, ValueError, UnreadableData) as problem:
            raise UnreadableData(f"{str(path)!r} is not a table of schedules: {first_line(problem)}") from problem
        return table

    def _check_shapes(self) -> None:
        """Raise if the shapes of the arrays contradict each other."""
        settings, (draws, dimension) = len(self.noises), self.points.shape
        _, repeated, times, epochs = self.again.shape
        proposed = self.found.shape[1]
        shapes = {
            "accuracy": (settings, draws, epochs),
            "again": (settings, min(repeated, draws), times, epochs),
            "found": (settings, proposed, dimension),
            "found_accuracy": (settings, proposed, epochs),
        }
        for name, shape in shapes.items():
            if getattr(self, name).shape != shape:
                raise ValueError(f"`{name}` must have the shape {shape}, but got {getattr(self, name).shape}")

    def _index(self, noise: str) -> int:
        if noise not in self.noises:
            raise InvalidInput(f"`noise` must be one of {', '.join(self.noises)}, but got {noise!r}.")
        return self.noises.index(noise)


def _shares(stored: Mapping[str, NDArray[Any]], name: str, whole: int) -> Floats:
    """Return counts as shares of the whole."""
    counts = stored[name]
    if counts.dtype.kind != "u" or (counts.size and counts.max() > whole):
        raise ValueError(f"`{name}` must hold counts in 0..{whole}, but got {counts.dtype}")
    return np.asarray(counts / whole)


def last_error(accuracy: Floats) -> Floats:
    """Return the error over the last ten epochs, (...), of accuracies by epoch, (..., T), as a search scores it."""
    return np.asarray(1.0 - accuracy[..., -LAST_EPOCHS:].mean(axis=-1))


def draw_points(count: int, dimension: int, seed: int) -> Floats:
    """Draw uniform points (n, D) whose coordinates a table stores exactly."""
    whole = np.random.default_rng(seed).integers(0, RESOLUTION, size=(count, dimension), endpoint=True)
    return np.asarray(whole / RESOLUTION)


def round_points(points: Floats) -> Floats:
    """Round points to coordinates that a table stores exactly."""
    return np.asarray(np.rint(points * RESOLUTION) / RESOLUTION)
