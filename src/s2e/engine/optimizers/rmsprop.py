"""RMSProp (Hinton, 2012), as `torch.optim.RMSprop` without centring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from s2e.engine.compiled.torch_internals import foreach_rmsprop_step
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
class RMSProp(RowOptimizer):
    """RMSProp.

    Args:
        alpha: decay rate of the mean of squared gradients, in [0, 1).
        eps: added to the denominator.
        momentum: decay rate of the sum of earlier updates, in [0, 1); 0 for none.
        weight_decay: factor of the weights that is added to their gradients (L2 penalty).
    """

    alpha: float = 0.99
    eps: float = 1e-8
    momentum: float = 0.0
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        raise_all(
            [
                interval_problem("alpha", self.alpha, below=1),
                interval_problem("eps", self.eps),
                interval_problem("momentum", self.momentum, below=1),
                interval_problem("weight_decay", self.weight_decay),
            ]
        )

    @property
    def state_tensors(self) -> int:
        """The mean of squared gradients, and the momentum, if there is one."""
        return 1 + int(self.momentum > 0)

    def update_blocks(self, blocks: RowBlocks, learning_rate: float) -> None:
        """Update blocks by torch's operations on lists of tensors; there is no fused kernel."""
        foreach_rmsprop_step(
            blocks.parameters,
            blocks.gradients,
            blocks.states[0],
            blocks.states[1] if self.momentum > 0 else None,
            learning_rate=learning_rate,
            alpha=self.alpha,
            epsilon=self.eps,
            momentum=self.momentum,
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
        alpha, eps, momentum, decay = (hyperparameters[name] for name in ("alpha", "eps", "momentum", "weight_decay"))

        def update(parameter: Tensor, gradient: Tensor, states: Sequence[Tensor]) -> tuple[Sequence[Tensor], Tensor]:
            if not is_zero(decay):
                gradient = gradient + broadcast(decay, parameter) * parameter
            square = states[0] + broadcast(1 - alpha, parameter) * (gradient * gradient - states[0])
            direction = gradient / (square.sqrt() + broadcast(eps, parameter))
            if len(states) > 1:
                direction = broadcast(momentum, parameter) * states[1] + direction
            new_states = (square, direction)[: len(states)]
            return new_states, parameter - broadcast(learning_rates, parameter) * direction

        return update
