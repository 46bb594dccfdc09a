"""`s2e audit`: which training labels of a run are probably wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from s2e.cli.help_text import OUTPUT
from s2e.cli.options import Debug, Json, Quiet
from s2e.cli.terminal import check_output, check_table_output, out, reporting, say, write_output
from s2e.errors import InvalidInput

SHOWN = 10
"""Rows printed in each table where --top is not given; the file has all."""

DECIMALS = 6
"""Of numbers in tables."""


def audit(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Directory of a run of s2e search or s2e train")],
    top: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="INTEGER",
            help=f"Most doubtful labels to print ({SHOWN} when not given), and to write to --output (all)",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Also write the labels to a table, the most doubtful first: .csv, .parquet or .jsonl, or - for "
            "comma-separated text on standard output",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    cleaned: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the data with weights and suggested labels: a table with all its columns to .csv, .tsv, .jsonl "
            "or .parquet, arrays to .npz, images by ID to any of these",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """List the training labels of a run that are probably wrong, with suggestions."""
    with reporting(debug):
        import pandas as pd

        from s2e.audit import ISSUES, audit_run, write_audit
        from s2e.cli.tables import audit_tables
        from s2e.runs import encoded_table
        from s2e.workflows.classifier_runs import open_classifier_run
        from s2e.workflows.cleaned_data import check_cleaned_path, write_cleaned

        suffix = None if output is None else check_table_output("output", output)
        to_stdout = str(output) == "-"
        if as_json and to_stdout:
            raise InvalidInput("`json` must be used with a file for the table, but got --output -.")
        if cleaned is not None:
            check_output("cleaned", cleaned)
            check_cleaned_path(cleaned)
        opened = open_classifier_run(run)
        audited = audit_run(opened)
        with opened.locked():
            write_audit(opened, audited)
        summary, rows = audited.summary(), audited.table()
        if output is not None and suffix is not None:
            write_output("output", output, encoded_table(pd.DataFrame(rows[:top]).round(DECIMALS), suffix))
        if cleaned is not None:
            write_cleaned(opened, audited, cleaned)
        if as_json:
            typer.echo(json.dumps({**summary, "run": str(run)}, indent=2))
            return
        if to_stdout:
            return
        written = output or run / ISSUES
        if quiet:
            say(str(written))
            return
        for table in audit_tables(summary, rows, top or SHOWN):
            out.print(table)
        say(f"all labels: {run / ISSUES}")
        if output is not None:
            say(f"{'all' if top is None else f'first {top}'} labels: {output}")
        if cleaned is not None:
            say(f"cleaned data: {cleaned}")
