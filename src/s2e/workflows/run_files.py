"""The files that a final training writes to a run: the classifier, its records, its curves, and rows of results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s2e.audit import RECORDS
from s2e.data import ENCODING, ArrayReader, LabelledData, Prepared, fingerprint
from s2e.engine import LAST_EPOCHS, SelectedRestart
from s2e.networks import default_network, statistics_of
from s2e.runs import Run, write_classifier
from s2e.specs import AUTO
from s2e.workflows.pipeline import SCHEDULE
from s2e.workflows.status import Status


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


def write_final(
    run: Run,
    network: str,
    prepared: Prepared,
    selected: Sequence[SelectedRestart],
    records: Mapping[str, NDArray[Any]],
    schedule: Mapping[str, Any],
) -> None:
    """Write the last of the selected restarts as the run's classifier, its schedule, and the curves of all."""
    final, source = selected[-1], prepared.source
    train = final.task.train
    write_classifier(run, network_name(network, train), train, final.state, statistics_of(final.task.network))
    run.write_json(SCHEDULE, schedule)
    ids = {} if source is None or source.ids is None else {"ids": np.array(source.ids)[records["rows"]]}
    run.write_arrays(RECORDS, {**records, **ids})
    reader = None if source is None else source.reader
    run.write_json(ENCODING, (reader or ArrayReader(train.sample_shape, train.inputs.dtype == np.uint8)).to_json())
    if final.transition is not None:
        rows = (",".join(map(str, row)) for row in final.transition.tolist())
        run.write_text("transition.csv", "\n".join(rows) + "\n")
    run.write_arrays("curves.npz", {name: array for each in selected for name, array in _curves(each).items()})


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
