"""`s2e audit`: which training labels of a run are probably wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from s2e.cli.options import Debug, Json
from s2e.cli.terminal import out, reporting, say

SHOWN = 10
"""Rows printed in each table; the file has all."""


def audit(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Directory of a run of s2e search or s2e train")],
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """List the training labels of a run that are probably wrong, with suggestions."""
    with reporting(debug):
        from s2e.audit import ISSUES, audit_run, write_audit
        from s2e.cli.tables import audit_tables
        from s2e.runs import Run

        opened = Run.open(run)
        audited = audit_run(opened)
        with opened.locked():
            write_audit(opened, audited)
        summary = audited.summary()
        if as_json:
            typer.echo(json.dumps({**summary, "run": str(run)}, indent=2))
            return
        for table in audit_tables(summary, audited.table(), SHOWN):
            out.print(table)
        say(f"all labels: {run / ISSUES}")
