"""Networks and models of scikit-learn in one classifier, pooled by the likelihood of the labels.

1. Every model is cross-fitted on the given labels; the networks are by the final training (`s2e.audit.cross_fitting`).
   Samples whose labels are known to be correct are among those it is fitted to, and it is also fitted to these alone.
2. The likelihood of the given and the known labels chooses the votes (`s2e.ensembles.pooling`).
3. The pool's predictions for samples that were held out are what the label audit uses.
4. The chosen models are fitted to all samples. The posterior of the audit is their label: a row is repeated for each
   probable class, with the probability as its weight. The networks are trained on the same probabilities.

Letters: N samples, C classes, K models, L candidates for the class of a sample.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from s2e.audit import FOLDS, stratified_folds
from s2e.data.model_samples import TextSamples
from s2e.ensembles.pooling import geometric_mean, pool_by_likelihood
from s2e.errors import InvalidInput, first_line
from s2e.files.fields import Fields
from s2e.models import (
    Fit,
    about_samples,
    arrays_of_samples,
    fitted_ahead,
    fitted_predictions,
    models_for,
    probabilities_of,
    samples_of_arrays,
    use_one_thread,
    weight_parameter,
)

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

NETWORKS = "networks"
"""Name of the ensemble of networks in a pool."""

MOST_NUMBERS_AHEAD = 20_000_000
"""Samples times inputs times classes up to which models are fitted beside the training of the networks."""

LEAST_PROBABILITY = 0.02
"""Less probable classes of a sample are not trained on."""

ROUNDING = 1e-6
"""Tolerance of probabilities in a file."""

SOFT = "soft"
"""Name of the cleaning: the posterior is the label."""


@dataclass(frozen=True, eq=False)
class LabelledSamples:
    """Samples as models take them, with their labels.

    Attributes:
        samples: (N, F) dense or sparse, or with text.
        labels: (N,) given labels.
        known: (N,) bool, labels that are known to be correct.
    """

    samples: Any
    labels: Labels
    known: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class PosteriorLabels:
    """Samples with several possible classes.

    Attributes:
        samples: (N, F) dense or sparse, or with text.
        classes: (N, L) candidates.
        posterior: (N, L) their probabilities.
        balanced: whether the weights of all classes are equal in sum.
    """

    samples: Any
    classes: Labels
    posterior: Floats
    balanced: bool = False

    @classmethod
    def of(
        cls, data: LabelledSamples, classes: Labels, posterior: Floats, *, balanced: bool = False
    ) -> PosteriorLabels:
        """Return samples with the posterior of the first n, (n, L), and the labels of the others, which are known."""
        more = data.labels[len(classes) :, None]
        certain = np.zeros((len(more), classes.shape[1]))
        certain[:, 0] = 1.0
        candidates = np.concatenate([classes, np.broadcast_to(more, certain.shape)])
        return cls(data.samples, candidates, np.concatenate([posterior, certain]), balanced)

    @property
    def weights(self) -> Floats:
        """Weight of each candidate, (N, L): its probability, times the weight of its class if these are balanced."""
        if not self.balanced:
            return self.posterior
        totals = np.bincount(self.classes.ravel(), self.posterior.ravel())  # (C,)
        of_class = totals.sum() / (np.count_nonzero(totals) * np.where(totals > 0, totals, 1.0))
        return np.asarray(self.posterior * of_class[self.classes])

    def fitted(self, estimator: Any) -> Any:
        """Return an estimator fitted to every probable class of every sample, weighted by its probability."""
        rows, candidates = np.nonzero(self.posterior >= LEAST_PROBABILITY)
        weights = {str(weight_parameter(estimator)): self.weights[rows, candidates]}
        return clone(estimator).fit(self.samples[rows], self.classes[rows, candidates], **weights)


@dataclass(frozen=True, eq=False)
class PooledModels:
    """The networks and the fitted models of a pool.

    Attributes:
        weights: share of the votes of each model, by name; `NETWORKS` for the networks.
        estimators: the fitted models, by name.
        classes: C.
        labels: what the models were fitted to.
    """

    weights: dict[str, float]
    estimators: dict[str, Any]
    classes: int
    labels: PosteriorLabels

    cleaning: ClassVar[str] = SOFT

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
        columns = self.labels.samples.shape[1]
        if samples.shape[1] != columns:
            raise InvalidInput(f"samples must have {columns} numbers, as in training, but got {samples.shape[1]}.")
        parts = []
        for name in self.weights:
            if name == NETWORKS:
                parts.append(vote())
            else:
                parts.append(probabilities_of(self.estimators[name], samples, self.classes))
        return geometric_mean(parts, np.array(list(self.weights.values())))

    @classmethod
    def fit(cls, weights: Mapping[str, float], labels: PosteriorLabels, classes: int) -> PooledModels:
        """Fit the models that have votes."""
        models, names = models_for(labels.samples, classes), [name for name in weights if name != NETWORKS]
        with _fitting() as threads:
            fitted = threads.map(labels.fitted, [models[name] for name in names])
            return cls(dict(weights), dict(zip(names, fitted, strict=True)), classes, labels)

    # Files hold what the models were fitted to: their own state could only be written by pickle.

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return what the models were fitted to, for a file."""
        labels = self.labels
        return {"classes": labels.classes, "posterior": labels.posterior, **arrays_of_samples(labels.samples)}

    def about(self) -> dict[str, Any]:
        """Return the rest, for a file."""
        return {"weights": self.weights, "balanced": self.labels.balanced, **about_samples(self.labels.samples)}

    @classmethod
    def from_file(cls, about: Fields, arrays: Mapping[str, NDArray[Any]], classes: int) -> PooledModels:
        """Fit the models again to what a file holds.

        Raises:
            InvalidInput: if the file is damaged.
        """
        votes = about.fields("weights")
        weights = {name: votes.number(name) for name in votes.values}
        try:
            candidates, posterior = arrays["classes"], arrays["posterior"]
            samples = samples_of_arrays(about, arrays, len(candidates))
            _check(weights, candidates, posterior, samples, classes)
            labels = PosteriorLabels(samples, candidates, posterior, about.flag("balanced", False))
            return cls.fit(weights, labels, classes)
        except (KeyError, ValueError, TypeError) as problem:
            raise InvalidInput(f"the data of its models are damaged: {first_line(problem)}") from problem


def _check(
    weights: Mapping[str, float], candidates: NDArray[Any], posterior: NDArray[Any], samples: Any, classes: int
) -> None:
    """Raise `ValueError` unless what a file holds of a pool is possible."""
    for array in [samples.inputs, samples.terms] if isinstance(samples, TextSamples) else [samples]:
        if array.ndim != 2 or array.dtype.kind != "f":
            raise ValueError("other samples")
        if not np.isfinite(array.data if sparse.issparse(array) else array).all():
            raise ValueError("samples that are not finite")
    unknown = weights.keys() - {NETWORKS, *models_for(samples, classes)}
    if unknown or not weights or not all(0 < weight <= 1 for weight in weights.values()):
        raise ValueError("other votes")
    if candidates.dtype.kind != "i" or candidates.ndim != 2 or candidates.shape != posterior.shape:
        raise ValueError("other candidates")
    if len(candidates) != samples.shape[0] or candidates.min() < 0 or candidates.max() >= classes:
        raise ValueError("other classes")
    if posterior.dtype.kind != "f" or not ((posterior >= 0) & (posterior <= 1 + ROUNDING)).all():
        raise ValueError("other probabilities")


def votes_and_pool(data: LabelledSamples, networks: Floats, seed: int) -> tuple[dict[str, float], Floats]:
    """Choose the votes of the networks and the models.

    Args:
        data: all samples with their labels.
        networks: (N, C) predictions of networks that were not trained on the sample.
        seed: determines the folds.

    Returns:
        The shares of the votes by name, and the probabilities (N, C) of the pool for held-out samples.
    """
    with cross_fitting(data, networks.shape[1], seed) as predictions:
        return votes_of(data, networks, predictions())


def votes_of(
    data: LabelledSamples, networks: Floats, of_models: Sequence[tuple[str, Floats]]
) -> tuple[dict[str, float], Floats]:
    """Choose the votes as `votes_and_pool`, by predictions (N, C) of models that were cross-fitted before."""
    predicted = [(NETWORKS, networks), *of_models]
    with _fitting() as threads:
        pool = pool_by_likelihood(data.labels, [each for _, each in predicted], data.known, call_each=threads.map)
    votes: dict[str, float] = {}
    for (name, _), weight in zip(predicted, pool.weights.tolist(), strict=True):
        if weight > 0:
            votes[name] = votes.get(name, 0.0) + weight
    return votes, pool.probabilities


@contextmanager
def cross_fitting(
    data: LabelledSamples, classes: int, seed: int, *, ahead: bool = False
) -> Iterator[Callable[[], list[tuple[str, Floats]]]]:
    """Cross-fit the models, each in one thread.

    A model is fitted to the samples outside of each fold, and again to those of them whose labels are known. The latter
    is better where known labels are many or given ones very noisy.

    Args:
        data: all samples with their labels.
        classes: C.
        seed: determines the folds.
        ahead: begin at once, in another process, and leave one thread to the caller; not with samples whose models
            take long.

    Yields:
        A function that waits, and returns the predictions (N, C) of each model for held-out samples, with its name.
    """
    ahead &= math.prod(data.samples.shape) * classes <= MOST_NUMBERS_AHEAD
    models = models_for(data.samples, classes)
    possible = [(name, parts) for parts in _parts(data, seed) for name in models if _have_classes(data.labels, parts)]
    fits = [Fit(name, *part) for name, parts in possible for part in parts]
    process: AbstractContextManager[Mapping[int, Floats]] = nullcontext({})
    if ahead and fits:
        threads = max(1, torch.get_num_threads() - 1)
        process = fitted_ahead(data.samples, data.labels, classes, fits, threads)
    with process as received:

        def made(index: int) -> Floats:
            if (found := received.get(index)) is not None:
                return found
            return fitted_predictions(models[fits[index].name], data.samples, data.labels, fits[index], classes)

        def predictions() -> list[tuple[str, Floats]]:
            with _fitting(1 if ahead else None) as pool:
                last_first = list(pool.map(made, reversed(range(len(fits)))))  # the process begins with the first
            left, joined = list(zip(fits, reversed(last_first), strict=True)), []
            for name, parts in possible:
                predicted = np.empty((len(data.labels), classes))
                for fit, own in left[: len(parts)]:
                    predicted[fit.predicted] = own
                joined.append((name, predicted))
                left = left[len(parts) :]
            return joined

        yield predictions


Part = tuple[Labels, Labels]
"""Indices of the samples to which a model is fitted, and of those that it then predicts."""


def _parts(data: LabelledSamples, seed: int) -> list[list[Part]]:
    """Return the parts of cross-fitting on all labels, and on the known ones if there are some."""
    known = np.flatnonzero(data.known)
    found = [_folds_of(np.arange(len(data.labels)), data.labels, seed)]
    if 1 < len(known) < len(data.labels):
        found.append([*_folds_of(known, data.labels, seed), (known, np.flatnonzero(~data.known))])
    return found


def _folds_of(samples: Labels, labels: Labels, seed: int) -> list[Part]:
    """Return the samples outside and inside of each fold of some samples."""
    folds = stratified_folds(labels[samples], FOLDS, seed)
    return [(samples[folds != fold], samples[folds == fold]) for fold in range(int(folds.max()) + 1)]


def _have_classes(labels: Labels, parts: Sequence[Part]) -> bool:
    """Return whether the samples of each fit have several classes."""
    return all(len(np.unique(labels[fitted_to])) > 1 for fitted_to, _ in parts)


@contextmanager
def _fitting(count: int | None = None) -> Iterator[Executor]:
    """Fit models in some threads, by default as many as PyTorch has, each model in one, and without some warnings.

    A model that is fitted in several threads takes many times longer beside another busy process. Whether a model has
    converged does not matter: its likelihood is what counts.
    """
    with (
        threadpool_limits(1, "blas"),
        warnings.catch_warnings(),
        ThreadPoolExecutor(count or torch.get_num_threads(), initializer=use_one_thread) as threads,
    ):
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "The number of unique classes is greater")
        try:
            yield threads
        except BaseException:  # Ctrl-C, for instance: fits that have not begun are left out
            threads.shutdown(cancel_futures=True)
            raise
