"""`s2e reproduce WHAT`: the figures and tables of the paper, one command for each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from s2e.cli.application import Command, application
from s2e.cli.help_text import OUTPUT
from s2e.cli.next_commands import page_of_experiment
from s2e.cli.options import Debug
from s2e.cli.terminal import check_output, reporting, say, write_output
from s2e.cli.workflow_commands import RESUMABLE, workflow_command
from s2e.specs import (
    BasisOptions,
    ComparisonOptions,
    ConvergenceOptions,
    HumanOptions,
    MemorizationOptions,
    SamplersOptions,
    SpacesOptions,
    StepsOptions,
    TableOptions,
)

IndexOut = Annotated[
    Path | None,
    typer.Option(
        help="Markdown file for the index; INDEX.md in the folder when not given",
        metavar="FILE",
        rich_help_panel=OUTPUT,
    ),
]


app = application(
    "reproduce",
    "Reproduce the figures and tables of the paper.",
    "WHAT",
)


@app.callback()
def reproduce() -> None:
    """Reproduce the figures and tables of the paper."""


app.command(cls=Command)(
    workflow_command(
        "reproduce basis",
        BasisOptions,
        "s2e.experiments.basis:reproduce_basis",
        "Plot the basis functions of the space (the paper's Figure 2).",
        running=RESUMABLE,
        tables="s2e.cli.claim_table:claim_tables",
        next_commands=page_of_experiment,
    )
)
app.command(cls=Command)(
    workflow_command(
        "reproduce convergence",
        ConvergenceOptions,
        "s2e.experiments.convergence_page:reproduce_convergence",
        "Check the paper's claims about the convergence of its search, with figures.",
        running=RESUMABLE,
        tables="s2e.cli.claim_table:claim_tables",
        next_commands=page_of_experiment,
    )
)
app.command(cls=Command)(
    workflow_command(
        "reproduce human",
        HumanOptions,
        "s2e.experiments.human:reproduce_human",
        "Compare methods on labels that people gave to CIFAR-10 and CIFAR-100.",
        running=RESUMABLE,
        tables="s2e.cli.claim_table:claim_tables",
        next_commands=page_of_experiment,
    )
)
app.command(cls=Command)(
    workflow_command(
        "reproduce memorization",
        MemorizationOptions,
        "s2e.experiments.memorization:reproduce_memorization",
        "Train on wrong labels in many settings: training and test accuracy by epoch (the paper's Figure 1).",
        running=RESUMABLE,
        tables="s2e.cli.claim_table:claim_tables",
        next_commands=page_of_experiment,
    )
)
app.command(cls=Command)(
    workflow_command(
        "reproduce comparison",
        ComparisonOptions,
        "s2e.experiments.comparison:reproduce_comparison",
        "Compare all methods on MNIST, CIFAR-10 and CIFAR-100 (the paper's Figures 3 to 5).",
        running=RESUMABLE,
        tables="s2e.cli.claim_table:claim_tables",
        next_commands=page_of_experiment,
    )
)
app.command(cls=Command)(
    workflow_command(
        "reproduce spaces",
        SpacesOptions,
        "s2e.experiments.spaces:reproduce_spaces",
        "Compare the spaces of schedules, each searched at random (the paper's Table 2).",
        running=RESUMABLE,
        tables="s2e.cli.space_tables:space_tables",
        next_commands=page_of_experiment,
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
        next_commands=page_of_experiment,
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


@app.command(cls=Command)
def index(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder with the runs of s2e reproduce")],
    out: IndexOut = None,
    debug: Debug = False,
) -> None:
    """Write which figures and tables of the paper were found again, from the runs in a folder."""
    with reporting(debug):
        from s2e.experiments.results_index import INDEX, index_of

        path = folder / INDEX if out is None else out
        text = index_of(folder)
        check_output("out", path)
        write_output("out", path, text)
        say(f"index: {path}")
