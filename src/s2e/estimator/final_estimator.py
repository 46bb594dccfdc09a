"""Clean, then train any model: an estimator of scikit-learn trained on labels that the audit has cleaned.

Every model is trained on the training part with each cleaning (`s2e.workflows.cleaning`). The model and the cleaning
with the best score on validation are chosen. Where the validation part was held out of the samples, the model is fitted
again to all of them.

Letters: N samples, C classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import softmax
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import has_fit_parameter

from s2e.engine import Score
from s2e.ensembles import is_better_beyond_noise
from s2e.errors import InvalidType
from s2e.specs import AUTO
from s2e.workflows.cleaning import CLEANINGS, AuditedLabels

NETWORKS = "networks"
"""Name of the ensemble of networks among the models of "auto"."""

MOST_SAMPLES_OF_KERNELS = 5000
"""Samples up to which a support vector machine is one of the models; extra trees with more."""

MOST_COLUMNS_OF_BOOSTING = 100
"""Columns up to which boosting is one of the models; with more of them it is slow and seldom better."""

MOST_NUMBERS = 2**24
"""Samples times columns up to which "auto" trains models beside the networks."""

ERRORS = 2.0
"""Standard errors by which networks must be better than the best model."""

FOLDS = 5
"""Parts of the samples in cross-validation."""

LEAST_PROBABILITY = 1e-4
"""Added to probabilities: a model gives none to a class that it was not trained on."""

FEWEST_WEIGHT = 1e-3
"""Rows of smaller weights are left out: some models fail where all weights of a class are tiny."""


@dataclass(frozen=True, eq=False)
class FinalModel:
    """A fitted model.

    Attributes:
        name: its name among the models, or that of its class.
        cleaning: one of `CLEANINGS`.
        estimator: the fitted estimator.
        classes: C.
        score: on validation, before it was fitted to all samples.
        samples, labels, weights: what it was fitted to, (N, ...), (N,) and (N,).
    """

    name: str
    cleaning: str
    estimator: Any
    classes: int
    score: float
    samples: Any
    labels: NDArray[np.int64]
    weights: NDArray[np.float64]

    def probabilities(self, samples: Any) -> NDArray[np.float64]:
        """Return the probability of every class, (N, C)."""
        return probabilities_of(self.estimator, samples, self.classes)


def models_for(samples: Any) -> dict[str, Any]:
    """Return the models among which "auto" chooses, by name, for encoded or sparse samples (N, F).

    Their seeds are fixed, so that a model can be fitted again when a classifier is loaded.
    """
    from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import SVC

    logistic = LogisticRegression(max_iter=2000)
    if sparse.issparse(samples):
        return {"logistic-regression": logistic}
    kernels = SVC(break_ties=True)  # predicts the largest decision
    trees = ExtraTreesClassifier(300, min_samples_leaf=2, random_state=0)
    boosting = HistGradientBoostingClassifier(max_iter=60, max_leaf_nodes=15, early_stopping=False, random_state=0)
    count, columns = samples.shape
    if count * columns > MOST_NUMBERS:
        return {}
    return {
        "logistic-regression": logistic,
        **({"boosting": boosting} if columns <= MOST_COLUMNS_OF_BOOSTING else {}),
        **({"support-vectors": kernels} if count <= MOST_SAMPLES_OF_KERNELS else {"extra-trees": trees}),
    }


def check_final_estimator(given: Any) -> None:
    """Refuse what is neither None, "auto" nor a classifier of scikit-learn."""
    if given is None or (isinstance(given, str) and given == AUTO):
        return
    missing = [name for name in ("fit", "predict", "get_params") if not hasattr(given, name)]
    if missing or isinstance(given, type):
        got = f"the class {given.__name__}" if isinstance(given, type) else repr(given)
        lacking = f" without {', '.join(missing)}" if missing and not isinstance(given, (str, type)) else ""
        raise InvalidType(
            f'`final_estimator` must be None, "auto" or a classifier of scikit-learn, but got {got}{lacking}.'
        )


def fitted(estimator: Any, samples: Any, labels: NDArray[np.int64], weights: NDArray[np.float64]) -> Any:
    """Fit a copy of an estimator to the rows with a weight; without `sample_weight`, all of these count the same."""
    rows = np.flatnonzero(weights >= FEWEST_WEIGHT)
    name = weight_parameter(estimator)
    more = {} if name is None else {name: weights[rows]}
    return clone(estimator).fit(take(samples, rows), labels[rows], **more)


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


def out_of_fold(
    estimator: Any, samples: Any, labels: NDArray[np.int64], classes: int, generator: np.random.Generator
) -> NDArray[np.float64]:
    """Return the probabilities of every sample by a model that was not trained on it, (N, C), all of them positive.

    Args:
        estimator: the model, a copy of which is fitted for each of `FOLDS` parts to the other parts.
        samples: (N, ...) indexable by rows.
        labels: (N,) in [0, C), by which the parts are stratified.
        classes: C.
        generator: draws the parts.
    """
    drawn = generator.permutation(len(labels))
    drawn = drawn[np.argsort(labels[drawn], kind="stable")]  # by label, at random within a label
    fold = np.empty(len(labels), dtype=np.int64)
    fold[drawn] = np.arange(len(labels)) % FOLDS
    found = np.zeros((len(labels), classes))
    for held in range(FOLDS):
        train, rows = np.flatnonzero(fold != held), np.flatnonzero(fold == held)
        if len(rows):
            model = fitted(estimator, take(samples, train), labels[train], np.ones(len(train)))
            found[rows] = probabilities_of(model, take(samples, rows), classes)
    return np.asarray((found + LEAST_PROBABILITY) / (1 + classes * LEAST_PROBABILITY))


def choose_model(
    models: Mapping[str, Any],
    samples: Any,
    audited: AuditedLabels,
    train: NDArray[np.int64],
    valid: tuple[Any, NDArray[np.int64]],
    classes: int,
    score: Score,
    networks: NDArray[np.float64] | None = None,
) -> FinalModel | None:
    """Fit every model with every cleaning, and return the best on validation, fitted again to all samples.

    The networks were chosen on the validation part and the models were not, so networks must be better beyond noise.

    Args:
        models: estimators by name.
        samples: (N, ...) indexable by rows: an array, a sparse matrix or a DataFrame.
        audited: their labels.
        train: rows of the training part.
        valid: the validation part, with the labels that schedules were compared on; not among the rows `train`.
        classes: C.
        score: what is maximised.
        networks: (N, C) probabilities of the networks on the validation part, if they may be chosen instead.

    Returns:
        None if the networks are better, or if no model can be fitted: no cleaning leaves two classes.
    """
    truth = torch.from_numpy(valid[1])
    part, own = take(samples, train), audited.take(train)
    best: tuple[float, str, str, NDArray[np.float64]] | None = None
    for name, estimator in models.items():
        for cleaning in _different(estimator):
            labels, weights = CLEANINGS[cleaning](own)
            if len(np.unique(labels[weights >= FEWEST_WEIGHT])) < 2:
                continue
            probabilities = probabilities_of(fitted(estimator, part, labels, weights), valid[0], classes)
            reached = float(score(torch.from_numpy(probabilities)[None], truth)[0])
            if best is None or reached > best[0]:
                best = reached, name, cleaning, probabilities
    if best is None or (networks is not None and is_better_beyond_noise(networks, best[-1], valid[1], ERRORS)):
        return None
    reached, name, cleaning, _ = best
    labels, weights = CLEANINGS[cleaning](audited)
    model = fitted(models[name], samples, labels, weights)
    return FinalModel(name, cleaning, model, classes, reached, samples, labels, weights)


def _different(estimator: Any) -> list[str]:
    """Return the cleanings that differ for an estimator: without weights "weight" is the same as "none"."""
    return [one for one in CLEANINGS if one != "weight" or weight_parameter(estimator) is not None]


def take(samples: Any, rows: NDArray[np.int64]) -> Any:
    """Return some rows of samples."""
    return samples.iloc[rows] if hasattr(samples, "iloc") else samples[rows]


def flat(samples: Any) -> Any:
    """Return samples as models take them: rows of columns."""
    return samples.reshape(len(samples), -1) if isinstance(samples, np.ndarray) and samples.ndim > 2 else samples
