"""The paper's Figure 1: training and test accuracy by epoch when wrong labels are memorised, and the impact of R(t).

Each study varies one choice: the data set, the network, the optimizer, the learning rate, the batch size, or the
schedule. Trainings with the same data, network, optimizer and batch size are members of one population; a population is
stored when it is finished. Nothing is chosen by the test accuracy, which is recorded next to the training accuracy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s2e import schedules
from s2e.data import achieved_rate, check_preparation
from s2e.engine import Member, train_population
from s2e.errors import InvalidInput, UnreadableData
from s2e.experiments.figures import write_figure
from s2e.experiments.memorization_results import (
    COMMAND,
    Trainings,
    claims_of,
    curve_rows,
    figures_of,
    page_of,
    result_rows,
)
from s2e.experiments.pages import PAGE
from s2e.experiments.parts import OF_ITS_PARTS
from s2e.experiments.scales import data_sets
from s2e.methods import Coteaching, Method, Standard
from s2e.runs import Run, RunLocation, Session, csv_text
from s2e.schedules import SPACES
from s2e.seeds import derive
from s2e.specs import LAPTOP, DataSpec, MemorizationOptions, SizedTrainingSpec
from s2e.studies import resolve_execution
from s2e.workflows import SILENT, TEST, ProgressListener, SharedInputs, load_shared_inputs

Floats = NDArray[np.float64]

STUDIED = "cifar10"
"""Data set on which everything but the data set is varied; the first one if it is not among them. At the small scale it
is the first one too: few samples of CIFAR-10 are not learnt in few epochs."""

LARGE_NETWORKS = ("resnet18", "densenet-bc-40-12")
"""Networks that are trained once, under one noise setting, and not at the small scale: they take the most time."""
NOISE_OF_LARGE = "symmetric:0.5"

RANDOM_SCHEDULES = 5
"""Random schedules, uniform draws from the space of perceptrons, which has no prior on the shape of R(t)."""

ALL_SAMPLES, FROM_NOISE_RATE, RANDOM = "none", "coteaching", "random-"
"""Schedules of the study of R(t): R(t) = 1, Co-teaching's for the true noise rate, and prefix of the random ones."""

ABOUT = "about"
"""Name of the array with device, fingerprint of the data, and seconds of a population."""


@dataclass(frozen=True)
class TrainingSetting:
    """The choices of a training; `schedule` is None for Standard, otherwise that of a Co-teaching pair."""

    data: str
    network: str = "auto"
    optimizer: str = "adam"
    learning_rate: float = 1e-3
    batch_size: int = 128
    schedule: str | None = None

    @property
    def population(self) -> str:
        """The name of the population that it is trained in."""
        optimizer = self.optimizer.partition(":")[0]
        return f"{self.data}-{self.network}-{optimizer}-batch-{self.batch_size}".replace("/", "-").replace(":", "-")


def studies(data: Sequence[str], *, small: bool = False) -> dict[str, dict[str, TrainingSetting]]:
    """Return the settings of each study, by their names in the legend.

    Args:
        data: the data sets.
        small: whether they are those of the small scale, without large networks.
    """
    studied = STUDIED if STUDIED in data and not small else data[0]
    base = TrainingSetting(studied)
    random = {f"random {index + 1}": replace(base, schedule=f"{RANDOM}{index}") for index in range(RANDOM_SCHEDULES)}
    fixed = {
        "none (R = 1)": replace(base, schedule=ALL_SAMPLES),
        "Co-teaching's": replace(base, schedule=FROM_NOISE_RATE),
    }
    networks = {"small network": base, "MLP": replace(base, network="mlp:widths=512-256")}
    if not small:
        networks |= {"ResNet-18": replace(base, network=LARGE_NETWORKS[0])}
        networks |= {"DenseNet-BC-40-12": replace(base, network=LARGE_NETWORKS[1])}
    return {
        "data": {name: TrainingSetting(name) for name in data},
        "schedules": fixed | random,
        "networks": networks,
        "optimizers": {
            "Adam": base,
            "SGD, momentum 0.9, learning rate 0.01": replace(base, optimizer="sgd:momentum=0.9", learning_rate=1e-2),
            "RMSProp": replace(base, optimizer="rmsprop"),
        },
        "learning-rates": {f"{rate:g}": replace(base, learning_rate=rate) for rate in (1e-4, 3e-4, 1e-3, 3e-3)},
        "batch-sizes": {str(size): replace(base, batch_size=size) for size in (64, 128, 256)},
    }


def reproduce_memorization(
    options: MemorizationOptions, location: RunLocation, listener: ProgressListener = SILENT, *, resume: bool = False
) -> Run:
    """Train every population that is not stored, and write tables, figures and the page."""
    for name in options.data:
        check_preparation(DataSpec(name), options.noises)
    session = Session(COMMAND, options, location, resume=resume)
    names = data_sets(options.data, options.scale, location.root, listener)
    declared = studies(names, small=options.scale == LAPTOP)
    settings = list(dict.fromkeys(setting for study in declared.values() for setting in study.values()))
    device = resolve_execution(location.execution)[0]
    with session.start({**OF_ITS_PARTS, "data_sets": list(names)}) as run:
        trained: dict[tuple[TrainingSetting, str], Trainings] = {}
        made = {}
        for population in dict.fromkeys(setting.population for setting in settings):
            own = [setting for setting in settings if setting.population == population]
            if not (run.path / _file(population)).exists():
                _train(run, population, entries_of(own, options), session, listener)
            found, made[population] = read_population(run, population, entries_of(own, options), options.epochs)
            trained |= found
        shown = {
            study: {name: _by_noise(setting, trained, options.noises) for name, setting in named.items()}
            for study, named in declared.items()
        }
        claims = claims_of(shown)
        rows = result_rows(shown)
        result = {
            "data": list(names),
            "epochs": options.epochs,
            "seeds": options.seeds,
            "claims": [claim.row() for claim in claims],
            "summary": rows,
        }

        def write() -> None:
            run.write_text("results.csv", csv_text(rows))
            run.write_text("curves.csv", csv_text(curve_rows(shown), decimals=4))
            for name, drawn in figures_of(shown).items():
                write_figure(run, name, drawn)
            run.write_text(PAGE, page_of(run, rows, shown, claims, made, options.scale))

        return session.finish(result, device, write)


def _by_noise(
    setting: TrainingSetting, trained: Mapping[tuple[TrainingSetting, str], Trainings], noises: Sequence[str]
) -> dict[str, Trainings]:
    """Return the trainings of a setting by noise setting, in the order of the noise settings."""
    return {noise: trained[setting, noise] for noise in noises if (setting, noise) in trained}


# ------------------------------------------------------------------------------------------------------- populations


Entry = tuple[TrainingSetting, str, int]
"""A training: setting, noise setting and index of the seed."""


def entries_of(settings: Sequence[TrainingSetting], options: MemorizationOptions) -> list[Entry]:
    """Return the trainings of a population: large networks and random schedules from one seed."""
    if settings[0].network in LARGE_NETWORKS:
        noise = NOISE_OF_LARGE if NOISE_OF_LARGE in options.noises else options.noises[0]
        return [(setting, noise, 0) for setting in settings]
    return [
        (setting, noise, seed)
        for setting, noise in product(settings, options.noises)
        for seed in range(1 if _is_random(setting) else options.seeds)
    ]


def _is_random(setting: TrainingSetting) -> bool:
    return (setting.schedule or "").startswith(RANDOM)


def _train(
    run: Run,
    population: str,
    entries: Sequence[Entry],
    session: Session[MemorizationOptions],
    listener: ProgressListener,
) -> None:
    """Train a population, and store its curves."""
    options, began = session.options, session.seconds
    first = entries[0][0]
    training = SizedTrainingSpec(
        network=first.network, epochs=options.epochs, batch_size=first.batch_size, optimizer=first.optimizer
    )
    inputs = load_shared_inputs(
        first.data,
        list(dict.fromkeys(noise for _, noise, _ in entries)),
        training,
        session.location,
        seed=options.seed,
        samples=options.samples,
    )
    if inputs.test is None:
        raise InvalidInput(f"`data` must come with a test part, but {first.data} has none.")
    task = replace(inputs.task, evaluate={TEST: inputs.test})  # recorded, never used for a choice
    members = [_member(inputs, entry, options) for entry in entries]
    listener.stage(f"{population}, {len(members)} trainings", task.epochs)
    curves = train_population(task, members, on_epoch=listener.epoch).curves
    made = session.made_on(task.device)
    about = [made["device"], inputs.fingerprint(), str(round(session.seconds - began, 1))]
    found = {"train": curves.train_accuracy, "test": curves.accuracy[TEST], "precision": curves.label_precision}
    run.write_arrays(_file(population), {**found, ABOUT: np.array(about, dtype=np.str_)})


def _member(inputs: SharedInputs, entry: Entry, options: MemorizationOptions) -> Member:
    setting, noise, seed = entry
    method: Method = Standard() if setting.schedule is None else Coteaching()
    return Member(
        _schedule(setting, inputs, noise, options),
        derive(options.seed, "memorization", seed),
        setting.learning_rate,
        inputs.labels[noise],
        method,
    )


def _schedule(setting: TrainingSetting, inputs: SharedInputs, noise: str, options: MemorizationOptions) -> Floats:
    """Return the keep rates (T,) of a setting."""
    if setting.schedule == FROM_NOISE_RATE:
        rate = achieved_rate(replace(inputs.task.train, labels=inputs.labels[noise]))
        return schedules.coteaching(rate or 0.0, options.epochs)
    if not _is_random(setting):
        return schedules.constant(1.0, options.epochs)
    return random_schedule(int((setting.schedule or "").removeprefix(RANDOM)), options.seed, options.epochs)


def random_schedule(index: int, seed: int, epochs: int) -> Floats:
    """Return a uniform draw from the space of perceptrons, (T,)."""
    space = SPACES["mlp"]
    point = np.random.default_rng(derive(seed, "random schedule", index)).random((1, space.dimension))
    return np.asarray(space.decode(point, epochs)[0])


def read_population(
    run: Run, population: str, entries: Sequence[Entry], epochs: int
) -> tuple[dict[tuple[TrainingSetting, str], Trainings], dict[str, Any]]:
    """Return the trainings of a stored population by setting and noise setting, and how it was made."""
    shape = (len(entries), epochs)
    found = run.read_floats(_file(population), dict.fromkeys(("train", "test", "precision"), shape))
    about = run.read_arrays(_file(population)).get(ABOUT, np.empty(0))
    if about.shape != (3,) or about.dtype.kind != "U" or not _is_duration(str(about[2])):
        raise UnreadableData(
            f"{str(run.path / _file(population))!r} is damaged: `{ABOUT}` is missing or no device, fingerprint and "
            "seconds; remove it."
        )
    device, fingerprint, seconds = map(str, about)
    rows: dict[tuple[TrainingSetting, str], list[int]] = {}
    for row, (setting, noise, _) in enumerate(entries):
        rows.setdefault((setting, noise), []).append(row)
    trained = {
        key: Trainings(found["train"][own], found["test"][own], found["precision"][own]) for key, own in rows.items()
    }
    return trained, {"device": device, "data_fingerprint": fingerprint, "seconds": float(seconds)}


def _is_duration(text: str) -> bool:
    try:
        return 0 <= float(text) < math.inf
    except ValueError:
        return False


def _file(population: str) -> str:
    return f"population-{population}.npz"
