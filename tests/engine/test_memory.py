"""What a network needs, counted by hand, and how many members that leaves room for."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from s2e.engine.memory import (
    PROBE_SAMPLES,
    TEMPORARIES,
    TENSORS_PER_PARAMETER,
    free_memory,
    members_that_fit,
    network_bytes,
)

CPU = torch.device("cpu")
FLOAT = 4


def one_hidden_layer(features=20, hidden=64, classes=10):
    return lambda: nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, classes))


def by_hand(features, hidden, classes, batch):
    """Weights four times; of each sample its input, its hidden values after the ReLU, and its output, twice."""
    weights = FLOAT * ((features + 1) * hidden + (hidden + 1) * classes)
    activations = FLOAT * (features + hidden + classes)
    return TENSORS_PER_PARAMETER * weights + TEMPORARIES * activations * batch


@pytest.mark.parametrize("batch", [1, PROBE_SAMPLES - 1, PROBE_SAMPLES, 128])
@pytest.mark.parametrize("hidden", [1, 64, 256])
def test_an_mlps_bytes_match_the_count_by_hand(hidden, batch):
    assert network_bytes(one_hidden_layer(hidden=hidden), torch.randn(batch, 20)) == by_hand(20, hidden, 10, batch)


def test_bytes_grow_in_proportion_to_the_batch_above_the_weights():
    network = one_hidden_layer()
    one, two, three = (network_bytes(network, torch.randn(batch, 20)) for batch in (32, 64, 96))
    assert two - one == three - two > 0


def test_bytes_grow_in_proportion_to_the_width():
    batch = torch.randn(32, 20)
    one, two, three = (network_bytes(one_hidden_layer(hidden=hidden), batch) for hidden in (100, 200, 300))
    assert two - one == three - two > 0


def test_an_image_of_twice_the_side_needs_about_four_times_the_activations():
    def convolutions():
        return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 2, 3, padding=1), nn.Flatten())

    weights = TENSORS_PER_PARAMETER * FLOAT * sum(p.numel() for p in convolutions().parameters())
    small, large = (network_bytes(convolutions, torch.randn(16, 3, side, side)) - weights for side in (8, 16))
    assert large == pytest.approx(4 * small, rel=0.05)


def test_batch_norm_dropout_and_depth_add_to_what_is_kept():
    batch = torch.randn(32, 20)
    plain = one_hidden_layer()

    def deeper():
        layers = [nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(), nn.Linear(64, 64), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(64, 10))

    extra_weights = TENSORS_PER_PARAMETER * FLOAT * (2 * 64 + 65 * 64)
    activations = TEMPORARIES * FLOAT * 32 * 64
    found = network_bytes(deeper, batch) - network_bytes(plain, batch) - extra_weights
    assert 2 * activations < found < 6 * activations  # of the norm, of dropout and of the second hidden layer


def test_counting_leaves_the_callers_random_state_alone():
    before = torch.random.get_rng_state()
    network_bytes(lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout()), torch.ones(4, 4))
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize(
    ("free", "member_bytes", "members", "fit"),
    [
        (1000, 100, 20, 8),  # four fifths of what is free
        (1000, 100, 5, 5),  # no more than there are
        (1000, 801, 5, 1),
        (1000, 10**12, 5, 1),  # at least one, whatever it takes
        (0, 100, 5, 1),
        (1000, 0, 5, 5),
        (None, 10**12, 5, 5),  # nobody knows: try all
    ],
)
def test_members_that_fit_match_values_worked_by_hand(free, member_bytes, members, fit, monkeypatch):
    monkeypatch.setattr("s2e.engine.memory.free_memory", lambda _: free)
    assert members_that_fit(member_bytes, CPU, members) == fit


def test_free_memory_is_told_for_a_cpu_and_unknown_elsewhere():
    free = free_memory(CPU)
    assert free is None or free > 0
    assert free_memory(torch.device("meta")) is None
