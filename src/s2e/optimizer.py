"""Adam over stacked parameters, with a learning rate for each member, and the learning-rate plan of the papers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import torch
from torch import Tensor

DECAY_STARTS = 0.4
"""Share of the epochs after which the learning rate falls: epoch 80 of 200."""
BETA1, BETA1_IN_DECAY = 0.9, 0.1


def learning_plan(epoch: int, epochs: int) -> tuple[float, float]:
    """Factor on the learning rate and Adam's beta1 at an epoch: constant, then linear to 0 while beta1 is 0.1."""
    start = round(DECAY_STARTS * epochs)
    if epoch < start:
        return 1.0, BETA1
    return (epochs - epoch) / (epochs - start), BETA1_IN_DECAY


CACHE_LINE = 16
"""Floats the fused CPU kernel works on at a time; what is left over at the end is rounded differently."""


class StackedAdam:
    """Adam on tensors (G, ...) whose row g has its own learning rate.

    Neighbouring rows with the same rate are updated by one fused kernel; nothing is updated across rows. On CUDA the
    rates live in device tensors, so a captured step sees every change; `beta1` is a constant of the captured step.
    """

    def __init__(self, parameters: Sequence[Tensor], learning_rates: Sequence[float], device: torch.device) -> None:
        on_cuda = device.type == "cuda"
        self._rates = [rate for rate, _ in groupby(learning_rates)]
        self._blocks: list[list[tuple[int, slice | int]]] = []  # of each group: which tensor, which rows of it
        groups = []
        for rate, rows in groupby(range(len(learning_rates)), key=lambda row: learning_rates[row]):
            together = list(rows)
            blocks: list[tuple[int, slice | int]] = []
            for which, parameter in enumerate(parameters):
                if on_cuda or parameter[0].numel() % CACHE_LINE == 0:
                    blocks.append((which, slice(together[0], together[-1] + 1)))
                else:  # row by row, so that a row's rounding never depends on its neighbours
                    blocks += [(which, row) for row in together]
            # The optimizer steps on aliases of the stacked tensors: same storage, own gradients.
            aliases = [parameters[which].detach()[block].requires_grad_() for which, block in blocks]
            groups.append({"params": aliases, "lr": torch.tensor(rate, device=device) if on_cuda else rate})
            self._blocks.append(blocks)
        self._adam = torch.optim.Adam(groups, betas=(BETA1, 0.999), eps=1e-8, fused=True, capturable=on_cuda)
        self.beta1 = BETA1

    def plan(self, factor: float, beta1: float) -> None:
        """Set what holds from now on: the factor on every learning rate, and beta1."""
        self.beta1 = beta1
        for group, rate in zip(self._adam.param_groups, self._rates, strict=True):
            group["betas"] = (beta1, group["betas"][1])
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate * factor)
            else:
                group["lr"] = rate * factor

    def update(self, gradients: Sequence[Tensor]) -> None:
        """Take one step in place, gradients (G, ...) in the order of the parameters."""
        dense = [gradient.contiguous() for gradient in gradients]  # the fused kernel reads storages, not strides
        for group, blocks in zip(self._adam.param_groups, self._blocks, strict=True):
            for alias, (which, block) in zip(group["params"], blocks, strict=True):
                alias.grad = dense[which][block]
        self._adam.step()
