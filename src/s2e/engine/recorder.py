"""."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from s2e.engine.curves import STRETCHES, Curves, Dynamics
from s2e.methods import Objective


def bytes_per_member(samples: int) -> int:
    """Return the memory a member's records take on the device: losses by stretch, kept and agreed, float32."""
    return 4 * (STRETCHES + 2) * samples


class Observed(NamedTuple):
    """One step of members that are trained by one method."""

    objective: Objective  # what the method made of the batch
    predicted: Tensor  # (p, M, B) predictions before the step
    labels: Tensor  # (p, B) given labels


class Recorder:
    """Accumulates on the device, inside the step, in tensors whose addresses never change.

    Args:
        members: P.
        samples: N.
        epochs: T.
        clean: (P, N) bool, which labels are right, or None where nobody knows.
        device: where the step runs.
    """

    def __init__(self, members: int, samples: int, epochs: int, clean: Tensor | None, device: torch.device) -> None:
        self._stretches = min(STRETCHES, epochs)
        self._samples, self._epochs = samples, epochs
        self._steps = self._in_batches = 0  # of this epoch: steps, and samples in all of them
        self._clean = clean
        self._finite = torch.ones(members, dtype=torch.bool, device=device)
        # Of this epoch, means over networks: loss, samples predicted right, samples kept, precision, steps with a pick.
        self._sums = torch.zeros(5, members, device=device)
        self._first = torch.zeros(1, dtype=torch.int64, device=device)  # where this stretch begins in `_loss`
        self._loss = torch.zeros(members, self._stretches * samples, device=device)
        self._kept = torch.zeros(members, samples, device=device)
        self._agreed = torch.zeros(members, samples, device=device)
        self._seen = np.zeros((self._stretches, samples), dtype=np.int64)

    def take(self, members: Sequence[int]) -> Recorder:
        """Return a recorder of some of the members, in this order, which goes on from what is recorded of them."""
        rows = list(members)
        clean = None if self._clean is None else self._clean[rows]
        taken = Recorder(len(rows), self._samples, self._epochs, clean, self._loss.device)
        taken._finite.copy_(self._finite[rows])
        taken._loss.copy_(self._loss[rows])
        taken._kept.copy_(self._kept[rows])
        taken._agreed.copy_(self._agreed[rows])
        taken._seen[:] = self._seen
        return taken

    def restart(self) -> None:
        """Forget everything, in the same tensors; what was handed out before stays as it is."""
        self._finite.fill_(True)
        for sums in (self._loss, self._kept, self._agreed):
            sums.zero_()
        self._seen = np.zeros_like(self._seen)

    def begin_epoch(self, epoch: int, order: Tensor, steps: int) -> None:
        """Start an epoch of so many steps over the samples of `order` (on the CPU)."""
        stretch = epoch * self._stretches // self._epochs
        self._seen[stretch, order.numpy()] += 1
        self._first.fill_(stretch * self._samples)
        self._sums.zero_()
        self._steps, self._in_batches = steps, len(order)

    def record(self, index: Tensor, parts: Sequence[Observed]) -> None:
        """Add one step of all members.

        Args:
            index: (B,) positions of the batch in the data.
            parts: what was seen of the members of each method, in their order.
        """
        right = None if self._clean is None else self._clean.index_select(1, index)  # (P, B)
        rows, samples, finite, first = [], [], [], 0
        for objective, predicted, labels in parts:
            loss = objective.loss.detach()  # (p, M)
            correct = (predicted == labels.unsqueeze(1)).float()  # (p, M, B)
            selected = objective.selected.float()  # (p, M, B)
            picks = selected.sum(dim=-1)  # (p, M)
            by_network = [loss, correct.sum(dim=-1), picks]
            if right is not None:
                clean = right[first : first + len(loss)].unsqueeze(1)  # (p, 1, B)
                by_network += [(selected * clean).sum(dim=-1) / picks.clamp(min=1), (picks > 0).float()]
            rows.append(torch.stack(by_network).mean(dim=-1))
            samples.append([sums.sum(dim=1) for sums in (objective.sample_losses, selected, correct)])  # (p, B) each
            finite.append(loss.isfinite().all(dim=1))
            first += len(loss)
        means_of_all = _joined(rows, dim=1)  # (3 or 5, P)
        self._sums[: len(means_of_all)] += means_of_all
        self._finite &= _joined(finite)
        losses, kept, agreed = (_joined(each) for each in zip(*samples, strict=True))  # (P, B) each
        self._loss.index_add_(1, index + self._first, losses)
        self._kept.index_add_(1, index, kept)
        self._agreed.index_add_(1, index, agreed)

    def end_epoch(self, epoch: int, curves: Curves, rows: NDArray[np.int64] | None = None) -> None:
        """Write the means of the epoch into the curves; `rows` (P,) says where, when they hold others too."""
        places = np.arange(len(self._finite)) if rows is None else rows
        loss, correct, kept, precision, picked = self._sums.double().cpu().numpy()
        curves.loss[places, epoch] = loss / self._steps
        curves.train_accuracy[places, epoch] = correct / self._in_batches
        curves.kept[places, epoch] = kept / self._in_batches
        if self._clean is not None:
            known = picked > 0
            curves.label_precision[places[known], epoch] = precision[known] / picked[known]
        curves.diverged[places] = ~self._finite.cpu().numpy()
        curves.epochs[places] = epoch + 1

    def dynamics(self) -> Dynamics:
        """Return what was accumulated over all epochs."""
        loss = self._loss.view(len(self._loss), self._stretches, self._samples)
        kept, agreed, losses = (sums.to("cpu", copy=True).numpy() for sums in (self._kept, self._agreed, loss))
        return Dynamics(self._seen, kept, agreed, losses)


def _joined(parts: Sequence[Tensor], dim: int = 0) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(tuple(parts), dim=dim)
