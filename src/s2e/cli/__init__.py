"""The command line: parse, call, print. Nothing heavy is imported until a command runs."""

from __future__ import annotations

from typing import Annotated

import typer

from s2e._version import __version__
from s2e.cli import audit, compare, datasets, predict, report, reproduce, search
from s2e.cli.terminal import out
from s2e.interrupts import end_on_ctrl_c, ignore_ctrl_c

app = typer.Typer(
    name="s2e",
    help="Train good classifiers on wrong labels, without being told how wrong they are.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def common(version: Annotated[bool, typer.Option("--version", help="Show the version and exit")] = False) -> None:
    """Train good classifiers on wrong labels, without being told how wrong they are."""
    if version:
        out.print(__version__)
        raise typer.Exit


app.command()(search.search)
app.command()(search.train)
app.command()(compare.compare)
app.command()(audit.audit)
app.command()(report.report)
app.command()(predict.predict)
app.command()(datasets.datasets)
app.add_typer(reproduce.app)


def main() -> None:
    """Run the command line as a program of its own."""
    end_on_ctrl_c()
    try:
        app(prog_name="s2e")
    finally:
        ignore_ctrl_c()
