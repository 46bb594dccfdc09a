"""Batched layers have the outputs, gradients and running statistics of torch's own layers."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.func import functional_call, jvp, vmap
from torch.nn import functional

from s2e.engine.compiled.layers import BatchedLayers
from s2e.engine.compiled.layers.convolution import _batch_splits
from s2e.engine.compiled.layers.vmap_rule import pad_to_multiple
from s2e.engine.compiled.materialise import materialised
from s2e.engine.stacked_networks import _prepare_forward_differentiation
from s2e.networks.cnn import cifar10_cnn, cifar100_cnn
from s2e.networks.densenet import densenet_bc
from s2e.networks.mlp import mlp
from s2e.networks.resnet import resnet, wide_resnet

NETWORKS = 3


def conv(**changes):
    return nn.Sequential(nn.Conv2d(3, 6, 3, **changes), nn.Flatten())


CASES = {
    "linear without bias": (lambda: nn.Linear(6, 5, bias=False), (4, 6)),
    "linear over more axes": (lambda: nn.Linear(6, 5), (4, 3, 6)),
    "two linear layers": (lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5)), (4, 6)),
    "padded convolution without bias": (lambda: conv(padding=(1, 2), bias=False), (4, 3, 7, 6)),
    "strided convolution": (lambda: conv(stride=2), (4, 3, 7, 6)),
    "strided convolution of many channels": (lambda: nn.Conv2d(20, 4, 3, stride=2, padding=1), (4, 20, 7, 6)),
    "strided convolution of single pixels": (lambda: nn.Conv2d(20, 4, 1, stride=(2, 3), bias=False), (4, 20, 7, 6)),
    "strided and padded convolution of single pixels": (lambda: nn.Conv2d(3, 4, 1, stride=2, padding=1), (4, 3, 7, 6)),
    "padding by name": (lambda: conv(padding="same"), (4, 3, 7, 6)),
    "grouped convolution": (lambda: conv(groups=3), (4, 3, 7, 6)),
    "two convolutions": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 6, (2, 3))), (4, 3, 7, 8)),
    "many channels": (lambda: nn.Sequential(nn.Conv2d(20, 4, 3, padding=1), nn.Conv2d(4, 20, 1)), (4, 20, 5, 6)),
    "many channels without padding": (lambda: nn.Conv2d(20, 4, 3), (4, 20, 5, 6)),
    "pooling of odd sides": (lambda: nn.Sequential(nn.Conv2d(3, 4, 1), nn.MaxPool2d(2)), (4, 3, 5, 8)),
    "pooling of other windows": (lambda: nn.Sequential(nn.Conv2d(3, 4, 1), nn.MaxPool2d(3, 2)), (4, 3, 6, 8)),
    "batch norm of images": (lambda: nn.Sequential(nn.Conv2d(3, 4, 2), nn.BatchNorm2d(4)), (4, 3, 6, 8)),
    "batch norm without weights": (
        lambda: nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5, affine=False, momentum=0.3)),
        (4, 6),
    ),
    "batch norm without running statistics": (
        lambda: nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5, track_running_stats=False)),
        (4, 6),
    ),
    "mlp": (lambda: mlp((1, 6, 6), 4, widths=[9]), (4, 1, 6, 6)),
    "cifar10-cnn": (lambda: cifar10_cnn((3, 16, 16), 4), (4, 3, 16, 16)),
    "cifar100-cnn": (lambda: cifar100_cnn((3, 8, 8), 4), (4, 3, 8, 8)),
    "resnet": (lambda: resnet((3, 8, 8), 4, depth=18, width=4), (4, 3, 8, 8)),
    "wide resnet": (lambda: wide_resnet((3, 8, 8), 4, depth=10, factor=2), (4, 3, 8, 8)),
    "densenet": (lambda: densenet_bc((3, 8, 8), 4, depth=16, growth=4), (4, 3, 8, 8)),
}


def stacked(build):
    """A module, and the weights and buffers (G, ...) by name of networks like it, in float64."""
    torch.manual_seed(0)
    modules = [build().double() for _ in range(NETWORKS)]
    parameters = {
        name: torch.stack([dict(module.named_parameters())[name].detach() for module in modules]).requires_grad_()
        for name, _ in modules[0].named_parameters()
    }
    buffers = {
        name: torch.stack([dict(module.named_buffers())[name] for module in modules])
        for name, _ in modules[0].named_buffers()
    }
    return modules[0], parameters, buffers


def outputs(module, parameters, buffers, inputs):
    return vmap(lambda weights, own: functional_call(module, {**weights, **own}, (inputs,)))(parameters, buffers)


def copies(buffers):
    return {name: buffer.clone() for name, buffer in buffers.items()}


@pytest.fixture(autouse=True)
def _float64(monkeypatch):
    """Replace float32 by float64, so that a difference is an error and not rounding."""
    original = BatchedLayers.__init__

    def exact(self, *, bfloat16):
        original(self, bfloat16=bfloat16)
        self._product_dtype = torch.bfloat16 if bfloat16 else torch.float64

    monkeypatch.setattr(BatchedLayers, "__init__", exact)
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)  # gradients of patches


@pytest.mark.parametrize("case", CASES)
def test_batched_layer_equals_torch(case):
    build, shape = CASES[case]
    module, parameters, buffers = stacked(build)
    inputs = torch.randn(shape, dtype=torch.float64)
    own_buffers = copies(buffers)
    expected = outputs(module, parameters, buffers, inputs)
    with BatchedLayers(bfloat16=False):
        found = outputs(module, parameters, own_buffers, inputs)
    torch.testing.assert_close(found, expected)
    for name, buffer in buffers.items():
        torch.testing.assert_close(own_buffers[name], buffer)
    direction = torch.randn_like(expected)
    by_torch = torch.autograd.grad((expected * direction).sum(), list(parameters.values()))
    by_rule = torch.autograd.grad((found * direction).sum(), list(parameters.values()))
    for one, other, name in zip(by_rule, by_torch, parameters, strict=True):
        torch.testing.assert_close(one, other, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("case", ["two linear layers", "two convolutions", "many channels", "cifar100-cnn", "resnet"])
def test_forward_mode_derivative_equals_torch(case):
    build, shape = CASES[case]
    module, parameters, buffers = stacked(build)
    _prepare_forward_differentiation()
    inputs = torch.randn(shape, dtype=torch.float64)
    weights = {name: tensor.detach() for name, tensor in parameters.items()}
    direction = {name: torch.randn_like(tensor) for name, tensor in weights.items()}

    def change():
        return jvp(lambda given: outputs(module, given, copies(buffers), inputs), (weights,), (direction,))[1]

    expected = change()
    with BatchedLayers(bfloat16=False):
        found = change()
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("case", ["mlp", "cifar10-cnn"])
def test_bfloat16_is_close_and_limited_to_convolutions_and_gradients(case):
    build, shape = CASES[case]
    module, parameters, buffers = stacked(build)
    inputs = torch.rand(shape, dtype=torch.float64)
    expected = outputs(module, parameters, copies(buffers), inputs)
    with BatchedLayers(bfloat16=True):
        found = outputs(module, parameters, buffers, inputs)
    assert found.dtype == expected.dtype
    if case == "mlp":
        torch.testing.assert_close(found, expected)
    (by_torch, *_), (by_rule, *_) = (
        torch.autograd.grad(one.square().sum(), list(parameters.values())) for one in (expected, found)
    )
    error = (by_rule - by_torch).norm() / by_torch.norm()
    assert 0 < error < 0.05


def test_layers_outside_vmap_are_unchanged():
    module = cifar10_cnn((3, 16, 16), 4).double()
    inputs = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    expected = module(inputs)
    with BatchedLayers(bfloat16=True):
        assert torch.equal(module(inputs), expected)


def test_pooling_gradient_goes_to_the_first_of_equal_elements():
    images = torch.ones(NETWORKS, 2, 1, 4, 4, dtype=torch.float64).requires_grad_()
    expected = images.detach().clone().requires_grad_()
    pool = nn.MaxPool2d(2)
    with BatchedLayers(bfloat16=False):
        vmap(pool)(images).sum().backward()
    vmap(pool)(expected).sum().backward()
    assert torch.equal(images.grad, expected.grad)


def test_pooling_propagates_nan():
    images = torch.zeros(NETWORKS, 1, 1, 2, 2)
    images[0, 0, 0, 0, 1], images[1, 0, 0, 0, 0] = torch.nan, torch.nan
    with BatchedLayers(bfloat16=False):
        found = vmap(nn.MaxPool2d(2))(images).flatten()
    assert found.isnan().tolist() == [True, True, False]


def test_batch_is_split_until_there_are_enough_products():
    assert [_batch_splits(networks, 128) for networks in (1, 12, 64, 128, 500)] == [128, 16, 2, 1, 1]
    assert _batch_splits(2, 12) == 4  # 12 is not divisible by 8
    assert _batch_splits(2, 7) == 1


@pytest.mark.parametrize("length", [7, 8, 9])
def test_padding_fills_with_zeros_to_a_multiple(length):
    tensor = torch.randn(2, length, 3)
    padded = pad_to_multiple(tensor, dim=1)
    assert padded.shape[1] == {7: 8, 8: 8, 9: 16}[length]
    assert torch.equal(padded[:, :length], tensor)
    assert not padded[:, length:].any()
    assert torch.equal(pad_to_multiple(tensor.mT, dim=-1), padded.mT)


@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_cross_entropy_equals_torch(scale):
    torch.manual_seed(0)
    labels, weights = torch.randint(0, 7, (40,)), torch.randn(40)
    found = []
    for mode in (nullcontext(), BatchedLayers(bfloat16=False)):
        logits = (scale * torch.randn(40, 7, generator=torch.Generator().manual_seed(1))).requires_grad_()
        with mode:
            losses = functional.cross_entropy(logits, labels, reduction="none")
        found.append((losses, *torch.autograd.grad((losses * weights).sum(), logits)))
    for by_torch, by_rule in zip(*found, strict=True):
        torch.testing.assert_close(by_rule, by_torch)


def test_cross_entropy_of_a_confident_prediction_is_exact():
    logits = torch.tensor([[100.0, 86.0, 0.0]])  # log(1 + 8.3e-7)
    with BatchedLayers(bfloat16=False):
        loss = functional.cross_entropy(logits, torch.tensor([0]), reduction="none")
    torch.testing.assert_close(loss, functional.cross_entropy(logits, torch.tensor([0]), reduction="none"))


@pytest.mark.parametrize(
    "options",
    [
        {"reduction": "mean"},
        {"reduction": "none", "label_smoothing": 0.1},
        {"reduction": "none", "weight": torch.tensor([1.0, 2.0, 3.0])},
    ],
    ids=" ".join,
)
def test_other_cross_entropies_are_unchanged(options):
    logits, labels = torch.randn(5, 3), torch.tensor([0, 1, 2, 1, 0])
    with BatchedLayers(bfloat16=False):
        found = functional.cross_entropy(logits, labels, **options)
    assert torch.equal(found, functional.cross_entropy(logits, labels, **options))


def test_materialised_tensor_is_equal():
    tensor = torch.randn(3, 4, 5)
    assert torch.equal(materialised(tensor), tensor)
    assert torch.equal(materialised(tensor.mT), tensor.mT)
