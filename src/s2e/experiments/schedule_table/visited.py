"""Points that all samplers of earlier comparisons visited on real trainings: not the choice of one sampler's model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from optuna.trial import FrozenTrial

from s2e.errors import InvalidInput, UnreadableData
from s2e.experiments.samplers import is_table, sampler_names
from s2e.experiments.schedule_table.table import round_points
from s2e.runs import Run, all_options, read_configuration
from s2e.schedules import Space, space
from s2e.specs import PAPER_NOISES, SamplersOptions, assemble
from s2e.studies import FINISHED, point_of, read_trials

Floats = NDArray[np.float64]

COMMAND = "reproduce searchers"


def visited_points(runs: Sequence[str], name: str) -> Floats:
    """Return the distinct points of all finished trials of some runs, (v, D), in the order of runs, studies and trials.

    Args:
        runs: directories of `s2e reproduce searchers --on DATA`.
        name: of the space, which must be that of the runs.
    """
    searched = space(name)
    found = [point for run in runs for point in _points(Run(Path(run)), name, searched)]
    points = round_points(np.array(found).reshape(-1, searched.dimension))
    _, first = np.unique(points, axis=0, return_index=True)
    return points[np.sort(first)]


def _points(run: Run, name: str, searched: Space) -> Iterator[Floats]:
    """Yield the points of all finished trials of a run, by study and number."""
    where = str(run.path)
    if not run.exists:
        raise InvalidInput(f"`visited` must name runs of `s2e {COMMAND}`, but got {where!r}: there is no run.")
    config = read_configuration(run)
    if config["command"] != COMMAND:
        raise InvalidInput(f"`visited` must name runs of `s2e {COMMAND}`, but got {where!r} of {config['command']!r}.")
    options = assemble(SamplersOptions, all_options(run, config))
    if is_table(options.on):
        raise InvalidInput(f"`visited` must name runs on data, but got {where!r} on a table of schedules.")
    if options.search.space != name:
        raise InvalidInput(f"`visited` must name runs in the space {name!r}, but got {where!r} in another.")
    for study in product(sampler_names(options), options.noises or PAPER_NOISES, map(str, range(options.repeats))):
        yield from (point_of(trial, searched) for trial in _trials(run, "/".join(study)))


def _trials(run: Run, study: str) -> list[FrozenTrial]:
    """Return the finished trials of one study of a run."""
    try:
        return [trial for trial in read_trials(run.storage, study) if trial.state in FINISHED]
    except UnreadableData as problem:
        raise UnreadableData(f"the study of the run {str(run.path)!r} could not be read: {problem}") from problem
