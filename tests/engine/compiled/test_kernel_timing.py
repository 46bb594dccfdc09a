"""The times by which the compiler chooses variants of kernels."""

from __future__ import annotations

import pytest
import torch

from s2e.engine.compiled.kernel_timing import benchmark_in_cuda_graphs

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture
def benchmarker():
    """The compiler's stopwatch; its module takes a second to import."""
    from torch._inductor.runtime.benchmarking import benchmarker

    return benchmarker


@pytest.mark.gpu
@needs_gpu
def test_time_in_a_graph_is_proportional_to_work(benchmarker):
    short, long = torch.zeros(1000, device="cuda"), torch.zeros(200_000_000, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), benchmark_in_cuda_graphs():
        milliseconds = [benchmarker.benchmark_gpu(lambda each=each: each.add_(1)) for each in (short, long)]
    assert milliseconds[0] < 0.01  # a launch alone takes longer
    assert milliseconds[1] > 20 * milliseconds[0]
    assert float(short[0]) == float(long[0])  # both ran equally often


@pytest.mark.gpu
@needs_gpu
def test_launches_are_timed_where_capture_is_impossible(benchmarker):
    runs = []
    with benchmark_in_cuda_graphs():  # on the default stream
        assert benchmarker.benchmark_gpu(lambda: runs.append(torch.zeros(10, device="cuda"))) > 0
    assert len(runs) > 10
