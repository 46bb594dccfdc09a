"""Samplers by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from optuna.pruners import BasePruner, HyperbandPruner
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, RandomSampler, TPESampler

from s2e.errors import InvalidInput, unknown_name
from s2e.samplers.control_variate import CurveControl
from s2e.samplers.curve_sampler import CurveSampler
from s2e.samplers.dynamics_sampler import DynamicsSampler
from s2e.samplers.relaxation import STEPS
from s2e.samplers.relaxation_sampler import RelaxationSampler
from s2e.schedules import Space

SamplerFactory = Callable[[int], BaseSampler]
"""Builds the sampler of one trial from the seed of that trial."""

BRACKETS = 4
"""Hyperband's brackets: the first can stop a training after 1/27 of its epochs, the last never stops one."""
REDUCTION = 3
"""Hyperband's reduction factor: one in three members continues from a rung to the next."""
STARTUP = 10
"""Uniform draws before the models of `tpe`, `tpe-multivariate` and `gp` are used."""
STARTUP_CMAES = 1
"""Uniform draws before `cmaes`, whose distribution has the shape of the cube at first."""


@dataclass(frozen=True)
class SamplerSpec:
    """How points are sampled, and which trainings are stopped early.

    Attributes:
        build: builds the sampler of a trial from the trial's seed.
        pruner: stops trainings early; None to train all of them to the end.
        rungs: epochs at which the pruner decides, counted from 1.
    """

    build: SamplerFactory
    pruner: BasePruner | None = None
    rungs: tuple[int, ...] = ()


def sampler_spec(sampler: str | BaseSampler, space: Space, epochs: int, generation_size: int) -> SamplerSpec:
    """Return the specification of a sampler.

    Args:
        sampler: a name of `SAMPLERS`, or a sampler object, which is used for every trial. The random state of an object
            is not restored when a search is resumed.
        space: space of the schedules.
        epochs: T, epochs of the schedules.
        generation_size: K, points asked together.
    """
    if isinstance(sampler, BaseSampler):
        return SamplerSpec(lambda seed: sampler)  # noqa: ARG005
    if not isinstance(sampler, str):
        raise InvalidInput(
            f"`sampler` must be the name of a sampler or an `optuna.samplers.BaseSampler`, but got {sampler!r}."
        )
    if sampler not in SAMPLERS:
        raise unknown_name("sampler", sampler, SAMPLERS)
    return SAMPLERS[sampler](space, epochs, generation_size)


def _relaxation(step: str, *, curve_control: bool = False) -> Callable[[Space, int, int], SamplerSpec]:
    """Return the paper's sampler with one of its steps, without or with the curve model as a control variate."""

    def spec(space: Space, epochs: int, generation_size: int) -> SamplerSpec:
        control = CurveControl(space, epochs) if curve_control else None

        def build(seed: int) -> RelaxationSampler:
            return RelaxationSampler(
                step=step, generation_size=generation_size, simplex=space.simplex, seed=seed, control=control
            )

        build(0)  # raises if the arguments are invalid
        return SamplerSpec(build)

    return spec


def _curve(space: Space, epochs: int, generation_size: int) -> SamplerSpec:  # noqa: ARG001
    return SamplerSpec(lambda seed: CurveSampler(space, epochs, seed=seed))


def _curve_dynamics(space: Space, epochs: int, generation_size: int) -> SamplerSpec:  # noqa: ARG001
    return SamplerSpec(lambda seed: DynamicsSampler(space, epochs, seed=seed))


def _optuna(build: SamplerFactory) -> Callable[[Space, int, int], SamplerSpec]:
    """Wrap a sampler of Optuna, whose seeds have 32 bits."""
    return lambda space, epochs, generation_size: SamplerSpec(lambda seed: build(seed % 2**32))  # noqa: ARG005


def _tpe(*, multivariate: bool) -> Callable[[Space, int, int], SamplerSpec]:
    """Return TPE with all settings that Optuna's versions differ in; points that are not scored yet count as bad."""
    return _optuna(
        lambda seed: TPESampler(
            seed=seed, n_startup_trials=STARTUP, multivariate=multivariate, group=False, constant_liar=True
        )
    )


def _hyperband(space: Space, epochs: int, generation_size: int) -> SamplerSpec:  # noqa: ARG001
    shortest = max(1, round(epochs / REDUCTION ** (BRACKETS - 1)))
    longest = shortest * REDUCTION ** (BRACKETS - 1)  # T up to rounding: the last bracket's rung, where none stops
    pruner = HyperbandPruner(min_resource=shortest, max_resource=longest, reduction_factor=REDUCTION)
    rungs = [shortest * REDUCTION**rung for rung in range(BRACKETS - 1)]
    return SamplerSpec(
        lambda seed: RandomSampler(seed=seed % 2**32), pruner, tuple(epoch for epoch in rungs if epoch < epochs)
    )


SAMPLERS: dict[str, Callable[[Space, int, int], SamplerSpec]] = {
    "curve": _curve,
    "curve-dynamics": _curve_dynamics,
    **{step: _relaxation(step) for step in STEPS},
    "newton-curve": _relaxation("newton", curve_control=True),
    "random": _optuna(lambda seed: RandomSampler(seed=seed)),
    "tpe": _tpe(multivariate=False),
    "tpe-multivariate": _tpe(multivariate=True),
    "gp": _optuna(
        lambda seed: GPSampler(seed=seed, independent_sampler=RandomSampler(seed=seed), n_startup_trials=STARTUP)
    ),
    "cmaes": _optuna(lambda seed: CmaEsSampler(seed=seed, n_startup_trials=STARTUP_CMAES)),
    "hyperband": _hyperband,
}
"""Every sampler by name, as a function of (space, epochs, generation_size)."""
