"""Records of a training, accumulated on the device inside the step.

On a GPU each step is added to the records at once, inside the captured step. On a CPU, where starting an operation
takes longer than a short operation itself, the steps of an epoch are collected and added together.

Letters: P members, p members of one method, M networks in a member, T epochs, N samples, B batch, I epoch intervals,
S steps that are added together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from s2e.engine.curves import EPOCH_INTERVALS, Curves, Dynamics
from s2e.methods import Objective


def bytes_per_member(samples: int, networks: int) -> int:
    """Return the device memory of a member's records: losses by epoch interval, kept and agreed, in float32.

    Steps of an epoch may be collected for each of its networks: a loss in float32 and two booleans for each sample.
    """
    return (4 * (EPOCH_INTERVALS + 2) + 6 * networks) * samples


class StepOutcome(NamedTuple):
    """Outcome of one step for the members of one method."""

    objective: Objective  # as the method returned it
    predicted: Tensor  # (p, M, B) predictions before the step
    labels: Tensor  # (p, B) given labels


class Steps(NamedTuple):
    """What is recorded of S steps, for the members of one method."""

    loss: Tensor  # (S, p, M) the minimised loss
    sample_losses: Tensor  # (S, p, M, B)
    selected: Tensor  # (S, p, M, B) bool, whether a network is trained on the sample
    agreed: Tensor  # (S, p, M, B) bool, whether it predicted the given label

    @classmethod
    def of_one(cls, outcome: StepOutcome) -> Steps:
        """Return one step."""
        return cls(*(tensor.unsqueeze(0) for tensor in _recorded(outcome)))

    @classmethod
    def empty(cls, outcome: StepOutcome, steps: int) -> Steps:
        """Return tensors for a number of steps like one."""
        return cls(*(tensor.new_empty(steps, *tensor.shape) for tensor in _recorded(outcome)))


def _recorded(outcome: StepOutcome) -> tuple[Tensor, ...]:
    """Return what is recorded of one step, in the order of `Steps`."""
    objective, agreed = outcome.objective, outcome.predicted == outcome.labels.unsqueeze(1)
    return objective.loss.detach(), objective.sample_losses, objective.selected, agreed


class CollectedSteps:
    """The steps of an epoch on a CPU.

    Args:
        first: the first step, of the members of each method.
        steps: S.
    """

    def __init__(self, first: Sequence[StepOutcome], steps: int) -> None:
        self.groups = [Steps.empty(outcome, steps) for outcome in first]
        self._rows = [[tensor.unbind() for tensor in group] for group in self.groups]
        self._next = 0

    def begin_epoch(self) -> None:
        """Start again with the first step."""
        self._next = 0

    def add(self, outcomes: Sequence[StepOutcome]) -> None:
        """Copy the next step, of the members of each method."""
        for rows, outcome in zip(self._rows, outcomes, strict=True):
            for of_tensor, tensor in zip(rows, _recorded(outcome), strict=True):
                of_tensor[self._next].copy_(tensor)
        self._next += 1


class Recorder:
    """Accumulates curves and dynamics on the device, in tensors whose addresses never change.

    Args:
        members: P.
        samples: N.
        epochs: T.
        correct: (P, N) bool, whether a given label is correct; None if unknown.
        device: device of the training.
        collect: add the steps of an epoch together at its end, not one by one.
        eligible: (P, N) bool, False for samples that a member holds out, which its curves do not count; None if there
            are none.
    """

    def __init__(
        self,
        members: int,
        samples: int,
        epochs: int,
        correct: Tensor | None,
        device: torch.device,
        *,
        collect: bool = False,
        eligible: Tensor | None = None,
    ) -> None:
        self._intervals = min(EPOCH_INTERVALS, epochs)
        self._samples, self._epochs = samples, epochs
        self._steps, self._order = 0, torch.empty(0, dtype=torch.int64)  # of this epoch
        self._collect = collect
        self._collected: CollectedSteps | None = None
        self._correct, self._eligible = correct, eligible
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
        eligible = None if self._eligible is None else self._eligible[rows]
        taken = Recorder(
            len(rows),
            self._samples,
            self._epochs,
            correct,
            self._loss.device,
            collect=self._collect,
            eligible=eligible,
        )
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

    def state(self) -> dict[str, Tensor]:
        """Return copies of all records of finished epochs, by name, on the CPU."""
        records = {name: tensor.to("cpu", copy=True) for name, tensor in self._records().items()}
        return {**records, "seen": torch.from_numpy(self._seen.copy())}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continue from the records that `state` returned, in place."""
        for name, tensor in self._records().items():
            tensor.copy_(state[name])
        self._seen = state["seen"].numpy().copy()

    def _records(self) -> dict[str, Tensor]:
        return {"finite": self._finite, "loss": self._loss, "kept": self._kept, "agreed": self._agreed}

    def begin_epoch(self, epoch: int, order: Tensor, steps: int) -> None:
        """Start an epoch with a number of steps over the samples of `order`, on the CPU."""
        interval = epoch * self._intervals // self._epochs
        self._seen[interval, order.numpy()] += 1
        self._first.fill_(interval * self._samples)
        self._sums.zero_()
        self._steps, self._order = steps, order
        if self._collected is not None:
            self._collected.begin_epoch()

    def record(self, index: Tensor, outcomes: Sequence[StepOutcome]) -> None:
        """Add one step of all members.

        Args:
            index: (B,) indices of the batch in the data.
            outcomes: of the members of each method, in the order of the members.
        """
        if not self._collect:
            self._add(index, [Steps.of_one(outcome) for outcome in outcomes])
            return
        if self._collected is None:
            self._collected = CollectedSteps(outcomes, self._steps)
        self._collected.add(outcomes)

    def _add(self, index: Tensor, groups: Sequence[Steps]) -> None:
        """Add S steps of all members to the records.

        Args:
            index: (S * B,) indices of the samples in the data, each of them once.
            groups: the steps of the members of each method, in the order of the members.
        """
        steps = len(groups[0].loss)
        correct_labels = _by_step(self._correct, index, steps)  # (P, S, B)
        eligible = _by_step(self._eligible, index, steps)
        sums, by_sample, first = [], [], 0
        for loss, sample_losses, is_selected, is_agreed in groups:
            selected, agreed = is_selected.float(), is_agreed.float()  # (S, p, M, B)
            kept = selected.sum(dim=-1)  # (S, p, M)
            members = slice(first, first + loss.shape[1])
            counted = agreed if eligible is None else agreed * eligible[members].transpose(0, 1).unsqueeze(2)
            by_network = [loss, counted.sum(dim=-1), kept]
            if correct_labels is not None:
                correct = correct_labels[members].transpose(0, 1).unsqueeze(2)  # (S, p, 1, B)
                by_network += [(selected * correct).sum(dim=-1) / kept.clamp(min=1), (kept > 0).float()]
            means = torch.stack(by_network).mean(dim=-1).transpose(1, 2)  # (3 or 5, p, S)
            sums.append(means.contiguous().sum(dim=-1))  # steps last in memory, or rounding would depend on p
            by_member = (each.sum(dim=2) for each in (sample_losses, selected, agreed))  # (S, p, B) each
            by_sample.append([each.transpose(0, 1).flatten(1) for each in by_member])  # (p, S * B) each
            first += loss.shape[1]
        all_sums = _concatenated(sums, dim=1)  # (3 or 5, P)
        self._sums[: len(all_sums)] += all_sums
        losses, kept, agreed = (_concatenated(each) for each in zip(*by_sample, strict=True))  # (P, S * B) each
        self._loss.index_add_(1, index + self._first, losses)
        self._kept.index_add_(1, index, kept)
        self._agreed.index_add_(1, index, agreed)

    def end_epoch(self, epoch: int, curves: Curves, rows: NDArray[np.int64]) -> None:
        """Write the means of the epoch into the given rows (P,) of the curves."""
        if self._collected is not None:
            self._add(self._order, self._collected.groups)
        loss, agreed, kept, precision, steps_with_kept = self._sums.double().cpu().numpy()
        samples: int | NDArray[np.int64] = len(self._order)
        if self._eligible is not None:
            trained_on = self._eligible.index_select(1, self._order.to(self._eligible.device)).sum(dim=1)
            samples = trained_on.clamp(min=1).cpu().numpy()  # (P,)
        curves.loss[rows, epoch] = loss / self._steps
        curves.train_accuracy[rows, epoch] = agreed / samples
        curves.kept[rows, epoch] = kept / samples
        if self._correct is not None:
            known = steps_with_kept > 0
            curves.label_precision[rows[known], epoch] = precision[known] / steps_with_kept[known]
        self._finite &= self._sums[0].isfinite()  # of a sum, it is finite only if all its terms are
        curves.diverged[rows] = ~self._finite.cpu().numpy()
        curves.epochs[rows] = epoch + 1

    def dynamics(self) -> Dynamics:
        """Return the dynamics of all epochs so far."""
        loss = self._loss.view(len(self._loss), self._intervals, self._samples)
        kept, agreed, losses = (sums.to("cpu", copy=True).numpy() for sums in (self._kept, self._agreed, loss))
        return Dynamics(self._seen, kept, agreed, losses)


def _by_step(of_samples: Tensor | None, index: Tensor, steps: int) -> Tensor | None:
    """Return the columns of (P, N) for the samples (S * B,) of some steps, (P, S, B)."""
    return None if of_samples is None else of_samples.index_select(1, index).unflatten(1, (steps, -1))


def _concatenated(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    return tensors[0] if len(tensors) == 1 else torch.cat(tuple(tensors), dim=dim)
