"""What fits a device: members at once, a captured step; and whether a network is small enough for a core of its own."""

from __future__ import annotations

import os

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from s2e.networks.factories import Factory

USABLE_SHARE = 0.8
"""Share of the free memory a population may plan with."""
TENSORS_PER_PARAMETER = 4
"""The weight, its gradient, and Adam's two moments."""
TEMPORARIES = 2
"""Activations are counted this often: once kept, once for the gradients that pass through them."""
PROBE_SAMPLES = 8
ROOM_TO_CAPTURE = 1.5
"""Times the memory of a run that must be free before it is captured."""
SMALL_FLOPS = 2e7
"""A forward pass of fewer floating-point operations is not worth sharing; the MLP on MNIST has 5e7."""


def free_memory(device: torch.device) -> int | None:
    """Return the bytes free on the device, or None where the system does not tell."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type == "cpu" and "SC_AVPHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def network_bytes(network: Factory, batch: Tensor) -> int:
    """Return the bytes one network needs to train on a batch (B, ...) of float inputs on the CPU."""
    with torch.random.fork_rng(devices=[]):
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
            output = module(probe)  # held, so that no storage is reused while counting
        kept[output.data_ptr()] = output.numel() * output.element_size()
    per_sample = sum(kept.values()) / len(probe)
    return int(TENSORS_PER_PARAMETER * weights + TEMPORARIES * per_sample * len(batch))


def small_on_a_cpu(network: Factory, batch: Tensor) -> bool:
    """Tell whether the operations of a network on a batch (B, ...) are too short to be shared by the cores of a CPU.

    A network that draws random numbers counts as large: torch has one stream of them, which threads would share.
    """
    with torch.random.fork_rng(devices=[]):
        module = network()
        before = torch.get_rng_state()
        with FlopCounterMode(display=False) as counted:
            module(batch)
        draws = not torch.equal(before, torch.get_rng_state())
    return counted.get_total_flops() < SMALL_FLOPS and not draws


def members_that_fit(member_bytes: int, device: torch.device, members: int) -> int:
    """Return how many of the members can be trained at once, at least one."""
    free = free_memory(device)
    if free is None:
        return members
    return max(1, min(members, int(USABLE_SHARE * free) // max(1, member_bytes)))


def room_to_capture() -> bool:
    """Tell whether the memory a run has needed for itself is free once more: what is captured has a pool of its own.

    To be asked beforehand: a capture that runs out of memory leaves the allocator in a state it does not recover from.
    """
    needed = torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated()
    return torch.cuda.mem_get_info()[0] >= ROOM_TO_CAPTURE * needed
