"""The paper's search as an Optuna sampler, built on `relaxation`."""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from threading import Lock
from typing import Any, NamedTuple, TypeAlias, TypeGuard

import numpy as np
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.samplers import BaseSampler
from optuna.search_space import intersection_search_space
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial

from s2e.errors import InvalidInput, unknown_name
from s2e.samplers.control_variate import CurveControl, Observations
from s2e.samplers.one_thread import one_thread_for_products
from s2e.samplers.relaxation import STEPS, Layout, Settings, State, advance, transport
from s2e.samplers.study_view import (
    Trials,
    check_single_objective,
    complete_trials,
    parameter_seed,
    sample_uniformly,
)

CACHED_STATES = 4096
"""Distributions that are kept for later trials: the last forty generations of a hundred searches trained together."""


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The distribution of one generation, and the names of the parameters that are its coordinates, in order."""

    names: tuple[str, ...]
    state: State


class Generation(NamedTuple):
    """The usable trials of one generation, and a digest of them and of all earlier generations."""

    number: int
    observed: Observations
    digest: bytes


StateKey: TypeAlias = tuple[CurveControl | None, str, Settings, Layout, tuple[str, ...], bytes]
"""Everything that the state after a generation depends on; the digest stands for the trials."""


class StateCache:
    """The last `CACHED_STATES` states, so that a trial makes no more steps than have been added since the last one."""

    def __init__(self) -> None:
        self._states: OrderedDict[StateKey, State] = OrderedDict()
        self._lock = Lock()

    def get(self, key: StateKey) -> State | None:
        """Return a state, or None if it is not cached."""
        return self._states.get(key)

    def add(self, key: StateKey, state: State) -> None:
        """Add a state; the oldest is removed."""
        with self._lock:
            self._states[key] = state
            if len(self._states) > CACHED_STATES:
                self._states.popitem(last=False)

    def clear(self) -> None:
        """Remove all states."""
        with self._lock:
            self._states.clear()


states = StateCache()


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
        return self._ordered(_common_parameters(Trials(tuple(trials)))) if trials else {}

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
        trials = Trials(tuple(complete_trials(study)))
        generations = [
            each
            for each in _generations(trials, tuple(space.items()), self.generation_size, sign)
            if each.number < generation
        ]
        own = (self.control, self.step, self.settings, state.layout, tuple(space))
        steps = len(generations)
        while steps and (cached := states.get((*own, generations[steps - 1].digest))) is None:
            steps -= 1
        state = cached if steps and cached is not None else state
        for index in range(steps, len(generations)):
            state = self._after_step(state, tuple(space), generations, index)
            states.add((*own, generations[index].digest), state)
        return Snapshot(tuple(space), state)

    def _after_step(self, state: State, names: tuple[str, ...], generations: Sequence[Generation], index: int) -> State:
        """Return the state after the step of one generation, given the trials of all earlier generations."""
        number, observed, _ = generations[index]
        with one_thread_for_products():
            predicted = None
            if self.control is not None:
                earlier = Observations(
                    tuple(point for each in generations[:index] for point in each.observed.points),
                    tuple(value for each in generations[:index] for value in each.observed.values),
                )
                predicted = self.control.predict(state, names, observed.points, generation=number, earlier=earlier)
            return advance(
                state, observed.points, observed.values, step=self.step, settings=self.settings, control=predicted
            )


@lru_cache(maxsize=1)
def _common_parameters(trials: Trials) -> dict[str, BaseDistribution]:
    """Return the parameters that all trials have, computed once for all points of a generation."""
    return intersection_search_space(list(trials.trials))


@lru_cache(maxsize=1)
def _generations(
    trials: Trials, space: tuple[tuple[str, FloatDistribution], ...], size: int, sign: float
) -> list[Generation]:
    """Return the generations with usable trials, in order, computed once for all points of a generation."""
    ranges, generations, digest = dict(space), list[Generation](), b""
    usable = [trial for trial in trials.trials if _is_usable(trial, ranges)]
    for number, group in groupby(usable, key=lambda trial: trial.number // size):
        observed = _observations(list(group), ranges, sign)
        content = np.array([(*point, value) for point, value in zip(*observed, strict=True)]).tobytes()
        digest = hashlib.sha256(digest + number.to_bytes(8, "little") + content).digest()
        generations.append(Generation(number, observed, digest))
    return generations


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
