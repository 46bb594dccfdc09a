"""One training step of a whole population, run eagerly or replayed as a CUDA graph.

Everything that changes while a graph replays (batch order, keep counts, learning rates, sums) lives in device tensors
that are written in place; everything a graph reads is an attribute here, and so outlives it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from s2e.feed import Feed
from s2e.methods import Batch, Method
from s2e.optimizer import StackedAdam
from s2e.population import Population
from s2e.records import Recorder

log = logging.getLogger(__name__)

WARM_UP_STEPS = 3
"""Steps taken eagerly before capture, so that libraries choose their kernels and allocate what they keep."""


ROOM_TO_CAPTURE = 1.5
"""Times the memory of an eager step that must be free before the step is captured."""


class Lockstep:
    """All members of a population, one batch at a time.

    Args:
        population: G = P * M networks, the networks of a member next to each other.
        method: weighs the samples.
        optimizer: updates the stacked parameters.
        feed: hands out batches.
        labels: (P, N) given labels on the device.
        recorder: what to remember of each step.
        use_graph: replay the step as a CUDA graph where the device can.
    """

    def __init__(
        self,
        population: Population,
        method: Method,
        optimizer: StackedAdam,
        feed: Feed,
        labels: Tensor,
        recorder: Recorder,
        *,
        use_graph: bool = True,
    ) -> None:
        self._population, self._method, self._optimizer = population, method, optimizer
        self._feed, self._labels, self._recorder = feed, labels, recorder
        self._keep = torch.zeros(len(labels), dtype=torch.int64, device=labels.device)
        self._replayed = Replayed(self._step) if use_graph and labels.is_cuda else None

    def begin_epoch(self, epoch: int, order: Tensor, steps: int, keep: Tensor, factor: float, beta1: float) -> None:
        """Set what holds during an epoch: the order (S * B,), keep counts (P,), learning-rate factor and beta1."""
        if self._replayed is not None and beta1 != self._optimizer.beta1:
            self._replayed.forget()  # beta1 is a constant of the captured step
        self._optimizer.plan(factor, beta1)
        self._keep.copy_(keep)
        self._feed.begin_epoch(order)
        self._recorder.begin_epoch(epoch, order, steps)

    def step(self) -> None:
        """Train every member on the next batch."""
        self._feed.advance()
        if self._replayed is not None:
            self._replayed()
        else:
            self._step()

    def _step(self) -> None:
        inputs, index = self._feed.batch()
        labels = self._labels.index_select(1, index)  # (P, B)
        flat = self._population.forward(inputs, training=True)  # (P * M, B, C)
        logits = flat.unflatten(0, (len(labels), self._method.networks))  # (P, M, B, C)
        objective = self._method.objective(Batch(logits, labels, self._keep))
        self._optimizer.update(self._population.gradients(objective.loss.sum()))
        self._recorder.record(index, objective, logits.detach().argmax(dim=-1), labels)


class Replayed:
    """A function of no arguments that works on fixed device tensors, run eagerly a few times, then as a CUDA graph."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function
        self._eager_runs = 0
        self._capturable = True
        self._graph: torch.cuda.CUDAGraph | None = None
        self._stream = _capture_stream(torch.cuda.current_device())

    def __call__(self) -> None:
        """Run the function once."""
        if self._graph is None and self._capturable and self._eager_runs >= WARM_UP_STEPS:
            self._capture()
        elif self._eager_runs == 0:
            torch.cuda.reset_peak_memory_stats()
        if self._graph is not None:
            self._graph.replay()
            return
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            self._function()
        torch.cuda.current_stream().wait_stream(self._stream)
        self._eager_runs += 1

    def forget(self) -> None:
        """Capture anew at the next run, because a constant of the function has changed."""
        self._graph = None

    def _capture(self) -> None:
        """Capture the function, or find out that it has to go on without."""
        torch.cuda.synchronize()
        if not _room_to_capture():
            self._give_up("too little memory is left for one")
            return
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
