"""Modules that users bring, with layers that keep statistics, draw, look up or attend, trained by the engine."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import s2e
from populations import assert_same
from s2e.data.samples import LabelledData
from s2e.engine.stacked_networks import StackedNetworks
from s2e.engine.training import train_population
from s2e.errors import InvalidInput
from s2e.methods import Coteaching, Standard
from s2e.networks import reference_network
from small_images import images
from small_tasks import blobs, member, task
from user_objects import Embedded, attention, bag_of_words, sentences

DATA = sentences()


def batch_norm_and_dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 4))


def layer_norm_and_dropout() -> nn.Module:
    return nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 16), nn.GELU(), nn.Dropout(0.3), nn.Linear(16, 4))


def instance_and_group_norm() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 6)),
        nn.Conv1d(1, 8, 3),
        nn.InstanceNorm1d(8, affine=True, track_running_stats=True),
        nn.ReLU(),
        nn.Dropout1d(0.2),
        nn.Conv1d(8, 8, 3),
        nn.GroupNorm(2, 8),
        nn.Flatten(),
        nn.Linear(16, 4),
    )


def transformer() -> nn.Module:
    return Embedded(nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, dropout=0.1, batch_first=True))


def recurrent() -> nn.Module:
    return Embedded(nn.GRU(8, 8, batch_first=True))


VECTORISED = [
    batch_norm_and_dropout,
    layer_norm_and_dropout,
    instance_and_group_norm,
    bag_of_words,
    attention,
    transformer,
]
ANY = pytest.mark.parametrize("factory", [*VECTORISED, recurrent], ids=lambda factory: factory.__name__)
# Without gradients, torch evaluates a transformer in one operation, over which vmap loops, with this warning.
EXPECTED_WARNING = pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")


@ANY
def test_module_alone_equals_module_in_company(factory):
    shared = task(DATA, Coteaching(), network=factory, evaluate={"valid": DATA.take(np.arange(48))})
    members = [member(0.6, seed=3, learning_rate=0.01), member(0.9, seed=4, learning_rate=0.02)]
    together = train_population(shared, members)
    assert not together.curves.diverged.any()
    assert (together.curves.loss[:, -1] < together.curves.loss[:, 0]).all()
    for position, own in enumerate(members):
        assert_same(together.take([position]), train_population(shared, [own]))


@EXPECTED_WARNING
@pytest.mark.parametrize("factory", VECTORISED, ids=lambda factory: factory.__name__)
def test_vectorised_module_equals_looped_module(factory, caplog):
    def without_draws() -> nn.Module:  # vectorised networks draw dropout from another stream
        module = factory()
        for layer in module.modules():
            if isinstance(layer, (nn.Dropout, nn.Dropout1d)):
                layer.p = 0.0
            elif isinstance(layer, nn.MultiheadAttention):
                layer.dropout = 0.0
        return module

    inputs, outcomes = torch.from_numpy(DATA.inputs[:16]), []
    for vectorize in (True, False):
        networks = StackedNetworks(without_draws, (3, 4), torch.device("cpu"), vectorize=vectorize)
        logits = networks.forward(inputs, training=True)
        gradients = [torch.stack([*rows]) for rows in networks.gradients(logits.square().sum())]
        with torch.no_grad():
            evaluated = networks.forward(inputs, training=False)
        assert networks.vectorized == vectorize
        outcomes.append([logits, evaluated, *gradients, *networks.buffers.values()])
    torch.testing.assert_close(outcomes[0], outcomes[1], rtol=1e-4, atol=1e-4)
    assert not caplog.records


@EXPECTED_WARNING
@pytest.mark.parametrize("factory", VECTORISED, ids=lambda factory: factory.__name__)
def test_vectorised_module_is_trained(factory, caplog):
    shared = task(DATA, Coteaching(), network=factory, vectorize=True, epochs=2, evaluate={"valid": DATA})
    trained = train_population(shared, [member(seed=seed, epochs=2, learning_rate=0.01) for seed in (3, 4)])
    assert (trained.curves.loss[:, 1] < trained.curves.loss[:, 0]).all()
    assert not caplog.records


def test_module_that_vmap_refuses_is_looped_with_one_line_in_the_log(caplog):
    members = [member(seed=3), member(seed=4)]
    with caplog.at_level(logging.WARNING):
        fallen_back = train_population(task(DATA, Standard(), network=recurrent, vectorize=True), members)
    assert len(caplog.records) == 1
    assert re.search(r"cannot be vectorised with vmap \(.*gru.*\); using a loop$", caplog.text.strip())
    assert_same(fallen_back, train_population(task(DATA, Standard(), network=recurrent, vectorize=False), members))


def test_tokens_of_another_type_are_refused():
    with pytest.raises(InvalidInput, match="`inputs` must be uint8 or float32, but got int64"):
        replace(DATA, inputs=DATA.inputs.astype(np.int64))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet18", "preact-resnet18:width=8", "wrn-16-4:dropout=0.3", "densenet-bc-40-12"])
def test_deep_reference_network_takes_steps_in_the_engine(name):
    pixels = np.random.default_rng(0).integers(0, 256, (8, 3, 8, 8), dtype=np.uint8)
    images = LabelledData(pixels, np.arange(8) % 4, tuple("abcd"))
    shared = task(images, Standard(), network=reference_network(name, (3, 8, 8), 4), epochs=2, batch_size=4)
    members = [member(seed=3, epochs=2), member(seed=4, epochs=2)]
    together = train_population(shared, members)
    assert np.isfinite(together.curves.loss).all()
    assert not together.curves.diverged.any()
    assert_same(together.take([1]), train_population(shared, members[1:]))


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (lambda: nn.Linear(5, 4), "but raises RuntimeError: mat1 and mat2"),
        (lambda: nn.Linear(6, 4).double(), r"convert it with \.float\(\)"),
        (lambda: nn.LazyLinear(4), "with lazy modules"),
        (lambda: None, "but got one that returns NoneType"),
        (lambda shape, classes: None, "but got one that returns NoneType"),  # noqa: ARG005
    ],
    ids=["inputs", "float64", "lazy", "none", "none of two"],
)
@pytest.mark.filterwarnings("ignore:Lazy modules:UserWarning")
def test_broken_modules_are_refused_by_every_function(network: Any, message: str) -> None:
    points = blobs()
    data = (points.inputs, points.labels)
    for door in (
        lambda: s2e.train(data, [1.0], network=network, batch_size=32),
        lambda: s2e.search(data, data, network=network, batch_size=32),
        lambda: s2e.S2EClassifier(network=network, batch_size=32).fit(*data),
    ):
        with pytest.raises(InvalidInput, match=f"`network` must .*{message}") as refused:
            door()
        assert "\n" not in str(refused.value)


class ReturnsNothing:
    """A user's augmentation and plan without return statements."""

    def draw(self, count, shape, generator):
        pass

    def apply(self, inputs, draws):
        pass

    def factor(self, epoch, epochs):
        pass


def test_augmentations_and_plans_that_return_nothing_are_refused_by_every_function() -> None:
    made = images()
    data = (made.inputs, made.labels)
    for wrong in ({"augment": ReturnsNothing()}, {"plan": ReturnsNothing()}):
        for door in (
            lambda wrong=wrong: s2e.train(data, [1.0], batch_size=32, **wrong),
            lambda wrong=wrong: s2e.search(data, data, batch_size=32, **wrong),
            lambda wrong=wrong: s2e.S2EClassifier(batch_size=32, **wrong).fit(*data),
        ):
            with pytest.raises(InvalidInput, match="but got NoneType") as refused:
                door()
            assert "\n" not in str(refused.value)
