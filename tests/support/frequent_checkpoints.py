"""Checkpoints after every epoch, and the end of a process between two epochs."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from s2e.engine.checkpoints import Checkpoints
from s2e.engine.task import EpochFinished
from s2e.runs.session import RunLocation


class Killed(BaseException):
    """Stands for the end of a process."""


def every_epoch(directory: Path) -> Checkpoints:
    return Checkpoints(directory, interval=0.0, max_share=math.inf)


def in_every_run(patched: pytest.MonkeyPatch) -> None:
    """Let runs write checkpoints after every epoch."""
    patched.setattr(RunLocation, "checkpoints", property(lambda self: every_epoch(self.out / "checkpoints")))


def kill_at(call: int) -> Callable[[EpochFinished], None]:
    """An `on_epoch` that kills the process in one of its calls, counted from 1."""
    calls = 0

    def on_epoch(_: EpochFinished) -> None:
        nonlocal calls
        calls += 1
        if calls == call:
            raise Killed

    return on_epoch
