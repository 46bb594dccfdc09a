"""`s2e predict`: classes of new samples, by the classifier of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from s2e.cli.help_text import OUTPUT
from s2e.cli.options import Debug, Json, Quiet
from s2e.cli.terminal import check_table_output, err, printable, reporting, say, write_output
from s2e.errors import InvalidInput, class_title, counted, listed

SHOWN = 10
"""Most classes whose numbers of samples are printed."""


def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Directory of a run of s2e search or s2e train")],
    data: Annotated[Path, typer.Argument(metavar="DATA", help="A file or folder like the one it was trained on")],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Table to write: .csv, .parquet or .jsonl, or - for comma-separated text on standard output",
            rich_help_panel=OUTPUT,
        ),
    ] = Path("predictions.csv"),
    probabilities: Annotated[
        bool,
        typer.Option("--probabilities", help="Also write the probability of every class", rich_help_panel=OUTPUT),
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Predict the classes of new samples with the classifier of a run.

    The table has the columns of DATA, then predicted_label and confidence. Where DATA has labels, the accuracy is
    printed.
    """
    with reporting(debug):
        from s2e.runs import encoded_table
        from s2e.workflows.classifier_runs import open_classifier_run
        from s2e.workflows.predict import predict as predicted

        suffix, to_stdout = check_table_output("output", output), str(output) == "-"
        if as_json and to_stdout:
            raise InvalidInput("`json` must be used with a file for the table, but got --output -.")
        found = predicted(open_classifier_run(run), data)
        write_output("output", output, encoded_table(found.table(probabilities=probabilities), suffix))
        if missing := found.without_prediction:
            err.print(
                f"{len(missing)} of {counted(len(found.ids), 'sample')} {'has' if len(missing) == 1 else 'have'} no "
                "prediction, because the inputs or the outputs of the classifier are not finite: "
                f"{listed(map(printable, missing))}",
                markup=False,
            )
        if as_json:
            typer.echo(json.dumps({**found.summary(), "output": str(output), "run": str(run)}, indent=2))
            return
        if to_stdout:
            return
        if quiet:
            say(str(output))
            return
        numbers = listed((f"{class_title(name)} ({count:,})" for name, count in found.counts.items()), SHOWN)
        say(f"{counted(len(found.ids), 'sample')}: {numbers}")
        if found.accuracy is not None:
            say(f"accuracy: {found.accuracy:.2%} of {counted(found.labelled, 'given label')}")
        say(f"predictions: {output}")
