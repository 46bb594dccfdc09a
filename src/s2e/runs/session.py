"""The session of a command on a run directory: checked before data are loaded, created or resumed afterwards."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import optuna
import torch

from s2e._version import __version__
from s2e.errors import RunConflict, UnreadableData
from s2e.runs.directory import CONFIG, Run
from s2e.specs import AUTO, assemble, flatten
from s2e.studies import check_storage, open_study

Options = TypeVar("Options")

RESULT = "result.json"

CHOSEN_BY_THE_FIRST_SESSION = {"generation_size": AUTO, "trials": None}
"""Options that the first session may choose, with the value that requests this."""


@dataclass(frozen=True)
class RunLocation:
    """Directories, device and storage of a command; none of them changes its result beyond rounding.

    Attributes:
        out: the run directory.
        root: directory of the data sets.
        device: cpu, cuda, …, or auto.
        storage: URL of the studies; None for a database in the run directory.
    """

    out: Path
    root: Path = Path("data")
    device: str = "auto"
    storage: str | None = None


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
        if location.storage:
            check_storage(location.storage)
        if resume and Run(location.out).exists:
            self._before = Run(location.out).read_json(CONFIG)
            self.options = self._adopted()
            self._refuse(self._differences())
        else:
            Run(location.out).check_new()

    @contextmanager
    def start(self, about: Mapping[str, Any], options: Options | None = None) -> Iterator[Run]:
        """Create the run, or open it again if the data are the same; lock it while the body runs.

        Args:
            about: further entries of the configuration, `data_fingerprint` among them.
            options: the options with all choices, if the command made some.
        """
        self.options = self.options if options is None else options
        config = self._configuration(about)
        if self._before is None:
            run = Run.create(self.location.out, config)
        else:
            run = Run.open(self.location.out)
            changed = self._stored("data_fingerprint") != config["data_fingerprint"]
            self._refuse(["the data have changed since"] if changed else [])
            config |= {name: self._stored(name) for name in ("study", "versions")}
        self._storage, self._study_name = self.location.storage or run.storage, config["study"]
        self._run = run
        with run.locked():
            run.write_json(CONFIG, config)
            yield run

    def study(self, *path: str) -> optuna.Study:
        """Open a study of the run, which must have been begun with the same options."""
        return open_study(self._storage, "/".join([self._study_name, *path]), self._fixed(self.settings))

    def finish(self, result: Mapping[str, Any], device: torch.device) -> Run:
        """Write the result of the command, with the device and the seconds since the session began."""
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
        seconds = round(time.monotonic() - self._began, 1)
        self._run.write_json(RESULT, {**result, "device": name, "seconds": seconds})
        return self._run

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
            "storage": location.storage,
            "study": location.out.resolve().name if location.storage else self.command,
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
        before, now = self._fixed(self._stored("options")), self._fixed(self.settings)
        return [
            f"{name} was {before.get(name)!r} and is now {now.get(name)!r}"
            for name in {**before, **now}
            if before.get(name) != now.get(name)
        ]

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


def stored_options(path: Path, command: str, known: frozenset[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options and the location that a run was made with, to repeat them when it is resumed.

    Args:
        path: the run directory.
        command: the command that resumes it; must be the one that made it.
        known: names of the options of this version.
    """
    config = Run.open(path).read_json(CONFIG)
    try:
        made_by, options = config["command"], dict(config["options"])
        location = {"root": Path(config["data_root"]), "device": config["device"], "storage": config["storage"]}
    except (KeyError, TypeError, ValueError) as problem:
        raise UnreadableData(f"{str(path / CONFIG)!r} is not the configuration of a run: {problem!r}.") from problem
    if made_by != command:
        raise RunConflict(f"`--resume` must continue a run of s2e {command}, but {str(path)!r} is of s2e {made_by}.")
    if unknown := options.keys() - known:
        raise UnreadableData(f"{str(path / CONFIG)!r} has options unknown to this version: {', '.join(unknown)}.")
    return options, location
