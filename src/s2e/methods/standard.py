"""Standard training: the mean cross-entropy of the whole batch, wrong labels included."""

from __future__ import annotations

import torch

from s2e.methods.interface import Batch, Objective, sample_cross_entropy


class Standard:
    """One network, every sample."""

    name = "standard"
    networks = 1
    uses_schedule = False

    def objective(self, batch: Batch) -> Objective:
        """Average over the batch."""
        losses = sample_cross_entropy(batch)
        everything = torch.ones_like(losses, dtype=torch.bool)
        return Objective(losses.mean(dim=-1), losses.detach(), everything)
