"""The selection of the smallest losses: ties, NaN, counts by row."""

from __future__ import annotations

import math

import pytest
import torch

from method_batches import drawn_batch
from s2e.methods import interface
from s2e.methods.interface import sample_cross_entropy, smallest

RANKINGS = pytest.mark.parametrize("ranks", [interface._ranks_by_sorting, interface._ranks_by_pairs])


@pytest.fixture
def _with(ranks, monkeypatch):
    """Rank on this device as on a CPU, and as on a GPU."""
    monkeypatch.setattr(interface, "_ranks_by_sorting", ranks)


@RANKINGS
@pytest.mark.usefixtures("_with")
def test_ties_go_to_the_lower_index_and_nan_ranks_last():
    losses = torch.tensor([2.0, 1.0, 1.0, 0.5, 1.0])
    assert smallest(losses, torch.tensor(3)).tolist() == [False, True, True, True, False]
    losses = torch.tensor([math.nan, math.inf, 1.0, math.nan])
    assert smallest(losses, torch.tensor(2)).tolist() == [False, True, True, False]
    assert smallest(losses, torch.tensor(3)).tolist() == [True, True, True, False]


@RANKINGS
@pytest.mark.usefixtures("_with")
@pytest.mark.parametrize("leading", [(), (2, 1, 3)])
def test_smallest_equals_sorting_each_row(leading):
    generator = torch.Generator().manual_seed(1)
    losses = torch.randint(6, (*leading, 20), generator=generator).float()  # many ties
    keep = torch.randint(1, 21, leading, generator=generator)
    marked = smallest(losses, keep)
    assert marked.dtype == torch.bool
    assert marked.shape == losses.shape
    rows = zip(losses.reshape(-1, 20).tolist(), keep.reshape(-1).tolist(), marked.reshape(-1, 20), strict=True)
    for row, count, found in rows:
        by_loss = sorted(range(20), key=lambda index: (row[index], index))
        assert found.nonzero().flatten().tolist() == sorted(by_loss[:count])


def test_rows_of_a_member_share_a_count():
    losses = torch.tensor([[[1.0, 2.0], [2.0, 1.0]], [[5.0, 4.0], [4.0, 5.0]]])  # (P, M, B)
    found = smallest(losses, torch.tensor([1, 2]).unsqueeze(-1))  # (P, 1)
    assert found.tolist() == [[[True, False], [False, True]], [[True, True], [True, True]]]


def test_cross_entropy_of_equal_logits_is_the_logarithm_of_the_classes():
    batch = drawn_batch(2, members=2, size=3, classes=10)._replace(logits=torch.zeros(2, 2, 3, 10))
    torch.testing.assert_close(sample_cross_entropy(batch), torch.full((2, 2, 3), math.log(10)))
