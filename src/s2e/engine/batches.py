"""Batches of inputs on the device: gathered from all inputs there, or streamed from the host if they are too large.

A batch source receives the order of an epoch, then returns its batches one by one. `batch()` can be captured in a CUDA
graph: it reads only tensors whose addresses never change.
"""

from __future__ import annotations

import logging
from typing import Protocol

import torch
from torch import Tensor

log = logging.getLogger(__name__)

RESIDENT_SHARE = 0.5
"""Largest share of the device's free memory for a resident data set; a larger data set is streamed."""


class BatchSource(Protocol):
    """Returns the batches of an epoch.

    Attributes:
        advances_itself: whether `batch` moves to the next batch, so that `advance` need not be called.
    """

    advances_itself: bool

    def begin_epoch(self, order: Tensor) -> None:
        """Start an epoch in the given order, (S * B,) int64 on the CPU."""

    def advance(self) -> None:
        """Prepare the next batch; called before every step, outside any graph."""

    def batch(self) -> tuple[Tensor, Tensor]:
        """Return the prepared batch on the device: inputs (B, ...) float32 and their indices in the data (B,)."""


def batch_source(
    inputs: Tensor, batch_size: int, device: torch.device, *, steps: int | None = None, stream: bool | None = None
) -> BatchSource:
    """Return a source of batches of these inputs on a device.

    Args:
        inputs: (N, ...) on the CPU.
        batch_size: B.
        device: device of the batches.
        steps: batches in an epoch, ⌊N/B⌋ if None; may be larger if samples are repeated within an epoch.
        stream: keep the inputs on the host; None decides by the free memory of the device.
    """
    if stream is None:
        stream = device.type == "cuda" and _nbytes(inputs) > RESIDENT_SHARE * torch.cuda.mem_get_info(device)[0]
        if stream:
            log.warning("%.1f GB of inputs do not fit the device; streaming them", _nbytes(inputs) / 1e9)
    if stream:
        return StreamedBatches(inputs, batch_size, device)
    return ResidentBatches(inputs, batch_size, len(inputs) // batch_size if steps is None else steps, device)


class ResidentBatches:
    """Batches of inputs that are all on the device, gathered there by index."""

    advances_itself = True

    def __init__(self, inputs: Tensor, batch_size: int, steps: int, device: torch.device) -> None:
        self._inputs = inputs.to(device)
        self._orders = torch.zeros(steps, batch_size, dtype=torch.int64, device=device)
        self._step = torch.zeros(1, dtype=torch.int64, device=device)

    def begin_epoch(self, order: Tensor) -> None:
        """Copy the order to the device and start before its first batch."""
        self._orders.copy_(order.view_as(self._orders))
        self._step.fill_(-1)

    def advance(self) -> None:
        """Do nothing: `batch` counts the steps on the device."""

    def batch(self) -> tuple[Tensor, Tensor]:
        """Move to the next row of the order and gather its samples."""
        self._step += 1
        index = self._orders.index_select(0, self._step).squeeze(0)  # (B,)
        return scaled(self._inputs.index_select(0, index)), index


class StreamedBatches:
    """Batches of inputs in (pinned) host memory; the next batch is copied while the current one is trained on."""

    advances_itself = False

    def __init__(self, inputs: Tensor, batch_size: int, device: torch.device) -> None:
        on_cuda = device.type == "cuda"
        self._inputs = inputs
        self._batch_size = batch_size
        self._copy_stream = torch.cuda.Stream(device) if on_cuda else None
        shape = (batch_size, *inputs.shape[1:])
        self._host = [torch.empty(shape, dtype=inputs.dtype, pin_memory=on_cuda) for _ in range(2)]
        self._host_index = [torch.empty(batch_size, dtype=torch.int64, pin_memory=on_cuda) for _ in range(2)]
        self._next = torch.empty(shape, dtype=inputs.dtype, device=device)
        self._next_index = torch.empty(batch_size, dtype=torch.int64, device=device)
        self._current = torch.empty_like(self._next)
        self._current_index = torch.empty_like(self._next_index)
        self._copied = [torch.cuda.Event() if on_cuda else None for _ in range(2)]
        self._order = torch.empty(0, dtype=torch.int64)
        self._fetched = 0

    def begin_epoch(self, order: Tensor) -> None:
        """Start fetching the first batch of this order."""
        self._order = order
        self._fetched = 0
        self._fetch()

    def advance(self) -> None:
        """Make the fetched batch the current one and start fetching the next."""
        if self._copy_stream is not None:
            torch.cuda.current_stream(self._current.device).wait_stream(self._copy_stream)
        self._current.copy_(self._next)
        self._current_index.copy_(self._next_index)
        self._fetch()

    def batch(self) -> tuple[Tensor, Tensor]:
        """Return the current batch."""
        return scaled(self._current), self._current_index

    def _fetch(self) -> None:
        start = self._fetched * self._batch_size
        if start >= len(self._order):
            return
        slot = self._fetched % 2
        copied = self._copied[slot]
        if copied is not None:
            copied.synchronize()  # the pinned buffer is free again once its last copy is done
        index = self._order[start : start + self._batch_size]
        torch.index_select(self._inputs, 0, index, out=self._host[slot])
        self._host_index[slot].copy_(index)
        if self._copy_stream is not None:
            self._copy_stream.wait_stream(torch.cuda.current_stream(self._next.device))  # `_next` may still be read
        with torch.cuda.stream(self._copy_stream):
            self._next.copy_(self._host[slot], non_blocking=True)
            self._next_index.copy_(self._host_index[slot], non_blocking=True)
            if copied is not None:
                copied.record()
        self._fetched += 1


def scaled(inputs: Tensor) -> Tensor:
    """Return pixels (uint8) as float32 in [0, 1], and any other inputs unchanged."""
    return inputs.float().div_(255) if inputs.dtype == torch.uint8 else inputs


def _nbytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
