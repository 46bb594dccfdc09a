"""The size of a generation: candidates, and the choice by measured step times."""

from __future__ import annotations

import pytest
import torch

from s2e.engine.step_timing import MAX_SLOWDOWN
from s2e.methods import Coteaching
from s2e.studies import generation_size
from s2e.studies.generation_size import SIZES, candidate_sizes, choose_generation_size, largest_affordable
from small_tasks import blobs, member, task


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ({6: 1.0, 8: 1.0, 12: 1.1, 16: 1.2, 24: 1.5}, 16),  # a GPU
        ({6: 6.0, 8: 8.0}, 6),  # a CPU
        ({6: 1.0, 8: 1.4, 12: 1.1}, 12),  # one measurement was disturbed
        ({6: 1.0, 8: 0.9, 12: 1.2, 16: 1.3}, 12),  # relative to the smallest size, not to the fastest
        ({6: 4.0, 8: 4.0 * MAX_SLOWDOWN}, 8),
        ({12: 1.0, 6: 2.0, 8: 3.0}, 12),  # in any order
    ],
)
def test_largest_size_within_the_slowdown_is_chosen(seconds: dict[int, float], expected: int) -> None:
    assert largest_affordable(seconds) == expected


def test_slowdown_can_be_given() -> None:
    seconds = {6: 1.0, 8: 1.2, 12: 1.9, 16: 2.1}
    assert [largest_affordable(seconds, slowdown=slowdown) for slowdown in (1.0, 1.2, 2.0, 3.0)] == [6, 8, 12, 16]


def test_size_is_at_most_a_fifth_of_the_trials_but_at_least_two() -> None:
    for trials, expected in {1: (2,), 19: (3,), 34: (6,), 40: (6, 8), 100: (6, 8, 12, 16, 20), 160: SIZES}.items():
        assert candidate_sizes(trials) == expected
    assert candidate_sizes(None) == SIZES


@pytest.mark.parametrize(("device", "sizes"), [("cpu", SIZES), ("cuda", (4,))], ids=["on a CPU", "with one candidate"])
def test_nothing_is_measured(device: str, sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation_size, "step_seconds", lambda *_: pytest.fail("measured"))
    shared = task(blobs(), Coteaching(), device=torch.device(device))
    assert choose_generation_size(shared, [member()], sizes) == sizes[0]


@pytest.mark.parametrize(
    ("seconds", "expected"), [({}, 6), ({6: 1.0}, 6), ({6: 1.0, 8: 1.1, 12: 1.3}, 8)], ids=["none fits", "one", "some"]
)
def test_on_a_gpu_the_measurement_decides(
    seconds: dict[int, float], expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, templates, sizes = task(blobs(), Coteaching(), device=torch.device("cuda")), [member()], (6, 8, 12)
    given: list[object] = []
    monkeypatch.setattr(generation_size, "step_seconds", lambda *arguments: given.append(arguments) or seconds)
    assert choose_generation_size(shared, templates, sizes) == expected
    assert given == [(shared, templates, sizes)]
