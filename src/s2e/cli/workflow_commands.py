"""Commands that make a run: `s2e search`, `s2e train`, `s2e compare`, and the builder of all such commands."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from s2e.cli.imports import importing
from s2e.cli.next_commands import commands_after_comparison, commands_after_training, no_commands
from s2e.cli.options import RUNNING, signature, values, with_flags
from s2e.cli.terminal import err, quieten_optuna, reporting, resumable, show
from s2e.errors import InvalidInput
from s2e.interrupts import cleaned_up_by
from s2e.specs import RAY, CompareOptions, SearchOptions, TrainOptions, assemble, to_bytes

RESUMABLE = (
    "device",
    "executor",
    "ray_address",
    "memory",
    "data_root",
    "out",
    "resume",
    "log",
    "as_json",
    "quiet",
    "debug",
)
"""Options of a command whose run can be resumed."""

LONGEST_NAME = 40
"""Characters of the name of a run that come from its data: a file system allows 255 bytes."""


def workflow_command(
    command: str,
    options: type,
    workflow: str,
    about: str,
    *,
    running: tuple[str, ...] = (*RESUMABLE, "storage", "study_name"),
    tables: str = "s2e.cli.tables:run_tables",
    next_commands: Callable[[Any, Mapping[str, Any]], list[str]] = no_commands,
) -> Callable[..., None]:
    """Return a command that runs a workflow: its options are the fields of a dataclass, nested ones included.

    Args:
        command: its name, as `config.json` stores it.
        options: the dataclass.
        workflow: the function to call, as `module:function`; it is imported when the command runs.
        about: help text of the command.
        running: names of the options in `RUNNING` that it has.
        tables: the function that makes tables of the result, in the same form.
        next_commands: returns lines about what to do next, from the run and its result.
    """
    ordered = tuple(name for name in RUNNING if name in running)

    def run_command(**given: Any) -> None:
        with reporting(given["debug"]), _directory(command, given) as directory:
            if "resume" in running:
                resumable(command, directory)
            with importing():
                from s2e.callbacks import RunStarted, callbacks_of, result_scalars
                from s2e.runs import Run, RunLocation, stored_options
                from s2e.specs import flatten, with_scale
                from s2e.workflows import notified
                from s2e.workflows.progress import SILENT, progress

            quieten_optuna()
            context, resume = given["context"], given.get("resume", False)
            chosen = values(options, given)
            chosen = with_scale(options, chosen, _explicit(context, chosen))
            location = {"root": given["data_root"], "device": given["device"], "storage": given.get("storage")}
            location |= {name: given[name] for name in ("executor", "ray_address")}
            if resume and (Run(directory).exists or _lacks_data(given)):
                stored, before = stored_options(directory, command, frozenset(chosen))
                chosen |= {**stored, **_explicit(context, chosen)}
                explicit = _explicit(context, location)
                location = {**before, **explicit}
                if location["executor"] != RAY and "ray_address" not in explicit:
                    location["ray_address"] = None  # of a session that used Ray
            made: Any = assemble(options, chosen)
            memory = to_bytes("memory", given["memory"])
            callbacks = callbacks_of(given.get("log"), "log")
            started = RunStarted(command, flatten(made), directory)
            display = nullcontext(SILENT) if given["quiet"] else progress(err, partial(with_flags, options))
            with display as shown, notified(callbacks, started, shown) as listener:
                resuming = {"resume": resume} if "resume" in running else {}
                own: dict[str, Any] = {"memory": memory, "study_name": given.get("study_name")}
                run = _imported(workflow)(made, RunLocation(directory, **location, **own), listener, **resuming)
                listener.metrics = result_scalars(run.read_json("result.json"))
            show(run, _imported(tables), next_commands, as_json=given["as_json"], quiet=given["quiet"])

    run_command.__name__ = command.split()[-1]
    run_command.__doc__ = about
    made_of = signature(options, ordered)
    run_command.__signature__ = made_of  # type: ignore[attr-defined]
    run_command.__annotations__ = {name: each.annotation for name, each in made_of.parameters.items()}
    return run_command


def _imported(name: str) -> Any:
    module, _, function = name.partition(":")
    return getattr(import_module(module), function)


@contextmanager
def _directory(command: str, given: Mapping[str, Any]) -> Iterator[Path]:
    """Return the directory of the run: the given one, or a new one, which is removed again if it stays empty."""
    if given["out"] is not None:
        yield given["out"]
        return
    if given.get("resume"):
        raise InvalidInput("`resume` must be used with --out and the directory of the run, but got no --out.")
    runs = Path("runs")
    first = not runs.exists()
    directory = new_directory(runs, command.split()[-1], given.get("data") or given.get("on") or "")

    def remove_if_empty() -> None:
        with suppress(OSError):
            directory.rmdir()
            if first:
                runs.rmdir()

    with cleaned_up_by(remove_if_empty):
        yield directory


def new_directory(runs: Path, command: str, data: str) -> Path:
    """Make a directory for a run; no other process gets the same one."""
    stem = re.sub(r"[^\w.-]+", "-", Path(data.partition(":")[0]).stem)[:LONGEST_NAME] or "data"
    name = f"{command}-{stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    for count in itertools.count(1):
        path = runs / (name if count == 1 else f"{name}-{count}")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            if not runs.is_dir():
                raise InvalidInput(f"{str(runs)!r} must be a directory for runs, but is a file; give --out.") from None
        except OSError as problem:
            raise InvalidInput(
                f"`out` must be given where no directory can be made: {problem.strerror}: {str(path)!r}."
            ) from None
        else:
            return path
    raise AssertionError  # there is always another name


def _lacks_data(given: Mapping[str, Any]) -> bool:
    """Return whether a command needs data that are not given, because it continues a run."""
    return "data" in given and not given["data"]


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
    next_commands=commands_after_training,
)
train = workflow_command(
    "train",
    TrainOptions,
    "s2e.workflows.train:train",
    "Train one method with a given schedule, test it once.",
    running=RESUMABLE,
    next_commands=commands_after_training,
)
compare = workflow_command(
    "compare",
    CompareOptions,
    "s2e.workflows.compare:compare",
    "Train several methods from several seeds on the same noisy data, and write tables and figures.",
    tables="s2e.cli.tables:comparison_tables",
    next_commands=commands_after_comparison,
)
