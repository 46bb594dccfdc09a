"""Batches and epochs by the number of samples."""

from __future__ import annotations

import pytest

from s2e.estimator.defaults import batch_size_for, epochs_for


@pytest.mark.parametrize(
    ("samples", "batch"), [(1, 1), (10, 10), (40, 16), (319, 16), (320, 32), (1279, 64), (1280, 128), (60_000, 128)]
)
def test_a_batch_leaves_ten_steps_where_the_samples_are_that_many(samples, batch):
    assert batch_size_for(samples) == batch


@pytest.mark.parametrize(
    ("samples", "batch", "epochs"), [(5, 16, 100), (1000, 64, 100), (6_400, 128, 80), (60_000, 128, 40)]
)
def test_epochs_give_about_4000_steps(samples, batch, epochs):
    assert epochs_for(samples, batch) == epochs
