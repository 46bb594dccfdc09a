"""What the engine needs of an optimizer: a small immutable description, and the state that it builds for G networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor

Rows: TypeAlias = Tensor | tuple[Tensor, ...]
"""Values of G rows: one tensor (G, ...), or G tensors (...)."""


class StackedOptimizer(Protocol):
    """Updates stacked parameters (G, ...) in place; row g belongs to network g, and no row depends on another.

    On a GPU, `update` is traced, compiled and captured as a CUDA graph: everything that changes between steps is in
    device tensors that are written in place, and no decision is made on the host.
    """

    def update(self, gradients: Sequence[Rows], active: Tensor | None = None) -> None:
        """Take one step in place.

        Args:
            gradients: for each parameter the gradients of its G rows, one tensor (G, ...) or G tensors.
            active: (G,) bool; rows that are False keep their weights and their state. None for all rows.
        """

    def scale_learning_rates(self, factor: float) -> None:
        """Set the factor on every learning rate, for all later steps; called before every epoch."""

    def reset(self) -> None:
        """Clear the state in place, for other networks in the same tensors."""

    def take(self, rows: Sequence[int], parameters: Sequence[Tensor]) -> StackedOptimizer:
        """Return an optimizer that continues some of the rows, in the given order, on new parameters."""


@runtime_checkable
class StoredOptimizer(Protocol):
    """Two further methods of a stacked optimizer, without which a killed training starts again at its first epoch."""

    def state(self) -> dict[str, Tensor]:
        """Return copies of everything that changes from step to step, by name, on the CPU."""

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continue from what `state` returned, in place."""


@runtime_checkable
class Optimizer(Protocol):
    """A kind of optimizer with its settings; immutable, and equal to others with the same settings.

    Attributes:
        state_tensors: tensors of the size of a parameter that are kept for it, from which memory is estimated.
    """

    @property
    def state_tensors(self) -> int:
        """Tensors of the size of a parameter that are kept for it."""

    def build(
        self, parameters: Sequence[Tensor], learning_rates: Sequence[float], device: torch.device
    ) -> StackedOptimizer:
        """Return the optimizer of G networks.

        Args:
            parameters: tensors (G, ...), to be updated in place.
            learning_rates: G initial learning rates.
            device: device of the parameters.
        """
