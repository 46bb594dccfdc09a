"""The pipeline of all workflows: build the task, relabel a noisy validation part, search, train, keep the records.

`s2e search`, `s2e train`, `s2e compare`, `s2e.search`, `s2e.train`, `S2EClassifier` and the experiments all call these
functions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray
from torch import Tensor

from s2e import schedules
from s2e.audit import (
    AMBIGUOUS,
    FOLDS,
    Evidence,
    LabelAudit,
    audit,
    probabilities_out_of_fold,
    records_of,
    relabelled_validation,
    stratified_folds,
    with_validation_labels,
)
from s2e.data import LabelledData, Prepared
from s2e.engine import (
    ACCURACY,
    BALANCED_ACCURACY,
    VALIDATION,
    Checkpoints,
    FinalTraining,
    Member,
    SelectedRestart,
    Task,
    augmentation_of,
    channel_statistics,
    check_images,
    check_plan,
    check_precision,
    check_task,
    leaves_threads_idle,
    optimizer_of,
    plan_of,
    score_of,
    stages_needed,
    train_restarts,
)
from s2e.ensembles import (
    NETWORKS,
    Ensemble,
    KeptMembers,
    LabelledSamples,
    PooledModels,
    PosteriorLabels,
    choose_ensemble,
    cross_fitting,
    distilled,
    is_better_beyond_noise,
    model_samples,
    models_for,
    single_member,
    soft_trained,
    votes_of,
)
from s2e.errors import InvalidInput, UnreadableData
from s2e.methods import SEARCHABLE, Method, Need, may_hold_out, with_options
from s2e.methods import method as method_of
from s2e.networks import NormalisedFactory, default_network, factory_of
from s2e.runs import Run, RunLocation
from s2e.samplers import complete_trials
from s2e.seeds import derive
from s2e.specs import AUTO, ClassifierSpec, Execution, SearchSpec, SizedTrainingSpec, TrainingSpec
from s2e.studies import (
    DEFAULT_GENERATIONS,
    BestTrial,
    GenerationFinished,
    MethodSpace,
    Search,
    SearchPlan,
    best_trial,
    choose_generation_size,
    epochs_left,
    is_long_enough,
    plan_search,
    resolve_execution,
    search_schedules,
)
from s2e.workflows.defaults import longest
from s2e.workflows.outcomes import TEST
from s2e.workflows.progress import SILENT, ProgressListener
from s2e.workflows.time_budget import Advice, SearchTime, population_times

RELABELLED = "validation.npz"
"""File of a run with the validation labels that schedules are compared on, where the given ones are noisy."""

SCHEDULE = "schedule.json"

ASSUMED_NOISE_RATES = (0.4, 0.2)
"""Noise rates of the Co-teaching schedules that may vote beside the searched one; the last is the baseline."""

IMBALANCE = 4.0
"""Factor between the numbers of samples of two labels from which samples are selected within labels."""

ENOUGH = "the search ends: no schedule is expected to be better by more than validation can tell"

FIRST_METHOD = "coteaching"
"""Method of all trainings but the searched ones, where methods compete."""

RETRAINED_NETWORKS = 3
"""Networks that are trained on the posterior of the audit, if the networks vote beside other models."""

RETRAINED_RESTARTS, MOST_WRONG = 2, 0.9
"""Restarts of a training on audited labels, if the networks predict alone, and its largest assumed noise rate."""

AUDIT_ROUNDS = 2
"""Most trainings on audited labels, one after the other, each on the labels of an audit by the one before."""

SEARCHED, AUDITED = "S2E", "audited labels"
"""Display names of the training whose schedule was searched, and of those on the labels that the audit suggests."""


def check_choices(
    training: TrainingSpec, method: str | Method, execution: Execution, search: SearchSpec | None = None
) -> None:
    """Refuse names and numbers that cannot be used, before data are loaded or a device is timed."""
    factory_of(training.network, (1,), 2)  # refuses other objects; builds nothing
    optimizer_of(training.optimizer)
    check_plan(plan_of(training.plan), longest(training).epochs)
    augmentation_of(training.augment)
    check_precision(training.precision)
    chosen = method_of(FIRST_METHOD if search is not None and method == AUTO else method)
    resolve_execution(execution)
    if search is not None:
        if Need.SCHEDULE not in chosen.needs:
            raise InvalidInput(
                f"`method` must have a keep rate for its schedule to be searched, but got {chosen.name}."
            )
        plan_search(search, longest(training), 0)


def build_task(
    train: LabelledData,
    evaluate: Mapping[str, LabelledData],
    training: SizedTrainingSpec,
    method: str | Method,
    *,
    seed: int,
    execution: Execution,
    clean: LabelledData | None = None,
    order: str = "batches",
    checkpoints: Checkpoints | None = None,
    memory: int | None = None,
    score: str = ACCURACY,
) -> Task:
    """Return the task that all members of a population share.

    Args:
        train: training data.
        evaluate: data sets whose accuracy is recorded after every epoch, by name. A search gets "valid", never "test".
        training: how they are trained.
        method: how samples are weighted, for members without a method of their own.
        seed: seed of the order of the batches.
        execution: where members are trained.
        clean: samples with correct labels, for methods that need some.
        order: name of the random stream of the order of the batches.
        checkpoints: where and how often the state of the training is written; None for never.
        memory: bytes that a population may use; None for those that are free.
        score: what is recorded on the data sets, and maximised on validation.
    """
    shape, classes = train.sample_shape, train.classes
    device, executor = resolve_execution(execution)
    network = factory_of(training.network, shape, classes)
    augmentation, normalize = augmentation_of(training.augment)
    if normalize:
        check_images(shape)
        network = NormalisedFactory(network, channel_statistics(train.inputs))
    task = Task(
        train,
        network,
        method_for(method, train),
        evaluate,
        training.epochs,
        training.batch_size,
        derive(seed, order),
        device,
        clean=clean,
        optimizer=optimizer_of(training.optimizer),
        plan=plan_of(training.plan),
        augmentation=augmentation,
        precision=training.precision,
        checkpoints=checkpoints,
        memory=memory,
        executor=executor,
        score=score,
    )
    for name, part in evaluate.items():
        if part.sample_shape != shape:
            raise InvalidInput(
                f"{name!r} must hold samples of shape {shape} like the training data, but got {part.sample_shape}."
            )
    keep_all = schedules.constant(1.0, training.epochs)
    transition = np.eye(classes) if Need.TRANSITION in task.method.needs else None
    check_task(task, [Member(keep_all, 0, training.learning_rate, transition=transition)])
    return task


def method_for(method: str | Method, train: LabelledData) -> Method:
    """Return a method with the settings for these data.

    Where labels are imbalanced, a method that is given by its name keeps the same share of every label, unless its
    option `by_class` is given: the samples of a rare class have large losses at first, and would be left out.
    """
    method = FIRST_METHOD if method == AUTO else method
    found = method_of(method, default_network(train.sample_shape, train.classes))
    counts = np.bincount(train.labels, minlength=train.classes)
    chosen = isinstance(method, str) and "by_class" not in method
    if not chosen or not hasattr(found, "by_class") or counts.max() < IMBALANCE * counts.min():
        return found
    return with_options(found, {"by_class": "true"})


def prepared_task(
    prepared: Prepared,
    training: SizedTrainingSpec,
    method: str | Method,
    *,
    seed: int,
    location: RunLocation,
    order: str = "batches",
    score: str = ACCURACY,
) -> Task:
    """Return the task of a run on prepared data, which evaluates the validation part; otherwise as `build_task`."""
    valid = prepared.splits.valid
    clean = valid if prepared.validation == "clean" else None
    evaluate = {VALIDATION: valid}
    return build_task(
        prepared.splits.train,
        evaluate,
        training,
        method,
        seed=seed,
        execution=location.execution,
        clean=clean,
        order=order,
        checkpoints=location.checkpoints,
        memory=location.memory,
        score=score,
    )


def plan_for(
    task: Task,
    spec: SearchSpec,
    training: SizedTrainingSpec,
    seed: int,
    *,
    method: str | Method,
    generations: int = DEFAULT_GENERATIONS,
) -> SearchPlan:
    """Plan the only search on a task; a generation size of "auto" is measured on it.

    With the method "auto", all methods with a keep rate compete.
    """
    if method == AUTO:
        competing = [method_for(name, task.train) for name in SEARCHABLE]
        spec = replace(spec, space=MethodSpace(schedules.space(spec.space), competing))
    kind = Member(schedules.constant(1.0, task.epochs), 0, training.learning_rate)
    choose = partial(choose_generation_size, task, [kind])
    return plan_search(spec, training, seed, generations=generations, choose=choose)


def find_schedules(
    task: Task,
    searches: Sequence[Search],
    *,
    relabel: bool = False,
    run: Run | None = None,
    listener: ProgressListener = SILENT,
    stage: str = "search",
    kept: KeptMembers | None = None,
    stop_early: bool = False,
) -> tuple[list[BestTrial], Task]:
    """Search schedules, several searches side by side in one population.

    Args:
        task: data, network and method; evaluates "valid".
        searches: plans and studies.
        relabel: relabel the validation part first.
        run: stores the new validation labels, for a resumed run.
        listener: receives the progress.
        stage: name of the search in the progress.
        kept: keeps the weights of the best members.
        stop_early: end the first search, the only one, when no schedule is expected to be better beyond noise.

    Returns:
        The best trial of each search, and the task with the validation labels they were scored on.
    """
    if relabel:
        task = relabelled_task(task, searches[0].plan, run, listener)
    plan, study = searches[0].plan, searches[0].study
    samples = len(np.unique(task.evaluate[VALIDATION].rows))

    def is_enough() -> bool:
        draws = np.random.default_rng(derive(plan.seed, "stopping"))
        return stop_early and is_long_enough(study, plan.space, task.epochs, samples, draws)

    def on_generation(done: GenerationFinished) -> bool | None:
        stopped, enough = listener.generation(done), is_enough()
        if enough and len(study.trials) < plan.trials:
            listener.note(ENOUGH)
        return stopped or enough

    if is_enough():  # a resumed run, killed after its search
        if len(study.trials) < plan.trials:
            listener.note(ENOUGH)
        return [best_trial(study, plan.space, task.epochs)], task
    listener.stage(stage, epochs_left(searches, task.epochs))

    found = search_schedules(
        task,
        searches,
        on_generation=on_generation,
        on_epoch=listener.epoch,
        on_trained=None if kept is None else kept.add,
    )
    return found, task


def find_schedule_in_time(
    task: Task,
    search: Search,
    search_time: SearchTime | None,
    *,
    relabel: bool = False,
    run: Run | None = None,
    listener: ProgressListener = SILENT,
    stage: str = "search",
    kept: KeptMembers | None = None,
    stop_early: bool = False,
) -> tuple[BestTrial, Task, bool]:
    """Search one schedule, say how long it will take, and end in time; otherwise as `find_schedules`.

    Returns:
        The best trial, the task with the validation labels it was scored on, and whether the time ended the search.
    """
    more: dict[str, Any] = {"relabel": relabel, "run": run, "stage": stage, "kept": kept, "stop_early": stop_early}
    if search_time is None:
        (found,), task = find_schedules(task, [search], listener=listener, **more)
        return found, task, False
    generations = epochs_left([search], task.epochs) // task.epochs
    if (line := search_time.line(search.plan, generations)) is not None:
        listener.note(line)
    limited = search_time.limited(listener)
    if generations and complete_trials(search.study) and not limited.has_time:  # resumed, to train the final classifier
        task = relabelled_task(task, search.plan, run, listener) if relabel else task
        return best_trial(search.study, search.plan.space, task.epochs), task, True
    (found,), task = find_schedules(task, [search], listener=limited, **more)
    return found, task, limited.stopped


def relabelled_task(task: Task, plan: SearchPlan, run: Run | None, listener: ProgressListener) -> Task:
    """Relabel the validation part, or read the labels that an earlier session stored."""
    stored = {} if run is None else run.read_arrays(RELABELLED)
    if not stored:
        listener.stage("relabelling validation", task.epochs)
        labels = relabelled_validation(task, learning_rate=plan.learning_rate, seed=plan.seed, on_epoch=listener.epoch)
        stored = {"rows": task.evaluate[VALIDATION].rows, "labels": labels}
        if run is not None:
            run.write_arrays(RELABELLED, stored)
    try:
        if "labels" not in stored or stored["labels"].dtype != np.int64:
            raise InvalidInput("`labels` must be integers.")
        return with_validation_labels(task, stored["labels"])
    except InvalidInput as problem:
        if run is None:
            raise
        path = str(run.path / RELABELLED)
        raise UnreadableData(f"{path!r} does not hold the labels of this validation part: {problem}") from problem


def with_both_labels(given: LabelledData, relabelled: LabelledData) -> LabelledData:
    """Return every sample of a validation part twice, with its given and with its new label.

    New labels are less noisy where the networks that relabel are good. Where they are not, the new labels repeat their
    errors, and prefer classifiers with the same errors; the errors of the given labels are independent of classifiers.
    """
    twice = given.take(np.tile(np.arange(len(given)), 2))
    return replace(twice, labels=np.concatenate([given.labels, relabelled.labels]))


def schedule_content(found: BestTrial) -> dict[str, Any]:
    """Return the content of `schedule.json`."""
    return {"keep_rates": found.schedule.tolist(), "point": found.point.tolist()}


def write_early(run: Run, schedule: Mapping[str, Any]) -> None:
    """Write the schedule before the final training, unless the run has results of an earlier one."""
    if not run.has_results:
        run.write_json(SCHEDULE, schedule)


def train_final(
    task: Task,
    trainings: Sequence[FinalTraining],
    *,
    learning_rate: float,
    seed: int,
    test: LabelledData | None = None,
    listener: ProgressListener = SILENT,
    stage: str = "final training",
) -> list[SelectedRestart]:
    """Train all restarts from new seeds with new batch orders; validation selects one of each training."""
    fresh = derive(seed, "final")
    evaluate = dict(task.evaluate) if test is None else {**task.evaluate, TEST: test}
    task = replace(task, evaluate=evaluate, seed=derive(fresh, "batches"))
    members = [member for training in trainings for member in training.members(learning_rate, fresh)]
    listener.stage(stage, stages_needed(task, members) * task.epochs)
    return train_restarts(task, trainings, learning_rate=learning_rate, seed=fresh, on_epoch=listener.epoch)


def audit_records(selected: SelectedRestart, noisy: LabelledData | None) -> dict[str, NDArray[Any]]:
    """Return the records of a final training for a label audit, held-out samples with noisy labels included."""
    return records_of(selected.task, selected.trained, [selected.index], noisy, held_out=selected.held_out)


def folds_of(task: Task, folds: int, seed: int) -> NDArray[np.int64] | None:
    """Return the fold of each training sample, (N,); None for few samples, or a method that cannot hold any out."""
    if folds < 2 or not may_hold_out(task.method):
        return None
    found = stratified_folds(task.train.labels, folds, seed)
    return found if found.any() else None


@dataclass(frozen=True, eq=False)
class PipelineResult:
    """The result of `search_and_train`.

    Attributes:
        found: the best trial of the search.
        selected: the restart of each final training that validation selected; the searched schedule's is the last.
        records: records of that one, for a label audit.
        validation: "clean", "noisy" or "relabelled".
        task: the task with the validation labels that schedules and restarts were selected by.
        ensemble: the networks of the classifier.
        models: models that vote beside the networks; None if these predict alone.
        chosen_by: the validation part by which they were chosen; after relabelling, with both labels of every sample.
        held_out: (n, C) predictions for the validation part of classifiers not trained on it, if models vote: these are
            then fitted to it too. None where no classifier was trained on it.
        stopped: whether the search ended before its last trial, to keep a time budget.
    """

    found: BestTrial
    selected: list[SelectedRestart]
    records: dict[str, NDArray[Any]]
    validation: str
    task: Task
    ensemble: Ensemble
    chosen_by: LabelledData
    models: PooledModels | None
    held_out: NDArray[np.float64] | None = None
    stopped: bool = False

    def probabilities(self, data: LabelledData) -> NDArray[np.float64]:
        """Return the probabilities of the classifier for some samples, (N, C)."""

        def vote() -> NDArray[np.float64]:
            return self.ensemble.probabilities(self.task, data.inputs)

        return vote() if self.models is None else self.models.probabilities(model_samples(data), vote)


def _voting(
    task: Task,
    candidates: Sequence[Mapping[str, Tensor]],
    valid: LabelledData,
    baseline: Mapping[str, Tensor] | None,
    noisy: LabelledData | None,
    *,
    most: int,
    seed: int,
) -> Ensemble:
    """Choose the networks that vote together by their score on validation.

    If a baseline agrees with the given labels of a noisy validation part better than the ensemble does, beyond noise,
    the new labels are misleading, and the ensemble is chosen by the given ones alone.
    """
    score = score_of(task.score)
    chosen = choose_ensemble(task, candidates, valid, score, most=most, seed=seed)
    if baseline is None or noisy is None:
        return chosen
    safe, vote = (each.probabilities(task, noisy.inputs) for each in (single_member(baseline), chosen))
    if not is_better_beyond_noise(safe, vote, noisy.labels):
        return chosen
    return choose_ensemble(task, candidates, noisy, score, most=most, seed=seed)


def fixed_trainings(method: Method, epochs: int) -> list[FinalTraining]:
    """Return trainings that need no search: plain training, and Co-teaching schedules with assumed noise rates.

    With weak evidence the searched schedule may be worse than these, so they are candidates of the ensemble too.
    """
    assumed = [
        FinalTraining(f"assumed noise rate {rate:.0%}", method, schedules.coteaching(rate, epochs))
        for rate in ASSUMED_NOISE_RATES
    ]
    return [FinalTraining("plain", method, schedules.constant(1.0, epochs)), *assumed]


def trained_on_audited_labels(
    task: Task,
    records: Mapping[str, NDArray[Any]],
    folds: NDArray[np.int64],
    train: Callable[[FinalTraining, int], SelectedRestart | None],
    noisy: LabelledData | None = None,
) -> tuple[list[SelectedRestart], dict[str, NDArray[Any]]]:
    """Train on the labels that the audit suggests, audit the labels again by these networks, and repeat.

    Networks that are trained on better labels predict the samples that they hold out better. Whether they do is told by
    the likelihood of the given labels under these predictions; where it does not rise, the rounds end. Whether such
    networks are better classifiers depends on the noise, so they are candidates of the ensemble.

    Args:
        task: data and network.
        records: of the searched training; training samples come first.
        folds: (N,) the fold of each training sample.
        train: trains in a round, numbered from 0; None if there is no time for it.
        noisy: held-out samples with noisy labels, which are audited too.

    Returns:
        The trainings, and the records with the predictions of the best round.
    """
    best, found = dict(records), audit(Evidence.from_records(records))
    trained: list[SelectedRestart] = []
    for number in range(AUDIT_ROUNDS):
        training = training_on_audited_labels(task, found, folds)
        if training is None or found.message == AMBIGUOUS:  # where classes are exchanged, it would repeat the exchange
            break
        if (selected := train(training, number)) is None:
            break
        trained.append(selected)
        own = audit_records(selected, noisy)
        if "out_of_fold" not in own:  # a network diverged
            break
        audited = {**records, "out_of_fold": own["out_of_fold"]}
        again = audit(Evidence.from_records(audited))
        if again.log_likelihood <= found.log_likelihood:
            break
        best, found = audited, again
    return trained, best


def training_on_audited_labels(
    task: Task, found: LabelAudit, folds: NDArray[np.int64] | None = None
) -> FinalTraining | None:
    """Return a training on the labels that an audit suggests; None if these are the given ones.

    Its schedule is Co-teaching's for the expected share of suggested labels that are wrong.
    """
    count = len(task.train)
    labels = found.suggested[:count]
    if (labels == task.train.labels).all():
        return None
    wrong = float(1 - found.confidence[:count].mean())
    schedule = schedules.coteaching(min(wrong, MOST_WRONG), task.epochs)
    return FinalTraining(AUDITED, task.method, schedule, RETRAINED_RESTARTS, folds=folds, labels=labels)


def time_of_search(
    task: Task,
    plan: SearchPlan,
    *,
    validation: str,
    restarts: int,
    folds: int = FOLDS,
    classifier: ClassifierSpec | None = None,
    budget: float | None,
    began: float,
    advice: Advice,
    relabel: bool = True,
    baselines: Sequence[FinalTraining] = (),
    test: LabelledData | None = None,
) -> SearchTime:
    """Measure how long `search_and_train` will take with these arguments.

    Args:
        budget: seconds that it may take; None for any time.
        began: when the command began, by `time.monotonic`.
        advice: how the caller writes arguments.
    """
    keep_all, of_samples = schedules.constant(1.0, task.epochs), folds_of(task, folds, plan.seed)
    spec = classifier or ClassifierSpec()
    searched = FinalTraining(SEARCHED, task.method, keep_all, restarts, folds=of_samples)
    fixed = fixed_trainings(task.method, task.epochs) if spec.ensemble > 1 else []
    retrained = []
    if fixed and of_samples is not None and _samples_of_models(task, validation, spec) is None:
        again = FinalTraining(AUDITED, task.method, keep_all, RETRAINED_RESTARTS, folds=of_samples)
        retrained = [again] * AUDIT_ROUNDS  # populations of their own
    trainings = [*baselines, searched, *fixed, *retrained]
    times = population_times(task, plan, relabel=relabel and validation == "noisy", trainings=trainings, test=test)
    return SearchTime(times, task.device, budget=budget, began=began, advice=advice)


def search_and_train(
    task: Task,
    plan: SearchPlan,
    study: optuna.Study,
    *,
    validation: str,
    restarts: int,
    folds: int = FOLDS,
    classifier: ClassifierSpec | None = None,
    relabel: bool = True,
    baselines: Sequence[FinalTraining] = (),
    test: LabelledData | None = None,
    run: Run | None = None,
    search_time: SearchTime | None = None,
    listener: ProgressListener = SILENT,
    stage: str = "search",
    stop_early: bool = False,
) -> PipelineResult:
    """Relabel a noisy validation part, search a schedule, train with it from new seeds, return the records.

    Args:
        task: data, network and method; evaluates "valid", and no test part.
        plan: settings of the search.
        study: stores the trials.
        validation: "clean" or "noisy".
        restarts: number of seeds of the final training.
        folds: members of the final training that each hold out one part of the samples, for the audit; 0 for none.
        classifier: which of the trained networks vote; the defaults when None.
        relabel: whether a noisy validation part is relabelled.
        baselines: other final trainings, in the same population.
        test: test part of the final trainings.
        run: stores new validation labels and the schedule as soon as they are found; None to write nothing.
        search_time: expected and available time, from `time_of_search`; None for any time, without a line about it.
        listener: receives the progress.
        stage: name of the search in the progress.
        stop_early: end the search when no schedule is expected to be better beyond noise.
    """
    noisy = task.evaluate[VALIDATION] if validation == "noisy" else None
    relabel = relabel and validation == "noisy"
    spec = classifier or ClassifierSpec()
    kept = KeptMembers(run) if spec.ensemble > 1 else None
    if kept is not None and kept.members:
        kept.check(task.network)
    samples = None
    if folds_of(task, folds, plan.seed) is not None:
        samples = _samples_of_models(task, validation, spec)
    with _cross_fitting(task, samples, plan) as predictions:
        found, task, stopped = find_schedule_in_time(
            task,
            Search(plan, study),
            search_time,
            relabel=relabel,
            run=run,
            listener=listener,
            stage=stage,
            kept=kept,
            stop_early=stop_early,
        )
        if run is not None:
            write_early(run, schedule_content(found))
        task = replace(task, method=found.method or task.method)
        of_samples = folds_of(task, folds, plan.seed)
        searched = FinalTraining(SEARCHED, task.method, found.schedule, restarts, folds=of_samples)
        fixed = fixed_trainings(task.method, task.epochs) if kept is not None else []
        samples = None if of_samples is None else samples
        train = partial(train_final, task, learning_rate=plan.learning_rate, seed=plan.seed, listener=listener)
        began = time.monotonic()
        finished = train([*baselines, searched, *([] if samples is not None else fixed)], test=test)
        seconds_of_member = (time.monotonic() - began) / len(finished[0].trained.curves.diverged)
        selected, of_fixed = finished[: len(baselines) + 1], finished[len(baselines) + 1 :]
        records = audit_records(selected[-1], noisy)
        if validation == "clean":
            records["trusted"] = np.array(len(task.evaluate[VALIDATION]), dtype=np.int64)
        of_models = predictions() if samples is not None else []
    models, ensemble, held_out = None, None, None
    if samples is not None:
        models, ensemble, records, held_out = _pooled(task, samples, selected[-1], records, of_models, plan)
        if models is None:
            of_fixed = train(fixed, stage="training with fixed schedules")
    retrained: list[SelectedRestart] = []
    if models is None and kept is not None and of_samples is not None:

        def train_round(training: FinalTraining, number: int) -> SelectedRestart | None:
            seconds = seconds_of_member * len(training.members(plan.learning_rate, plan.seed))
            if search_time is not None and not search_time.is_enough_for(seconds):
                return None
            own_seed = derive(plan.seed, "audited", number)
            return train([training], seed=own_seed, stage=f"training on {AUDITED}, round {number + 1}")[0]

        retrained, records = trained_on_audited_labels(task, records, of_samples, train_round, noisy)
    valid = task.evaluate[VALIDATION]
    by = valid if noisy is None or not relabel else with_both_labels(noisy, valid)
    if ensemble is None:
        candidates = [state for training in [selected[-1], *of_fixed, *retrained] for state in training.states]
        candidates += [] if kept is None else [member.state for member in kept.members]
        baseline = of_fixed[-1].state if of_fixed and relabel else None
        seed = derive(plan.seed, "ensemble")
        ensemble = _voting(task, candidates, by, baseline, noisy, most=spec.ensemble, seed=seed)
    if spec.distil:
        listener.stage("distillation", task.epochs)
        ensemble = distilled(
            task, ensemble, learning_rate=plan.learning_rate, seed=derive(plan.seed, "distil"), on_epoch=listener.epoch
        )
    kind = "relabelled" if relabel else validation
    return PipelineResult(found, selected, records, kind, task, ensemble, by, models, held_out, stopped)


def _samples_of_models(task: Task, validation: str, spec: ClassifierSpec) -> LabelledSamples | None:
    """Return the training and the validation samples as models take them; None if no models are fitted to so many."""
    if not spec.models or spec.ensemble == 1 or spec.distil:
        return None
    train, valid = task.train, task.evaluate[VALIDATION]
    samples = model_samples(train, valid)
    if not models_for(samples, train.classes):
        return None
    reviewed = [np.zeros(len(part), dtype=bool) if part.reviewed is None else part.reviewed for part in (train, valid)]
    known = [reviewed[0], reviewed[1] | (validation == "clean")]
    return LabelledSamples(samples, np.concatenate([train.labels, valid.labels]), np.concatenate(known))


@contextmanager
def _cross_fitting(
    task: Task, samples: LabelledSamples | None, plan: SearchPlan
) -> Iterator[Callable[[], list[tuple[str, NDArray[np.float64]]]]]:
    """Cross-fit the models of the pool, beside the networks if these leave threads idle; see `cross_fitting`."""
    if samples is None:
        yield list
        return
    seed, ahead = derive(plan.seed, "models"), leaves_threads_idle(task)
    with cross_fitting(samples, task.train.classes, seed, ahead=ahead) as predictions:
        yield predictions


def _pooled(
    task: Task,
    data: LabelledSamples,
    selected: SelectedRestart,
    records: dict[str, NDArray[Any]],
    predictions: Sequence[tuple[str, NDArray[np.float64]]],
    plan: SearchPlan,
) -> tuple[PooledModels | None, Ensemble | None, dict[str, NDArray[Any]], NDArray[np.float64] | None]:
    """Let models vote beside the networks.

    Models are trained on the posterior of the label audit by the pool, and so are the networks if they vote. Clean
    validation samples, which are not audited, have their label.

    Args:
        task: data and network.
        data: the samples of the records, then clean validation samples.
        selected: the searched restart.
        records: its records.
        predictions: of cross-fitted models for these samples, by name.
        plan: plan of the search.

    Returns:
        The models, None if the networks predict alone; the networks that vote beside them, None if these are not
        trained here; the records with the predictions of the pool; and these for the held-out validation part, None
        if the networks predict alone.
    """
    evidence = Evidence.from_records(records)
    networks = evidence.probabilities.mean(axis=0, dtype=np.float64)  # (N, C)
    audited = len(networks)
    if audited < len(data.labels):
        members = selected.fold_members if "out_of_fold" in records else (selected.index,)
        clean = probabilities_out_of_fold(selected.task, selected.trained, members, task.evaluate[VALIDATION])
        networks = np.concatenate([networks, clean.astype(np.float64)])
    votes, pool = votes_of(data, networks, predictions)
    if list(votes) == [NETWORKS]:
        return None, None, records, None
    trusted = np.array(np.count_nonzero(data.known), dtype=np.int64)
    records = {**records, "out_of_fold": pool[:audited].astype(np.float16), "trusted": trusted}
    found = audit(Evidence.from_records(records))
    labels = PosteriorLabels.of(data, found.classes, found.posterior, balanced=task.score == BALANCED_ACCURACY)
    models = PooledModels.fit(votes, labels, evidence.classes)
    ensemble = None
    if NETWORKS in votes:
        samples, posterior = _with_posterior(task, labels, audited)
        seed = derive(plan.seed, "posterior")
        ensemble = soft_trained(
            replace(task, train=samples),
            posterior,
            networks=RETRAINED_NETWORKS,
            learning_rate=plan.learning_rate,
            seed=seed,
        )
    return models, ensemble, records, pool[len(task.train) :]


def _with_posterior(task: Task, labels: PosteriorLabels, audited: int) -> tuple[LabelledData, NDArray[np.float64]]:
    """Return the training samples and clean validation samples, and their weights of all classes, (n, C).

    Args:
        task: its training samples come first in the labels, its clean validation samples last.
        labels: of all samples.
        audited: number of audited samples.
    """
    parts, clean = [task.train], np.arange(audited, len(labels.classes))
    rows = np.concatenate([np.arange(len(task.train)), clean])
    if len(clean):
        parts.append(task.evaluate[VALIDATION])
    posterior = np.zeros((len(rows), task.train.classes))
    np.add.at(posterior, (np.arange(len(rows))[:, None], labels.classes[rows]), labels.weights[rows])
    inputs, given = (np.concatenate([getattr(part, name) for part in parts]) for name in ("inputs", "labels"))
    return LabelledData(inputs, given, task.train.class_names), posterior
