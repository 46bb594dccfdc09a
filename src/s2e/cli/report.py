"""`s2e report`: one HTML page about one run or several."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from s2e.cli.help_text import DATA, OUTPUT
from s2e.cli.options import Debug, Quiet
from s2e.cli.terminal import reporting, say
from s2e.errors import RunConflict

NAME = "report.html"
"""File name of the page in a run directory."""


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN…", help="Directories of runs of s2e search, s2e train or s2e compare")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help=f"The page; {NAME} in the first RUN when not given",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    samples: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="INTEGER",
            help="Most doubtful labels to show, for each run, beside those worth most to review",
            rich_help_panel=OUTPUT,
        ),
    ] = 60,
    data_root: Annotated[
        Path | None,
        typer.Option(
            metavar="DIRECTORY",
            help="Directory of the data sets; that of each run when not given",
            rich_help_panel=DATA,
        ),
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Server of the study, as given to the command that made the run; a study on a server is not shown "
            "when not given",
            rich_help_panel=DATA,
        ),
    ] = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Write one self-contained HTML page about one run or several."""
    with reporting(debug):
        from s2e.audit import write_audit
        from s2e.report import build_report, write_report
        from s2e.runs import Run

        opened = [Run.open(path) for path in runs]
        where = out or opened[0].path / NAME
        page = build_report(opened, data_root=data_root, samples=samples, page=where, storage=storage)
        write_report(page, where)
        for run, audited in page.audits:  # the page links to their tables
            with suppress(RunConflict, OSError), run.locked():
                write_audit(run, audited)
        if quiet:
            say(str(where))
            return
        for summary in page.summaries:
            say(summary)
        say(f"report: {where}")
