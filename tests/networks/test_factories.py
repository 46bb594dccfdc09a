"""Reference networks: their published sizes, their choice by the data, and what is refused."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
import torch
from torch import nn

from s2e.errors import InvalidInput
from s2e.networks.factories import (
    NETWORKS,
    check_network,
    check_network_name,
    default_network,
    factory_of,
    reference_network,
)
from s2e.specs import NETWORK_HELP

MNIST, CIFAR = (1, 28, 28), (3, 32, 32)


def parameters(network):
    return sum(parameter.numel() for parameter in network.parameters())


def convolution(inputs, outputs, side):
    return outputs * (inputs * side * side + 1)


def dense(inputs, outputs):
    return outputs * (inputs + 1)


def test_networks_have_the_published_numbers_of_parameters():
    assert parameters(reference_network("mlp", MNIST, 10)()) == 203_530
    assert parameters(reference_network("cifar10-cnn", CIFAR, 10)()) == 62_006
    assert parameters(reference_network("cifar100-cnn", CIFAR, 100)()) == 541_280


@pytest.mark.parametrize(
    ("name", "millions", "exactly"),
    [  # the papers' figures for CIFAR-10, rounded as there, and those of common implementations
        ("resnet18", 11.2, 11_173_962),
        ("resnet34", 21.3, 21_282_122),
        ("preact-resnet18", 11.2, 11_171_146),
        ("preact-resnet34", 21.3, 21_279_306),
        ("wrn-16-4", 2.7, 2_748_890),
        ("wrn-28-10", 36.5, 36_479_194),
        ("densenet-bc-40-12", 0.2, 176_122),
        ("densenet-bc-100-12", 0.8, 769_162),
    ],
)
def test_deep_networks_have_the_published_numbers_of_parameters(name, millions, exactly):
    with torch.device("meta"):  # only the shapes
        found = parameters(reference_network(name, CIFAR, 10)())
    assert found == exactly
    assert round(found / 1e6, 1) == millions


def test_parameter_counts_add_up_layer_by_layer():
    lenet = convolution(3, 6, 5) + convolution(6, 16, 5) + dense(16 * 5 * 5, 120) + dense(120, 84) + dense(84, 10)
    assert parameters(reference_network("cifar10-cnn", CIFAR, 10)()) == lenet
    widths = (3, 64, 64, 128, 128, 196, 16)
    convolutions = sum(convolution(i, o, 3) for i, o in pairwise(widths))
    norms = 2 * sum(widths[1:])  # a scale and a shift for each channel
    assert parameters(reference_network("cifar100-cnn", CIFAR, 100)()) == convolutions + norms + dense(16 * 4 * 4, 100)


def test_residual_parameters_add_up_by_hand():
    stages = [(64, 64), (64, 128), (128, 256), (256, 512)]  # features before and after
    convolutions = sum(9 * i * o + 9 * o * o + 2 * 9 * o * o for i, o in stages)  # two blocks of two convolutions
    norms = sum(2 * 4 * o for _, o in stages)
    shortcuts = sum(i * o for i, o in stages[1:])
    ends = 9 * 3 * 64 + dense(512, 10)
    assert parameters(reference_network("resnet18", CIFAR, 10)()) == (
        ends + convolutions + norms + shortcuts + 2 * 64 + sum(2 * o for _, o in stages[1:])  # norms of the shortcuts
    )
    norms_before = sum(2 * (i + 3 * o) for i, o in stages)
    assert (
        parameters(reference_network("preact-resnet18", CIFAR, 10)()) == ends + convolutions + norms_before + shortcuts
    )


def test_wide_residual_parameters_add_up_by_hand():
    stages = [(16, 64), (64, 128), (128, 256)]
    blocks = sum(9 * i * o + 3 * 9 * o * o + i * o + 2 * (i + 3 * o) for i, o in stages)
    ends = 9 * 3 * 16 + 2 * 256 + dense(256, 10)
    assert parameters(reference_network("wrn-16-4", CIFAR, 10)()) == ends + blocks


def test_dense_parameters_add_up_by_hand():
    total, features = 9 * 3 * 24, 24
    for block in range(3):
        for _ in range(16):
            total += 2 * features + features * 48 + 2 * 48 + 9 * 48 * 12
            features += 12
        if block < 2:
            total += 2 * features + features * (features // 2)
            features //= 2
    assert features == 342
    assert parameters(reference_network("densenet-bc-100-12", CIFAR, 10)()) == total + 2 * 342 + dense(342, 10)


def test_options_change_the_network():
    network = reference_network("mlp:widths=12-9,dropout=0.2,batch_norm=true", (2, 3), 4)()
    names = [type(layer).__name__ for layer in network]
    hidden = ["Linear", "BatchNorm1d", "ReLU", "Dropout"]
    assert names == ["Flatten", *hidden, *hidden, "Linear"]
    assert parameters(network) == dense(6, 12) + 2 * 12 + dense(12, 9) + 2 * 9 + dense(9, 4)
    assert str(reference_network("mlp:widths=256,dropout=0", CIFAR, 10)()) == str(reference_network("mlp", CIFAR, 10)())
    assert parameters(reference_network("resnet18:width=4", CIFAR, 10)()) < 50_000
    for name in ("wrn-16-4", "densenet-bc-40-12"):
        dropped = reference_network(f"{name}:dropout=0.3", CIFAR, 10)()
        rates = {module.p for module in dropped.modules() if isinstance(module, nn.Dropout)}
        assert rates == {0.3}
        assert parameters(dropped) == parameters(reference_network(name, CIFAR, 10)())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mlp:width=9", r"options of `network` mlp must be one of widths, dropout, batch_norm, but got 'width'"),
        ("mlp:widths=9-0", r"`widths` of network mlp must be positive integers separated by hyphens.*'9-0'"),
        ("mlp:widths=9-1000001", r"`widths` of network mlp .* each at most 1,000,000, but got '9-1000001'"),
        (f"mlp:widths={'9' * 5000}", r"`widths` of network mlp .* each at most 1,000,000"),
        ("mlp:dropout=1", r"`dropout` of network mlp must be a finite number of at least 0 and below 1, but got '1'"),
        ("mlp:batch_norm=yes", r"`batch_norm` of network mlp must be true or false, but got 'yes'"),
        (
            "resnet18:width=0",
            r"`width` of network resnet18 must be an integer of at least 1 and at most 1,000,000, but got '0'",
        ),
        ("resnet18:width=9999999999", r"`width` .* at most 1,000,000, but got '9999999999'"),
        ("auto:widths=9", r"options of `network` auto must not be given, but got 'widths'"),
        ("resnet19:width=4", r"`network` must be one of resnet18, .*, but got 'resnet19'"),
        ("mlp:", r"`network` must be written as NAME or NAME:key=value,key=value"),
    ],
)
def test_bad_options_are_refused_before_anything_is_built(text, message):
    for refuse in (check_network_name, lambda name: factory_of(name, (1,), 2)):
        with pytest.raises(InvalidInput, match=message):
            refuse(text)


def test_every_name_is_in_the_help_text():
    assert all(re.search(rf"[ (]{name}[,) ]", f" {NETWORK_HELP} ") for name in ("auto", *NETWORKS))


@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [
        ("linear", (5,), 3),
        ("mlp", CIFAR, 100),
        ("mlp:widths=9-7,batch_norm=true", (5,), 3),
        ("resnet18:width=4", (1, 8, 8), 3),
        ("preact-resnet18:width=4", (2, 17, 30), 3),
        ("wrn-16-4", (1, 8, 9), 3),
        ("densenet-bc-40-12", (4, 8, 11), 3),
        ("cifar10-cnn", (1, 16, 16), 3),  # the smallest sides
        ("cifar10-cnn", (3, 28, 40), 10),  # neither square nor 32
        ("cifar100-cnn", (1, 8, 8), 3),
        ("cifar100-cnn", (3, 17, 30), 5),
    ],
)
def test_network_maps_a_batch_to_logits(name, shape, classes):
    network = reference_network(name, shape, classes)()
    logits = network(torch.rand(4, *shape))
    assert logits.shape == (4, classes)
    assert logits.dtype == torch.float32


@pytest.mark.parametrize(
    ("shape", "classes", "name"),
    [
        (MNIST, 10, "mlp"),
        (CIFAR, 10, "cifar10-cnn"),
        (CIFAR, 11, "cifar100-cnn"),
        ((3,), 3, "mlp"),  # a table
        ((3, 15, 32), 10, "mlp"),  # too small for the convolutions
        ((4, 32, 32), 10, "mlp"),  # not a colour image
    ],
)
def test_auto_depends_on_the_shape_of_the_data(shape, classes, name):
    assert default_network(shape, classes) == name
    chosen, named = (reference_network(which, shape, classes)() for which in ("auto", name))
    assert str(chosen) == str(named)
    assert chosen(torch.rand(2, *shape)).shape == (2, classes)


@pytest.mark.parametrize(
    ("name", "shape", "least"),
    [
        ("cifar10-cnn", (3, 15, 32), 16),
        ("cifar10-cnn", (64,), 16),
        ("cifar100-cnn", (3, 32, 7), 8),
        ("preact-resnet34", (3, 7, 32), 8),
        ("wrn-16-4", (784,), 8),
        ("densenet-bc-100-12", (28, 28), 8),
    ],
)
def test_images_of_the_wrong_shape_are_refused(name, shape, least):
    with pytest.raises(InvalidInput) as refused:
        reference_network(name, shape, 10)()
    message = str(refused.value)
    assert f"`network` {name} must be given images of shape (channels, height, width)" in message
    assert f"sides of at least {least}, but got {shape}" in message
    assert "use the network mlp" in message


def test_unknown_name_is_refused_with_the_known_ones_nearest_first():
    for refuse in (check_network_name, lambda name: reference_network(name, CIFAR, 10)):
        with pytest.raises(
            InvalidInput, match=r"`network` must be one of cifar10-cnn, .*, but got 'cifar10'\."
        ) as error:
            refuse("cifar10")
        assert all(name in str(error.value) for name in ("auto", *NETWORKS))
    for name in ("auto", *NETWORKS):
        check_network_name(name)


def test_factory_may_take_the_shape_and_the_classes():
    built = factory_of(lambda shape, classes, bias=True: nn.Linear(*shape, classes, bias=bias), (6,), 4)()
    assert (built.in_features, built.out_features) == (6, 4)
    assert str(factory_of("mlp", (6,), 4)()) == str(reference_network("mlp", (6,), 4)())
    network = lambda: built  # noqa: E731
    assert factory_of(network, (6,), 4) is network


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (nn.Conv2d, "but got one with 3"),
        (7, "a function that returns a new module, but got int"),
        (nn.Linear(6, 4), "but got a module, Linear; every training needs its own: pass a function"),
    ],
)
def test_other_factories_are_refused(network, words):
    with pytest.raises(InvalidInput, match=words):
        factory_of(network, (6,), 4)


def test_factory_returns_a_new_network_from_the_random_state():
    factory = reference_network("mlp", CIFAR, 10)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        first, second = factory(), factory()
        torch.manual_seed(3)
        again = factory()
    weight, other, same = (next(iter(network.parameters())) for network in (first, second, again))
    assert first is not second
    assert not torch.equal(weight, other)
    assert torch.equal(weight, same)


class Returning(nn.Module):
    """A network that returns a function of its logits."""

    def __init__(self, change):
        super().__init__()
        self.layer = nn.Linear(6, 4)
        self.change = change

    def forward(self, inputs):
        return self.change(self.layer(inputs))


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda logits: logits.argmax(dim=1, keepdim=True).expand(-1, 4), r"torch.int64 of shape \(5, 4\)"),
        (lambda logits: logits[:, :3], r"torch.float32 of shape \(5, 3\)"),
        (lambda logits: logits[:1], r"torch.float32 of shape \(1, 4\)"),
        (lambda logits: (logits, logits), "tuple"),
    ],
)
def test_network_that_does_not_return_logits_is_refused(change, found):
    with pytest.raises(InvalidInput, match=f"float logits .B, C. of 4 classes, but got {found} for 5 samples"):
        check_network(lambda: Returning(change), torch.zeros(5, 6), classes=4)


class Failing(nn.Module):
    def forward(self, inputs):  # noqa: ARG002
        raise self.problem

    def __init__(self, problem):
        super().__init__()
        self.problem = problem


def raising(problem):
    raise problem


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (
            lambda: nn.Linear(5, 4),
            r"map a float32 batch of shape \(2, 6\) to logits, but raises RuntimeError: mat1 and",
        ),
        (
            lambda: nn.Linear(6, 4).double(),
            r"but raises RuntimeError: .*; its parameters are float64: convert it with \.float\(\)\.$",
        ),
        (lambda: Failing(KeyError("x")), "map a float32 batch .* but raises KeyError: 'x'"),
        (lambda: None, "be a function that returns a new module, but got one that returns NoneType"),
        (lambda: nn.Linear, "be a function that returns a new module, but got one that returns type"),
        (lambda: raising(OSError("no weights")), "be a function that returns a new module, but raises OSError: no w"),
    ],
)
def test_broken_network_is_refused_in_one_line_with_its_cause(network, message):
    with pytest.raises(InvalidInput, match=f"`network` must .*{message}") as refused:
        check_network(network, torch.zeros(2, 6), classes=4)
    assert "\n" not in str(refused.value)
    assert (refused.value.__cause__ is None) == ("but raises" not in message)


@pytest.mark.filterwarnings("ignore:Lazy modules:UserWarning")
def test_lazy_modules_are_refused():
    with pytest.raises(InvalidInput, match="known sizes, but got Sequential with lazy modules; give them their sizes"):
        check_network(lambda: nn.Sequential(nn.LazyLinear(8), nn.Linear(8, 4)), torch.zeros(2, 6), classes=4)


def test_memory_that_is_exhausted_is_not_a_fault_of_the_network():
    with pytest.raises(RuntimeError, match="not enough memory"):
        check_network(lambda: Failing(RuntimeError("not enough memory")), torch.zeros(2, 6), classes=4)


def test_checking_a_network_leaves_the_random_state_unchanged():
    before = torch.random.get_rng_state()
    check_network(lambda: Returning(lambda logits: logits), torch.zeros(5, 6), classes=4)
    assert torch.equal(torch.random.get_rng_state(), before)
