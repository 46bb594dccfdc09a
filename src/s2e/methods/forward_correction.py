"""Forward correction (Patrini et al., 2017): predict the given label from the true class and a transition matrix.

Letters: P members, M networks in a member, B batch, C classes. A transition matrix T is row-stochastic: row = true
class, column = given label. A network that predicts p for the true class predicts Tᵀp for the label.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from s2e.errors import InvalidInput
from s2e.methods.interface import Batch, Need, Objective


@dataclass(frozen=True)
class ForwardCorrection:
    """One network, trained on every sample with the loss −log (Tᵀp)_y."""

    name: ClassVar[str] = "f-correction"
    networks: ClassVar[int] = 1
    needs: ClassVar[frozenset[Need]] = frozenset({Need.TRANSITION})
    may_select_nothing: ClassVar[bool] = False

    def objective(self, batch: Batch) -> Objective:
        """Average the corrected loss over the batch."""
        if batch.transition is None:
            raise InvalidInput("`transition` must be given for f-correction, but got none.")
        losses = corrected_losses(batch.logits, batch.labels, batch.transition)
        selected = torch.ones_like(losses, dtype=torch.bool)
        return Objective(losses.mean(dim=-1), losses.detach(), selected)


def corrected_losses(logits: Tensor, labels: Tensor, transition: Tensor) -> Tensor:
    """−log Σ_k p_k T_ky of every sample: (P, M, B, C), (P, B), (P, C, C) -> (P, M, B).

    Computed as −logsumexp_k(log p_k + log T_ky): log p never underflows, and a zero of T, −inf here, removes its class
    from value and gradient. A label y that no class is given, a column of zeros, would have an infinite loss; that
    column is replaced by the smallest normal number. It has to be constant: the label carries no information about the
    true class, so its gradient is 0, while the loss stays finite and large (87.3 in float32). Other zeros are
    unchanged: a floor there would cap the loss.

    Networks may have more outputs than classes. T is then extended by an identity: no label comes from the others,
    only the C classes have terms in the sum, and the softmax is over all outputs.
    """
    matrix = transition.to(logits.dtype)
    never_given = (matrix == 0).all(dim=-2, keepdim=True)  # (P, 1, C)
    log_matrix = torch.where(never_given, torch.finfo(logits.dtype).tiny, matrix).log()  # log T_ky at (p, k, y)
    classes = matrix.shape[-1]
    index = labels.unsqueeze(-1).expand(-1, -1, classes)  # (P, B, C), y repeated
    log_columns = log_matrix.mT.gather(1, index).unsqueeze(1)  # (P, 1, B, C), log T_ky at (p, 0, b, k)
    log_p = logits.log_softmax(dim=-1)[..., :classes]
    return -torch.logsumexp(log_p + log_columns, dim=-1)
