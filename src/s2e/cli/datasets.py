"""`s2e datasets`: the data sets with a name."""

from __future__ import annotations

import json

import typer

from s2e.cli.options import Json
from s2e.cli.terminal import out


def datasets(as_json: Json = False) -> None:
    """List the data sets that can be loaded by name."""
    from s2e.data import available

    if as_json:
        typer.echo(json.dumps([{"name": info.name, "classes": info.classes} for info in available()], indent=2))
        return
    for info in available():
        out.print(f"[bold]{info.name:15}[/]{info.description}")
