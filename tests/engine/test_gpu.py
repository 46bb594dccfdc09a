"""Equalities of the engine that are exact on a CPU hold up to a tolerance on a CUDA device."""

from __future__ import annotations

import logging
import warnings
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from frequent_checkpoints import Killed, every_epoch, kill_at
from populations import ALL_METHODS, DataDependent, assert_same, with_batch_norm, with_convolutions, with_strides
from s2e.data.samples import LabelledData
from s2e.engine.augmentation import Crop, Cutout, Flip, channel_statistics
from s2e.engine.compiled.layers import same_convolution
from s2e.engine.cuda_graphs import CapturedFunction
from s2e.engine.learning_rates import Cosine
from s2e.engine.optimizers import SGD, AdamW, RMSProp
from s2e.engine.training import Trainer, engine_steps, train_population
from s2e.methods import Coteaching, CoteachingPlus, Decoupling, JoCoR, MentorNet, Reweight, Standard
from s2e.networks import NormalisedFactory
from s2e.networks.factories import reference_network
from small_images import images, small_cnn
from small_tasks import blobs, member, small_mlp, task
from user_objects import Rotate, SignDescent, attention, bag_of_words, sentences

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings(
        "ignore:TensorFloat32 tensor cores:UserWarning"
    ),  # of the compiler, see `_full_precision`
]
CUDA = torch.device("cuda")
KERNELS = 16
"""Kernels in a compiled step of six Co-teaching pairs of the MLP on MNIST."""

EVERY_METHOD = pytest.mark.parametrize("method", ALL_METHODS, ids=lambda method: method.name)
DIFFERENT_METHODS = pytest.mark.parametrize(  # a pair; clean samples and forward differentiation; inactive networks
    "method", [Coteaching(), Reweight(), Decoupling()], ids=lambda method: method.name
)


@pytest.fixture(autouse=True)
def _compiles(caplog):
    """Fail where a step that should be compiled is not: it would run, only slower."""
    yield
    assert "cannot be compiled" not in caplog.text


@pytest.fixture(autouse=True)
def _full_precision(monkeypatch):
    """Compare in full float32: the rounding of tf32 depends on the shape of a product."""
    monkeypatch.setattr("s2e.engine.training.product_precision", lambda _: nullcontext())
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def on_gpu(train: LabelledData, method: object, **changes: object):
    return task(train, method, device=CUDA, **changes)


@EVERY_METHOD
def test_member_alone_equals_member_in_population(method, train_data, valid_data):
    shared = on_gpu(train_data, method, network=with_batch_norm, evaluate={"valid": valid_data})
    members = [member(0.5, seed=1), member(0.9, seed=2, learning_rate=3e-3), member(0.2, seed=3)]
    together = train_population(shared, members)
    for index, one in enumerate(members):
        assert_same(together.take([index]), train_population(shared, [one]), exactly=False)


@EVERY_METHOD
def test_gpu_equals_cpu(method, train_data, valid_data):
    members = [member(0.5, seed=1), member(0.8, seed=2)]
    shared = {"evaluate": {"valid": valid_data}}
    gpu = train_population(on_gpu(train_data, method, **shared), members)
    assert_same(gpu, train_population(task(train_data, method, **shared), members), exactly=False)


@DIFFERENT_METHODS
def test_graph_equals_eager(method, train_data, valid_data):
    shared = {"evaluate": {"valid": valid_data}, "epochs": 10}
    members = [member(0.5, seed=1, epochs=10), member(0.8, seed=2, epochs=10)]
    graph, eager = (
        train_population(on_gpu(train_data, method, graph=graph, **shared), members) for graph in (True, False)
    )
    assert_same(graph, eager, exactly=False)
    np.testing.assert_allclose(graph.dynamics.kept, eager.dynamics.kept)


COMPILED = [  # some seconds each
    *((method, small_mlp) for method in ALL_METHODS),
    *((Coteaching(), network) for network in (with_batch_norm, with_convolutions, with_strides)),
]


@pytest.mark.parametrize(("method", "network"), COMPILED, ids=lambda one: getattr(one, "name", None) or one.__name__)
def test_compiled_equals_plain(method, network, train_data, valid_data):
    shared = {"evaluate": {"valid": valid_data}, "epochs": 3, "network": network}
    members = [member(0.5, seed=1, epochs=3), member(0.8, seed=2, epochs=3, learning_rate=3e-3)]
    compiled, plain = (
        train_population(on_gpu(train_data, method, compile=compile_step, **shared), members)
        for compile_step in (True, False)
    )
    assert_same(compiled, plain, exactly=False)
    np.testing.assert_allclose(compiled.dynamics.kept, plain.dynamics.kept)


def test_all_methods_on_images_are_one_compiled_step():
    members = [member(0.6, seed=seed, epochs=3, method=method) for seed, method in enumerate(ALL_METHODS)]
    members.append(member(seed=9, epochs=3, method=Standard(), held_out=np.arange(len(images())) % 5 == 0))
    members = [replace(one, transition=np.eye(images().classes)) for one in members]
    network = reference_network("mlp", images().sample_shape, images().classes)
    shared = {"evaluate": {"valid": images()}, "epochs": 3, "network": network, "clean": images(48)}
    compiled, plain = (
        train_population(on_gpu(images(), Coteaching(), compile=compile_step, **shared), members)
        for compile_step in (True, False)
    )
    assert_same(compiled, plain, exactly=False)


SELECTIVE = [Coteaching(by_class=True), MentorNet(by_class=True), JoCoR(by_class=True), CoteachingPlus(), Standard()]


@pytest.mark.parametrize("method", SELECTIVE, ids=repr)
def test_compiled_members_that_hold_samples_out_equal_those_of_a_cpu(method, train_data, valid_data):
    fold = np.random.default_rng(5).random(len(train_data)) < 0.3
    shared = {"evaluate": {"valid": valid_data}}
    members = [member(0.5, seed=1, held_out=fold), member(0.8, seed=2), member(0.8, seed=2, held_out=~fold)]
    compiled = train_population(on_gpu(train_data, method, compile=True, **shared), members)
    assert (compiled.take([0]).dynamics.kept[..., fold] == 0).all()
    assert_same(compiled, train_population(task(train_data, method, **shared), members), exactly=False)


HYPERPARAMETERS = [  # of two members of one population
    (AdamW(), AdamW()),
    (SGD(0.9, nesterov=True, weight_decay=5e-4), SGD(0.9, nesterov=True, weight_decay=5e-4)),
    (SGD(), SGD(0.5)),
    (RMSProp(momentum=0.5), RMSProp(alpha=0.9, weight_decay=1e-2)),
]


@pytest.mark.parametrize("optimizers", HYPERPARAMETERS, ids=repr)
def test_compiled_optimizer_equals_cpu(optimizers, train_data, valid_data):
    shared = {"evaluate": {"valid": valid_data}, "plan": Cosine()}
    members = [
        member(0.5 + 0.3 * seed, seed=seed, learning_rate=3e-3, optimizer=optimizer)
        for seed, optimizer in enumerate(optimizers)
    ]
    compiled = train_population(on_gpu(train_data, Decoupling(), compile=True, **shared), members)
    assert_same(compiled, train_population(task(train_data, Decoupling(), **shared), members), exactly=False)


@DIFFERENT_METHODS
def test_reused_graphs_equal_new_ones(method, train_data, valid_data, monkeypatch):
    captures, capture = [], CapturedFunction._capture
    monkeypatch.setattr(CapturedFunction, "_capture", lambda function: (captures.append(1), capture(function)))
    shared = on_gpu(train_data, method, network=with_batch_norm, evaluate={"valid": valid_data})
    trainer, generations = Trainer(shared), [[member(0.5, seed=seed), member(0.9, seed=seed + 1)] for seed in (1, 3)]
    reused = [trainer.train(members) for members in generations]
    assert len(captures) == 2  # the step and the evaluation
    for trained, members in zip(reused, generations, strict=True):
        new = train_population(shared, members)
        assert_same(trained, new, exactly=False)
        np.testing.assert_allclose(trained.dynamics.kept, new.dynamics.kept)


def test_compiled_step_has_few_kernels(monkeypatch):
    """More kernels are slower if networks are small; raise the limit if the step is faster nevertheless."""
    monkeypatch.undo()  # restore tf32: products in full float32 need additional kernels
    pixels = np.random.default_rng(0).integers(0, 256, size=(2560, 1, 28, 28), dtype=np.uint8)
    data = LabelledData(pixels, np.arange(2560) % 10, tuple("0123456789"), clean_labels=np.arange(2560) % 10)
    network = reference_network("mlp", data.sample_shape, data.classes)
    shared = task(data, Coteaching(), device=CUDA, network=network, batch_size=128, compile=True, epochs=1)
    run = engine_steps(shared, [member(seed=seed, epochs=1) for seed in range(6)])
    run(24)
    torch.cuda.synchronize()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's profiler, for instance that it clears events between cycles
        with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiled:
            run(16)
            torch.cuda.synchronize()
        kernels = sum(row.count for row in profiled.key_averages() if row.device_time_total > 0) / 16
    assert 0 < kernels <= KERNELS


def test_streamed_equals_resident(train_data):
    members = [member(seed=1), member(seed=2)]
    resident, streamed = (
        train_population(on_gpu(train_data, Coteaching(), stream=stream), members) for stream in (False, True)
    )
    assert_same(resident, streamed, exactly=False)


@pytest.mark.parametrize("changes", [{"compile": True}, {"graph": False}, {"stream": True}], ids=str)
def test_augmented_training_equals_cpu(changes, caplog):
    network = NormalisedFactory(small_cnn, channel_statistics(images().inputs))
    shared = {"network": network, "augmentation": (Crop(2), Flip(), Cutout(3)), "optimizer": SGD(0.9)}
    members = [member(0.5, seed=1, learning_rate=0.02), member(0.8, seed=2, learning_rate=0.02)]
    with caplog.at_level(logging.WARNING):
        gpu = train_population(on_gpu(images(), Coteaching(), **changes, **shared), members)
    assert "cannot be" not in caplog.text  # neither vectorised, captured nor compiled
    assert_same(gpu, train_population(task(images(), Coteaching(), **shared), members), exactly=False)


# Objects of users


@pytest.mark.parametrize("network", [bag_of_words, attention], ids=lambda network: network.__name__)
def test_modules_of_users_train_as_on_a_cpu(network):
    """An embedding; attention with layer normalisation.

    The loss does not depend on the bias of attention's keys, and Adam would follow the rounding of that gradient.
    """
    shared = {"network": network, "evaluate": {"valid": sentences(48)}, "optimizer": SGD(0.9)}
    members = [member(0.5, seed=1, learning_rate=0.02), member(0.8, seed=2, learning_rate=0.02)]
    gpu = train_population(on_gpu(sentences(), Coteaching(), **shared), members)
    assert_same(gpu, train_population(task(sentences(), Coteaching(), **shared), members), exactly=False)


def test_optimizer_of_users_is_captured(train_data, caplog):
    members = [member(seed=seed, learning_rate=1e-3, optimizer=SignDescent()) for seed in (1, 2)]
    with caplog.at_level(logging.WARNING):
        graph, eager = (
            train_population(on_gpu(train_data, Coteaching(), graph=captured), members) for captured in (True, False)
        )
    assert "cannot be" not in caplog.text
    assert_same(graph, eager, exactly=False)
    assert (graph.curves.loss[:, -1] < graph.curves.loss[:, 0]).all()


@pytest.mark.parametrize("graph", [True, False])
def test_augmentation_of_users_equals_that_of_a_cpu(graph, caplog):
    shared = {"network": small_cnn, "augmentation": (Rotate(), Flip()), "optimizer": SGD(0.9)}
    members = [member(0.5, seed=1, learning_rate=0.02), member(0.8, seed=2, learning_rate=0.02)]
    with caplog.at_level(logging.WARNING):
        gpu = train_population(on_gpu(images(), Coteaching(), graph=graph, **shared), members)
    assert "cannot be" not in caplog.text
    assert_same(gpu, train_population(task(images(), Coteaching(), **shared), members), exactly=False)


def test_vectorized_equals_looped(train_data):
    members = [member(seed=1), member(seed=2)]
    vectorized, looped = (
        train_population(on_gpu(train_data, Coteaching(), network=with_convolutions, vectorize=vectorize), members)
        for vectorize in (True, False)
    )
    assert_same(vectorized, looped, exactly=False)


CONVOLUTIONS = [  # inputs (G, B, H, W, C), outputs, window; inputs shared by all networks; type
    ((3, 4, 8, 8, 32), 48, (3, 3), False, torch.float32),
    ((3, 4, 8, 8, 32), 48, (3, 3), True, torch.bfloat16),
    ((2, 5, 6, 4, 16), 208, (3, 3), True, torch.float32),
    ((2, 3, 5, 7, 208), 16, (5, 3), False, torch.bfloat16),
    ((12, 128, 16, 16, 64), 128, (3, 3), False, torch.bfloat16),
    ((12, 128, 16, 16, 64), 128, (3, 3), True, torch.float32),
    ((2, 3, 5, 7, 48), 64, (1, 1), False, torch.float32),
]


@pytest.mark.parametrize(("shape", "outputs", "window", "shared", "dtype"), CONVOLUTIONS)
def test_convolution_kernels_equal_separate_convolutions(shape, outputs, window, shared, dtype):
    torch.manual_seed(0)
    inputs = torch.randn(1 if shared else shape[0], *shape[1:]).to(dtype)
    weight = torch.randn(shape[0], *window, shape[-1], outputs).to(dtype) / (window[0] * window[1] * shape[-1]) ** 0.5
    gradient = torch.randn(*shape[:-1], outputs).to(dtype)
    calls = {
        same_convolution.convolve: (inputs, weight),
        same_convolution.weight_gradient: (inputs, gradient, *window),
        same_convolution.bias_gradient: (gradient,),
    }
    for call, arguments in calls.items():
        found = call(*[each.to(CUDA) if isinstance(each, torch.Tensor) else each for each in arguments])
        expected = call(*[each.double() if isinstance(each, torch.Tensor) else each for each in arguments])
        error = (found.cpu().double() - expected).abs().max() / expected.abs().max()
        assert found.shape == expected.shape
        assert error <= (4e-3 if found.dtype == torch.bfloat16 else 1e-5)


def test_dropout_differs_in_every_replay():
    def network() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 4))

    trainer = Trainer(on_gpu(blobs(256), Standard(), network=network, epochs=20))
    for _ in range(2):  # the second time with the graphs of the first
        trained = trainer.train([member(1.0, epochs=20)])
        assert len(np.unique(trained.curves.loss[0].round(6))) == 20
        assert not trained.curves.diverged.any()


@pytest.mark.parametrize("compiled", [False, True])
def test_resumed_training_equals_one_never_killed(compiled, train_data, valid_data, tmp_path, caplog):
    shared = on_gpu(
        train_data,
        Coteaching(),
        network=with_batch_norm,
        evaluate={"valid": valid_data},
        epochs=10,
        keep_best_on="valid",
        compile=compiled,
    )
    members = [member(0.5, seed=1, epochs=10), member(0.8, seed=2, epochs=10), member(0.9, seed=3, epochs=10)]
    stored = replace(shared, checkpoints=every_epoch(tmp_path))
    with pytest.raises(Killed):
        train_population(stored, members, on_epoch=kill_at(6))
    trainer = Trainer(stored)
    trainer.train([replace(one, seed=one.seed + 9) for one in members])
    resumed = trainer.train(members)  # in the tensors and graphs of the training before
    assert [record.args for record in caplog.records if "continuing" in record.msg] == [(3, 5, 10)]
    assert_same(resumed, train_population(shared, members), exactly=False)


def test_network_that_cannot_be_vectorized_or_captured(train_data, caplog):
    members = [member(seed=1), member(seed=2)]
    with caplog.at_level(logging.WARNING):
        trained = train_population(on_gpu(train_data, Coteaching(), network=DataDependent), members)
    assert caplog.text.count("cannot be vectorised") == 1
    assert caplog.text.count("cannot be captured") == 1
    on_cpu = train_population(task(train_data, Coteaching(), network=DataDependent), members)
    assert_same(trained, on_cpu, exactly=False)


def test_out_of_memory_halves_the_chunk(caplog):
    def wide() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 4))

    data, members = blobs(4096), [member(seed=k, epochs=1) for k in range(16)]
    changes = {"network": wide, "epochs": 1, "batch_size": 1024}
    torch.cuda.empty_cache()
    free = int(16 * 4 * 4 * 2048 * 2048 * 0.8)  # less than weights, gradients and moments of 16 members, more than of 8
    ballast = torch.empty(torch.cuda.mem_get_info(CUDA)[0] - free, dtype=torch.uint8, device=CUDA)
    with caplog.at_level(logging.WARNING):
        in_chunks = train_population(on_gpu(data, Standard(), chunk=16, **changes), members)
    del ballast
    torch.cuda.empty_cache()
    assert "out of memory" in caplog.text
    whole = train_population(on_gpu(data, Standard(), **changes), members)
    np.testing.assert_allclose(in_chunks.curves.loss, whole.curves.loss, rtol=1e-3)
