"""`s2e.search` and `s2e.train`: search a schedule for a network and train with it, from arrays or datasets."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Any

import numpy as np
import optuna
import torch
from numpy.typing import ArrayLike, NDArray
from optuna.samplers import BaseSampler
from torch import nn

from s2e.data import as_labelled_data, check_transition_matrix, fingerprint
from s2e.engine import (
    LAST_EPOCHS,
    VALIDATION,
    Augmentation,
    Curves,
    Dynamics,
    EpochFinished,
    LearningRatePlan,
    Member,
    Optimizer,
    train_in_two_stages,
)
from s2e.errors import raise_all
from s2e.methods import Method
from s2e.networks import Factory
from s2e.schedules import Space, check_schedule
from s2e.seeds import derive
from s2e.specs import (
    AUTO,
    LOCAL,
    NO_AUGMENTATION,
    Execution,
    GenerationSize,
    SearchSpec,
    TrainingSpec,
    seed_problem,
    to_seconds,
)
from s2e.studies import GenerationFinished, Search, check_storage, diverged_trials, open_study
from s2e.workflows import (
    Callbacks,
    SearchTime,
    Status,
    build_task,
    check_choices,
    find_schedule_in_time,
    plan_for,
    population_times,
    warns_in_python,
)


@dataclass(frozen=True, eq=False)
class SearchResult:
    """The best schedule of a search.

    Attributes:
        schedule: (T,) keep rates.
        validation_accuracy: of the trial with this schedule, mean over the last ten epochs.
        study: all trials, an Optuna study.
        generation_size: K, points trained at once; the chosen one where "auto" was given.
        status: whether the search ran to its end, was stopped by `on_generation` or `time_budget`, or had members that
            diverged.
        message: one line about the outcome.
    """

    schedule: NDArray[np.float64]
    validation_accuracy: float
    study: optuna.Study
    generation_size: int
    status: Status
    message: str


@dataclass(frozen=True, eq=False)
class TrainResult:
    """One trained member.

    Attributes:
        networks: its trained modules, on the CPU in evaluation mode; two for Co-teaching.
        curves: losses, accuracies and keep rates by epoch, arrays (1, T).
        dynamics: records of every training sample.
        transition: (C, C), from true to given labels, given or estimated, for f-correction; None for other methods.
        status: whether the training ran to its end, was stopped by `on_epoch`, or diverged.
        message: one line about the outcome.
    """

    networks: tuple[nn.Module, ...]
    curves: Curves
    dynamics: Dynamics
    transition: NDArray[np.float64] | None
    status: Status
    message: str


@warns_in_python
def search(
    train: Any,
    valid: Any,
    *,
    network: str | Factory = AUTO,
    method: str | Method = "coteaching",
    space: str | Space = "s2e",
    sampler: str | BaseSampler = "curve",
    trials: int | None = None,
    generation_size: GenerationSize = 6,
    time_budget: float | str | None = None,
    epochs: int = 200,
    batch_size: int = 128,
    learning_rate: float = 1e-3,
    optimizer: str | Optimizer = "adam",
    plan: str | LearningRatePlan = "linear:start=0.4",
    augment: str | Augmentation | Sequence[str | Augmentation] = NO_AUGMENTATION,
    precision: str = AUTO,
    seed: int = 0,
    device: str = AUTO,
    executor: str | None = None,
    storage: str | None = None,
    study_name: str = "search",
    on_generation: Callable[[GenerationFinished], bool | None] | None = None,
) -> SearchResult:
    """Search the schedule with the best validation accuracy.

    Args:
        train: (inputs, labels) as arrays or tensors, a map-style `torch.utils.data.Dataset` of such pairs, which is
            read into memory once, or `LabelledData`; labels in 0..C-1. Inputs are images, rows of a table, or float
            features such as embeddings of a pretrained network.
        valid: the same; best with trusted labels.
        network: a factory such as `lambda: MyNet()`, or the name of a reference network.
        method: one with a keep rate: coteaching, mentornet, coteaching+ or jocor, or an object with the interface
            `s2e.Method`.
        space: the family of schedules, by name or as an object with the interface `s2e.Space`.
        sampler: curve, newton, newton-curve, natural or gradient; Optuna's random, tpe, gp, cmaes or hyperband; or any
            `optuna.samplers.BaseSampler`. The state of a sampler object is not restored when a search is resumed.
        trials: schedules to train; 60 when None, or ten generations where `generation_size` is "auto".
        generation_size: K, schedules trained at once, as one population. "auto" chooses it: on a GPU the largest of 6
            to 32 whose training step takes at most 1.25 times as long as that of 6, measured in a second or two, but at
            most a fifth of the trials where these are given; on a CPU, where every member costs its full time, 6. A
            stored study that is resumed keeps its K.
        time_budget: seconds, or a text such as "90s", "2m" or "1h", after which the search has ended: no generation
            begins that could not finish. A time too short for one is refused after a short measurement.
        epochs: T, epochs of every training.
        batch_size: B, samples in a batch.
        learning_rate: learning rate, which `plan` changes by epoch.
        optimizer: adam, adamw, sgd or rmsprop, with options as in "sgd:momentum=0.9,weight_decay=5e-4", or an object
            with the interface `s2e.Optimizer`, such as those in `s2e.engine.optimizers`.
        plan: the factor on the learning rate by epoch: constant, linear, cosine or step, with options as in
            "linear:start=0.4" or "cosine:warmup=5", or an object with the interface `s2e.LearningRatePlan`.
        augment: random changes of training images: "none", or a list such as "crop:padding=4,flip,cutout:size=8", also
            with "normalize"; or a sequence of such names and of objects with the interface `s2e.Augmentation`.
        precision: number format of products: "float32", "bfloat16", or "auto", what the device computes fastest without
            losing accuracy. Weights and losses are float32.
        seed: seed of everything that is drawn at random.
        device: "cpu", "cuda", …, or "auto"; several separated by commas, as in "cuda:0,cuda:1", share the training.
        executor: "ray" to train on a Ray cluster: the one that this process has joined with `ray.init`, or a new one
            on this machine; this process when None.
        storage: URL of the study, to resume it later; in memory when None.
        study_name: its name there.
        on_generation: called after every generation; return True to stop the search.
    """
    began = time.monotonic()
    raise_all([seed_problem(seed)])
    training = TrainingSpec(network, epochs, batch_size, learning_rate, optimizer, plan, augment, precision)
    budget = to_seconds("time_budget", time_budget)
    spec = SearchSpec(space, sampler, trials, _stored_size(generation_size, storage, study_name), budget)
    execution = Execution(device, executor or LOCAL)
    check_choices(training, method, execution, spec)
    data = as_labelled_data(train)
    held = as_labelled_data(valid, data.class_names)
    task = build_task(data, {VALIDATION: held}, training, method, seed=seed, execution=execution)
    search_plan = plan_for(task, spec, training, seed)
    settings = {
        "data": fingerprint(data, held),
        "network": _described(task.network),
        "method": _name(method),
        "space": _name(space),
        "sampler": _name(sampler),
        "generation_size": search_plan.generation_size,
        "epochs": epochs,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "optimizer": _settings_of(task.optimizer),
        "plan": _settings_of(task.plan),
        "augmentation": [_settings_of(each) for each in task.augmentation],
        "precision": precision,
        "seed": seed,
    }
    study = open_study(storage, study_name, settings)
    listener = Callbacks(on_generation=on_generation)
    search_time = None
    if budget is not None:
        search_time = SearchTime(population_times(task, search_plan), task.device, budget=budget, began=began)
        if not study.trials:
            search_time.check(epochs)
    found, _, late = find_schedule_in_time(task, Search(search_plan, study), search_time, listener=listener)
    diverged = diverged_trials(study)
    status = Status.of(stopped=listener.stopped or late, diverged=diverged > 0)
    message = (
        f"{status.value}: {len(study.trials)} trials, {diverged} of them diverged; best validation accuracy "
        f"{found.validation_accuracy:.2%} with trial {found.trial}"
    )
    return SearchResult(found.schedule, found.validation_accuracy, study, search_plan.generation_size, status, message)


@warns_in_python
def train(
    train: Any,
    schedule: ArrayLike,
    *,
    evaluate: Mapping[str, Any] | None = None,
    clean: Any = None,
    transition: ArrayLike | None = None,
    network: str | Factory = AUTO,
    method: str | Method = "coteaching",
    batch_size: int = 128,
    learning_rate: float = 1e-3,
    optimizer: str | Optimizer = "adam",
    plan: str | LearningRatePlan = "linear:start=0.4",
    augment: str | Augmentation | Sequence[str | Augmentation] = NO_AUGMENTATION,
    precision: str = AUTO,
    seed: int = 0,
    device: str = AUTO,
    executor: str | None = None,
    on_epoch: Callable[[EpochFinished], bool | None] | None = None,
) -> TrainResult:
    """Train one member.

    Args:
        train: as for `search`.
        schedule: (T,) keep rates, one for each epoch. A method without a keep rate uses only their number.
        evaluate: data whose accuracy is recorded after every epoch, by name.
        clean: samples with correct labels, for reweight, which trains with them.
        transition: (C, C), for f-correction; estimated by a first training when None, at its best epoch on the data
            called "valid" in `evaluate`, if given.
        network: a factory such as `lambda: MyNet()`, or the name of a reference network.
        method: any of `s2e.methods.METHODS`, or an object with the interface `s2e.Method`.
        batch_size: B, samples in a batch.
        learning_rate: learning rate, which `plan` changes by epoch.
        optimizer: adam, adamw, sgd or rmsprop, with options as in "sgd:momentum=0.9,weight_decay=5e-4", or an object
            with the interface `s2e.Optimizer`, such as those in `s2e.engine.optimizers`.
        plan: the factor on the learning rate by epoch: constant, linear, cosine or step, with options as in
            "linear:start=0.4" or "cosine:warmup=5", or an object with the interface `s2e.LearningRatePlan`.
        augment: random changes of training images: "none", or a list such as "crop:padding=4,flip,cutout:size=8", also
            with "normalize"; or a sequence of such names and of objects with the interface `s2e.Augmentation`.
        precision: number format of products: "float32", "bfloat16", or "auto", what the device computes fastest without
            losing accuracy. Weights and losses are float32.
        seed: seed of everything that is drawn at random.
        device: "cpu", "cuda", …, or "auto"; several separated by commas, as in "cuda:0,cuda:1", share the training.
        executor: "ray" to train on a Ray cluster: the one that this process has joined with `ray.init`, or a new one
            on this machine; this process when None.
        on_epoch: called after every epoch; return True to stop the training.
    """
    raise_all([seed_problem(seed)])
    epochs = len(np.atleast_1d(np.asarray(schedule)))
    keep_rates = check_schedule(schedule, epochs)
    training = TrainingSpec(network, epochs, batch_size, learning_rate, optimizer, plan, augment, precision)
    execution = Execution(device, executor or LOCAL)
    check_choices(training, method, execution)
    data = as_labelled_data(train)
    evaluated = {name: as_labelled_data(part, data.class_names) for name, part in (evaluate or {}).items()}
    trusted = None if clean is None else as_labelled_data(clean, data.class_names)
    task = build_task(data, evaluated, training, method, seed=seed, execution=execution, clean=trusted)
    given = None if transition is None else check_transition_matrix(transition, data.classes)
    listener = Callbacks(on_epoch=on_epoch)
    member = Member(keep_rates, derive(seed, "final"), learning_rate, transition=given)
    trained, (as_trained,) = train_in_two_stages(task, [member], on_epoch=listener.epoch, stop=listener.members_to_stop)
    curves = trained.curves
    diverged, done = bool(curves.diverged[0]), int(curves.epochs[0])
    status = Status.of(stopped=done < epochs, diverged=diverged)
    accuracies = [f"{name} {float(curves.last(name)[0]):.2%}" for name in curves.accuracy]
    message = f"{status.value}: {done} of {epochs} epochs" + (
        f"; accuracy over the last {min(LAST_EPOCHS, done)} epochs: {', '.join(accuracies)}" if accuracies else ""
    )
    networks = trained.modules(task.network)
    return TrainResult(networks, curves, trained.dynamics, as_trained.transition, status, message)


def _stored_size(size: GenerationSize, storage: str | None, name: str) -> GenerationSize:
    """Return the given generation size, or that of the stored study where it is "auto"."""
    if size != AUTO or storage is None:
        return size
    check_storage(storage)
    try:
        settings = optuna.load_study(study_name=name, storage=storage).user_attrs.get("settings", {})
    except KeyError:  # there is no study of this name yet
        return size
    stored: GenerationSize = settings.get("generation_size", size)
    return stored


def _name(value: Any) -> str:
    """Return the name of a space, sampler or method, or the type of an object."""
    return value if isinstance(value, str) else f"{type(value).__module__}.{type(value).__qualname__}"


def _settings_of(value: Any) -> str:
    """Return a dataclass with its fields, or the type of another object."""
    return repr(value) if is_dataclass(value) else _name(value)


def _described(network: Factory) -> str:
    """Return the architecture as text, to detect a stored study that was begun with another one."""
    with torch.random.fork_rng(devices=[]):
        return str(network())
