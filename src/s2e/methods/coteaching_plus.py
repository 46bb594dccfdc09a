"""Co-teaching+ (Yu et al., 2019): Co-teaching among the samples for which the two networks disagree."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from s2e.errors import InvalidInput
from s2e.methods.decoupling import disagreement
from s2e.methods.interface import Batch, Need, Objective, ranked, sample_cross_entropy, selected_mean, smallest


@dataclass(frozen=True)
class CoteachingPlus:
    """Two networks that stay different: each is trained on the samples its peer selects among their disagreements.

    Attributes:
        warm_up: initial epochs of plain Co-teaching; the paper uses 0 for MNIST, 20 for CIFAR-10, 5 for CIFAR-100.
        by_class: keep the same share of the samples of every label.
    """

    name: ClassVar[str] = "coteaching+"
    networks: ClassVar[int] = 2
    needs: ClassVar[frozenset[Need]] = frozenset({Need.SCHEDULE})
    may_select_nothing: ClassVar[bool] = True

    warm_up: int = 0
    by_class: bool = False

    def __post_init__(self) -> None:
        if self.warm_up < 0:
            raise InvalidInput(f"`warm_up` must be at least 0 epochs, but got {self.warm_up}.")

    def objective(self, batch: Batch) -> Objective:
        """Average, for each network, over its peer's selection among the disagreements; without any, the loss is 0."""
        with torch.no_grad():
            losses = sample_cross_entropy(batch)
            warming_up = batch.epoch < self.warm_up  # (), a tensor, because one captured step serves all epochs
            eligible = disagreement(batch.logits, losses) | warming_up  # (P, B)
            count = torch.where(warming_up, batch.keep, _share(batch.keep_rate, eligible.sum(dim=-1))).unsqueeze(-1)
            eligible_losses = _eligible(losses, eligible)
            ranking = ranked(eligible_losses, batch, by_class=self.by_class)
            selected = smallest(ranking, count).flip(1)  # the selection of the peer
        # Masked before the loss and not after it: a NaN times a gradient of 0 is still NaN.
        masked = batch._replace(logits=torch.where(selected.unsqueeze(-1), batch.logits, 0.0))
        loss = selected_mean(sample_cross_entropy(masked), selected, count.clamp(min=1))
        return Objective(loss, losses, selected)


def _share(keep_rate: Tensor, size: Tensor) -> Tensor:
    """Return max(1, ⌊R·|D|⌋), the number of samples in a share of |D|, and 0 for |D| = 0: (P,), (P,) -> (P,) int64.

    R·|D| is a rounded product: 0.29·100 is below 29. As for a whole batch (`schedules.keep_counts`), 1e-9 is added
    before rounding down, far more than the rounding error and far less than any difference that matters.
    """
    whole = torch.floor(keep_rate * size + 1e-9).to(torch.int64)
    return torch.minimum(whole.clamp(min=1), size)


def _eligible(losses: Tensor, eligible: Tensor) -> Tensor:
    """Return losses among which the smallest are selected, of eligible samples only: (P, M, B), (P, B) -> (P, M, B).

    Samples that are not eligible become NaN and rank last. For eligible samples without a finite loss to rank before
    them, infinity becomes the largest number and NaN becomes infinity.
    """
    return torch.where(eligible.unsqueeze(1), losses.nan_to_num(nan=math.inf), math.nan)
