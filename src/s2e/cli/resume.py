"""The directory of a run: a new one, or that of the run to continue, with the options it was made with."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import typer

from s2e.cli.options import DATA_HELP
from s2e.errors import InvalidInput, UnreadableData

PARAMETERS = {"root": "data_root", "noises": "noise"}
"""Parameters of the commands that have another name than the option they set."""


def new_directory(command: str, data: str) -> Path:
    """Name a directory under runs/ that does not exist yet."""
    name = f"{command}-{Path(data).stem or 'data'}-{time.strftime('%Y%m%d-%H%M%S')}"
    names = (Path("runs") / (name if count == 1 else f"{name}-{count}") for count in itertools.count(1))
    return next(path for path in names if not path.exists())


def check_given(data: str) -> None:
    """Refuse a command that names no data and continues no run."""
    if not data:
        raise InvalidInput(f"`DATA` must be given: {DATA_HELP}.")


def resumed(
    command: str, context: typer.Context, path: Path | None, given: dict[str, Any], place: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Take the options of the run that is continued, but for those given on the command line."""
    from s2e.runs.directory import CONFIG, Run

    if path is None:
        raise InvalidInput("`--resume` must come with --out and the directory of the run, but got no --out.")
    config = Run.open(path).read_json(CONFIG)
    try:
        made_by, options = config["command"], dict(config["options"])
        places = {"root": Path(config["data_root"]), "device": config["device"], "storage": config["storage"]}
    except (KeyError, TypeError, ValueError) as problem:
        raise UnreadableData(f"{str(path / CONFIG)!r} is not the configuration of a run: {problem!r}.") from problem
    if made_by != command:
        raise InvalidInput(
            f"`--resume` continues what s2e {command} began, but {str(path)!r} was made by s2e {made_by}."
        )
    if unknown := options.keys() - given.keys():
        raise UnreadableData(f"{str(path / CONFIG)!r} has options this version does not know: {', '.join(unknown)}.")
    return {**given, **options, **_explicit(context, given)}, {**places, **_explicit(context, place)}


def _explicit(context: typer.Context, values: dict[str, Any]) -> dict[str, Any]:
    """Return those that were given on the command line."""
    sources = {name: context.get_parameter_source(PARAMETERS.get(name, name)) for name in values}
    return {name: values[name] for name, source in sources.items() if source and source.name == "COMMANDLINE"}
