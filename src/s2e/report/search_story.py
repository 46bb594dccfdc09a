"""How a search went: its trials against what they cost, and how the schedules it tried drew together.

The second works for every sampler: the points that were asked are decoded to schedules, and the spread of a group of
consecutive trials is what a distribution over schedules looked like at that time.

Letters: n trials, G groups, D dimensions of the space, T epochs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import sqlalchemy
import sqlalchemy.exc
from numpy.typing import NDArray
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState

from s2e.errors import first_line
from s2e.runs.directory import Run
from s2e.schedules.spaces import space
from s2e.studies.loop import FINISHED, TRAINED

Floats = NDArray[np.float64]

FEWEST_IN_A_GROUP = 4
"""Fewer schedules say little about how far apart they lie: smaller generations are looked at together."""

LONGEST_WAIT_S = 10
"""For a server that holds a study; a report can do without."""

_TAKE_A_TIMEOUT = ("psycopg2", "psycopg", "pymysql", "mysqldb")
"""Drivers of databases that take `connect_timeout`, in seconds."""


@dataclass(frozen=True)
class Tried:
    """One trial: what the search had cost after it, in full trainings, and its validation accuracy when it ended."""

    number: int
    spent: float
    accuracy: float
    stopped: bool


@dataclass(frozen=True, eq=False)
class Group:
    """Consecutive trials: which, and the schedules they tried.

    Attributes:
        first: number of the first generation, from 1.
        last: number of the last.
        schedules: (n, T).
    """

    first: int
    last: int
    schedules: Floats

    @property
    def title(self) -> str:
        """Say which generations these are."""
        return f"Generation {self.first}" if self.first == self.last else f"Generations {self.first} to {self.last}"

    @property
    def mean(self) -> Floats:
        """(T,)."""
        return np.asarray(self.schedules.mean(axis=0))

    @property
    def deviation(self) -> Floats:
        """(T,) standard deviation over the group."""
        return np.asarray(self.schedules.std(axis=0))

    @property
    def spread(self) -> float:
        """Root mean square of the deviation over the epochs: sqrt(1/T Σ_t σ(t)²)."""
        return float(np.sqrt((self.deviation**2).mean()))


@dataclass(frozen=True, eq=False)
class SearchStory:
    """How one search went.

    Attributes:
        title: which search of several; "" where there is one.
        tried: its finished trials, in order.
        chosen: number of the trial whose schedule was chosen; None where none is yet.
        groups: its schedules, in order of time.
        problem: why there is nothing to tell; "" where there is.
    """

    title: str
    tried: tuple[Tried, ...] = ()
    chosen: int | None = None
    groups: tuple[Group, ...] = ()
    problem: str = ""

    @property
    def best_so_far(self) -> Floats:
        """(n,) best accuracy of a trial trained to the end so far; NaN before the first."""
        accuracies = [np.nan if one.stopped else one.accuracy for one in self.tried]
        return np.asarray(np.fmax.accumulate(accuracies)) if accuracies else np.empty(0)

    @property
    def phases(self) -> tuple[Group, ...]:
        """The first group, the one in the middle and the last, as far as there are so many."""
        places = sorted({0, (len(self.groups) - 1) // 2, len(self.groups) - 1}) if self.groups else []
        return tuple(self.groups[place] for place in places)


def search_story(run: Run, config: Mapping[str, Any], study: str, title: str) -> SearchStory:
    """Read the study of a search; one that cannot be read costs its story and nothing else."""
    storage = config.get("storage") or run.storage
    try:
        trials = read_trials(storage, study)
    except (sqlalchemy.exc.SQLAlchemyError, optuna.exceptions.OptunaError, OSError, ImportError, ValueError) as problem:
        shown = sqlalchemy.make_url(storage).render_as_string(hide_password=True) if "://" in storage else storage
        return SearchStory(title, problem=f"The study at {shown} could not be read: {first_line(problem)}")
    finished = [trial for trial in trials if trial.state in FINISHED]
    if not finished:
        return SearchStory(title, problem="No schedule has been trained to the end yet.")
    options = config["options"]
    result = run.read_json("result.json") if (run.path / "result.json").exists() else {}
    return SearchStory(
        title,
        tried=_tried(finished, options["epochs"]),
        chosen=_chosen(result.get("search"), study),
        groups=_groups(finished, options),
    )


def read_trials(storage: str, study: str) -> list[FrozenTrial]:
    """Return the trials of a study by number, without making a study or a file where there is none."""
    url = sqlalchemy.make_url(storage)
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").is_file():
        raise FileNotFoundError("there is no such file.")
    waiting = {"connect_timeout": LONGEST_WAIT_S} if url.get_driver_name() in _TAKE_A_TIMEOUT else {}
    opened = RDBStorage(storage, engine_kwargs={"connect_args": waiting})
    try:
        trials = optuna.load_study(study_name=study, storage=opened).get_trials(deepcopy=False)
    except KeyError:
        raise ValueError(f"it holds no study {study!r}.") from None
    finally:
        opened.remove_session()
        opened.engine.dispose()
    return sorted(trials, key=lambda trial: trial.number)


def _chosen(searched: Any, study: str) -> int | None:
    """Find the trial that was chosen in the result of a search, or of a comparison with several."""
    if isinstance(searched, Mapping):
        return int(searched["best_trial"])
    for one in searched or ():
        if study.endswith(f"/{one['noise']}/{one['method']}"):
            return int(one["best_trial"])
    return None


def _tried(trials: Sequence[FrozenTrial], epochs: int) -> tuple[Tried, ...]:
    spent, found = 0.0, []
    for trial in trials:
        by_epoch = trial.user_attrs.get(TRAINED, [])
        spent += (len(by_epoch) or epochs) / epochs
        stopped = trial.state == TrialState.PRUNED
        if stopped and not by_epoch:
            continue
        found.append(Tried(trial.number, spent, by_epoch[-1] if stopped else 1.0 - trial.values[0], stopped))
    return tuple(found)


def _groups(trials: Sequence[FrozenTrial], options: Mapping[str, Any]) -> tuple[Group, ...]:
    """Part the trials into groups of whole generations; a last one that is far too small joins the one before."""
    family, size = space(options["space"]), int(options["generation"])
    together = -(-FEWEST_IN_A_GROUP // size)  # generations in a group
    points = np.array([[trial.params[name] for name in family.names] for trial in trials])  # (n, D)
    schedules = family.decode(points, options["epochs"])  # (n, T)
    generations = np.array([trial.number // size for trial in trials])
    members = [np.flatnonzero(generations // together == group) for group in np.unique(generations // together)]
    if len(members) > 1 and 2 * len(members[-1]) < len(members[-2]):
        members[-2:] = [np.concatenate(members[-2:])]
    return tuple(Group(int(generations[at[0]]) + 1, int(generations[at[-1]]) + 1, schedules[at]) for at in members)
