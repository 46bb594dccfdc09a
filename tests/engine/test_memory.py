"""Memory of a member, counted by hand, and the number of members that fit."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from s2e.engine.memory import (
    PROBE_SAMPLES,
    REUSED_BYTES,
    TEMPORARIES,
    TENSORS_PER_PARAMETER,
    free_memory,
    keep_freed_memory,
    members_that_fit,
    network_bytes,
)
from s2e.engine.training import train_population
from s2e.methods import Coteaching
from small_tasks import blobs, member, task

CPU = torch.device("cpu")
FLOAT = 4


@pytest.mark.parametrize(("hidden", "batch"), [(1, 1), (64, PROBE_SAMPLES - 1), (256, 128)])
def test_bytes_of_an_mlp(hidden, batch):
    def network():
        return nn.Sequential(nn.Linear(20, hidden), nn.ReLU(), nn.Linear(hidden, 10))

    weights = FLOAT * (21 * hidden + (hidden + 1) * 10)
    activations = FLOAT * (20 + hidden + 10)  # input, hidden values after the ReLU, output
    expected = (TENSORS_PER_PARAMETER + 2) * weights + TEMPORARIES * activations * batch
    assert network_bytes(network, torch.randn(batch, 20), 2) == expected


def test_activation_bytes_grow_with_the_image_area():
    def convolutions():
        return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 2, 3, padding=1), nn.Flatten())

    weights = TENSORS_PER_PARAMETER * FLOAT * sum(p.numel() for p in convolutions().parameters())
    small, large = (network_bytes(convolutions, torch.randn(16, 3, side, side), 0) - weights for side in (8, 16))
    assert large == pytest.approx(4 * small, rel=0.05)


def test_batch_norm_and_dropout_keep_activations():
    def network(*layers):
        return lambda: nn.Sequential(nn.Linear(20, 64), *layers, nn.ReLU(), nn.Linear(64, 10))

    before, batch = torch.random.get_rng_state(), torch.ones(32, 20)
    plain, more = (network_bytes(network(*layers), batch, 0) for layers in ([], [nn.BatchNorm1d(64), nn.Dropout()]))
    activations, weights = TEMPORARIES * FLOAT * 32 * 64, TENSORS_PER_PARAMETER * FLOAT * 2 * 64
    assert activations < more - plain - weights < 4 * activations
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize(
    ("free", "member_bytes", "members", "fit"),
    [
        (1000, 100, 20, 8),  # 80 % of the free memory
        (1000, 100, 5, 5),
        (1000, 10**12, 5, 1),  # at least one
        (1000, 0, 5, 5),
        (None, 10**12, 5, 5),  # unknown: all
    ],
)
def test_members_that_fit(free, member_bytes, members, fit, monkeypatch):
    monkeypatch.setattr("s2e.engine.memory.free_memory", lambda _: free)
    assert members_that_fit(member_bytes, CPU, members) == fit


def test_free_memory_is_unknown_for_other_devices():
    free = free_memory(CPU)
    assert free is None or free > 0
    assert free_memory(torch.device("meta")) is None


def test_one_large_block_is_reserved_however_many_trainings_there_are(monkeypatch):
    reserved, empty = [], torch.empty

    def count(*size, **options):
        reserved.extend([size] if size == (REUSED_BYTES,) else [])
        return empty(*size, **options)

    keep_freed_memory.cache_clear()
    monkeypatch.setattr(torch, "empty", count)
    for seed in range(3):
        train_population(task(blobs(), Coteaching(), epochs=1), [member(epochs=1, seed=seed)])
    assert len(reserved) == 1
