"""Lower bounds on the time of a training step on a device, from its arithmetic and its memory traffic.

Two rates of the device are measured: the bandwidth of a large copy, and the rate of a large matrix product. A step of
one network on a batch takes at least the longer of

- bytes / bandwidth, where every weight is read for the forward pass, its gradient is written, and the optimizer reads
  weight, gradient and its own state and writes weight and state: nine times four bytes a weight for the two moments of
  Adam, seven for the momentum of SGD; and every activation is written and read once, and so is its gradient: four times
  its bytes;
- operations / rate, where the backward pass takes twice the operations of the forward pass.

Losses, selection and records, which are small, and the launch times of kernels are not counted.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from s2e.networks import Factory

PASSES_PER_WEIGHT, PASSES_PER_STATE, PASSES_PER_ACTIVATION = 5, 2, 4


@dataclass(frozen=True)
class Rates:
    """Rates of a device.

    Attributes:
        bandwidth: bytes a second, read and written together, of a large copy.
        multiplication: floating-point operations a second of a large product in bfloat16 (float32 on a CPU).
    """

    bandwidth: float
    multiplication: float


@dataclass(frozen=True)
class Work:
    """Work of one network in one step.

    Attributes:
        moved: bytes read and written.
        operations: floating-point operations.
    """

    moved: float
    operations: float

    def seconds(self, rates: Rates) -> float:
        """Return the lower bound on the time."""
        return max(self.moved / rates.bandwidth, self.operations / rates.multiplication)


def work(network: Factory, batch: Tensor, activation_bytes: int, *, state_tensors: int = 2) -> Work:
    """Return the work of a training step of one network on a batch (B, ...).

    Args:
        network: factory of the network.
        batch: on the CPU.
        activation_bytes: bytes of one number in an activation: 4, or 2 for half precision.
        state_tensors: numbers that the optimizer keeps for a weight: two by Adam.
    """
    module = network()
    weights = sum(parameter.numel() for parameter in module.parameters())
    activations = 0

    def count(layer: torch.nn.Module, inputs: object, output: Tensor) -> None:  # noqa: ARG001
        nonlocal activations
        activations += output.numel()

    for layer in module.modules():
        if not list(layer.children()):
            layer.register_forward_hook(count)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(batch)
    passes = PASSES_PER_WEIGHT + PASSES_PER_STATE * state_tensors
    moved = 4 * passes * weights + activation_bytes * PASSES_PER_ACTIVATION * activations
    return Work(moved, 3.0 * counter.get_total_flops())


def measured_rates(device: torch.device) -> Rates:
    """Measure a device for about a second."""
    on_cuda = device.type == "cuda"
    size, side = (1 << 28, 8192) if on_cuda else (1 << 25, 1024)
    source = torch.zeros(size, device=device)
    target = torch.empty_like(source)
    copied = 2 * source.numel() * source.element_size() / _seconds(lambda: target.copy_(source), device)
    dtype = torch.bfloat16 if on_cuda else torch.float32
    one, other = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
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
