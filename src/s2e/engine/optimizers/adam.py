"""Adam (Kingma and Ba, 2015), as `torch.optim.Adam`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from s2e.engine.compiled.materialise import materialised
from s2e.engine.compiled.torch_internals import fused_adam_step
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
class Adam(RowOptimizer):
    """Adam.

    Args:
        beta1: decay rate of the first moment, in [0, 1).
        beta2: decay rate of the second moment, in [0, 1).
        eps: added to the denominator.
        weight_decay: factor of the weights that is added to their gradients (L2 penalty).
    """

    counts_steps: ClassVar[bool] = True
    decoupled: ClassVar[bool] = False
    """Whether weight decay shrinks the weights directly (`AdamW`)."""

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        raise_all(
            [
                interval_problem("beta1", self.beta1, below=1),
                interval_problem("beta2", self.beta2, below=1),
                interval_problem("eps", self.eps),
                interval_problem("weight_decay", self.weight_decay),
            ]
        )

    @property
    def state_tensors(self) -> int:
        """The first and the second moment."""
        return 2

    def update_blocks(self, blocks: RowBlocks, learning_rate: float) -> None:
        """Update blocks by torch's fused kernel."""
        fused_adam_step(
            blocks.parameters,
            blocks.gradients,
            blocks.states[0],
            blocks.states[1],
            blocks.steps,
            learning_rate=learning_rate,
            beta1=self.beta1,
            beta2=self.beta2,
            epsilon=self.eps,
            weight_decay=self.weight_decay,
            decoupled=self.decoupled,
        )

    @classmethod
    def stacked_update(
        cls, hyperparameters: Mapping[str, PerRow], learning_rates: Tensor, steps: Tensor
    ) -> StackedUpdate:
        """Return the update of stacked parameters; the bias correction is computed once per row, not per weight."""
        beta1, beta2, eps, decay = (hyperparameters[name] for name in ("beta1", "beta2", "eps", "weight_decay"))
        size = materialised(learning_rates / _bias_correction(beta1, steps))  # α / (1 - β₁ᵗ), (G,)
        root = materialised(_bias_correction(beta2, steps).sqrt())  # √(1 - β₂ᵗ), (G,)

        def update(parameter: Tensor, gradient: Tensor, states: Sequence[Tensor]) -> tuple[Sequence[Tensor], Tensor]:
            first, second = states
            start = parameter
            if not is_zero(decay) and cls.decoupled:
                start = parameter - broadcast(learning_rates * decay, parameter) * parameter
            elif not is_zero(decay):
                gradient = gradient + broadcast(decay, parameter) * parameter
            new_first = first + broadcast(1 - beta1, parameter) * (gradient - first)
            new_second = second + broadcast(1 - beta2, parameter) * (gradient * gradient - second)
            denominator = new_second.sqrt() / broadcast(root, parameter) + broadcast(eps, parameter)
            return (new_first, new_second), start - broadcast(size, parameter) * new_first / denominator

        return update


def _bias_correction(beta: PerRow, steps: Tensor) -> Tensor:
    """Return 1 - βᵗ for step counts t (G,), as -expm1(t ln β): a float64 power is slow on a GPU."""
    if isinstance(beta, Tensor):
        return -torch.expm1(beta.log() * steps).float()
    return -torch.expm1((math.log(beta) if beta > 0 else -math.inf) * steps).float()
