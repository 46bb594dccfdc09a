"""Options of the commands: made from the fields of their specifications, and those of the run itself."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import Field, fields
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from s2e.cli.help_text import DATA, DEVICES, OUTPUT, TRAINING
from s2e.specs import DEVICE_HELP, EXECUTOR_HELP, LOCAL, RAY_ADDRESS_HELP, leaves

Device = Annotated[str, typer.Option(help=DEVICE_HELP, metavar="NAME", rich_help_panel=DEVICES)]
Executor = Annotated[str, typer.Option(help=EXECUTOR_HELP, metavar="NAME", rich_help_panel=DEVICES)]
RayAddress = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(help=RAY_ADDRESS_HELP, metavar="ADDRESS", rich_help_panel=DEVICES),
]
Memory = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        help="Memory of the device that a population may use, such as 2G or 500M; larger ones are trained in parts",
        metavar="BYTES",
        rich_help_panel=DEVICES,
    ),
]
DataRoot = Annotated[
    Path, typer.Option(help="Directory of the data sets, also of downloads", metavar="DIRECTORY", rich_help_panel=DATA)
]
Out = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        help="Directory of the run; a new one under runs/ when not given", metavar="DIRECTORY", rich_help_panel=OUTPUT
    ),
]
Storage = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        help="URL of the study; study.db in the run directory when not given (optuna-dashboard shows it)",
        metavar="URL",
        rich_help_panel=DEVICES,
    ),
]
StudyName = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--study",
        help="Name of the study at --storage, equal for all processes that share it; the last part of --out when not "
        "given",
        metavar="NAME",
        rich_help_panel=DEVICES,
    ),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Continue the run in --out; data and options that are not given are those of the run",
        rich_help_panel=OUTPUT,
    ),
]
Log = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        help="Also write the progress to tensorboard[:DIR] (in the run directory when not given), mlflow[:URI] or "
        "wandb[:PROJECT]; may be given several times",
        metavar="NAME[:WHERE]",
        rich_help_panel=OUTPUT,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON", rich_help_panel=OUTPUT)]
Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet", "-q", help="Print only warnings, errors, and the file or directory written", rich_help_panel=OUTPUT
    ),
]
Debug = Annotated[
    bool, typer.Option("--debug", help="Show a traceback when something goes wrong", rich_help_panel=OUTPUT)
]
Seed = Annotated[
    int,
    typer.Option(min=0, help="Seed of everything that is drawn at random", metavar="INTEGER", rich_help_panel=TRAINING),
]

METAVARS: dict[type, str] = {int: "INTEGER", float: "NUMBER", str: "TEXT"}
"""How values are shown in the help, by their type."""

RUNNING: dict[str, tuple[Any, Any]] = {
    "device": (Device, "auto"),
    "executor": (Executor, LOCAL),
    "ray_address": (RayAddress, None),
    "memory": (Memory, None),
    "data_root": (DataRoot, Path("data")),
    "storage": (Storage, None),
    "study_name": (StudyName, None),
    "out": (Out, None),
    "resume": (Resume, False),
    "log": (Log, None),
    "as_json": (Json, False),
    "quiet": (Quiet, False),
    "debug": (Debug, False),
}
"""Options of every command that makes a run, with their defaults."""


def parameter(field: Field[Any], default: Any, panel: str | None) -> inspect.Parameter:
    """Return the parameter of a command that sets one field of a specification, and its panel in the help."""
    about = field.metadata
    kind: Any = about.get("type") or type(default)
    if about.get("repeated"):
        kind, default = Optional[list[str]], None  # noqa: UP045
    elif about.get("separated"):
        kind, default = str, ",".join(default)
    elif "parse" in about:
        kind, default = (str, str(default)) if default is not None else (Optional[str], None)  # noqa: UP045
    elif default is None:
        kind = Optional[kind]  # noqa: UP045
    given = {
        "metavar": about.get("metavar") or METAVARS.get(about.get("type") or type(default), METAVARS[str]),
        "help": about["help"],
        "min": about.get("minimum"),
        "rich_help_panel": panel,
    }
    if about.get("argument"):
        info = typer.Argument(metavar=field.name.upper(), help=about["help"])
    else:
        info = typer.Option(*([about["flag"]] if "flag" in about else []), **given)
    return _parameter(field.name, Annotated[kind, info], default)


def signature(options: type, running: tuple[str, ...]) -> inspect.Signature:
    """Return the signature of a command: its context, the fields of its options, and some of `RUNNING`."""
    context = _parameter("context", typer.Context)
    panels = {
        leaf.name: nested.metadata["spec"].HELP_PANEL
        for nested in fields(options)
        if "spec" in nested.metadata
        for leaf, _ in leaves(nested.metadata["spec"])
    }
    own = [
        parameter(field, default, field.metadata.get("panel") or panels.get(field.name))
        for field, default in leaves(options)
    ]
    return inspect.Signature([context, *own, *(_parameter(name, *RUNNING[name]) for name in running)])


def values(options: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the fields, parsed from those of the command line."""
    read: dict[str, Any] = {}
    for field, default in leaves(options):
        value, about = given[field.name], field.metadata
        if about.get("repeated"):
            value = tuple(value) if value else default
        elif about.get("separated"):
            value = tuple(name.strip() for name in value.split(",")) if value else ()
        elif "parse" in about:
            value = about["parse"](value)
        read[field.name] = value
    return read


def with_flags(options: type, text: str) -> str:
    """Return a message with the options of a command instead of the arguments of Python: --id for `id_column`."""
    for field, _ in leaves(options):
        flag = field.metadata.get("flag", f"--{field.name.replace('_', '-')}")
        text = text.replace(f"`{field.name}`", flag)
    return text


def _parameter(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
