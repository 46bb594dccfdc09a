"""The session of a command on a run directory: checked before data are loaded, created or resumed afterwards."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import optuna
import torch

from s2e._version import __version__
from s2e.engine import Checkpoints
from s2e.errors import InvalidInput, RunConflict, UnreadableData, listed
from s2e.runs.configuration import read_configuration
from s2e.runs.directory import CHECKPOINTS, CONFIG, RESULT, Run
from s2e.specs import AUTO, LOCAL, Execution, assemble, flatten
from s2e.studies import (
    DATA_FINGERPRINT,
    absolute,
    check_storage,
    differences,
    holds_study,
    open_study,
    same_place,
    storage_faults,
    with_password_of_the_environment,
    without_password,
)

Options = TypeVar("Options")

CHOSEN_BY_THE_FIRST_SESSION = {
    "network": AUTO,
    "generation_size": AUTO,
    "trials": None,
    "epochs": None,
    "batch_size": None,
}
"""Options that the first session may choose, with the value that requests this."""


@dataclass(frozen=True)
class RunLocation:
    """Directories, devices and storage of a command; none of them changes its result beyond rounding.

    Attributes:
        out: the run directory.
        root: directory of the data sets.
        device: cpu, cuda, …, or auto; several separated by commas.
        storage: URL of the studies; None for a database in the run directory.
        memory: bytes that a population may use; None for those that are free.
        study_name: name of the study at a storage; None for that of the run directory.
        executor: what trains; see `Execution`.
        ray_address: address of a running Ray cluster; None to start one.
    """

    out: Path
    root: Path = Path("data")
    device: str = "auto"
    storage: str | None = field(default=None, repr=False)  # may hold a password
    memory: int | None = None
    study_name: str | None = None
    executor: str = LOCAL
    ray_address: str | None = None

    @property
    def execution(self) -> Execution:
        """Where members are trained."""
        return Execution(self.device, self.executor, self.ray_address)

    @property
    def checkpoints(self) -> Checkpoints:
        """Where the states of populations in training are written."""
        return Checkpoints(self.out / CHECKPOINTS)


class Session(Generic[Options]):
    """One execution of a command that makes or resumes a run.

    Creating a session checks everything that can be checked without data: it refuses a directory that is in use, a
    storage that cannot be opened, and a run of another command or with other options.

    Args:
        command: name of the command.
        options: its options; those in `MUTABLE_ON_RESUME` of their class may differ from the resumed run's.
        location: its directories, device and storage.
        resume: whether the run may exist already.

    Attributes:
        options: the options, with the choices of the first session of the run.
    """

    def __init__(self, command: str, options: Options, location: RunLocation, *, resume: bool = False) -> None:
        self.command, self.options, self.location = command, options, location
        self._began = time.monotonic()
        self._before: Mapping[str, Any] | None = None
        if location.study_name is not None and location.storage is None:
            raise InvalidInput(f"`study` must be used with `storage`, but got {location.study_name!r} and no storage.")
        if location.storage:
            self.location = replace(location, storage=absolute(with_password_of_the_environment(location.storage)))
        if resume and Run(location.out).exists:
            self._before = read_configuration(Run(location.out))
            self.options = self._adopted()
            self._refuse(self._differences())
            Run(location.out).check_own_files()
            self._check_same_storage()
        else:
            Run(location.out).check_new()
        if self.location.storage:
            check_storage(self.location.storage)

    @contextmanager
    def start(self, about: Mapping[str, Any], options: Options | None = None) -> Iterator[Run]:
        """Create the run, or open it again if the data are the same; lock it while the body runs.

        Args:
            about: further entries of the configuration, `data_fingerprint` among them.
            options: the options with all choices, if the command made some.
        """
        self.options = self.options if options is None else options
        config = self._configuration(about)
        self._run = run = Run(self.location.out)
        if self._before is not None:
            data = {DATA_FINGERPRINT: config[DATA_FINGERPRINT]}
            self._refuse(differences({DATA_FINGERPRINT: self._stored(DATA_FINGERPRINT)}, data))
            config |= {name: self._stored(name) for name in ("study", "versions")}
        self._storage, self._study_name = self.location.storage or run.storage, config["study"]
        self._fingerprint = config[DATA_FINGERPRINT]
        with run.created() if self._before is None else run.locked(), storage_faults():
            run.mark_unfinished()
            run.write_json(CONFIG, config)
            try:
                yield run
            except RunConflict:  # the study at the storage has other settings
                if self._before is None:
                    run.discard_if_empty()
                raise

    def _new_study_name(self) -> str:
        """Return the name of the study of a new run: at a storage, other runs have studies too."""
        if self.location.storage is None:
            return self.command
        return self.location.study_name or self.location.out.resolve().name

    def study(self, *path: str) -> optuna.Study:
        """Open a study of the run, which must have been begun with the same data and options.

        The data are identified by their fingerprint, not by their paths, which may differ on another machine.
        """
        name = "/".join([self._study_name, *path])
        settings = {**self._fixed(self.settings), DATA_FINGERPRINT: self._fingerprint}
        for file in ("data", "reviewed"):
            settings.pop(file, None)
        return open_study(self._storage, name, settings, exclusive=self.location.storage is None)

    def finish(
        self, result: Mapping[str, Any], device: torch.device, write_files: Callable[[], object] = lambda: None
    ) -> Run:
        """Write the result of the command, with device and seconds since the session began; remove checkpoints.

        Args:
            result: content of `result.json`; its own `device` and `seconds` are kept.
            device: where it was computed.
            write_files: writes the other files of the result, which are committed together with it.
        """
        with self._run.committed_together():
            write_files()
            self._run.write_json(RESULT, {**self.made_on(device), **result})
        self.location.checkpoints.clear()
        return self._run

    def made_on(self, device: torch.device) -> dict[str, Any]:
        """Return the name of the device, and the seconds since the session began."""
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
        return {"device": name, "seconds": round(self.seconds, 1)}

    @property
    def resumed(self) -> bool:
        """Whether the run existed before this session."""
        return self._before is not None

    @property
    def seconds(self) -> float:
        """Seconds since the session began."""
        return time.monotonic() - self._began

    @property
    def settings(self) -> dict[str, Any]:
        """The options by name, as JSON stores them."""
        flat: dict[str, Any] = json.loads(json.dumps(flatten(self.options)))
        return flat

    @property
    def versions(self) -> dict[str, str]:
        """Versions of this package and of those that its results depend on."""
        return {
            "s2e": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "optuna": optuna.__version__,
            "numpy": np.__version__,
        }

    def _configuration(self, about: Mapping[str, Any]) -> dict[str, Any]:
        location = self.location
        return {
            "command": self.command,
            "options": self.settings,
            **about,
            "data_root": str(location.root),
            "device": location.device,
            "storage": None if location.storage is None else without_password(location.storage),
            "executor": location.executor,
            "ray_address": location.ray_address,
            "study": self._new_study_name(),
            "versions": self.versions,
        }

    def _adopted(self) -> Options:
        """Return the options with the choices of the first session of the run."""
        before, now = self._stored("options"), flatten(self.options)
        chosen = {
            name: before[name]
            for name, undecided in CHOSEN_BY_THE_FIRST_SESSION.items()
            if name in now and now[name] == undecided and name in before
        }
        return assemble(type(self.options), {**now, **chosen})

    def _differences(self) -> list[str]:
        """Return how this command differs from the one that made the run."""
        if self._stored("command") != self.command:
            return [f"it was made by s2e {self._stored('command')}"]
        found = differences(self._fixed(self._stored("options")), self._fixed(self.settings))
        if self.location.study_name not in (None, self._stored("study")):
            found.append(f"study was {self._stored('study')!r} and is now {self.location.study_name!r}")
        return found

    def _check_same_storage(self) -> None:
        """Raise an error if the study of a resumed run is at another storage, where an empty one would begin."""
        before, now = (self._before or {}).get("storage"), self.location.storage
        if before == now or (before and now and same_place(before, now)):
            return
        study = self._stored("study")
        if now is None or not holds_study(now, study):
            shown, was = ("its own database" if url is None else repr(without_password(url)) for url in (now, before))
            raise RunConflict(
                f"`storage` must hold the study {study!r} of {str(self.location.out)!r}, which was begun in {was}, but "
                f"got {shown}, which has no such study."
            )

    def _fixed(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings that must not change when the run is resumed."""
        mutable: frozenset[str] = getattr(self.options, "MUTABLE_ON_RESUME", frozenset())
        return {name: value for name, value in settings.items() if name not in mutable}

    def _stored(self, name: str) -> Any:
        try:
            value = (self._before or {})[name]
            return dict(value) if name == "options" else value
        except (KeyError, TypeError, ValueError) as problem:
            path = str(self.location.out / CONFIG)
            raise UnreadableData(f"{path!r} is not the configuration of a run: {problem!r}.") from problem

    def _refuse(self, differences: list[str]) -> None:
        if differences:
            raise RunConflict(f"{str(self.location.out)!r} was made with other settings: {'; '.join(differences)}.")


def is_finished(command: str, options: object, location: RunLocation) -> bool:
    """Return whether a run has its results, with exactly these options.

    Raise `RunConflict` if the directory holds a run with options that cannot be changed into these.
    """
    run = Run(location.out)
    if not run.exists:
        return False
    session = Session(command, options, location, resume=True)
    return run.is_finished and session._stored("options") == session.settings


def stored_options(path: Path, command: str, known: frozenset[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options and the location that a run was made with, to repeat them when it is resumed.

    Args:
        path: the run directory.
        command: the command that resumes it; must be the one that made it.
        known: names of the options of this version.
    """
    config = read_configuration(Run.open(path, resuming=True))
    try:
        made_by, options = config["command"], dict(config["options"])
        location = {"root": Path(config["data_root"]), "device": config["device"], "storage": config["storage"]}
    except (KeyError, TypeError, ValueError) as problem:
        raise UnreadableData(f"{str(path / CONFIG)!r} is not the configuration of a run: {problem!r}.") from problem
    location |= {"executor": config.get("executor", LOCAL), "ray_address": config.get("ray_address")}
    if made_by != command:
        raise RunConflict(f"`--resume` must continue a run of s2e {command}, but {str(path)!r} is of s2e {made_by}.")
    if unknown := options.keys() - known:
        shown = listed(ascii(name)[1:-1] for name in sorted(unknown))
        raise UnreadableData(f"{str(path / CONFIG)!r} has options unknown to this version: {shown}.")
    return options, location
