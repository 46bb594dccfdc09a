"""Where a command works: its place, the run it begins or continues, and who watches it."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import torch

from s2e._version import __version__
from s2e.errors import RunConflict
from s2e.runs.directory import CONFIG, Run
from s2e.studies.storage import check_storage


@dataclass(frozen=True)
class RunLocation:
    """Where a command works; nothing here changes its result beyond rounding."""

    out: Path
    root: Path = Path("data")
    device: str = "auto"
    storage: str | None = None


def begin(
    command: str,
    options: Any,
    about: Mapping[str, Any],
    place: RunLocation,
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


def begun_with(out: Path, *, resume: bool) -> Mapping[str, Any]:
    """Return the options of the run that is continued in a directory; none where a new one begins."""
    run = Run(out)
    options: Mapping[str, Any] = run.read_json(CONFIG).get("options", {}) if resume and run.exists else {}
    return options
