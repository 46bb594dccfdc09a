"""A function on fixed device tensors, compiled where that pays, and replayed as a CUDA graph.

Everything a graph reads must stay referenced for as long as it replays.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from functools import cache

import torch

log = logging.getLogger(__name__)

WARM_UP_RUNS = 3
"""Runs before capture, so that libraries choose their kernels and allocate what they keep."""
ROOM_TO_CAPTURE = 1.5
"""Times the memory of an eager run that must be free before it is captured."""


class Replayed:
    """A function of no arguments that works on fixed device tensors, run eagerly a few times, then as a CUDA graph.

    Args:
        function: what to run.
        fuse: asked after the first run; compile the function before it is captured.
    """

    def __init__(self, function: Callable[[], None], *, fuse: Callable[[], bool]) -> None:
        self._function, self._fuse = function, fuse
        self._eager_runs = 0
        self._capturable = True
        self._graph: torch.cuda.CUDAGraph | None = None
        self._stream = _capture_stream(torch.cuda.current_device())

    def __call__(self) -> None:
        """Run the function once."""
        if self._graph is None and self._capturable and self._eager_runs >= WARM_UP_RUNS:
            self._capture()
        elif self._eager_runs == 0:
            torch.cuda.reset_peak_memory_stats()
        if self._graph is not None:
            self._graph.replay()
            return
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            if self._eager_runs == 1 and self._fuse():
                self._function = _fused(self._function)
            else:
                self._function()
        torch.cuda.current_stream().wait_stream(self._stream)
        self._eager_runs += 1

    def _capture(self) -> None:
        """Capture the function, or find out that it has to go on without."""
        torch.cuda.synchronize()
        if not _room_to_capture():
            self._give_up("too little memory is left for one")
            return
        gc.collect()  # now, not while capturing: what is collected may be an earlier graph with its memory
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=self._stream):
                self._function()
        except RuntimeError as problem:
            self._give_up(str(problem).strip().splitlines()[0])
            torch.cuda.synchronize()
        else:
            self._graph = graph

    def _give_up(self, reason: str) -> None:
        log.warning("this step cannot be captured as a CUDA graph (%s); running it step by step", reason)
        self._capturable = False


def _fused(function: Callable[[], None]) -> Callable[[], None]:
    """Run the function once and return it compiled, or as it is where that cannot be done."""
    from s2e.fusing import fused  # the compiler takes a second to load, and not everyone needs it

    try:
        return fused(function)
    except torch.OutOfMemoryError:
        raise
    except Exception as problem:
        reason = (str(problem).strip().splitlines() or [type(problem).__name__])[0]
        log.warning("this step cannot be compiled (%s); going on without", reason)
        return function


def _room_to_capture() -> bool:
    """Tell whether the memory a step needs for itself is there once more: a captured step has a pool of its own.

    Asked beforehand: a capture that runs out of memory leaves the allocator in a state it does not recover from.
    """
    needed = torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated()
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info()[0] >= ROOM_TO_CAPTURE * needed


@cache
def _capture_stream(device: int) -> torch.cuda.Stream:
    """One stream for all captures on a device: the libraries keep a workspace for every stream they have ever seen."""
    return torch.cuda.Stream(device)
