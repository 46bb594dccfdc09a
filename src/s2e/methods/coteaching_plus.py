"""Co-teaching+ (Yu et al., 2019): Co-teaching among the samples for which the two networks disagree."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from s2e.errors import InvalidInput
from s2e.methods.decoupling import disagreement
from s2e.methods.interface import Batch, Need, Objective, sample_cross_entropy, selected_mean, smallest


@dataclass(frozen=True)
class CoteachingPlus:
    """Two networks, each trained on the small-loss picks of its peer among their disagreements, so that they stay two.

    Attributes:
        warm_up: epochs of plain Co-teaching at first; the paper uses 0 for MNIST, 20 for CIFAR-10, 5 for CIFAR-100.
    """

    name: ClassVar[str] = "coteaching+"
    networks: ClassVar[int] = 2
    needs: ClassVar[frozenset[Need]] = frozenset({Need.SCHEDULE})
    may_select_nothing: ClassVar[bool] = True

    warm_up: int = 0

    def __post_init__(self) -> None:
        if self.warm_up < 0:
            raise InvalidInput(f"`warm_up` must be at least 0 epochs, but got {self.warm_up}.")

    def objective(self, batch: Batch) -> Objective:
        """Average, for each network, over the disagreements the other one finds easy; over none, the loss is 0."""
        with torch.no_grad():
            losses = sample_cross_entropy(batch)
            warming_up = batch.epoch < self.warm_up  # (); a tensor, because one captured step serves all epochs
            eligible = disagreement(batch.logits, losses) | warming_up  # (P, B)
            count = torch.where(warming_up, batch.keep, _share(batch.keep_rate, eligible.sum(dim=-1))).unsqueeze(-1)
            selected = _smallest_among(losses, eligible, count).flip(1)  # the picks change hands
        # The others are cut off before the loss: behind it a NaN would remain one, even multiplied by a gradient of 0.
        picked = batch._replace(logits=torch.where(selected.unsqueeze(-1), batch.logits, 0.0))
        loss = selected_mean(sample_cross_entropy(picked), selected, count.clamp(min=1))
        return Objective(loss, losses, selected)


def _share(keep_rate: Tensor, size: Tensor) -> Tensor:
    """Whole samples in a share of so many, max(1, ⌊R·|D|⌋), but 0 of none: (P,), (P,) -> (P,) int64.

    R·|D| is a rounded product: 0.29·100 comes out below 29. As for a whole batch (`schedules.keep_counts`) it is lifted
    by 1e-9 before it is cut, far more than its rounding error and far less than any difference that matters.
    """
    whole = torch.floor(keep_rate * size + 1e-9).to(torch.int64)
    return torch.minimum(whole.clamp(min=1), size)


def _smallest_among(losses: Tensor, eligible: Tensor, count: Tensor) -> Tensor:
    """Mark the smallest losses of each row among eligible samples: (P, M, B), (P, B), (P, 1) -> (P, M, B) bool.

    What is not eligible becomes NaN and ranks last. For a broken sample to rank before it, infinity becomes the largest
    number there is and NaN becomes infinity.
    """
    ranked = torch.where(eligible.unsqueeze(1), losses.nan_to_num(nan=math.inf), math.nan)
    return smallest(ranked, count)
