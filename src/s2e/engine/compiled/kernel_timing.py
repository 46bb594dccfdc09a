"""How long a kernel takes inside a CUDA graph: what the compiler should choose a kernel's variant by.

By itself it times launches, together with copies of what the kernel changes. A launch takes ten times as long as most
kernels of a step, which are captured in the end and never launched again: its choice would be a throw of dice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from s2e.engine.memory import room_to_capture

RUNS, REPLAYS = 10, 4
"""Runs in the graph that is timed, and how often; the shortest time counts."""


@contextmanager
def timed_in_graphs() -> Iterator[None]:
    """Have the compiler time what it tries on a GPU as it will run; where that cannot be, it goes on as before."""
    try:
        from torch._inductor.runtime.benchmarking import benchmarker

        by_launches = benchmarker.benchmark_gpu
    except (ImportError, AttributeError):  # not a part of torch that it promises to keep
        yield
        return

    def in_a_graph(run: Callable[[], Any], *args: Any, **settings: Any) -> Any:
        return _milliseconds(run) if _capturable() else by_launches(run, *args, **settings)

    benchmarker.benchmark_gpu = in_a_graph  # type: ignore[method-assign]
    try:
        yield
    finally:
        benchmarker.benchmark_gpu = by_launches  # type: ignore[method-assign]


def _capturable() -> bool:
    """Tell whether the current stream can be captured, which the default one cannot, and there is room for it."""
    return torch.cuda.current_stream() != torch.cuda.default_stream() and room_to_capture()


def _milliseconds(run: Callable[[], Any]) -> float:
    run()  # what is loaded when it is run for the first time cannot be captured
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin(capture_error_mode="thread_local")
    try:
        for _ in range(RUNS):
            run()
    finally:
        graph.capture_end()
    return min(_replayed(graph) for _ in range(REPLAYS)) / RUNS


def _replayed(graph: torch.cuda.CUDAGraph) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end))
