"""Output of the commands: results, errors in one line, and how to continue after an interruption."""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook
from rich.segment import Segment

from s2e.atomic_write import replace_output
from s2e.cli.environment_faults import environment_fault
from s2e.errors import InvalidInput, S2EError, StorageUnavailable
from s2e.interrupts import INTERRUPTED, last_line

if TYPE_CHECKING:
    from rich.table import Table

    from s2e.runs import Run

END_OF_BAR = "\x1b[?25h\n"
"""Ends the line of a bar, and shows the cursor, which a bar hides."""

CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that control a terminal or the direction of text, and bytes of file names that are not UTF-8."""


def printable(text: str) -> str:
    """Return a text with control characters written as \\x1b, so that names in data cannot control a terminal."""
    return CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class PrintableOnly(RenderHook):
    """Applies `printable` to all that a console prints, except line breaks and what the console itself adds."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Return each of them with printable text only."""
        return [_Printable(renderable) for renderable in renderables]


class _Printable:
    def __init__(self, renderable: ConsoleRenderable) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for text, style, control in console.render(self._renderable, options):
            yield Segment(text if control else "\n".join(map(printable, text.split("\n"))), style, control)


class PrintableFormatter(logging.Formatter):
    """Writes log messages without control characters."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the message, with a traceback if it has one."""
        return "\n".join(map(printable, super().format(record).split("\n")))


out = Console(highlight=False, emoji=False)
err = Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)
for _console in (out, err):
    _console.push_render_hook(PrintableOnly())

_resumable: ContextVar[tuple[str, Path] | None] = ContextVar("_resumable", default=None)
"""The command and its run directory, if it can be resumed."""


@contextmanager
def reporting(debug: bool) -> Iterator[None]:
    """Turn errors into one line and an exit code: 2 for bad input, 1 for faults of the environment.

    Args:
        debug: raise errors, for a traceback.
    """
    _log_printable_lines()
    _resumable.set(None)
    last_line.set(lambda what: f"{END_OF_BAR if err.is_terminal else ''}{what}{how_to_continue()}")
    try:
        yield
    except KeyboardInterrupt:  # only if another program runs `app`: `main` handles Ctrl-C itself
        err.print(f"{INTERRUPTED}{how_to_continue()}", markup=False)
        raise typer.Exit(130) from None
    except Exception as problem:
        refused = isinstance(problem, S2EError) and not isinstance(problem, StorageUnavailable)
        message = str(problem) if isinstance(problem, S2EError) else environment_fault(problem)
        if debug or message is None:
            raise
        err.print(f"s2e: {printable(message)}{'' if refused else how_to_continue()}", markup=False)
        raise typer.Exit(2 if refused else 1) from problem


def resumable(command: str, path: Path) -> None:
    """Let the line after an interruption or a fault say how to continue a run."""
    _resumable.set((command, path))


def how_to_continue() -> str:
    """Return the end of a line with how to continue the run; empty if there is none yet."""
    match _resumable.get():
        case command, path if os.path.exists(path / "config.json"):  # Path.exists may raise, as of a lost network disk
            return f"; continue with: s2e {command} --resume --out {printable(shlex.quote(str(path)))}"
    return ""


def _log_printable_lines() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(PrintableFormatter("%(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)


def say(text: str) -> None:
    """Print a line of results."""
    typer.echo(printable(text))


def show(
    run: Run,
    tables: Callable[[Mapping[str, Any]], list[Table]],
    next_commands: Callable[[Run, Mapping[str, Any]], list[str]],
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    """Print the result of a run as JSON, or as tables, the path of the run and what to do next; or only the path."""
    result = run.read_json("result.json")
    if as_json:
        typer.echo(json.dumps({**result, "run": str(run.path)}, indent=2))
        return
    if quiet:
        say(str(run.path))
        return
    for table in tables(result):
        out.print(table)
    say(f"run: {run.path}")
    for line in next_commands(run, result):
        say(line)


def check_output(option: str, path: Path) -> None:
    """Refuse a file in a directory that does not exist."""
    if not path.parent.is_dir() or path.is_dir():
        raise InvalidInput(f"`{option}` must be a file in an existing directory, but got {str(path)!r}.")


def check_table_output(option: str, path: Path) -> str:
    """Refuse a file that no table can be written to, before any work; return its ending."""
    from s2e.runs import table_suffix

    suffix = table_suffix(option, path)
    if str(path) != "-":
        check_output(option, path)
    return suffix


def write_output(option: str, path: Path, content: str | bytes) -> None:
    """Write the file that an option names, or standard output for "-"; after an error, an old file is unchanged."""
    encoded = content.encode(errors="backslashreplace") if isinstance(content, str) else content
    if str(path) == "-":
        typer.echo(encoded, nl=False)
        return
    try:
        replace_output(path, encoded)  # file names may not be UTF-8
    except OSError as problem:
        raise InvalidInput(
            f"`{option}` must be a writable file, but {str(path)!r} is not: {problem.strerror}."
        ) from None


def quieten_optuna() -> None:
    """Show only warnings of Optuna, without control characters; progress is shown by `s2e.workflows.progress`."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    for handler in logging.getLogger("optuna").handlers:
        handler.setFormatter(PrintableFormatter("%(message)s"))
