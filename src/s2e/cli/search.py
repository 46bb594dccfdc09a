"""`s2e search` and `s2e train`: a schedule that is searched, and one that is given."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from s2e.cli.options import (
    BatchSize,
    Data,
    DataOrResumed,
    DataRoot,
    Debug,
    Device,
    Epochs,
    Generation,
    IdColumn,
    Json,
    Label,
    LearningRate,
    Method,
    Network,
    Noise,
    Out,
    Resume,
    Sampler,
    SearchedMethod,
    SearchTrials,
    Seed,
    Space,
    Storage,
    Validation,
    ValidationShare,
    generation_of,
)
from s2e.cli.resume import check_given, new_directory, resumed
from s2e.cli.terminal import err, quieten_optuna, reporting, show


def search(
    context: typer.Context,
    data: DataOrResumed = "",
    label: Label = "",
    id_column: IdColumn = "",
    noise: Noise = "none",
    validation: Validation = "auto",
    validation_share: ValidationShare = None,
    method: SearchedMethod = "coteaching",
    network: Network = "auto",
    epochs: Epochs = 200,
    batch_size: BatchSize = 128,
    learning_rate: LearningRate = 1e-3,
    space: Space = "s2e",
    sampler: Sampler = "curve",
    trials: SearchTrials = None,
    generation: Generation = "6",
    baselines: Annotated[bool, typer.Option(help="Also train Standard and Co-teaching on the same data")] = True,
    restarts: Annotated[int, typer.Option(help="Fresh seeds of the final training; validation chooses among them")] = 3,
    relabel: Annotated[
        bool, typer.Option(help="Relabel the samples of noisy validation before schedules are compared")
    ] = True,
    seed: Seed = 0,
    device: Device = "auto",
    data_root: DataRoot = Path("data"),
    storage: Storage = None,
    out: Out = None,
    resume: Resume = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Search a schedule, train the final classifier with it, test it once."""
    where = out or new_directory("search", data)
    with reporting(debug, resumable=("search", where)):
        from s2e.runs.session import RunLocation
        from s2e.workflows import search as commands
        from s2e.workflows.progress import progress

        quieten_optuna()
        given: dict[str, Any] = {
            "data": data,
            "label": label,
            "id_column": id_column,
            "noise": noise,
            "validation": validation,
            "validation_share": validation_share,
            "method": method,
            "network": network,
            "epochs": epochs,
            "batch_size": batch_size,
            "learning_rate": learning_rate,
            "space": space,
            "sampler": sampler,
            "trials": trials,
            "generation": generation_of(generation),
            "baselines": baselines,
            "restarts": restarts,
            "relabel": relabel,
            "seed": seed,
        }
        place: dict[str, Any] = {"root": data_root, "device": device, "storage": storage}
        if resume:
            given, place = resumed("search", context, out, given, place)
        check_given(given["data"])
        with progress(err) as watch:
            run = commands.search(commands.SearchOptions(**given), RunLocation(where, **place), watch, resume=resume)
        show(run, as_json=as_json)


def train(
    data: Data,
    label: Label = "",
    id_column: IdColumn = "",
    noise: Noise = "none",
    validation: Validation = "auto",
    validation_share: ValidationShare = None,
    method: Method = "coteaching",
    schedule: Annotated[
        str, typer.Option(help="constant:RATE, coteaching:NOISE_RATE, or the schedule.json of a run")
    ] = "",
    transition: Annotated[
        str,
        typer.Option(help="For f-correction: a .csv, .json or .npy matrix, row = true class; estimated when not given"),
    ] = "",
    network: Network = "auto",
    epochs: Epochs = 200,
    batch_size: BatchSize = 128,
    learning_rate: LearningRate = 1e-3,
    seed: Seed = 0,
    device: Device = "auto",
    data_root: DataRoot = Path("data"),
    out: Out = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Train one method with a given schedule, test it once."""
    with reporting(debug):
        from s2e.runs.session import RunLocation
        from s2e.workflows import search as commands
        from s2e.workflows.progress import progress

        options = commands.TrainOptions(
            data=data,
            label=label,
            id_column=id_column,
            noise=noise,
            validation=validation,
            validation_share=validation_share,
            seed=seed,
            method=method,
            network=network,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            schedule=schedule,
            transition=transition,
        )
        place = RunLocation(out or new_directory("train", data), data_root, device)
        with progress(err) as watch:
            run = commands.train(options, place, watch)
        show(run, as_json=as_json)
