"""Adam over stacked parameters, with a learning rate for each member, and the learning-rate plan of the papers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.optim.adam import adam

DECAY_STARTS = 0.4
"""Share of the epochs after which the learning rate falls: epoch 80 of 200."""
Rows: TypeAlias = Tensor | tuple[Tensor, ...]
"""Something for each of G rows: a tensor (G, ...), or G tensors."""

BETA1, BETA1_IN_DECAY, BETA2, EPSILON = 0.9, 0.1, 0.999, 1e-8


def learning_plan(epoch: int, epochs: int) -> tuple[float, float]:
    """Factor on the learning rate and Adam's beta1 at an epoch: constant, then linear to 0 while beta1 is 0.1."""
    start = round(DECAY_STARTS * epochs)
    if epoch < start:
        return 1.0, BETA1
    return (epochs - epoch) / (epochs - start), BETA1_IN_DECAY


class StackedAdam:
    """Adam on tensors (G, ...) whose row g has its own learning rate.

    Neighbouring rows with the same rate are updated by one fused call; nothing is updated across rows. On CUDA the
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
    def update(self, gradients: Sequence[Rows]) -> None:
        """Take one step in place; for each parameter the gradients of its G rows, a tensor (G, ...) or G of them."""
        for group in self._groups:
            group.update(gradients, self.beta1)


class _Group:
    """Neighbouring rows with one learning rate, and their moments."""

    def __init__(self, parameters: Sequence[Tensor], rows: list[int], rate: float, device: torch.device) -> None:
        self._on_cuda = device.type == "cuda"
        self._rate = rate
        self._scaled: float | Tensor = torch.tensor(rate, device=device) if self._on_cuda else rate
        # On a CPU row by row: its kernel rounds what does not fill a cache line differently, and a row's rounding must
        # not depend on its neighbours.
        blocks: list[slice | int] = [slice(rows[0], rows[-1] + 1)] if self._on_cuda else list(rows)
        self._blocks = [(which, block) for which in range(len(parameters)) for block in blocks]
        self._parameters = [parameters[which].detach()[block] for which, block in self._blocks]  # same storage
        self._first_moments = [torch.zeros_like(parameter) for parameter in self._parameters]
        self._second_moments = [torch.zeros_like(parameter) for parameter in self._parameters]
        self._steps = [torch.zeros((), device=device) for _ in self._parameters]

    def scale(self, factor: float) -> None:
        if isinstance(self._scaled, Tensor):
            self._scaled.fill_(self._rate * factor)
        else:
            self._scaled = self._rate * factor

    def update(self, gradients: Sequence[Rows], beta1: float) -> None:
        chosen: list[Any] = [gradients[which][block] for which, block in self._blocks]
        dense = [gradient.contiguous() for gradient in chosen]  # the fused kernel reads storages, not strides
        adam(
            self._parameters,
            dense,
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
