"""Memory of a device: how many members fit, and whether a step can be captured."""

from __future__ import annotations

import functools
import gc
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from s2e.engine.batches import scaled
from s2e.engine.recorder import bytes_per_member
from s2e.engine.task import Member, Task
from s2e.files.memory import available_memory
from s2e.methods import Method, Need
from s2e.networks import Factory, isolated_random_state

log = logging.getLogger(__name__)

USABLE_SHARE = 0.8
"""Share of the free memory that a population may use."""
TENSORS_PER_PARAMETER = 2
"""The weight and its gradient; the state of the optimizer is added."""
TEMPORARIES = 2
"""Factor on the bytes of activations: the saved activations and their gradients."""
PROBE_SAMPLES = 8
"""Samples of the forward pass in which activations are counted."""
CAPTURE_FACTOR = 1.5
"""Multiple of the memory of a run that must be free before it is captured."""


REUSED_BYTES = 32 * 2**20 - 2**16
"""Size of a block whose release makes the C library keep freed memory: the largest that does so in glibc."""


@functools.cache
def keep_freed_memory() -> None:
    """Let the C library keep the memory that a training step frees, for the next step.

    By default glibc returns freed memory beyond 128 KiB to the system, and the system clears every page that it hands
    out again. With ten or more small networks that takes as long as their products. Releasing one larger block raises
    the thresholds: 32 MiB for a block of its own, 64 MiB of freed memory for each thread. No effect in other libraries.

    Once is enough. A second block would come from the heap, which would grow by as much: freed memory is split up by
    smaller blocks. In the end no process could be forked.
    """
    torch.empty(REUSED_BYTES, dtype=torch.uint8)


def free_memory(device: torch.device) -> int | None:
    """Return the free bytes of a device, or None if the system does not report them."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return available_memory() if device.type == "cpu" else None


def network_bytes(network: Factory, batch: Tensor, state_tensors: int) -> int:
    """Return the bytes that one network needs to train on a batch (B, ...) of float inputs on the CPU.

    Args:
        network: factory of the architecture.
        batch: (B, ...)
        state_tensors: tensors of the size of a parameter that the optimizer keeps for it.
    """
    with isolated_random_state():
        module = network()
        weights = sum(p.numel() * p.element_size() for p in module.parameters())
        own = {p.data_ptr() for p in module.parameters()}
        kept: dict[int, int] = {}

        def count(tensor: Tensor) -> Tensor:
            if tensor.data_ptr() not in own:
                kept[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
            return tensor

        probe = batch[:PROBE_SAMPLES]
        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            output = module(probe)  # referenced, so that no storage is reused while counting
        kept[output.data_ptr()] = output.numel() * output.element_size()
    per_sample = sum(kept.values()) / len(probe)
    return int((TENSORS_PER_PARAMETER + state_tensors) * weights + TEMPORARIES * per_sample * len(batch))


def members_that_fit(member_bytes: int, device: torch.device, members: int, limit: int | None = None) -> int:
    """Return how many of the members can be trained together, at least one; `limit` bounds the memory they may use."""
    free = free_memory(device)
    if limit is not None:
        free = limit if free is None else min(free, limit)
    if free is None:
        return members
    return max(1, min(members, int(USABLE_SHARE * free) // max(1, member_bytes)))


def chunk_size(task: Task, members: Sequence[Member]) -> int:
    """Return how many members to train together, given the memory for networks and records of the largest member."""
    passes = max(_passes_in_memory(task.method_of(member)) for member in members)
    state_tensors = max(task.optimizer_of(member).state_tensors for member in members)
    records = bytes_per_member(len(task.train), max(task.method_of(member).networks for member in members))
    needed = passes * network_bytes(task.network, probe_batch(task), state_tensors) + records
    size = members_that_fit(needed, task.device, len(members), task.memory)
    if size < len(members):
        log.warning("%d members do not fit the memory together; training %d at a time", len(members), size)
    return size


def probe_batch(task: Task) -> Tensor:
    """Return a batch of training inputs (B, ...) on which to measure a network."""
    return scaled(torch.from_numpy(task.train.inputs[: task.batch_size]))


def enough_memory_to_capture() -> bool:
    """Return whether as much memory is free as a run has used: a captured graph has its own memory pool.

    Call this before a capture: running out of memory during one leaves torch's allocator in a broken state.
    """
    needed = torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated()
    return torch.cuda.mem_get_info()[0] >= CAPTURE_FACTOR * needed


def _passes_in_memory(method: Method) -> int:
    """Return the forward passes that a member keeps in memory: one per network, and two more for clean samples."""
    return method.networks * (3 if Need.CLEAN_SAMPLES in method.needs else 1)


@contextmanager
def garbage_collection_disabled() -> Iterator[None]:
    """Disable the garbage collector during a capture: it might free an earlier graph with its memory."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
