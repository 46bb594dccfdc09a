"""The time of a search: expected before it begins, from a short measurement, and ended within a budget.

A search trains generations, then the final classifier. It keeps a budget by beginning a generation only if this and the
final training can still finish.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from s2e.audit.relabelling import ASSUMED_NOISE_RATES
from s2e.data import LabelledData
from s2e.engine import EpochFinished, FinalTraining, Member, Task, epoch_seconds, stages_needed
from s2e.errors import InvalidInput, counted
from s2e.methods import Coteaching
from s2e.specs import short_time
from s2e.studies import GenerationFinished, SearchPlan
from s2e.workflows.progress import ProgressListener

LONG_SECONDS = 10.0
"""Expected time from which a line says how long the work will take."""

MARGIN = 1.1
"""Factor on the expected time of a generation and the final training, which vary."""

PROPOSED_BUDGETS = (10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 18000, 36000)
"""Seconds that are proposed as a budget."""


@dataclass(frozen=True)
class Advice:
    """How a caller writes the arguments that shorten a search; "{}" is the value."""

    time_budget: str
    trials: str
    epochs: str


OPTIONS = Advice("`--time-budget {}`", "`--trials {}`", "`--epochs {}`")
"""On the command line."""

ARGUMENTS = Advice('`time_budget="{}"`', "`trials={}`", "`epochs={}`")
"""In Python."""


@dataclass(frozen=True)
class PopulationTimes:
    """Expected seconds of the populations that a search trains one after the other.

    Attributes:
        generation: of a generation.
        final: of the final training; 0 without one.
        relabelling: of the population that relabels the validation part; 0 without one.
        measured: whether these are seconds. If not, only their ratios have a meaning; see `can_be_timed`.
    """

    generation: float
    final: float = 0.0
    relabelling: float = 0.0
    measured: bool = True

    @property
    def shortest(self) -> float:
        """Seconds of a search with one generation."""
        return self.relabelling + self.generation + self.final


def population_times(
    task: Task,
    plan: SearchPlan,
    *,
    relabel: bool = False,
    trainings: Sequence[FinalTraining] = (),
    test: LabelledData | None = None,
) -> PopulationTimes:
    """Measure the populations of a search, each on a few steps.

    Args:
        task: data, network and method of the search.
        plan: its generation size.
        relabel: whether the validation part is relabelled before.
        trainings: the final trainings.
        test: test part that these evaluate.
    """

    def members(method: FinalTraining) -> list[Member]:
        return method.members(plan.learning_rate, plan.seed)

    keep_all = np.ones(task.epochs)
    generation = FinalTraining("generation", task.method, keep_all, plan.generation_size)
    pairs = FinalTraining("relabelling", Coteaching(), keep_all, len(ASSUMED_NOISE_RATES) if relabel else 0)
    tested = task if test is None else replace(task, evaluate={**task.evaluate, "test": test})
    return PopulationTimes(
        population_seconds(task, members(generation)),
        population_seconds(tested, [member for training in trainings for member in members(training)]),
        population_seconds(task, members(pairs)),
        measured=can_be_timed(task),
    )


def can_be_timed(task: Task) -> bool:
    """Return whether a few steps tell how long a training takes: not where an executor trains, nor on a GPU.

    There the steps of a training are compiled, and compiling them for a measurement takes as long as many epochs.
    """
    return task.executor is None and task.device.type == "cpu"


def population_seconds(task: Task, members: Sequence[Member]) -> float:
    """Return the expected seconds of a training of a population, measured on a few steps; 0 without members.

    Where it cannot be timed, nothing is measured, and the number of networks is returned.
    """
    if not members:
        return 0.0
    if not can_be_timed(task):
        return float(sum(task.method_of(member).networks for member in members))
    return epoch_seconds(task, members) * task.epochs * stages_needed(task, members)


def expected_time(seconds: float, device: torch.device, less: Sequence[str] = ()) -> str | None:
    """Return a line about the time that something will take; None if that is short.

    Args:
        seconds: the expected time.
        device: device of the training.
        less: options that make it shorter.
    """
    if seconds < LONG_SECONDS:
        return None
    shorter = f"; {' or '.join(less)} for less" if less else ""
    return f"about {in_words(seconds)} on {_device_in_words(device)}{shorter}"


class SearchTime:
    """The time that a search is expected to take, and the time that it may take.

    Args:
        times: expected seconds of its populations.
        device: device of the training.
        budget: seconds that it may take in all; None for any time.
        began: when it began, by `time.monotonic`.
        advice: how the caller writes arguments.
    """

    def __init__(
        self,
        times: PopulationTimes,
        device: torch.device,
        *,
        budget: float | None,
        began: float,
        advice: Advice = ARGUMENTS,
    ) -> None:
        self._times, self._device, self._budget, self._advice = times, device, budget, advice
        self._deadline = None if budget is None else began + budget

    def check(self, epochs: int) -> None:
        """Refuse a budget in which not even one generation and the final training can finish."""
        needed = self._times.shortest
        if self._deadline is None or not self._times.measured or time.monotonic() + needed <= self._deadline:
            return
        left = max(0.0, self._deadline - time.monotonic())
        fewer = self._advice.epochs.format(max(1, int(epochs * left / (MARGIN * needed))))
        final = " and the final training" if self._times.final else ""
        raise InvalidInput(
            f"`time_budget` must be enough for one generation{final}, about {in_words(needed)}, but got "
            f"{short_time(self._budget or 0.0)}; give more time, or fewer epochs, as in {fewer}."
        )

    def line(self, plan: SearchPlan, generations: int) -> str | None:
        """Return a line about the expected time; None if it is short or unknown.

        Args:
            plan: plan of the search.
            generations: number of generations still to train.
        """
        times, size = self._times, plan.generation_size
        total = times.relabelling + generations * times.generation + times.final
        if not times.measured:
            return None
        if self._budget is not None:
            line = expected_time(total, self._device)
            return f"{line}, at most {short_time(self._budget)}" if line and total > self._budget else line
        shorter = [seconds for seconds in PROPOSED_BUDGETS if MARGIN * times.shortest <= seconds <= total / 2]
        less = [self._advice.time_budget.format(short_time(shorter[-1]))] if shorter else []
        if generations > 2:
            less.append(self._advice.trials.format(size * max(2, generations // 5)))
        return expected_time(total, self._device, less)

    def is_enough_for(self, seconds: float) -> bool:
        """Return whether something that takes so long can still finish."""
        return self._deadline is None or time.monotonic() + MARGIN * seconds <= self._deadline

    def limited(self, listener: ProgressListener) -> LimitedListener:
        """Return a listener that ends the search in time."""
        return LimitedListener(listener, self._times, self._deadline)


class LimitedListener:
    """Passes the progress on, and ends a search if another generation and the final training would end too late.

    Attributes:
        stopped: whether it did, before all trials were trained.
    """

    def __init__(self, listener: ProgressListener, times: PopulationTimes, deadline: float | None) -> None:
        self._listener, self._times, self._deadline = listener, times, deadline
        self._generation_began = time.monotonic()
        self.stopped = False

    @property
    def has_time(self) -> bool:
        """Whether a generation and the final training can finish in time, as far as is known."""
        known = self._times.measured
        return not known or self._finishes_in_time(self._times.generation)

    def stage(self, name: str, epochs: int) -> None:
        """Pass a stage on."""
        self._generation_began = time.monotonic()
        self._listener.stage(name, epochs)

    def epoch(self, progress: EpochFinished) -> None:
        """Pass an epoch on."""
        self._listener.epoch(progress)

    def generation(self, done: GenerationFinished) -> bool | None:
        """Pass a generation on; return True if there is no time for another one, of the same duration."""
        now = time.monotonic()
        seconds, self._generation_began = now - self._generation_began, now
        stop = self._listener.generation(done)
        if done.finished < done.trials and not self._finishes_in_time(seconds):
            self.stopped = stop = True
        return stop

    def note(self, text: str) -> None:
        """Pass a message on."""
        self._listener.note(text)

    def _finishes_in_time(self, generation: float) -> bool:
        if self._deadline is None:
            return True
        final = generation * self._times.final / self._times.generation
        return time.monotonic() + MARGIN * (generation + final) <= self._deadline


def in_words(seconds: float) -> str:
    """Return a duration as in "50 s", "9 min" or "2.5 h"."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


def _device_in_words(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return counted(torch.get_num_threads(), "core") if device.type == "cpu" else str(device)
