"""Co-teaching (Han et al., 2018): two networks that select samples for each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from s2e.methods.interface import Batch, Need, Objective, sample_cross_entropy, selected_mean, small_losses


@dataclass(frozen=True)
class Coteaching:
    """Two networks, each trained on the samples its peer selects, so that neither reinforces its own errors.

    Attributes:
        by_class: keep the same share of the samples of every label.
    """

    name: ClassVar[str] = "coteaching"
    networks: ClassVar[int] = 2
    needs: ClassVar[frozenset[Need]] = frozenset({Need.SCHEDULE})
    may_select_nothing: ClassVar[bool] = False
    may_hold_out: ClassVar[bool] = True

    by_class: bool = False

    def objective(self, batch: Batch) -> Objective:
        """Average, for each network, over the samples with the smallest loss under its peer."""
        losses = sample_cross_entropy(batch)
        keep = batch.keep.unsqueeze(-1)  # (P, 1)
        selected = small_losses(losses.detach(), keep, batch, by_class=self.by_class).flip(1)  # of its peer
        return Objective(selected_mean(losses, selected, keep), losses.detach(), selected)
