"""What `s2e search` and `s2e train` do, without parsing or printing.

prepare → search → train the final classifier → test it once → write the run
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from s2e import schedules
from s2e.bench import TEST, TrainingOptions, network_name, task_of
from s2e.classifiers import write_classifier
from s2e.data import fingerprint
from s2e.encodings import ENCODING, OfArrays
from s2e.errors import InvalidInput
from s2e.methods import Method, Need, check_transition, method
from s2e.noise import read_matrix
from s2e.pacing import AUTO, ROUNDS_OF_A_SEARCH, Generation, Pace, begun_with, paced, picked
from s2e.preparation import Prepared, prepare
from s2e.records import LAST_EPOCHS
from s2e.runs import CONFIG, Run
from s2e.searching import Search, SearchPlan, epochs_left, search_schedule
from s2e.seeds import derive
from s2e.stages import populations_needed, predictions, train_in_stages
from s2e.studies import CHANGEABLE, open_study
from s2e.tasks import VALIDATION, Member, Task, Trained
from s2e.workplace import Place, Watch, begin, ending


@dataclass(frozen=True)
class TrainOptions(TrainingOptions):
    """One training, with the schedule and the transition matrix it is given; empty for methods that need none."""

    schedule: str = ""
    transition: str = ""


@dataclass(frozen=True)
class SearchOptions(TrainingOptions):
    """How the schedule is searched, and what is trained with it in the end.

    Attributes:
        trials: how many schedules to train; None for 60, or for ten generations where K is picked.
        generation: K, how many of them at once; "auto" picks it from a short measurement, as `pacing` says.
    """

    space: str = "s2e"
    sampler: str = "curve"
    trials: int | None = None
    generation: Generation = 6
    baselines: bool = True
    restarts: int = 3


@dataclass(frozen=True)
class Contender:
    """A method with its schedule under a name of its own, trained from several fresh seeds and tested once.

    Of its restarts the one with the best validation accuracy stands for it.
    """

    name: str
    method: Method
    schedule: NDArray[np.float64]
    restarts: int = 1
    transition: NDArray[np.float64] | None = None


def search(options: SearchOptions, place: Place, watch: Watch, *, resume: bool = False) -> Run:
    """Search a schedule, train the final classifier with it, test it once, write the run."""
    began = time.monotonic()
    _plan(options, _pace(options, min))  # refuses bad names and numbers before data are read
    prepared = prepare(options, place.root)
    task = task_of(options, prepared, place.device)
    if options.restarts < 1:
        raise InvalidInput(f"`restarts` must be at least 1, but got {options.restarts}.")
    if Need.SCHEDULE not in task.method.needs:
        raise InvalidInput(f"`method` must have a keep rate for its schedule to be searched, but got {options.method}.")
    pace = _pace(options, partial(_picked, task, options), begun_with(place.out, resume=resume))
    plan, stage = _plan(options, pace), "search"
    if options.generation == AUTO:
        stage += f", {pace.generation} at a time"
    options = replace(options, trials=pace.trials, generation=pace.generation)
    run, config = begin("search", options, _about(options, prepared), place, resume=resume, changeable=CHANGEABLE)
    with run.locked():
        run.write_json(CONFIG, config)
        study = open_study(config["storage"] or run.storage, config["study"], config["options"])
        watch.stage(stage, epochs_left([Search(plan, study)], options.epochs))
        found = search_schedule(task, plan, study, on_generation=watch.generation, on_epoch=watch.epoch)
        run.write_json("schedule.json", {"keep_rates": found.schedule.tolist(), "point": found.point.tolist()})
        contenders = [Contender("S2E", task.method, found.schedule, options.restarts)]
        if options.baselines:
            contenders = [*_baselines(prepared, options), *contenders]
        rows = _train_and_test("final training", task, prepared, contenders, options, run, watch)
        searched = {
            "trials": len(study.trials),
            "generation": plan.generation,
            "best_trial": found.trial,
            "validation_accuracy": found.validation_accuracy,
        }
        _write_result(run, prepared, task, rows, began, search=searched)
    return run


def _pace(options: SearchOptions, pick: Callable[[Sequence[int]], int], begun: Mapping[str, Any] | None = None) -> Pace:
    return paced(options.generation, options.trials, rounds=ROUNDS_OF_A_SEARCH, pick=pick, begun=begun)


def _picked(task: Task, options: SearchOptions, sizes: Sequence[int]) -> int:
    everything = schedules.constant(1.0, options.epochs)
    return picked(task, [Member(everything, 0, options.learning_rate)], sizes)


def _plan(options: SearchOptions, pace: Pace) -> SearchPlan:
    return SearchPlan.named(
        options.space,
        options.sampler,
        epochs=options.epochs,
        trials=pace.trials,
        generation=pace.generation,
        learning_rate=options.learning_rate,
        seed=options.seed,
    )


def train(options: TrainOptions, place: Place, watch: Watch) -> Run:
    """Train one method with a given schedule, test it once, write the run."""
    began = time.monotonic()
    schedule = _given_schedule(options)
    prepared = prepare(options, place.root)
    task = task_of(options, prepared, place.device)
    transition = _given_transition(options, task.train.classes)
    run, _ = begin("train", options, _about(options, prepared), place, resume=False)
    with run.locked():
        run.write_json("schedule.json", {"keep_rates": schedule.tolist()})
        contenders = [Contender(task.method.name, task.method, schedule, transition=transition)]
        rows = _train_and_test("training", task, prepared, contenders, options, run, watch)
        _write_result(run, prepared, task, rows, began)
    return run


def _given_schedule(options: TrainOptions) -> NDArray[np.float64]:
    """Read the schedule; a method without a keep rate needs none."""
    if options.schedule:
        return schedules.parse_schedule(options.schedule, options.epochs)
    if Need.SCHEDULE in method(options.method).needs:
        raise InvalidInput(
            f"`schedule` must be given for {options.method}: constant:RATE, coteaching:NOISE_RATE, or a schedule.json."
        )
    return schedules.constant(1.0, options.epochs)


def _given_transition(options: TrainOptions, classes: int) -> NDArray[np.float64] | None:
    """Read the transition matrix, for a method that needs one."""
    if not options.transition:
        return None
    if Need.TRANSITION not in method(options.method).needs:
        raise InvalidInput(f"`transition` must go with a method that needs one, but {options.method} does not.")
    return check_transition(read_matrix(options.transition), classes)


def _baselines(prepared: Prepared, options: SearchOptions) -> list[Contender]:
    """Standard training, and Co-teaching told the true noise rate where it is known."""
    everything = schedules.constant(1.0, options.epochs)
    standard = Contender("Standard", method("standard"), everything, options.restarts)
    if prepared.noise_rate is None:
        return [standard]
    told = schedules.coteaching(prepared.noise_rate, options.epochs)
    return [standard, Contender("Co-teaching", method("coteaching"), told, options.restarts)]


def _train_and_test(
    stage: str,
    task: Task,
    prepared: Prepared,
    contenders: Sequence[Contender],
    options: TrainingOptions,
    run: Run,
    watch: Watch,
) -> list[dict[str, Any]]:
    """Train all contenders together from fresh seeds; write the last one's model, and the curves of all."""
    seed = derive(options.seed, "final")
    evaluate = dict(task.evaluate)
    if prepared.splits.test is not None:
        evaluate[TEST] = prepared.splits.test
    final = replace(task, evaluate=evaluate, seed=derive(seed, "batches"))
    members = [
        Member(
            contender.schedule,
            derive(seed, "restart", restart),
            options.learning_rate,
            method=contender.method,
            transition=contender.transition,
        )
        for contender in contenders
        for restart in range(contender.restarts)
    ]
    watch.stage(stage, populations_needed(final, members) * options.epochs)
    trained, as_trained = train_in_stages(final, members, on_epoch=watch.epoch)
    rows = []
    curves: dict[str, NDArray[Any]] = {}
    first = 0
    for contender in contenders:
        judged = trained.curves.last(VALIDATION)[first : first + contender.restarts]
        chosen = first + int(judged.argmax())
        rows.append(_row(contender, trained, chosen, judged))
        own = {name: array[chosen] for name, array in trained.curves.arrays().items()}
        curves |= {f"{contender.name}/{name}": array for name, array in own.items()}
        first += contender.restarts
    _write_model(run, task, prepared, options, trained, chosen)
    transition = as_trained[chosen].transition
    if transition is not None:
        run.write_text("transition.csv", "\n".join(",".join(map(str, row)) for row in transition.tolist()) + "\n")
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


def _write_model(
    run: Run, task: Task, prepared: Prepared, options: TrainingOptions, trained: Trained, position: int
) -> None:
    """Write the classifier, how to read what it can predict, and what its training says about every sample."""
    state = {name: tensor[trained.rows(position)] for name, tensor in trained.state.items()}
    write_classifier(run, network_name(options.network, task.train), task.train, state)
    run.write_arrays("dynamics.npz", _records(task, prepared, trained, position, state))
    source = prepared.source
    encoding = None if source is None else source.encoding
    arrays = OfArrays(task.train.sample_shape, task.train.inputs.dtype == np.uint8)
    run.write_json(ENCODING, (encoding or arrays).to_json())


def _records(
    task: Task, prepared: Prepared, trained: Trained, position: int, state: Mapping[str, Tensor]
) -> dict[str, NDArray[Any]]:
    """Return what a label audit reads: of every training sample, and of those held out with labels as doubtful.

    The latter were never trained on: only what the networks believe speaks about them.
    """
    dynamics, train = trained.dynamics.arrays(), task.train
    own = {name: array if name == "seen" else array[position] for name, array in dynamics.items()}
    parts = [train, prepared.splits.valid] if prepared.validation == "noisy" else [train]
    unseen = sum(map(len, parts[1:]))
    for name, array in own.items():  # (N,) or (S, N)
        own[name] = np.concatenate([array, np.zeros((*array.shape[:-1], unseen), dtype=array.dtype)], axis=-1)
    believed = [predictions(task, state, part.inputs)[..., : train.classes] for part in parts]  # (M, N, C)
    rows = np.concatenate([part.rows for part in parts])
    own |= {
        "rows": rows,
        "labels": np.concatenate([part.labels for part in parts]),
        "probabilities": np.concatenate(believed, axis=1).astype(np.float16),
    }
    if prepared.source is not None and prepared.source.ids is not None:
        own["ids"] = np.array(prepared.source.ids)[rows]
    return own


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
    run.write_json("result.json", {**result, **ending(task.device, began)})


def _about(options: TrainingOptions, prepared: Prepared) -> dict[str, Any]:
    """What a run is held to when it is continued, beyond the options: the data, and the network they call for."""
    train = prepared.splits.train
    return {
        "network": network_name(options.network, train),
        "data_fingerprint": fingerprint(train, prepared.splits.valid),
        "noise_rate": prepared.noise_rate,
    }
