"""Layers of a population as one product: the same outputs, gradients and running statistics as torch's own layers."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.func import functional_call, jvp, vmap
from torch.nn import functional

from s2e.engine.compiled.layers import AsOneProduct
from s2e.engine.compiled.layers.convolution import ENOUGH_PRODUCTS, _parts
from s2e.engine.compiled.layers.vmap_rule import aligned
from s2e.engine.compiled.materialise import written_down
from s2e.engine.stacked_networks import _prepare_forward_differentiation
from s2e.networks.cnn import cifar10_cnn, cifar100_cnn
from s2e.networks.mlp import mlp

NETWORKS = 3


def convolution(**changes):
    return nn.Sequential(nn.Conv2d(3, 5, 3, **changes), nn.Flatten())


CASES = {
    "linear": (lambda: nn.Linear(6, 5), (4, 6)),
    "linear without bias": (lambda: nn.Linear(6, 5, bias=False), (4, 6)),
    "linear over more axes": (lambda: nn.Linear(6, 5), (4, 3, 6)),
    "two linear layers": (lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5)), (4, 6)),
    "convolution": (convolution, (4, 3, 7, 6)),
    "padded convolution": (lambda: convolution(padding=(1, 2)), (4, 3, 7, 6)),
    "convolution without bias": (lambda: convolution(bias=False), (4, 3, 7, 6)),
    "convolution with strides": (lambda: convolution(stride=2), (4, 3, 7, 6)),
    "padding by name": (lambda: convolution(padding="same"), (4, 3, 7, 6)),
    "grouped convolution": (lambda: convolution_of_groups(), (4, 3, 7, 6)),
    "two convolutions": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 6, (2, 3))), (4, 3, 7, 8)),
    "many channels": (lambda: nn.Sequential(nn.Conv2d(20, 4, 3, padding=1), nn.Conv2d(4, 20, 1)), (4, 20, 5, 6)),
    "pooling": (lambda: nn.Sequential(nn.Conv2d(3, 4, 1), nn.MaxPool2d(2)), (4, 3, 6, 8)),
    "pooling of odd sides": (lambda: nn.Sequential(nn.Conv2d(3, 4, 1), nn.MaxPool2d(2)), (4, 3, 5, 8)),
    "pooling of other windows": (lambda: nn.Sequential(nn.Conv2d(3, 4, 1), nn.MaxPool2d(3, 2)), (4, 3, 6, 8)),
    "batch norm": (lambda: nn.Sequential(nn.Conv2d(3, 4, 2), nn.BatchNorm2d(4)), (4, 3, 6, 8)),
    "batch norm of features": (lambda: nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5)), (4, 6)),
    "batch norm without weights": (
        lambda: nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5, affine=False, momentum=0.3)),
        (4, 6),
    ),
    "batch norm without memory": (
        lambda: nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5, track_running_stats=False)),
        (4, 6),
    ),
    "mlp": (lambda: mlp((1, 6, 6), 4, hidden=9), (4, 1, 6, 6)),
    "cifar10-cnn": (lambda: cifar10_cnn((3, 16, 16), 4), (4, 3, 16, 16)),
    "cifar100-cnn": (lambda: cifar100_cnn((3, 8, 8), 4), (4, 3, 8, 8)),
}


def convolution_of_groups():
    return nn.Sequential(nn.Conv2d(3, 6, 3, groups=3), nn.Flatten())


def stacked(build):
    """Networks of different weights: the module, and weights and buffers (G, ...) by name, in float64."""
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
    return vmap(lambda own, kept: functional_call(module, {**own, **kept}, (inputs,)))(parameters, buffers)


@pytest.fixture(autouse=True)
def _in_double(monkeypatch):
    """Work in float64, where what is left is rounding and not precision."""
    start = AsOneProduct.__init__

    def exact(self, *, narrow):
        start(self, narrow=narrow)
        self._type = torch.float64 if not narrow else torch.bfloat16

    monkeypatch.setattr(AsOneProduct, "__init__", exact)
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)  # sums of windows


@pytest.mark.parametrize("case", CASES)
def test_a_layer_by_its_rule_equals_torchs_own(case):
    build, shape = CASES[case]
    module, parameters, buffers = stacked(build)
    inputs = torch.randn(shape, dtype=torch.float64)
    memory = {name: buffer.clone() for name, buffer in buffers.items()}
    expected = outputs(module, parameters, buffers, inputs)
    with AsOneProduct(narrow=False):
        found = outputs(module, parameters, memory, inputs)
    torch.testing.assert_close(found, expected)
    for name, buffer in buffers.items():
        torch.testing.assert_close(memory[name], buffer)
    direction = torch.randn_like(expected)
    by_torch = torch.autograd.grad((expected * direction).sum(), list(parameters.values()))
    by_rule = torch.autograd.grad((found * direction).sum(), list(parameters.values()))
    for one, other, name in zip(by_rule, by_torch, parameters, strict=True):
        torch.testing.assert_close(one, other, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("case", ["two linear layers", "two convolutions", "cifar10-cnn", "batch norm"])
def test_outputs_can_be_differentiated_along_a_direction_of_the_weights(case):
    build, shape = CASES[case]
    module, parameters, buffers = stacked(build)
    _prepare_forward_differentiation()
    inputs = torch.randn(shape, dtype=torch.float64)
    weights = {name: tensor.detach() for name, tensor in parameters.items()}
    direction = {name: torch.randn_like(tensor) for name, tensor in weights.items()}

    def change():
        def of(given):
            return outputs(module, given, {name: buffer.clone() for name, buffer in buffers.items()}, inputs)

        return jvp(of, (weights,), (direction,))[1]

    expected = change()
    with AsOneProduct(narrow=False):
        found = change()
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("case", ["mlp", "cifar10-cnn"])
def test_narrow_products_are_close_and_only_gradients_and_convolutions_are_narrow(case):
    build, shape = CASES[case]
    module, parameters, buffers = stacked(build)
    inputs = torch.rand(shape, dtype=torch.float64)
    expected = outputs(module, parameters, {name: buffer.clone() for name, buffer in buffers.items()}, inputs)
    with AsOneProduct(narrow=True):
        found = outputs(module, parameters, buffers, inputs)
    assert found.dtype == expected.dtype
    if case == "mlp":
        torch.testing.assert_close(found, expected)
    (by_torch, *_), (by_rule, *_) = (
        torch.autograd.grad(one.square().sum(), list(parameters.values())) for one in (expected, found)
    )
    error = (by_rule - by_torch).norm() / by_torch.norm()
    assert 0 < error < 0.05


def test_layers_outside_vmap_are_left_alone():
    module = cifar10_cnn((3, 16, 16), 4).double()
    inputs = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    with AsOneProduct(narrow=True):
        assert torch.equal(module(inputs), module.forward(inputs))
    assert torch.equal(module(inputs), module(inputs))


def test_the_larger_of_equal_neighbours_is_the_first():
    """Gradients of pooling go to one place only, as torch's do."""
    images = torch.ones(NETWORKS, 2, 1, 4, 4, dtype=torch.float64).requires_grad_()
    images_of_torch = images.detach().clone().requires_grad_()
    pool = nn.MaxPool2d(2)
    with AsOneProduct(narrow=False):
        vmap(pool)(images).sum().backward()
    vmap(pool)(images_of_torch).sum().backward()
    assert torch.equal(images.grad, images_of_torch.grad)


def test_pooling_passes_on_what_is_not_a_number():
    images = torch.zeros(NETWORKS, 1, 1, 2, 2)
    images[0, 0, 0, 0, 1], images[1, 0, 0, 0, 0] = torch.nan, torch.nan
    with AsOneProduct(narrow=False):
        found = vmap(nn.MaxPool2d(2))(images).flatten()
    assert found.isnan().tolist() == [True, True, False]


def test_a_batch_is_cut_until_there_are_enough_products():
    assert [_parts(networks, 128) for networks in (1, 12, 64, 128, 500)] == [128, 16, 2, 1, 1]
    assert _parts(2, 12) == 4  # 12 cannot be cut in eight
    assert _parts(2, 7) == 1
    assert ENOUGH_PRODUCTS == 128


@pytest.mark.parametrize("length", [1, 7, 8, 9])
def test_aligned_sides_are_multiples_and_filled_with_zeros(length):
    tensor = torch.randn(2, length, 3)
    filled = aligned(tensor, dim=1)
    assert filled.shape[1] % 8 == 0
    assert filled.shape[1] - length < 8
    assert torch.equal(filled[:, :length], tensor)
    assert not filled[:, length:].any()
    assert torch.equal(aligned(tensor.mT, dim=-1), filled.mT)


@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_cross_entropy_of_samples_is_torchs(scale):
    torch.manual_seed(0)
    labels, weights = torch.randint(0, 7, (40,)), torch.randn(40)
    given = []
    for rule in (nullcontext(), AsOneProduct(narrow=False)):
        logits = (scale * torch.randn(40, 7, generator=torch.Generator().manual_seed(1))).requires_grad_()
        with rule:
            losses = functional.cross_entropy(logits, labels, reduction="none")
        given.append((losses, *torch.autograd.grad((losses * weights).sum(), logits)))
    for torchs, ours in zip(*given, strict=True):
        torch.testing.assert_close(ours, torchs)


def test_cross_entropy_of_a_sure_network_is_as_exact_as_torchs():
    logits = torch.tensor([[100.0, 86.0, 0.0]])  # a sum of exponents that is nearly 1: 8.3e-7 is what counts
    with AsOneProduct(narrow=False):
        loss = functional.cross_entropy(logits, torch.tensor([0]), reduction="none")
    torch.testing.assert_close(loss, functional.cross_entropy(logits, torch.tensor([0]), reduction="none"))


@pytest.mark.parametrize(
    "how",
    [
        {"reduction": "mean"},
        {"reduction": "none", "label_smoothing": 0.1},
        {"reduction": "none", "weight": torch.tensor([1.0, 2.0, 3.0])},
    ],
    ids=lambda how: " ".join(how),
)
def test_other_cross_entropies_are_torchs_own(how):
    logits, labels = torch.randn(5, 3), torch.tensor([0, 1, 2, 1, 0])
    with AsOneProduct(narrow=False):
        replaced = functional.cross_entropy(logits, labels, **how)
    assert torch.equal(replaced, functional.cross_entropy(logits, labels, **how))


def test_what_is_written_down_is_the_same():
    tensor = torch.randn(3, 4, 5)
    assert torch.equal(written_down(tensor), tensor)
    assert torch.equal(written_down(tensor.mT), tensor.mT)
