"""`final_estimator="auto"`: the networks and models of scikit-learn, pooled by the likelihood of the given labels.

1. Every model is cross-fitted on the given labels; the networks are by the final training (`s2e.audit.cross_fitting`).
2. The likelihood of the given labels chooses the votes (`s2e.ensembles.pooling`).
3. The pool's predictions for samples that were held out are what the label audit uses.
4. The chosen models are fitted to all samples. The posterior of the audit is their label: a row is repeated for each
   probable class, with the probability as its weight. The networks are trained on the same probabilities.

Letters: N samples, C classes, K models, L candidates for the class of a sample.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from s2e.audit import FOLDS, Evidence, LabelAudit, audit, stratified_folds
from s2e.ensembles import geometric_mean, pool_by_likelihood
from s2e.estimator.final_estimator import probabilities_of, weight_parameter

log = logging.getLogger(__name__)

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

NETWORKS = "networks"
"""Name of the ensemble of networks in a pool."""

MOST_NUMBERS = 20_000_000
"""Numbers in the samples up to which models are fitted; networks alone predict with more."""

MOST_SAMPLES_OF_KERNELS = 5_000
"""Samples up to which a support vector machine is one of the models."""

MOST_SAMPLES_OF_TREES = 20_000
"""Samples up to which extra trees are one of the models; boosting with more."""

LEAST_PROBABILITY = 0.02
"""Less probable classes of a sample are not trained on."""

SOFT = "soft"
"""Name of the cleaning: the posterior is the label."""


def models_for(samples: Any) -> dict[str, Any]:
    """Return the models of a pool, by name, for encoded or sparse samples (N, F).

    Their seeds are fixed, so that a model can be fitted again when a classifier is loaded.
    """
    from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import ComplementNB
    from sklearn.svm import SVC

    count, columns = samples.shape
    logistic = LogisticRegression(max_iter=1000)
    if sparse.issparse(samples):
        bayes = {"naive-bayes": ComplementNB(alpha=0.3)} if samples.data.min(initial=0.0) >= 0 else {}
        return {"logistic-regression": logistic, **bayes}
    if count * columns > MOST_NUMBERS:
        return {}
    trees = ExtraTreesClassifier(200, min_samples_leaf=3, random_state=0)
    boosting = HistGradientBoostingClassifier(early_stopping=False, random_state=0)
    return {
        "logistic-regression": logistic,
        **({"support-vectors": SVC(break_ties=True)} if count <= MOST_SAMPLES_OF_KERNELS else {}),
        **({"extra-trees": trees} if count <= MOST_SAMPLES_OF_TREES else {"boosting": boosting}),
    }


@dataclass(frozen=True, eq=False)
class PosteriorLabels:
    """Samples with several possible classes.

    Attributes:
        samples: (N, F) dense or sparse.
        classes: (N, L) candidates.
        posterior: (N, L) their probabilities.
    """

    samples: Any
    classes: Labels
    posterior: Floats

    def fitted(self, estimator: Any) -> Any:
        """Return an estimator fitted to every probable class of every sample, weighted by its probability."""
        rows, candidates = np.nonzero(self.posterior >= LEAST_PROBABILITY)
        weights = {str(weight_parameter(estimator)): self.posterior[rows, candidates]}
        with _without_convergence_warnings():
            return clone(estimator).fit(self.samples[rows], self.classes[rows, candidates], **weights)


@dataclass(frozen=True, eq=False)
class PooledModels:
    """The networks and the fitted models of a pool.

    Attributes:
        weights: share of the votes of each model, by name; `NETWORKS` for the networks.
        estimators: the fitted models, by name.
        classes: C.
        labels: what the models were fitted to.
        score: mean log-likelihood of the given labels.
    """

    weights: dict[str, float]
    estimators: dict[str, Any]
    classes: int
    labels: PosteriorLabels
    score: float

    cleaning = SOFT

    @property
    def name(self) -> str:
        """Names of all that vote, those with most votes first."""
        return " + ".join(sorted(self.weights, key=lambda name: -self.weights[name]))

    @property
    def estimator(self) -> dict[str, Any]:
        """The fitted models, by name."""
        return self.estimators

    def probabilities(self, samples: Any, vote: Callable[[], Floats]) -> Floats:
        """Return the probability of every class, (N, C).

        Args:
            samples: (N, F) as the models take them.
            vote: returns the probabilities of the networks, (N, C).
        """
        parts = []
        for name in self.weights:
            if name == NETWORKS:
                parts.append(vote())
            else:
                parts.append(probabilities_of(self.estimators[name], samples, self.classes))
        return geometric_mean(parts, np.array(list(self.weights.values())))

    @classmethod
    def fit(cls, weights: Mapping[str, float], labels: PosteriorLabels, classes: int, score: float) -> PooledModels:
        """Fit the models that have votes."""
        models = models_for(labels.samples)
        made = {name: labels.fitted(models[name]) for name in weights if name != NETWORKS}
        return cls(dict(weights), made, classes, labels, score)


def choose_pool(
    samples: Any, evidence: Evidence, networks: Floats, seed: int
) -> tuple[PooledModels | None, LabelAudit]:
    """Choose the votes of the networks and the models, audit the labels by the pool, fit the chosen models.

    Args:
        samples: (N, F) as the models take them.
        evidence: given labels, and labels of annotators where there are some.
        networks: (N, C) predictions of networks that were not trained on the sample.
        seed: determines the folds.

    Returns:
        None if only the networks have votes, and the audit.
    """
    labels, classes = evidence.labels, evidence.classes
    folds = stratified_folds(labels, FOLDS, seed)
    names, predicted = [NETWORKS], [networks]
    for name, estimator in models_for(samples).items():
        of_model = cross_fitted(estimator, samples, labels, folds, classes)
        if of_model is not None:
            names.append(name)
            predicted.append(of_model)
    pool = pool_by_likelihood(labels, predicted)
    found = audit(replace(evidence, probabilities=pool.probabilities[None]))
    weights = {name: weight for name, weight in zip(names, pool.weights.tolist(), strict=True) if weight > 0}
    log.debug("votes: %s", weights)
    if list(weights) == [NETWORKS]:
        return None, found
    probable = PosteriorLabels(samples, found.classes, found.posterior)
    return PooledModels.fit(weights, probable, classes, found.log_likelihood), found


def cross_fitted(estimator: Any, samples: Any, labels: Labels, folds: Labels, classes: int) -> Floats | None:
    """Return the predictions (N, C) for each fold of an estimator fitted to the others; None if one has one class."""
    predicted = np.empty((len(labels), classes))
    for fold in range(int(folds.max()) + 1):
        train, held = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        if len(np.unique(labels[train])) < 2:
            return None
        with _without_convergence_warnings():
            fitted = clone(estimator).fit(samples[train], labels[train])
        predicted[held] = probabilities_of(fitted, samples[held], classes)
    return predicted


@contextmanager
def _without_convergence_warnings() -> Iterator[None]:
    """Ignore that a model has not converged: its likelihood is what counts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield
