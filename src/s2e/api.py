"""For PyTorch users: search a schedule for one's own network, and train with it, from arrays, tensors or datasets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import optuna
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from s2e.data.samples import LabelledData, as_labelled_data, fingerprint
from s2e.engine.curves import Curves, Dynamics
from s2e.engine.devices import device_of
from s2e.engine.task import VALIDATION, EpochFinished, Member, Task
from s2e.engine.two_stage import train_in_stages
from s2e.methods import check_transition
from s2e.methods import method as method_of
from s2e.networks.factories import Factory, default_network, factory_of
from s2e.schedules.fixed import check_schedule
from s2e.seeds import derive
from s2e.studies.generation_size import AUTO, DEFAULT_GENERATIONS, Generation, paced, picked_for
from s2e.studies.loop import GenerationFinished, search_schedule
from s2e.studies.plan import SearchPlan
from s2e.studies.storage import check_storage, open_study


@dataclass(frozen=True, eq=False)
class SearchResult:
    """The best schedule of a search.

    Attributes:
        schedule: (T,) keep rates.
        validation_accuracy: of the training that was scored with it, mean over the last ten epochs.
        study: all trials, an Optuna study.
        generation: K, how many of them were trained at once; the one picked where none was given.
    """

    schedule: NDArray[np.float64]
    validation_accuracy: float
    study: optuna.Study
    generation: int


@dataclass(frozen=True, eq=False)
class TrainResult:
    """One trained member.

    Attributes:
        networks: its trained modules, on the CPU in evaluation mode; two for Co-teaching.
        curves: what happened by epoch, arrays (1, T).
        dynamics: what happened to every training sample.
        transition: (C, C), from true to given labels, given or estimated, for f-correction.
    """

    networks: tuple[nn.Module, ...]
    curves: Curves
    dynamics: Dynamics
    transition: NDArray[np.float64] | None = None


def search(
    train: Any,
    valid: Any,
    *,
    network: str | Factory = "auto",
    method: str = "coteaching",
    space: str = "s2e",
    sampler: str = "curve",
    trials: int | None = None,
    generation: Generation = 6,
    epochs: int = 200,
    batch_size: int = 128,
    learning_rate: float = 1e-3,
    seed: int = 0,
    device: str = "auto",
    storage: str | None = None,
    study_name: str = "search",
    on_generation: Callable[[GenerationFinished], None] | None = None,
) -> SearchResult:
    """Search the schedule with the best validation accuracy.

    Args:
        train: (inputs, labels) as arrays or tensors, a map-style dataset of pairs, or `LabelledData`; labels in 0..C-1.
        valid: the same; best with labels one can trust.
        network: a factory such as `lambda: MyNet()`, or the name of a reference network.
        method: one with a keep rate: coteaching, mentornet, coteaching+ or jocor.
        space: the family of schedules.
        sampler: curve, newton, newton-curve, natural or gradient; Optuna's random, tpe, gp, cmaes or hyperband.
        trials: how many schedules to train; 60 when None, or ten generations of the K picked.
        generation: K, how many of them to train at once, as one population. "auto" picks it: on a GPU the widest of 6
            to 32 whose training step takes at most 1.25 times as long as that of 6, measured here in a second or two,
            but at most a fifth of the trials where those are given; on a CPU, where every member costs its full time,
            6. A stored study that is continued keeps its K.
        epochs: T, of every training.
        batch_size: B.
        learning_rate: Adam's.
        seed: decides everything that is drawn.
        device: "cpu", "cuda", …, or "auto".
        storage: URL of the study, to continue it later; in memory when None.
        study_name: its name there.
        on_generation: told after every generation.
    """
    data = as_labelled_data(train)
    held = as_labelled_data(valid, data.class_names)
    task = _task(data, {VALIDATION: held}, network, method, epochs, batch_size, seed, device)

    def planned(pick: Callable[[Sequence[int]], int], begun: Mapping[str, Any] | None = None) -> SearchPlan:
        pace = paced(generation, trials, rounds=DEFAULT_GENERATIONS, pick=pick, begun=begun)
        return SearchPlan.named(
            space,
            sampler,
            epochs=epochs,
            trials=pace.trials,
            generation=pace.generation,
            learning_rate=learning_rate,
            seed=seed,
        )

    planned(min)  # refuses bad names and numbers before anything is measured
    plan = planned(picked_for(task, learning_rate), _begun_with(storage, study_name) if generation == AUTO else None)
    settings = {
        "data": fingerprint(data, held),
        "network": _described(task.network),
        "method": method,
        "space": space,
        "sampler": sampler,
        "generation": plan.generation,
        "epochs": epochs,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "seed": seed,
    }
    study = open_study(storage, study_name, settings)
    found = search_schedule(task, plan, study, on_generation=on_generation)
    return SearchResult(found.schedule, found.validation_accuracy, study, plan.generation)


def train(
    train: Any,
    schedule: ArrayLike,
    *,
    evaluate: Mapping[str, Any] | None = None,
    clean: Any = None,
    transition: ArrayLike | None = None,
    network: str | Factory = "auto",
    method: str = "coteaching",
    batch_size: int = 128,
    learning_rate: float = 1e-3,
    seed: int = 0,
    device: str = "auto",
    on_epoch: Callable[[EpochFinished], None] | None = None,
) -> TrainResult:
    """Train one member.

    Args:
        train: as `search` takes it.
        schedule: (T,) keep rates, which also say for how many epochs; a method without a keep rate looks at no more.
        evaluate: data whose accuracy is recorded after every epoch, by name.
        clean: samples with right labels, for reweight, which trains with them.
        transition: (C, C), for f-correction; estimated by a first training when None, at the best epoch on the data
            called "valid" in `evaluate` where there is such.
        network: a factory such as `lambda: MyNet()`, or the name of a reference network.
        method: any of `s2e.methods.METHODS`.
        batch_size: B.
        learning_rate: Adam's.
        seed: decides everything that is drawn.
        device: "cpu", "cuda", …, or "auto".
        on_epoch: told after every epoch.
    """
    data = as_labelled_data(train)
    watched = {name: as_labelled_data(part, data.class_names) for name, part in (evaluate or {}).items()}
    keep_rates = check_schedule(schedule, len(np.atleast_1d(np.asarray(schedule))))
    task = _task(data, watched, network, method, len(keep_rates), batch_size, seed, device)
    if clean is not None:
        task = replace(task, clean=as_labelled_data(clean, data.class_names))
    given = None if transition is None else check_transition(transition, data.classes)
    member = Member(keep_rates, derive(seed, "final"), learning_rate, transition=given)
    trained, (as_trained,) = train_in_stages(task, [member], on_epoch=on_epoch)
    return TrainResult(trained.modules(task.network), trained.curves, trained.dynamics, as_trained.transition)


def _task(
    data: LabelledData,
    evaluate: Mapping[str, LabelledData],
    network: str | Factory,
    method: str,
    epochs: int,
    batch_size: int,
    seed: int,
    device: str,
) -> Task:
    factory = factory_of(network, data.sample_shape, data.classes)
    weighing = method_of(method, default_network(data.sample_shape, data.classes))
    return Task(data, factory, weighing, evaluate, epochs, batch_size, derive(seed, "batches"), device_of(device))


def _begun_with(storage: str | None, name: str) -> Mapping[str, Any]:
    """Return the settings of the study that is continued; none where a new one begins."""
    if storage is None:
        return {}
    check_storage(storage)
    try:
        settings: Mapping[str, Any] = optuna.load_study(study_name=name, storage=storage).user_attrs.get("settings", {})
    except KeyError:  # no study has this name yet
        return {}
    return settings


def _described(network: Factory) -> str:
    """Return the architecture in words, to tell whether a stored study was begun with another one."""
    with torch.random.fork_rng(devices=[]):
        return str(network())
