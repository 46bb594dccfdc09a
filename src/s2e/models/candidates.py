"""Which models of scikit-learn vote, for samples of which kind and size.

Letters: N samples, F numbers of each, C classes.
"""

from __future__ import annotations

from typing import Any

from scipy import sparse
from sklearn.pipeline import Pipeline

from s2e.data.model_samples import TextSamples
from s2e.models.scikit_models import PartOfSamples

MOST_NUMBERS = 20_000_000
"""Samples times inputs, and samples times classes, up to which models are fitted; networks predict alone with more."""

MOST_SAMPLES_OF_KERNELS = 5_000
"""Samples up to which a support vector machine is one of the models."""

MOST_SAMPLES_OF_TREES = 20_000
"""Samples up to which extra trees are one of the models; boosting with more."""

MOST_CLASSES_OF_TREES = 100
"""Classes up to which a model may be other than linear: the memory of support vectors grows with the pairs of classes,
that of trees with leaves times classes, and the time of boosting with the classes."""


def models_for(samples: Any, classes: int) -> dict[str, Any]:
    """Return the models of a pool, by name, for samples (N, F) of C classes: encoded, sparse or with text.

    Their seeds are fixed, so that a model can be fitted again when a classifier is loaded.
    """
    from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import ComplementNB
    from sklearn.svm import SVC

    count, columns = samples.shape
    logistic, bayes = LogisticRegression(max_iter=1000), ComplementNB(alpha=0.3)
    if count * classes > MOST_NUMBERS:
        return {}
    if isinstance(samples, TextSamples):
        of_terms = {"logistic-regression": _of_part("linear", logistic), "naive-bayes": _of_part("terms", bayes)}
        others = models_for(samples.inputs, classes)
        return of_terms | {name: _of_part("inputs", each) for name, each in others.items() if name not in of_terms}
    if sparse.issparse(samples):
        is_frequency = samples.data.min(initial=0.0) >= 0
        return {"logistic-regression": logistic, **({"naive-bayes": bayes} if is_frequency else {})}
    if count * columns > MOST_NUMBERS:
        return {}
    if classes > MOST_CLASSES_OF_TREES:
        return {"logistic-regression": logistic}
    trees = ExtraTreesClassifier(200, min_samples_leaf=3, random_state=0)
    boosting = HistGradientBoostingClassifier(early_stopping=False, random_state=0)
    return {
        "logistic-regression": logistic,
        **({"support-vectors": SVC(break_ties=True)} if count <= MOST_SAMPLES_OF_KERNELS else {}),
        **({"extra-trees": trees} if count <= MOST_SAMPLES_OF_TREES else {"boosting": boosting}),
    }


def _of_part(part: str, model: Any) -> Any:
    return Pipeline([("samples", PartOfSamples(part)), ("model", model)])
