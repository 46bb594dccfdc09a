"""Training data cleaned by an audit: rows weighted, dropped or relabelled. Pure: arrays in, arrays out.

| cleaning | labels | weights |
|---|---|---|
| none | given | 1 |
| weight | given | probability that the label is correct |
| drop | given | 0 where another label is suggested, else 1 |
| relabel | suggested | probability of the suggested label |

Letters: N samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class AuditedLabels:
    """The given labels of samples, and the result of their audit.

    Attributes:
        given: (N,) labels.
        quality: (N,) probability that the given label is correct.
        suggested: (N,) the given label, or the most probable other one for an issue.
        probability: (N,) probability of the suggested label.
    """

    given: NDArray[np.int64]
    quality: NDArray[np.float64]
    suggested: NDArray[np.int64]
    probability: NDArray[np.float64]

    def take(self, rows: NDArray[np.int64]) -> AuditedLabels:
        """Return some samples."""
        return AuditedLabels(self.given[rows], self.quality[rows], self.suggested[rows], self.probability[rows])


class CleanedLabels(NamedTuple):
    """Labels and weights of samples."""

    labels: NDArray[np.int64]  # (N,)
    weights: NDArray[np.float64]  # (N,) in [0, 1]


CLEANINGS: dict[str, Callable[[AuditedLabels], CleanedLabels]] = {
    "none": lambda audited: CleanedLabels(audited.given, np.ones(len(audited.given))),
    "weight": lambda audited: CleanedLabels(audited.given, audited.quality),
    "drop": lambda audited: CleanedLabels(audited.given, (audited.suggested == audited.given).astype(np.float64)),
    "relabel": lambda audited: CleanedLabels(audited.suggested, audited.probability),
}
"""Every cleaning by its name."""
