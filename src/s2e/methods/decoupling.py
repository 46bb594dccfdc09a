"""Decoupling (Malach & Shalev-Shwartz, 2017): two networks, trained only where they disagree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from s2e.methods.interface import Batch, Need, Objective, sample_cross_entropy, selected_mean

MIN_DIVISOR_SHARE = 0.1
"""Smallest divisor of the sum of losses, as a share of the batch, so that few disagreements give a small step."""


@dataclass(frozen=True)
class Decoupling:
    """Two networks, each trained with its own loss on the samples for which their predictions differ."""

    name: ClassVar[str] = "decoupling"
    networks: ClassVar[int] = 2
    needs: ClassVar[frozenset[Need]] = frozenset()
    may_select_nothing: ClassVar[bool] = True

    def objective(self, batch: Batch) -> Objective:
        """Σ w·CE / max(0.1·B, Σ w), where w is 1 for a disagreement and 0 elsewhere."""
        losses = sample_cross_entropy(batch)
        selected = disagreement(batch.logits.detach(), losses.detach()).unsqueeze(1).expand_as(losses)  # (P, 2, B)
        divisor = selected.sum(dim=-1).to(losses.dtype).clamp(min=MIN_DIVISOR_SHARE * losses.shape[-1])  # (P, 2)
        return Objective(selected_mean(losses, selected, divisor), losses.detach(), selected)


def disagreement(logits: Tensor, losses: Tensor) -> Tensor:
    """Mark the samples for which two networks predict different classes: (P, 2, B, C), (P, 2, B) -> (P, B) bool.

    A network whose loss is NaN counts as disagreeing. Otherwise two networks that diverge together would agree on
    everything, have a loss of 0 from then on, and never be marked as diverged.
    """
    predicted = logits.argmax(dim=-1)  # (P, 2, B)
    return (predicted[:, 0] != predicted[:, 1]) | losses.isnan().any(dim=1)
