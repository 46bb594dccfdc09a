"""MentorNet in its self-paced form (Jiang et al., 2018, as the Co-teaching papers compare it)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from s2e.methods.interface import Batch, Need, Objective, sample_cross_entropy, selected_mean, small_losses


@dataclass(frozen=True)
class MentorNet:
    """One network, trained on the samples with its smallest losses.

    Attributes:
        by_class: keep the same share of the samples of every label.
    """

    name: ClassVar[str] = "mentornet"
    networks: ClassVar[int] = 1
    needs: ClassVar[frozenset[Need]] = frozenset({Need.SCHEDULE})
    may_select_nothing: ClassVar[bool] = False
    may_hold_out: ClassVar[bool] = True

    by_class: bool = False

    def objective(self, batch: Batch) -> Objective:
        """Average over the samples with the smallest loss under the network itself."""
        losses = sample_cross_entropy(batch)
        keep = batch.keep.unsqueeze(-1)  # (P, 1)
        selected = small_losses(losses.detach(), keep, batch, by_class=self.by_class)
        return Objective(selected_mean(losses, selected, keep), losses.detach(), selected)
