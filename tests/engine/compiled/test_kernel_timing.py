"""What the compiler chooses variants of kernels by."""

from __future__ import annotations

import pytest
import torch
from torch._inductor.runtime.benchmarking import benchmarker

from s2e.engine.compiled.kernel_timing import timed_in_graphs


def test_the_compiler_gets_its_own_way_of_timing_back():
    def own() -> object:
        return benchmarker.benchmark_gpu.__func__  # type: ignore[attr-defined]

    before = own()
    with timed_in_graphs():
        assert benchmarker.benchmark_gpu.__name__ == "in_a_graph"
    assert own() is before
    with pytest.raises(ValueError, match="while compiling"), timed_in_graphs():
        raise ValueError("while compiling")
    assert own() is before


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_kernel_in_a_graph_takes_as_long_as_its_work():
    short, long = torch.zeros(1000, device="cuda"), torch.zeros(200_000_000, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), timed_in_graphs():
        milliseconds = [benchmarker.benchmark_gpu(lambda each=each: each.add_(1)) for each in (short, long)]
    assert milliseconds[0] < 0.01  # a launch alone takes longer
    assert milliseconds[1] > 20 * milliseconds[0]
    assert float(short[0]) == float(long[0])  # both have run as often


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_what_cannot_be_captured_is_timed_by_launches():
    ran = []
    with timed_in_graphs():  # on the default stream
        assert benchmarker.benchmark_gpu(lambda: ran.append(torch.zeros(10, device="cuda"))) > 0
    assert len(ran) > 10
