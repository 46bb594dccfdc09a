"""Numbers of the documentation and of docstrings against the files that they were measured in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from s2e.engine import precision

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs/results/speed-h200"


@pytest.mark.parametrize("name", ["agreement", "agreement-cifar10-cnn"])
def test_differences_between_precisions_are_the_measured_ones(name: str) -> None:
    measured = json.loads((RESULTS / f"{name}.json").read_text())
    measured = measured.get("auto", measured)
    shown = f"{100 * measured['gap']:.3f} ± {100 * measured['standard_error']:.3f}".replace("-", "−")
    (row,) = [line for line in (ROOT / "docs/performance.md").read_text().splitlines() if f"`{name}.json`" in line]
    assert f"| {shown} " in row
    assert shown in str(precision.__doc__)


def test_times_of_the_changelog_are_the_measured_ones() -> None:
    rows = json.loads((RESULTS / "steps.json").read_text())["rows"]
    text = (ROOT / "CHANGELOG.md").read_text()
    found = {(row["network"], row["members"], row["optimizer"]): row for row in rows}
    six, many = found["mlp", 6, "adam"], found["mlp", 64, "adam"]
    assert f"six MNIST pairs take {six['microseconds']:.1f} µs a step" in text
    assert f"64 of them {many['microseconds_per_member']:.2f} µs each" in text
    (twelve,) = [row for row in rows if row["network"] == "cifar100-cnn"]
    assert f"twelve CIFAR-100 networks {twelve['microseconds'] / 1000:.2f} ms" in text
