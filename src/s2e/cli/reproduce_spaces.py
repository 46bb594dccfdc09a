"""`s2e reproduce spaces`: random search in each space, and the test accuracy of what was found there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from s2e.cli.directories import new_directory, resumed
from s2e.cli.options import (
    DATA_HELP,
    NOISE_HELP,
    BatchSize,
    DataRoot,
    Debug,
    Device,
    Epochs,
    Json,
    LearningRate,
    Network,
    Out,
    Resume,
    Seed,
)
from s2e.cli.reporting import err, quieten_optuna, reporting
from s2e.cli.reporting import out as console

if TYPE_CHECKING:
    from rich.table import Table

COMMAND = "reproduce spaces"


def spaces(
    context: typer.Context,
    data: Annotated[str, typer.Option(help=DATA_HELP)] = "mnist",
    noise: Annotated[
        list[str] | None,
        typer.Option(help=f"{NOISE_HELP}; may be given several times, the paper's three when not given"),
    ] = None,
    draws: Annotated[int, typer.Option(help="Schedules drawn in each space, under each noise setting")] = 50,
    epochs: Epochs = 200,
    seeds: Annotated[int, typer.Option(help="How often the schedule found in a space is trained and tested")] = 5,
    together: Annotated[int, typer.Option(help="Trainings at a time; what is finished survives an interruption")] = 250,
    network: Network = "auto",
    batch_size: BatchSize = 128,
    learning_rate: LearningRate = 1e-3,
    seed: Seed = 0,
    device: Device = "auto",
    data_root: DataRoot = Path("data"),
    out: Out = None,
    resume: Resume = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare the spaces of schedules, each searched at random (the paper's Table 2)."""
    where = out or new_directory("spaces", data)
    with reporting(debug, resumable=(COMMAND, where)):
        from s2e.experiments.spaces import SpacesOptions, compare_spaces
        from s2e.experiments.table import NOISES
        from s2e.progress import progress
        from s2e.workplace import Place

        quieten_optuna()
        given: dict[str, Any] = {
            "data": data,
            "noises": tuple(noise or NOISES),
            "draws": draws,
            "seeds": seeds,
            "together": together,
            "network": network,
            "epochs": epochs,
            "batch_size": batch_size,
            "learning_rate": learning_rate,
            "seed": seed,
        }
        place: dict[str, Any] = {"root": data_root, "device": device, "storage": None}
        if resume:
            given, place = resumed(COMMAND, context, out, given, place)
        options = SpacesOptions(**{**given, "noises": tuple(given["noises"])})
        with progress(err) as watch:
            run = compare_spaces(options, Place(where, **place), watch, resume=resume)
        result = run.read_json("result.json")
        if as_json:
            typer.echo(json.dumps({**result, "run": str(run.path)}, indent=2))
            return
        for table in tables(result):
            console.print(table)
        typer.echo(f"run: {run.path}")


def tables(result: Mapping[str, Any]) -> list[Table]:
    """Two tables of spaces by noise settings: test accuracy over the last epochs, and of the best epoch."""
    from s2e.records import LAST_EPOCHS

    last, drawn = min(LAST_EPOCHS, result["epochs"]), result["draws"]
    seeds = "one seed" if result["seeds"] == 1 else f"mean ± standard deviation over {result['seeds']} seeds"
    single = ", ".join(result["single"].values())
    about = [
        f"in percent, {seeds}; schedules chosen by validation, of {drawn} drawn in each space",
        f"Single is the best of four spaces by validation ({drawn} drawn in each): {single}",
        *_divergence(result),
        f"{result['seconds']:.0f} s on {result['device']}",
    ]
    hindsight = "the paper's figure; the epoch is chosen by the test data themselves"
    return [
        _table(result, f"last_{LAST_EPOCHS}_epochs", f"test accuracy, last {last} epochs", "in percent"),
        _table(result, "best_epoch", "test accuracy, best epoch", "\n".join([hindsight, *about])),
    ]


def _table(result: Mapping[str, Any], figure: str, title: str, caption: str) -> Table:
    """One row for each space, one column for each noise setting, the best of a column in bold."""
    from rich.table import Table
    from rich.text import Text

    from s2e.experiments.spaces import SINGLE, TITLES
    from s2e.outcomes import noise_title
    from s2e.tables import FIGURE_WIDTH, mean_and_std

    of = {(row["noise"], row["space"]): row[figure] for row in result["summary"]}
    of |= {(noise, SINGLE): of[noise, space] for noise, space in result["single"].items()}
    table = Table(title=Text(title), caption=Text(caption), caption_justify="left")  # Text: brackets are no markup
    table.add_column("space")
    for noise in result["single"]:
        table.add_column(Text(noise_title(noise)), justify="right", min_width=FIGURE_WIDTH)
    best = {noise: max(of[noise, space]["mean"] for space in TITLES) for noise in result["single"]}
    for space, name in TITLES.items():
        cells = [
            Text(mean_and_std(of[noise, space]), style="bold" if of[noise, space]["mean"] == best[noise] else "")
            for noise in result["single"]
        ]
        table.add_row(name, *cells)
    return table


def _divergence(result: Mapping[str, Any]) -> list[str]:
    """Say which trainings diverged; their last epochs count as 0."""
    gone = [
        f"{row['space']} {row['diverged']} of {row['seeds']} ({row['noise']})"
        for row in result["summary"]
        if row["diverged"]
    ]
    return [f"diverged, counted as 0 over the last epochs: {'; '.join(gone)}"] if gone else []
