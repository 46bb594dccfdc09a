"""What a label audit reads of a training: how often each sample was trained on, its losses, and the predictions.

Letters: P members, M networks in a member, N samples, S epoch intervals, C classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from s2e.data.samples import LabelledData
from s2e.engine.inference import predictions
from s2e.engine.task import Task, Trained
from s2e.errors import InvalidInput

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Labels = NDArray[np.int64]


def records_of(
    task: Task, trained: Trained, members: Sequence[int], unseen: LabelledData | None = None
) -> dict[str, NDArray[Any]]:
    """Return what a label audit reads of every training sample, and of others whose labels are as doubtful.

    The latter were never trained on: only what the networks believe speaks about them. The M networks are those of all
    these members, whose records are summed.
    """
    dynamics, train, chosen = trained.dynamics.arrays(), task.train, list(members)
    own = {name: array if name == "seen" else array[chosen].sum(axis=0) for name, array in dynamics.items()}
    parts = [train] if unseen is None else [train, unseen]
    more = sum(map(len, parts[1:]))
    for name, array in own.items():  # (N,) or (S, N)
        own[name] = np.concatenate([array, np.zeros((*array.shape[:-1], more), dtype=array.dtype)], axis=-1)
    networks = [row for member in chosen for row in range(sum(trained.networks))[trained.rows(member)]]
    state = {name: tensor[networks] for name, tensor in trained.state.items()}
    believed = [predictions(task, state, part.inputs)[..., : train.classes] for part in parts]
    return own | {
        "rows": np.concatenate([part.rows for part in parts]),
        "labels": np.concatenate([part.labels for part in parts]),
        "probabilities": np.concatenate(believed, axis=1).astype(np.float16),  # (M, N, C)
    }


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a training leaves behind about the labels it was given.

    Attributes:
        labels: (N,) integers in [0, C), the labels given.
        probabilities: (M, N, C) of the trained networks on the training inputs; rows need not sum to 1.
        kept: (N,) share, in [0, 1], of the times a sample was seen that a network was trained on it.
        loss: (S, N) mean cross-entropy of the given label over the networks and the epochs of a stretch; NaN where the
            sample was not seen. Where it never was, the probabilities speak for the given label too.
    """

    labels: Labels
    probabilities: NDArray[np.floating[Any]]
    kept: Floats
    loss: Floats

    def __post_init__(self) -> None:
        problems = self._misshapen() or self._out_of_range()
        if problems:
            raise InvalidInput(" ".join(problems))

    @classmethod
    def from_dynamics(
        cls,
        *,
        seen: NDArray[np.integer[Any]],
        kept: NDArray[np.floating[Any]],
        loss: NDArray[np.floating[Any]],
        labels: NDArray[np.integer[Any]],
        probabilities: NDArray[np.floating[Any]],
    ) -> Evidence:
        """Turn the sums that `records.Dynamics` holds for one member into means.

        Args:
            seen: (S, N) epochs of each stretch in which the sample was in a batch.
            kept: (N,) times it was trained on, summed over the M networks.
            loss: (S, N) its loss, summed over the networks and the epochs of a stretch.
            labels: (N,) the labels given.
            probabilities: (M, N, C) of the member's networks, in the end.
        """
        times = len(probabilities) * np.asarray(seen, dtype=np.float64)  # (S, N)
        total = times.sum(axis=0)  # (N,)
        mean = np.divide(loss, times, out=np.full(times.shape, np.nan), where=times > 0)
        share = np.divide(kept, total, out=np.zeros(total.shape), where=total > 0)
        return cls(np.asarray(labels, dtype=np.int64), probabilities, share, mean)

    @classmethod
    def from_records(cls, records: Mapping[str, NDArray[Any]]) -> Evidence:
        """Take what a final training wrote down."""
        return cls.from_dynamics(
            seen=records["seen"],
            kept=records["kept"],
            loss=records["loss"],
            labels=records["labels"],
            probabilities=records["probabilities"],
        )

    @property
    def classes(self) -> int:
        """C."""
        return int(self.probabilities.shape[2])

    def _misshapen(self) -> list[str]:
        """Return what is wrong with the shapes."""
        if self.labels.ndim != 1 or len(self.labels) == 0:
            return [f"`labels` must be (N,) for at least one sample, but got the shape {self.labels.shape}."]
        samples, problems = len(self.labels), []
        shape = self.probabilities.shape
        if len(shape) != 3 or shape[0] < 1 or shape[1] != samples or shape[2] < 2:
            problems.append(f"`probabilities` must be (M, {samples}, C) with M >= 1 and C >= 2, but got {shape}.")
        if self.kept.shape != (samples,):
            problems.append(f"`kept` must be ({samples},) as the labels are, but got {self.kept.shape}.")
        if self.loss.ndim != 2 or self.loss.shape[1] != samples:
            problems.append(f"`loss` must be (S, {samples}), but got {self.loss.shape}.")
        return problems

    def _out_of_range(self) -> list[str]:
        """Return what is wrong with the numbers, once the shapes are right."""
        problems = []
        if self.labels.dtype.kind != "i" or self.labels.min() < 0 or self.labels.max() >= self.classes:
            found = f"{self.labels.min()}..{self.labels.max()} of type {self.labels.dtype}"
            problems.append(f"`labels` must be integers in 0..{self.classes - 1}, but got {found}.")
        sums = self.probabilities.sum(axis=2)  # (M, N)
        usable = (self.probabilities >= 0).all() and (np.isfinite(sums) & (sums > 0)).all()
        if not usable:
            problems.append(
                "`probabilities` must be finite, not negative, and not all zero for a sample, but some are not; "
                "networks that diverged cannot judge labels."
            )
        if not ((self.kept >= 0) & (self.kept <= 1)).all():
            problems.append(f"`kept` must lie in [0, 1], but got {self.kept.min():g}..{self.kept.max():g}.")
        if (self.loss < 0).any():
            problems.append(f"`loss` must not be negative, but got {np.nanmin(self.loss):g}.")
        return problems
