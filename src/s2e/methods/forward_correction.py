"""Forward correction (Patrini et al., 2017): explain the given label by the true class and how labels go wrong.

Letters: P members, M networks in a member, B batch, N samples, C classes. A transition matrix T is row-stochastic: row
= true class, column = label one is given. A network that predicts p for the true class predicts Tᵀp for the label.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor

from s2e.data.noise import asymmetric
from s2e.errors import InvalidInput
from s2e.methods.interface import Batch, Need, Objective

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

OUTLIERS_FROM = 97.0
"""Percentile of a class's probability from which on samples are too good to be true, as in the paper."""

MANY_CLASSES = 100
"""With this many classes or more, a class is rarer than the outliers, and dropping them would drop the class."""


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


def default_percentile(classes: int) -> float | None:
    """Return the percentile to estimate a transition matrix with: the paper's 97, none with 100 classes or more."""
    return OUTLIERS_FROM if classes < MANY_CLASSES else None


def estimate_transition(
    probabilities: NDArray[np.floating], *, percentile: float | None = OUTLIERS_FROM
) -> NDArray[np.float64]:
    """Read a transition matrix off the predictions of a network trained on the given labels (Patrini et al.).

    Such a network predicts labels, not true classes; where the true class surely is i, it predicts row i of T. Row i is
    therefore its prediction at the sample with the largest p_i, among those strictly below the percentile of p_i.

    - Of samples with the same p_i the first is taken.
    - Where no sample with p_i > 0 lies strictly below the percentile, the filter is dropped for that class: all p_i are
      equal, or there is a single sample, or hardly any sample shows the class.
    - One sample may serve several classes; there may even be fewer samples than classes.
    - NaN in, NaN out, in that matrix alone: the predictions of a diverged network do not turn into a plausible matrix.

    Args:
        probabilities: (..., N, C), not negative; of a network with further outputs, the first C columns. They need not
            sum to one. Leading dimensions are separate networks.
        percentile: in [0, 100], the sample at or next above it ("higher") is the bound; None for no filter.

    Returns:
        (..., C, C), rows summing to 1.
    """
    p = np.asarray(probabilities, dtype=np.float64)
    if p.ndim < 2 or p.shape[-2] < 1 or p.shape[-1] < 2:
        raise InvalidInput(
            f"`probabilities` must be (N, C) for at least one sample and two classes, but got the shape {p.shape}."
        )
    if (p < 0).any() or np.isinf(p).any() or (p.sum(axis=-1) == 0).any():
        raise InvalidInput(
            "`probabilities` must hold a prediction for each sample, but got negative, infinite or all-zero ones; "
            "pass the softmax of the logits."
        )
    if percentile is not None and not 0 <= percentile <= 100:
        raise InvalidInput(f"`percentile` must lie in [0, 100] or be None, but got {percentile}.")
    allowed = np.ones(p.shape, dtype=bool)
    if percentile is not None:
        allowed = (p > 0) & (p < np.percentile(p, percentile, axis=-2, method="higher", keepdims=True))
        allowed |= ~allowed.any(axis=-2, keepdims=True)
    purest = np.where(allowed, p, 0.0).argmax(axis=-2)  # (..., C), a sample for each class
    rows = np.take_along_axis(p, purest[..., None], axis=-2)  # (..., C, C)
    return np.asarray(rows / rows.sum(axis=-1, keepdims=True))


def check_transition(matrix: ArrayLike, classes: int) -> NDArray[np.float64]:
    """Return a given transition matrix (C, C) checked; rows that sum to 1 but for rounding are made to sum to 1."""
    checked = asymmetric(matrix)
    if len(checked) != classes:
        size = len(checked)
        raise InvalidInput(f"`matrix` must be {classes} × {classes} for these data, but got {size} × {size}.")
    return checked
