"""Learning-rate plans: the factor on every learning rate by epoch.

Letters: T epochs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Protocol, runtime_checkable

from s2e.errors import InvalidInput, raise_all, unknown_name
from s2e.specs import convert_options, count_problem, option_converters, parse_named_options


@runtime_checkable
class LearningRatePlan(Protocol):
    """How learning rates change; immutable, and a pure function of the epoch."""

    def factor(self, epoch: int, epochs: int) -> float:
        """Return the factor on every learning rate at an epoch, at least 0.

        Args:
            epoch: from 0.
            epochs: T.
        """


@dataclass(frozen=True)
class Constant:
    """The same learning rate in all epochs."""

    def factor(self, epoch: int, epochs: int) -> float:  # noqa: ARG002
        """Return 1."""
        return 1.0


@dataclass(frozen=True)
class Linear:
    """Constant, then falling linearly to 0 after the last epoch: the plan of the papers, from epoch 80 of 200.

    Args:
        start: share of the epochs after which it falls, in [0, 1].
    """

    start: float = 0.4

    def __post_init__(self) -> None:
        raise_all([None if 0 <= self.start <= 1 else f"`start` must lie in [0, 1], but got {self.start!r}."])

    def factor(self, epoch: int, epochs: int) -> float:
        """Return 1 before the start s, then (T - t) / (T - s)."""
        start = round(self.start * epochs)
        return 1.0 if epoch < start else (epochs - epoch) / (epochs - start)


@dataclass(frozen=True)
class Cosine:
    """Half a cosine wave, from 1 to 0 after the last epoch (Loshchilov and Hutter, 2017, without restarts)."""

    def factor(self, epoch: int, epochs: int) -> float:
        """Return (1 + cos(π t / T)) / 2."""
        return (1 + math.cos(math.pi * epoch / epochs)) / 2


@dataclass(frozen=True)
class Step:
    """Multiplied by a number at every milestone.

    Args:
        milestones: shares of the epochs, in (0, 1).
        gamma: the number, positive.
    """

    milestones: tuple[float, ...] = (0.5, 0.75)
    gamma: float = 0.1

    def __post_init__(self) -> None:
        within = len(self.milestones) > 0 and all(0 < milestone < 1 for milestone in self.milestones)
        raise_all(
            [
                None
                if within
                else "`milestones` must be shares of the epochs between 0 and 1, such as 0.5-0.75, but got "
                f"{'-'.join(f'{milestone:g}' for milestone in self.milestones) or 'none'}.",
                None if 0 < self.gamma < math.inf else f"`gamma` must be positive and finite, but got {self.gamma!r}.",
            ]
        )

    def factor(self, epoch: int, epochs: int) -> float:
        """Return γ to the number of milestones that have been reached."""
        return float(self.gamma ** sum(epoch >= round(milestone * epochs) for milestone in self.milestones))


@dataclass(frozen=True)
class WarmUp:
    """A linear rise in the first epochs, then another plan over the others.

    Args:
        epochs: W, epochs of the rise: 1 / (W + 1), 2 / (W + 1), …, W / (W + 1) of the rate.
        then: the other plan.
    """

    epochs: int
    then: LearningRatePlan = field(default_factory=Constant)

    def __post_init__(self) -> None:
        raise_all([count_problem("warmup", self.epochs)])

    def factor(self, epoch: int, epochs: int) -> float:
        """Return (t + 1) / (W + 1), then the factor of the other plan as if its first epoch were W."""
        if epoch < self.epochs:
            return (epoch + 1) / (self.epochs + 1)
        return self.then.factor(epoch - self.epochs, epochs - self.epochs)


PLANS: dict[str, type[Constant] | type[Linear] | type[Cosine] | type[Step]] = {
    "constant": Constant,
    "linear": Linear,
    "cosine": Cosine,
    "step": Step,
}
"""Every plan by its name; the fields of its class are its options, and `warmup` is one of all."""


def plan_of(plan: str | Any) -> LearningRatePlan:
    """Return a learning-rate plan.

    Args:
        plan: a name such as "cosine", a name with options such as "linear:start=0.4" or "cosine:warmup=5", or an object
            with the interface `LearningRatePlan`.
    """
    if isinstance(plan, str):
        name, options = parse_named_options("plan", plan)
        if name not in PLANS:
            raise unknown_name("plan", name, PLANS)
        converters = {**option_converters(PLANS[name]), "warmup": _warm_up_epochs}
        values = convert_options("plan", name, options, converters)
        warm_up = values.pop("warmup", 0)
        chosen = PLANS[name](**values)
        return WarmUp(warm_up, chosen) if warm_up else chosen
    if isinstance(plan, type) or not isinstance(plan, LearningRatePlan):
        found = f"the class {plan.__name__}" if isinstance(plan, type) else type(plan).__name__
        raise InvalidInput(
            f"`plan` must be a name or an object with the interface `s2e.LearningRatePlan`, such as Cosine() of "
            f"`s2e.engine.learning_rates`, but got {found}."
        )
    return plan


def check_plan(plan: LearningRatePlan, epochs: int) -> None:
    """Raise `InvalidInput` for a plan by which nothing would be trained in T epochs, or whose factors are no rates."""
    if isinstance(plan, WarmUp) and plan.epochs >= epochs:
        raise InvalidInput(f"`warmup` must be less than the {epochs} epochs of a training, but got {plan.epochs}.")
    factors: list[Any] = [plan.factor(epoch, epochs) for epoch in range(epochs)]  # what a user's object returns
    for epoch, factor in enumerate(factors):
        is_number = isinstance(factor, Real)
        if not is_number or not 0 <= factor < math.inf:
            found = factor if is_number else type(factor).__name__
            raise InvalidInput(f"`plan` must give finite factors of at least 0, but got {found} for epoch {epoch}.")
    if not any(factors):
        raise InvalidInput(f"`plan` must rise above 0 in one of the {epochs} epochs, but got 0 for all: {plan!r}.")


def _warm_up_epochs(text: str) -> int:
    if not text.isdecimal():
        raise ValueError("must be a number of epochs, at least 0")
    return int(text)
