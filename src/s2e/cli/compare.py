"""`s2e compare`: several methods from several seeds on the same noisy data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from s2e.cli.options import (
    BatchSize,
    ComparedMethods,
    CompareTrials,
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
    Network,
    Noises,
    Out,
    Resume,
    Sampler,
    Seed,
    Space,
    Storage,
    Validation,
    ValidationShare,
    generation_of,
)
from s2e.cli.resume import check_given, new_directory, resumed
from s2e.cli.terminal import err, quieten_optuna, reporting, show


def compare(
    context: typer.Context,
    data: DataOrResumed = "",
    label: Label = "",
    id_column: IdColumn = "",
    noise: Noises = None,
    methods: ComparedMethods = "all",
    seeds: Annotated[
        int, typer.Option(help="How often each method is trained, from other weights and on other noise")
    ] = 5,
    noise_rate: Annotated[
        float | None, typer.Option(help="What methods are told; the true share of wrong labels where it is known")
    ] = None,
    validation: Validation = "auto",
    validation_share: ValidationShare = None,
    network: Network = "auto",
    epochs: Epochs = 200,
    batch_size: BatchSize = 128,
    learning_rate: LearningRate = 1e-3,
    space: Space = "s2e",
    sampler: Sampler = "curve",
    trials: CompareTrials = None,
    generation: Generation = "6",
    seed: Seed = 0,
    device: Device = "auto",
    data_root: DataRoot = Path("data"),
    storage: Storage = None,
    out: Out = None,
    resume: Resume = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Train several methods from several seeds on the same noisy data: one table, one CSV, figures."""
    where = out or new_directory("compare", data)
    with reporting(debug, resumable=("compare", where)):
        from s2e.runs.session import RunLocation
        from s2e.workflows import compare as comparison
        from s2e.workflows.progress import progress

        quieten_optuna()
        given: dict[str, Any] = {
            "data": data,
            "label": label,
            "id_column": id_column,
            "noises": tuple(noise or ["none"]),
            "methods": tuple(name.strip() for name in methods.split(",")),
            "seeds": seeds,
            "noise_rate": noise_rate,
            "validation": validation,
            "validation_share": validation_share,
            "seed": seed,
            "network": network,
            "epochs": epochs,
            "batch_size": batch_size,
            "learning_rate": learning_rate,
            "space": space,
            "sampler": sampler,
            "trials": trials,
            "generation": generation_of(generation),
        }
        place: dict[str, Any] = {"root": data_root, "device": device, "storage": storage}
        if resume:
            given, place = resumed("compare", context, out, given, place)
        check_given(given["data"])
        options = comparison.CompareOptions(**{**given, **{name: tuple(given[name]) for name in ("noises", "methods")}})
        with progress(err) as watch:
            run = comparison.compare(options, RunLocation(where, **place), watch, resume=resume)
        show(run, as_json=as_json)
