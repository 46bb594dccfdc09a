"""Undocumented parts of torch, reached from this module only.

`tests/engine/compiled/test_torch_internals.py` fails when torch changes one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._functorch import is_batchedtensor
from torch.fx import GraphModule
from torch.optim.rmsprop import rmsprop
from torch.optim.sgd import sgd


def fused_adam_step(
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    first_moments: Sequence[Tensor],
    second_moments: Sequence[Tensor],
    steps: Sequence[Tensor],
    *,
    learning_rate: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    weight_decay: float = 0.0,
    decoupled: bool = False,
) -> None:
    """Update parameters and moments in place, by the kernel of `Adam(fused=True)`.

    Steps are 0-d float tensors that count this step. With `decoupled` weight decay it is `AdamW(fused=True)`.
    """
    kernel = torch._fused_adamw_ if decoupled else torch._fused_adam_
    kernel(
        list(parameters),
        list(gradients),
        list(first_moments),
        list(second_moments),
        [],
        list(steps),
        lr=learning_rate,
        beta1=beta1,
        beta2=beta2,
        weight_decay=weight_decay,
        eps=epsilon,
        amsgrad=False,
        maximize=False,
    )


def fused_sgd_step(
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    momenta: Sequence[Tensor] | None,
    *,
    learning_rate: float,
    momentum: float,
    nesterov: bool,
    weight_decay: float,
) -> None:
    """Update parameters and momenta (zeros before the first step) in place, by the kernel of `SGD(fused=True)`."""
    sgd(
        list(parameters),
        list(gradients),
        [None] * len(parameters) if momenta is None else list(momenta),
        fused=True,
        weight_decay=weight_decay,
        momentum=momentum,
        lr=learning_rate,
        dampening=0.0,
        nesterov=nesterov,
        maximize=False,
    )


def foreach_rmsprop_step(
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    squares: Sequence[Tensor],
    momenta: Sequence[Tensor] | None,
    *,
    learning_rate: float,
    alpha: float,
    epsilon: float,
    momentum: float,
    weight_decay: float,
) -> None:
    """Update parameters, squares and momenta in place, as `RMSprop(foreach=True)`."""
    rmsprop(
        list(parameters),
        list(gradients),
        list(squares),
        [],
        [] if momenta is None else list(momenta),
        [torch.zeros(()) for _ in parameters],  # step counts, which do not change the update
        foreach=True,
        lr=learning_rate,
        alpha=alpha,
        eps=epsilon,
        weight_decay=weight_decay,
        momentum=momentum,
        centered=False,
    )


def set_module_tensor(module: nn.Module, name: str, tensor: Tensor) -> None:
    """Make any tensor the parameter or buffer of a dotted name, without wrapping it in `nn.Parameter`."""
    path, _, own = name.rpartition(".")
    holder = module.get_submodule(path)
    held = holder._parameters if own in holder._parameters else holder._buffers
    held[own] = tensor  # type: ignore[assignment]


def is_vmapped(tensor: Tensor) -> bool:
    """Return whether a tensor inside `torch.func.vmap` has its own hidden axis, and is not shared by all calls."""
    return is_batchedtensor(tensor)


def record_operations(function: Callable[[], None]) -> GraphModule:
    """Run a function once; return its tensor operations as a graph whose attributes are the tensors it works on."""
    from torch.fx.experimental.proxy_tensor import make_fx  # slow to import, and needed for compiling only

    graph = make_fx(lambda: function(), tracing_mode="real", _allow_non_fake_inputs=True)()
    for node in list(graph.graph.nodes):
        if not node.users and _only_asks(node.target):
            graph.graph.erase_node(node)
    graph.recompile()
    return graph


def _only_asks(operation: object) -> bool:
    """Return whether an operation changes nothing and returns no tensor, which the compiler does not accept.

    Forward differentiation compares the layouts of tensors by such operations.
    """
    if not isinstance(operation, torch._ops.OpOverload):
        return False
    returned = [str(each.type) for each in operation._schema.returns]
    return not operation._schema.is_mutable and not any("Tensor" in kind for kind in returned)


def start_compile_workers() -> None:
    """Start the compiler's worker processes for GPU kernels, which takes seconds; without effect if torch has none."""
    with suppress(ImportError):
        from torch._inductor.async_compile import maybe_warm_pool

        maybe_warm_pool()


@contextmanager
def replace_gpu_benchmark(replacement: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """Replace the function by which the compiler times GPU kernels; without effect if torch has none.

    Args:
        replacement: makes the new function from the compiler's own; both take a function and return milliseconds.
    """
    try:
        from torch._inductor.runtime.benchmarking import benchmarker

        default = benchmarker.benchmark_gpu
    except (ImportError, AttributeError):
        yield
        return
    benchmarker.benchmark_gpu = replacement(default)  # type: ignore[method-assign]
    try:
        yield
    finally:
        benchmarker.benchmark_gpu = default  # type: ignore[method-assign]
