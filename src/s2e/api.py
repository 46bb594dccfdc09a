"""`s2e.search` and `s2e.train`: search a schedule for a network and train with it, from arrays or datasets."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import optuna
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from optuna.samplers import BaseSampler
from torch import nn

from s2e.audit import Evidence, LabelAudit, audit, issues_table, records_of
from s2e.callbacks import Callback, FunctionCallback, RunStarted, callbacks_of
from s2e.data import LabelledData, as_labelled_parts, check_transition_matrix, fingerprint
from s2e.data.table_encoding import TableEncoder
from s2e.engine import (
    LAST_EPOCHS,
    VALIDATION,
    Augmentation,
    Curves,
    Dynamics,
    EpochFinished,
    FinalTraining,
    LearningRatePlan,
    Member,
    Optimizer,
    Task,
    stages_needed,
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
    folds_problem,
    seed_problem,
    to_seconds,
)
from s2e.studies import GenerationFinished, Search, check_storage, diverged_trials, open_study
from s2e.workflows import (
    SearchTime,
    Status,
    build_task,
    check_choices,
    find_schedule_in_time,
    folds_of,
    notified,
    plan_for,
    population_times,
    sized,
    warns_in_python,
)

CLEAN = "clean samples"
"""Name of the clean samples among the data of a training."""


@dataclass(frozen=True, eq=False)
class SearchResult:
    """The best schedule of a search.

    Attributes:
        schedule: (T,) keep rates.
        validation_accuracy: of the trial with this schedule, mean over the last ten epochs.
        study: all trials, an Optuna study; `optuna-dashboard` shows one that is stored.
        generation_size: K, points trained at once; the chosen one where "auto" was given.
        status: whether the search ran to its end, was stopped by a callback or `time_budget`, or had members that
            diverged.
        message: one line about the outcome.
        method: the method of this trial, for `s2e.train`; the one found with "auto".
    """

    schedule: NDArray[np.float64]
    validation_accuracy: float
    study: optuna.Study
    generation_size: int
    status: Status
    message: str
    method: Method


@dataclass(frozen=True, eq=False)
class TrainResult:
    """One trained member.

    Attributes:
        networks: its trained modules, on the CPU in evaluation mode; two for Co-teaching.
        curves: losses, accuracies and keep rates by epoch, arrays (1, T).
        dynamics: records of every training sample.
        transition: (C, C), from true to given labels, given or estimated, for f-correction; None for other methods.
        status: whether the training ran to its end, was stopped by a callback, or diverged.
        message: one line about the outcome.
        class_names: C names, in the order of the outputs of the networks.
        encoder: for a table, encodes others with the same columns as inputs of the networks; None for other data.
        audit: the result of a label audit; computed when first used.
    """

    networks: tuple[nn.Module, ...]
    curves: Curves
    dynamics: Dynamics
    transition: NDArray[np.float64] | None
    status: Status
    message: str
    class_names: tuple[str, ...]
    encoder: TableEncoder | None
    _data: LabelledData = field(repr=False)
    _records: Callable[[], dict[str, NDArray[Any]]] = field(repr=False)

    @cached_property
    def audit(self) -> LabelAudit:
        """The audit of the training labels, better with `folds`."""
        evidence = Evidence.from_records(self._records())
        # Losses of forward correction are those of the corrected predictions.
        return audit(evidence if self.transition is None else evidence.without_losses())

    def find_label_issues(self) -> pd.DataFrame:
        """Return the audit as a table with a row for each training sample; see `s2e.find_label_issues`."""
        return issues_table(self.audit, self._data.labels, np.array(self._data.class_names, dtype=object))


@warns_in_python
def search(
    train: Any,
    valid: Any,
    *,
    label: str | None = None,
    inputs: str | None = None,
    drop: Sequence[str] = (),
    text: Sequence[str] = (),
    network: str | Factory = AUTO,
    method: str | Method = "coteaching",
    space: str | Space = "s2e",
    sampler: str | BaseSampler = "curve",
    trials: int | None = None,
    generation_size: GenerationSize = 6,
    time_budget: float | str | None = None,
    stop_early: bool = True,
    epochs: int | None = None,
    batch_size: int | None = None,
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
    callbacks: Sequence[str | Callback] | None = None,
    on_generation: Callable[[GenerationFinished], bool | None] | None = None,
) -> SearchResult:
    """Search the schedule with the best validation accuracy.

    Args:
        train: one of

            - (inputs, labels) as arrays or tensors, or `LabelledData`: images, or float features such as embeddings of
              a pretrained network, which are not scaled; labels in 0..C-1.
            - a map-style `torch.utils.data.Dataset` of such pairs, or of dictionaries such as
              {"image": …, "label": …}. It is read into memory once, so random transforms are drawn once for every
              sample; use `augment` for random changes in training.
            - a table of pandas, polars, pyarrow or `datasets` of Hugging Face with a label column, or (table, labels);
              columns are encoded and scaled as `S2EClassifier` does.
            - images in a `datasets.Dataset`.
        valid: the same; best with trusted labels.
        label: label column of a table, or key of the label in dictionaries; detected when None.
        inputs: key of the input in dictionaries; detected when None.
        drop: columns of a table to leave out.
        text: columns of a table with free text to learn from.
        network: a factory such as `lambda: MyNet()`, or the name of a reference network.
        method: one with a keep rate: coteaching, mentornet, coteaching+ or jocor, or an object with the interface
            `s2e.Method`; "auto" lets these four compete.
        space: the family of schedules, by name or as an object with the interface `s2e.Space`.
        sampler: curve, curve-dynamics, newton, newton-curve, natural or gradient; Optuna's random, tpe,
            tpe-multivariate, gp, cmaes or hyperband; or any `optuna.samplers.BaseSampler`. The state of a sampler
            object is not restored when a search is resumed.
        trials: schedules to train at most; 30 when None, or five generations where `generation_size` is "auto".
        generation_size: K, schedules trained at once, as one population. "auto" chooses it: on a GPU the largest of 6
            to 32 whose training step takes at most 1.25 times as long as that of 6, measured in a second or two, but at
            most a fifth of the trials where these are given; on a CPU, where every member costs its full time, 6. A
            stored study that is resumed keeps its K.
        time_budget: seconds, or a text such as "90s", "2m" or "1h", after which the search has ended: no generation
            begins that could not finish. A time too short for one is refused after a short measurement.
        stop_early: end the search when no schedule is expected to be better by more than validation can tell.
        epochs: T, epochs of every training; from 40 to 100 by the number of samples when None.
        batch_size: B, samples in a batch; from 16 to 128 by the number of samples when None.
        learning_rate: learning rate, which `plan` changes by epoch.
        optimizer: adam, adamw, sgd or rmsprop, with options as in "sgd:momentum=0.9,weight_decay=5e-4", or an object
            with the interface `s2e.Optimizer`, such as those in `s2e.engine.optimizers`.
        plan: the factor on the learning rate by epoch: constant, linear, cosine or step, with options as in
            "linear:start=0.4" or "cosine:warmup=5", or an object with the interface `s2e.LearningRatePlan`.
        augment: random changes of training images: "none", or a list such as "crop:padding=4,flip,cutout:size=8", also
            with "normalize"; or a sequence of such names and of objects with the interface `s2e.Augmentation`.
        precision: number format of products: "float32", "bfloat16", or "auto", float32 on a CPU and faster formats on a
            GPU, as accurate on MNIST with an MLP. Weights and losses are float32.
        seed: seed of everything that is drawn at random.
        device: "cpu", "cuda", …, or "auto"; several separated by commas, as in "cuda:0,cuda:1", share the training.
        executor: "ray" to train on a Ray cluster: the one that this process has joined with `ray.init`, or a new one
            on this machine; this process when None.
        storage: URL of the study, to resume it later and to show it with `optuna-dashboard URL`; in memory when None.
        study_name: its name there.
        callbacks: objects of `s2e.Callback`, or names of ready ones: "tensorboard:DIR", "mlflow:URI", "wandb:PROJECT".
        on_generation: called after every generation; return True to stop the search. A callback in short.
    """
    began = time.monotonic()
    raise_all([seed_problem(seed)])
    given = TrainingSpec(network, epochs, batch_size, learning_rate, optimizer, plan, augment, precision)
    budget = to_seconds("time_budget", time_budget)
    spec = SearchSpec(space, sampler, trials, _stored_size(generation_size, storage, study_name), budget)
    execution = Execution(device, executor or LOCAL)
    check_choices(given, method, execution, spec)
    notify = [*callbacks_of(callbacks), FunctionCallback(on_generation=on_generation)]
    parts = as_labelled_parts(train, {VALIDATION: valid}, label=label, inputs=inputs, drop=drop, text=text)
    data, held = parts.train, parts.others[VALIDATION]
    training = sized(given, data)
    task = build_task(data, {VALIDATION: held}, training, method, seed=seed, execution=execution)
    search_plan = plan_for(task, spec, training, seed, method=method)
    settings = {
        "data": fingerprint(data, held),
        "space": _name(space),
        "sampler": _name(sampler),
        "generation_size": search_plan.generation_size,
        **_training_settings(task, training, method, seed),
    }
    study = open_study(storage, study_name, settings)
    search_time = None
    if budget is not None:
        search_time = SearchTime(population_times(task, search_plan), task.device, budget=budget, began=began)
        if not study.trials:
            search_time.check(training.epochs)
    started = RunStarted("search", {**settings, "trials": search_plan.trials})
    with notified(notify, started) as listener:
        found, _, late = find_schedule_in_time(
            task, Search(search_plan, study), search_time, listener=listener, stop_early=stop_early
        )
        listener.metrics = {"validation_accuracy": found.validation_accuracy, "trials": len(study.trials)}
    diverged = diverged_trials(study)
    status = Status.of(stopped=listener.stopped or late, diverged=diverged > 0)
    message = (
        f"{status.value}: {len(study.trials)} trials, {diverged} of them diverged; best validation accuracy "
        f"{found.validation_accuracy:.2%} with trial {found.trial}"
    )
    return SearchResult(
        found.schedule,
        found.validation_accuracy,
        study,
        search_plan.generation_size,
        status,
        message,
        found.method or task.method,
    )


@warns_in_python
def train(
    train: Any,
    schedule: ArrayLike,
    *,
    evaluate: Mapping[str, Any] | None = None,
    clean: Any = None,
    label: str | None = None,
    inputs: str | None = None,
    drop: Sequence[str] = (),
    text: Sequence[str] = (),
    transition: ArrayLike | None = None,
    network: str | Factory = AUTO,
    method: str | Method = "coteaching",
    batch_size: int | None = None,
    learning_rate: float = 1e-3,
    optimizer: str | Optimizer = "adam",
    plan: str | LearningRatePlan = "linear:start=0.4",
    augment: str | Augmentation | Sequence[str | Augmentation] = NO_AUGMENTATION,
    precision: str = AUTO,
    seed: int = 0,
    device: str = AUTO,
    executor: str | None = None,
    folds: int = 0,
    callbacks: Sequence[str | Callback] | None = None,
    on_epoch: Callable[[EpochFinished], bool | None] | None = None,
) -> TrainResult:
    """Train one member.

    Args:
        train: as for `search`.
        schedule: (T,) keep rates, one for each epoch. A method without a keep rate uses only their number.
        evaluate: data whose accuracy is recorded after every epoch, by name.
        clean: samples with correct labels, for reweight, which trains with them.
        label: label column of a table, or key of the label in dictionaries; detected when None.
        inputs: key of the input in dictionaries; detected when None.
        drop: columns of a table to leave out.
        text: columns of a table with free text to learn from.
        transition: (C, C), for f-correction; estimated by a first training when None, at its best epoch on the data
            called "valid" in `evaluate`, if given.
        network: a factory such as `lambda: MyNet()`, or the name of a reference network.
        method: any of `s2e.methods.METHODS`, or an object with the interface `s2e.Method`.
        batch_size: B, samples in a batch; from 16 to 128 by the number of samples when None.
        learning_rate: learning rate, which `plan` changes by epoch.
        optimizer: adam, adamw, sgd or rmsprop, with options as in "sgd:momentum=0.9,weight_decay=5e-4", or an object
            with the interface `s2e.Optimizer`, such as those in `s2e.engine.optimizers`.
        plan: the factor on the learning rate by epoch: constant, linear, cosine or step, with options as in
            "linear:start=0.4" or "cosine:warmup=5", or an object with the interface `s2e.LearningRatePlan`.
        augment: random changes of training images: "none", or a list such as "crop:padding=4,flip,cutout:size=8", also
            with "normalize"; or a sequence of such names and of objects with the interface `s2e.Augmentation`.
        precision: number format of products: "float32", "bfloat16", or "auto", float32 on a CPU and faster formats on a
            GPU, as accurate on MNIST with an MLP. Weights and losses are float32.
        seed: seed of everything that is drawn at random.
        device: "cpu", "cuda", …, or "auto"; several separated by commas, as in "cuda:0,cuda:1", share the training.
        executor: "ray" to train on a Ray cluster: the one that this process has joined with `ray.init`, or a new one
            on this machine; this process when None.
        folds: parts of the samples that one more member each holds out, so that `find_label_issues` uses networks that
            were not trained on the labels; 0 for none. `on_epoch` receives the curves of all these members.
        callbacks: objects of `s2e.Callback`, or names of ready ones: "tensorboard:DIR", "mlflow:URI", "wandb:PROJECT".
        on_epoch: called after every epoch; return True to stop the training. A callback in short.
    """
    raise_all([seed_problem(seed), folds_problem(folds)])
    epochs = len(np.atleast_1d(np.asarray(schedule)))
    keep_rates = check_schedule(schedule, epochs)
    given = TrainingSpec(network, epochs, batch_size, learning_rate, optimizer, plan, augment, precision)
    execution = Execution(device, executor or LOCAL)
    check_choices(given, method, execution)
    notify = [*callbacks_of(callbacks), FunctionCallback(on_epoch=on_epoch)]
    others = {**(evaluate or {}), **({} if clean is None else {CLEAN: clean})}
    parts = as_labelled_parts(train, others, label=label, inputs=inputs, drop=drop, text=text)
    data, evaluated = parts.train, dict(parts.others)
    trusted = None if clean is None else evaluated.pop(CLEAN)
    training = sized(given, data)
    task = build_task(data, evaluated, training, method, seed=seed, execution=execution, clean=trusted)
    matrix = None if transition is None else check_transition_matrix(transition, data.classes)
    member = Member(keep_rates, derive(seed, "final"), learning_rate, transition=matrix)
    of_samples = folds_of(task, folds, seed)
    final = FinalTraining(task.method.name, task.method, keep_rates, 0, folds=of_samples)
    members = [member, *final.members(learning_rate, seed)]
    started = RunStarted("train", _training_settings(task, training, method, seed))
    with notified(notify, started) as listener:
        listener.stage("training", stages_needed(task, members) * epochs)
        both, (as_trained, *_) = train_in_two_stages(
            task, members, on_epoch=listener.epoch, stop=listener.members_to_stop
        )
        trained, held_out = both.take([0]), dict(enumerate(final.held_out, start=1))
        curves = trained.curves
        listener.metrics = {f"{name}_accuracy": float(curves.last(name)[0]) for name in curves.accuracy}
    diverged, done = bool(curves.diverged[0]), int(curves.epochs[0])
    status = Status.of(stopped=done < epochs, diverged=diverged)
    accuracies = [f"{name} {float(curves.last(name)[0]):.2%}" for name in curves.accuracy]
    message = f"{status.value}: {done} of {epochs} epochs" + (
        f"; accuracy over the last {min(LAST_EPOCHS, done)} epochs: {', '.join(accuracies)}" if accuracies else ""
    )
    networks = trained.modules(task.network)
    return TrainResult(
        networks,
        curves,
        trained.dynamics,
        as_trained.transition,
        status,
        message,
        data.class_names,
        parts.encoder,
        data,
        partial(records_of, task, both, [0], held_out=held_out),
    )


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


def _training_settings(task: Task, training: TrainingSpec, method: str | Method, seed: int) -> dict[str, Any]:
    """Return what defines a training apart from its data and its schedule, as JSON holds it."""
    return {
        "network": _described(task.network),
        "method": _name(method),
        "epochs": training.epochs,
        "batch_size": training.batch_size,
        "learning_rate": training.learning_rate,
        "optimizer": _settings_of(task.optimizer),
        "plan": _settings_of(task.plan),
        "augmentation": [_settings_of(each) for each in task.augmentation],
        "precision": training.precision,
        "seed": seed,
    }


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
