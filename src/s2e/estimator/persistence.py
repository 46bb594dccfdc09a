"""Saving a fitted `S2EClassifier` to one file and loading it: weights, encoder, classes and audit, without pickle."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from s2e._version import __version__
from s2e.audit import MAX_TRANSITION_CLASSES
from s2e.data.encoders import Encoder, read_encoder, write_encoder
from s2e.data.sparse_projection import SparseEncoder
from s2e.data.table_encoding import TableEncoder
from s2e.engine import LAST_EPOCHS, VALIDATION, Classifier
from s2e.ensembles import PooledModels
from s2e.errors import InvalidInput, UnreadableData
from s2e.estimator.classifier import S2EClassifier
from s2e.files.fields import Fields, shown
from s2e.networks import factory_of, statistics_of
from s2e.runs import (
    Run,
    described,
    normalisation_to_json,
    read_votes,
    restored_networks,
    votes_to_json,
    with_normalisation,
)
from s2e.workflows import LoadedRun, RunInputs
from s2e.workflows import load as load_run

Fitted = TypeVar("Fitted")
"""`S2EClassifier`, or a subclass."""

VERSION = 3
MAX_JOBS = 1024
MAX_BYTES_OF_CLASSES = 2**28
ROUNDING = 1e-6
"""Tolerance of probabilities."""

NETWORK, FEATURES, AUDIT, MODEL = "network", "features.", "audit.", "model."
_NUMBERS = ("validation_accuracy_", "noise_rate_", "estimated_accuracy_")
_COUNTS = ("epochs_", "batch_size_", "n_trials_")
_ARRAYS = (
    "schedule_",
    "label_quality_",
    "label_issues_",
    "noise_rate_interval_",
    "transition_",
    "transition_interval_",
    "estimated_accuracy_interval_",
    "_confidence",
    "_is_issue",
    "_given",
)
_ANNOTATOR_NUMBERS = ["labels", "accuracy", "accuracy_low", "accuracy_high"]


def save(fitted: Any, path: str | PathLike[str]) -> None:
    """Write a fitted classifier atomically."""
    where = Path(path)
    if isinstance(fitted._encoder, RunInputs):
        raise InvalidInput("a classifier of a run must be loaded from its directory; it is stored there already.")
    features = write_encoder(fitted._encoder)
    tensors = {FEATURES + name: _tensor(array) for name, array in features.arrays.items()}
    tensors |= {AUDIT + name: _tensor(getattr(fitted, name)) for name in _ARRAYS}
    tensors[AUDIT + "doubtful"] = _tensor(np.isin(fitted.classes_, fitted.doubtful_classes_))
    tensors[AUDIT + "suggested"] = _tensor(np.searchsorted(fitted.classes_, fitted.suggested_labels_))
    if fitted.annotators_ is not None:
        tensors[AUDIT + "annotators"] = _tensor(fitted.annotators_[_ANNOTATOR_NUMBERS].to_numpy(dtype=np.float64))
    for which, module in enumerate(fitted._classifier.networks):
        tensors |= {f"{NETWORK}{which}.{name}": tensor for name, tensor in module.state_dict().items()}
    model = _written_model(fitted, tensors)
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
        **votes_to_json(fitted._classifier.weights),
        **normalisation_to_json(statistics_of(fitted._classifier.networks[0])),
        "network_": fitted.network_,
        "validation_": fitted.validation_,
        "audit_message_": fitted.audit_message_,
        "annotators": [] if fitted.annotators_ is None else fitted.annotators_["annotator"].tolist(),
        **({} if model is None else {"model": model}),
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
    if where.is_dir():
        made = cls()
        restore_from_run(made, load_run(where))
        return made
    if not where.is_file():
        raise UnreadableData(f"{str(where)!r} must be a file written by `save`, but it does not exist.")
    with _naming(where):
        tensors, metadata = Run(where.parent).read_weights(where.name)
        about = described(metadata, "s2e_classifier", where)
        if about.integer("version") != VERSION:
            raise about.error("version", str(VERSION), about.values["version"])
        made = cls(**_read_parameters(about))
    fitted: Any = made
    if network is not None:
        fitted.network = network
    elif fitted.network is None:
        raise InvalidInput("`network` must be given: this classifier was fitted with a factory.")
    with _naming(where):
        _restore(fitted, about, tensors)
    return made


def restore_from_run(fitted: Any, run: LoadedRun) -> None:
    """Set the parameters and attributes of a fitted classifier from a run.

    The rows of the audit are those of the run's data, in their order; IDs are the index of `find_label_issues`.
    """
    result, options = Fields(run.result, run.path / "result.json"), run.config["options"]
    methods, audited = result.rows("methods"), run.audited
    if not methods:
        raise result.error("methods", "a list with a row for each training", [])
    names = {"n_trials": "trials", "random_state": "seed"}
    for name in fitted.get_params(deep=False):
        option = names.get(name, name)
        if option in options:
            setattr(fitted, name, options[option])
    classifier = run.classifier
    fitted._encoder, fitted._classifier = classifier.inputs, classifier.voting.networks
    fitted.classes_ = classifier.classes_
    fitted.schedule_, fitted.epochs_ = run.schedule, len(run.schedule)
    fitted.network_ = Fields(options, run.path / "config.json").text("network")
    fitted.batch_size_ = Fields(options, run.path / "config.json").integer("batch_size", least=1)
    fitted.validation_ = "clean" if result.text("validation") == "clean" else "noisy"
    fitted.validation_accuracy_ = methods[-1].fields(VALIDATION).share(f"last_{LAST_EPOCHS}_epochs")
    fitted.status_ = result.text("status")
    if "search" in result:
        fitted.n_trials_, fitted.study_ = result.fields("search").integer("trials"), run.study
    order = np.argsort(audited.rows)
    fitted._given, fitted._index = audited.labels[order], pd.Index(np.array(audited.ids, dtype=object)[order])
    fitted._store_audit(audited.audit, order)
    fitted.annotators_ = None
    fitted._store_final(classifier.voting.models)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Begin the message of an error in the body with the file."""
    try:
        yield
    except (InvalidInput, UnreadableData) as problem:
        reason = str(problem).removeprefix(f"{str(path)!r} ")
        raise UnreadableData(f"{str(path)!r} is not a saved classifier: {reason}") from problem


def _read_parameters(about: Fields) -> dict[str, Any]:
    """Return the parameters of the estimator; `fit` checks their values."""
    written = about.fields("parameters")
    known = inspect.signature(S2EClassifier.__init__).parameters
    for name, value in written.values.items():
        if name not in known or isinstance(value, (dict, list)):
            raise about.error("parameters", "the parameters of S2EClassifier", written.values)
    if written.values.get("n_jobs") is not None:  # also used by `predict`
        written.integer("n_jobs", least=-MAX_JOBS, most=MAX_JOBS)
        if written.values["n_jobs"] == 0:
            raise about.error("parameters.n_jobs", "an integer other than 0", 0)
    if written.values.get("network") is not None:
        written.text("network")
    return dict(written.values)


def _restore(fitted: Any, about: Fields, tensors: Mapping[str, torch.Tensor]) -> None:
    """Set the attributes of a fitted classifier."""
    fitted.classes_ = _read_classes(about)
    names, shape = tuple(map(str, fitted.classes_.tolist())), about.shape("sample_shape")
    arrays = {name: _array(name, tensor) for name, tensor in tensors.items() if not name.startswith(NETWORK)}
    features = {key.removeprefix(FEATURES): array for key, array in arrays.items() if key.startswith(FEATURES)}
    fitted._encoder = read_encoder(about.fields("features"), features)
    fitted.network_ = about.text("network_") if isinstance(fitted.network, str) else None
    factory = with_normalisation(factory_of(fitted.network_ or fitted.network, shape, len(names)), about)
    modules = restored_networks(
        factory,
        {name: tensor for name, tensor in tensors.items() if name.startswith(NETWORK)},
        NETWORK,
        about.integer("networks", least=1),
        may_be_large=not isinstance(fitted.network, str),  # a factory that the caller passes
    )
    fitted._classifier = Classifier(modules, names, shape, read_votes(about, len(modules)))
    for name in _NUMBERS:
        setattr(fitted, name, about.number(name, nan=True))
    for name in _COUNTS:
        setattr(fitted, name, about.integer(name))
    fitted.validation_ = about.text("validation_")
    fitted.audit_message_ = about.text("audit_message_")
    audit = {key.removeprefix(AUDIT): array for key, array in arrays.items() if key.startswith(AUDIT)}
    _check_audit(audit, len(names))
    for name in _ARRAYS:
        setattr(fitted, name, audit[name])
    fitted.annotators_ = _read_annotators(about, audit)
    fitted.doubtful_classes_ = fitted.classes_[audit["doubtful"]]
    fitted.suggested_labels_ = fitted.classes_[audit["suggested"]]
    if about.values.get("columns") is not None:
        fitted.n_features_in_ = about.integer("columns", least=1)
        expected = _columns_of(fitted._encoder, shape)
        if expected is not None and fitted.n_features_in_ != expected:
            raise about.error("columns", f"{expected}, as in the encoder", fitted.n_features_in_)
    if about.values.get("names"):
        given = about.texts("names")
        _check_names(about, given, fitted._encoder)
        fitted.feature_names_in_ = np.array(given, dtype=object)
    fitted._index = None
    fitted._store_final(_read_model(about, arrays, len(names), _columns_of(fitted._encoder, shape), fitted._encoder))


def _written_model(fitted: Any, tensors: dict[str, torch.Tensor]) -> dict[str, Any] | None:
    """Return the description of the models of a pool and add the data they were fitted to, to fit them again.

    The state of an estimator of scikit-learn can only be written by pickle, so one that the caller passed is refused.
    """
    model = fitted._model
    if model is None:
        return None
    if not isinstance(model, PooledModels):
        raise InvalidInput(
            f"a classifier to save must predict with networks or with models that it chose itself, but its final "
            f"estimator is a {model.name} that was passed; write it with joblib or skops."
        )
    tensors |= {MODEL + name: _tensor(array) for name, array in model.arrays().items()}
    return model.about()


def _columns_of(encoder: Encoder, shape: tuple[int, ...]) -> int | None:
    """Return the number of columns of the samples that an encoder takes; None for images.

    Args:
        encoder: the encoder.
        shape: shape of the inputs of the networks, whose weights are in the file.
    """
    if isinstance(encoder, TableEncoder):
        return len(encoder.names)
    if isinstance(encoder, SparseEncoder):
        return shape[0] if encoder.directions is None else int(encoder.directions.shape[1])
    return None


def _read_model(
    about: Fields, arrays: Mapping[str, NDArray[Any]], classes: int, columns: int | None, encoder: Encoder
) -> PooledModels | None:
    """Return the models of a pool, fitted again to the data they were fitted to; None where there are none.

    The number of columns of sparse samples, or of the terms of text, is compared with that of the encoder first: it
    alone says how much memory the models need.
    """
    if "model" not in about:
        return None
    written = about.fields("model").values.get("columns")
    if isinstance(encoder, TableEncoder):
        columns = sum(column.terms for column in encoder.texts)
    if written is not None and written != columns:
        raise about.error("model.columns", f"{columns}, as in the encoder", written)
    own = {key.removeprefix(MODEL): array for key, array in arrays.items() if key.startswith(MODEL)}
    return PooledModels.from_file(about.fields("model"), own, classes)


def _check_names(about: Fields, given: tuple[str, ...], encoder: Encoder) -> None:
    """Raise if the names of the columns contradict the encoder."""
    names = [name.strip() for name in given]
    same = len(names) == about.values.get("columns")
    if isinstance(encoder, TableEncoder):
        same &= tuple(names) == encoder.names
    if not same:
        raise about.error("names", "the names of the encoded columns", list(given))


def _read_classes(about: Fields) -> NDArray[Any]:
    """Return the classes (C,) in the type of the labels."""
    classes, written = about.values.get("classes"), about.text("classes_type")
    if (
        not isinstance(classes, list)
        or not all(isinstance(each, (str, int, float)) for each in classes)
        or not 2 <= len(set(classes)) == len(classes)
    ):
        raise about.error("classes", "two or more different texts or numbers", classes)
    try:
        dtype = np.dtype(written)
        if dtype.kind not in "biufUO" or dtype.itemsize * len(classes) > MAX_BYTES_OF_CLASSES:
            raise ValueError("another type")
        return np.array(classes, dtype=dtype)
    except (TypeError, ValueError, OverflowError, SyntaxError) as problem:
        raise about.error("classes_type", "the type of the classes", written) from problem


def _check_audit(audit: Mapping[str, NDArray[Any]], classes: int) -> None:
    """Raise unless the arrays of the audit are there, with their types, shapes and ranges."""
    samples = audit["_given"].size if "_given" in audit else -1
    rows, label = (samples,), (0, classes - 1)
    size = classes if classes <= MAX_TRANSITION_CLASSES else 0
    expected: dict[str, tuple[str, tuple[int, ...] | None, tuple[int, int] | None]] = {
        "schedule_": ("f", None, (0, 1)),
        "label_quality_": ("f", rows, (0, 1)),
        "label_issues_": ("i", None, (0, samples - 1)),
        "noise_rate_interval_": ("f", (2,), (0, 1)),
        "transition_": ("f", (size, size), (0, 1)),
        "transition_interval_": ("f", (2, size, size), (0, 1)),
        "estimated_accuracy_interval_": ("f", (2,), None),
        "_confidence": ("f", rows, (0, 1)),
        "_is_issue": ("b", rows, None),
        "_given": ("i", rows, label),
        "doubtful": ("b", (classes,), None),
        "suggested": ("i", rows, label),
    }
    for name, (kind, shape, bounds) in expected.items():
        if name not in audit:
            raise InvalidInput(f"`{name}` is missing.")
        array = audit[name]
        if array.dtype.kind != kind or (array.ndim != 1 if shape is None else array.shape != shape):
            raise InvalidInput(f"`{name}` must not be {array.dtype} of shape {array.shape}.")
        if bounds and array.size and not ((array >= bounds[0] - ROUNDING) & (array <= bounds[1] + ROUNDING)).all():
            raise InvalidInput(f"`{name}` must lie in {bounds[0]}..{bounds[1]}, but does not.")


def _read_annotators(about: Fields, audit: Mapping[str, NDArray[Any]]) -> pd.DataFrame | None:
    """Return the table of the annotators; None if there are none."""
    names = about.texts("annotators") if about.values.get("annotators") else ()
    if not names:
        return None
    numbers = audit.get("annotators", np.empty(0))
    if numbers.dtype.kind != "f" or numbers.shape != (len(names), len(_ANNOTATOR_NUMBERS)):
        raise InvalidInput(f"`annotators` must not be {numbers.dtype} of shape {numbers.shape}.")
    table = pd.DataFrame(numbers, columns=_ANNOTATOR_NUMBERS)
    table.insert(0, "annotator", names)
    return table.astype({"labels": np.int64})


def _parameters(fitted: Any) -> dict[str, Any]:
    """Return the parameters as JSON holds them; None for objects (factory, method, space, sampler, generator)."""
    given = dict(fitted.get_params(deep=False))
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in given.items()}
    return {name: value if isinstance(value, (str, int, float)) else None for name, value in plain.items()}


def _array(name: str, tensor: torch.Tensor) -> NDArray[Any]:
    try:
        return tensor.numpy()
    except TypeError as problem:
        raise InvalidInput(f"{shown(name)} must be of a type that NumPy has, but got {tensor.dtype}.") from problem


def _tensor(array: NDArray[Any]) -> torch.Tensor:
    return torch.from_numpy(np.array(array))
