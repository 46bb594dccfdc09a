"""Output of the commands: results, errors in one line, and how to continue after an interruption."""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from s2e.errors import InvalidInput, S2EError
from s2e.interrupts import INTERRUPTED, last_line

if TYPE_CHECKING:
    from rich.table import Table

    from s2e.runs import Run

out = Console(highlight=False, emoji=False)
err = Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)

END_OF_BAR = "\x1b[?25h\n"
"""Ends the line of a bar, and shows the cursor, which a bar hides."""


@contextmanager
def reporting(debug: bool, resumable: tuple[str, Path] | None = None) -> Iterator[None]:
    """Turn errors into one line and an exit code: 2 for bad input, 130 after an interruption.

    Args:
        debug: raise errors, for a traceback.
        resumable: the command and its run directory, if it can be resumed.
    """
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    last_line.set(lambda: f"{END_OF_BAR if err.is_terminal else ''}{interrupted(resumable)}")
    try:
        yield
    except S2EError as problem:
        if debug:
            raise
        err.print(f"s2e: {problem}", markup=False)
        raise typer.Exit(2) from problem
    except KeyboardInterrupt:  # only if another program runs `app`: `main` handles Ctrl-C itself
        err.print(interrupted(resumable), markup=False)
        raise typer.Exit(130) from None


def interrupted(resumable: tuple[str, Path] | None) -> str:
    """Return the line to print after Ctrl-C, with how to continue."""
    if resumable is None or not (resumable[1] / "config.json").exists():
        return INTERRUPTED
    command, path = resumable
    return f"{INTERRUPTED}; continue with: s2e {command} --resume --out {shlex.quote(str(path))}"


def show(run: Run, tables: Callable[[Mapping[str, Any]], list[Table]], *, as_json: bool) -> None:
    """Print the result of a run, as JSON or as tables."""
    result = run.read_json("result.json")
    if as_json:
        typer.echo(json.dumps({**result, "run": str(run.path)}, indent=2))
        return
    for table in tables(result):
        out.print(table)
    typer.echo(f"run: {run.path}")


def check_output(option: str, path: Path) -> None:
    """Refuse a file in a directory that does not exist."""
    if not path.parent.is_dir() or path.is_dir():
        raise InvalidInput(f"`{option}` must be a file in an existing directory, but got {str(path)!r}.")


def write_output(option: str, path: Path, text: str) -> None:
    """Write the file that an option names."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise InvalidInput(
            f"`{option}` must be a writable file, but {str(path)!r} is not: {problem.strerror}."
        ) from None


def quieten_optuna() -> None:
    """Show only warnings of Optuna; progress is shown by `s2e.workflows.progress`."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
