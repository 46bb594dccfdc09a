"""Where a command works: its place, the run it begins or continues, and who watches it."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import optuna
import torch

from s2e._version import __version__
from s2e.engine.task import Progress
from s2e.errors import RunConflict
from s2e.runs.directory import CONFIG, Run
from s2e.studies.loop import GenerationDone
from s2e.studies.storage import check_storage


@dataclass(frozen=True)
class Place:
    """Where a command works; nothing here changes its result beyond rounding."""

    out: Path
    root: Path = Path("data")
    device: str = "auto"
    storage: str | None = None


class Watch(Protocol):
    """Is told how a command goes along."""

    def stage(self, name: str, epochs: int) -> None:
        """Say that a part of the work begins which trains for so many epochs."""

    def epoch(self, progress: Progress) -> None:
        """Say that an epoch is done."""

    def generation(self, done: GenerationDone) -> None:
        """Say that a generation is done."""

    def note(self, text: str) -> None:
        """Say something in passing."""


class Unwatched:
    """A `Watch` for when nobody is: hears everything, says nothing."""

    def stage(self, name: str, epochs: int) -> None:
        """Say nothing."""

    def epoch(self, progress: Progress) -> None:
        """Say nothing."""

    def generation(self, done: GenerationDone) -> None:
        """Say nothing."""

    def note(self, text: str) -> None:
        """Say nothing."""


UNWATCHED = Unwatched()


def begin(
    command: str,
    options: Any,
    about: Mapping[str, Any],
    place: Place,
    *,
    resume: bool,
    changeable: Collection[str] = (),
) -> tuple[Run, dict[str, Any]]:
    """Create the run, or open it again when it was made with the same settings; return its configuration too.

    Args:
        command: what makes the run.
        options: a dataclass with all of its options.
        about: what else goes into the configuration, `data_fingerprint` among it.
        place: where it works.
        resume: whether the run may be there already.
        changeable: options that may differ from those it was begun with.
    """
    if place.storage:
        check_storage(place.storage)
    config: dict[str, Any] = {
        "command": command,
        "options": json.loads(json.dumps(asdict(options))),  # as they will be read back: tuples are lists there
        **about,
        "data_root": str(place.root),
        "device": place.device,
        "storage": place.storage,
        "study": place.out.resolve().name if place.storage else command,
        "versions": {
            "s2e": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "optuna": optuna.__version__,
            "numpy": np.__version__,
        },
    }
    if not resume or not Run(place.out).exists:
        return Run.create(place.out, config), config
    run = Run.open(place.out)
    before = run.read_json(CONFIG)
    differences = _differences(before["options"], config["options"], changeable)
    if before["command"] != command:
        differences.append(f"it was made by s2e {before['command']}")
    elif before["data_fingerprint"] != config["data_fingerprint"] and not differences:
        differences.append("the data have changed since")
    if differences:
        raise RunConflict(f"{str(place.out)!r} was made with other settings: {'; '.join(differences)}.")
    lasting = {name: before[name] for name in ("study", "versions")}
    return run, {**config, **lasting}


def _differences(before: Mapping[str, Any], now: Mapping[str, Any], changeable: Collection[str]) -> list[str]:
    """Name the options that differ and may not."""
    return [
        f"{name} was {before.get(name)!r} and is now {now[name]!r}"
        for name in now
        if before.get(name) != now[name] and name not in changeable
    ]


def ending(device: torch.device, began: float) -> dict[str, Any]:
    """Where a command worked, and for how long since it began."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
    return {"device": name, "seconds": round(time.monotonic() - began, 1)}
