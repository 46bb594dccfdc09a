"""The files that a final training writes to a run: the classifier, its records, its curves, and rows of results."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from s2e.audit import RECORDS, Evidence, audit, evidence_of, summary_of, write_samples
from s2e.data import ENCODING, ArrayReader, ImageEncoder, LabelledData, Prepared, Source, fingerprint
from s2e.engine import LAST_EPOCHS, VALIDATION, SelectedRestart, score_of
from s2e.ensembles import NETWORKS, Ensemble, PooledModels, single_member
from s2e.errors import S2EError
from s2e.networks import default_network, statistics_of
from s2e.runs import Run, csv_text, write_classifier
from s2e.specs import AUTO, DataSpec
from s2e.workflows.column_table import COLUMNS, columns_content, columns_of, columns_text
from s2e.workflows.outcomes import TEST
from s2e.workflows.pipeline import SCHEDULE, PipelineResult
from s2e.workflows.progress import ProgressListener
from s2e.workflows.status import Status
from s2e.workflows.voting import VotingClassifier, write_models

ANNOTATORS = "annotators.csv"
"""File of a run with the accuracies of the annotators, where several labelled the samples."""

TIMED_SAMPLES = 1000
"""Most samples on which the speed of a classifier is measured."""


def network_name(network: str, train: LabelledData) -> str:
    """Return the name of the network: the given one, or the default for these data."""
    return network if network != AUTO else default_network(train.sample_shape, train.classes)


def about_run(network: str, prepared: Prepared) -> dict[str, Any]:
    """Return the entries of `config.json` that depend on the data."""
    train, valid = prepared.splits.train, prepared.splits.valid
    return {
        "network": network_name(network, train),
        "data_fingerprint": fingerprint(train, valid),
        "noise_rate": prepared.noise_rate,
    }


def write_columns(run: Run, prepared: Prepared, listener: ProgressListener) -> None:
    """Write and show what became of every column of a table."""
    if columns := columns_of(prepared):
        run.write_json(COLUMNS, columns_content(columns))
        if text := columns_text(columns):
            listener.note(text)


def write_final(
    run: Run,
    network: str,
    dataset: DataSpec,
    prepared: Prepared,
    selected: Sequence[SelectedRestart],
    records: Mapping[str, NDArray[Any]],
    schedule: Mapping[str, Any],
    ensemble: Ensemble | None = None,
    models: PooledModels | None = None,
) -> None:
    """Write the ensemble, or the last of the selected restarts, as the run's classifier; its schedule; all curves.

    Also written are the original samples of the labels to review.
    """
    final, source = selected[-1], prepared.source
    train = final.task.train
    voting = ensemble or single_member(final.state)
    statistics, votes = statistics_of(final.task.network), voting.weights.tolist()
    write_classifier(run, network_name(network, train), train, voting.state, statistics, votes)
    write_models(run, models)
    run.write_json(SCHEDULE, schedule)
    ids = {} if source is None or source.ids is None else {"ids": np.array(source.ids)[records["rows"]]}
    run.write_arrays(RECORDS, {**records, **ids})
    if source is not None and source.crowd is not None:
        run.write_text(ANNOTATORS, csv_text(source.crowd.annotators.to_dict("records")))
    images = ImageEncoder(train.sample_shape, train.inputs.dtype == np.uint8)
    reader = (None if source is None else source.reader) or ArrayReader(images)
    run.write_json(ENCODING, reader.to_json())
    if final.transition is not None:
        rows = (",".join(map(str, row)) for row in final.transition.tolist())
        run.write_text("transition.csv", "\n".join(rows) + "\n")
    run.write_arrays("curves.npz", {name: array for each in selected for name, array in _curves(each).items()})
    if source is not None:
        _write_samples_to_review(run, dataset, source, final.task.method.name, records)


def _write_samples_to_review(
    run: Run, dataset: DataSpec, source: Source, method: str, records: Mapping[str, NDArray[Any]]
) -> None:
    try:
        evidence = evidence_of(records, method)
    except S2EError:  # of networks that diverged
        return
    found, label = audit(evidence), dataset.label
    write_samples(run, source, dataset.data, label, found, evidence.labels, records["rows"], evidence.kept)


def _curves(selected: SelectedRestart) -> dict[str, NDArray[Any]]:
    own = selected.trained.curves.arrays()
    return {f"{selected.training.name}/{name}": array[selected.index] for name, array in own.items()}


def result(
    prepared: Prepared, selected: Sequence[SelectedRestart], validation: str, *, searched: bool, stopped: bool = False
) -> dict[str, Any]:
    """Return the part of `result.json` about final trainings; if a schedule was searched, its training is the last.

    `stopped` says whether that search ended before its last trial.
    """
    splits, last = prepared.splits, len(selected) - 1
    parts = {"train": splits.train, "valid": splits.valid, "test": splits.test}
    diverged = any(bool(each.trained.curves.diverged[each.index]) for each in selected)
    return {
        "status": Status.of(stopped=stopped, diverged=diverged).value,
        "methods": [_row(each, searched=searched and which == last) for which, each in enumerate(selected)],
        "epochs": selected[0].task.epochs,
        "noise_rate": prepared.noise_rate,
        "validation": validation,
        "samples": {name: len(part) for name, part in parts.items() if part is not None},
    }


def estimates(records: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Return the noise rate and the accuracy on correct labels with intervals, as a label audit estimates them."""
    found = summary_of(audit(Evidence.from_records(records)))
    return {name: found[name] for name in ("noise_rate", "noise_rate_interval", "accuracy", "accuracy_interval")}


def classifier_row(outcome: PipelineResult, test: LabelledData | None) -> dict[str, Any]:
    """Return the entry of `result.json` about the classifier: its networks, their size and speed, its score.

    The score on validation is that of classifiers that were not trained on this part.
    """
    ensemble, task = outcome.ensemble, outcome.task
    parts = {VALIDATION: task.evaluate[VALIDATION], **({} if test is None else {TEST: test})}
    score = score_of(task.score)
    predicted = {name: outcome.probabilities(part) for name, part in parts.items()}
    if outcome.held_out is not None:
        predicted[VALIDATION] = outcome.held_out
    scores = {
        name: float(score(torch.from_numpy(predicted[name])[None], torch.from_numpy(part.labels))[0])
        for name, part in parts.items()
    }
    valid = parts[VALIDATION]
    timed = valid.take(np.arange(min(TIMED_SAMPLES, len(valid))))
    voting = VotingClassifier(ensemble.classifier(task), outcome.models)
    began = time.perf_counter()
    voting.probabilities(timed.inputs, timed.model_samples)
    seconds = time.perf_counter() - began
    return {
        "votes": {NETWORKS: 1.0} if outcome.models is None else outcome.models.weights,
        "members": ensemble.members,
        "networks": ensemble.networks,
        "bytes": ensemble.bytes,
        "microseconds_per_sample": round(1e6 * seconds / len(timed), 2),
        **scores,
    }


def _row(selected: SelectedRestart, *, searched: bool) -> dict[str, Any]:
    """Summarise one training: accuracies over the last epochs and at the best epoch of the selected restart."""
    curves, index = selected.trained.curves, selected.index
    row: dict[str, Any] = {
        "name": selected.training.name,
        "method": selected.training.method.name,
        "searched": searched,
    }
    for part, accuracy in curves.accuracy.items():
        best = int(accuracy[index].argmax())
        row[part] = {
            f"last_{LAST_EPOCHS}_epochs": float(curves.last(part)[index]),
            "best_epoch": float(accuracy[index, best]),
            "at_epoch": best,
        }
    precision = curves.label_precision[index, -LAST_EPOCHS:].mean()
    row["label_precision"] = None if np.isnan(precision) else float(precision)
    row["diverged"] = bool(curves.diverged[index])
    row["validation_of_restarts"] = [round(float(value), 6) for value in selected.validation_accuracies]
    return row
