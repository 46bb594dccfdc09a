"""Schedules of keep rates: fixed curves, curves read from text, and the spaces that are searched."""

from s2e.schedules.fixed import (
    check_epochs,
    check_schedule,
    constant,
    coteaching,
    coteaching_curve,
    keep_counts,
)
from s2e.schedules.parsing import parse_schedule
from s2e.schedules.spaces import (
    SPACES,
    Space,
    simplex_weights,
    space,
)

__all__ = [
    "SPACES",
    "Space",
    "check_epochs",
    "check_schedule",
    "constant",
    "coteaching",
    "coteaching_curve",
    "keep_counts",
    "parse_schedule",
    "simplex_weights",
    "space",
]
