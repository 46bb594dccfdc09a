"""`s2e reproduce searchers` and `s2e reproduce table`: search algorithms compared, and what they are compared on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
    Space,
    ValidationShare,
)
from s2e.cli.resume import new_directory, resumed
from s2e.cli.terminal import err, quieten_optuna, reporting
from s2e.cli.terminal import out as console

if TYPE_CHECKING:
    from rich.table import Table

SEARCHERS, TABLE = "reproduce searchers", "reproduce table"
Noise = Annotated[
    list[str] | None,
    typer.Option(help=f"{NOISE_HELP}; may be given several times, the paper's three when not given"),
]


def searchers(
    context: typer.Context,
    on: Annotated[
        str, typer.Option(help=f"table, table:FILE of another one, or data to train on for real: {DATA_HELP}")
    ] = "table",
    samplers: Annotated[str, typer.Option(help="all, or a list with commas")] = "all",
    noise: Noise = None,
    repeats: Annotated[int, typer.Option(help="Searches of each algorithm under each noise setting")] = 100,
    trials: Annotated[int, typer.Option(help="Full trainings of a search")] = 60,
    random_trials: Annotated[int, typer.Option(help="Full trainings of random search")] = 300,
    generation: Annotated[int, typer.Option(help="Schedules asked at once")] = 6,
    space: Space = "s2e",
    network: Network = "auto",
    epochs: Epochs = 40,
    batch_size: BatchSize = 128,
    learning_rate: LearningRate = 1e-3,
    validation_share: ValidationShare = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes that search on a table; all cores")] = None,
    seed: Seed = 0,
    device: Device = "auto",
    data_root: DataRoot = Path("data"),
    out: Out = None,
    resume: Resume = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare search algorithms: the error each has found after how many trainings."""
    where = out or new_directory("searchers", on.partition(":")[0])
    with reporting(debug, resumable=(SEARCHERS, where)):
        from s2e.experiments.search_algorithms import SearchersOptions, compare_searchers
        from s2e.runs.session import RunLocation
        from s2e.samplers import SAMPLERS
        from s2e.workflows.progress import progress

        quieten_optuna()
        given: dict[str, Any] = {
            "on": on,
            "samplers": tuple(SAMPLERS) if samplers == "all" else tuple(name.strip() for name in samplers.split(",")),
            "noises": tuple(noise or ()),
            "repeats": repeats,
            "trials": trials,
            "random_trials": random_trials,
            "generation": generation,
            "space": space,
            "network": network,
            "epochs": epochs,
            "batch_size": batch_size,
            "learning_rate": learning_rate,
            "validation_share": validation_share,
            "seed": seed,
        }
        place: dict[str, Any] = {"root": data_root, "device": device, "storage": None}
        if resume:
            given, place = resumed(SEARCHERS, context, out, given, place)
        options = SearchersOptions(**{**given, **{name: tuple(given[name]) for name in ("samplers", "noises")}})
        with progress(err) as watch:
            run = compare_searchers(options, RunLocation(where, **place), watch, jobs=jobs, resume=resume)
        result = run.read_json("result.json")
        if as_json:
            typer.echo(json.dumps({**result, "run": str(run.path)}, indent=2))
            return
        console.print(searchers_table(result))
        typer.echo(f"run: {run.path}")


def searchers_table(result: Mapping[str, Any]) -> Table:
    """One row for each algorithm: the error found, for each noise setting after some numbers of trainings."""
    from rich.table import Table
    from rich.text import Text

    from s2e.plots.names import noise_title

    table = Table(caption=Text("\n".join(_caption(result))), caption_justify="left")
    table.add_column("sampler")
    table.add_column("trainings", justify="right")
    noises = list(dict.fromkeys(row["noise"] for row in result["summary"]))
    for noise in noises:
        table.add_column(Text(noise_title(noise)), justify="right")
    of = {(row["sampler"], row["trainings"], row["noise"]): row for row in result["summary"]}
    for sampler, spent in dict.fromkeys((row["sampler"], row["trainings"]) for row in result["summary"]):
        cells = [_error(of[sampler, spent, noise]) for noise in noises]
        table.add_row(sampler, str(spent), *cells)
    return table


def _error(row: Mapping[str, float]) -> str:
    """Write an error in percent with half its band of confidence."""
    return f"{100 * row['error']:.3f} ± {50 * (row['high'] - row['low']):.3f}"


def _caption(result: Mapping[str, Any]) -> list[str]:
    lines = [f"validation error in percent, mean over {result['repeats']} repeats and its 95% confidence band"]
    for row in result["needed"]:
        needed = row["default_trainings"] or "more than it had"
        lines.append(
            f"{row['noise']}: {row['default']} needs {needed} trainings for what {row['than']} finds with "
            f"{row['trainings']}"
        )
    for noise, checked in result.get("surrogate", {}).items():
        lines.append(
            f"{noise}: held-out correlation of the table's model {checked['correlation']:.3f}, "
            f"of a perfect one {checked['ceiling']:.3f}"
        )
    lines.append(f"{result['seconds']:.0f} s on {result['device']}")
    return lines


def table(
    context: typer.Context,
    data: Annotated[str, typer.Option(help=DATA_HELP)] = "mnist",
    noise: Noise = None,
    space: Space = "s2e",
    draws: Annotated[int, typer.Option(help="Uniform draws from the space")] = 2048,
    again: Annotated[int, typer.Option(help="How many of them are trained from other initial weights too")] = 64,
    times: Annotated[int, typer.Option(help="… how often")] = 2,
    rounds: Annotated[int, typer.Option(help="How often more promising points are looked for and trained")] = 2,
    together: Annotated[int, typer.Option(help="Trainings at a time; what is finished survives an interruption")] = 252,
    network: Network = "auto",
    epochs: Epochs = 40,
    batch_size: BatchSize = 128,
    learning_rate: LearningRate = 1e-3,
    validation_share: ValidationShare = None,
    seed: Seed = 0,
    device: Device = "auto",
    data_root: DataRoot = Path("data"),
    out: Out = None,
    resume: Resume = False,
    debug: Debug = False,
) -> None:
    """Train the schedule table that search algorithms are compared on; needs a GPU, or patience."""
    where = out or new_directory("table", data)
    with reporting(debug, resumable=(TABLE, where)):
        from s2e.experiments.schedule_table.build import NOISES, TableOptions, build_table
        from s2e.runs.session import RunLocation
        from s2e.workflows.progress import progress

        given: dict[str, Any] = {
            "data": data,
            "noises": tuple(noise or NOISES),
            "space": space,
            "draws": draws,
            "again": again,
            "times": times,
            "rounds": rounds,
            "together": together,
            "network": network,
            "method": "coteaching",
            "epochs": epochs,
            "batch_size": batch_size,
            "learning_rate": learning_rate,
            "validation_share": validation_share,
            "seed": seed,
        }
        place: dict[str, Any] = {"root": data_root, "device": device, "storage": None}
        if resume:
            given, place = resumed(TABLE, context, out, given, place)
        options = TableOptions(**{**given, "noises": tuple(given["noises"])})
        with progress(err) as watch:
            run = build_table(options, RunLocation(where, **place), watch, resume=resume)
        typer.echo(f"run: {run.path}")
