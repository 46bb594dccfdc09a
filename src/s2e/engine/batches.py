"""Where batches come from: all inputs on the device as one tensor, or streamed from the host when they are too large.

A feed is told the order of an epoch and then hands out batch after batch. `batch()` is safe to capture in a CUDA graph:
it reads only tensors whose addresses never change.
"""

from __future__ import annotations

import logging
from typing import Protocol

import torch
from torch import Tensor

log = logging.getLogger(__name__)

RESIDENT_SHARE = 0.5
"""A data set may take this share of the device's free memory; a larger one is streamed."""


class Feed(Protocol):
    """Hands out the batches of an epoch.

    Attributes:
        advances_itself: `batch` moves on by itself; `advance` need not be called.
    """

    advances_itself: bool

    def begin_epoch(self, order: Tensor) -> None:
        """Take the order of the coming epoch, (S * B,) int64 on the CPU."""

    def advance(self) -> None:
        """Make the next batch ready; called before every step, outside any graph."""

    def batch(self) -> tuple[Tensor, Tensor]:
        """Return the batch made ready: inputs (B, ...) float32 and its positions in the data (B,), on the device."""


def feed(
    inputs: Tensor, batch_size: int, device: torch.device, *, steps: int | None = None, stream: bool | None = None
) -> Feed:
    """Choose how these inputs reach the device.

    Args:
        inputs: (N, ...) on the CPU.
        batch_size: B.
        device: where they go.
        steps: batches in an epoch, ⌊N/B⌋ when None; there may be more, with samples that come up again.
        stream: from the host instead of all on the device; None decides by the memory that is free there.
    """
    if stream is None:
        stream = device.type == "cuda" and _nbytes(inputs) > RESIDENT_SHARE * torch.cuda.mem_get_info(device)[0]
        if stream:
            log.warning("%.1f GB of inputs do not fit the device; streaming them", _nbytes(inputs) / 1e9)
    if stream:
        return StreamedFeed(inputs, batch_size, device)
    return ResidentFeed(inputs, batch_size, len(inputs) // batch_size if steps is None else steps, device)


class ResidentFeed:
    """All inputs on the device; a batch is an index draw there."""

    advances_itself = True

    def __init__(self, inputs: Tensor, batch_size: int, steps: int, device: torch.device) -> None:
        self._inputs = inputs.to(device)
        self._orders = torch.zeros(steps, batch_size, dtype=torch.int64, device=device)
        self._step = torch.zeros(1, dtype=torch.int64, device=device)

    def begin_epoch(self, order: Tensor) -> None:
        """Put the order on the device and start at its first batch."""
        self._orders.copy_(order.view_as(self._orders))
        self._step.fill_(-1)

    def advance(self) -> None:
        """Do nothing: the place in the order is kept on the device, by `batch`."""

    def batch(self) -> tuple[Tensor, Tensor]:
        """Move to the next row of the order and gather its samples."""
        self._step += 1
        index = self._orders.index_select(0, self._step).squeeze(0)  # (B,)
        return scaled(self._inputs.index_select(0, index)), index


class StreamedFeed:
    """Inputs stay in (pinned) host memory; the next batch is copied over while the current one is trained on."""

    advances_itself = False

    def __init__(self, inputs: Tensor, batch_size: int, device: torch.device) -> None:
        on_cuda = device.type == "cuda"
        self._inputs = inputs
        self._batch_size = batch_size
        self._side = torch.cuda.Stream(device) if on_cuda else None
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
        """Take over the batch that was fetched and start on the one after it."""
        if self._side is not None:
            torch.cuda.current_stream(self._current.device).wait_stream(self._side)
        self._current.copy_(self._next)
        self._current_index.copy_(self._next_index)
        self._fetch()

    def batch(self) -> tuple[Tensor, Tensor]:
        """Return the batch taken over last."""
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
        if self._side is not None:
            self._side.wait_stream(torch.cuda.current_stream(self._next.device))  # `_next` may still be read
        with torch.cuda.stream(self._side):
            self._next.copy_(self._host[slot], non_blocking=True)
            self._next_index.copy_(self._host_index[slot], non_blocking=True)
            if copied is not None:
                copied.record()
        self._fetched += 1


def scaled(inputs: Tensor) -> Tensor:
    """Return inputs as networks want them: pixels (uint8) as float32 in [0, 1], anything else as it is."""
    return inputs.float().div_(255) if inputs.dtype == torch.uint8 else inputs


def _nbytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
