"""`s2e reproduce WHAT`: the figures and tables of the paper, one command for each.

A new one is one more command of `app`; its name is what WHAT may be.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from s2e.cli.options import Debug, Seed
from s2e.cli.terminal import reporting
from s2e.cli.workflow_commands import RESUMABLE, workflow_command
from s2e.errors import InvalidInput, unknown_name
from s2e.specs import SamplersOptions, SpacesOptions, TableOptions

NumbersOut = Annotated[Path | None, typer.Option(help="JSON file to write the numbers to")]


class Experiments(TyperGroup):
    """The commands under `s2e reproduce`; any other name is refused in one line."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # typer's versions do not agree on the types
        """Find the command that the first of the arguments names."""
        with reporting("--debug" in args):
            if args[0] not in self.commands:
                raise unknown_name("what", args[0], self.commands)
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="reproduce",
    help="Reproduce results of the paper: the convergence of its search, and comparisons of spaces and samplers.",
    cls=Experiments,
    subcommand_metavar="WHAT",
    no_args_is_help=True,
)


@app.callback()
def reproduce() -> None:
    """Reproduce results of the paper."""


@app.command()
def convergence(seed: Seed = 0, out: NumbersOut = None, debug: Debug = False) -> None:
    """Check the claims about the convergence of the search."""
    with reporting(debug):
        from s2e.experiments.convergence import convergence as claims

        write_numbers(claims(seed), out)


app.command()(
    workflow_command(
        "reproduce spaces",
        SpacesOptions,
        "s2e.experiments.spaces:compare_spaces",
        "Compare the spaces of schedules, each searched at random (the paper's Table 2).",
        running=RESUMABLE,
        tables="s2e.cli.space_tables:space_tables",
    )
)
app.command()(
    workflow_command(
        "reproduce searchers",
        SamplersOptions,
        "s2e.experiments.samplers:compare_samplers",
        "Compare samplers: the error each has found after some numbers of trainings.",
        running=RESUMABLE,
        tables="s2e.cli.sampler_table:sampler_tables",
    )
)
app.command()(
    workflow_command(
        "reproduce table",
        TableOptions,
        "s2e.experiments.schedule_table.build:build_table",
        "Train the schedule table that samplers are compared on; needs a GPU, or hours.",
        running=RESUMABLE,
        tables="s2e.cli.tables:no_tables",
    )
)


def write_numbers(numbers: Mapping[str, Any], path: Path | None) -> None:
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
