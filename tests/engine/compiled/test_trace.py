"""A traced step equals the step for every method, as does a compiled one, and has no more operations than expected."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from torch import nn

from populations import with_batch_norm, with_convolutions
from s2e.engine.compiled import trace
from s2e.engine.compiled.trace import compile_function, trace_function
from s2e.engine.cuda_graphs import CompiledFunction
from s2e.engine.optimizers import SGD, Adam, AdamW, RMSProp
from s2e.engine.population import Population
from s2e.engine.training import batch_order, plan_epoch
from s2e.methods import METHODS, Coteaching
from s2e.networks import reference_network
from small_images import images
from small_tasks import blobs, member, small_mlp, task

STEPS = 3
ADAM = Adam()
OPERATIONS = 265
"""Operations in a traced step of Co-teaching with the small network, views and shapes included."""


def population(method, network=small_mlp, members=None, optimizer=ADAM, data=None):
    """A vectorised population on the CPU with the optimizer and the records of other devices, after one step."""
    given = {} if data is None else {"clean": data}
    shared = task(blobs() if data is None else data, method, network=network, vectorize=True, **given)
    made = Population.create(shared, members or [member(0.5, seed=1), member(0.9, seed=2, learning_rate=3e-3)])
    rates = [one.learning_rate for one in made.members for _ in range(shared.method_of(one).networks)]
    stacked = optimizer.build(list(made.networks.parameters.values()), rates, shared.device, vectorize=True)
    object.__setattr__(made, "optimizer", stacked)
    made.step._optimizer = stacked
    made.recorder._collect = False
    made.step.begin_epoch(plan_epoch(shared, 0, made, batch_order(shared, 0)))
    made.step.run(1)  # the first step determines whether the network can be vectorised
    return made


def changed_by_a_step(of: Population):
    recorder = of.recorder
    records = {name: getattr(recorder, name) for name in ("_sums", "_finite", "_loss", "_kept", "_agreed")}
    return {**{name: tensor.detach() for name, tensor in of.networks.tensors().items()}, **records}


def assert_equal(one: Population, other: Population) -> None:
    for name, tensor in changed_by_a_step(one).items():
        found = changed_by_a_step(other)[name]
        torch.testing.assert_close(found, tensor, msg=lambda text, name=name: f"{name}: {text}")


TRACED = [
    (METHODS["coteaching"], small_mlp),
    *(
        pytest.param(method, small_mlp, marks=pytest.mark.slow)  # all are in the step of all methods below
        for name, method in METHODS.items()
        if name != "coteaching"
    ),
    pytest.param(METHODS["reweight"], with_convolutions, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("method", "network"), TRACED, ids=lambda one: getattr(one, "name", None) or one.__name__)
def test_traced_step_equals_step(method, network):
    plain, other = population(method, network), population(method, network)
    graph, tensors = trace_function(other.step._step)
    with torch.no_grad():
        for _ in range(STEPS - 1):
            graph(*tensors)
    plain.step.run(STEPS)
    assert_equal(plain, other)


@pytest.mark.parametrize("optimizer", [SGD(0.9, nesterov=True, weight_decay=1e-2), RMSProp(momentum=0.5), AdamW()])
def test_traced_step_of_another_optimizer_equals_step(optimizer):
    plain, other = (population(METHODS["coteaching+"], optimizer=optimizer) for _ in range(2))
    graph, tensors = trace_function(other.step._step)
    with torch.no_grad():
        for factor in (1.0, 0.5):
            other.optimizer.scale_learning_rates(factor)
            graph(*tensors)
    plain.step.run(2)  # tracing has run the first
    plain.optimizer.scale_learning_rates(0.5)
    plain.step.run(1)
    assert_equal(plain, other)


def test_all_methods_trained_together_are_one_step():
    members = [member(0.6, seed=seed, method=method) for seed, method in enumerate(METHODS.values())]
    plain, other = (population(METHODS["reweight"], with_batch_norm, members) for _ in range(2))
    graph, tensors = trace_function(other.step._step)
    with torch.no_grad():
        graph(*tensors)
    plain.step.run(2)
    assert_equal(plain, other)


def test_compiler_takes_the_traced_step_of_all_methods_on_images():
    """Where the first layer flattens, forward differentiation compares layouts, which the compiler does not take."""
    members = [member(0.6, seed=seed, method=method) for seed, method in enumerate(METHODS.values())]
    network = reference_network("mlp", images().sample_shape, images().classes)
    plain, other = (population(METHODS["reweight"], network, members, data=images()) for _ in range(2))
    graph, tensors = trace_function(other.step._step)
    with torch.no_grad():
        torch.compile(graph, fullgraph=True, backend="eager")(*tensors)
    plain.step.run(2)
    assert_equal(plain, other)


def test_traced_step_has_few_operations_and_each_tensor_once():
    graph, tensors = trace_function(population(Coteaching()).step._step)
    operations = [node for node in graph.graph.nodes if node.op == "call_function"]
    assert len(operations) <= OPERATIONS, f"{len(operations)} operations: raise OPERATIONS if the step is not slower"
    storages = [tensor.untyped_storage().data_ptr() for tensor in tensors]
    assert len(set(storages)) == len(storages)  # the compiler copies aliases


def test_steps_that_differ_in_values_share_a_compiled_graph(monkeypatch):
    compiled = []
    monkeypatch.setattr(trace, "_COMPILED", {})
    monkeypatch.setattr(torch, "compile", lambda graph, **_: compiled.append(graph) or graph)
    first, second = (
        population(Coteaching()),
        population(Coteaching(), members=[member(0.3, seed=5), member(0.4, seed=6)]),
    )
    plain = population(Coteaching(), members=[member(0.3, seed=5), member(0.4, seed=6)])
    compile_function(first.step._step)()
    compile_function(second.step._step)()
    plain.step.run(2)
    assert len(compiled) == 1
    assert_equal(plain, second)
    compile_function(population(Coteaching(), members=[member(0.3, seed=5)]).step._step)
    assert len(compiled) == 2


@pytest.mark.slow  # `test_gpu.py` compares whole compiled steps with plain ones
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # raised inside the compiler
@pytest.mark.skipif(shutil.which("g++") is None, reason="the compiler needs g++ on a CPU")
def test_compiled_function_works_on_the_traced_tensors(monkeypatch):
    monkeypatch.setattr(trace, "_COMPILED", {})
    weight, count = torch.zeros(3, 4), torch.zeros(())

    def function() -> None:
        weight.add_(count)
        count.add_(1)

    run = compile_function(function)
    for _ in range(3):
        run()
    assert torch.equal(weight, torch.full((3, 4), 0.0 + 1 + 2 + 3))
    assert count == 4


def test_step_that_cannot_be_compiled_runs_plain(monkeypatch, caplog):
    def refuse(*_):
        raise NotImplementedError("no such machine")

    monkeypatch.setattr(trace, "_COMPILED", {})
    monkeypatch.setattr(torch, "compile", lambda *_, **__: refuse)
    plain, other = population(Coteaching()), population(Coteaching())
    run = CompiledFunction(other.step._step)
    run()
    run()
    plain.step.run(3)
    assert_equal(plain, other)
    assert "no such machine" in caplog.text


def test_step_that_cannot_be_traced_runs_plain(monkeypatch, caplog):
    runs = []

    def refuse(_):
        raise RuntimeError("data-dependent control flow")

    monkeypatch.setattr(trace, "trace_function", refuse)
    run = CompiledFunction(lambda: runs.append(1))
    run()
    run()
    assert len(runs) == 2
    assert [record.message.count("data-dependent control flow") for record in caplog.records] == [1]


def test_traced_dropout_draws_again_in_every_run():
    def with_dropout() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.5), nn.Linear(16, 4))

    other = population(Coteaching(), with_dropout)
    graph, tensors = trace_function(other.step._step)
    start = {name: tensor.clone() for name, tensor in changed_by_a_step(other).items()}
    ends = []
    for _ in range(2):
        with torch.no_grad():
            for name, tensor in changed_by_a_step(other).items():
                tensor.copy_(start[name])
            graph(*tensors)
        ends.append(other.recorder._loss.clone())
    assert not np.allclose(*ends)
