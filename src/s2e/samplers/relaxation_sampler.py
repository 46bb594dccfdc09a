"""The paper's search as an Optuna sampler, built on the stochastic relaxation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any, TypeGuard

import numpy as np
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.samplers import BaseSampler
from optuna.search_space import intersection_search_space
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial

from s2e.errors import InvalidInput, unknown_name
from s2e.samplers.control_variate import CurveControl, Observations
from s2e.samplers.relaxation import STEPS, Layout, Settings, State, advance, transport
from s2e.samplers.study_view import check_single_objective, complete, seeds, uniform


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The distribution one generation is drawn from, and the parameters its coordinates belong to, in their order."""

    names: tuple[str, ...]
    state: State


class RelaxationSampler(BaseSampler):
    """The paper's search: draw K points from p_θ, then step θ downhill on J(θ) = E[value] (its S2E algorithm).

    Trial number n belongs to generation n // K. A trial of generation g is drawn from the θ that g steps lead to from
    θ = 1, each over the complete trials, with finite values, of one earlier generation. Failed, pruned and running
    trials are left out, and a generation with fewer than two left makes no step. Points that came from elsewhere
    (enqueued, added, asked by another sampler or before the last generation was told) count as if drawn from p_θ.

    Every coordinate of a trial comes from one uniform number, fixed by the seed, the trial's number and the parameter's
    name. While θ = 1, and for parameters that not every complete trial has, that number is the coordinate.

    Args:
        step: How θ moves: "newton" (the paper's), "natural" or "gradient".
        generation: K, how many trials make one generation; ask that many before telling to train them together.
        simplex: Names of the float parameters that are simplex weights, none or at least two; `relaxation.weights`
            makes weights of them. Every complete trial must have them all: a part of a simplex is refused, because its
            Dirichlet would be another one. Every other float without log or step gets a Beta over its range; log,
            stepped, integer and categorical parameters are sampled independently and uniformly.
        seed: Non-negative; two samplers with equal arguments ask equal points of equal studies.
        settings: Constants of the step.
        control: Models the values over the decoded curves, and takes what it can foresee out of a step's noise; it sees
            the generations before the one that is stepped over. Until it has enough of them, and without it, the step
            is the plain one. Every complete trial must have all coordinates of its space, as floats in [0, 1].
    """

    def __init__(
        self,
        *,
        step: str = "newton",
        generation: int = 6,
        simplex: Sequence[str] = (),
        seed: int = 0,
        settings: Settings | None = None,
        control: CurveControl | None = None,
    ) -> None:
        if step not in STEPS:
            raise unknown_name("step", step, STEPS)
        if generation < 2:
            raise InvalidInput(f"`generation` must be at least 2, but got {generation}: one value shows no direction.")
        if isinstance(simplex, str) or len(simplex) == 1 or len(set(simplex)) < len(simplex):
            raise InvalidInput(f"`simplex` must be no or at least two different names, but got {simplex!r}.")
        if seed < 0:
            raise InvalidInput(f"`seed` must be at least 0, but got {seed}.")
        self.step = step
        self.generation = generation
        self.simplex = tuple(simplex)
        self.seed = seed
        self.settings = Settings() if settings is None else settings
        self.control = control

    def snapshot(self, study: Study, generation: int) -> Snapshot | None:
        """What trials of `generation` (0, 1, …) are drawn from as the study stands; None while no trial is complete."""
        space = self._space(study)
        return self._snapshot(study, space, generation) if space else None

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:  # noqa: ARG002
        """Simplex weights in their order, then the other plain floats by name; empty before any trial is complete."""
        return dict(self._space(study))

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """One point from the distribution of the trial's generation."""
        if not search_space:
            return {}
        space = self._ordered(search_space)
        drawn_from = self._snapshot(study, space, trial.number // self.generation)
        noise = np.array([self._noise(trial, name) for name in drawn_from.names])  # (D,)
        point = transport(drawn_from.state.theta, drawn_from.state.layout, noise)  # (D,)
        return {name: _value(u, space[name]) for name, u in zip(drawn_from.names, point, strict=True)}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Uniform over the parameter's range: what θ = 1 means."""
        check_single_objective(study)
        if _is_plain(param_distribution):
            return _value(self._noise(trial, param_name), param_distribution)
        return uniform(self.seed, study, trial, param_name, param_distribution)

    def _noise(self, trial: FrozenTrial, name: str) -> float:
        return float(np.random.default_rng(seeds(self.seed, trial, name)).random())

    def _space(self, study: Study) -> dict[str, FloatDistribution]:
        """The parameters p_θ is about, in the order of a point's coordinates."""
        check_single_objective(study)
        trials = complete(study)
        return self._ordered(intersection_search_space(trials)) if trials else {}

    def _ordered(self, common: Mapping[str, BaseDistribution]) -> dict[str, FloatDistribution]:
        plain = {name: given for name, given in common.items() if _is_plain(given)}
        missing = [name for name in self.simplex if name not in plain]
        if missing:
            raise InvalidInput(
                "`simplex` must name floats, without log or step, that every complete trial has with the same range, "
                f"but got {', '.join(missing)}; such floats of the study are {', '.join(plain) or 'none'}."
            )
        needed = () if self.control is None else self.control.space.names
        missing = [name for name in needed if plain.get(name) != FloatDistribution(0.0, 1.0)]
        if missing:
            raise InvalidInput(
                "`control` must be of a space whose coordinates every complete trial has, as floats in [0, 1], "
                f"but got {', '.join(missing)}; floats of the study are {', '.join(plain) or 'none'}."
            )
        return {name: plain[name] for name in [*self.simplex, *sorted(plain.keys() - set(self.simplex))]}

    def _snapshot(self, study: Study, space: Mapping[str, FloatDistribution], generation: int) -> Snapshot:
        """θ = 1 moved by one step for every generation before the given one."""
        sign = -1.0 if study.direction == StudyDirection.MAXIMIZE else 1.0
        state = State.uniform(Layout(simplex=len(self.simplex), boxed=len(space) - len(self.simplex)))
        usable = [trial for trial in complete(study) if _is_usable(trial, space)]
        before = Observations((), ())
        for number, trials in groupby(usable, key=lambda trial: trial.number // self.generation):
            if number >= generation:
                break
            told = _told(list(trials), space, sign)
            state = self._stepped(state, tuple(space), number, told, before)
            before = Observations(before.points + told.points, before.values + told.values)
        return Snapshot(tuple(space), state)

    def _stepped(
        self, state: State, names: tuple[str, ...], generation: int, told: Observations, before: Observations
    ) -> State:
        """Move θ by what one generation told, all generations before it being known."""
        if self.control is None:
            return advance(state, told.points, told.values, step=self.step, settings=self.settings)
        theta = _controlled_step(
            self.control, self.step, self.settings, state.layout, tuple(state.theta), names, generation, told, before
        )
        return State(state.layout, np.array(theta))


@lru_cache(maxsize=1024)
def _controlled_step(
    control: CurveControl,
    step: str,
    settings: Settings,
    layout: Layout,
    theta: tuple[float, ...],
    names: tuple[str, ...],
    generation: int,
    told: Observations,
    before: Observations,
) -> tuple[float, ...]:
    """θ after a generation. The model is fitted once, not anew for each trial of every later generation.

    A function of its arguments alone; remembering it saves time and changes nothing. Each of a hundred searches that
    take turns finds its last ten generations again.
    """
    state = State(layout, np.array(theta))
    model = control.predict(state, names, told.points, generation=generation, earlier=before)
    return tuple(advance(state, told.points, told.values, step=step, settings=settings, control=model).theta)


def _told(trials: Sequence[FrozenTrial], space: Mapping[str, FloatDistribution], sign: float) -> Observations:
    """Points and values, to be minimised, of usable trials."""
    return Observations(
        tuple(tuple(_coordinate(trial.params[name], space[name]) for name in space) for trial in trials),
        tuple(sign * trial.values[0] for trial in trials),
    )


def _is_plain(given: BaseDistribution) -> TypeGuard[FloatDistribution]:
    """Whether a Beta fits: a float with room to move, neither log nor stepped."""
    return isinstance(given, FloatDistribution) and not (given.log or given.step is not None or given.single())


def _is_usable(trial: FrozenTrial, space: Mapping[str, FloatDistribution]) -> bool:
    """Whether a complete trial can take part in a step: a finite value, and every parameter with the same range."""
    return math.isfinite(trial.values[0]) and all(trial.distributions.get(name) == space[name] for name in space)


def _value(u: float, given: FloatDistribution) -> float:
    return min(given.low + float(u) * (given.high - given.low), given.high)


def _coordinate(value: float, given: FloatDistribution) -> float:
    return min(max((value - given.low) / (given.high - given.low), 0.0), 1.0)
