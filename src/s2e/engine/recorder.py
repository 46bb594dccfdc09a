"""Records of a training, accumulated on the device inside the step.

Letters: P members, p members of one method, M networks in a member, T epochs, N samples, B batch, I epoch intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from s2e.engine.curves import EPOCH_INTERVALS, Curves, Dynamics
from s2e.methods import Objective


def bytes_per_member(samples: int) -> int:
    """Return the device memory of a member's records: losses by epoch interval, kept and agreed, in float32."""
    return 4 * (EPOCH_INTERVALS + 2) * samples


class StepOutcome(NamedTuple):
    """Outcome of one step for the members of one method."""

    objective: Objective  # as the method returned it
    predicted: Tensor  # (p, M, B) predictions before the step
    labels: Tensor  # (p, B) given labels


class Recorder:
    """Accumulates curves and dynamics on the device, in tensors whose addresses never change.

    Args:
        members: P.
        samples: N.
        epochs: T.
        correct: (P, N) bool, whether a given label is correct; None if unknown.
        device: device of the training.
    """

    def __init__(self, members: int, samples: int, epochs: int, correct: Tensor | None, device: torch.device) -> None:
        self._intervals = min(EPOCH_INTERVALS, epochs)
        self._samples, self._epochs = samples, epochs
        self._steps = self._samples_in_batches = 0  # of this epoch
        self._correct = correct
        self._finite = torch.ones(members, dtype=torch.bool, device=device)
        # Of this epoch, means over networks: loss, samples predicted as labelled, samples kept, label precision, steps
        # with at least one sample kept.
        self._sums = torch.zeros(5, members, device=device)
        self._first = torch.zeros(1, dtype=torch.int64, device=device)  # first column of this interval in `_loss`
        self._loss = torch.zeros(members, self._intervals * samples, device=device)
        self._kept = torch.zeros(members, samples, device=device)
        self._agreed = torch.zeros(members, samples, device=device)
        self._seen = np.zeros((self._intervals, samples), dtype=np.int64)

    def take(self, members: Sequence[int]) -> Recorder:
        """Return a recorder that continues the records of some of the members, in the given order."""
        rows = list(members)
        correct = None if self._correct is None else self._correct[rows]
        taken = Recorder(len(rows), self._samples, self._epochs, correct, self._loss.device)
        taken._finite.copy_(self._finite[rows])
        taken._loss.copy_(self._loss[rows])
        taken._kept.copy_(self._kept[rows])
        taken._agreed.copy_(self._agreed[rows])
        taken._seen[:] = self._seen
        return taken

    def reset(self) -> None:
        """Clear all records in place; dynamics returned earlier stay as they are."""
        self._finite.fill_(True)
        for sums in (self._loss, self._kept, self._agreed):
            sums.zero_()
        self._seen = np.zeros_like(self._seen)

    def begin_epoch(self, epoch: int, order: Tensor, steps: int) -> None:
        """Start an epoch with a number of steps over the samples of `order`, on the CPU."""
        interval = epoch * self._intervals // self._epochs
        self._seen[interval, order.numpy()] += 1
        self._first.fill_(interval * self._samples)
        self._sums.zero_()
        self._steps, self._samples_in_batches = steps, len(order)

    def record(self, index: Tensor, outcomes: Sequence[StepOutcome]) -> None:
        """Add one step of all members.

        Args:
            index: (B,) indices of the batch in the data.
            outcomes: of the members of each method, in the order of the members.
        """
        correct_labels = None if self._correct is None else self._correct.index_select(1, index)  # (P, B)
        means, by_sample, finite, first = [], [], [], 0
        for objective, predicted, labels in outcomes:
            loss = objective.loss.detach()  # (p, M)
            agreed = (predicted == labels.unsqueeze(1)).float()  # (p, M, B)
            selected = objective.selected.float()  # (p, M, B)
            kept = selected.sum(dim=-1)  # (p, M)
            by_network = [loss, agreed.sum(dim=-1), kept]
            if correct_labels is not None:
                correct = correct_labels[first : first + len(loss)].unsqueeze(1)  # (p, 1, B)
                by_network += [(selected * correct).sum(dim=-1) / kept.clamp(min=1), (kept > 0).float()]
            means.append(torch.stack(by_network).mean(dim=-1))
            by_sample.append([sums.sum(dim=1) for sums in (objective.sample_losses, selected, agreed)])  # (p, B) each
            finite.append(loss.isfinite().all(dim=1))
            first += len(loss)
        all_means = _concatenated(means, dim=1)  # (3 or 5, P)
        self._sums[: len(all_means)] += all_means
        self._finite &= _concatenated(finite)
        losses, kept, agreed = (_concatenated(each) for each in zip(*by_sample, strict=True))  # (P, B) each
        self._loss.index_add_(1, index + self._first, losses)
        self._kept.index_add_(1, index, kept)
        self._agreed.index_add_(1, index, agreed)

    def end_epoch(self, epoch: int, curves: Curves, rows: NDArray[np.int64]) -> None:
        """Write the means of the epoch into the given rows (P,) of the curves."""
        loss, agreed, kept, precision, steps_with_kept = self._sums.double().cpu().numpy()
        curves.loss[rows, epoch] = loss / self._steps
        curves.train_accuracy[rows, epoch] = agreed / self._samples_in_batches
        curves.kept[rows, epoch] = kept / self._samples_in_batches
        if self._correct is not None:
            known = steps_with_kept > 0
            curves.label_precision[rows[known], epoch] = precision[known] / steps_with_kept[known]
        curves.diverged[rows] = ~self._finite.cpu().numpy()
        curves.epochs[rows] = epoch + 1

    def dynamics(self) -> Dynamics:
        """Return the dynamics of all epochs so far."""
        loss = self._loss.view(len(self._loss), self._intervals, self._samples)
        kept, agreed, losses = (sums.to("cpu", copy=True).numpy() for sums in (self._kept, self._agreed, loss))
        return Dynamics(self._seen, kept, agreed, losses)


def _concatenated(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    return tensors[0] if len(tensors) == 1 else torch.cat(tuple(tensors), dim=dim)
