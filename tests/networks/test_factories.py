"""Reference networks: their published sizes, their choice by the data, and what is refused."""

from __future__ import annotations

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


def test_parameter_counts_add_up_layer_by_layer():
    lenet = convolution(3, 6, 5) + convolution(6, 16, 5) + dense(16 * 5 * 5, 120) + dense(120, 84) + dense(84, 10)
    assert parameters(reference_network("cifar10-cnn", CIFAR, 10)()) == lenet
    widths = (3, 64, 64, 128, 128, 196, 16)
    convolutions = sum(convolution(i, o, 3) for i, o in pairwise(widths))
    norms = 2 * sum(widths[1:])  # a scale and a shift for each channel
    assert parameters(reference_network("cifar100-cnn", CIFAR, 100)()) == convolutions + norms + dense(16 * 4 * 4, 100)


@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [
        ("mlp", CIFAR, 100),
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
        (nn.Linear(6, 4), "a function that returns a new module, but got Linear"),
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


def test_checking_a_network_leaves_the_random_state_unchanged():
    before = torch.random.get_rng_state()
    check_network(lambda: Returning(lambda logits: logits), torch.zeros(5, 6), classes=4)
    assert torch.equal(torch.random.get_rng_state(), before)
