"""A fitted `S2EClassifier` as one file and back: weights, features, classes and verdicts, without pickle."""

from __future__ import annotations

import json
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from s2e._version import __version__
from s2e.engine.inference import Classifier
from s2e.errors import InvalidInput, UnreadableData
from s2e.estimator.features import features_from
from s2e.networks.factories import NETWORKS, factory_of
from s2e.runs.classifier_file import with_weights
from s2e.runs.directory import Run

Fitted = TypeVar("Fitted")
"""`S2EClassifier`, or a class made from it."""

VERSION = 1
NETWORK, FEATURES, VERDICTS = "network", "features.", "verdicts."
_NUMBERS = ("validation_accuracy_", "noise_rate_")
_COUNTS = ("epochs_", "batch_size_", "n_trials_")
_ARRAYS = (
    "schedule_",
    "label_quality_",
    "label_issues_",
    "transition_",
    "_suggested_probability",
    "_is_issue",
    "_given",
)


def save(fitted: Any, path: str | PathLike[str]) -> None:
    """Write a fitted classifier, whole or not at all."""
    where = Path(path)
    features = fitted._features.written()
    tensors = {FEATURES + name: _tensor(array) for name, array in features.arrays.items()}
    tensors |= {VERDICTS + name: _tensor(getattr(fitted, name)) for name in _ARRAYS}
    tensors[VERDICTS + "doubtful"] = _tensor(np.isin(fitted.classes_, fitted.doubtful_classes_))
    tensors[VERDICTS + "suggested"] = _tensor(np.searchsorted(fitted.classes_, fitted.suggested_labels_))
    for which, module in enumerate(fitted._classifier.networks):
        tensors |= {f"{NETWORK}{which}.{name}": tensor for name, tensor in module.state_dict().items()}
    about = {
        "version": VERSION,
        "made_by": __version__,
        "parameters": _parameters(fitted),
        "classes": fitted.classes_.tolist(),
        "classes_type": "object" if fitted.classes_.dtype == object else fitted.classes_.dtype.str,
        "columns": getattr(fitted, "n_features_in_", None),  # images have none
        "names": getattr(fitted, "feature_names_in_", np.empty(0, dtype=object)).tolist(),
        "features": features.about,
        "sample_shape": list(fitted._classifier.sample_shape),
        "networks": len(fitted._classifier.networks),
        "validation_": fitted.validation_,
        **{name: float(getattr(fitted, name)) for name in _NUMBERS},
        **{name: int(getattr(fitted, name)) for name in _COUNTS},
    }
    try:
        text = json.dumps(about)
    except TypeError as problem:
        raise InvalidInput(f"classes must be texts, numbers or truths to be written, but {problem}.") from None
    if not where.parent.is_dir():
        raise InvalidInput(f"`path` must be in a directory that exists, but {str(where.parent)!r} does not.")
    Run(where.parent).write_weights(where.name, tensors, {"s2e_classifier": text})


def load(cls: Callable[..., Fitted], path: str | PathLike[str], network: Callable[..., Any] | None) -> Fitted:
    """Read a fitted classifier; `network` is its factory where it was no reference network."""
    where = Path(path)
    if not where.is_file():
        raise UnreadableData(f"{str(where)!r} must be a file that `save` wrote, but there is none.")
    try:
        tensors, words = Run(where.parent).read_weights(where.name)
        about = json.loads(words["s2e_classifier"])
        if about["version"] != VERSION:
            raise UnreadableData(f"{str(where)!r} is of version {about['version']}, but {VERSION} can be read.")
        made = cls(**about["parameters"])
        fitted: Any = made
        if network is not None:
            fitted.network = network
        elif fitted.network is None:
            raise InvalidInput("`network` must be given: this classifier was fitted with a factory of your own.")
        fitted.classes_ = np.array(about["classes"], dtype=np.dtype(about["classes_type"]))
        arrays = {
            key.removeprefix(FEATURES): tensor.numpy() for key, tensor in tensors.items() if key.startswith(FEATURES)
        }
        fitted._features = features_from(about["features"], arrays)
        shape = tuple(about["sample_shape"])
        names = tuple(map(str, about["classes"]))
        factory = factory_of(fitted.network, shape, len(names))
        modules = [with_weights(factory(), tensors, f"{NETWORK}{which}.") for which in range(about["networks"])]
        fitted._classifier = Classifier(tuple(modules), names, shape)
        for name in (*_NUMBERS, *_COUNTS, "validation_"):
            setattr(fitted, name, about[name])
        for name in _ARRAYS:
            setattr(fitted, name, tensors[VERDICTS + name].numpy())
        fitted.doubtful_classes_ = fitted.classes_[tensors[VERDICTS + "doubtful"].numpy()]
        fitted.suggested_labels_ = fitted.classes_[tensors[VERDICTS + "suggested"].numpy()]
    except (UnreadableData, KeyError, TypeError, RuntimeError, AttributeError) as problem:
        raise UnreadableData(f"{str(where)!r} is not a classifier that s2e has saved: {problem}.") from problem
    if about["columns"] is not None:
        fitted.n_features_in_ = about["columns"]
    if about["names"]:
        fitted.feature_names_in_ = np.array(about["names"], dtype=object)
    fitted._index = None
    return made


def _parameters(fitted: Any) -> dict[str, Any]:
    """Return the parameters as JSON has them; None for a factory of one's own and a generator, which it has not."""
    given = dict(fitted.get_params(deep=False))
    if given["network"] != "auto" and given["network"] not in NETWORKS:
        given["network"] = None
    if not isinstance(given["random_state"], (int, np.integer)):
        given["random_state"] = None
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in given.items()}


def _tensor(array: NDArray[Any]) -> torch.Tensor:
    return torch.from_numpy(np.array(array))
