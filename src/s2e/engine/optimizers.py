"""Adam over stacked parameters, with a learning rate for each network, and the learning-rate plan of the papers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import TypeAlias

import torch
from torch import Tensor

from s2e.engine.compiled.materialise import materialised
from s2e.engine.compiled.torch_internals import fused_adam_step

DECAY_STARTS = 0.4
"""Share of the epochs after which the learning rate falls: epoch 80 of 200."""

Rows: TypeAlias = Tensor | tuple[Tensor, ...]
"""Values of G rows: one tensor (G, ...), or G tensors (...)."""

Stacked: TypeAlias = tuple[Tensor, Tensor, Tensor]
"""A parameter and its first and second moment, (G, ...) each."""

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
LOG_BETA1, LOG_BETA2 = math.log(BETA1), math.log(BETA2)


def learning_rate_factor(epoch: int, epochs: int) -> float:
    """Return the factor on the learning rate at an epoch: 1, then falling linearly to 0."""
    start = round(DECAY_STARTS * epochs)
    return 1.0 if epoch < start else (epochs - epoch) / (epochs - start)


class StackedAdam:
    """Adam on tensors (G, ...) where each row has its own learning rate and step count.

    On a CPU, rows are updated one by one with torch's fused kernel. On other devices, all rows are updated together by
    plain operations on device tensors without branches on the host: the compiler fuses them into one pass over memory,
    and values that change between steps are written in place, so a captured step reads the current ones.

    Args:
        parameters: tensors (G, ...), updated in place.
        learning_rates: G rates.
        device: device of the parameters.
        vectorize: update all rows together; None decides by the device.
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        learning_rates: Sequence[float],
        device: torch.device,
        *,
        vectorize: bool | None = None,
    ) -> None:
        self._device = device
        self._vectorized = device.type != "cpu" if vectorize is None else vectorize
        self._rates = tuple(learning_rates)
        self._factor = 1.0
        stacked = [parameter.detach() for parameter in parameters]
        self._first_moments = [torch.zeros_like(parameter) for parameter in stacked]
        self._second_moments = [torch.zeros_like(parameter) for parameter in stacked]
        tensors = list(zip(stacked, self._first_moments, self._second_moments, strict=True))
        self._groups: list[_VectorizedRows] | list[_SingleRows]
        if self._vectorized:
            self._groups = [_VectorizedRows(tensors, self._rates, device)]
        else:
            equal = groupby(range(len(self._rates)), key=lambda row: self._rates[row])
            self._groups = [_SingleRows(tensors, list(rows), rate) for rate, rows in equal]

    def take(self, rows: Sequence[int], parameters: Sequence[Tensor]) -> StackedAdam:
        """Return an optimizer that continues some of the rows, in the given order, on new parameters."""
        rows = list(rows)
        taken = StackedAdam(parameters, [self._rates[row] for row in rows], self._device, vectorize=self._vectorized)
        for moments, new_moments in (
            (self._first_moments, taken._first_moments),
            (self._second_moments, taken._second_moments),
        ):
            for moment, new_moment in zip(moments, new_moments, strict=True):
                new_moment.copy_(moment[rows])
        steps = torch.cat([group.step_counts() for group in self._groups])[rows]
        for group in taken._groups:
            group.set_step_counts(steps)
        taken.scale_learning_rates(self._factor)
        return taken

    def reset(self) -> None:
        """Clear moments and step counts in place."""
        for moment in (*self._first_moments, *self._second_moments):
            moment.zero_()
        for group in self._groups:
            group.set_step_counts(torch.zeros(len(self._rates), dtype=torch.float64))

    def scale_learning_rates(self, factor: float) -> None:
        """Set the factor on every learning rate, for all later steps."""
        self._factor = factor
        for group in self._groups:
            group.scale_learning_rates(factor)

    @torch.no_grad()
    def update(self, gradients: Sequence[Rows], active: Tensor | None = None) -> None:
        """Take one step in place.

        Args:
            gradients: for each parameter the gradients of its G rows, one tensor (G, ...) or G tensors.
            active: (G,) bool; rows that are False keep their weights, moments and step counts. None for all rows.
        """
        for group in self._groups:
            group.update(gradients, active)


class _SingleRows:
    """Adjacent rows with the same learning rate on a CPU, updated one by one.

    The fused kernel rounds values that do not fill a cache line differently. The rounding of a row must not depend on
    other rows.
    """

    def __init__(self, tensors: Sequence[Stacked], rows: Sequence[int], rate: float) -> None:
        self._rows, self._rate = rows, rate
        self._scaled_rate = rate
        self._slots = [(parameter, row) for parameter in range(len(tensors)) for row in rows]
        self._parameters = [tensors[parameter][0][row] for parameter, row in self._slots]  # views
        self._first_moments = [tensors[parameter][1][row] for parameter, row in self._slots]
        self._second_moments = [tensors[parameter][2][row] for parameter, row in self._slots]
        self._steps = [torch.zeros(()) for _ in self._slots]

    def step_counts(self) -> Tensor:
        """Return the steps of each row of this group, (R,) float64."""
        return torch.stack(self._steps[: len(self._rows)]).double()

    def set_step_counts(self, steps: Tensor) -> None:
        """Set the steps from those of all rows, (G,)."""
        for step, (_, row) in zip(self._steps, self._slots, strict=True):
            step.copy_(steps[row])

    def scale_learning_rates(self, factor: float) -> None:
        self._scaled_rate = factor * self._rate

    def update(self, gradients: Sequence[Rows], active: Tensor | None) -> None:
        slots = list(range(len(self._slots)))
        if active is not None:
            is_active = active.tolist()
            slots = [slot for slot in slots if is_active[self._slots[slot][1]]]
            if not slots:
                return
        own = [gradients[parameter][row] for parameter, row in (self._slots[slot] for slot in slots)]
        fused_adam_step(
            [self._parameters[slot] for slot in slots],
            [_with_strides_of(self._parameters[slot], gradient) for gradient, slot in zip(own, slots, strict=True)],
            [self._first_moments[slot] for slot in slots],
            [self._second_moments[slot] for slot in slots],
            [self._steps[slot] for slot in slots],
            learning_rate=self._scaled_rate,
            beta1=BETA1,
            beta2=BETA2,
            epsilon=EPSILON,
        )


def _with_strides_of(parameter: Tensor, gradient: Tensor) -> Tensor:
    """Return a gradient with the strides of its parameter: the fused kernel reads storages and ignores strides."""
    if gradient.stride() == parameter.stride():
        return gradient
    return torch.empty_like(parameter).copy_(gradient)


class _VectorizedRows:
    """All rows together, each with its own rate and step count, in plain tensor operations.

    The bias correction is computed once per row instead of once per weight.
    """

    def __init__(self, tensors: Sequence[Stacked], rates: Sequence[float], device: torch.device) -> None:
        self._tensors = tensors
        self._rates = torch.tensor(rates, dtype=torch.float64, device=device)
        self._scaled_rates = torch.zeros(len(rates), device=device)
        self._steps = torch.zeros(len(rates), dtype=torch.float64, device=device)
        self.scale_learning_rates(1.0)

    def step_counts(self) -> Tensor:
        """Return the steps of each row, (G,) float64."""
        return self._steps

    def set_step_counts(self, steps: Tensor) -> None:
        """Set the steps of all rows, (G,)."""
        self._steps.copy_(steps)

    def scale_learning_rates(self, factor: float) -> None:
        self._scaled_rates.copy_(factor * self._rates)

    def update(self, gradients: Sequence[Rows], active: Tensor | None) -> None:
        steps = self._steps + 1
        size = materialised(self._scaled_rates / _bias_correction(LOG_BETA1, steps))  # α / (1 - β₁ᵗ), (G,)
        root = materialised(_bias_correction(LOG_BETA2, steps).sqrt())  # √(1 - β₂ᵗ), (G,)
        for (parameter, first, second), rows in zip(self._tensors, gradients, strict=True):
            gradient = rows if isinstance(rows, Tensor) else torch.stack(rows)
            per_row = (-1, *[1] * (parameter.ndim - 1))
            new_first = first + (1 - BETA1) * (gradient - first)
            new_second = second + (1 - BETA2) * (gradient * gradient - second)
            denominator = new_second.sqrt() / root.view(per_row) + EPSILON
            new = parameter - size.view(per_row) * new_first / denominator
            if active is not None:
                is_active = active.view(per_row)
                new_first = torch.where(is_active, new_first, first)
                new_second = torch.where(is_active, new_second, second)
                new = torch.where(is_active, new, parameter)
            first.copy_(new_first)
            second.copy_(new_second)
            parameter.copy_(new)
        self._steps += 1.0 if active is None else active


def _bias_correction(log_beta: float, steps: Tensor) -> Tensor:
    """Return 1 - βᵗ for step counts t (G,), as -expm1(t ln β): a float64 power is slow on a GPU."""
    return -torch.expm1(log_beta * steps).float()
