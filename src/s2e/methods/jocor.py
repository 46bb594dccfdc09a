"""JoCoR (Wei et al., 2020): two networks with one loss, which includes their disagreement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from s2e.errors import InvalidInput
from s2e.methods.interface import Batch, Need, Objective, sample_cross_entropy, selected_mean, small_losses


@dataclass(frozen=True)
class JoCoR:
    """Two networks, trained together on the samples with the smallest joint loss, which rewards agreement.

    Attributes:
        agreement: λ in [0, 1], the weight of agreement with the peer against fitting the labels; the paper uses 0.9,
            and 0.85 for CIFAR-100.
        by_class: keep the same share of the samples of every label.
    """

    name: ClassVar[str] = "jocor"
    networks: ClassVar[int] = 2
    needs: ClassVar[frozenset[Need]] = frozenset({Need.SCHEDULE})
    may_select_nothing: ClassVar[bool] = False
    may_hold_out: ClassVar[bool] = True

    agreement: float = 0.9
    by_class: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.agreement <= 1:
            raise InvalidInput(f"`agreement` must lie in [0, 1], but got {self.agreement}.")

    def objective(self, batch: Batch) -> Objective:
        """Average the joint loss over the samples for which it is smallest, the same ones for both networks."""
        with torch.no_grad():
            losses = sample_cross_entropy(batch)
            joint = self._joint_losses(batch.logits, losses).unsqueeze(1)  # (P, 1, B)
            kept = small_losses(joint, batch.keep.unsqueeze(-1), batch, by_class=self.by_class).squeeze(1)  # (P, B)
            selected = kept.unsqueeze(1).expand_as(losses)  # (P, 2, B)
        # Masked before the loss and not after it: a NaN times a gradient of 0 is still NaN.
        masked = batch._replace(logits=torch.where(selected.unsqueeze(-1), batch.logits, 0.0))
        joint = self._joint_losses(masked.logits, sample_cross_entropy(masked))  # (P, B)
        # The engine minimises the sum over networks: half for each makes it the joint loss.
        half = selected_mean(joint, kept, batch.keep) / 2  # (P,)
        return Objective(half.unsqueeze(1).expand(-1, self.networks), losses, selected)

    def _joint_losses(self, logits: Tensor, cross_entropies: Tensor) -> Tensor:
        """ℓ = (1−λ)(CE₁ + CE₂) + λ(KL(p₁‖p₂) + KL(p₂‖p₁)) of every sample, (P, 2, B, C), (P, 2, B) -> (P, B)."""
        return (1 - self.agreement) * cross_entropies.sum(dim=1) + self.agreement * _divergence(logits)


def _divergence(logits: Tensor) -> Tensor:
    """KL(p₁‖p₂) + KL(p₂‖p₁) = Σ_c (p₁ − p₂)(ln p₁ − ln p₂), no term of which is negative: (P, 2, B, C) -> (P, B).

    log 0 is clamped to a quarter of the lowest finite number: a class with probability 0 under both networks then adds
    nothing, where ∞ − ∞ would be NaN, and the sum, at most twice as large, stays finite.
    """
    log_p = functional.log_softmax(logits, dim=-1)
    log_p = log_p.clamp(min=torch.finfo(log_p.dtype).min / 4)
    p = log_p.exp()
    return ((p[:, 0] - p[:, 1]) * (log_p[:, 0] - log_p[:, 1])).sum(dim=-1)
