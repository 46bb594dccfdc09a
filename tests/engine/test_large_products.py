"""Large products equal torch's, and do not depend on the number of threads or on other networks."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from populations import assert_same
from s2e.engine.large_products import _is_large, linear, threads_for_large_products
from s2e.engine.training import train_population
from s2e.methods import Reweight, Standard
from small_tasks import blobs, member, task

SIZES = [(256, 784, 128), (96, 400, 128), (512, 64, 128), (128, 3072, 32), (64, 1008, 64), (256, 64, 128)]
"""Outputs, inputs and samples."""


def operands(outputs, inputs, samples, networks=3):
    generator = torch.Generator().manual_seed(0)
    shapes = [(outputs, inputs), (inputs, samples), (outputs,), (outputs, samples)]
    return [torch.randn(networks, *shape, generator=generator) for shape in shapes]


def with_gradients(function, weight, features, bias, gradient):
    leaves = [tensor.clone().requires_grad_() for tensor in (weight, features, bias)]
    product = function(*leaves)
    return [product.detach(), *torch.autograd.grad(product, leaves, gradient)]


@pytest.fixture(autouse=True)
def _small_products_are_large(monkeypatch):
    monkeypatch.setattr("s2e.engine.large_products.LARGE_FLOPS", 8e6)  # so that the tests are short
    monkeypatch.setattr("s2e.engine.optimizers.row_optimizer.LARGE_BLOCKS", 100_000)


@pytest.fixture
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("sizes", SIZES[:2], ids=str)
def test_large_product_equals_torch(sizes):
    with threads_for_large_products(2):
        own = with_gradients(linear, *operands(*sizes))
    expected = with_gradients(
        lambda weight, features, bias: torch.baddbmm(bias.unsqueeze(2), weight, features), *operands(*sizes)
    )
    for one, other in zip(own, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-3)


@pytest.mark.usefixtures("_one_thread")
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_large_product_does_not_depend_on_threads_or_other_networks(sizes):
    assert _is_large(3, *sizes)
    expected = with_gradients(linear, *operands(*sizes))
    for threads in (2, 4, 7):
        with threads_for_large_products(threads):
            together = with_gradients(linear, *operands(*sizes))
            alone = with_gradients(linear, *(tensor[1:2] for tensor in operands(*sizes)))
        assert torch.get_num_threads() == 1
        for one, other, single in zip(expected, together, alone, strict=True):
            assert torch.equal(one, other)
            assert torch.equal(one[1:2], single)


def test_sizes_whose_rounding_depends_on_threads_are_not_large():
    assert not _is_large(3, 100, 784, 128)
    assert not _is_large(3, 256, 784, 100)
    assert not _is_large(3, 64, 16, 32)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_large_product_is_differentiated_along_a_direction():
    values = operands(*SIZES[1])[:3]
    direction = [torch.randn_like(tensor) for tensor in values]
    with threads_for_large_products(2):
        _, tangent = torch.func.jvp(linear, tuple(values), tuple(direction))
    expected = direction[0] @ values[1] + values[0] @ direction[1] + direction[2].unsqueeze(2)
    torch.testing.assert_close(tangent, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("method", [Standard(), Reweight()], ids=["standard", "reweight"])
def test_member_with_large_products_is_the_same_in_every_population(method, monkeypatch):
    monkeypatch.setattr("s2e.engine.threads.FLOPS_PER_THREAD", 1.0)  # several members are trained in several threads

    def factory() -> nn.Module:
        return nn.Sequential(nn.Linear(400, 128), nn.ReLU(), nn.Linear(128, 4))

    shared = task(blobs(256, features=400), method, network=factory, batch_size=128, epochs=2)
    if shared.clean is not None:
        shared = replace(shared, clean=blobs(96, features=400, wrong=0.0, seed=1))
    members = [member(0.5, seed=seed, epochs=2) for seed in range(3)]
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        together = train_population(shared, members)
        for index, one in enumerate(members):
            assert_same(together.take([index]), train_population(shared, [one]))
    finally:
        torch.set_num_threads(before)
