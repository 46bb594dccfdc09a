"""`s2e predict`: classes of new samples, by the classifier of a run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from s2e.cli.options import Debug
from s2e.cli.terminal import check_output, err, reporting, say, write_output
from s2e.errors import listed


def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Directory of a run of s2e search or s2e train")],
    data: Annotated[Path, typer.Argument(metavar="DATA", help="A file or folder like the one it was trained on")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the predictions")] = Path(
        "predictions.csv"
    ),
    debug: Debug = False,
) -> None:
    """Predict the classes of new samples with the classifier of a run."""
    with reporting(debug):
        from s2e.runs import Run
        from s2e.workflows.predict import predict as predicted

        check_output("output", output)
        found = predicted(Run.open(run), data)
        write_output("output", output, found.table())
        counts = Counter(name for name, has in zip(found.predicted, found.has_prediction, strict=True) if has)
        shown = ", ".join(f"{name} {count}" for name, count in counts.most_common(10))
        say(f"{len(found.ids)} samples: {shown}{' …' if len(counts) > 10 else ''}")
        if missing := found.without_prediction:
            err.print(
                f"{len(missing)} of {len(found.ids)} samples have no prediction, because their inputs or the outputs "
                f"of the classifier are not finite: {listed(missing)}",
                markup=False,
            )
        say(f"predictions: {output}")
