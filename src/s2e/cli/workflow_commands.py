"""Commands that make a run: `s2e search`, `s2e train`, `s2e compare`, and the builder of all such commands."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from s2e.cli.options import RUNNING, signature, values
from s2e.cli.terminal import err, quieten_optuna, reporting, show
from s2e.errors import InvalidInput
from s2e.specs import CompareOptions, SearchOptions, TrainOptions, assemble

RESUMABLE = ("device", "data_root", "out", "resume", "as_json", "debug")
"""Options of a command whose run can be resumed."""


def workflow_command(
    command: str,
    options: type,
    workflow: str,
    about: str,
    *,
    running: tuple[str, ...] = (*RESUMABLE, "storage"),
    tables: str = "s2e.cli.tables:run_tables",
) -> Callable[..., None]:
    """Return a command that runs a workflow: its options are the fields of a dataclass, nested ones included.

    Args:
        command: its name, as `config.json` stores it.
        options: the dataclass.
        workflow: the function to call, as `module:function`; it is imported when the command runs.
        about: help text of the command.
        running: names of the options in `RUNNING` that it has.
        tables: the function that makes tables of the result, in the same form.
    """
    ordered = tuple(name for name in RUNNING if name in running)

    def run_command(**given: Any) -> None:
        context, out, resume = given["context"], given["out"], given.get("resume", False)
        directory = out or new_directory(command.split()[-1], given.get("data") or given.get("on") or "")
        with reporting(given["debug"], resumable=(command, directory) if "resume" in running else None):
            from s2e.runs import RunLocation, stored_options
            from s2e.workflows.progress import progress

            quieten_optuna()
            chosen = values(options, given)
            location = {"root": given["data_root"], "device": given["device"], "storage": given.get("storage")}
            if resume:
                if out is None:
                    raise InvalidInput(
                        "`resume` must be used with --out and the directory of the run, but got no --out."
                    )
                stored, before = stored_options(out, command, frozenset(chosen))
                chosen |= {**stored, **_explicit(context, chosen)}
                location = {**before, **_explicit(context, location)}
            made: Any = assemble(options, chosen)
            with progress(err) as listener:
                resuming = {"resume": resume} if "resume" in running else {}
                run = _imported(workflow)(made, RunLocation(directory, **location), listener, **resuming)
            show(run, _imported(tables), as_json=given["as_json"])

    run_command.__name__ = command.split()[-1]
    run_command.__doc__ = about
    made_of = signature(options, ordered)
    run_command.__signature__ = made_of  # type: ignore[attr-defined]
    run_command.__annotations__ = {name: each.annotation for name, each in made_of.parameters.items()}
    return run_command


def _imported(name: str) -> Any:
    module, _, function = name.partition(":")
    return getattr(import_module(module), function)


def new_directory(command: str, data: str) -> Path:
    """Return a directory under runs/ that does not exist yet."""
    name = f"{command}-{Path(data.partition(':')[0]).stem or 'data'}-{time.strftime('%Y%m%d-%H%M%S')}"
    names = (Path("runs") / (name if count == 1 else f"{name}-{count}") for count in itertools.count(1))
    return next(path for path in names if not path.exists())


def _explicit(context: typer.Context, given: dict[str, Any]) -> dict[str, Any]:
    """Return the values that were given on the command line."""
    parameters = {"root": "data_root"}
    sources = {name: context.get_parameter_source(parameters.get(name, name)) for name in given}
    return {name: given[name] for name, source in sources.items() if source and source.name == "COMMANDLINE"}


search = workflow_command(
    "search",
    SearchOptions,
    "s2e.workflows.search:search",
    "Search a schedule, train the final classifier with it, test it once.",
)
train = workflow_command(
    "train",
    TrainOptions,
    "s2e.workflows.train:train",
    "Train one method with a given schedule, test it once.",
    running=("device", "data_root", "out", "as_json", "debug"),
)
compare = workflow_command(
    "compare",
    CompareOptions,
    "s2e.workflows.compare:compare",
    "Train several methods from several seeds on the same noisy data, and write tables and figures.",
    tables="s2e.cli.tables:comparison_tables",
)
