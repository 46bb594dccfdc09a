"""AdamW (Loshchilov and Hutter, 2019), as `torch.optim.AdamW`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from s2e.engine.optimizers.adam import Adam


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay: weights shrink by the learning rate times `weight_decay` in every step.

    Args:
        beta1: decay rate of the first moment, in [0, 1).
        beta2: decay rate of the second moment, in [0, 1).
        eps: added to the denominator.
        weight_decay: factor of the decay.
    """

    decoupled: ClassVar[bool] = True

    weight_decay: float = 0.01
