"""`s2e reproduce WHAT`: what the paper shows, a command with options of its own for each part of it.

A new part is one more function under `app.command()`, here or in a file of its own; its name is what WHAT may be.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from s2e.cli.options import Debug, Seed
from s2e.cli.reproduce_searchers import searchers, table
from s2e.cli.reproduce_spaces import spaces
from s2e.cli.terminal import reporting
from s2e.errors import InvalidInput, unknown_name

NumbersOut = Annotated[Path | None, typer.Option(help="JSON file to write the numbers to")]


class Experiments(TyperGroup):
    """The commands under `s2e reproduce`; a name that is none of them is refused in one line."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # typer's versions do not agree on the types
        """Find the command that the first of the arguments names."""
        with reporting("--debug" in args):
            if args[0] not in self.commands:
                raise unknown_name("what", args[0], self.commands)
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="reproduce",
    help="Compute what the paper shows: the convergence of its search, and how spaces and search algorithms compare.",
    cls=Experiments,
    subcommand_metavar="WHAT",
    no_args_is_help=True,
)


@app.callback()
def reproduce() -> None:
    """Compute what the paper shows."""


@app.command()
def convergence(seed: Seed = 0, out: NumbersOut = None, debug: Debug = False) -> None:
    """Check the claims about the convergence of the search."""
    with reporting(debug):
        from s2e.experiments.convergence import convergence as claims

        give(claims(seed), out)


app.command()(spaces)
app.command()(searchers)
app.command()(table)


def give(numbers: Mapping[str, Any], path: Path | None) -> None:
    """Write numbers as JSON to a file, or print them where none is named."""
    text = json.dumps(numbers, indent=2)
    if path is None:
        typer.echo(text)
        return
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as problem:
        raise InvalidInput(
            f"`--out` must be a file to write to, but {str(path)!r} is not: {problem.strerror}."
        ) from None
