"""Optuna samplers: the paper's steps, the curve model, and Optuna's own.

A sampler of ours keeps no state: what it asks next is a function of its arguments and of the study's finished trials,
so a search that was killed goes on, from the same storage, with the point it would have asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from optuna.pruners import BasePruner, HyperbandPruner
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, RandomSampler, TPESampler

from s2e.errors import unknown_name
from s2e.samplers.control_variate import CurveControl
from s2e.samplers.curve_sampler import CurveSampler
from s2e.samplers.relaxation import STEPS
from s2e.samplers.relaxation_sampler import RelaxationSampler, Snapshot
from s2e.schedules.spaces import Space

__all__ = ["SAMPLERS", "Algorithm", "CurveControl", "CurveSampler", "RelaxationSampler", "Snapshot", "algorithm"]

SamplerFactory = Callable[[int], BaseSampler]
"""Builds the sampler that asks one trial, from the seed of that trial."""

BRACKETS = 4
"""Brackets of Hyperband: the first can stop a training after 1/27 of its epochs, the last never does."""
REDUCTION = 3
"""Of Hyperband: one in so many goes on from a rung to the next."""


@dataclass(frozen=True)
class Algorithm:
    """How a search asks for trials, and which of them it does not train to the end.

    Attributes:
        sampler: builds the sampler of a trial from the trial's seed.
        pruner: stops trainings early, asked at the epochs it looks at; None to train all of them to the end.
        rungs: those epochs, counted from 1.
    """

    sampler: SamplerFactory
    pruner: BasePruner | None = None
    rungs: tuple[int, ...] = ()


def algorithm(name: str, space: Space, epochs: int, generation: int) -> Algorithm:
    """Return an algorithm by its name, for schedules of a space over so many epochs, asked K at a time."""
    if name not in SAMPLERS:
        raise unknown_name("sampler", name, SAMPLERS)
    return SAMPLERS[name](space, epochs, generation)


def _relaxed(step: str, *, controlled: bool = False) -> Callable[[Space, int, int], Algorithm]:
    """Return the paper's search with one of its steps, as it is or with the curve model as a control variate."""

    def build(space: Space, epochs: int, generation: int) -> Algorithm:
        control = CurveControl(space, epochs) if controlled else None

        def sampler(seed: int) -> RelaxationSampler:
            return RelaxationSampler(
                step=step, generation=generation, simplex=space.simplex, seed=seed, control=control
            )

        sampler(0)  # bad arguments are refused here
        return Algorithm(sampler)

    return build


def _curve(space: Space, epochs: int, generation: int) -> Algorithm:  # noqa: ARG001
    return Algorithm(lambda seed: CurveSampler(space, epochs, seed=seed))


def _optuna(build: SamplerFactory) -> Callable[[Space, int, int], Algorithm]:
    """Wrap a sampler of Optuna's; its seeds have 32 bits."""
    return lambda space, epochs, generation: Algorithm(lambda seed: build(seed % 2**32))  # noqa: ARG005


def _hyperband(space: Space, epochs: int, generation: int) -> Algorithm:  # noqa: ARG001
    shortest = max(1, round(epochs / REDUCTION ** (BRACKETS - 1)))
    longest = shortest * REDUCTION ** (BRACKETS - 1)  # T but for rounding: the last bracket's rung, where nobody stops
    pruner = HyperbandPruner(min_resource=shortest, max_resource=longest, reduction_factor=REDUCTION)
    rungs = [shortest * REDUCTION**rung for rung in range(BRACKETS - 1)]
    return Algorithm(
        lambda seed: RandomSampler(seed=seed % 2**32), pruner, tuple(epoch for epoch in rungs if epoch < epochs)
    )


SAMPLERS: dict[str, Callable[[Space, int, int], Algorithm]] = {
    "curve": _curve,
    **{step: _relaxed(step) for step in STEPS},
    "newton-curve": _relaxed("newton", controlled=True),
    "random": _optuna(lambda seed: RandomSampler(seed=seed)),
    "tpe": _optuna(lambda seed: TPESampler(seed=seed, constant_liar=True)),
    "gp": _optuna(lambda seed: GPSampler(seed=seed, independent_sampler=RandomSampler(seed=seed))),
    "cmaes": _optuna(lambda seed: CmaEsSampler(seed=seed)),
    "hyperband": _hyperband,
}
"""Every algorithm by its name."""
