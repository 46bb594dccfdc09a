"""Layers of G stacked networks equal the layers of separate networks, and no network depends on the others."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from populations import assert_same
from s2e.engine.aligned_rows import ALIGNMENT, aligned_rows, with_padding, zeros_like_rows
from s2e.engine.optimizers import SGD, Adam, RMSProp
from s2e.engine.stacked_layers import stacked_forward
from s2e.engine.stacked_networks import StackedNetworks
from s2e.engine.training import train_population
from s2e.methods import Coteaching, JoCoR, Standard
from s2e.networks import reference_network
from small_tasks import blobs, member, task

CPU = torch.device("cpu")
SEEDS = (5, 2**62 + 1, 7)


def layer_by_layer() -> nn.Module:
    return nn.Sequential(
        nn.Linear(6, 13),
        nn.BatchNorm1d(13),
        nn.GELU(),
        nn.Sequential(nn.Linear(13, 7, bias=False), nn.LayerNorm(7), nn.LeakyReLU(0.1)),
        nn.Identity(),
        nn.BatchNorm1d(7, affine=False, track_running_stats=False),
        nn.Linear(7, 4),
    )


def inputs_of(samples: int, *shape: int) -> torch.Tensor:
    return torch.randn(samples, *shape, generator=torch.Generator().manual_seed(1))


# --------------------------------------------------------------------------------------------------- as separate ones


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("samples", [16, 9, 2])
def test_every_layer_equals_torch(samples, training):
    stacked, looped = (StackedNetworks(layer_by_layer, SEEDS, CPU, vectorize=how) for how in (None, False))
    assert stacked_forward(layer_by_layer()) is not None
    for step in range(2):
        inputs = inputs_of(samples, 6) + step
        logits = [networks.forward(inputs, training=training) for networks in (stacked, looped)]
        torch.testing.assert_close(*logits, rtol=1e-4, atol=1e-5)
        gradients = [
            networks.gradients((own**2).sum()) for networks, own in zip((stacked, looped), logits, strict=True)
        ]
        for own, expected in zip(*gradients, strict=True):
            torch.testing.assert_close(own, torch.stack([*expected]), rtol=1e-3, atol=1e-4)
    for name, tensor in looped.state().items():  # running statistics too
        torch.testing.assert_close(stacked.state()[name], tensor)


def test_images_are_flattened_first():
    factory = reference_network("mlp", (1, 4, 4), 3)
    stacked, looped = (StackedNetworks(factory, SEEDS, CPU, vectorize=how) for how in (None, False))
    inputs = inputs_of(5, 1, 4, 4)
    assert stacked.vectorized
    torch.testing.assert_close(*(networks.forward(inputs, training=False) for networks in (stacked, looped)))


def test_dropout_draws_the_numbers_of_a_module():
    def factory() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.4), nn.Linear(16, 4))

    stacked, looped = (StackedNetworks(factory, SEEDS, CPU, vectorize=how) for how in (None, False))
    with torch.random.fork_rng(devices=[]):
        for _ in range(2):
            logits = [networks.forward(inputs_of(8, 6), training=True) for networks in (stacked, looped)]
            torch.testing.assert_close(*logits)


class OwnLinear(nn.Linear):
    """A layer whose forward pass is unknown."""


@pytest.mark.parametrize(
    "module",
    [
        nn.Conv2d(3, 4, 3),
        OwnLinear(6, 4),
        nn.Sequential(nn.Linear(6, 4), OwnLinear(4, 4)),
        nn.Sequential(nn.Flatten(2), nn.Linear(6, 4)),
        nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4, momentum=None)),
        nn.Sequential(nn.Linear(6, 4), nn.Dropout(1.0)),
        nn.Sequential(nn.ReLU()),
    ],
    ids=str,
)
def test_other_modules_are_left_to_torch(module):
    assert stacked_forward(module) is None


def test_modules_with_hooks_are_left_to_torch():
    module = nn.Sequential(nn.Linear(6, 4), nn.ReLU())
    module[1].register_forward_hook(lambda *_: None)
    assert stacked_forward(module) is None


def test_samples_with_more_axes_use_a_loop():
    def factory() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))

    networks = StackedNetworks(factory, SEEDS, CPU)
    logits = networks.forward(inputs_of(5, 2, 6), training=False)
    expected = StackedNetworks(factory, SEEDS, CPU, vectorize=False).forward(inputs_of(5, 2, 6), training=False)
    assert torch.equal(logits, expected)
    assert not networks.layered


# ------------------------------------------------------------------------------------------ independent of each other


@pytest.mark.parametrize("features", [1, 6, 13, 64])
@pytest.mark.parametrize(("batch_size", "width"), [(32, 64), (16, 33), (9, 7), (128, 256)])
def test_a_member_is_the_same_in_every_population(features, batch_size, width):
    def factory() -> nn.Module:
        return nn.Sequential(nn.Linear(features, width), nn.ReLU(), nn.Dropout(0.2), nn.Linear(width, 4))

    shared = task(
        blobs(256, features=features),
        Coteaching(),
        network=factory,
        batch_size=batch_size,
        epochs=2,
        evaluate={"valid": blobs(50, features=features, seed=2)},
    )
    methods = [Coteaching(), JoCoR(), Standard()]
    members = [member(0.5, seed=seed, epochs=2, method=methods[seed % 3]) for seed in range(7)]
    together = train_population(shared, members)
    for index in (0, 1, 2, 6):
        assert_same(together.take([index]), train_population(shared, [members[index]]))


@pytest.mark.parametrize(
    "optimizer", [Adam(), SGD(momentum=0.9), RMSProp(momentum=0.5)], ids=["adam", "sgd", "rmsprop"]
)
def test_a_member_is_the_same_with_every_optimizer(optimizer):
    shared = replace(task(blobs(), Standard(), epochs=2), optimizer=optimizer)
    members = [member(0.5, seed=seed, epochs=2, learning_rate=1e-3 * (1 + seed // 2)) for seed in range(5)]
    together = train_population(shared, members)
    for index, one in enumerate(members):
        assert_same(together.take([index]), train_population(shared, [one]))


# ------------------------------------------------------------------------------------------------------- aligned rows


@pytest.mark.parametrize("shape", [(3, 5), (3, 16), (2, 4, 7), (4, 1), (2,)])
def test_aligned_rows_start_at_multiples(shape):
    tensor = torch.randn(shape)
    aligned = aligned_rows(tensor)
    assert torch.equal(aligned, tensor)
    assert aligned.stride(0) % ALIGNMENT == 0
    padded = with_padding(aligned)
    size = tensor[0].numel()
    assert torch.equal(padded[:, :size], tensor.flatten(1) if tensor.ndim > 1 else tensor.unsqueeze(1))
    assert not padded[:, size:].any()
    assert zeros_like_rows(aligned).stride() == aligned.stride()
