"""The two scales of an experiment: that of the paper, and a small one that needs no download."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from s2e.data import needs_download
from s2e.specs import LAPTOP
from s2e.workflows import ProgressListener

STAND_IN = "digits"
"""Data set that comes with scikit-learn; at the small scale it replaces those that would have to be downloaded."""


def data_sets(names: Sequence[str], scale: str, root: Path, listener: ProgressListener) -> tuple[str, ...]:
    """Return the data sets of an experiment, in their order; each once.

    Args:
        names: the data sets that were requested.
        scale: at the small scale nothing is downloaded.
        root: directory of the data sets.
        listener: receives a line about each data set that is replaced.
    """
    found = []
    for name in names:
        replaced = scale == LAPTOP and needs_download(name, root)
        if replaced:
            listener.note(f"{name} is not in {root}: {STAND_IN} in its place; --scale paper downloads it")
        found.append(STAND_IN if replaced else name)
    return tuple(dict.fromkeys(found))
