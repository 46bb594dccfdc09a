"""Options and data files of small searches and trainings, for tests of the workflows."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from s2e.runs.directory import Run
from s2e.specs import SearchOptions, TrainOptions, assemble, leaves
from small_tasks import blobs

Options = TypeVar("Options")

EPOCHS = 4
TINY: dict[str, Any] = {"epochs": EPOCHS, "batch_size": 64, "learning_rate": 1e-2}


def options_of(kind: type[Options], **values: Any) -> Options:
    """Assemble options from flat values, all of which must be names of fields."""
    unknown = values.keys() - {leaf.name for leaf, _ in leaves(kind)}
    assert not unknown, unknown
    return assemble(kind, values)


def search_options(data: str, **changes: Any) -> SearchOptions:
    budget = {"trials": 4, "generation_size": 2, "space": "coteaching", "sampler": "random"}
    return options_of(SearchOptions, **{"data": data, **TINY, **budget, **changes})


def train_options(data: str, **changes: Any) -> TrainOptions:
    return options_of(TrainOptions, **{"data": data, **TINY, "schedule": "coteaching:0.3", **changes})


def save_clusters(path: Path, *, test: bool = True, truth: bool = True) -> str:
    """Write clusters with noisy training labels to a file, with the true labels and a test part unless excluded."""
    data, unseen = blobs(), blobs(96, wrong=0.0, seed=2)
    arrays: dict[str, Any] = {"x_train": data.inputs, "y_train": data.labels, "class_names": list(data.class_names)}
    if truth:
        arrays["y_train_clean"] = data.clean_labels
    if test:
        arrays |= {"x_test": unseen.inputs, "y_test": unseen.labels}
    np.savez(path, **arrays)
    return str(path)


def file_names(run: Run) -> set[str]:
    return {entry.name for entry in run.path.iterdir()}


def contents(run: Run) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in run.path.iterdir()}


def result(run: Run) -> dict[str, Any]:
    content: dict[str, Any] = run.read_json("result.json")
    return content
