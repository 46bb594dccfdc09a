"""Optimizers in which the update of a row depends on nothing but that row: all of this package.

Letters: G rows, one for each network.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields
from itertools import groupby
from typing import ClassVar, TypeAlias

import torch
from torch import Tensor

from s2e.engine.aligned_rows import ALIGNMENT, with_padding, zeros_like_rows
from s2e.engine.large_products import all_allowed_threads
from s2e.engine.optimizers.interface import Optimizer, Rows, StackedOptimizer
from s2e.errors import InvalidInput

PerRow: TypeAlias = float | Tensor
"""A value that all rows share, or one for each row, (G,)."""

StackedUpdate: TypeAlias = Callable[[Tensor, Tensor, Sequence[Tensor]], tuple[Sequence[Tensor], Tensor]]
"""From a parameter, its gradient and its state, (G, ...) each, to the new state and the new parameter."""


LARGE_BLOCKS = 400_000
"""Numbers from which several threads update blocks faster: torch's kernels give each thread whole cache lines."""


@dataclass(frozen=True)
class RowBlocks:
    """Blocks of rows, each with rows of one parameter that have taken the same number of steps.

    Attributes:
        parameters: weights, one tensor for each block.
        gradients: their gradients, with the same strides.
        states: one list for each state tensor.
        steps: 0-d step counts, this step included; 0 unless the optimizer `counts_steps`.
    """

    parameters: list[Tensor]
    gradients: list[Tensor]
    states: list[list[Tensor]]
    steps: list[Tensor]


@dataclass(frozen=True)
class RowOptimizer(ABC):
    """The settings of an optimizer, and its update in two forms; its fields are hyperparameters."""

    counts_steps: ClassVar[bool] = False
    """Whether the update depends on the number of steps that a row has taken."""

    @property
    @abstractmethod
    def state_tensors(self) -> int:
        """Tensors of the size of a parameter that are kept for it."""

    @abstractmethod
    def update_blocks(self, blocks: RowBlocks, learning_rate: float) -> None:
        """Update blocks in place, by a kernel of torch that works on each number by itself."""

    @classmethod
    @abstractmethod
    def stacked_update(
        cls, hyperparameters: Mapping[str, PerRow], learning_rates: Tensor, steps: Tensor
    ) -> StackedUpdate:
        """Return the update of stacked parameters, in plain tensor operations.

        Args:
            hyperparameters: the fields by name; a number where all rows have the same.
            learning_rates: (G,)
            steps: (G,) float64 steps of each row, this one included; 0 unless `counts_steps`.
        """

    def build(
        self,
        parameters: Sequence[Tensor],
        learning_rates: Sequence[float],
        device: torch.device,
        *,
        vectorize: bool | None = None,
    ) -> StackedRows:
        """Return the optimizer of G networks; `vectorize` as in `StackedRows`."""
        return StackedRows([self] * len(learning_rates), parameters, learning_rates, device, vectorize=vectorize)


def check_optimizers(optimizers: Sequence[Optimizer]) -> None:
    """Raise `InvalidInput` if networks with these optimizers cannot be updated together."""
    first = optimizers[0]
    for other in optimizers[1:]:
        if other != first and not (isinstance(other, RowOptimizer) and type(other) is type(first)):
            raise InvalidInput(
                f"`optimizer` must be of one type for all members that are trained together, but got "
                f"{type(first).__name__} and {type(other).__name__}."
            )


def build_together(
    optimizers: Sequence[Optimizer],
    parameters: Sequence[Tensor],
    learning_rates: Sequence[float],
    device: torch.device,
) -> StackedOptimizer:
    """Return the optimizer of G networks from that of each; hyperparameters may differ, types may not."""
    rows = [optimizer for optimizer in optimizers if isinstance(optimizer, RowOptimizer)]
    if len(rows) == len(optimizers):
        return StackedRows(rows, parameters, learning_rates, device)
    return optimizers[0].build(parameters, learning_rates, device)


class StackedRows:
    """Updates tensors (G, ...) where each row has its own learning rate, hyperparameters and step count.

    On a CPU, rows are updated with kernels of torch. On other devices, all rows are updated together by
    plain operations on device tensors without branches on the host: the compiler fuses them into one pass over memory,
    and values that change between steps are written in place, so a captured step reads the current ones.

    Args:
        optimizers: G, all of one type.
        parameters: tensors (G, ...), updated in place.
        learning_rates: G rates.
        device: device of the parameters.
        vectorize: update all rows together; None decides by the device.
    """

    def __init__(
        self,
        optimizers: Sequence[RowOptimizer],
        parameters: Sequence[Tensor],
        learning_rates: Sequence[float],
        device: torch.device,
        *,
        vectorize: bool | None = None,
    ) -> None:
        self._optimizers, self._rates, self._device = tuple(optimizers), tuple(learning_rates), device
        self._vectorized = device.type != "cpu" if vectorize is None else vectorize
        self._factor = 1.0
        stacked = [parameter.detach() for parameter in parameters]
        count = max(optimizer.state_tensors for optimizer in self._optimizers)
        self._states = [[zeros_like_rows(parameter) for _ in range(count)] for parameter in stacked]
        self._groups: list[_VectorizedRows] | list[_EqualRows]
        if self._vectorized:
            self._groups = [_VectorizedRows(self._optimizers, stacked, self._states, self._rates, device)]
        else:
            settings = list(zip(self._optimizers, self._rates, strict=True))
            equal = groupby(range(len(settings)), key=settings.__getitem__)
            self._groups = [_EqualRows(stacked, self._states, list(rows), *setting) for setting, rows in equal]

    def take(self, rows: Sequence[int], parameters: Sequence[Tensor]) -> StackedRows:
        """Return an optimizer that continues some of the rows, in the given order, on new parameters."""
        rows = list(rows)
        optimizers, rates = [self._optimizers[row] for row in rows], [self._rates[row] for row in rows]
        taken = StackedRows(optimizers, parameters, rates, self._device, vectorize=self._vectorized)
        for states, new_states in zip(self._states, taken._states, strict=True):
            # Fewer where the rows that are left need less, such as no momentum.
            for state, new_state in zip(states, new_states, strict=False):
                new_state.copy_(state[rows])
        steps = torch.cat([group.step_counts() for group in self._groups])[rows]
        for group in taken._groups:
            group.set_step_counts(steps)
        taken.scale_learning_rates(self._factor)
        return taken

    def reset(self) -> None:
        """Clear state and step counts in place."""
        for states in self._states:
            for state in states:
                state.zero_()
        for group in self._groups:
            group.set_step_counts(torch.zeros(len(self._rates), dtype=torch.float64))

    def state(self) -> dict[str, Tensor]:
        """Return copies of the state tensors and step counts of all rows, by name, on the CPU."""
        steps = torch.cat([group.step_counts() for group in self._groups])
        return {name: tensor.to("cpu", copy=True) for name, tensor in {**self._named(), "steps": steps}.items()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continue from the state tensors and step counts that `state` returned, in place."""
        for name, tensor in self._named().items():
            tensor.copy_(state[name])
        for group in self._groups:
            group.set_step_counts(state["steps"])

    def _named(self) -> dict[str, Tensor]:
        return {
            f"{parameter}.{which}": state
            for parameter, states in enumerate(self._states)
            for which, state in enumerate(states)
        }

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
            active: (G,) bool; rows that are False keep their weights, state and step counts. None for all rows.
        """
        for group in self._groups:
            group.update(gradients, active)


class _EqualRows:
    """Adjacent rows with the same learning rate and hyperparameters on a CPU.

    The kernels round numbers that do not fill a vector differently, and the rounding of a row must not depend on other
    rows. So all rows of a parameter are updated as one block if each of them fills its vectors, otherwise one by one.
    They are also updated one by one where some take fewer steps than others.
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        states: Sequence[Sequence[Tensor]],
        rows: Sequence[int],
        optimizer: RowOptimizer,
        rate: float,
    ) -> None:
        self._rows, self._optimizer, self._rate = slice(rows[0], rows[-1] + 1), optimizer, rate
        self._scaled_rate = rate
        self._parameters = [with_padding(parameter)[self._rows] for parameter in parameters]  # (R, size) each
        self._states = [
            [with_padding(of_parameter[which])[self._rows] for of_parameter in states]
            for which in range(optimizer.state_tensors)
        ]
        self._padded = [
            None if parameter[0].numel() == block.shape[1] else torch.zeros_like(block)
            for parameter, block in zip(parameters, self._parameters, strict=True)
        ]  # gradients of rows with padding
        self._are_all = len(rows) == len(parameters[0])
        self._aligned = all(parameter.shape[1] % ALIGNMENT == 0 for parameter in self._parameters)
        self._large = sum(parameter.numel() for parameter in self._parameters) >= LARGE_BLOCKS
        self._parameter_rows = [parameter.unbind() for parameter in self._parameters]
        self._state_rows = [[of_parameter.unbind() for of_parameter in which] for which in self._states]
        self._steps = torch.zeros(len(rows))
        self._steps_of_blocks = [self._steps[0]] * len(self._parameters)  # while all rows are in step
        self._in_step = True  # whether all rows have taken the same number of steps

    def step_counts(self) -> Tensor:
        """Return the steps of each row of this group, (R,) float64."""
        return self._steps.double()

    def set_step_counts(self, steps: Tensor) -> None:
        """Set the steps from those of all rows, (G,)."""
        self._steps.copy_(steps[self._rows])
        self._in_step = bool((self._steps == self._steps[0]).all())

    def scale_learning_rates(self, factor: float) -> None:
        self._scaled_rate = factor * self._rate

    def update(self, gradients: Sequence[Rows], active: Tensor | None) -> None:
        own = None if active is None else active[self._rows]
        if self._optimizer.counts_steps:
            self._steps += 1 if own is None else own
        self._in_step &= own is None
        if self._in_step and self._aligned and all(isinstance(gradient, Tensor) for gradient in gradients):
            with all_allowed_threads() if self._large else nullcontext():
                self._optimizer.update_blocks(self._all_rows(gradients), self._scaled_rate)
            return
        rows = range(len(self._steps)) if own is None else own.nonzero().flatten().tolist()
        if rows:
            self._optimizer.update_blocks(self._single_rows(gradients, rows), self._scaled_rate)

    def _all_rows(self, gradients: Sequence[Rows]) -> RowBlocks:
        """Return one block for each parameter."""
        own = []
        for padded, gradient in zip(self._padded, gradients, strict=True):
            of_rows = gradient if self._are_all else gradient[self._rows]
            own.append(_with_padding_of(padded, of_rows.flatten(1)))  # type: ignore[union-attr]
        return RowBlocks(self._parameters, own, self._states, self._steps_of_blocks)

    def _single_rows(self, gradients: Sequence[Rows], rows: Sequence[int]) -> RowBlocks:
        """Return one block for each parameter of each of some rows."""
        steps, slots = self._steps.unbind(), [(p, row) for p in range(len(self._parameters)) for row in rows]
        own = []
        for p, row in slots:
            padded = self._padded[p]
            gradient = gradients[p][self._rows.start + row].reshape(-1)
            own.append(_with_padding_of(None if padded is None else padded[row], gradient))
        return RowBlocks(
            [self._parameter_rows[p][row] for p, row in slots],
            own,
            [[of_parameter[p][row] for p, row in slots] for of_parameter in self._state_rows],
            [steps[row] for _, row in slots],
        )


def _with_padding_of(padded: Tensor | None, gradient: Tensor) -> Tensor:
    """Return gradients (..., n), written to a buffer (..., size) if there is one."""
    if padded is None:
        return gradient.contiguous()
    padded[..., : gradient.shape[-1]] = gradient
    return padded


class _VectorizedRows:
    """All rows together, each with its own rate, hyperparameters and step count, in plain tensor operations."""

    def __init__(
        self,
        optimizers: Sequence[RowOptimizer],
        parameters: Sequence[Tensor],
        states: Sequence[Sequence[Tensor]],
        rates: Sequence[float],
        device: torch.device,
    ) -> None:
        self._kind = type(optimizers[0])
        self._hyperparameters = _stacked_hyperparameters(optimizers, device)
        self._parameters, self._states = parameters, states
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
        counts = self._kind.counts_steps
        steps = self._steps + 1 if counts else self._steps
        updated = self._kind.stacked_update(self._hyperparameters, self._scaled_rates, steps)
        for parameter, states, rows in zip(self._parameters, self._states, gradients, strict=True):
            gradient = rows if isinstance(rows, Tensor) else torch.stack(rows)
            new_states, new_parameter = updated(parameter, gradient, states)
            new, old = [*new_states, new_parameter], [*states, parameter]
            if active is not None:
                is_active = active.view(-1, *[1] * (parameter.ndim - 1))
                new = [torch.where(is_active, one, other) for one, other in zip(new, old, strict=True)]
            for one, other in zip(new, old, strict=True):
                other.copy_(one)
        if counts:
            self._steps += 1.0 if active is None else active


def _stacked_hyperparameters(optimizers: Sequence[RowOptimizer], device: torch.device) -> dict[str, PerRow]:
    """Return every field by name: its value where all rows have the same, so that it is a constant of the step."""
    stacked: dict[str, PerRow] = {}
    for field in fields(optimizers[0]):
        values = [getattr(optimizer, field.name) for optimizer in optimizers]
        same = all(value == values[0] for value in values)
        stacked[field.name] = values[0] if same else torch.tensor(values, dtype=torch.float64, device=device)
    return stacked


def broadcast(value: PerRow, parameter: Tensor) -> PerRow:
    """Return a value that can be multiplied with a parameter (G, ...): a number, or (G, 1, ...) float32."""
    return value.float().view(-1, *[1] * (parameter.ndim - 1)) if isinstance(value, Tensor) else value


def is_zero(value: PerRow) -> bool:
    """Return whether a hyperparameter is 0 for all rows."""
    return not isinstance(value, Tensor) and value == 0


def interval_problem(name: str, value: object, *, low: float = 0.0, below: float = float("inf")) -> str | None:
    """Return the problem of a hyperparameter that must lie in [low, below); None if it is valid."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value < below:
        return None
    return f"`{name}` must lie in [{low:g}, {below:g}), but got {value!r}."
