"""Transition matrices of label noise, estimated from predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2e.errors import InvalidInput

if TYPE_CHECKING:
    from numpy.typing import NDArray

OUTLIER_PERCENTILE = 97.0
"""Percentile of a class's probability from which samples count as outliers, as in the paper."""

MANY_CLASSES = 100
"""Number of classes from which a class is rarer than the outliers, so that dropping them would drop the class."""


def default_percentile(classes: int) -> float | None:
    """Return the percentile for `estimate_transition`: the paper's 97, or None with 100 classes or more."""
    return OUTLIER_PERCENTILE if classes < MANY_CLASSES else None


def estimate_transition(
    probabilities: NDArray[np.floating], *, percentile: float | None = OUTLIER_PERCENTILE
) -> NDArray[np.float64]:
    """Estimate a transition matrix from the predictions of a network trained on the given labels (Patrini et al.).

    Such a network predicts labels, not true classes; where the true class is certainly i, it predicts row i of T. Row i
    is therefore its prediction for the sample with the largest p_i, among those strictly below the percentile of p_i.

    - Of samples with equal p_i the first is used.
    - If no sample with p_i > 0 lies strictly below the percentile, the filter is dropped for that class: all p_i are
      equal, or there is a single sample, or almost all p_i are 0.
    - One sample may be used for several classes; there may be fewer samples than classes.
    - NaN stays NaN, in its own matrix only: the predictions of a diverged network never become a plausible matrix.

    Args:
        probabilities: (..., N, C), not negative; the first C columns of a network with more outputs. Rows need not sum
            to one. Leading dimensions are separate networks.
        percentile: in [0, 100]; the bound is the sample at it or next above it ("higher"). None for no filter.

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
    chosen = np.where(allowed, p, 0.0).argmax(axis=-2)  # (..., C), one sample for each class
    rows = np.take_along_axis(p, chosen[..., None], axis=-2)  # (..., C, C)
    return np.asarray(rows / rows.sum(axis=-1, keepdims=True))
