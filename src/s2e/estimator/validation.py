"""What `S2EClassifier` is handed: refused with the reason, or brought into shape."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data

from s2e.errors import InvalidInput
from s2e.estimator.features import Features, Images, TableRows
from s2e.studies.generation_size import AUTO

COUNTS: dict[str, tuple[str | None, ...]] = {
    "n_trials": (None,),
    "epochs": (None,),
    "batch_size": (None,),
    "generation": (AUTO,),
    "restarts": (),
    "sparse_components": (None,),
}
"""Parameters that are numbers of something, and what else they may be."""


def refuse(given: dict[str, Any]) -> None:
    """Refuse arguments of `fit` that are not taken, `sample_weight` with the reason."""
    if given.pop("sample_weight", None) is not None:
        raise InvalidInput(
            "`sample_weight` must be None, but got weights: which samples count, and how much, is what the schedule "
            "decides by their losses, and weights would change the order of these. Repeat or leave out rows instead."
        )
    if given:
        raise TypeError(f"fit() got an unexpected keyword argument {next(iter(given))!r}")


def parameters(estimator: Any) -> None:
    """Refuse parameters that no fit can be made with, all at once; names are refused where they are looked up."""
    problems = []
    for name, others in COUNTS.items():
        value = getattr(estimator, name)
        if not (_is_count(value) or (isinstance(value, (str, type(None))) and value in others)):
            or_else = "".join(f" or {other}" for other in others)
            problems.append(f"`{name}` must be a whole number of at least 1{or_else}, but got {value!r}.")
    rate: Any = estimator.learning_rate
    if not (isinstance(rate, Real) and 0 < float(rate) < float("inf")):
        problems.append(f"`learning_rate` must be positive and finite, but got {rate!r}.")
    share: Any = estimator.validation_share
    if share is not None and not (isinstance(share, Real) and 0 < float(share) < 1):
        problems.append(f"`validation_share` must lie strictly between 0 and 1, or be None, but got {share!r}.")
    if problems:
        raise InvalidInput(" ".join(problems))


def samples(estimator: Any, X: Any, *, learnt: Features | None = None) -> Any:
    """Check samples, and bring them to one of the kinds that `features` knows: any of them, or the one learnt from."""
    reset = learnt is None
    if _is_table(X) or isinstance(learnt, TableRows):
        validate_data(estimator, X, reset=reset, skip_check_array=True)
        if not isinstance(X, pd.DataFrame):
            raise InvalidInput(f"`X` must be a DataFrame, as in training, but got {type(X).__name__}.")
        if len(X) < (2 if reset else 1):
            raise InvalidInput(f"`X` must hold at least {2 if reset else 1} rows, but got {len(X)}.")
        return X
    if isinstance(X, torch.Tensor):
        X = X.detach().cpu().numpy()
    axes = X.ndim if hasattr(X, "ndim") else np.asarray(X).ndim
    if learnt is not None and isinstance(learnt, Images) != (axes > 2):
        wanted = f"images of shape {learnt.shape}" if isinstance(learnt, Images) else "rows of columns"
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
    """Check labels, one for each of so many samples."""
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


def _is_count(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and int(value) >= 1


def _is_table(X: Any) -> bool:
    """Tell whether these are columns of several kinds, which have to be read one by one."""
    return isinstance(X, pd.DataFrame) and not all(
        pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_bool_dtype(dtype) for dtype in X.dtypes
    )
