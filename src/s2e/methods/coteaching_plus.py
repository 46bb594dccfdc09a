"""Co-teaching+ (Yu et al., 2019): Co-teaching among the samples for which the two networks disagree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from s2e.errors import InvalidInput
from s2e.methods.decoupling import disagreement
from s2e.methods.interface import (
    Batch,
    Need,
    Objective,
    keep_count,
    sample_cross_entropy,
    selected_mean,
    small_losses,
)


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
    may_hold_out: ClassVar[bool] = True

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
            if batch.eligible is not None:
                eligible = eligible & batch.eligible
            count = torch.where(warming_up, batch.keep, keep_count(batch.keep_rate, eligible.sum(dim=-1))).unsqueeze(-1)
            chosen = small_losses(losses, count, batch._replace(eligible=eligible), by_class=self.by_class)
            selected = chosen.flip(1)  # the selection of the peer
        # Masked before the loss and not after it: a NaN times a gradient of 0 is still NaN.
        masked = batch._replace(logits=torch.where(selected.unsqueeze(-1), batch.logits, 0.0))
        loss = selected_mean(sample_cross_entropy(masked), selected, count)
        return Objective(loss, losses, selected)
