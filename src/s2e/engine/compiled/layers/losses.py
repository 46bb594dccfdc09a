"""Cross-entropy of all networks, in operations whose gradient needs no sum over classes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def cross_entropy(
    product_dtype: torch.dtype,  # noqa: ARG001
    logits: Tensor,
    labels: Tensor,
    weight: Tensor | None = None,
    *,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    **rest: Any,  # noqa: ARG001
) -> Tensor | None:
    """Return the loss of every sample (N,), for logits (N, C) and labels (N,).

    In this form the kernel that sums over classes also computes the loss, and any kernel that needs the gradient can
    recompute it.
    """
    unreduced = weight is None and reduction == "none" and label_smoothing == 0
    if not unreduced or logits.ndim != 2 or labels.is_floating_point():
        return None
    shifted = logits - logits.detach().amax(dim=1, keepdim=True)
    is_label = labels.unsqueeze(1) == torch.arange(logits.shape[1], device=logits.device)  # (N, C)
    return shifted.exp().sum(dim=1).log() - torch.where(is_label, shifted, 0.0).sum(dim=1)
