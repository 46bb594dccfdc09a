"""Validation of the parameters, samples and labels of `S2EClassifier`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data

from s2e.data.table_encoding import TableEncoder
from s2e.errors import InvalidInput, raise_all
from s2e.estimator.features import Encoder, ImageEncoder
from s2e.specs import AUTO, SearchSpec, count_problem, rate_problem, share_problem, to_seconds
from s2e.studies import DEFAULT_GENERATIONS_OF_SHORT_SEARCHES, SIZES


def refuse(given: dict[str, Any]) -> None:
    """Refuse arguments of `fit` that are not accepted, `sample_weight` with the reason."""
    if given.pop("sample_weight", None) is not None:
        raise InvalidInput(
            "`sample_weight` must be None, but got weights: the schedule selects samples by their losses, and weights "
            "would change the order of these. Repeat or leave out rows instead."
        )
    if given:
        raise TypeError(f"fit() got an unexpected keyword argument {next(iter(given))!r}")


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
        size = min(size, DEFAULT_GENERATIONS_OF_SHORT_SEARCHES * SIZES[0] if trials is None else trials)
    return SearchSpec(estimator.space, estimator.sampler, trials, size, budget)


def samples(estimator: Any, X: Any, *, encoder: Encoder | None = None) -> Any:
    """Check samples, and convert them to a type that the encoders take: any type, or that of the given encoder."""
    reset = encoder is None
    if _is_table(X) or isinstance(encoder, TableEncoder):
        validate_data(estimator, X, reset=reset, skip_check_array=True)
        if not isinstance(X, pd.DataFrame):
            raise InvalidInput(f"`X` must be a DataFrame, as in training, but got {type(X).__name__}.")
        if len(X) < (2 if reset else 1):
            raise InvalidInput(f"`X` must hold at least {2 if reset else 1} rows, but got {len(X)}.")
        return X
    if isinstance(X, torch.Tensor):
        X = X.detach().cpu().numpy()
    axes = X.ndim if hasattr(X, "ndim") else np.asarray(X).ndim
    if encoder is not None and isinstance(encoder, ImageEncoder) != (axes > 2):
        wanted = f"images of shape {encoder.shape}" if isinstance(encoder, ImageEncoder) else "rows of columns"
        raise InvalidInput(f"`X` must hold {wanted}, as in training, but got {axes} axes.")
    pixels = axes > 2 and getattr(X, "dtype", None) == np.uint8
    return validate_data(
        estimator,
        X,
        reset=reset,
        accept_sparse="csr",
        dtype=np.uint8 if pixels else (np.float64, np.float32),
        ensure_2d=axes < 3,
        allow_nd=True,
        ensure_all_finite=True if sparse.issparse(X) or axes > 2 else "allow-nan",
        ensure_min_samples=2 if reset else 1,
    )


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


def _is_table(X: Any) -> bool:
    """Return whether these are columns of several types, which are encoded one by one."""
    return isinstance(X, pd.DataFrame) and not all(
        pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_bool_dtype(dtype) for dtype in X.dtypes
    )
