"""What a training leaves behind: curves by epoch, and the dynamics of every sample that a label audit needs.

Letters: P members, M networks in a member, T epochs, N samples, B batch, S stretches of epochs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

STRETCHES = 10
"""Resolution in time of the per-sample losses: training is cut into this many equal stretches of epochs."""

LAST_EPOCHS = 10
"""Accuracies are judged by their mean over this many last epochs, not by one lucky epoch."""


@dataclass(frozen=True)
class Curves:
    """What happened by epoch; every array is (P, T), means over the networks of a member and the batches of an epoch.

    Attributes:
        loss: the minimised loss.
        train_accuracy: accuracy on the given (noisy) training labels, as the epoch went.
        kept: share of the samples trained on.
        label_precision: share of correctly labelled samples among those trained on; NaN where true labels are unknown.
        accuracy: accuracy on each data set evaluated after every epoch, by its name.
        diverged: (P,) members whose loss stopped being finite.
        epochs: (P,) epochs trained; fewer than T for a member that was stopped, whose curves are NaN from there on.
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
        """Return curves to be filled in, NaN everywhere."""

        def blank() -> NDArray[np.float64]:
            return np.full((members, epochs), np.nan)

        accuracy = {name: blank() for name in evaluated}
        diverged, trained = np.zeros(members, dtype=bool), np.zeros(members, dtype=np.int64)
        return cls(blank(), blank(), blank(), blank(), accuracy, diverged, trained)

    @classmethod
    def concatenate(cls, parts: Sequence[Curves]) -> Curves:
        """Join the curves of chunks along the members."""
        joined: dict[str, Any] = {}
        for item in fields(cls):
            values = [getattr(part, item.name) for part in parts]
            if item.name == "accuracy":
                joined[item.name] = {name: np.concatenate([value[name] for value in values]) for name in values[0]}
            else:
                joined[item.name] = np.concatenate(values)
        return cls(**joined)

    def take(self, members: NDArray[np.int64]) -> Curves:
        """Return the curves of some members, in this order."""
        taken: dict[str, Any] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name == "accuracy":
                taken[item.name] = {name: curve[members] for name, curve in value.items()}
            else:
                taken[item.name] = value[members]
        return Curves(**taken)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything as named arrays, ready for `np.savez`."""
        plain = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "accuracy"}
        return {**plain, **{f"accuracy_{name}": curve for name, curve in self.accuracy.items()}}

    def last(self, name: str) -> NDArray[np.float64]:
        """Return the mean accuracy over the last epochs trained on a data set, (P,); 0 for members that diverged."""
        epoch = np.arange(self.accuracy[name].shape[1])
        counts = (epoch < self.epochs[:, None]) & (epoch >= self.epochs[:, None] - LAST_EPOCHS)  # (P, T)
        mean = np.where(counts, self.accuracy[name], 0.0).sum(axis=1) / np.maximum(counts.sum(axis=1), 1)
        return np.where(self.diverged, 0.0, mean)


@dataclass(frozen=True)
class Dynamics:
    """How training went for every sample, summed over the networks of a member.

    Attributes:
        seen: (S, N) epochs of each stretch in which the sample was in a batch; the same for all members.
        kept: (P, N) times it was trained on; with two networks, chosen by the peer, so up to twice as often as seen.
        agreed: (P, N) times a network predicted its given label, just before training on the batch.
        loss: (P, S, N) its loss, summed over the networks and the epochs of a stretch.
    """

    seen: NDArray[np.int64]
    kept: NDArray[np.float32]
    agreed: NDArray[np.float32]
    loss: NDArray[np.float32]

    @classmethod
    def concatenate(cls, parts: Sequence[Dynamics]) -> Dynamics:
        """Join the dynamics of chunks along the members; what all members share is taken once."""
        joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in ("kept", "agreed", "loss")}
        return cls(seen=parts[0].seen, **joined)

    def take(self, members: NDArray[np.int64]) -> Dynamics:
        """Return the dynamics of some members, in this order."""
        return Dynamics(self.seen, self.kept[members], self.agreed[members], self.loss[members])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything as named arrays, ready for `np.savez`."""
        return {item.name: getattr(self, item.name) for item in fields(self)}
