"""What `s2e search` and `s2e train` do, without parsing or printing.

prepare → search → train the final classifier → test it once → write the run
"""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import optuna
import torch
from numpy.typing import NDArray

from s2e import schedules
from s2e._version import __version__
from s2e.data import fingerprint
from s2e.devices import device_of
from s2e.errors import InvalidInput, RunConflict
from s2e.methods import Method, method
from s2e.networks import default_network, reference_network
from s2e.preparation import DataOptions, Prepared, prepare
from s2e.records import LAST_EPOCHS
from s2e.runs import CONFIG, Run
from s2e.samplers import sampler
from s2e.searching import (
    CHANGEABLE,
    VALIDATION,
    GenerationDone,
    SearchPlan,
    check_storage,
    epochs_left,
    open_study,
    search_schedule,
)
from s2e.seeds import derive
from s2e.spaces import space
from s2e.training import Member, Progress, Task, Trained, check, train_population

TEST = "test"
"""Name under which a final training evaluates the test part."""


@dataclass(frozen=True)
class TrainingOptions(DataOptions):
    """Data, and how classifiers are trained on it."""

    method: str = "coteaching"
    network: str = "auto"
    epochs: int = 200
    batch_size: int = 128
    learning_rate: float = 1e-3


@dataclass(frozen=True)
class TrainOptions(TrainingOptions):
    """One training, with the schedule it is given; empty for methods that need none."""

    schedule: str = ""


@dataclass(frozen=True)
class SearchOptions(TrainingOptions):
    """How the schedule is searched, and what is trained with it in the end."""

    space: str = "s2e"
    sampler: str = "curve"
    trials: int = 60
    generation: int = 6
    baselines: bool = True
    restarts: int = 3


@dataclass(frozen=True)
class Place:
    """Where a command works; nothing here changes its result beyond rounding."""

    out: Path
    root: Path = Path("data")
    device: str = "auto"
    storage: str | None = None


class Watch(Protocol):
    """Is told how a command goes along."""

    def stage(self, name: str, epochs: int) -> None:
        """Say that a part of the work begins which trains for so many epochs."""

    def epoch(self, progress: Progress) -> None:
        """Say that an epoch is done."""

    def generation(self, done: GenerationDone) -> None:
        """Say that a generation is done."""


@dataclass(frozen=True)
class Contender:
    """A method with its schedule under a name of its own, trained from several fresh seeds and tested once.

    Of its restarts the one with the best validation accuracy stands for it.
    """

    name: str
    method: Method
    schedule: NDArray[np.float64]
    restarts: int = 1


def search(options: SearchOptions, place: Place, watch: Watch, *, resume: bool = False) -> Run:
    """Search a schedule, train the final classifier with it, test it once, write the run."""
    began = time.monotonic()
    family = space(options.space)
    plan = SearchPlan(
        family,
        sampler(options.sampler, family, options.epochs, options.generation),
        options.trials,
        options.generation,
        options.learning_rate,
        options.seed,
    )
    prepared = prepare(options, place.root)
    task = _task(options, prepared, place)
    if options.restarts < 1:
        raise InvalidInput(f"`restarts` must be at least 1, but got {options.restarts}.")
    if not task.method.uses_schedule:
        raise InvalidInput(f"`method` must have a keep rate for its schedule to be searched, but got {options.method}.")
    run, config = _begin("search", options, prepared, task, place, resume=resume)
    with run.locked():
        run.write_json(CONFIG, config)
        study = open_study(config["storage"] or run.storage, config["study"], config["options"])
        watch.stage("search", epochs_left(study, plan, options.epochs))
        found = search_schedule(task, plan, study, on_generation=watch.generation, on_epoch=watch.epoch)
        run.write_json("schedule.json", {"keep_rates": found.schedule.tolist(), "point": found.point.tolist()})
        contenders = [Contender("S2E", task.method, found.schedule, options.restarts)]
        if options.baselines:
            contenders = [*_baselines(prepared, options), *contenders]
        watch.stage("final training", len({contender.method.name for contender in contenders}) * options.epochs)
        rows = _train_and_test(task, prepared, contenders, options, run, watch)
        searched = {
            "trials": len(study.trials),
            "best_trial": found.trial,
            "validation_accuracy": found.validation_accuracy,
        }
        _write_result(run, prepared, task, rows, began, search=searched)
    return run


def train(options: TrainOptions, place: Place, watch: Watch) -> Run:
    """Train one method with a given schedule, test it once, write the run."""
    began = time.monotonic()
    schedule = _given_schedule(options)
    prepared = prepare(options, place.root)
    task = _task(options, prepared, place)
    run, _ = _begin("train", options, prepared, task, place, resume=False)
    with run.locked():
        watch.stage("training", options.epochs)
        run.write_json("schedule.json", {"keep_rates": schedule.tolist()})
        contenders = [Contender(task.method.name, task.method, schedule)]
        rows = _train_and_test(task, prepared, contenders, options, run, watch)
        _write_result(run, prepared, task, rows, began)
    return run


def _given_schedule(options: TrainOptions) -> NDArray[np.float64]:
    """Read the schedule; a method without a keep rate needs none."""
    if options.schedule:
        return schedules.parse_schedule(options.schedule, options.epochs)
    if method(options.method).uses_schedule:
        raise InvalidInput(
            f"`schedule` must be given for {options.method}: constant:RATE, coteaching:NOISE_RATE, or a schedule.json."
        )
    return schedules.constant(1.0, options.epochs)


def _task(options: TrainingOptions, prepared: Prepared, place: Place) -> Task:
    """What every candidate of this command trains on. It is handed train and validation, never test."""
    train = prepared.splits.train
    task = Task(
        train,
        reference_network(options.network, train.sample_shape, train.classes),
        method(options.method),
        {VALIDATION: prepared.splits.valid},
        options.epochs,
        options.batch_size,
        derive(options.seed, "batches"),
        device_of(place.device),
    )
    check(task, [Member(schedules.constant(1.0, options.epochs), 0, options.learning_rate)])
    return task


def _baselines(prepared: Prepared, options: SearchOptions) -> list[Contender]:
    """Standard training, and Co-teaching told the true noise rate where it is known."""
    everything = schedules.constant(1.0, options.epochs)
    standard = Contender("Standard", method("standard"), everything, options.restarts)
    if prepared.noise_rate is None:
        return [standard]
    told = schedules.coteaching(prepared.noise_rate, options.epochs)
    return [standard, Contender("Co-teaching", method("coteaching"), told, options.restarts)]


def _train_and_test(
    task: Task,
    prepared: Prepared,
    contenders: Sequence[Contender],
    options: TrainingOptions,
    run: Run,
    watch: Watch,
) -> list[dict[str, Any]]:
    """Train all contenders from fresh seeds, those of one method together; write the last one's model and curves."""
    seed = derive(options.seed, "final")
    evaluate = dict(task.evaluate)
    if prepared.splits.test is not None:
        evaluate[TEST] = prepared.splits.test
    rows = []
    curves: dict[str, NDArray[Any]] = {}
    for which, group in groupby(contenders, key=lambda contender: contender.method):
        together = list(group)
        final = replace(task, method=which, evaluate=evaluate, seed=derive(seed, "batches"))
        members = [
            Member(contender.schedule, derive(seed, "restart", restart), options.learning_rate)
            for contender in together
            for restart in range(contender.restarts)
        ]
        trained = train_population(final, members, on_epoch=watch.epoch)
        first = 0
        for contender in together:
            judged = trained.curves.last(VALIDATION)[first : first + contender.restarts]
            chosen = first + int(judged.argmax())
            rows.append(_row(contender, trained, chosen, judged))
            own = {name: array[chosen] for name, array in trained.curves.arrays().items()}
            curves |= {f"{contender.name}/{name}": array for name, array in own.items()}
            first += contender.restarts
    _write_model(run, task, trained, chosen)
    run.write_arrays("curves.npz", curves)
    return rows


def _row(contender: Contender, trained: Trained, chosen: int, judged: NDArray[np.float64]) -> dict[str, Any]:
    """Summarise one contender: accuracies over the last epochs and at the best epoch of the restart that was chosen."""
    curves = trained.curves
    summary: dict[str, Any] = {"name": contender.name, "method": contender.method.name}
    for part, accuracy in curves.accuracy.items():
        best = int(accuracy[chosen].argmax())
        summary[part] = {
            f"last_{LAST_EPOCHS}_epochs": float(curves.last(part)[chosen]),
            "best_epoch": float(accuracy[chosen, best]),
            "at_epoch": best,
        }
    precision = curves.label_precision[chosen, -LAST_EPOCHS:].mean()
    summary["label_precision"] = None if np.isnan(precision) else float(precision)
    summary["diverged"] = bool(curves.diverged[chosen])
    summary["validation_of_restarts"] = [round(float(value), 6) for value in judged]
    return summary


def _write_model(run: Run, task: Task, trained: Trained, position: int) -> None:
    state = {
        f"network{which}.{name}": tensor[position, which]
        for name, tensor in trained.state.items()
        for which in range(tensor.shape[1])
    }
    run.write_weights("model.safetensors", state, {"classes": "\n".join(task.train.class_names)})
    dynamics = trained.dynamics.arrays()
    own = {name: array if name == "seen" else array[position] for name, array in dynamics.items()}
    run.write_arrays("dynamics.npz", {**own, "rows": task.train.rows, "labels": task.train.labels})


def _write_result(
    run: Run,
    prepared: Prepared,
    task: Task,
    rows: Sequence[Mapping[str, Any]],
    began: float,
    *,
    search: Mapping[str, Any] | None = None,
) -> None:
    result: dict[str, Any] = {
        "methods": list(rows),
        "epochs": task.epochs,
        "noise_rate": prepared.noise_rate,
        "validation": prepared.validation,
        "samples": {"train": len(prepared.splits.train), "valid": len(prepared.splits.valid)},
    }
    if prepared.splits.test is not None:
        result["samples"]["test"] = len(prepared.splits.test)
    if search is not None:
        result["search"] = dict(search)
    device = torch.cuda.get_device_name(task.device) if task.device.type == "cuda" else str(task.device)
    run.write_json("result.json", {**result, "device": device, "seconds": round(time.monotonic() - began, 1)})


def _begin(
    command: str,
    options: TrainingOptions,
    prepared: Prepared,
    task: Task,
    place: Place,
    *,
    resume: bool,
) -> tuple[Run, dict[str, Any]]:
    """Create the run, or open it again when it was made with the same settings; return its configuration too."""
    if place.storage:
        check_storage(place.storage)
    train = task.train
    network = options.network if options.network != "auto" else default_network(train.sample_shape, train.classes)
    config: dict[str, Any] = {
        "command": command,
        "options": asdict(options),
        "network": network,
        "data_fingerprint": fingerprint(prepared.splits.train, prepared.splits.valid),
        "noise_rate": prepared.noise_rate,
        "data_root": str(place.root),
        "device": place.device,
        "storage": place.storage,
        "study": place.out.resolve().name if place.storage else "search",
        "versions": {
            "s2e": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "optuna": optuna.__version__,
            "numpy": np.__version__,
        },
    }
    if not resume or not Run(place.out).exists:
        return Run.create(place.out, config), config
    run = Run.open(place.out)
    before = run.read_json(CONFIG)
    differences = _differences(before["options"], config["options"])
    if before["command"] != command:
        differences.append(f"it was made by s2e {before['command']}")
    elif before["data_fingerprint"] != config["data_fingerprint"] and not differences:
        differences.append("the data have changed since")
    if differences:
        raise RunConflict(f"{str(place.out)!r} was made with other settings: {'; '.join(differences)}.")
    lasting = {name: before[name] for name in ("study", "versions")}
    return run, {**config, **lasting}


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Name the options that differ and may not."""
    return [
        f"{name} was {before.get(name)!r} and is now {now[name]!r}"
        for name in now
        if before.get(name) != now[name] and name not in CHANGEABLE
    ]
