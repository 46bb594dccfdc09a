"""Adam over stacked parameters, with a learning rate for each member, and the learning-rate plan of the papers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import torch
from torch import Tensor
from torch.optim.adam import adam

DECAY_STARTS = 0.4
"""Share of the epochs after which the learning rate falls: epoch 80 of 200."""
BETA1, BETA1_IN_DECAY, BETA2, EPSILON = 0.9, 0.1, 0.999, 1e-8


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
        self.beta1 = BETA1
        self._groups = [
            _Group(parameters, list(rows), rate, device)
            for rate, rows in groupby(range(len(learning_rates)), key=lambda row: learning_rates[row])
        ]

    def plan(self, factor: float, beta1: float) -> None:
        """Set what holds from now on: the factor on every learning rate, and beta1."""
        self.beta1 = beta1
        for group in self._groups:
            group.scale(factor)

    @torch.no_grad()
    def update(self, gradients: Sequence[Tensor]) -> None:
        """Take one step in place, gradients (G, ...) in the order of the parameters."""
        dense = [gradient.contiguous() for gradient in gradients]  # the fused kernel reads storages, not strides
        for group in self._groups:
            group.update(dense, self.beta1)


class _Group:
    """Neighbouring rows with one learning rate, and their moments."""

    def __init__(self, parameters: Sequence[Tensor], rows: list[int], rate: float, device: torch.device) -> None:
        self._on_cuda = device.type == "cuda"
        self._rate = rate
        self._scaled: float | Tensor = torch.tensor(rate, device=device) if self._on_cuda else rate
        self._blocks: list[tuple[int, slice | int]] = []  # which tensor, which rows of it
        for which, parameter in enumerate(parameters):
            if self._on_cuda or parameter[0].numel() % CACHE_LINE == 0:
                self._blocks.append((which, slice(rows[0], rows[-1] + 1)))
            else:  # row by row, so that a row's rounding never depends on its neighbours
                self._blocks += [(which, row) for row in rows]
        self._parameters = [parameters[which].detach()[block] for which, block in self._blocks]  # same storage
        self._first_moments = [torch.zeros_like(parameter) for parameter in self._parameters]
        self._second_moments = [torch.zeros_like(parameter) for parameter in self._parameters]
        self._steps = [torch.zeros((), device=device) for _ in self._parameters]

    def scale(self, factor: float) -> None:
        if isinstance(self._scaled, Tensor):
            self._scaled.fill_(self._rate * factor)
        else:
            self._scaled = self._rate * factor

    def update(self, gradients: Sequence[Tensor], beta1: float) -> None:
        adam(
            self._parameters,
            [gradients[which][block] for which, block in self._blocks],
            self._first_moments,
            self._second_moments,
            [],
            self._steps,
            fused=True,
            capturable=self._on_cuda,
            amsgrad=False,
            beta1=beta1,
            beta2=BETA2,
            lr=self._scaled,
            weight_decay=0.0,
            eps=EPSILON,
            maximize=False,
        )
