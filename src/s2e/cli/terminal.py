"""What a command says in the end: its result, or in one line what went wrong or how to go on."""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from s2e.errors import S2EError
from s2e.interrupts import INTERRUPTED, farewell

if TYPE_CHECKING:
    from s2e.runs.directory import Run

out = Console(highlight=False, emoji=False)
err = Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)

BELOW_THE_BAR = "\x1b[?25h\n"
"""Ends the line of a bar, and shows the cursor, which a bar hides."""


@contextmanager
def reporting(debug: bool, resumable: tuple[str, Path] | None = None) -> Iterator[None]:
    """Turn what goes wrong into one line and an exit code: 2 for bad input, 130 when interrupted.

    Args:
        debug: whether to let errors through, for a traceback.
        resumable: the command at work and its run directory, where it can be continued.
    """
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    farewell.set(lambda: f"{BELOW_THE_BAR if err.is_terminal else ''}{interrupted(resumable)}")
    try:
        yield
    except S2EError as problem:
        if debug:
            raise
        err.print(f"s2e: {problem}", markup=False)
        raise typer.Exit(2) from problem
    except KeyboardInterrupt:  # only where `app` is run by another program: `main` lets none arise
        err.print(interrupted(resumable), markup=False)
        raise typer.Exit(130) from None


def interrupted(resumable: tuple[str, Path] | None) -> str:
    """Say that Ctrl-C was pressed, and how to go on."""
    if resumable is None or not (resumable[1] / "config.json").exists():
        return INTERRUPTED
    command, path = resumable
    return f"{INTERRUPTED}; continue with: s2e {command} --resume --out {shlex.quote(str(path))}"


def show(run: Run, *, as_json: bool) -> None:
    """Print the result of a run."""
    result = run.read_json("result.json")
    if as_json:
        typer.echo(json.dumps({**result, "run": str(run.path)}, indent=2))
        return
    from s2e.cli.tables import comparison_tables, result_table

    for table in comparison_tables(result) if "summary" in result else [result_table(result)]:
        out.print(table)
    typer.echo(f"run: {run.path}")


def quieten_optuna() -> None:
    """Let Optuna speak of warnings only: progress is shown by s2e itself."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
