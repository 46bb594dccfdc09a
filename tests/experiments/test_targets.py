"""Targets of S2E: which hold for a data set and its test samples, and how misses are reported."""

from __future__ import annotations

from typing import Any

import pytest

from s2e.experiments.targets import reached, targets_section


def summaries(*, last: float, part: float | None = None) -> dict[str, dict[str, Any]]:
    """Summaries of S2E under pair noise and under a noise without a target."""
    row: dict[str, Any] = {"last_10_epochs": {"mean": last, "std": 0.01}}
    if part is not None:
        row["part_last_10_epochs"] = {"mean": part, "std": None}
    return {"pair:0.45": row, "pair:0.3": row}


def test_mnist_has_targets_on_all_test_samples_and_on_the_half_of_the_paper() -> None:
    whole, half = reached("mnist", summaries(last=0.96, part=0.9), "5000-9999")
    assert (whole.part, whole.paper, whole.target, whole.deviation) == (None, None, 95.7, 1.0)
    assert whole.difference == pytest.approx(0.3)
    assert (half.part, half.paper, half.target, half.deviation) == ("5000-9999", 95.47, 96.7, None)
    assert len(reached("mnist", summaries(last=0.96), None)) == 1
    assert reached("digits", summaries(last=0.96), None) == []


def test_targets_that_are_missed_are_named_with_the_difference() -> None:
    section = targets_section(reached("mnist", summaries(last=0.96, part=0.9), "5000-9999"))
    assert section is not None
    text = section.markdown()
    assert "1 of 2 targets are reached" in text
    assert "Missed: MNIST, test images 5000-9999, pair noise, 45%, by 6.70 points." in text
    assert "| MNIST | pair noise, 45% | — | 95.7 | 96.00 ± 1.00 | +0.30 |" in text
    assert "| MNIST, test images 5000-9999 | pair noise, 45% | 95.47 | 96.7 | 90.00 | -6.70 |" in text


def test_without_targets_there_is_no_section() -> None:
    assert targets_section([]) is None
