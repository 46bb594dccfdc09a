"""Estimators of scikit-learn: weights of samples, probabilities of classes, the samples they take.

Letters: N samples, C classes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import has_fit_parameter

from s2e.data import LabelledData
from s2e.data.model_samples import concatenated


def weight_parameter(estimator: Any) -> str | None:
    """Return the name under which `fit` takes weights of samples; a pipeline passes them to its last step."""
    if isinstance(estimator, Pipeline):
        name, last = estimator.steps[-1]
        inner = weight_parameter(last)
        return None if inner is None else f"{name}__{inner}"
    return "sample_weight" if has_fit_parameter(estimator, "sample_weight") else None


def probabilities_of(estimator: Any, samples: Any, classes: int) -> NDArray[np.float64]:
    """Return the probability of every class, (N, C), of an estimator fitted to labels in [0, C).

    The decisions of a model without probabilities are turned into some by a softmax, which keeps their order.
    """
    found = np.zeros((samples.shape[0], classes))
    if hasattr(estimator, "predict_proba"):
        found[:, np.asarray(estimator.classes_, dtype=np.int64)] = estimator.predict_proba(samples)
    elif hasattr(estimator, "decision_function"):
        decisions = estimator.decision_function(samples)
        if decisions.ndim == 1:  # of the second of two classes
            decisions = np.stack([-decisions / 2, decisions / 2], axis=1)
        found[:, np.asarray(estimator.classes_, dtype=np.int64)] = softmax(decisions, axis=1)
    else:
        found[np.arange(len(found)), np.asarray(estimator.predict(samples), dtype=np.int64)] = 1.0
    return found


def take(samples: Any, rows: NDArray[np.int64]) -> Any:
    """Return some rows of samples."""
    return samples.iloc[rows] if hasattr(samples, "iloc") else samples[rows]


class PartOfSamples(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """The first step of a model that takes one part of `TextSamples`.

    Args:
        part: name of the attribute.
    """

    def __init__(self, part: str = "inputs") -> None:
        self.part = part

    def fit(self, X: Any, y: Any = None) -> PartOfSamples:  # noqa: ARG002
        """Return self: there is nothing to fit."""
        return self

    def transform(self, X: Any) -> Any:
        """Return the part."""
        return getattr(X, self.part)

    def __sklearn_is_fitted__(self) -> bool:
        return True


def model_samples(*parts: LabelledData) -> Any:
    """Return the samples of some parts, one after the other, as models take them."""
    given = [part.model_samples for part in parts if part.model_samples is not None]
    if len(given) == len(parts):
        return concatenated(given)
    return flat(np.concatenate([part.inputs for part in parts]))


def flat(samples: Any) -> Any:
    """Return samples as models take them: rows of numbers, pixels from 0 to 1."""
    if not isinstance(samples, np.ndarray):
        return samples
    rows = samples.reshape(len(samples), -1)
    return rows.astype(np.float32) / 255 if rows.dtype == np.uint8 else rows
