"""What tests of `s2e compare` share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from command_line import save
from small_tasks import blobs

TWO_NOISES = ["--noise", "pair:0.4", "--noise", "symmetric:0.3"]


def right(name: str = "right.npz") -> str:
    """Write clusters with correct labels and a test part."""
    unseen = blobs(96, wrong=0.0, seed=2)
    return save(name, y_train=blobs().clean_labels, x_test=unseen.inputs, y_test=unseen.labels)


def tables(path: str | Path) -> dict[str, Any]:
    """Everything a comparison leaves that must not depend on how often it was stopped."""
    found = json.loads(Path(path, "result.json").read_text())
    texts = {name: Path(path, name).read_text() for name in ("results.csv", "curves.csv", "config.json")}
    return {**texts, "result": {**found, "seconds": 0}}
