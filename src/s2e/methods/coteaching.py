"""Co-teaching (Han et al., 2018): two networks that choose samples for each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from s2e.methods.interface import Batch, Need, Objective, sample_cross_entropy, selected_mean, smallest


@dataclass(frozen=True)
class Coteaching:
    """Two networks, each trained on the small-loss picks of its peer, so that they do not confirm their own errors."""

    name: ClassVar[str] = "coteaching"
    networks: ClassVar[int] = 2
    needs: ClassVar[frozenset[Need]] = frozenset({Need.SCHEDULE})
    may_select_nothing: ClassVar[bool] = False

    def objective(self, batch: Batch) -> Objective:
        """Average, for each network, over the samples the other one finds easy."""
        losses = sample_cross_entropy(batch)
        keep = batch.keep.unsqueeze(-1)  # (P, 1)
        selected = smallest(losses.detach(), keep).flip(1)  # the picks change hands
        return Objective(selected_mean(losses, selected, keep), losses.detach(), selected)
