"""The command line: parse, call, print. Nothing heavy is imported until a command runs."""

from __future__ import annotations

import itertools
import json
import logging
import os
import shlex
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console

from s2e._version import __version__
from s2e.errors import InvalidInput, S2EError, UnreadableData

if TYPE_CHECKING:
    from s2e.runs import Run

app = typer.Typer(
    name="s2e",
    help="Train good classifiers on wrong labels, without being told how wrong they are.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
out = Console(highlight=False, emoji=False)
err = Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)

DATA_HELP = "digits, mnist, fashion-mnist, cifar10, cifar100, or a FILE.npz"
Data = Annotated[str, typer.Argument(metavar="DATA", help=DATA_HELP)]
DataOrResumed = Annotated[str, typer.Argument(metavar="DATA", help=f"{DATA_HELP}; may be left out with --resume")]
NOISE_HELP = "Noise to add: symmetric:RATE, uniform:RATE, pair:RATE, instance:RATE, asymmetric:FILE, human:KIND or none"
Noise = Annotated[str, typer.Option(help=NOISE_HELP)]
Validation = Annotated[str, typer.Option(help="clean, noisy, a FILE.npz, or auto: clean where clean labels are known")]
ValidationShare = Annotated[
    float | None,
    typer.Option(help="Share of the training samples held out; 0.1, or up to 0.2 of small data, when not given"),
]
SEARCHABLE_HELP = "coteaching, mentornet, coteaching+ or jocor"
METHOD_HELP = "standard, decoupling, f-correction, mentornet, coteaching, coteaching+, reweight or jocor"
Network = Annotated[str, typer.Option(help="mlp, cifar10-cnn, cifar100-cnn, or auto: by the shape of the data")]
Epochs = Annotated[int, typer.Option(help="Epochs of every training")]
BatchSize = Annotated[int, typer.Option(help="Samples in a batch")]
Space = Annotated[str, typer.Option(help="Family of schedules: s2e, coteaching, single-1 … single-4, rbf or mlp")]
Sampler = Annotated[str, typer.Option(help="curve, newton, natural, gradient, random or tpe")]
Trials = Annotated[int, typer.Option(help="Schedules to train in a search")]
Generation = Annotated[int, typer.Option(help="Schedules trained at once, as one population")]
LearningRate = Annotated[float, typer.Option(help="Adam's; falls to 0 over the last 60% of the epochs")]
Seed = Annotated[int, typer.Option(min=0, help="Decides everything that is drawn")]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, …, or auto")]
DataRoot = Annotated[Path, typer.Option(help="Where data sets lie, and where they are downloaded to")]
Out = Annotated[Path | None, typer.Option(help="Directory of the run; a new one under runs/ when not given")]
Storage = Annotated[str | None, typer.Option(help="URL of the study; in the run directory when not given")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the run in --out")]
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
    method: Annotated[str, typer.Option(help=f"Whose schedule: {SEARCHABLE_HELP}")] = "coteaching",
    network: Network = "auto",
    epochs: Epochs = 200,
    batch_size: BatchSize = 128,
    learning_rate: LearningRate = 1e-3,
    space: Space = "s2e",
    sampler: Sampler = "curve",
    trials: Trials = 60,
    generation: Generation = 6,
    baselines: Annotated[bool, typer.Option(help="Also train Standard and Co-teaching on the same data")] = True,
    restarts: Annotated[int, typer.Option(help="Fresh seeds of the final training; validation chooses among them")] = 3,
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
    where = out or _new_directory("search", data)
    with _reporting(debug, resumable=("search", where)):
        from s2e import commands
        from s2e.progress import progress
        from s2e.workplace import Place

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
        place: dict[str, Any] = {"root": data_root, "device": device, "storage": storage}
        if resume:
            given, place = _resumed("search", context, out, given, place)
        _check_given(given["data"])
        with progress(err) as watch:
            run = commands.search(commands.SearchOptions(**given), Place(where, **place), watch, resume=resume)
        _show(run, as_json=as_json)


@app.command()
def train(
    data: Data,
    noise: Noise = "none",
    validation: Validation = "auto",
    validation_share: ValidationShare = None,
    method: Annotated[str, typer.Option(help=METHOD_HELP)] = "coteaching",
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
    with _reporting(debug):
        from s2e import commands
        from s2e.progress import progress
        from s2e.workplace import Place

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
            transition=transition,
        )
        place = Place(out or _new_directory("train", data), data_root, device)
        with progress(err) as watch:
            run = commands.train(options, place, watch)
        _show(run, as_json=as_json)


@app.command()
def compare(
    context: typer.Context,
    data: DataOrResumed = "",
    noise: Annotated[list[str] | None, typer.Option(help=f"{NOISE_HELP}; may be given several times")] = None,
    methods: Annotated[
        str,
        typer.Option(help=f"all, or a list with commas of {METHOD_HELP[: -len(' or jocor')]}, jocor, s2e, s2e:METHOD"),
    ] = "all",
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
    trials: Trials = 30,
    generation: Generation = 6,
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
    where = out or _new_directory("compare", data)
    with _reporting(debug, resumable=("compare", where)):
        from s2e import comparison
        from s2e.progress import progress
        from s2e.workplace import Place

        _quieten_optuna()
        given: dict[str, Any] = {
            "data": data,
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
            "generation": generation,
        }
        place: dict[str, Any] = {"root": data_root, "device": device, "storage": storage}
        if resume:
            given, place = _resumed("compare", context, out, given, place)
        _check_given(given["data"])
        options = comparison.CompareOptions(**{**given, **{name: tuple(given[name]) for name in ("noises", "methods")}})
        with progress(err) as watch:
            run = comparison.compare(options, Place(where, **place), watch, resume=resume)
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
            _write(out, text)


def _check_given(data: str) -> None:
    if not data:
        raise InvalidInput(f"`DATA` must be given: {DATA_HELP}.")


def _resumed(
    command: str, context: typer.Context, path: Path | None, given: dict[str, Any], place: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Take the options of the run that is continued, but for those given on the command line."""
    from s2e.runs import CONFIG, Run

    if path is None:
        raise InvalidInput("`--resume` must come with --out and the directory of the run, but got no --out.")
    config = Run.open(path).read_json(CONFIG)
    try:
        made_by, options = config["command"], dict(config["options"])
        places = {"root": Path(config["data_root"]), "device": config["device"], "storage": config["storage"]}
    except (KeyError, TypeError, ValueError) as problem:
        raise UnreadableData(f"{str(path / CONFIG)!r} is not the configuration of a run: {problem!r}.") from problem
    if made_by != command:
        raise InvalidInput(
            f"`--resume` continues what s2e {command} began, but {str(path)!r} was made by s2e {made_by}."
        )
    if unknown := options.keys() - given.keys():
        raise UnreadableData(f"{str(path / CONFIG)!r} has options this version does not know: {', '.join(unknown)}.")
    named = {"root": "data_root", "noises": "noise"}
    return (
        {**given, **options, **{name: given[name] for name in given if _is_explicit(context, named.get(name, name))}},
        {**places, **{name: place[name] for name in place if _is_explicit(context, named.get(name, name))}},
    )


def _is_explicit(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as problem:
        raise InvalidInput(
            f"`--out` must be a file to write to, but {str(path)!r} is not: {problem.strerror}."
        ) from None


def _quieten_optuna() -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)


def _new_directory(command: str, data: str) -> Path:
    """Name a directory under runs/ that does not exist yet."""
    name = f"{command}-{Path(data).stem or 'data'}-{time.strftime('%Y%m%d-%H%M%S')}"
    names = (Path("runs") / (name if count == 1 else f"{name}-{count}") for count in itertools.count(1))
    return next(path for path in names if not path.exists())


@contextmanager
def _reporting(debug: bool, resumable: tuple[str, Path] | None = None) -> Iterator[None]:
    """Turn what goes wrong into one line and an exit code: 2 for bad input, 130 when interrupted."""
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    _at_work.set(resumable)
    try:
        yield
    except S2EError as problem:
        if debug:
            raise
        err.print(f"s2e: {problem}", markup=False)
        raise typer.Exit(2) from problem
    except KeyboardInterrupt:  # only where `app` is run by another program: `main` lets none arise
        err.print(_interrupted(), markup=False)
        raise typer.Exit(130) from None


_at_work: ContextVar[tuple[str, Path] | None] = ContextVar("_at_work", default=None)
"""The command at work and its run directory, where it can be continued."""


def _interrupted() -> str:
    """Say that Ctrl-C was pressed, and how to go on."""
    resumable = _at_work.get()
    if resumable is None or not (resumable[1] / "config.json").exists():
        return "s2e: interrupted"
    command, path = resumable
    return f"s2e: interrupted; continue with: s2e {command} --resume --out {shlex.quote(str(path))}"


def _stop(*_: object) -> NoReturn:
    """End the process where it stands, with one line, when Ctrl-C is pressed.

    Not by raising KeyboardInterrupt, which does not always arrive: in the middle of a write to the study SQLAlchemy
    logs it with a traceback, or raises an error of its own instead, which Optuna takes for a busy database and tries
    again; the callback of a weak reference drops it; torch, while it is imported, aborts the process. And nothing has
    to be put in order first: a run can be continued wherever its process died, and what was half written or downloaded
    lies under a hidden name.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # pressed twice, it is said once
    try:
        below_the_bar = "\x1b[?25h\n" if err.is_terminal else ""  # and shows the cursor, which a bar hides
        line = os.fsencode(f"{below_the_bar}{_interrupted()}\n")
        stderr = os.dup(2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # or the thread that draws the bar may draw over the line
        os.write(stderr, line)
    finally:
        os._exit(130)


def _show(run: Run, *, as_json: bool) -> None:
    """Print the result of a run."""
    result = run.read_json("result.json")
    if as_json:
        typer.echo(json.dumps({**result, "run": str(run.path)}, indent=2))
        return
    from s2e.tables import comparison_tables, result_table

    for table in comparison_tables(result) if "summary" in result else [result_table(result)]:
        out.print(table)
    typer.echo(f"run: {run.path}")


def main() -> None:
    """Entry point of the console script."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored, as behind an & in a script
        signal.signal(signal.SIGINT, _stop)
    try:
        app(prog_name="s2e")
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is done and said: only Python itself is left to end
