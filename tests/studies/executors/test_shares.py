"""Shares of a population by the speeds of workers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from s2e.studies.executors.shares import shares

COSTS = st.lists(st.sampled_from([1.0, 2.0]), min_size=1, max_size=40)
SPEEDS = st.lists(st.floats(0.1, 10.0), min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("costs", "speeds", "counts"),
    [
        ([1] * 6, [1, 1], [3, 3]),
        ([1] * 5, [1, 1], [3, 2]),
        ([1] * 6, [1, 1, 1, 1], [2, 1, 2, 1]),
        ([1] * 6, [3, 1], [5, 1]),
        ([1] * 4, [10, 1], [4, 0]),
        ([2, 1, 1], [1, 1], [1, 2]),
        ([1], [1], [1]),
    ],
)
def test_shares_are_in_proportion_to_speeds(costs: list[float], speeds: list[float], counts: list[int]) -> None:
    assert [len(share) for share in shares(costs, speeds)] == counts


@settings(max_examples=200, deadline=None)
@given(COSTS, SPEEDS)
def test_every_member_is_in_one_share_and_no_worker_has_a_member_too_much(
    costs: list[float], speeds: list[float]
) -> None:
    found = shares(costs, speeds)
    assert [member for share in found for member in share] == list(range(len(costs)))
    for share, speed in zip(found, speeds, strict=True):
        fair = sum(costs) * speed / sum(speeds)
        assert sum(costs[member] for member in share) <= fair + max(costs) + 1e-6
