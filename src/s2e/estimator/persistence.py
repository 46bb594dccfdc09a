"""Saving a fitted `S2EClassifier` to one file and loading it: weights, encoder, classes and audit, without pickle."""

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
from s2e.engine import Classifier
from s2e.errors import InvalidInput, UnreadableData
from s2e.estimator.features import read_encoder, write_encoder
from s2e.networks import factory_of
from s2e.runs import Run, with_weights

Fitted = TypeVar("Fitted")
"""`S2EClassifier`, or a subclass."""

VERSION = 1
NETWORK, FEATURES, AUDIT = "network", "features.", "audit."
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
    """Write a fitted classifier atomically."""
    where = Path(path)
    features = write_encoder(fitted._encoder)
    tensors = {FEATURES + name: _tensor(array) for name, array in features.arrays.items()}
    tensors |= {AUDIT + name: _tensor(getattr(fitted, name)) for name in _ARRAYS}
    tensors[AUDIT + "doubtful"] = _tensor(np.isin(fitted.classes_, fitted.doubtful_classes_))
    tensors[AUDIT + "suggested"] = _tensor(np.searchsorted(fitted.classes_, fitted.suggested_labels_))
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
        raise InvalidInput(f"classes must be strings, numbers or booleans to be written, but {problem}.") from None
    if not where.parent.is_dir():
        raise InvalidInput(f"`path` must be in a directory that exists, but {str(where.parent)!r} does not.")
    Run(where.parent).write_weights(where.name, tensors, {"s2e_classifier": text})


def load(cls: Callable[..., Fitted], path: str | PathLike[str], network: Callable[..., Any] | None) -> Fitted:
    """Read a fitted classifier; `network` is its factory if it is not a reference network."""
    where = Path(path)
    if not where.is_file():
        raise UnreadableData(f"{str(where)!r} must be a file written by `save`, but it does not exist.")
    try:
        tensors, metadata = Run(where.parent).read_weights(where.name)
        about = json.loads(metadata["s2e_classifier"])
        if about["version"] != VERSION:
            raise UnreadableData(f"{str(where)!r} has version {about['version']}, but only {VERSION} can be read.")
        made = cls(**about["parameters"])
        fitted: Any = made
        if network is not None:
            fitted.network = network
        elif fitted.network is None:
            raise InvalidInput("`network` must be given: this classifier was fitted with a factory.")
        fitted.classes_ = np.array(about["classes"], dtype=np.dtype(about["classes_type"]))
        arrays = {
            key.removeprefix(FEATURES): tensor.numpy() for key, tensor in tensors.items() if key.startswith(FEATURES)
        }
        fitted._encoder = read_encoder(about["features"], arrays)
        shape = tuple(about["sample_shape"])
        names = tuple(map(str, about["classes"]))
        factory = factory_of(fitted.network, shape, len(names))
        modules = [with_weights(factory(), tensors, f"{NETWORK}{which}.") for which in range(about["networks"])]
        fitted._classifier = Classifier(tuple(modules), names, shape)
        for name in (*_NUMBERS, *_COUNTS, "validation_"):
            setattr(fitted, name, about[name])
        for name in _ARRAYS:
            setattr(fitted, name, tensors[AUDIT + name].numpy())
        fitted.doubtful_classes_ = fitted.classes_[tensors[AUDIT + "doubtful"].numpy()]
        fitted.suggested_labels_ = fitted.classes_[tensors[AUDIT + "suggested"].numpy()]
    except (UnreadableData, KeyError, TypeError, RuntimeError, AttributeError) as problem:
        raise UnreadableData(f"{str(where)!r} is not a saved classifier: {str(problem).rstrip('.')}.") from problem
    if about["columns"] is not None:
        fitted.n_features_in_ = about["columns"]
    if about["names"]:
        fitted.feature_names_in_ = np.array(about["names"], dtype=object)
    fitted._index = None
    return made


def _parameters(fitted: Any) -> dict[str, Any]:
    """Return the parameters as JSON holds them; None for objects (factory, method, space, sampler, generator)."""
    given = dict(fitted.get_params(deep=False))
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in given.items()}
    return {name: value if isinstance(value, (str, int, float)) else None for name, value in plain.items()}


def _tensor(array: NDArray[Any]) -> torch.Tensor:
    return torch.from_numpy(np.array(array))
