"""The command line: parse, call, print. Nothing heavy is imported until a command runs."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from s2e._version import __version__
from s2e.errors import InvalidInput, S2EError

if TYPE_CHECKING:
    from s2e.runs import Run

app = typer.Typer(
    name="s2e",
    help="Train good classifiers on wrong labels, without being told how wrong they are.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
out = Console(highlight=False)
err = Console(stderr=True, highlight=False, soft_wrap=True)

DATA_HELP = "digits, mnist, fashion-mnist, cifar10, cifar100, or a FILE.npz"
Data = Annotated[str, typer.Argument(metavar="DATA", help=DATA_HELP)]
DataOrResumed = Annotated[str, typer.Argument(metavar="DATA", help=f"{DATA_HELP}; may be left out with --resume")]
Noise = Annotated[
    str,
    typer.Option(
        help="Noise to add: symmetric:RATE, uniform:RATE, pair:RATE, instance:RATE, asymmetric:FILE, human:KIND or none"
    ),
]
Validation = Annotated[str, typer.Option(help="clean, noisy, a FILE.npz, or auto: clean where clean labels are known")]
ValidationShare = Annotated[
    float | None,
    typer.Option(help="Share of the training samples held out; 0.1, or up to 0.2 of small data, when not given"),
]
Method = Annotated[str, typer.Option(help="standard, mentornet or coteaching")]
Network = Annotated[str, typer.Option(help="mlp, cifar10-cnn, cifar100-cnn, or auto: by the shape of the data")]
Epochs = Annotated[int, typer.Option(help="Epochs of every training")]
BatchSize = Annotated[int, typer.Option(help="Samples in a batch")]
LearningRate = Annotated[float, typer.Option(help="Adam's; falls to 0 over the last 60% of the epochs")]
Seed = Annotated[int, typer.Option(min=0, help="Decides everything that is drawn")]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, …, or auto")]
DataRoot = Annotated[Path, typer.Option(help="Where data sets lie, and where they are downloaded to")]
Out = Annotated[Path | None, typer.Option(help="Directory of the run; a new one under runs/ when not given")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON")]
Debug = Annotated[bool, typer.Option("--debug", help="Show a traceback when something goes wrong")]


@app.callback(invoke_without_command=True)
def common(version: Annotated[bool, typer.Option("--version", help="Show the version and exit")] = False) -> None:
    """Train good classifiers on wrong labels, without being told how wrong they are."""
    if version:
        out.print(__version__)
        raise typer.Exit


@app.command()
def search(
    context: typer.Context,
    data: DataOrResumed = "",
    noise: Noise = "none",
    validation: Validation = "auto",
    validation_share: ValidationShare = None,
    method: Method = "coteaching",
    network: Network = "auto",
    epochs: Epochs = 200,
    batch_size: BatchSize = 128,
    learning_rate: LearningRate = 1e-3,
    space: Annotated[str, typer.Option(help="Family of schedules: s2e or coteaching")] = "s2e",
    sampler: Annotated[str, typer.Option(help="curve, newton, natural, gradient, random or tpe")] = "curve",
    trials: Annotated[int, typer.Option(help="Schedules to train in all")] = 60,
    generation: Annotated[int, typer.Option(help="Schedules trained at once, as one population")] = 6,
    baselines: Annotated[bool, typer.Option(help="Also train Standard and Co-teaching on the same data")] = True,
    restarts: Annotated[int, typer.Option(help="Fresh seeds of the final training; validation chooses among them")] = 3,
    seed: Seed = 0,
    device: Device = "auto",
    data_root: DataRoot = Path("data"),
    storage: Annotated[str | None, typer.Option(help="URL of the study; in the run directory when not given")] = None,
    out: Out = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Search a schedule, train the final classifier with it, test it once."""
    where = out or _new_directory("search", data)
    with _reporting(debug, resumable=f"s2e search --resume --out {where}"):
        from s2e import commands
        from s2e.progress import progress

        _quieten_optuna()
        given: dict[str, Any] = {
            "data": data,
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
            "generation": generation,
            "baselines": baselines,
            "restarts": restarts,
            "seed": seed,
        }
        if resume:
            given, storage = _resumed(context, given, out, storage)
        if not given["data"]:
            raise InvalidInput(f"`DATA` must be given: {DATA_HELP}.")
        place = commands.Place(where, data_root, device, storage)
        with progress(err) as watch:
            run = commands.search(commands.SearchOptions(**given), place, watch, resume=resume)
        _show(run, as_json=as_json)


@app.command()
def train(
    data: Data,
    noise: Noise = "none",
    validation: Validation = "auto",
    validation_share: ValidationShare = None,
    method: Method = "coteaching",
    schedule: Annotated[
        str, typer.Option(help="constant:RATE, coteaching:NOISE_RATE, or the schedule.json of a run")
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
    with _reporting(debug):
        from s2e import commands
        from s2e.progress import progress

        options = commands.TrainOptions(
            data=data,
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
        )
        place = commands.Place(out or _new_directory("train", data), data_root, device)
        with progress(err) as watch:
            run = commands.train(options, place, watch)
        _show(run, as_json=as_json)


@app.command()
def datasets(as_json: Json = False) -> None:
    """List what can be loaded, and from where."""
    from s2e.datasets import available

    if as_json:
        typer.echo(json.dumps([{"name": info.name, "classes": info.classes} for info in available()], indent=2))
        return
    for info in available():
        out.print(f"[bold]{info.name:15}[/]{info.description}")


@app.command()
def reproduce(
    what: Annotated[str, typer.Argument(metavar="WHAT", help="convergence")],
    seed: Seed = 0,
    out: Annotated[Path | None, typer.Option(help="JSON file to write the numbers to")] = None,
    debug: Debug = False,
) -> None:
    """Compute what the paper shows: the convergence of its search, so far."""
    with _reporting(debug):
        from s2e.experiments import reproduced

        numbers = reproduced(what, seed)
        text = json.dumps(numbers, indent=2)
        if out is None:
            typer.echo(text)
        else:
            out.write_text(text + "\n", encoding="utf-8")


def _resumed(
    context: typer.Context, given: Mapping[str, Any], path: Path | None, storage: str | None
) -> tuple[dict[str, Any], str | None]:
    """Take the options of the run that is continued, but for those given on the command line."""
    from s2e.runs import CONFIG, Run

    if path is None:
        raise InvalidInput("`--resume` must come with --out and the directory of the run, but got no --out.")
    config = Run.open(path).read_json(CONFIG)
    if config["command"] != "search":
        raise InvalidInput(f"`--resume` continues a search, but {str(path)!r} was made by s2e {config['command']}.")
    explicit = {name for name in given if _is_explicit(context, name)}
    options = {**config["options"], **{name: given[name] for name in explicit}}
    return options, storage or config["storage"]


def _is_explicit(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _quieten_optuna() -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)


def _new_directory(command: str, data: str) -> Path:
    name = Path(data).stem or "data"
    return Path("runs") / f"{command}-{name}-{time.strftime('%Y%m%d-%H%M%S')}"


@contextmanager
def _reporting(debug: bool, resumable: str | None = None) -> Iterator[None]:
    """Turn what goes wrong into one line and an exit code: 2 for bad input, 130 when interrupted."""
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    try:
        yield
    except S2EError as problem:
        if debug:
            raise
        err.print(f"s2e: {problem}", markup=False)
        raise typer.Exit(2) from problem
    except KeyboardInterrupt:
        hint = f"; continue with: {resumable}" if resumable else ""
        err.print(f"s2e: interrupted{hint}", markup=False)
        raise typer.Exit(130) from None


def _show(run: Run, *, as_json: bool) -> None:
    """Print the result of a run."""
    result = run.read_json("result.json")
    if as_json:
        typer.echo(json.dumps({**result, "run": str(run.path)}, indent=2))
        return
    from s2e.tables import result_table

    out.print(result_table(result))
    out.print(f"run: {run.path}", markup=False)


def main() -> None:
    """Entry point of the console script."""
    app(prog_name="s2e")
