"""`s2e audit`: which training labels of a run are probably wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from s2e.cli.options import Debug, Json
from s2e.cli.terminal import check_output, out, reporting, say

SHOWN = 10
"""Rows printed in each table; the file has all."""


def audit(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Directory of a run of s2e search or s2e train")],
    cleaned: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the data with weights and suggested labels: .csv, .tsv, .parquet or .npz; a table with all its "
            "columns, images and arrays by ID",
        ),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """List the training labels of a run that are probably wrong, with suggestions."""
    with reporting(debug):
        from s2e.audit import ISSUES, audit_run, write_audit
        from s2e.cli.tables import audit_tables
        from s2e.runs import Run
        from s2e.workflows.cleaned_data import check_cleaned_path, cleaned_data, write_cleaned

        if cleaned is not None:
            check_output("cleaned", cleaned)
            check_cleaned_path(cleaned)
        opened = Run.open(run)
        audited = audit_run(opened)
        with opened.locked():
            write_audit(opened, audited)
        if cleaned is not None:
            write_cleaned(cleaned_data(opened, audited), cleaned)
        summary = audited.summary()
        if as_json:
            typer.echo(json.dumps({**summary, "run": str(run)}, indent=2))
            return
        for table in audit_tables(summary, audited.table(), SHOWN):
            out.print(table)
        say(f"all labels: {run / ISSUES}")
        if cleaned is not None:
            say(f"cleaned data: {cleaned}")
