"""A function on fixed device tensors, compiled where that pays, and replayed as a CUDA graph.

Everything a graph reads must stay referenced for as long as it replays.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch

from s2e.engine.memory import room_to_capture
from s2e.errors import first_line

log = logging.getLogger(__name__)

WARM_UP_RUNS = 3
"""Runs before capture, so that libraries choose their kernels and allocate what they keep."""


class Replayed:
    """A function of no arguments that works on fixed device tensors, run eagerly a few times, then as a CUDA graph.

    Args:
        function: what to run.
        fuse: asked after the first run; compile the function before it is captured.
        at_once: runs in the longer of two graphs: between graphs the device waits for a moment.
    """

    def __init__(
        self, function: Callable[[], None], *, fuse: Callable[[], bool] = lambda: False, at_once: int = 1
    ) -> None:
        self._function, self._fuse, self._at_once = function, fuse, at_once
        self._eager_runs = 0
        self._capturable = True
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}  # by the runs in it
        self._stream = _capture_stream(torch.cuda.current_device())

    @property
    def captured(self) -> bool:
        """Whether there is a graph to replay."""
        return bool(self._graphs)

    def __call__(self, times: int = 1) -> None:
        """Run the function so many times."""
        while times > 0:
            if not self._graphs and self._capturable and self._eager_runs >= WARM_UP_RUNS:
                self._capture()
            fitting = [runs for runs in self._graphs if runs <= times]
            if fitting:
                self._graphs[max(fitting)].replay()
                times -= max(fitting)
            else:
                self._run_eagerly()
                times -= 1

    def _run_eagerly(self) -> None:
        if self._eager_runs == 0:
            torch.cuda.reset_peak_memory_stats()
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            if self._eager_runs == 1 and self._fuse():
                self._function = _Fused(self._function)
            else:
                self._function()
        torch.cuda.current_stream().wait_stream(self._stream)
        self._eager_runs += 1

    def _capture(self) -> None:
        """Capture the function, or find out that it has to go on without."""
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        if not room_to_capture():
            self._give_up("too little memory is left for one")
            return
        pool = torch.cuda.graph_pool_handle()  # for all graphs: they never run at the same time
        try:
            with _nothing_collected():
                self._graphs = {runs: self._captured(runs, pool) for runs in sorted({1, self._at_once})}
        except RuntimeError as problem:
            self._give_up(first_line(problem))
            torch.cuda.synchronize()

    def _captured(self, runs: int, pool: Any) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool, stream=self._stream):
            for _ in range(runs):
                self._function()
        return graph

    def _give_up(self, reason: str) -> None:
        log.warning("this step cannot be captured as a CUDA graph (%s); running it step by step", reason)
        self._capturable = False


class _Fused:
    """A function that is traced when it is made, which runs it once, and compiled when it is first called.

    Where one or the other cannot be done, it goes on as it is.
    """

    def __init__(self, function: Callable[[], None]) -> None:
        from s2e.engine.compiled.trace import fused  # the compiler takes a second to load, and not everyone needs it

        self._plain = self._fast = function
        self._tried = False
        with self._or_plain():
            self._fast = fused(function)

    def __call__(self) -> None:
        """Run the function once."""
        if self._tried:
            self._fast()
            return
        with self._or_plain():
            self._fast()
            self._tried = True
        if not self._tried:
            self._tried = True
            self._fast()

    @contextmanager
    def _or_plain(self) -> Iterator[None]:
        try:
            yield
        except torch.OutOfMemoryError:
            raise
        except Exception as problem:
            log.warning("this step cannot be compiled (%s); going on without", first_line(problem))
            self._fast = self._plain


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """Keep the garbage collector away while capturing: what it collects may be an earlier graph with its memory."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@cache
def _capture_stream(device: int) -> torch.cuda.Stream:
    """One stream for all captures on a device: the libraries keep a workspace for every stream they have ever seen."""
    return torch.cuda.Stream(device)
