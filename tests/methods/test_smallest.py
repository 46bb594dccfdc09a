"""The samples with the smallest losses: ties, what is no number, counts by row."""

from __future__ import annotations

import math

import pytest
import torch

from s2e.methods import smallest


def test_smallest_gives_ties_to_the_lower_index():
    losses = torch.tensor([2.0, 1.0, 1.0, 0.5, 1.0])
    assert smallest(losses, torch.tensor(3)).tolist() == [False, True, True, True, False]
    assert smallest(torch.zeros(6), torch.tensor(2)).tolist() == [True, True, False, False, False, False]


def test_smallest_ranks_nan_last_even_behind_infinity():
    losses = torch.tensor([math.nan, math.inf, 1.0, math.nan])
    assert smallest(losses, torch.tensor(2)).tolist() == [False, True, True, False]
    assert smallest(losses, torch.tensor(3)).tolist() == [True, True, True, False]


def test_smallest_keeps_one_or_all():
    losses = torch.tensor([[3.0, 1.0, 2.0], [1.0, 1.0, 1.0]])
    assert smallest(losses, torch.tensor([1, 1])).tolist() == [[False, True, False], [True, False, False]]
    assert smallest(losses, torch.tensor([3, 3])).all()
    assert smallest(torch.ones(1, 1), torch.tensor([1])).all()  # a batch of one


@pytest.mark.parametrize("leading", [(), (4,), (2, 3), (2, 1, 3)])
def test_smallest_equals_sorting_each_row_for_any_leading_dimensions(leading):
    generator = torch.Generator().manual_seed(1)
    losses = torch.randint(6, (*leading, 20), generator=generator).float()  # many ties
    keep = torch.randint(1, 21, leading, generator=generator)
    marked = smallest(losses, keep)
    assert marked.dtype == torch.bool
    assert marked.shape == losses.shape
    rows = zip(losses.reshape(-1, 20).tolist(), keep.reshape(-1).tolist(), marked.reshape(-1, 20), strict=True)
    for row, count, found in rows:
        by_loss = sorted(range(20), key=lambda place: (row[place], place))
        assert found.nonzero().flatten().tolist() == sorted(by_loss[:count])


def test_smallest_takes_one_count_for_several_rows():
    losses = torch.tensor([[[1.0, 2.0], [2.0, 1.0]], [[5.0, 4.0], [4.0, 5.0]]])  # (P, M, B)
    found = smallest(losses, torch.tensor([1, 2]).unsqueeze(-1))  # (P, 1): a member's networks share a count
    assert found.tolist() == [[[True, False], [False, True]], [[True, True], [True, True]]]
