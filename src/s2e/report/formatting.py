"""Numbers and lists as text, the same everywhere in a report."""

from __future__ import annotations

import math
from collections.abc import Sequence


def percent(share: float | None) -> str:
    """Format a share as 93.1%, and an unknown one as a dash."""
    return "–" if share is None or math.isnan(share) else f"{100 * share:.1f}%"


def accuracy(mean: float | None, deviation: float | None) -> str:
    """Format an accuracy with its standard deviation over seeds, if there is one, as 93.1% ± 0.4."""
    return percent(mean) if mean is None or deviation is None else f"{percent(mean)} ± {100 * deviation:.1f}"


def count(number: int) -> str:
    """Format an integer with thousands separators."""
    return f"{number:,}"


def listing(items: Sequence[str]) -> str:
    """Join items as "a, b and c"."""
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)
