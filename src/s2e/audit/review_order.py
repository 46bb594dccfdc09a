"""The order in which labels are worth a look: by doubt, and by what a decision on them tells. Pure: arrays in, out.

Letters: N samples. For sample i: y_i the given label, q_i its quality, s_i the suggested label, p_i its probability.

By doubt: the lowest quality first. Many qualities can be equal, such as 0 where all networks agree. Among equal ones,
the more confident suggestion is first, then the sample that the networks were trained on less often.

By value: a decision on a label that is almost certainly wrong, or almost certainly correct, only confirms the audit.
What a decision is expected to tell is the uncertainty of the posterior, its entropy over the given label, the suggested
one and all others:

    H_i = −q_i ln q_i − p_i ln p_i − o_i ln o_i,   o_i = 1 − q_i − p_i   (without p_i where no other label is suggested)

Labels confused in the same way are related: a decision on one sample of a group g = (y_i, a_i), with a_i the most
probable label other than the given one, also tells about the others in it, through the estimated noise matrix and the
retrained networks. Fifty decisions on one pair of classes therefore tell less than fifty over all pairs with uncertain
labels, and a pair that dominates the noise deserves more of them than a rare one. With U_g the sum of H_i over a group,
the chosen set S maximises

    F(S) = Σ_g U_g ln(1 + Σ_{i ∈ S, i in g} H_i)

A group thus receives decisions in proportion to its uncertainty, the most uncertain samples first, until a further one
tells less than the first of another group. F is submodular, and greedy choice reaches at least 1 − 1/e of its maximum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import entr

from s2e.audit.label_model import LabelAudit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Labels = NDArray[np.int64]

LEAST_ENTROPY = 0.01
"""Nats below which a label is not worth a decision: that of a quality of 0.2% or 99.8%."""


def order_by_doubt(found: LabelAudit, kept: Floats) -> Labels:
    """Return all samples, (N,), the most doubtful label first.

    Args:
        found: the audit.
        kept: (N,) share of the times a sample was in a batch that a network was trained on it.
    """
    return np.lexsort((kept, -found.confidence, found.quality)).astype(np.int64)


def order_by_value(found: LabelAudit, labels: Labels, most: int) -> Labels:
    """Return the samples whose labels are worth most to review, at most `most` of them, in the order of choice.

    Args:
        found: the audit.
        labels: (N,) the given labels.
        most: largest number of samples; labels of less than `LEAST_ENTROPY` are never chosen.
    """
    uncertainty = entropy(found)
    _, group = np.unique(np.stack([labels, found.alternative]), axis=1, return_inverse=True)  # (N,)
    group = group.reshape(-1)
    total = np.bincount(group, uncertainty)  # (G,)
    by_group = np.lexsort((-uncertainty, group))  # of each group the most uncertain first
    first = np.flatnonzero(np.diff(group[by_group], prepend=-1))  # (G,)
    after = np.append(first[1:], len(group))
    position, told = first.copy(), np.zeros(len(total))
    chosen: list[int] = []
    while len(chosen) < most:
        head = by_group[np.minimum(position, len(group) - 1)]  # (G,)
        left = (position < after) & (uncertainty[head] >= LEAST_ENTROPY)
        gain = np.where(left, total * np.log1p(uncertainty[head] / (1 + told)), 0.0)
        best = int(gain.argmax())
        if gain[best] <= 0:
            break
        chosen.append(int(head[best]))
        told[best] += uncertainty[head[best]]
        position[best] += 1
    return np.array(chosen, dtype=np.int64)


def entropy(found: LabelAudit) -> Floats:
    """Return H, (N,), in nats."""
    suggested = np.where(found.issues, found.confidence, 0.0)
    others = np.clip(1 - found.quality - suggested, 0.0, 1.0)
    return np.asarray(entr(found.quality) + entr(suggested) + entr(others))
