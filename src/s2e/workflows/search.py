"""What `s2e search` and `s2e train` do, without parsing or printing.

prepare → search → train the final classifier → test it once → write the run
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s2e import schedules
from s2e.audit.evidence import records_of
from s2e.audit.relabelling import relabelled_validation, with_validation_labels
from s2e.audit.run_audit import RECORDS
from s2e.data.input_readers import ENCODING, OfArrays
from s2e.data.noise import read_matrix
from s2e.data.preparing import Prepared, prepare
from s2e.data.samples import fingerprint
from s2e.engine.curves import LAST_EPOCHS
from s2e.engine.restarts import FinalTraining, SelectedRestart, train_restarts
from s2e.engine.task import VALIDATION, Task
from s2e.engine.two_stage import populations_needed
from s2e.errors import InvalidInput
from s2e.methods import Need, check_transition, method
from s2e.runs.classifier_file import write_classifier
from s2e.runs.directory import CONFIG, Run
from s2e.runs.session import RunLocation, begin, begun_with, ending
from s2e.seeds import derive
from s2e.studies.generation_size import AUTO, DEFAULT_GENERATIONS, Generation, Pace, paced, picked_for
from s2e.studies.loop import epochs_left, search_schedule
from s2e.studies.plan import Search, SearchPlan
from s2e.studies.storage import MUTABLE_ON_RESUME, open_study
from s2e.workflows.bench import TEST, TrainingOptions, network_name, task_of
from s2e.workflows.progress import ProgressListener

RELABELLED = "validation.npz"
"""The file of a run that holds the labels its schedules are compared by, where those given are doubtful."""

GUESSED_NOISE_RATE = 0.2
"""What Co-teaching is told where the noise rate is unknown: it cannot do without."""


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
        relabel: mend the labels of a noisy validation part first.
    """

    space: str = "s2e"
    sampler: str = "curve"
    trials: int | None = None
    generation: Generation = 6
    baselines: bool = True
    restarts: int = 3
    relabel: bool = True


def search(options: SearchOptions, place: RunLocation, watch: ProgressListener, *, resume: bool = False) -> Run:
    """Search a schedule, train the final classifier with it, test it once, write the run."""
    began = time.monotonic()
    _plan(options, _pace(options, min))  # refuses bad names and numbers before data are read
    prepared = prepare(options, place.root)
    task = task_of(options, prepared, place.device)
    if options.restarts < 1:
        raise InvalidInput(f"`restarts` must be at least 1, but got {options.restarts}.")
    if Need.SCHEDULE not in task.method.needs:
        raise InvalidInput(f"`method` must have a keep rate for its schedule to be searched, but got {options.method}.")
    pace = _pace(options, picked_for(task, options.learning_rate), begun_with(place.out, resume=resume))
    plan, stage = _plan(options, pace), "search"
    if options.generation == AUTO:
        stage += f", {pace.generation} at a time"
    options = replace(options, trials=pace.trials, generation=pace.generation)
    run, config = begin(
        "search", options, _about(options, prepared), place, resume=resume, changeable=MUTABLE_ON_RESUME
    )
    with run.locked():
        run.write_json(CONFIG, config)
        validation = prepared.validation
        if validation == "noisy" and options.relabel:
            task, validation = _with_relabelled_validation(task, options, run, watch), "relabelled"
        study = open_study(config["storage"] or run.storage, config["study"], config["options"])
        watch.stage(stage, epochs_left([Search(plan, study)], options.epochs))
        found = search_schedule(task, plan, study, on_generation=watch.generation, on_epoch=watch.epoch)
        run.write_json("schedule.json", {"keep_rates": found.schedule.tolist(), "point": found.point.tolist()})
        trainings = [FinalTraining("S2E", task.method, found.schedule, options.restarts)]
        if options.baselines:
            trainings = [*_baselines(prepared, options), *trainings]
        rows = _train_and_test("final training", task, prepared, trainings, options, run, watch)
        searched = {
            "trials": len(study.trials),
            "generation": plan.generation,
            "best_trial": found.trial,
            "validation_accuracy": found.validation_accuracy,
        }
        _write_result(run, prepared, validation, task, rows, began, search=searched)
    return run


def _with_relabelled_validation(task: Task, options: SearchOptions, run: Run, watch: ProgressListener) -> Task:
    """Mend the labels of the validation part, or take those of the run that is continued."""
    written = run.read_arrays(RELABELLED)
    if not written:
        watch.stage("relabelling validation", task.epochs)
        labels = relabelled_validation(
            task, learning_rate=options.learning_rate, seed=options.seed, on_epoch=watch.epoch
        )
        written = {"rows": task.evaluate[VALIDATION].rows, "labels": labels}
        run.write_arrays(RELABELLED, written)
    return with_validation_labels(task, written["labels"])


def _pace(options: SearchOptions, pick: Callable[[Sequence[int]], int], begun: Mapping[str, Any] | None = None) -> Pace:
    return paced(options.generation, options.trials, rounds=DEFAULT_GENERATIONS, pick=pick, begun=begun)


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


def train(options: TrainOptions, place: RunLocation, watch: ProgressListener) -> Run:
    """Train one method with a given schedule, test it once, write the run."""
    began = time.monotonic()
    schedule = _given_schedule(options)
    prepared = prepare(options, place.root)
    task = task_of(options, prepared, place.device)
    transition = _given_transition(options, task.train.classes)
    run, _ = begin("train", options, _about(options, prepared), place, resume=False)
    with run.locked():
        run.write_json("schedule.json", {"keep_rates": schedule.tolist()})
        trainings = [FinalTraining(task.method.name, task.method, schedule, transition=transition)]
        rows = _train_and_test("training", task, prepared, trainings, options, run, watch)
        _write_result(run, prepared, prepared.validation, task, rows, began)
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


def _baselines(prepared: Prepared, options: SearchOptions) -> list[FinalTraining]:
    """Standard training, and Co-teaching told the true noise rate, or a usual guess where nobody knows it."""
    everything = schedules.constant(1.0, options.epochs)
    guessing = "" if prepared.noise_rate is not None else f" (guessing {GUESSED_NOISE_RATE:.0%})"
    told = GUESSED_NOISE_RATE if prepared.noise_rate is None else prepared.noise_rate
    return [
        FinalTraining("Standard", method("standard"), everything, options.restarts),
        FinalTraining(
            f"Co-teaching{guessing}",
            method("coteaching"),
            schedules.coteaching(told, options.epochs),
            options.restarts,
        ),
    ]


def _train_and_test(
    stage: str,
    task: Task,
    prepared: Prepared,
    trainings: Sequence[FinalTraining],
    options: TrainingOptions,
    run: Run,
    watch: ProgressListener,
) -> list[dict[str, Any]]:
    """Train all trainings together from fresh seeds; write the last one's model, and the curves of all."""
    seed = derive(options.seed, "final")
    evaluate = dict(task.evaluate)
    if prepared.splits.test is not None:
        evaluate[TEST] = prepared.splits.test
    final = replace(task, evaluate=evaluate, seed=derive(seed, "batches"))
    members = [member for training in trainings for member in training.members(options.learning_rate, seed)]
    watch.stage(stage, populations_needed(final, members) * options.epochs)
    finals = train_restarts(final, trainings, learning_rate=options.learning_rate, seed=seed, on_epoch=watch.epoch)
    _write_model(run, prepared, options, finals[-1])
    run.write_arrays("curves.npz", {name: array for each in finals for name, array in _curves(each).items()})
    return [_row(each) for each in finals]


def _curves(final: SelectedRestart) -> dict[str, NDArray[Any]]:
    own = final.trained.curves.arrays()
    return {f"{final.training.name}/{name}": array[final.chosen] for name, array in own.items()}


def _row(final: SelectedRestart) -> dict[str, Any]:
    """Summarise one training: accuracies over the last epochs and at the best epoch of the restart that was chosen."""
    curves, chosen = final.trained.curves, final.chosen
    summary: dict[str, Any] = {"name": final.training.name, "method": final.training.method.name}
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
    summary["validation_of_restarts"] = [round(float(value), 6) for value in final.judged]
    return summary


def _write_model(run: Run, prepared: Prepared, options: TrainingOptions, final: SelectedRestart) -> None:
    """Write the classifier, how to read what it can predict, and what its training says about every sample."""
    train, source = final.task.train, prepared.source
    write_classifier(run, network_name(options.network, train), train, final.state)
    records = records_of(
        final.task, final.trained, [final.chosen], prepared.splits.valid if prepared.validation == "noisy" else None
    )
    if source is not None and source.ids is not None:
        records["ids"] = np.array(source.ids)[records["rows"]]
    run.write_arrays(RECORDS, records)
    encoding = None if source is None else source.encoding
    run.write_json(ENCODING, (encoding or OfArrays(train.sample_shape, train.inputs.dtype == np.uint8)).to_json())
    if final.transition is not None:
        rows = (",".join(map(str, row)) for row in final.transition.tolist())
        run.write_text("transition.csv", "\n".join(rows) + "\n")


def _write_result(
    run: Run,
    prepared: Prepared,
    validation: str,
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
        "validation": validation,
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
