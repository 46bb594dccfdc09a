"""The engine's claims on a CUDA device: to tolerance where a CPU holds them exactly."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from populations import Stubborn, assert_same, only, with_batch_norm, with_convolutions
from s2e.data.samples import LabelledData
from s2e.engine.compiled.layers import same_convolution
from s2e.engine.cuda_graphs import Replayed
from s2e.engine.training import Trainer, engine_steps, train_population
from s2e.methods import METHODS, Coteaching, Standard
from s2e.networks.factories import reference_network
from small_tasks import blobs, member, small_mlp, task

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
CUDA = torch.device("cuda")
METHOD_LIST = list(METHODS.values())
KERNELS = 16
"""In a compiled step of six Co-teaching pairs of MNIST's MLP."""


@pytest.fixture(autouse=True)
def _full_precision(monkeypatch):
    """Compare in float32 proper: tf32 rounds by the shape of the product."""
    from contextlib import nullcontext

    monkeypatch.setattr("s2e.engine.training._fast_matrix_products", nullcontext)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def on_gpu(train: LabelledData, method: object, **changes: object):
    return task(train, method, device=CUDA, **changes)


@pytest.mark.parametrize("method", METHOD_LIST, ids=lambda method: method.name)
@pytest.mark.parametrize("network", [small_mlp, with_batch_norm])
def test_a_member_alone_equals_that_member_in_a_population(method, network, train_data, valid_data):
    shared = on_gpu(train_data, method, network=network, evaluate={"valid": valid_data})
    members = [member(0.5, seed=1), member(0.9, seed=2, learning_rate=3e-3), member(0.2, seed=3)]
    together = train_population(shared, members)
    for position, one in enumerate(members):
        assert_same(only(together, position), train_population(shared, [one]), exactly=False)


@pytest.mark.parametrize("method", METHOD_LIST, ids=lambda method: method.name)
def test_a_replayed_graph_equals_eager_steps(method, train_data, valid_data):
    shared = {"evaluate": {"valid": valid_data}, "epochs": 10}
    members = [member(0.5, seed=1, epochs=10), member(0.8, seed=2, epochs=10)]
    graph, eager = (
        train_population(on_gpu(train_data, method, graph=graph, **shared), members) for graph in (True, False)
    )
    assert_same(graph, eager, exactly=False)
    np.testing.assert_allclose(graph.dynamics.kept, eager.dynamics.kept)


COMPILED = [  # some seconds for each
    *((method, small_mlp) for method in METHOD_LIST),
    *((Coteaching(), network) for network in (with_batch_norm, with_convolutions)),
]


@pytest.mark.parametrize(("method", "network"), COMPILED, ids=lambda one: getattr(one, "name", None) or one.__name__)
def test_a_compiled_step_equals_a_plain_one(method, network, train_data, valid_data):
    shared = {"evaluate": {"valid": valid_data}, "epochs": 3, "network": network}
    members = [member(0.5, seed=1, epochs=3), member(0.8, seed=2, epochs=3, learning_rate=3e-3)]
    compiled, plain = (
        train_population(on_gpu(train_data, method, fuse=fuse, **shared), members) for fuse in (True, False)
    )
    assert_same(compiled, plain, exactly=False)
    np.testing.assert_allclose(compiled.dynamics.kept, plain.dynamics.kept)


@pytest.mark.parametrize("network", [small_mlp, with_batch_norm])
@pytest.mark.parametrize("method", METHOD_LIST, ids=lambda method: method.name)
def test_a_generation_in_the_graphs_of_the_one_before_is_as_if_it_were_the_first(
    method, network, train_data, valid_data, monkeypatch
):
    captures, real = [], Replayed._capture
    monkeypatch.setattr(Replayed, "_capture", lambda replayed: (captures.append(1), real(replayed)))
    shared = on_gpu(train_data, method, network=network, evaluate={"valid": valid_data})
    trainer, generations = Trainer(shared), [[member(0.5, seed=seed), member(0.9, seed=seed + 1)] for seed in (1, 3)]
    together = [trainer.train(members) for members in generations]
    assert len(captures) == 2  # the step and the evaluation
    for trained, members in zip(together, generations, strict=True):
        alone = train_population(shared, members)
        assert_same(trained, alone, exactly=False)
        np.testing.assert_allclose(trained.dynamics.kept, alone.dynamics.kept)


def test_a_compiled_step_has_few_kernels(monkeypatch):
    """More of them are slower, where networks are small; raise the limit if what they do is worth it."""
    monkeypatch.undo()  # as users have it: the products of float32 proper take kernels of their own
    pixels = np.random.default_rng(0).integers(0, 256, size=(2560, 1, 28, 28), dtype=np.uint8)
    data = LabelledData(pixels, np.arange(2560) % 10, tuple("0123456789"), clean_labels=np.arange(2560) % 10)
    network = reference_network("mlp", data.sample_shape, data.classes)
    shared = task(data, Coteaching(), device=CUDA, network=network, batch_size=128, fuse=True, epochs=1)
    run = engine_steps(shared, [member(seed=seed, epochs=1) for seed in range(6)])
    run(24)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        run(16)
        torch.cuda.synchronize()
    kernels = sum(row.count for row in seen.key_averages() if row.device_time_total > 0) / 16
    assert kernels <= KERNELS


@pytest.mark.parametrize("method", METHOD_LIST, ids=lambda method: method.name)
def test_the_gpu_trains_the_networks_the_cpu_trains(method, train_data, valid_data):
    members = [member(0.5, seed=1), member(0.8, seed=2)]
    shared = {"evaluate": {"valid": valid_data}}
    assert_same(
        train_population(on_gpu(train_data, method, **shared), members),
        train_population(task(train_data, method, **shared), members),
        exactly=False,
    )


def test_streamed_inputs_train_the_same_networks_as_resident_ones(train_data):
    members = [member(seed=1), member(seed=2)]
    resident, streamed = (
        train_population(on_gpu(train_data, Coteaching(), stream=stream), members) for stream in (False, True)
    )
    assert_same(resident, streamed, exactly=False)


def test_vmapped_equals_looped_with_convolutions():
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, size=(64, 1, 8, 8), dtype=np.uint8)
    data = LabelledData(images, generator.integers(0, 3, size=64), ("a", "b", "c"))

    def network() -> nn.Module:
        return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3))

    members = [member(seed=1), member(seed=2)]
    vmapped, looped = (
        train_population(on_gpu(data, Coteaching(), network=network, vectorize=vectorize), members)
        for vectorize in (True, False)
    )
    assert_same(vmapped, looped, exactly=False)


SHAPES = [  # inputs (G, B, H, W, C), outputs and window of a convolution
    ((3, 4, 8, 8, 32), 48, (3, 3)),
    ((2, 5, 6, 4, 16), 208, (3, 3)),
    ((2, 3, 5, 7, 208), 16, (5, 3)),
    ((12, 128, 16, 16, 64), 128, (3, 3)),
    ((2, 3, 5, 7, 48), 64, (1, 1)),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("shape", "outputs", "window"), SHAPES)
def test_convolutions_at_once_equal_those_one_by_one(shape, outputs, window, shared, dtype):
    torch.manual_seed(0)
    inputs = torch.randn(1 if shared else shape[0], *shape[1:]).to(dtype)
    weight = torch.randn(shape[0], *window, shape[-1], outputs).to(dtype) / (window[0] * window[1] * shape[-1]) ** 0.5
    gradient = torch.randn(*shape[:-1], outputs).to(dtype)
    calls = {
        same_convolution.convolve: (inputs, weight),
        same_convolution.weight_gradient: (inputs, gradient, *window),
        same_convolution.bias_gradient: (gradient,),
    }
    for call, given in calls.items():
        there = call(*[each.to(CUDA) if isinstance(each, torch.Tensor) else each for each in given])
        here = call(*[each.double() if isinstance(each, torch.Tensor) else each for each in given])
        error = (there.cpu().double() - here).abs().max() / here.abs().max()
        assert there.shape == here.shape
        assert error <= (4e-3 if there.dtype == torch.bfloat16 else 1e-5)


def test_dropout_draws_anew_in_every_replay():
    data = blobs(256)

    def network() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 4))

    trainer = Trainer(on_gpu(data, Standard(), network=network, epochs=20))
    for _ in range(2):  # the second time in the graphs of the first
        trained = trainer.train([member(1.0, epochs=20)])
        assert len(np.unique(trained.curves.loss[0].round(6))) == 20
        assert not trained.curves.diverged.any()


def test_a_network_that_cannot_be_vmapped_or_captured_is_trained_all_the_same(train_data, caplog):
    members = [member(seed=1), member(seed=2)]
    with caplog.at_level(logging.WARNING):
        trained = train_population(on_gpu(train_data, Coteaching(), network=Stubborn), members)
    assert caplog.text.count("cannot be vectorised") == 1
    assert caplog.text.count("cannot be captured") == 1
    assert_same(trained, train_population(task(train_data, Coteaching(), network=Stubborn), members), exactly=False)


def test_a_real_lack_of_memory_halves_the_chunk_and_loses_nothing(caplog):
    data = blobs(4096)

    def wide() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 4))

    members = [member(seed=k, epochs=1) for k in range(16)]
    settings = {"network": wide, "epochs": 1, "batch_size": 1024}
    torch.cuda.empty_cache()
    room = int(
        16 * 4 * 4 * 2048 * 2048 * 0.8
    )  # below the weights, gradients and moments of 16 members, above those of 8
    ballast = torch.empty(torch.cuda.mem_get_info(CUDA)[0] - room, dtype=torch.uint8, device=CUDA)
    with caplog.at_level(logging.WARNING):
        short = train_population(on_gpu(data, Standard(), chunk=16, **settings), members)
    del ballast
    torch.cuda.empty_cache()
    assert "out of memory" in caplog.text
    whole = train_population(on_gpu(data, Standard(), **settings), members)
    np.testing.assert_allclose(short.curves.loss, whole.curves.loss, rtol=1e-3)
