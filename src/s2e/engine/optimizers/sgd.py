"""Stochastic gradient descent with momentum, as `torch.optim.SGD` without dampening."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from s2e.engine.compiled.torch_internals import fused_sgd_step
from s2e.engine.optimizers.row_optimizer import (
    PerRow,
    RowBlocks,
    RowOptimizer,
    StackedUpdate,
    broadcast,
    interval_problem,
    is_zero,
)
from s2e.errors import raise_all


@dataclass(frozen=True)
class SGD(RowOptimizer):
    """Stochastic gradient descent.

    Args:
        momentum: decay rate of the sum of earlier gradients, in [0, 1); 0 for none.
        nesterov: Nesterov's momentum: step along the gradient plus `momentum` times the new sum.
        weight_decay: factor of the weights that is added to their gradients (L2 penalty).
    """

    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        needs_momentum = self.nesterov and self.momentum == 0
        raise_all(
            [
                interval_problem("momentum", self.momentum, below=1),
                interval_problem("weight_decay", self.weight_decay),
                "`momentum` must be positive for `nesterov`, but got 0." if needs_momentum else None,
            ]
        )

    @property
    def state_tensors(self) -> int:
        """The momentum, if there is one."""
        return int(self.momentum > 0)

    def update_blocks(self, blocks: RowBlocks, learning_rate: float) -> None:
        """Update blocks by torch's fused kernel."""
        fused_sgd_step(
            blocks.parameters,
            blocks.gradients,
            blocks.states[0] if self.momentum > 0 else None,
            learning_rate=learning_rate,
            momentum=self.momentum,
            nesterov=self.nesterov,
            weight_decay=self.weight_decay,
        )

    @classmethod
    def stacked_update(
        cls,
        hyperparameters: Mapping[str, PerRow],
        learning_rates: Tensor,
        steps: Tensor,  # noqa: ARG003
    ) -> StackedUpdate:
        """Return the update of stacked parameters."""
        momentum, nesterov, decay = (hyperparameters[name] for name in ("momentum", "nesterov", "weight_decay"))

        def update(parameter: Tensor, gradient: Tensor, states: Sequence[Tensor]) -> tuple[Sequence[Tensor], Tensor]:
            if not is_zero(decay):
                gradient = gradient + broadcast(decay, parameter) * parameter
            if not states:
                return (), parameter - broadcast(learning_rates, parameter) * gradient
            share = broadcast(momentum, parameter)
            total = share * states[0] + gradient
            if isinstance(nesterov, Tensor):
                direction = torch.where(broadcast(nesterov, parameter) > 0, gradient + share * total, total)  # type: ignore[arg-type]
            else:
                direction = gradient + share * total if nesterov else total
            return (total,), parameter - broadcast(learning_rates, parameter) * direction

        return update
