"""Functions on fixed device tensors, optionally compiled, captured as CUDA graphs and replayed.

Everything a graph reads must stay referenced as long as it is replayed.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock, current_thread, main_thread
from typing import Any

import torch

from s2e.engine.memory import enough_memory_to_capture, garbage_collection_disabled
from s2e.errors import first_line

log = logging.getLogger(__name__)

_CAPTURING = Lock()
"""Held during a capture: garbage collection is disabled in all threads then."""

WARM_UP_RUNS = 3
"""Eager runs before capture, in which libraries choose their kernels and allocate their workspaces."""


class CapturedFunction:
    """A function without arguments on fixed device tensors: run eagerly a few times, then replayed as a CUDA graph.

    Args:
        function: the function.
        should_compile: called after the first run; True compiles the function before it is captured.
        runs_per_graph: runs in the longer of two graphs; the device idles briefly between graphs.
    """

    def __init__(
        self,
        function: Callable[[], None],
        *,
        should_compile: Callable[[], bool] = lambda: False,
        runs_per_graph: int = 1,
    ) -> None:
        self._function, self._should_compile, self._runs_per_graph = function, should_compile, runs_per_graph
        self._eager_runs = 0
        self._capturable = True
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}  # by the number of runs
        self._stream = _capture_stream(torch.cuda.current_device())

    @property
    def captured(self) -> bool:
        """Whether there is a graph to replay."""
        return bool(self._graphs)

    def __call__(self, times: int = 1) -> None:
        """Run the function `times` times."""
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
            if self._eager_runs == 1 and self._should_compile():
                self._function = CompiledFunction(self._function)
            else:
                self._function()
        torch.cuda.current_stream().wait_stream(self._stream)
        self._eager_runs += 1

    def _capture(self) -> None:
        """Capture the function; if that fails, it keeps running eagerly."""
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        if not enough_memory_to_capture():
            self._disable_capture("too little free memory")
            return
        pool = torch.cuda.graph_pool_handle()  # shared by all graphs: they never run at the same time
        try:
            with _CAPTURING, garbage_collection_disabled():
                self._graphs = {runs: self._graph_of(runs, pool) for runs in sorted({1, self._runs_per_graph})}
        except RuntimeError as problem:
            self._disable_capture(first_line(problem))
            torch.cuda.synchronize()

    def _graph_of(self, runs: int, pool: Any) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        # With the mode "global", allocations of another thread, which trains on another device, would fail meanwhile.
        mode = "global" if current_thread() is main_thread() else "thread_local"
        with torch.cuda.graph(graph, pool=pool, stream=self._stream, capture_error_mode=mode):
            for _ in range(runs):
                self._function()
        return graph

    def _disable_capture(self, reason: str) -> None:
        log.warning("this step cannot be captured as a CUDA graph (%s); running it eagerly", reason)
        self._capturable = False


class CompiledFunction:
    """A function that is run once and traced on construction, and compiled on its first call.

    If tracing or compiling fails, the plain function is used.
    """

    def __init__(self, function: Callable[[], None]) -> None:
        from s2e.engine.compiled.trace import compile_function  # the compiler takes a second to import

        self._plain = self._compiled = function
        self._tried = False
        with self._plain_on_failure():
            self._compiled = compile_function(function)

    def __call__(self) -> None:
        """Run the function once."""
        if self._tried:
            self._compiled()
            return
        with self._plain_on_failure():
            self._compiled()
            self._tried = True
        if not self._tried:
            self._tried = True
            self._compiled()

    @contextmanager
    def _plain_on_failure(self) -> Iterator[None]:
        """Run uncompiled if the body fails; deprecations inside torch are no failure where warnings are errors."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                yield
        except torch.OutOfMemoryError:
            raise
        except Exception as problem:
            reason = " ".join(str(problem).split("\n")[:2])  # the name of the compiler, then the reason
            log.warning("this step cannot be compiled (%s); it runs uncompiled", reason)
            self._compiled = self._plain


@cache
def _capture_stream(device: int) -> torch.cuda.Stream:
    """Return the stream of all captures on a device: libraries keep a workspace for every stream they have used."""
    return torch.cuda.Stream(device)
