"""Compiling a training step: it is traced while it runs once, and torch's compiler fuses the trace into few kernels.

A trace is a graph of tensor operations and the tensors they work on; no Python runs in it. Steps that differ only in
the contents of their tensors, such as those of two generations of a search, share one compiled graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from s2e.engine.compiled.kernel_timing import benchmark_in_cuda_graphs
from s2e.engine.compiled.layers import BatchedLayers
from s2e.engine.compiled.torch_internals import record_operations

COMPILER_OPTIONS: dict[str, Any] = {
    "combo_kernels": True,
    "combo_kernel_allow_mixed_sizes": 0,
    "shape_padding": False,
}
"""Independent kernels are combined into one, unless their grids differ in shape; the rules in `layers` already pad."""

_COMPILED: dict[str, Callable[..., object]] = {}
"""Compiled graphs of this process, by `_cache_key`."""


def compile_function(function: Callable[[], None]) -> Callable[[], None]:
    """Trace a function without arguments that works on fixed tensors, running it once; return a compiled equivalent.

    The compiler runs when the returned function is called for the first time.
    """
    graph, tensors = trace_function(function)
    key = _cache_key(graph, tensors)
    if key not in _COMPILED:
        _COMPILED[key] = torch.compile(graph, fullgraph=True, dynamic=False, options=COMPILER_OPTIONS)
    compiled = _COMPILED[key]

    def run() -> None:
        with torch.no_grad(), benchmark_in_cuda_graphs():
            compiled(*tensors)

    return run


def trace_function(function: Callable[[], None]) -> tuple[GraphModule, list[Tensor]]:
    """Run a function once; return its operations as a graph, and the tensors the graph takes as arguments, in order."""
    with BatchedLayers(bfloat16=torch.get_float32_matmul_precision() != "highest"):
        graph = record_operations(function)
    tensors: dict[tuple[object, ...], Tensor] = {}
    placeholders, attributes = {}, []
    first = next(node for node in graph.graph.nodes if node.op != "get_attr")
    for node in list(graph.graph.nodes):
        if node.op != "get_attr":
            continue
        attributes.append(node.target)
        tensor = getattr(graph, node.target).detach()
        identity = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())  # aliases become one argument
        if identity not in tensors:
            tensors[identity] = tensor
            with graph.graph.inserting_before(first):
                placeholders[identity] = graph.graph.placeholder(f"tensor_{len(tensors)}")
        node.replace_all_uses_with(placeholders[identity])
        graph.graph.erase_node(node)
    graph.recompile()
    for name in set(attributes):
        delattr(graph, name)  # otherwise the compiler treats it as an alias of the argument
    return graph, list(tensors.values())


def _cache_key(graph: GraphModule, tensors: Sequence[Tensor]) -> str:
    arguments = [(str(tensor.dtype), tuple(tensor.shape), tensor.stride(), str(tensor.device)) for tensor in tensors]
    return f"{graph.code}\n{arguments}\n{torch.get_float32_matmul_precision()}"
