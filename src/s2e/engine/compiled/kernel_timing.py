"""The time of a kernel inside a CUDA graph, by which the compiler chooses among variants of a kernel.

By default the compiler times launches, together with copies of the tensors that the kernel modifies. A launch takes ten
times as long as most kernels of a step, and a captured step launches none of them: the choice would be noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from s2e.engine.compiled.torch_internals import replace_gpu_benchmark
from s2e.engine.memory import enough_memory_to_capture, garbage_collection_disabled

RUNS_PER_GRAPH, REPLAYS = 10, 4
"""Runs of a kernel in the timed graph, and replays of the graph; the shortest replay counts."""


@contextmanager
def benchmark_in_cuda_graphs() -> Iterator[None]:
    """Let the compiler time kernel variants inside CUDA graphs, where the current stream can be captured."""

    def replacement(by_launches: Callable[..., Any]) -> Callable[..., Any]:
        def benchmark_gpu(run: Callable[[], Any], *args: Any, **settings: Any) -> Any:
            return _milliseconds(run) if _can_capture() else by_launches(run, *args, **settings)

        return benchmark_gpu

    with replace_gpu_benchmark(replacement):
        yield


def _can_capture() -> bool:
    """Return whether the current stream is not the default one, which cannot be captured, and memory suffices."""
    return torch.cuda.current_stream() != torch.cuda.default_stream() and enough_memory_to_capture()


def _milliseconds(run: Callable[[], Any]) -> float:
    run()  # modules that are loaded on the first call cannot be loaded during a capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with garbage_collection_disabled():
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            for _ in range(RUNS_PER_GRAPH):
                run()
        finally:
            graph.capture_end()
    return min(_replay_milliseconds(graph) for _ in range(REPLAYS)) / RUNS_PER_GRAPH


def _replay_milliseconds(graph: torch.cuda.CUDAGraph) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    graph.replay()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))
