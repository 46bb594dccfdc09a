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

Stacked: TypeAlias = tuple[Tensor, Tensor, Tensor]
"""A parameter and its two moments, (G, ...) each."""

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

    Args:
        parameters: tensors (G, ...), updated in place.
        learning_rates: G rates.
        device: where they live.
        may_rest: for each of the G rows whether it can be told to take no step; no row can when None.
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        learning_rates: Sequence[float],
        device: torch.device,
        may_rest: Sequence[bool] | None = None,
    ) -> None:
        self.beta1 = BETA1
        self._device = device
        self._kinds = list(zip(learning_rates, may_rest or [False] * len(learning_rates), strict=True))
        stacked = [parameter.detach() for parameter in parameters]
        self._first_moments = [torch.zeros_like(parameter) for parameter in stacked]
        self._second_moments = [torch.zeros_like(parameter) for parameter in stacked]
        moments = list(zip(stacked, self._first_moments, self._second_moments, strict=True))
        self._groups: list[_FusedGroup | _MaskedGroup] = []
        for (rate, rests), rows in groupby(range(len(self._kinds)), key=lambda row: self._kinds[row]):
            masked = rests and device.type == "cuda"
            group = _MaskedGroup if masked else _FusedGroup
            self._groups.append(group(moments, list(rows), rate, device))

    def take(self, rows: Sequence[int], parameters: Sequence[Tensor]) -> StackedAdam:
        """Return the optimizer of some of the rows, in this order; their parameters are these now."""
        rates, may_rest = zip(*(self._kinds[row] for row in rows), strict=True)
        taken = StackedAdam(parameters, rates, self._device, may_rest)
        taken.beta1 = self.beta1
        for mine, theirs in (
            (self._first_moments, taken._first_moments),
            (self._second_moments, taken._second_moments),
        ):
            for moment, copied in zip(mine, theirs, strict=True):
                copied.copy_(moment[list(rows)])
        steps = torch.cat([group.steps_taken() for group in self._groups])[list(rows)]
        for group in taken._groups:
            group.go_on_after(steps)
        return taken

    def plan(self, factor: float, beta1: float) -> None:
        """Set what holds from now on: the factor on every learning rate, and beta1."""
        self.beta1 = beta1
        for group in self._groups:
            group.scale(factor)

    @torch.no_grad()
    def update(self, gradients: Sequence[Rows], stepping: Tensor | None = None) -> None:
        """Take one step in place.

        Args:
            gradients: for each parameter those of its G rows, a tensor (G, ...) or G of them.
            stepping: (G,) bool; a row that may rest and is False here stays as it is, its moments and step count too.
        """
        for group in self._groups:
            group.update(gradients, self.beta1, stepping)


class _FusedGroup:
    """Neighbouring rows with one learning rate."""

    def __init__(self, tensors: Sequence[Stacked], rows: list[int], rate: float, device: torch.device) -> None:
        self._on_cuda = device.type == "cuda"
        self._rows = slice(rows[0], rows[-1] + 1)
        self._rate = rate
        self._scaled: float | Tensor = torch.tensor(rate, device=device) if self._on_cuda else rate
        # On a CPU row by row: its kernel rounds what does not fill a cache line differently, and a row's rounding must
        # not depend on its neighbours.
        blocks: list[slice | int] = [self._rows] if self._on_cuda else list(rows)
        self._blocks = [(which, block) for which in range(len(tensors)) for block in blocks]
        self._parameters = [tensors[which][0][block] for which, block in self._blocks]  # same storage
        self._first_moments = [tensors[which][1][block] for which, block in self._blocks]
        self._second_moments = [tensors[which][2][block] for which, block in self._blocks]
        self._steps = [torch.zeros((), device=device) for _ in self._blocks]

    def steps_taken(self) -> Tensor:
        """Steps of each row, (R,) float64."""
        size = self._rows.stop - self._rows.start
        if self._on_cuda:
            return self._steps[0].double().expand(size)
        return torch.stack(self._steps[:size]).double()

    def go_on_after(self, steps: Tensor) -> None:
        """Take over the steps of all rows, (G,); rows of one block have taken the same."""
        for own, (_, block) in zip(self._steps, self._blocks, strict=True):
            own.copy_(steps[block].max())

    def scale(self, factor: float) -> None:
        if isinstance(self._scaled, Tensor):
            self._scaled.fill_(self._rate * factor)
        else:
            self._scaled = self._rate * factor

    def update(self, gradients: Sequence[Rows], beta1: float, stepping: Tensor | None) -> None:
        chosen = list(range(len(self._blocks)))
        if stepping is not None and not self._on_cuda:
            steps = stepping.tolist()
            chosen = [place for place in chosen if steps[self._blocks[place][1]]]
            if not chosen:
                return
        own: list[Any] = [gradients[self._blocks[place][0]][self._blocks[place][1]] for place in chosen]
        adam(
            [self._parameters[place] for place in chosen],
            [_laid_out(gradient, self._parameters[place]) for gradient, place in zip(own, chosen, strict=True)],
            [self._first_moments[place] for place in chosen],
            [self._second_moments[place] for place in chosen],
            [],
            [self._steps[place] for place in chosen],
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


def _laid_out(gradient: Tensor, parameter: Tensor) -> Tensor:
    """Return a gradient in the layout of its parameter: the fused kernel reads storages, not strides."""
    if gradient.stride() == parameter.stride():
        return gradient
    return torch.empty_like(parameter).copy_(gradient)


class _MaskedGroup:
    """Neighbouring rows with one learning rate, each of which may rest: its step count is its own.

    The fused kernel has one step count for a tensor and cannot leave rows out, so this is Adam in plain operations,
    with no choice made on the host: it can be captured.
    """

    def __init__(self, tensors: Sequence[Stacked], rows: list[int], rate: float, device: torch.device) -> None:
        self._rows = slice(rows[0], rows[-1] + 1)
        self._rate = rate
        self._scaled = torch.tensor(rate, device=device)
        self._parameters = [stacked[0][self._rows] for stacked in tensors]  # same storage
        self._first_moments = [stacked[1][self._rows] for stacked in tensors]
        self._second_moments = [stacked[2][self._rows] for stacked in tensors]
        self._steps = torch.zeros(len(rows), dtype=torch.float64, device=device)

    def steps_taken(self) -> Tensor:
        """Steps of each row, (R,) float64."""
        return self._steps

    def go_on_after(self, steps: Tensor) -> None:
        """Take over the steps of all rows, (G,)."""
        self._steps.copy_(steps[self._rows])

    def scale(self, factor: float) -> None:
        self._scaled.fill_(self._rate * factor)

    def update(self, gradients: Sequence[Rows], beta1: float, stepping: Tensor | None) -> None:
        steps = torch.ones_like(self._steps, dtype=torch.bool) if stepping is None else stepping[self._rows]
        self._steps += steps
        size = (self._scaled / (1 - beta1**self._steps)).float()  # of a row's step
        root = (1 - BETA2**self._steps).sqrt().float()
        for which, parameter in enumerate(self._parameters):
            given = gradients[which]
            gradient = (given if isinstance(given, Tensor) else torch.stack(given))[self._rows]
            first, second = self._first_moments[which], self._second_moments[which]
            across = (-1, *[1] * (parameter.ndim - 1))
            takes = steps.view(across)
            first.copy_(torch.where(takes, torch.lerp(gradient, first, beta1), first))
            second.copy_(torch.where(takes, torch.lerp(gradient.square(), second, BETA2), second))
            change = size.view(across) * first / (second.sqrt() / root.view(across) + EPSILON)
            parameter.sub_(torch.where(takes, change, 0.0))
