"""Validation of the parameters, samples and labels of `S2EClassifier`."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import assert_all_finite, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data

from s2e.data.aggregation import AggregatedLabels, aggregate, labelled_only
from s2e.data.annotations import wide as annotations_of_columns
from s2e.data.encoders import Encoder
from s2e.data.image_encoding import ImageEncoder
from s2e.data.reviewed import Decision, read_decisions
from s2e.data.table_encoding import TableEncoder
from s2e.errors import InvalidInput, raise_all, unknown_name
from s2e.specs import AUTO, SCORES, ClassifierSpec, SearchSpec, count_problem, rate_problem, share_problem, to_seconds
from s2e.studies import DEFAULT_GENERATIONS, SIZES


def refuse(given: dict[str, Any]) -> None:
    """Refuse arguments of `fit` that are not accepted, `sample_weight` with the reason."""
    if given.pop("sample_weight", None) is not None:
        raise InvalidInput(
            "`sample_weight` must be None, but got weights: the schedule selects samples by their losses, and weights "
            "would change the order of these. Repeat or leave out rows instead."
        )
    if given:
        raise TypeError(f"fit() got an unexpected keyword argument {next(iter(given))!r}")


def decisions(reviewed: Any) -> list[Decision]:
    """Return reviewed labels as decisions: labels by position, one file, or a sequence of files."""
    if reviewed is None:
        return []
    if isinstance(reviewed, (str, PathLike)):
        return read_decisions([str(reviewed)])
    if not isinstance(reviewed, (Mapping, pd.Series)):
        if isinstance(reviewed, (list, tuple)) and all(isinstance(each, (str, PathLike)) for each in reviewed):
            return read_decisions([str(each) for each in reviewed])
        raise InvalidInput(
            "`reviewed` must be a dictionary or Series of labels by position, or files of decisions, but got "
            f"{type(reviewed).__name__}."
        )
    positions = list(reviewed.keys())
    if wrong := [each for each in positions if not isinstance(each, (int, np.integer)) or each < 0]:
        raise InvalidInput(f"positions in `reviewed` must be integers of at least 0, but got {wrong[0]!r}.")
    return [
        Decision(str(label), f"position {position} of `reviewed`", int(position))
        for position, label in reviewed.items()
    ]


def search_spec(estimator: Any) -> SearchSpec:
    """Return how the schedule is searched; all problems of the parameters are reported at once.

    Names are checked by `check_choices`.
    """
    trials, size = estimator.n_trials, estimator.generation_size
    problems = (
        count_problem("n_trials", trials, None),
        count_problem("epochs", estimator.epochs, None),
        count_problem("batch_size", estimator.batch_size, None),
        count_problem("generation_size", size, AUTO),
        count_problem("restarts", estimator.restarts),
        count_problem("sparse_components", estimator.sparse_components, None),
        rate_problem("learning_rate", estimator.learning_rate),
        share_problem("validation_share", estimator.validation_share),
    )
    raise_all(problems)
    budget = to_seconds("time_budget", estimator.time_budget)
    if size != AUTO:  # no generation needs more points than there are trials
        size = min(size, DEFAULT_GENERATIONS * SIZES[0] if trials is None else trials)
    return SearchSpec(estimator.space, estimator.sampler, trials, size, budget)


def classifier_spec(estimator: Any) -> ClassifierSpec:
    """Return which of the trained networks make the classifier."""
    names = [name.replace("-", "_") for name in SCORES]  # as in scikit-learn
    if estimator.scoring not in names:
        raise unknown_name("scoring", str(estimator.scoring), names)
    models, score = isinstance(estimator.final_estimator, str), estimator.scoring.replace("_", "-")
    return ClassifierSpec(estimator.ensemble, estimator.distil, models, score)


def seed(random_state: Any) -> int:
    """Return the seed of a fit: an int itself, as the command line takes it, or one that a generator draws."""
    generator = check_random_state(random_state)  # refuses other objects
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(generator.randint(np.iinfo(np.int32).max))


def samples(estimator: Any, X: Any, *, encoder: Encoder | None = None) -> Any:
    """Check samples, and convert them to what the encoders take: a table, a sparse matrix, or an array of images.

    Rows of numbers become a table whose columns have the names of the training table, if there is one. Sparse samples
    are accepted after dense ones, and dense after sparse ones.
    """
    reset = encoder is None
    if isinstance(X, pd.DataFrame):
        return _table(estimator, X, encoder)
    if isinstance(X, torch.Tensor):
        X = X.detach().cpu().numpy()
    axes = X.ndim if hasattr(X, "ndim") else np.asarray(X).ndim
    if encoder is not None and isinstance(encoder, ImageEncoder) != (axes > 2):
        wanted = f"images of shape {encoder.shape}" if isinstance(encoder, ImageEncoder) else "rows of columns"
        raise InvalidInput(f"`X` must hold {wanted}, as in training, but got {axes} axes.")
    pixels = axes > 2 and getattr(X, "dtype", None) == np.uint8
    checked = validate_data(
        estimator,
        X,
        reset=reset,
        accept_sparse="csr",
        dtype=np.uint8 if pixels else ((np.float64, np.float32) if axes > 2 or sparse.issparse(X) else "numeric"),
        ensure_2d=axes < 3,
        allow_nd=True,
        ensure_all_finite=sparse.issparse(X) or axes > 2,  # columns may have missing and infinite values
        ensure_min_samples=2 if reset else 1,
    )
    if axes > 2 or (sparse.issparse(checked) and not isinstance(encoder, TableEncoder)):
        return checked
    if encoder is not None and not isinstance(encoder, TableEncoder):
        return sparse.csr_matrix(checked)
    dense = checked.toarray() if sparse.issparse(checked) else checked
    return TableEncoder.frame(dense, None if encoder is None else encoder.names)


def _table(estimator: Any, X: pd.DataFrame, encoder: Encoder | None) -> Any:
    """Check a table; after training on other samples, its columns must be numbers."""
    validate_data(estimator, X, reset=encoder is None, skip_check_array=True)
    fewest = 2 if encoder is None else 1
    if len(X) < fewest:
        raise InvalidInput(f"`X` must hold at least {fewest} rows, but got {len(X)}.")
    if encoder is None or isinstance(encoder, TableEncoder):
        return X
    if isinstance(encoder, ImageEncoder):
        raise InvalidInput(f"`X` must hold images of shape {encoder.shape}, as in training, but got a table.")
    return sparse.csr_matrix(validate_data(estimator, X, reset=False, dtype=(np.float64, np.float32)))


def labels(estimator: Any, y: Any, samples: int) -> NDArray[Any]:
    """Check labels, one for each sample."""
    if y is None:
        raise InvalidInput(f"{type(estimator).__name__} requires y to be passed, but the target y is None.")
    given = column_or_1d(y, warn=True)
    assert_all_finite(given, input_name="y")
    if len(given) != samples:
        raise InvalidInput(f"`y` must hold one label for each of the {samples} samples, but got {len(given)}.")
    if missing := int(pd.isna(given).sum()):
        raise InvalidInput(
            f"`y` must hold a label for every sample, but {missing} are missing (None); leave these samples out."
        )
    check_classification_targets(given)
    return np.asarray(given)


def consensus(y: Any, samples: int) -> AggregatedLabels | None:
    """Return the consensus of several annotators, whose labels are the columns of `y`; None for one label per sample.

    Its items are the positions of the samples that have a label.
    """
    array = np.array(y, dtype=object) if isinstance(y, (list, tuple)) else y
    if sparse.issparse(array) or getattr(array, "ndim", 0) != 2 or array.shape[1] < 2:
        return None
    frame = pd.DataFrame(array if isinstance(array, pd.DataFrame) else np.asarray(array))
    if len(frame) != samples:
        raise InvalidInput(f"`y` must hold labels for each of the {samples} samples, but got {len(frame)} rows.")
    numeric = frame.to_numpy()
    if numeric.dtype.kind in "biuf" and np.isin(numeric, (0, 1)).all() and (numeric.sum(axis=1) == 1).all():
        raise InvalidInput(
            "`y` must hold labels, one for each sample or a column for each annotator, but got one-hot rows; pass "
            "y.argmax(axis=1)."
        )
    return aggregate(labelled_only(annotations_of_columns(frame.reset_index(drop=True), name="y")))


def rows_of(samples: Any, rows: NDArray[np.int64]) -> Any:
    """Return some of the samples, of any type that the encoders take."""
    return samples.iloc[rows] if isinstance(samples, pd.DataFrame) else samples[rows]
