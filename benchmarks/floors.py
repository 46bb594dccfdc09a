"""What a training step must cost at least on a device, from what it has to compute and to move.

Two rates are measured on the device itself: how fast memory is copied, and how fast large matrices are multiplied. A
step of one network on a batch then takes at least the longer of

- bytes / bandwidth, where every weight is read for the forward pass, its gradient is written, and Adam reads weight,
  gradient and two moments and writes weight and moments: nine times four bytes a weight; and every activation is
  written and read once, and so is its gradient: four times its bytes;
- operations / rate, where the backward pass takes twice the operations of the forward pass.

It leaves out the losses, the selection and the records, which are small, and the time a kernel takes to start.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from s2e.networks.factories import Factory

PASSES_PER_WEIGHT, PASSES_PER_ACTIVATION = 9, 4


@dataclass(frozen=True)
class Rates:
    """Of a device.

    Attributes:
        bandwidth: bytes a second, read and written together, of a large copy.
        multiplication: floating-point operations a second of a large product in bfloat16 (float32 on a CPU).
    """

    bandwidth: float
    multiplication: float


@dataclass(frozen=True)
class Work:
    """Of one network in one step.

    Attributes:
        moved: bytes.
        operations: floating-point operations.
    """

    moved: float
    operations: float

    def seconds(self, rates: Rates) -> float:
        """Return the time that cannot be beaten."""
        return max(self.moved / rates.bandwidth, self.operations / rates.multiplication)


def work(network: Factory, batch: Tensor, activation_bytes: int) -> Work:
    """Count what a training step of one network on a batch (B, ...) computes and moves.

    Args:
        network: makes the network.
        batch: on the CPU.
        activation_bytes: of a number in an activation: 4, or 2 where they are kept in a narrow type.
    """
    module = network()
    weights = sum(parameter.numel() for parameter in module.parameters())
    activations = 0

    def count(layer: torch.nn.Module, given: object, output: Tensor) -> None:  # noqa: ARG001
        nonlocal activations
        activations += output.numel()

    for layer in module.modules():
        if not list(layer.children()):
            layer.register_forward_hook(count)
    with torch.no_grad(), FlopCounterMode(display=False) as counted:
        module(batch)
    moved = 4 * PASSES_PER_WEIGHT * weights + activation_bytes * PASSES_PER_ACTIVATION * activations
    return Work(moved, 3.0 * counted.get_total_flops())


def measured_rates(device: torch.device) -> Rates:
    """Measure a device for a second or so."""
    on_cuda = device.type == "cuda"
    size, side = (1 << 28, 8192) if on_cuda else (1 << 25, 1024)
    source = torch.zeros(size, device=device)
    target = torch.empty_like(source)
    copied = 2 * source.numel() * source.element_size() / _seconds(lambda: target.copy_(source), device)
    kind = torch.bfloat16 if on_cuda else torch.float32
    one, other = (torch.randn(side, side, device=device, dtype=kind) for _ in range(2))
    multiplied = 2 * side**3 / _seconds(lambda: one @ other, device)
    return Rates(copied, multiplied)


def _seconds(function: object, device: torch.device, repeats: int = 10) -> float:
    """Return the time of one call, after a warm-up."""
    for warm in (True, False):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        began = time.perf_counter()
        for _ in range(3 if warm else repeats):
            function()  # type: ignore[operator]
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    return (time.perf_counter() - began) / repeats
