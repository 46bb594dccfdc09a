"""Standard training: the mean cross-entropy of the whole batch, wrong labels included."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from s2e.methods.interface import Batch, Need, Objective, sample_cross_entropy, selected_mean


@dataclass(frozen=True)
class Standard:
    """One network, trained on every sample."""

    name: ClassVar[str] = "standard"
    networks: ClassVar[int] = 1
    needs: ClassVar[frozenset[Need]] = frozenset()
    may_select_nothing: ClassVar[bool] = False
    may_hold_out: ClassVar[bool] = True

    def objective(self, batch: Batch) -> Objective:
        """Average over the batch."""
        losses = sample_cross_entropy(batch)
        if batch.eligible is not None:
            selected = batch.eligible.unsqueeze(1).expand_as(losses)  # (P, 1, B)
            loss = selected_mean(losses, selected, selected.sum(dim=-1).clamp(min=1))
            return Objective(loss, losses.detach(), selected)
        selected = torch.ones_like(losses, dtype=torch.bool)
        return Objective(losses.mean(dim=-1), losses.detach(), selected)
