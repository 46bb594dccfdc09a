"""`s2e reproduce WHAT`: the figures and tables of the paper, one command for each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from s2e.cli.application import Command, application
from s2e.cli.help_text import OUTPUT
from s2e.cli.options import Debug, Seed
from s2e.cli.terminal import check_output, reporting, write_output
from s2e.cli.workflow_commands import RESUMABLE, workflow_command
from s2e.specs import SamplersOptions, SpacesOptions, StepsOptions, TableOptions

NumbersOut = Annotated[
    Path | None,
    typer.Option(help="JSON file for the numbers; printed when not given", metavar="FILE", rich_help_panel=OUTPUT),
]


app = application(
    "reproduce",
    "Reproduce results of the paper: the convergence of its search, and comparisons of spaces and samplers.",
    "WHAT",
)


@app.callback()
def reproduce() -> None:
    """Reproduce results of the paper."""


@app.command(cls=Command)
def convergence(seed: Seed = 0, out: NumbersOut = None, debug: Debug = False) -> None:
    """Check the claims about the convergence of the search."""
    with reporting(debug):
        from s2e.experiments.convergence import convergence as claims

        if out is not None:
            check_output("out", out)
        text = json.dumps(claims(seed), indent=2)
        if out is None:
            typer.echo(text)
        else:
            write_output("out", out, text + "\n")


app.command(cls=Command)(
    workflow_command(
        "reproduce spaces",
        SpacesOptions,
        "s2e.experiments.spaces:compare_spaces",
        "Compare the spaces of schedules, each searched at random (the paper's Table 2).",
        running=RESUMABLE,
        tables="s2e.cli.space_tables:space_tables",
    )
)
app.command(cls=Command)(
    workflow_command(
        "reproduce searchers",
        SamplersOptions,
        "s2e.experiments.samplers:compare_samplers",
        "Compare samplers: the validation error of the best schedule after a number of trainings.",
        running=RESUMABLE,
        tables="s2e.cli.sampler_table:sampler_tables",
    )
)
app.command(cls=Command)(
    workflow_command(
        "reproduce steps",
        StepsOptions,
        "s2e.experiments.steps:compare_steps",
        "Compare the paper's steps by the number of points in a generation, with random search.",
        running=RESUMABLE,
        tables="s2e.cli.step_table:step_tables",
    )
)
app.command(cls=Command)(
    workflow_command(
        "reproduce table",
        TableOptions,
        "s2e.experiments.schedule_table.build:build_table",
        "Train the schedule table that samplers are compared on; needs a GPU, or hours.",
        running=RESUMABLE,
        tables="s2e.cli.tables:no_tables",
    )
)
