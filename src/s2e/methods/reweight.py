"""Learning to reweight (Ren et al., 2018): weight samples by how much they reduce the loss of clean samples.

A virtual step θ(ε) = θ − η Σ_i ε_i ∇ℓ_i changes the clean loss L by ∂L(θ(ε))/∂ε_i = −η ⟨∇ℓ_i, ∇L⟩ at ε = 0; by the
chain rule through the logits z_i(θ), ⟨∇ℓ_i, ∇L⟩ = ⟨∂ℓ_i/∂z_i, J_i ∇L⟩, ∂ℓ_i/∂z_i = softmax(z_i) − onehot(y_i). So one
Jacobian-vector product J ∇L gives the weights of all samples; no step is unrolled, and η cancels in the normalisation.

Letters: P members, M networks in a member, B batch, C classes, V clean samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from s2e.errors import InvalidInput
from s2e.methods.interface import Batch, Need, Networks, Objective, sample_cross_entropy


@dataclass(frozen=True)
class Reweight:
    """One network; a sample's weight is the decrease of the clean loss along its gradient, and 0 for an increase."""

    name: ClassVar[str] = "reweight"
    networks: ClassVar[int] = 1
    needs: ClassVar[frozenset[Need]] = frozenset({Need.CLEAN_SAMPLES})
    may_select_nothing: ClassVar[bool] = True

    def objective(self, batch: Batch) -> Objective:
        """Sum the losses weighted by w_i = max(⟨∇ℓ_i, ∇L⟩, 0)/Σ; without a positive weight, the loss is 0."""
        if batch.networks is None:
            raise InvalidInput("`networks` must be given for reweight, but got none.")
        losses = sample_cross_entropy(batch)
        weights = positive_shares(clean_alignment(batch, batch.networks))  # (P, M, B)
        # `weights == 0`, not `weights > 0`: a NaN weight must reach the loss, so that the member is marked as diverged,
        # while a sample with weight 0 may have an infinite loss.
        weighted = torch.where(weights == 0, 0.0, weights * losses)
        return Objective(weighted.sum(dim=-1), losses.detach(), weights > 0)


def clean_alignment(batch: Batch, networks: Networks) -> Tensor:
    """⟨∇ℓ_i, ∇L⟩ of every sample with the mean cross-entropy L of its network on the clean samples, (P, M, B)."""
    clean_labels = networks.clean_labels.expand(len(batch.labels), -1)  # (P, V)
    clean = sample_cross_entropy(batch._replace(logits=networks.clean_logits(), labels=clean_labels))  # (P, M, V)
    change = networks.change_along_gradient(clean.mean(dim=-1).sum()).detach()  # (P, M, B, C)
    labels = batch.labels[:, None, :, None].expand(*change.shape[:-1], 1)  # (P, M, B, 1)
    # ⟨p − onehot(y), u⟩ = Σ_c p_c (u_c − u_y): no cancellation where the network is confident, p_y ≈ 1.
    return (batch.logits.detach().softmax(dim=-1) * (change - change.gather(-1, labels))).sum(dim=-1)


def positive_shares(alignment: Tensor) -> Tensor:
    """max(a_i, 0)/Σ along the last dimension, (..., B) -> (..., B); 0 where none is positive, NaN where one is NaN."""
    positive = alignment.clamp(min=0)
    total = positive.sum(dim=-1, keepdim=True)
    return positive / torch.where(total == 0, 1.0, total)
