"""A step compiled: traced while it runs once, then made into few kernels by torch's compiler.

A traced step is a list of tensor operations and the tensors they work on; Python is not in it any more. Steps that are
the same but for the contents of their tensors, such as those of two generations of a search, share what was compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from s2e.engine.compiled.kernel_timing import timed_in_graphs
from s2e.engine.compiled.layers import AsOneProduct

OPTIONS: dict[str, Any] = {"combo_kernels": True, "combo_kernel_allow_mixed_sizes": 0, "shape_padding": False}
"""Of the compiler: kernels that do not wait for each other become one, unless a grid would have to be as long as one of
them and as wide as another; the rules of `products` have padded already."""

_COMPILED: dict[str, Callable[..., object]] = {}
"""What was compiled in this process, by what was traced."""


def fused(function: Callable[[], None]) -> Callable[[], None]:
    """Run a function of no arguments that works on fixed tensors once, and return a faster one that does the same.

    It is compiled when it is called for the first time.
    """
    graph, tensors = traced(function)
    key = _described(graph, tensors)
    if key not in _COMPILED:
        _COMPILED[key] = torch.compile(graph, fullgraph=True, dynamic=False, options=OPTIONS)
    compiled = _COMPILED[key]

    def run() -> None:
        with torch.no_grad(), timed_in_graphs():
            compiled(*tensors)

    return run


def warm_up() -> None:
    """Start the processes that compile kernels for a GPU: they take seconds to start, in which a step can be traced."""
    with suppress(ImportError):  # not a part of torch that it promises to keep
        from torch._inductor.async_compile import maybe_warm_pool

        maybe_warm_pool()


def traced(function: Callable[[], None]) -> tuple[GraphModule, list[Tensor]]:
    """Run a function once; return its operations as a graph, and the tensors from outside that it takes, in order."""
    with AsOneProduct(narrow=torch.get_float32_matmul_precision() != "highest"):
        graph = make_fx(lambda: function(), tracing_mode="real", _allow_non_fake_inputs=True)()
    tensors: dict[tuple[object, ...], Tensor] = {}
    places, held = {}, []
    first = next(node for node in graph.graph.nodes if node.op != "get_attr")
    for node in list(graph.graph.nodes):
        if node.op != "get_attr":
            continue
        held.append(node.target)
        tensor = getattr(graph, node.target).detach()
        same = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())  # other names of one tensor are one
        if same not in tensors:
            tensors[same] = tensor
            with graph.graph.inserting_before(first):
                places[same] = graph.graph.placeholder(f"tensor_{len(tensors)}")
        node.replace_all_uses_with(places[same])
        graph.graph.erase_node(node)
    graph.recompile()
    for name in set(held):
        delattr(graph, name)  # or the compiler would take it for a second name of the tensor that is handed in
    return graph, list(tensors.values())


def _described(graph: GraphModule, tensors: Sequence[Tensor]) -> str:
    taken = [(str(tensor.dtype), tuple(tensor.shape), tensor.stride(), str(tensor.device)) for tensor in tensors]
    return f"{graph.code}\n{taken}\n{torch.get_float32_matmul_precision()}"
