"""Options that several commands share, and what their help says."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

SEARCHABLE_METHODS = ("coteaching", "mentornet", "coteaching+", "jocor")
METHODS = (
    "standard",
    "decoupling",
    "f-correction",
    "mentornet",
    "coteaching",
    "coteaching+",
    "reweight",
    "jocor",
)
"""Named here too, for the modules that define them take long to import."""


def generation_of(text: str) -> int | str:
    """Read a generation: a number, or the word that was given, which is refused later where it is not auto."""
    try:
        return int(text)
    except ValueError:
        return text


def _one_of(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


DATA_HELP = (
    "A table (.csv, .parquet; see --label), a folder of class folders of images, a FILE.npz, hf:NAME, or digits, "
    "mnist, fashion-mnist, cifar10 or cifar100"
)
NOISE_HELP = "Noise to add: symmetric:RATE, uniform:RATE, pair:RATE, instance:RATE, asymmetric:FILE, human:KIND or none"
METHOD_HELP = _one_of(METHODS)
SEARCHED_METHOD_HELP = f"Whose schedule: {_one_of(SEARCHABLE_METHODS)}"
COMPARED_METHODS_HELP = f"all, or a list with commas of {', '.join(METHODS)}, s2e, s2e:METHOD"

# What is trained on
Data = Annotated[str, typer.Argument(metavar="DATA", help=DATA_HELP)]
DataOrResumed = Annotated[str, typer.Argument(metavar="DATA", help=f"{DATA_HELP}; may be left out with --resume")]
Label = Annotated[str, typer.Option(metavar="COLUMN", help="Of a table: the column with the labels")]
IdColumn = Annotated[str, typer.Option("--id", metavar="COLUMN", help="Of a table: the column that names its rows")]
Noise = Annotated[str, typer.Option(help=NOISE_HELP)]
Noises = Annotated[list[str] | None, typer.Option(help=f"{NOISE_HELP}; may be given several times")]
Validation = Annotated[
    str,
    typer.Option(
        help="clean, noisy, a FILE with labels to be trusted (.npz; a table where the data are one), or auto: clean "
        "where clean labels are known"
    ),
]
ValidationShare = Annotated[
    float | None,
    typer.Option(help="Share of the training samples held out; 0.1, or up to 0.2 of small data, when not given"),
]

# How it is trained
Method = Annotated[str, typer.Option(help=METHOD_HELP)]
SearchedMethod = Annotated[str, typer.Option(help=SEARCHED_METHOD_HELP)]
ComparedMethods = Annotated[str, typer.Option(help=COMPARED_METHODS_HELP)]
Network = Annotated[str, typer.Option(help="mlp, cifar10-cnn, cifar100-cnn, or auto: by the shape of the data")]
Epochs = Annotated[int, typer.Option(help="Epochs of every training")]
BatchSize = Annotated[int, typer.Option(help="Samples in a batch")]
LearningRate = Annotated[float, typer.Option(help="Adam's; falls to 0 over the last 60% of the epochs")]
Seed = Annotated[int, typer.Option(min=0, help="Decides everything that is drawn")]

# How a schedule is searched
Space = Annotated[str, typer.Option(help="Family of schedules: s2e, coteaching, single-1 … single-4, rbf or mlp")]
Sampler = Annotated[
    str,
    typer.Option(
        help="curve, newton, newton-curve, natural, gradient, or Optuna's random, tpe, gp, cmaes or hyperband"
    ),
]
SearchTrials = Annotated[
    int | None,
    typer.Option(help="Schedules to train; when not given 60, or ten generations where --generation is auto"),
]
CompareTrials = Annotated[
    int | None,
    typer.Option(
        help="Schedules to train in a search; when not given 30, or five generations where --generation is auto"
    ),
]
Generation = Annotated[
    str,
    typer.Option(
        metavar="INTEGER|auto",
        help="Schedules trained at once, as one population; auto: 6 on a CPU, on a GPU up to 32 if they take little "
        "longer than 6, by a measurement of a second or two, but at most a fifth of --trials",
    ),
]

# Where it is done, and what is shown
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, …, or auto")]
DataRoot = Annotated[Path, typer.Option(help="Where data sets lie, and where they are downloaded to")]
Out = Annotated[Path | None, typer.Option(help="Directory of the run; a new one under runs/ when not given")]
Storage = Annotated[str | None, typer.Option(help="URL of the study; in the run directory when not given")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the run in --out")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON")]
Debug = Annotated[bool, typer.Option("--debug", help="Show a traceback when something goes wrong")]
