"""Schedules of keep rates: fixed curves, and the families that are searched."""

from s2e.schedules.fixed import (
    check_epochs,
    check_schedule,
    constant,
    coteaching,
    coteaching_curve,
    keep_counts,
    parse_schedule,
)
from s2e.schedules.spaces import SPACES, Space, space

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
    "space",
]
