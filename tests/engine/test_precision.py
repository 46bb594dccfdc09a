"""Precision of products: bfloat16 is close to float32, and everything else stays float32."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from populations import ALL_METHODS, assert_same, with_batch_norm, with_convolutions
from s2e.engine.compiled.layers import BatchedLayers
from s2e.engine.precision import PRECISIONS, check_precision, forward_precision, product_precision
from s2e.engine.stacked_networks import StackedNetworks
from s2e.engine.training import train_population
from s2e.errors import InvalidInput
from s2e.methods import Coteaching, Reweight
from small_tasks import blobs, member, task

CPU = torch.device("cpu")
SEEDS = (1, 2, 3)


@pytest.mark.parametrize("vectorize", [True, False], ids=["vectorized", "looped"])
def test_products_are_bfloat16_and_logits_float32(vectorize):
    seen = []

    class Watched(nn.Linear):
        def forward(self, inputs):
            outputs = super().forward(inputs)
            seen.append(outputs.dtype)
            return outputs

    def factory():
        return nn.Sequential(Watched(6, 32), nn.ReLU(), nn.Linear(32, 4))

    inputs = torch.randn(16, 6, generator=torch.Generator().manual_seed(0))
    narrow, full = (
        StackedNetworks(factory, SEEDS, CPU, vectorize=vectorize, precision=precision).forward(inputs, training=True)
        for precision in ("bfloat16", "float32")
    )
    assert seen[0] == torch.bfloat16
    assert seen[-1] == torch.float32
    assert narrow.dtype == torch.float32
    assert not torch.equal(narrow, full)
    torch.testing.assert_close(narrow, full, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("network", [with_batch_norm, with_convolutions], ids=["batch norm", "convolutions"])
def test_rules_of_compiled_layers_support_bfloat16(network):
    inputs = torch.randn(32, 6, generator=torch.Generator().manual_seed(0))
    losses, gradients = [], []
    for rules in (False, True):
        networks = StackedNetworks(network, SEEDS, CPU, vectorize=True, precision="bfloat16")
        networks.forward(inputs, training=False)  # tries whether vmap supports the network
        if rules:
            with BatchedLayers(bfloat16=True):
                logits = networks.forward(inputs, training=True)
        else:
            logits = networks.forward(inputs, training=True)
        assert logits.dtype == torch.float32
        losses.append(logits.square().mean())
        gradients.append(networks.gradients(losses[-1]))
    torch.testing.assert_close(*losses, rtol=0.05, atol=0.01)
    for one, other in zip(*gradients, strict=True):
        assert one.dtype == torch.float32
        difference = (one - other).norm() / (other.norm() + 1e-3)
        assert difference < 0.15


def test_training_in_bfloat16_is_close_and_members_stay_independent():
    data = blobs(wrong=0.0)
    shared, full = (
        task(data, Coteaching(), precision=precision, epochs=6, evaluate={"valid": blobs(96, wrong=0.0, seed=1)})
        for precision in ("bfloat16", "float32")
    )
    members = [member(0.9, seed=seed, epochs=6, learning_rate=1e-2) for seed in range(3)]
    trained = train_population(shared, members)
    assert {tensor.dtype for tensor in trained.state.values()} == {torch.float32}
    accuracies = [each.curves.accuracy["valid"][:, -1] for each in (trained, train_population(full, members))]
    assert abs(accuracies[0] - accuracies[1]).max() < 0.1
    assert_same(trained.take([1]), train_population(shared, [members[1]]))


def test_every_method_trains_in_bfloat16(train_data):
    shared = task(train_data, Reweight(), precision="bfloat16", epochs=1)
    trained = train_population(shared, [member(seed=1, epochs=1, method=method) for method in ALL_METHODS])
    assert not trained.curves.diverged.any()


def test_auto_is_float32_on_a_cpu(train_data):
    members = [member(seed=1, epochs=2)]
    auto, full = (
        train_population(task(train_data, Coteaching(), precision=precision, epochs=2), members)
        for precision in ("auto", "float32")
    )
    assert_same(auto, full)


def test_settings_of_torch_are_restored():
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    for precision in PRECISIONS:
        with product_precision(precision), forward_precision(precision, CPU):
            assert (torch.get_float32_matmul_precision() == "highest") == (precision == "float32")
            assert torch.is_autocast_enabled("cpu") == (precision == "bfloat16")
        assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == before
        assert not torch.is_autocast_enabled("cpu")


def test_unknown_precision_is_refused(train_data):
    with pytest.raises(InvalidInput, match=r"`precision` must be one of bfloat16, .*, but got 'float16'"):
        check_precision("float16")
    with pytest.raises(InvalidInput, match=r"`precision` must be one of .*, but got None"):
        check_precision(None)
    with pytest.raises(InvalidInput, match="precision"):
        train_population(task(train_data, Coteaching(), precision="half"), [member()])
