"""MentorNet in its self-paced form (Jiang et al., 2018, as the Co-teaching papers compare it)."""

from __future__ import annotations

from s2e.methods.interface import Batch, Objective, sample_cross_entropy, selected_mean, smallest


class MentorNet:
    """One network, trained on its own small-loss picks."""

    name = "mentornet"
    networks = 1
    uses_schedule = True

    def objective(self, batch: Batch) -> Objective:
        """Average over the samples this network itself finds easy."""
        losses = sample_cross_entropy(batch)
        keep = batch.keep.unsqueeze(-1)  # (P, 1)
        selected = smallest(losses.detach(), keep)
        return Objective(selected_mean(losses, selected, keep), losses.detach(), selected)
