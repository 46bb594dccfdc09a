"""The undocumented parts of torch that `torch_internals` reaches still work as it expects."""

from __future__ import annotations

import copy
import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.func import vmap

import s2e
from s2e.engine.compiled.torch_internals import (
    foreach_rmsprop_step,
    fused_adam_step,
    fused_sgd_step,
    is_vmapped,
    record_operations,
    replace_gpu_benchmark,
    set_module_tensor,
)


def test_fused_adam_step_equals_torch_adam() -> None:
    generator = torch.Generator().manual_seed(0)
    expected = nn.Parameter(torch.randn(7, 3, generator=generator))
    parameter, moments, step = expected.detach().clone(), [torch.zeros(7, 3) for _ in range(2)], torch.zeros(())
    optimizer = torch.optim.Adam([expected], lr=1e-2, betas=(0.8, 0.99), eps=1e-7, fused=True)
    for _ in range(3):
        expected.grad = torch.randn(7, 3, generator=generator)
        optimizer.step()
        step += 1
        fused_adam_step(
            [parameter],
            [expected.grad],
            [moments[0]],
            [moments[1]],
            [step],
            learning_rate=1e-2,
            beta1=0.8,
            beta2=0.99,
            epsilon=1e-7,
        )
    torch.testing.assert_close(parameter, expected.detach(), rtol=0, atol=0)


def test_sgd_and_rmsprop_steps_equal_torch() -> None:
    generator = torch.Generator().manual_seed(0)
    one, other = (nn.Parameter(torch.randn(7, 3, generator=generator)) for _ in range(2))
    found, buffers = [one.detach().clone(), other.detach().clone()], [torch.zeros(7, 3) for _ in range(3)]
    sgd = torch.optim.SGD([one], lr=1e-2, momentum=0.9, nesterov=True, weight_decay=1e-2, fused=True)
    rmsprop = torch.optim.RMSprop([other], lr=1e-2, alpha=0.9, eps=1e-6, momentum=0.5, weight_decay=1e-2, foreach=True)
    for _ in range(3):
        one.grad, other.grad = (torch.randn(7, 3, generator=generator) for _ in range(2))
        sgd.step(), rmsprop.step()
        fused_sgd_step(
            [found[0]], [one.grad], [buffers[0]], learning_rate=1e-2, momentum=0.9, nesterov=True, weight_decay=1e-2
        )
        foreach_rmsprop_step(
            [found[1]],
            [other.grad],
            [buffers[1]],
            [buffers[2]],
            learning_rate=1e-2,
            alpha=0.9,
            epsilon=1e-6,
            momentum=0.5,
            weight_decay=1e-2,
        )
    torch.testing.assert_close(found, [one.detach(), other.detach()], rtol=0, atol=0)


def test_module_uses_and_differentiates_the_set_tensors() -> None:
    module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    other = copy.deepcopy(module)
    weight, mean = torch.ones(3, 2).requires_grad_(), torch.full((3,), 5.0)
    set_module_tensor(module, "0.weight", weight)
    set_module_tensor(module, "1.running_mean", mean)
    other.load_state_dict({"0.weight": weight, "1.running_mean": mean}, strict=False)
    inputs = torch.randn(4, 2, generator=torch.Generator().manual_seed(0))
    module.train(), other.train()
    torch.testing.assert_close(module(inputs), other(inputs), rtol=0, atol=0)
    torch.testing.assert_close(mean, other[1].running_mean, rtol=0, atol=0)
    (gradient,) = torch.autograd.grad(module(inputs).pow(3).sum(), weight)
    assert gradient.abs().sum() > 0


def test_only_tensors_with_a_vmapped_axis_are_vmapped() -> None:
    shared, found = torch.ones(3), []
    vmap(lambda own: (found.extend([is_vmapped(own), is_vmapped(shared)]), own)[1])(torch.ones(2, 3))
    assert found == [True, False]
    assert not is_vmapped(shared)


def test_recorded_operations_refer_to_the_tensors_of_the_function() -> None:
    weight, count = torch.zeros(3), torch.ones(())

    def function() -> None:
        weight.add_(count)

    graph = record_operations(function)
    with torch.no_grad():
        graph()
    assert weight.tolist() == [2, 2, 2]
    attributes = [getattr(graph, node.target) for node in graph.graph.nodes if node.op == "get_attr"]
    assert {tensor.data_ptr() for tensor in attributes} == {weight.data_ptr(), count.data_ptr()}


def test_gpu_benchmark_is_replaced_and_restored() -> None:
    from torch._inductor.runtime.benchmarking import benchmarker

    def current() -> object:
        return getattr(benchmarker.benchmark_gpu, "__func__", benchmarker.benchmark_gpu)

    before = current()
    with replace_gpu_benchmark(lambda _: lambda run: run()):
        assert benchmarker.benchmark_gpu(lambda: 3) == 3
    assert current() is before
    with pytest.raises(ValueError, match="while compiling"), replace_gpu_benchmark(lambda default: default):
        raise ValueError("while compiling")
    assert current() is before


def test_compiler_has_worker_processes_to_start() -> None:
    from torch._inductor.async_compile import maybe_warm_pool

    assert callable(maybe_warm_pool)


def test_no_other_module_imports_private_parts_of_torch() -> None:
    private = re.compile(r"(from|import) torch(\.\w+)*\.(_\w+|experimental|adam|sgd|rmsprop)\b")
    modules = [path for path in Path(s2e.__file__).parent.rglob("*.py") if private.search(path.read_text("utf-8"))]
    assert [path.name for path in modules] == ["torch_internals.py"]
