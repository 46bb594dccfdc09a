"""Optuna samplers built on the stochastic relaxation.

A sampler here keeps no state of its own: what it asks next is a function of its arguments and of the study's finished
trials, so a search that was killed goes on, from the same storage, with the point it would have asked.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeGuard

import numpy as np
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.search_space import intersection_search_space
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from s2e.errors import InvalidInput, unknown_name
from s2e.relaxation import STEPS, Layout, Settings, State, advance, transport
from s2e.spaces import Space
from s2e.surrogate import CurveModel, Floats, landmarks

CANDIDATES = 3000
"""Points of each kind, uniform and near good ones, among which the expected improvement is maximised."""
ELITE = 5
"""How many of the best points are looked around."""


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
    """

    def __init__(
        self,
        *,
        step: str = "newton",
        generation: int = 6,
        simplex: Sequence[str] = (),
        seed: int = 0,
        settings: Settings | None = None,
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
        if _is_plain(param_distribution):
            return _value(self._noise(trial, param_name), param_distribution)
        return _uniform(self.seed, study, trial, param_name, param_distribution)

    def _noise(self, trial: FrozenTrial, name: str) -> float:
        return float(np.random.default_rng(_seeds(self.seed, trial, name)).random())

    def _space(self, study: Study) -> dict[str, FloatDistribution]:
        """The parameters p_θ is about, in the order of a point's coordinates."""
        _check_single_objective(study)
        trials = _complete(study)
        return self._ordered(intersection_search_space(trials)) if trials else {}

    def _ordered(self, common: Mapping[str, BaseDistribution]) -> dict[str, FloatDistribution]:
        plain = {name: given for name, given in common.items() if _is_plain(given)}
        missing = [name for name in self.simplex if name not in plain]
        if missing:
            raise InvalidInput(
                "`simplex` must name floats, without log or step, that every complete trial has with the same range, "
                f"but got {', '.join(missing)}; such floats of the study are {', '.join(plain) or 'none'}."
            )
        return {name: plain[name] for name in [*self.simplex, *sorted(plain.keys() - set(self.simplex))]}

    def _snapshot(self, study: Study, space: Mapping[str, FloatDistribution], generation: int) -> Snapshot:
        """θ = 1 moved by one step for every generation before the given one."""
        sign = -1.0 if study.direction == StudyDirection.MAXIMIZE else 1.0
        state = State.uniform(Layout(simplex=len(self.simplex), boxed=len(space) - len(self.simplex)))
        usable = [trial for trial in _complete(study) if _is_usable(trial, space)]
        for earlier, told in groupby(usable, key=lambda trial: trial.number // self.generation):
            if earlier >= generation:
                break
            together = list(told)
            points = [[_coordinate(trial.params[name], given) for name, given in space.items()] for trial in together]
            values = [sign * trial.values[0] for trial in together]
            state = advance(state, points, values, step=self.step, settings=self.settings)
        return Snapshot(tuple(space), state)


class CurveSampler(BaseSampler):
    """Models the score as a function of the decoded curve and asks where the expected improvement is largest.

    The first trials are uniform draws. From then on a Gaussian process over the curves of all complete trials is
    maximised over uniform candidates and over neighbours of the points it holds best. Trials asked but not told yet
    count as scored just as predicted, so that the points of one generation differ. Like the others here, it keeps no
    state: what it asks follows from the study and its arguments.

    Args:
        space: decodes points into curves; its coordinates are the parameters of the study, floats in [0, 1].
        epochs: T, of the trainings that are scored.
        seed: of this trial's draws.
        startup: trials to complete before there is a model.
    """

    def __init__(self, space: Space, epochs: int, *, seed: int = 0, startup: int = 12) -> None:
        if seed < 0:
            raise InvalidInput(f"`seed` must be at least 0, but got {seed}.")
        if startup < 2:
            raise InvalidInput(f"`startup` must be at least 2, but got {startup}: a model needs something to go by.")
        self.space = space
        self.epochs = epochs
        self.seed = seed
        self.startup = startup

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:  # noqa: ARG002
        """Every coordinate of the space, known from the first trial on."""
        _check_single_objective(study)
        return {name: FloatDistribution(0.0, 1.0) for name in self.space.names}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """One point: uniform at first, then the candidate with the largest expected improvement."""
        generator = np.random.default_rng(np.random.SeedSequence([self.seed, trial.number]))
        told = [one for one in _complete(study) if math.isfinite(one.values[0]) and self._has_point(one)]
        if len(told) < self.startup:
            point = generator.random(self.space.dimension)
        else:
            running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
            point = self._best_candidate(study, told, [one for one in running if self._has_point(one)], generator)
        return {name: float(u) for name, u in zip(self.space.names, point, strict=True) if name in search_space}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Parameters outside the space are drawn uniformly."""
        return _uniform(self.seed, study, trial, param_name, param_distribution)

    def _best_candidate(
        self, study: Study, told: list[FrozenTrial], running: list[FrozenTrial], generator: np.random.Generator
    ) -> Floats:
        sign = -1.0 if study.direction == StudyDirection.MAXIMIZE else 1.0
        points = self._points(told)  # (n, D)
        model = CurveModel(self._curves(points), np.array([sign * one.values[0] for one in told]))
        good = points[np.argsort(model.predict(self._curves(points))[0])[:ELITE]]  # (ELITE, D)
        if running:
            model = model.given(self._curves(self._points(running)))
        candidates = np.concatenate(
            [generator.random((CANDIDATES, self.space.dimension)), _neighbours(good, generator)]
        )
        best: Floats = candidates[model.expected_improvement(self._curves(candidates)).argmax()]
        return best

    def _points(self, trials: list[FrozenTrial]) -> Floats:
        return np.array([[trial.params[name] for name in self.space.names] for trial in trials])

    def _curves(self, points: Floats) -> Floats:
        return self.space.decode(points, self.epochs, at=landmarks(self.epochs))

    def _has_point(self, trial: FrozenTrial) -> bool:
        return all(name in trial.params for name in self.space.names)


def _neighbours(points: Floats, generator: np.random.Generator) -> Floats:
    """Candidates near the given points: a few coordinates of each moved, by a little or by more."""
    near = points[generator.integers(0, len(points), CANDIDATES)]  # (CANDIDATES, D)
    reach = generator.choice([0.02, 0.05, 0.1, 0.2], size=(CANDIDATES, 1))
    moved = generator.random(near.shape) < 0.4
    return np.asarray(np.clip(near + moved * reach * generator.normal(size=near.shape), 0.0, 1.0))


def _check_single_objective(study: Study) -> None:
    if len(study.directions) > 1:
        raise InvalidInput(f"`study` must have one objective, but got {len(study.directions)}: average or choose.")


def _seeds(seed: int, trial: FrozenTrial, name: str) -> np.random.SeedSequence:
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()  # `hash` differs between processes
    return np.random.SeedSequence([seed, trial.number, int.from_bytes(digest, "little")])


def _uniform(seed: int, study: Study, trial: FrozenTrial, name: str, given: BaseDistribution) -> Any:
    """Draw one parameter uniformly, from a stream of its own."""
    own = int(_seeds(seed, trial, name).generate_state(1)[0])
    return RandomSampler(seed=own).sample_independent(study, trial, name, given)


def _complete(study: Study) -> list[FrozenTrial]:
    trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return sorted(trials, key=lambda trial: trial.number)


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


SamplerFactory = Callable[[int], BaseSampler]
"""Builds the sampler that asks one trial, from the seed of that trial."""

OPTUNA_SAMPLERS: dict[str, SamplerFactory] = {
    "random": lambda seed: RandomSampler(seed=seed),
    "tpe": lambda seed: TPESampler(seed=seed, constant_liar=True),
}


def sampler(name: str, space: Space, epochs: int, generation: int) -> SamplerFactory:
    """Return what builds the samplers of a search: ours by step, the curve model, or one of Optuna's."""
    if name in OPTUNA_SAMPLERS:
        build = OPTUNA_SAMPLERS[name]
        return lambda seed: build(seed % 2**32)  # Optuna's take 32 bits
    if name == "curve":
        return lambda seed: CurveSampler(space, epochs, seed=seed)
    if name not in STEPS:
        raise unknown_name("sampler", name, [*STEPS, "curve", *OPTUNA_SAMPLERS])
    RelaxationSampler(step=name, generation=generation, simplex=space.simplex)  # bad arguments are refused here
    return lambda seed: RelaxationSampler(step=name, generation=generation, simplex=space.simplex, seed=seed)
