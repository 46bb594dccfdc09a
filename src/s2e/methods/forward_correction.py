"""Forward correction (Patrini et al., 2017): explain the given label by the true class and how labels go wrong.

Letters: P members, M networks in a member, B batch, N samples, C classes. A transition matrix T is row-stochastic: row
= true class, column = label one is given. A network that predicts p for the true class predicts Tᵀp for the label.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from s2e.errors import InvalidInput
from s2e.methods.interface import Batch, Need, Objective

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class ForwardCorrection:
    """One network, every sample, with the loss −log (Tᵀp)_y."""

    name: ClassVar[str] = "f-correction"
    networks: ClassVar[int] = 1
    needs: ClassVar[frozenset[Need]] = frozenset({Need.TRANSITION})
    may_select_nothing: ClassVar[bool] = False

    def objective(self, batch: Batch) -> Objective:
        """Average the corrected loss over the batch."""
        if batch.transition is None:
            raise InvalidInput("`transition` must be given for f-correction, but got none.")
        losses = corrected_losses(batch.logits, batch.labels, batch.transition)
        everything = torch.ones_like(losses, dtype=torch.bool)
        return Objective(losses.mean(dim=-1), losses.detach(), everything)


def corrected_losses(logits: Tensor, labels: Tensor, transition: Tensor) -> Tensor:
    """−log Σ_k p_k T_ky of every sample: (P, M, B, C), (P, B), (P, C, C) -> (P, M, B).

    Computed as −logsumexp_k(log p_k + log T_ky): log p never underflows, and a zero of T, −inf here, takes its class
    out of value and gradient alike. Where no class is ever given the label y, a column of zeros, the loss would be
    infinite; all of that column becomes the smallest normal number instead. Only a constant will do: the label says
    nothing about the true class, so it pulls the network nowhere, and the loss stays finite while it shows how
    impossible T holds the label to be (87.3 in float32). Other zeros are left alone: a floor there would cap the loss.

    Networks may have more outputs than there are classes. No label comes from such an output, as if T went on as an
    identity there, so that only the C classes have terms in the sum; the softmax is over all outputs.
    """
    matrix = transition.to(logits.dtype)
    never_given = (matrix == 0).all(dim=-2, keepdim=True)  # (P, 1, C)
    log_matrix = torch.where(never_given, torch.finfo(logits.dtype).tiny, matrix).log()  # log T_ky at (p, k, y)
    classes = matrix.shape[-1]
    wanted = labels.unsqueeze(-1).expand(-1, -1, classes)  # (P, B, C), y in every place
    log_columns = log_matrix.mT.gather(1, wanted).unsqueeze(1)  # (P, 1, B, C), log T_ky at (p, 0, b, k)
    log_p = logits.log_softmax(dim=-1)[..., :classes]
    return -torch.logsumexp(log_p + log_columns, dim=-1)
