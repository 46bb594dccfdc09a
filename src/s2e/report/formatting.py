"""Numbers and lists as a reader finds them everywhere in a report."""

from __future__ import annotations

import math
from collections.abc import Sequence


def percent(share: float | None) -> str:
    """Write a share as 93.1%; what is unknown as a dash."""
    return "–" if share is None or math.isnan(share) else f"{100 * share:.1f}%"


def accuracy(mean: float | None, deviation: float | None) -> str:
    """Write an accuracy with its deviation over seeds where there are several, as 93.1% ± 0.4."""
    return percent(mean) if mean is None or deviation is None else f"{percent(mean)} ± {100 * deviation:.1f}"


def count(number: int) -> str:
    """Write a whole number, thousands apart."""
    return f"{number:,}"


def listing(items: Sequence[str]) -> str:
    """Write a list as a, b and c."""
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)
