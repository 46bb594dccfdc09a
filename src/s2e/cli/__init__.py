"""The command line: parse options, call a workflow, print its result. Heavy imports wait until a command runs."""

from __future__ import annotations

import io
import sys
from typing import Annotated

import typer

from s2e._version import __version__
from s2e.cli import audit, datasets, predict, report, reproduce, workflow_commands
from s2e.cli.application import Command, application
from s2e.cli.imports import has_process
from s2e.cli.terminal import out, reporting
from s2e.interrupts import end_on_signals, ignore_ctrl_c

app = application("s2e", "Train good classifiers on wrong labels, without knowing how many are wrong.", "COMMAND")


@app.callback(invoke_without_command=True)
def common(version: Annotated[bool, typer.Option("--version", help="Show the version and exit")] = False) -> None:
    """Train good classifiers on wrong labels, without knowing how many are wrong."""
    if version:
        out.print(__version__)
        raise typer.Exit


app.command(cls=Command)(workflow_commands.search)
app.command(cls=Command)(workflow_commands.train)
app.command(cls=Command)(workflow_commands.compare)
app.command(cls=Command)(audit.audit)
app.command(cls=Command)(report.report)
app.command(cls=Command)(predict.predict)
app.command(cls=Command)(datasets.datasets)
app.add_typer(reproduce.app)


def main() -> None:
    """Run the command line as a program."""
    end_on_signals()
    has_process()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names that its encoding does not have
    try:
        with reporting("--debug" in sys.argv):  # of help texts and lists, which may be written to a full disk
            app(prog_name="s2e")
    except typer.Exit as ended:
        sys.exit(ended.exit_code)
    finally:
        ignore_ctrl_c()
