"""Records of a training: curves by epoch, and the dynamics of every sample, from which labels are audited.

Letters: P members, M networks in a member, T epochs, N samples, I epoch intervals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

EPOCH_INTERVALS = 10
"""Resolution in time of per-sample losses: a training is divided into this many equal intervals of epochs."""

LAST_EPOCHS = 10
"""Accuracies are reported as means over this many last epochs."""


@dataclass(frozen=True)
class Curves:
    """Curves of P members over T epochs.

    Values are means over the networks of a member. They are NaN for epochs that a stopped member was not trained.

    Attributes:
        loss: (P, T) float64, the minimised loss, mean over the batches of the epoch.
        train_accuracy: (P, T) float64, accuracy on the given (possibly wrong) training labels, measured on each batch
            before its step.
        kept: (P, T) float64, share of the samples in the batches that were trained on.
        label_precision: (P, T) float64, share of correctly labelled samples among those trained on; NaN if the true
            labels are unknown or no sample was trained on.
        accuracy: {name: (P, T) float64}, accuracy, or another score of the task, on each evaluated data set after the
            epoch.
        diverged: (P,) bool, whether the loss has ever been infinite or NaN.
        epochs: (P,) int64, epochs trained; less than T for stopped members.
    """

    loss: NDArray[np.float64]
    train_accuracy: NDArray[np.float64]
    kept: NDArray[np.float64]
    label_precision: NDArray[np.float64]
    accuracy: dict[str, NDArray[np.float64]]
    diverged: NDArray[np.bool_]
    epochs: NDArray[np.int64]

    @classmethod
    def empty(cls, members: int, epochs: int, evaluated: Iterable[str]) -> Curves:
        """Return curves to be filled in: NaN everywhere, 0 epochs, not diverged."""

        def blank() -> NDArray[np.float64]:
            return np.full((members, epochs), np.nan)

        accuracy = {name: blank() for name in evaluated}
        diverged, trained = np.zeros(members, dtype=bool), np.zeros(members, dtype=np.int64)
        return cls(blank(), blank(), blank(), blank(), accuracy, diverged, trained)

    @classmethod
    def concatenate(cls, parts: Sequence[Curves]) -> Curves:
        """Concatenate curves along the members."""
        arrays: dict[str, Any] = {}
        for item in fields(cls):
            values = [getattr(part, item.name) for part in parts]
            if item.name == "accuracy":
                arrays[item.name] = {name: np.concatenate([value[name] for value in values]) for name in values[0]}
            else:
                arrays[item.name] = np.concatenate(values)
        return cls(**arrays)

    def take(self, members: NDArray[np.int64]) -> Curves:
        """Return the curves of some members, in the given order."""
        taken: dict[str, Any] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name == "accuracy":
                taken[item.name] = {name: curve[members] for name, curve in value.items()}
            else:
                taken[item.name] = value[members]
        return Curves(**taken)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all arrays by name, for `np.savez`."""
        plain = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "accuracy"}
        return {**plain, **{f"accuracy_{name}": curve for name, curve in self.accuracy.items()}}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Curves:
        """Return the curves whose `arrays` these are."""
        prefix = "accuracy_"
        plain = {item.name: arrays[item.name] for item in fields(cls) if item.name != "accuracy"}
        accuracy = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
        return cls(accuracy=accuracy, **plain)

    def until(self, epoch: int) -> Curves:
        """Return a copy of the curves as they were after a number of epochs."""

        def cut(curve: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.where(np.arange(curve.shape[1]) < epoch, curve, np.nan)

        return Curves(
            cut(self.loss),
            cut(self.train_accuracy),
            cut(self.kept),
            cut(self.label_precision),
            {name: cut(curve) for name, curve in self.accuracy.items()},
            self.diverged & ~np.isfinite(self.loss[:, :epoch]).all(axis=1),
            np.minimum(self.epochs, epoch),
        )

    def last(self, name: str) -> NDArray[np.float64]:
        """Return the mean accuracy on a data set over the last epochs trained, (P,); 0 for members that diverged."""
        epoch = np.arange(self.accuracy[name].shape[1])
        last = (epoch < self.epochs[:, None]) & (epoch >= self.epochs[:, None] - LAST_EPOCHS)  # (P, T)
        mean = np.where(last, self.accuracy[name], 0.0).sum(axis=1) / np.maximum(last.sum(axis=1), 1)
        return np.where(self.diverged, 0.0, mean)


@dataclass(frozen=True)
class Dynamics:
    """Statistics of each of N training samples, collected while P members are trained.

    Counts and sums are over the networks of a member. Sample n was in a batch `seen[:, n].sum()` times, so a member of
    M networks has M times as many observations of it. Members share the batches, so `seen` is stored once: for the
    members trained longest. Members stopped earlier were trained on the first `Curves.epochs` epochs of these only.

    Attributes:
        seen: (I, N) int64, epochs of each epoch interval in which the sample was in a batch.
        kept: (P, N) float32, number of times a network was trained on the sample.
        agreed: (P, N) float32, number of times a network predicted the given label, just before the step.
        loss: (P, I, N) float32, loss of the sample, summed over networks and the epochs of an interval.
    """

    seen: NDArray[np.int64]
    kept: NDArray[np.float32]
    agreed: NDArray[np.float32]
    loss: NDArray[np.float32]

    @classmethod
    def concatenate(cls, parts: Sequence[Dynamics]) -> Dynamics:
        """Concatenate dynamics along the members; `seen` is that of the part trained longest."""
        arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in ("kept", "agreed", "loss")}
        return cls(seen=max((part.seen for part in parts), key=np.sum), **arrays)

    def take(self, members: NDArray[np.int64]) -> Dynamics:
        """Return the dynamics of some members, in the given order."""
        return Dynamics(self.seen, self.kept[members], self.agreed[members], self.loss[members])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all arrays by name, for `np.savez`."""
        return {item.name: getattr(self, item.name) for item in fields(self)}
