"""A traced step is the step, for every method; a compiled one is, too; and nobody adds kernels to it unseen."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from torch import nn

from populations import with_batch_norm, with_convolutions
from s2e.engine.compiled import trace
from s2e.engine.compiled.trace import fused, traced
from s2e.engine.cuda_graphs import _Fused
from s2e.engine.optimizers import StackedAdam
from s2e.engine.population import Crew
from s2e.engine.training import _batch_order, _epoch
from s2e.methods import METHODS, Coteaching
from small_tasks import blobs, member, small_mlp, task

STEPS = 4
OPERATIONS = 265
"""In a traced step of Co-teaching with the small network; views and shapes count as well."""


def crew(method, network=small_mlp, members=None):
    """A vectorised population on the CPU whose optimizer works as on other devices, at the start of an epoch."""
    shared = task(blobs(), method, network=network, vectorize=True)
    made = Crew.of(shared, members or [member(0.5, seed=1), member(0.9, seed=2, learning_rate=3e-3)])
    rates = [one.learning_rate for one in made.members for _ in range(method.networks)]
    adam = StackedAdam(list(made.population.parameters.values()), rates, shared.device, at_once=True)
    object.__setattr__(made, "optimizer", adam)
    made.lockstep._optimizer = adam
    made.lockstep.begin_epoch(_epoch(shared, 0, made, _batch_order(shared, 0)))
    made.lockstep.run(1)  # the first pass finds out whether a network can be vectorised
    return made


def everything(of: Crew):
    """All that a step changes."""
    recorder = of.recorder
    records = {name: getattr(recorder, name) for name in ("_sums", "_finite", "_loss", "_kept", "_agreed")}
    return {**{name: tensor.detach() for name, tensor in of.population.tensors().items()}, **records}


def assert_equal(one: Crew, other: Crew) -> None:
    for name, tensor in everything(one).items():
        torch.testing.assert_close(everything(other)[name], tensor, msg=lambda text, name=name: f"{name}: {text}")


TRACED = [
    *((method, network) for method in METHODS.values() for network in (small_mlp, with_batch_norm)),
    *((METHODS[name], with_convolutions) for name in ("coteaching", "reweight")),
]


@pytest.mark.parametrize(("method", "network"), TRACED, ids=lambda one: getattr(one, "name", None) or one.__name__)
def test_a_traced_step_is_the_step(method, network):
    plain, other = crew(method, network), crew(method, network)
    graph, tensors = traced(other.lockstep._step)
    with torch.no_grad():
        for _ in range(STEPS - 1):
            graph(*tensors)
    plain.lockstep.run(STEPS)
    assert_equal(plain, other)


def test_methods_that_train_together_are_one_step():
    names = ["standard", "coteaching", "decoupling", "reweight"]
    members = [member(0.6, seed=seed, method=METHODS[name]) for seed, name in enumerate(names)]

    def mixed():
        shared = task(blobs(), METHODS["reweight"], vectorize=True)
        made = Crew.of(shared, members)
        made.lockstep._optimizer = StackedAdam(
            list(made.population.parameters.values()), [1e-3] * len(made.population), shared.device, at_once=True
        )
        made.lockstep.begin_epoch(_epoch(shared, 0, made, _batch_order(shared, 0)))
        made.lockstep.run(1)
        return made

    plain, other = mixed(), mixed()
    graph, tensors = traced(other.lockstep._step)
    with torch.no_grad():
        graph(*tensors)
    plain.lockstep.run(2)
    assert_equal(plain, other)


def test_a_traced_step_takes_every_tensor_once():
    _, tensors = traced(crew(Coteaching()).lockstep._step)
    storages = [tensor.untyped_storage().data_ptr() for tensor in tensors]
    assert len(set(storages)) == len(storages)  # a compiler has to copy what it may meet under a second name


def test_a_traced_step_does_not_grow_unseen():
    graph, _ = traced(crew(Coteaching()).lockstep._step)
    operations = [node for node in graph.graph.nodes if node.op == "call_function"]
    assert len(operations) <= OPERATIONS, f"{len(operations)} operations: say so in OPERATIONS if they are worth it"


def test_steps_that_differ_in_numbers_alone_share_what_is_compiled(monkeypatch):
    compiled = []
    monkeypatch.setattr(trace, "_COMPILED", {})
    monkeypatch.setattr(torch, "compile", lambda graph, **_: compiled.append(graph) or graph)
    first, second = crew(Coteaching()), crew(Coteaching(), members=[member(0.3, seed=5), member(0.4, seed=6)])
    plain = crew(Coteaching(), members=[member(0.3, seed=5), member(0.4, seed=6)])
    fused(first.lockstep._step)()
    fused(second.lockstep._step)()
    plain.lockstep.run(2)
    assert len(compiled) == 1
    assert_equal(plain, second)
    fused(crew(Coteaching(), members=[member(0.3, seed=5)]).lockstep._step)
    assert len(compiled) == 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the compiler, about itself
@pytest.mark.skipif(shutil.which("g++") is None, reason="the compiler needs g++ on a CPU")
def test_what_is_compiled_works_on_the_tensors_it_was_traced_with(monkeypatch):
    """A whole step takes the compiler half a minute on a CPU; `test_gpu.py` holds compiled steps to plain ones."""
    monkeypatch.setattr(trace, "_COMPILED", {})
    weight, count = torch.zeros(3, 4), torch.zeros(())

    def function() -> None:
        weight.add_(count)
        count.add_(1)

    run = fused(function)
    for _ in range(3):
        run()
    assert torch.equal(weight, torch.full((3, 4), 0.0 + 1 + 2 + 3))
    assert count == 4


def test_a_step_that_cannot_be_compiled_goes_on_as_it_is(monkeypatch, caplog):
    def refuse(*_):
        raise NotImplementedError("no such machine")

    monkeypatch.setattr(trace, "_COMPILED", {})
    monkeypatch.setattr(torch, "compile", lambda *_, **__: refuse)
    plain, other = crew(Coteaching()), crew(Coteaching())
    run = _Fused(other.lockstep._step)
    run()
    run()
    plain.lockstep.run(3)
    assert_equal(plain, other)
    assert "no such machine" in caplog.text


def test_a_step_that_cannot_be_traced_goes_on_as_it_is(monkeypatch, caplog):
    runs = []

    def refuse(_):
        raise RuntimeError("no numbers may leave")

    monkeypatch.setattr(trace, "traced", refuse)
    run = _Fused(lambda: runs.append(1))
    run()
    run()
    assert len(runs) == 2
    assert [record.message.count("no numbers may leave") for record in caplog.records] == [1]


def test_dropout_is_traced_as_draws_not_as_what_was_drawn():
    def with_dropout() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.5), nn.Linear(16, 4))

    other = crew(Coteaching(), with_dropout)
    graph, tensors = traced(other.lockstep._step)
    start = {name: tensor.clone() for name, tensor in everything(other).items()}
    ends = []
    for _ in range(2):
        with torch.no_grad():
            for name, tensor in everything(other).items():
                tensor.copy_(start[name])
            graph(*tensors)
        ends.append(other.recorder._loss.clone())
    assert not np.allclose(*ends)
