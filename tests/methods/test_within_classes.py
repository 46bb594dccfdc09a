"""Selection within given classes: a plain implementation, shares of every label, and equal labels."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from s2e.errors import InvalidInput
from s2e.methods import Coteaching, JoCoR, method, smallest, within_classes


def plain(losses, labels):
    """Rank every sample among those with its label, one by one; the first of equal losses first."""
    found = np.full(losses.shape, np.nan)
    for member, network in np.ndindex(losses.shape[:2]):
        for label in np.unique(labels[member]):
            own = [i for i in np.flatnonzero(labels[member] == label) if not np.isnan(losses[member, network, i])]
            order = sorted(own, key=lambda i: (losses[member, network, i], i))
            for rank, i in enumerate(order):
                found[member, network, i] = (rank + 0.5) / len(own)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_ranks_equal_a_plain_implementation(seed):
    generator = np.random.default_rng(seed)
    losses = generator.integers(5, size=(3, 2, 20)) / 4  # with ties
    losses[generator.random(losses.shape) < 0.1] = np.nan
    labels = generator.integers(4, size=(3, 20))
    found = within_classes(torch.from_numpy(losses), torch.from_numpy(labels)).numpy()
    np.testing.assert_allclose(found, plain(losses, labels))


def test_the_same_share_of_every_label_is_kept():
    labels = torch.tensor([[0] * 18 + [1] * 2])
    losses = torch.arange(20.0).view(1, 1, 20)  # those of the rare label are the largest
    assert smallest(losses, torch.tensor([[10]]))[0, 0, 18:].sum() == 0
    kept = smallest(within_classes(losses, labels), torch.tensor([[10]]))
    assert kept.sum() == 10
    assert kept[0, 0, 18:].sum() == 1


def test_equal_labels_are_selected_as_without():
    losses = torch.rand(2, 2, 16, generator=torch.Generator().manual_seed(0))
    labels = torch.zeros(2, 16, dtype=torch.int64)
    keep = torch.tensor([[5], [9]])
    torch.testing.assert_close(smallest(within_classes(losses, labels), keep), smallest(losses, keep))


def test_methods_take_the_option_by_name():
    assert method("coteaching:by_class=true") == Coteaching(by_class=True)
    assert method("jocor:agreement=0.5") == JoCoR(agreement=0.5)
    with pytest.raises(InvalidInput, match="options of `method` standard must not be given"):
        method("standard:by_class=true")
