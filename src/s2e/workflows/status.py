"""The status of a finished search or training."""

from __future__ import annotations

from enum import Enum


class Status(Enum):
    """How a search or a training ended."""

    COMPLETE = "complete"
    STOPPED_EARLY = "stopped early"
    SOME_DIVERGED = "some members diverged"

    @classmethod
    def of(cls, *, stopped: bool, diverged: bool) -> Status:
        """Return the status; `stopped` takes precedence over `diverged`."""
        if stopped:
            return cls.STOPPED_EARLY
        return cls.SOME_DIVERGED if diverged else cls.COMPLETE
