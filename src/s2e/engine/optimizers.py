"""Adam over stacked parameters, with a learning rate for each member, and the learning-rate plan of the papers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import TypeAlias

import torch
from torch import Tensor
from torch.optim.adam import adam

from s2e.engine.compiled.materialise import written_down

DECAY_STARTS = 0.4
"""Share of the epochs after which the learning rate falls: epoch 80 of 200."""
Rows: TypeAlias = Tensor | tuple[Tensor, ...]
"""Something for each of G rows: a tensor (G, ...), or G tensors."""

Stacked: TypeAlias = tuple[Tensor, Tensor, Tensor]
"""A parameter and its two moments, (G, ...) each."""

BETA1, BETA1_IN_DECAY, BETA2, EPSILON = 0.9, 0.1, 0.999, 1e-8
LOG_BETA2 = math.log(BETA2)


def learning_plan(epoch: int, epochs: int) -> tuple[float, float]:
    """Factor on the learning rate and Adam's beta1 at an epoch: constant, then linear to 0 while beta1 is 0.1."""
    start = round(DECAY_STARTS * epochs)
    if epoch < start:
        return 1.0, BETA1
    return (epochs - epoch) / (epochs - start), BETA1_IN_DECAY


class StackedAdam:
    """Adam on tensors (G, ...) whose row g has its own learning rate, and its own count of steps.

    On a CPU rows are updated one by one, by torch's fused kernel. Elsewhere all are updated at once by plain operations
    on device tensors, without a choice made on the host: a compiler makes one pass over memory of them, and what
    changes between steps changes in place, where a captured step sees it.

    Args:
        parameters: tensors (G, ...), updated in place.
        learning_rates: G rates.
        device: where they live.
        at_once: update all rows at once; None chooses by the device.
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        learning_rates: Sequence[float],
        device: torch.device,
        *,
        at_once: bool | None = None,
    ) -> None:
        self._device = device
        self._at_once = device.type != "cpu" if at_once is None else at_once
        self._rates = tuple(learning_rates)
        self._factor, self._beta1 = 1.0, BETA1
        stacked = [parameter.detach() for parameter in parameters]
        self._first_moments = [torch.zeros_like(parameter) for parameter in stacked]
        self._second_moments = [torch.zeros_like(parameter) for parameter in stacked]
        moments = list(zip(stacked, self._first_moments, self._second_moments, strict=True))
        self._groups: list[_AllRows] | list[_EqualRows]
        if self._at_once:
            self._groups = [_AllRows(moments, self._rates, device)]
        else:
            equal = groupby(range(len(self._rates)), key=lambda row: self._rates[row])
            self._groups = [_EqualRows(moments, list(rows), rate) for rate, rows in equal]

    def take(self, rows: Sequence[int], parameters: Sequence[Tensor]) -> StackedAdam:
        """Return the optimizer of some of the rows, in this order; their parameters are these now."""
        chosen = list(rows)
        taken = StackedAdam(parameters, [self._rates[row] for row in chosen], self._device, at_once=self._at_once)
        for mine, theirs in (
            (self._first_moments, taken._first_moments),
            (self._second_moments, taken._second_moments),
        ):
            for moment, copied in zip(mine, theirs, strict=True):
                copied.copy_(moment[chosen])
        steps = torch.cat([group.steps_taken() for group in self._groups])[chosen]
        for group in taken._groups:
            group.go_on_after(steps)
        taken.plan(self._factor, self._beta1)
        return taken

    def restart(self) -> None:
        """Forget all steps, in the same tensors."""
        for moment in (*self._first_moments, *self._second_moments):
            moment.zero_()
        for group in self._groups:
            group.go_on_after(torch.zeros(len(self._rates), dtype=torch.float64))

    def plan(self, factor: float, beta1: float) -> None:
        """Set what holds from now on: the factor on every learning rate, and beta1."""
        self._factor, self._beta1 = factor, beta1
        for group in self._groups:
            group.plan(factor, beta1)

    @torch.no_grad()
    def update(self, gradients: Sequence[Rows], stepping: Tensor | None = None) -> None:
        """Take one step in place.

        Args:
            gradients: for each parameter those of its G rows, a tensor (G, ...) or G of them.
            stepping: (G,) bool; a row that is False here stays as it is, its moments and step count too.
        """
        for group in self._groups:
            group.update(gradients, stepping)


class _EqualRows:
    """Neighbouring rows with one learning rate, on a CPU.

    Row by row: the fused kernel rounds what does not fill a cache line differently, and a row's rounding must not
    depend on its neighbours.
    """

    def __init__(self, tensors: Sequence[Stacked], rows: Sequence[int], rate: float) -> None:
        self._rows, self._rate = rows, rate
        self._scaled, self._beta1 = rate, BETA1
        self._places = [(which, row) for which in range(len(tensors)) for row in rows]
        self._parameters = [tensors[which][0][row] for which, row in self._places]  # same storage
        self._first_moments = [tensors[which][1][row] for which, row in self._places]
        self._second_moments = [tensors[which][2][row] for which, row in self._places]
        self._steps = [torch.zeros(()) for _ in self._places]

    def steps_taken(self) -> Tensor:
        """Steps of each row, (R,) float64."""
        return torch.stack(self._steps[: len(self._rows)]).double()

    def go_on_after(self, steps: Tensor) -> None:
        """Take over the steps of all rows, (G,)."""
        for own, (_, row) in zip(self._steps, self._places, strict=True):
            own.copy_(steps[row])

    def plan(self, factor: float, beta1: float) -> None:
        self._scaled, self._beta1 = factor * self._rate, beta1

    def update(self, gradients: Sequence[Rows], stepping: Tensor | None) -> None:
        chosen = list(range(len(self._places)))
        if stepping is not None:
            steps = stepping.tolist()
            chosen = [place for place in chosen if steps[self._places[place][1]]]
            if not chosen:
                return
        own = [gradients[which][row] for which, row in (self._places[place] for place in chosen)]
        adam(
            [self._parameters[place] for place in chosen],
            [_laid_out(gradient, self._parameters[place]) for gradient, place in zip(own, chosen, strict=True)],
            [self._first_moments[place] for place in chosen],
            [self._second_moments[place] for place in chosen],
            [],
            [self._steps[place] for place in chosen],
            fused=True,
            amsgrad=False,
            beta1=self._beta1,
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


class _AllRows:
    """All rows at once, each with its own rate and count of steps, in plain operations.

    What Adam corrects for the count of steps is worked out once for a row, and not for every weight.
    """

    def __init__(self, tensors: Sequence[Stacked], rates: Sequence[float], device: torch.device) -> None:
        self._tensors = tensors
        self._rates = torch.tensor(rates, dtype=torch.float64, device=device)
        self._scaled = torch.zeros(len(rates), device=device)
        self._log_beta1 = torch.zeros((), dtype=torch.float64, device=device)
        self._steps = torch.zeros(len(rates), dtype=torch.float64, device=device)
        self._share = torch.zeros((), device=device)  # of the gradient in the first moment, 1 - β₁
        self.plan(1.0, BETA1)

    def steps_taken(self) -> Tensor:
        """Steps of each row, (G,) float64."""
        return self._steps

    def go_on_after(self, steps: Tensor) -> None:
        """Take over the steps of all rows, (G,)."""
        self._steps.copy_(steps)

    def plan(self, factor: float, beta1: float) -> None:
        self._scaled.copy_(factor * self._rates)
        self._log_beta1.fill_(math.log(beta1))
        self._share.fill_(1 - beta1)

    def update(self, gradients: Sequence[Rows], stepping: Tensor | None) -> None:
        coming = self._steps + 1
        size = written_down(self._scaled / _correction(self._log_beta1, coming))  # α / (1 - β₁ᵗ), (G,)
        root = written_down(_correction(LOG_BETA2, coming).sqrt())  # √(1 - β₂ᵗ), (G,)
        for (parameter, first, second), given in zip(self._tensors, gradients, strict=True):
            gradient = given if isinstance(given, Tensor) else torch.stack(given)
            across = (-1, *[1] * (parameter.ndim - 1))
            new_first = first + self._share * (gradient - first)
            new_second = second + (1 - BETA2) * (gradient * gradient - second)
            length = new_second.sqrt() / root.view(across) + EPSILON
            new = parameter - size.view(across) * new_first / length
            if stepping is not None:
                takes = stepping.view(across)
                new_first, new_second = torch.where(takes, new_first, first), torch.where(takes, new_second, second)
                new = torch.where(takes, new, parameter)
            first.copy_(new_first)
            second.copy_(new_second)
            parameter.copy_(new)
        self._steps += 1.0 if stepping is None else stepping


def _correction(log_beta: Tensor | float, steps: Tensor) -> Tensor:
    """The share of a moment that as many steps have filled, 1 - βᵗ; a power in float64 is what a GPU is slow at."""
    return -torch.expm1(log_beta * steps).float()
