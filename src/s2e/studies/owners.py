"""Owners of running trials: which process trains a trial, and whether it is still alive.

Processes that share a study train different trials. The trials of a process that has ended are taken over: at once if
it was on this machine, otherwise when its heartbeat is old.
"""

from __future__ import annotations

import functools
import itertools
import os
import platform
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import optuna
import sqlalchemy.exc
from optuna.trial import FrozenTrial, TrialState

from s2e.studies.optuna_internals import is_in_memory, owner_of, record_heartbeats, stale_trials, take_over

HEARTBEAT_SECONDS = 20.0
"""Time between two heartbeats of a process."""

GRACE_SECONDS = 120.0
"""Age of a heartbeat after which its process is assumed to have ended."""

_COUNT = itertools.count()
_ACTIVE: set[str] = set()
"""Names of the owners in this process that have not ended."""


class Owner:
    """The owner of the trials that one call of `run_generations` trains.

    Attributes:
        name: identifies machine, process and call.
    """

    def __init__(self) -> None:
        process = os.getpid()
        self.name = "/".join([_machine(), str(process), _start_time(process) or "", str(next(_COUNT))])
        self._trials: dict[int, tuple[optuna.Study, list[FrozenTrial]]] = {}  # in training, by index of the search
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def take_over(self, study: optuna.Study, trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
        """Become the owner of the running trials without one, and of those whose owner has ended; return them."""
        running = [trial for trial in trials if trial.state == TrialState.RUNNING and owner_of(trial) != self.name]
        names = {name for trial in running if (name := owner_of(trial)) is not None}
        ended = {name for name in names if has_ended(name)}
        stale = stale_trials(study, GRACE_SECONDS) if names - ended else set()
        free = [
            trial for trial in running if owner_of(trial) is None or owner_of(trial) in ended or trial.number in stale
        ]
        return [trial for trial in free if take_over(study, trial, self.name)]

    def keep(self, search: int, study: optuna.Study, trials: Sequence[FrozenTrial]) -> None:
        """Record heartbeats of these trials, in the place of the earlier ones of the search with this index."""
        with self._lock:
            self._trials[search] = study, list(trials)
        if trials and not is_in_memory(study) and not self._thread.is_alive():
            self._thread.start()

    def _beat(self) -> None:
        while not self._ended.wait(HEARTBEAT_SECONDS):
            with self._lock:
                kept = [(study, trials) for study, trials in self._trials.values() if trials]
            for study, trials in kept:
                with suppress(sqlalchemy.exc.SQLAlchemyError):  # raised again when the trials are told
                    record_heartbeats(study, trials)

    def _end(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()


@contextmanager
def owner_of_trials() -> Iterator[Owner]:
    """Yield an owner whose heartbeats are recorded while the body runs."""
    owner = Owner()
    _ACTIVE.add(owner.name)
    try:
        yield owner
    finally:
        _ACTIVE.discard(owner.name)
        owner._end()


def trials_of_others(study: optuna.Study) -> int:
    """Return the number of running trials, when this process trains none."""
    return len(study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)))


def has_ended(name: str) -> bool:
    """Return whether the process of an owner on this machine has ended; False where this cannot be known."""
    machine, _, rest = name.partition("/")
    process, _, started = rest.rpartition("/")[0].partition("/")
    if machine != _machine() or not process.isdecimal():
        return False
    if int(process) == os.getpid():
        return name not in _ACTIVE
    return _start_time(int(process)) != (started or None) if started else not _exists(int(process))


@functools.cache
def _machine() -> str:
    """Return a name that is equal for two processes only if they see each other's numbers."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}:{os.readlink('/proc/self/ns/pid')}"
    except OSError:  # not Linux
        return platform.node().replace("/", "-")


def _start_time(process: int) -> str | None:
    """Return when a process started, in ticks since the machine did; None if it has ended, or not on Linux."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
    return None if fields[0] in "ZX" else fields[19]  # a killed process stays as a zombie until its parent reads it


def _exists(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
