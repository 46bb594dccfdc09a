"""The command line: parse options, call a workflow, print its result. Heavy imports wait until a command runs."""

from __future__ import annotations

from typing import Annotated

import typer

from s2e._version import __version__
from s2e.cli import audit, datasets, predict, report, reproduce, workflow_commands
from s2e.cli.terminal import out
from s2e.interrupts import end_on_signals, ignore_ctrl_c

app = typer.Typer(
    name="s2e",
    help="Train good classifiers on wrong labels, without knowing how many are wrong.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def common(version: Annotated[bool, typer.Option("--version", help="Show the version and exit")] = False) -> None:
    """Train good classifiers on wrong labels, without knowing how many are wrong."""
    if version:
        out.print(__version__)
        raise typer.Exit


app.command()(workflow_commands.search)
app.command()(workflow_commands.train)
app.command()(workflow_commands.compare)
app.command()(audit.audit)
app.command()(report.report)
app.command()(predict.predict)
app.command()(datasets.datasets)
app.add_typer(reproduce.app)


def main() -> None:
    """Run the command line as a program."""
    end_on_signals()
    try:
        app(prog_name="s2e")
    finally:
        ignore_ctrl_c()
