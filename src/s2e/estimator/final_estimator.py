"""Clean, then train any model: an estimator of scikit-learn trained on labels that the audit has cleaned.

It is trained on the training part with each cleaning (`s2e.workflows.cleaning`), of which the best on validation is
chosen. Where the validation part was held out of the samples, the estimator is fitted again to all of them.

Letters: N samples, C classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone

from s2e.engine import Score
from s2e.ensembles import probabilities_of, take, weight_parameter
from s2e.errors import InvalidType
from s2e.specs import AUTO
from s2e.workflows.cleaning import CLEANINGS, AuditedLabels

FEWEST_WEIGHT = 1e-3
"""Rows of smaller weights are left out: some models fail where all weights of a class are tiny."""


@dataclass(frozen=True, eq=False)
class FinalModel:
    """A fitted model.

    Attributes:
        name: that of its class.
        cleaning: one of `CLEANINGS`.
        estimator: the fitted estimator.
        classes: C.
        score: on validation, before it was fitted to all samples.
    """

    name: str
    cleaning: str
    estimator: Any
    classes: int
    score: float

    def probabilities(self, samples: Any, vote: Callable[[], NDArray[np.float64]]) -> NDArray[np.float64]:  # noqa: ARG002
        """Return the probability of every class, (N, C); the vote of the networks is not used."""
        return probabilities_of(self.estimator, samples, self.classes)


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


def choose_cleaning(
    estimator: Any,
    samples: Any,
    audited: AuditedLabels,
    train: NDArray[np.int64],
    valid: tuple[Any, NDArray[np.int64]],
    classes: int,
    score: Score,
) -> FinalModel | None:
    """Fit an estimator with every cleaning, and return the best on validation, fitted again to all samples.

    The networks were chosen on the validation part and the models were not, so networks must be better beyond noise.

    Args:
        estimator: a classifier of scikit-learn.
        samples: (N, ...) indexable by rows: an array, a sparse matrix or a DataFrame.
        audited: their labels.
        train: rows of the training part.
        valid: the validation part, with the labels that schedules were compared on; not among the rows `train`.
        classes: C.
        score: what is maximised.

    Returns:
        None if it cannot be fitted: no cleaning leaves two classes.
    """
    truth = torch.from_numpy(valid[1])
    part, own = take(samples, train), audited.take(train)
    best: tuple[float, str] | None = None
    for cleaning in _different(estimator):
        labels, weights = CLEANINGS[cleaning](own)
        if len(np.unique(labels[weights >= FEWEST_WEIGHT])) < 2:
            continue
        probabilities = probabilities_of(fitted(estimator, part, labels, weights), valid[0], classes)
        reached = float(score(torch.from_numpy(probabilities)[None], truth)[0])
        if best is None or reached > best[0]:
            best = reached, cleaning
    if best is None:
        return None
    reached, cleaning = best
    model = fitted(estimator, samples, *CLEANINGS[cleaning](audited))
    return FinalModel(type(estimator).__name__, cleaning, model, classes, reached)


def _different(estimator: Any) -> list[str]:
    """Return the cleanings that differ for an estimator: without weights "weight" is the same as "none"."""
    return [one for one in CLEANINGS if one != "weight" or weight_parameter(estimator) is not None]
