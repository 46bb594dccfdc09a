"""The paper's search as an Optuna sampler, built on `relaxation`."""

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
from s2e.samplers.study_view import check_single_objective, complete_trials, parameter_seed, sample_uniformly


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The distribution of one generation, and the names of the parameters that are its coordinates, in order."""

    names: tuple[str, ...]
    state: State


class RelaxationSampler(BaseSampler):
    """The paper's search: draw K points from p_θ, then move θ downhill on J(θ) = E[value] (its S2E algorithm).

    Trial number n belongs to generation n // K. A trial of generation g is drawn from the θ after g steps from θ = 1,
    one for the complete trials with finite values of each earlier generation. Failed, pruned and running trials are
    left out, and a generation with fewer than two trials left makes no step. Points from other sources (enqueued,
    added, asked by another sampler or before the last generation was told) count as if drawn from p_θ.

    Every coordinate of a trial is a function of one uniform number, fixed by the seed, the trial's number and the
    parameter's name. While θ = 1, and for parameters that some complete trial lacks, this number is the coordinate.

    Args:
        step: how θ moves: "newton" (the paper's), "natural" or "gradient".
        generation_size: K, trials in a generation.
        simplex: names of the float parameters that are simplex weights, none or at least two; `relaxation.weights`
            turns them into weights. Every complete trial must have all of them, because a subset of a simplex has
            another Dirichlet distribution. Every other float without log or step has a Beta distribution over its
            range; log, stepped, integer and categorical parameters are sampled independently and uniformly.
        seed: non-negative; samplers with equal arguments return equal points for equal studies.
        settings: constants of the step.
        control: models the values over the decoded curves and reduces the variance of a step. It is fitted to all
            earlier generations; while they have too few trials, and without a control, the step is the plain one.
            Every complete trial must have all coordinates of its space, as floats in [0, 1].
    """

    def __init__(
        self,
        *,
        step: str = "newton",
        generation_size: int = 6,
        simplex: Sequence[str] = (),
        seed: int = 0,
        settings: Settings | None = None,
        control: CurveControl | None = None,
    ) -> None:
        if step not in STEPS:
            raise unknown_name("step", step, STEPS)
        if generation_size < 2:
            raise InvalidInput(
                f"`generation_size` must be at least 2 for this sampler, but got {generation_size}: its steps compare "
                "the points of a generation."
            )
        if isinstance(simplex, str) or len(simplex) == 1 or len(set(simplex)) < len(simplex):
            raise InvalidInput(f"`simplex` must be empty or at least two different names, but got {simplex!r}.")
        if seed < 0:
            raise InvalidInput(f"`seed` must be at least 0, but got {seed}.")
        self.step = step
        self.generation_size = generation_size
        self.simplex = tuple(simplex)
        self.seed = seed
        self.settings = Settings() if settings is None else settings
        self.control = control

    def snapshot(self, study: Study, generation: int) -> Snapshot | None:
        """Return the distribution of trials of `generation` (0, 1, …); None while no trial is complete."""
        space = self._space(study)
        return self._snapshot(study, space, generation) if space else None

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:  # noqa: ARG002
        """Return the simplex weights in order, then other plain floats by name; none before a trial is complete."""
        return dict(self._space(study))

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return one point from the distribution of the trial's generation."""
        if not search_space:
            return {}
        space = self._ordered(search_space)
        snapshot = self._snapshot(study, space, trial.number // self.generation_size)
        noise = np.array([self._noise(trial, name) for name in snapshot.names])  # (D,)
        point = transport(snapshot.state.theta, snapshot.state.layout, noise)  # (D,)
        return {name: _value(u, space[name]) for name, u in zip(snapshot.names, point, strict=True)}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Draw uniformly over the parameter's range, as for θ = 1."""
        check_single_objective(study)
        if _is_plain(param_distribution):
            return _value(self._noise(trial, param_name), param_distribution)
        return sample_uniformly(self.seed, study, trial, param_name, param_distribution)

    def _noise(self, trial: FrozenTrial, name: str) -> float:
        return float(np.random.default_rng(parameter_seed(self.seed, trial, name)).random())

    def _space(self, study: Study) -> dict[str, FloatDistribution]:
        """Return the parameters of p_θ, in the order of a point's coordinates."""
        check_single_objective(study)
        trials = complete_trials(study)
        return self._ordered(intersection_search_space(trials)) if trials else {}

    def _ordered(self, common: Mapping[str, BaseDistribution]) -> dict[str, FloatDistribution]:
        plain = {name: distribution for name, distribution in common.items() if _is_plain(distribution)}
        missing = [name for name in self.simplex if name not in plain]
        if missing:
            raise InvalidInput(
                "`simplex` must name floats without log or step that every complete trial has with the same range, "
                f"but got {', '.join(missing)}; the study has {', '.join(plain) or 'none'}."
            )
        needed = () if self.control is None else self.control.space.names
        missing = [name for name in needed if plain.get(name) != FloatDistribution(0.0, 1.0)]
        if missing:
            raise InvalidInput(
                "`control` must have a space whose coordinates every complete trial has as floats in [0, 1], "
                f"but got {', '.join(missing)}; the study has {', '.join(plain) or 'none'}."
            )
        return {name: plain[name] for name in [*self.simplex, *sorted(plain.keys() - set(self.simplex))]}

    def _snapshot(self, study: Study, space: Mapping[str, FloatDistribution], generation: int) -> Snapshot:
        """Return the distribution after one step from θ = 1 for every earlier generation."""
        sign = -1.0 if study.direction == StudyDirection.MAXIMIZE else 1.0
        state = State.uniform(Layout(simplex=len(self.simplex), boxed=len(space) - len(self.simplex)))
        usable = [trial for trial in complete_trials(study) if _is_usable(trial, space)]
        earlier = Observations((), ())
        for number, trials in groupby(usable, key=lambda trial: trial.number // self.generation_size):
            if number >= generation:
                break
            observed = _observations(list(trials), space, sign)
            state = self._after_step(state, tuple(space), number, observed, earlier)
            earlier = Observations(earlier.points + observed.points, earlier.values + observed.values)
        return Snapshot(tuple(space), state)

    def _after_step(
        self, state: State, names: tuple[str, ...], generation: int, observed: Observations, earlier: Observations
    ) -> State:
        """Return the state after the step of one generation, given the trials of all earlier generations."""
        if self.control is None:
            return advance(state, observed.points, observed.values, step=self.step, settings=self.settings)
        theta = _controlled_step(
            self.control,
            self.step,
            self.settings,
            state.layout,
            tuple(state.theta),
            names,
            generation,
            observed,
            earlier,
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
    observed: Observations,
    earlier: Observations,
) -> tuple[float, ...]:
    """Return θ after the step of one generation.

    The cache lets the trials of all later generations share one fit of the model. Its size is enough for the last ten
    generations of a hundred searches trained together.
    """
    state = State(layout, np.array(theta))
    predicted = control.predict(state, names, observed.points, generation=generation, earlier=earlier)
    return tuple(
        advance(state, observed.points, observed.values, step=step, settings=settings, control=predicted).theta
    )


def _observations(trials: Sequence[FrozenTrial], space: Mapping[str, FloatDistribution], sign: float) -> Observations:
    """Return the points and the values to be minimised of usable trials."""
    return Observations(
        tuple(tuple(_coordinate(trial.params[name], space[name]) for name in space) for trial in trials),
        tuple(sign * trial.values[0] for trial in trials),
    )


def _is_plain(distribution: BaseDistribution) -> TypeGuard[FloatDistribution]:
    """Whether a Beta distribution applies: a float with more than one value, neither log nor stepped."""
    return isinstance(distribution, FloatDistribution) and not (
        distribution.log or distribution.step is not None or distribution.single()
    )


def _is_usable(trial: FrozenTrial, space: Mapping[str, FloatDistribution]) -> bool:
    """Whether a complete trial can be used in a step: it has a finite value, and every parameter with its range."""
    return math.isfinite(trial.values[0]) and all(trial.distributions.get(name) == space[name] for name in space)


def _value(u: float, range_: FloatDistribution) -> float:
    return min(range_.low + float(u) * (range_.high - range_.low), range_.high)


def _coordinate(value: float, range_: FloatDistribution) -> float:
    return min(max((value - range_.low) / (range_.high - range_.low), 0.0), 1.0)
