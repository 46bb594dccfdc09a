"""The records of a training that a label audit uses: how often each sample was trained on, its losses, the predictions.

Letters: P members, M networks in a member, N samples, S epoch intervals, C classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from s2e.data import LabelledData
from s2e.engine import Task, Trained, predictions
from s2e.errors import DIVERGED_ADVICE, InvalidInput

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Labels = NDArray[np.int64]


def records_of(
    task: Task,
    trained: Trained,
    members: Sequence[int],
    unseen: LabelledData | None = None,
    *,
    held_out: Mapping[int, NDArray[np.bool_]] | None = None,
) -> dict[str, NDArray[Any]]:
    """Return the records of every training sample, and of held-out samples whose labels are as noisy.

    No network was trained on held-out samples, so their only records are the predictions.

    Args:
        task: task of the training.
        trained: the trained population.
        members: indices of the members to use. Their records are summed; the M networks are those of all of them.
        unseen: the held-out samples.
        held_out: (N,) bool, the training samples that a member held out, by its index; each sample is held out by one.
            If none of these members diverged, their predictions are recorded as those out of fold.
    """
    dynamics, train, indices = trained.dynamics.arrays(), task.train, list(members)
    sums = {name: array if name == "seen" else array[indices].sum(axis=0) for name, array in dynamics.items()}
    parts = [train] if unseen is None else [train, unseen]
    more = sum(map(len, parts[1:]))
    for name, array in sums.items():  # (N,) or (S, N)
        sums[name] = np.concatenate([array, np.zeros((*array.shape[:-1], more), dtype=array.dtype)], axis=-1)
    state = {
        name: torch.cat([tensor[trained.rows(member)] for member in indices]) for name, tensor in trained.state.items()
    }
    probabilities = np.empty((len(next(iter(state.values()))), len(train) + more, train.classes), dtype=np.float16)
    predictions(task, state, train.inputs, out=probabilities[:, : len(train)])
    if unseen is not None:
        predictions(task, state, unseen.inputs, out=probabilities[:, len(train) :])
    records = {
        **sums,
        "rows": np.concatenate([part.rows for part in parts]),
        "labels": np.concatenate([part.labels for part in parts]),
        "probabilities": probabilities,  # (M, N, C)
        **_known(parts),
        **_annotations(parts),
    }
    if held_out and not trained.curves.diverged[list(held_out)].any():
        records["out_of_fold"] = _out_of_fold(task, trained, held_out, unseen)
    return records


def _out_of_fold(
    task: Task, trained: Trained, held_out: Mapping[int, NDArray[np.bool_]], unseen: LabelledData | None
) -> NDArray[np.float16]:
    """Return the probabilities of each sample under networks not trained on it, means over a member's networks, (N, C).

    Samples that no member was trained on are divided among the members, so that all predictions are of one kind.
    """
    samples = len(task.train)
    found = np.empty((samples + (0 if unseen is None else len(unseen)), task.train.classes), dtype=np.float16)
    for member, mask in held_out.items():
        found[: len(mask)][mask] = _of_member(task, trained, member, task.train.inputs[mask])
    if unseen is not None:
        found[samples:] = probabilities_out_of_fold(task, trained, list(held_out), unseen)
    return found


def probabilities_out_of_fold(
    task: Task, trained: Trained, members: Sequence[int], unseen: LabelledData
) -> NDArray[np.float16]:
    """Return the probabilities of samples that no member was trained on, which are divided among members, (N, C)."""
    found = np.empty((len(unseen), task.train.classes), dtype=np.float16)
    for turn, member in enumerate(members):
        turns = np.arange(turn, len(unseen), len(members))
        found[turns] = _of_member(task, trained, member, unseen.inputs[turns])
    return found


def _of_member(task: Task, trained: Trained, member: int, inputs: NDArray[Any]) -> NDArray[np.floating[Any]]:
    """Return the probabilities of samples under a member, the mean over its networks, (N, C)."""
    state = {name: tensor[trained.rows(member)] for name, tensor in trained.state.items()}
    return np.asarray(predictions(task, state, inputs)[..., : task.train.classes].mean(axis=0))


def _annotations(parts: Sequence[LabelledData]) -> dict[str, NDArray[Any]]:
    """Return the labels of several annotators, (L, 3): sample, annotator and label; nothing if there are none."""
    given = [part.annotations.triples() for part in parts if part.annotations is not None]
    if len(given) < len(parts):
        return {}
    for triples, before in zip(given[1:], np.cumsum([len(part) for part in parts[:-1]]), strict=True):
        triples[:, 0] += before
    return {"annotations": np.concatenate(given)}


def _known(parts: Sequence[LabelledData]) -> dict[str, NDArray[Any]]:
    """Return which labels were reviewed, and the true labels, where some were and where they are known."""
    known: dict[str, NDArray[Any]] = {}
    if any(part.reviewed is not None for part in parts):
        masks = [np.zeros(len(part), dtype=bool) if part.reviewed is None else part.reviewed for part in parts]
        known["reviewed"] = np.concatenate(masks)
    true = [part.clean_labels for part in parts if part.clean_labels is not None]
    if len(true) == len(parts):
        known["clean_labels"] = np.concatenate(true)
    return known


@dataclass(frozen=True, eq=False)
class Evidence:
    """The input of a label audit.

    Attributes:
        labels: (N,) integers in [0, C), the given labels.
        probabilities: (M, N, C) of the trained networks; rows need not sum to 1.
        kept: (N,) share, in [0, 1], of the times a sample was in a batch that a network was trained on it.
        loss: (S, N) mean cross-entropy of the given label over the networks and the epochs of an interval; NaN where
            the sample was in no batch. Where all are NaN, the probabilities are used for the given label too.
        annotations: (L, 3) sample, annotator and label of the labels whose consensus the given labels are, where
            several annotators labelled the samples; else None.
        reviewed: (N,) bool, given labels that are known to be correct; None for none.
        trusted: number of samples, also others than these, by whose known labels the classifiers were chosen.
    """

    labels: Labels
    probabilities: NDArray[np.floating[Any]]
    kept: Floats
    loss: Floats
    annotations: Labels | None = None
    reviewed: NDArray[np.bool_] | None = None
    trusted: int = 0

    def __post_init__(self) -> None:
        problems = self._shape_problems() or self._range_problems()
        if problems:
            raise InvalidInput(" ".join(problems))

    @classmethod
    def from_records(cls, records: Mapping[str, NDArray[Any]]) -> Evidence:
        """Turn the sums that `records_of` returns into means.

        Args:
            records: `seen`, (S, N) epochs of each interval in which the sample was in a batch; `kept`, (N,) times a
                network was trained on it; `loss`, (S, N) its losses, summed over the networks and the epochs of an
                interval; `labels`, (N,); `probabilities`, (M, N, C). With `out_of_fold`, (N, C), probabilities of
                networks not trained on the sample, only these and the labels are used. `annotations`, (L, 3), where
                several annotators labelled the samples; `reviewed`, (N,), if some labels were; `trusted`, () if known
                labels were used.
        """
        labels = np.asarray(records["labels"], dtype=np.int64)
        annotations, reviewed = records.get("annotations"), records.get("reviewed")
        trusted = int(records.get("trusted", 0))
        if "out_of_fold" in records:
            unseen = np.zeros(len(labels)), np.empty((0, len(labels)))
            return cls(labels, records["out_of_fold"][None], *unseen, annotations, reviewed, trusted)
        probabilities = records["probabilities"]
        times = len(probabilities) * np.asarray(records["seen"], dtype=np.float64)  # (S, N)
        total = times.sum(axis=0)  # (N,)
        mean = np.divide(records["loss"], times, out=np.full(times.shape, np.nan), where=times > 0)
        share = np.divide(records["kept"], total, out=np.zeros(total.shape), where=total > 0)
        return cls(labels, probabilities, share, mean, annotations, reviewed, trusted)

    def without_losses(self) -> Evidence:
        """Return the evidence without the losses, for methods whose losses are not those of the given labels."""
        return replace(self, loss=np.full_like(self.loss, np.nan))

    @property
    def classes(self) -> int:
        """Return C."""
        return int(self.probabilities.shape[2])

    def _shape_problems(self) -> list[str]:
        """Return the problems of the shapes."""
        if self.labels.ndim != 1 or len(self.labels) == 0:
            return [f"`labels` must be (N,) for at least one sample, but got {self.labels.shape}."]
        samples, problems = len(self.labels), []
        shape = self.probabilities.shape
        if len(shape) != 3 or shape[0] < 1 or shape[1] != samples or shape[2] < 2:
            problems.append(f"`probabilities` must be (M, {samples}, C) with M >= 1 and C >= 2, but got {shape}.")
        if self.kept.shape != (samples,):
            problems.append(f"`kept` must be ({samples},) like the labels, but got {self.kept.shape}.")
        if self.loss.ndim != 2 or self.loss.shape[1] != samples:
            problems.append(f"`loss` must be (S, {samples}), but got {self.loss.shape}.")
        given = self.annotations
        if given is not None and (given.ndim != 2 or given.shape[1] != 3 or len(given) == 0):
            problems.append(f"`annotations` must be (L, 3) for at least one label, but got {given.shape}.")
        if self.reviewed is not None and (self.reviewed.dtype != bool or self.reviewed.shape != (samples,)):
            problems.append(f"`reviewed` must be ({samples},) booleans, but got {self.reviewed.shape}.")
        return problems

    def _range_problems(self) -> list[str]:
        """Return the problems of the values; the shapes must be correct."""
        problems = []
        if self.labels.dtype.kind != "i" or self.labels.min() < 0 or self.labels.max() >= self.classes:
            found = f"{self.labels.min()}..{self.labels.max()} of type {self.labels.dtype}"
            problems.append(f"`labels` must be integers in 0..{self.classes - 1}, but got {found}.")
        with np.errstate(invalid="ignore", over="ignore"):  # of numbers that are refused below
            sums = self.probabilities.sum(axis=2)  # (M, N)
        if not (self.probabilities.min() >= 0 and (np.isfinite(sums) & (sums > 0)).all()):
            problems.append(
                "`probabilities` must be finite, not negative, and not all zero for a sample, but some are not; "
                f"labels cannot be audited by networks that diverged: {DIVERGED_ADVICE}."
            )
        if not ((self.kept >= 0) & (self.kept <= 1)).all():
            problems.append(f"`kept` must lie in [0, 1], but got {self.kept.min():g}..{self.kept.max():g}.")
        if (self.loss < 0).any():
            problems.append(f"`loss` must be at least 0, but got {np.nanmin(self.loss):g}.")
        given = self.annotations
        if given is not None and ((given < 0).any() or (given[:, ::2] >= [len(self.labels), self.classes]).any()):
            problems.append("`annotations` must hold indices of samples, annotators and classes, but some are not.")
        return problems
