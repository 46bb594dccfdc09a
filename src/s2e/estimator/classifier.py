"""`S2EClassifier`: the search, the final classifier and the label audit under scikit-learn's contract.

Letters: N samples, F columns, C classes, T epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from joblib import effective_n_jobs
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from s2e.audit.evidence import Evidence, records_of
from s2e.audit.label_model import LabelAudit, audit
from s2e.audit.relabelling import relabelled_validation, with_validation_labels
from s2e.data.samples import LabelledData, default_share, hold_out
from s2e.engine.devices import device_of
from s2e.engine.inference import Classifier
from s2e.engine.restarts import FinalTraining, train_restarts
from s2e.engine.task import VALIDATION, Task
from s2e.errors import InvalidInput
from s2e.estimator import validation as checks
from s2e.estimator.defaults import ROUNDS, batch_size_for, epochs_for
from s2e.estimator.features import Features, Images, Numbers, SparseNumbers, TableRows
from s2e.methods import method as method_of
from s2e.networks.factories import default_network, factory_of
from s2e.seeds import derive
from s2e.studies.generation_size import Generation, paced, picked_for
from s2e.studies.loop import epochs_left, search_schedule
from s2e.studies.plan import Search as StudiedSearch
from s2e.studies.plan import SearchPlan
from s2e.studies.storage import open_study, quiet_optuna
from s2e.workflows.progress import SILENT, ProgressListener

if TYPE_CHECKING:
    from sklearn.utils import Tags
    from typing_extensions import Self


class S2EClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A classifier for labels that may be wrong, of which nobody says how many are.

    `fit` searches the schedule of keep rates R(t) that suits the data, trains pairs of networks with it (Co-teaching),
    and judges every label by how the networks took it. Give samples with labels you trust as `X_val, y_val` where you
    have some. Without them a part of the samples is held out, its samples are relabelled by networks trained on the others,
    and schedules are ranked by how often their networks agree with these. Noise that turns a label into every other
    class alike (symmetric) leaves such a ranking unchanged; noise that favours certain wrong classes may not, where it
    is strong.

    Args:
        n_trials: schedules to try; 30 when None, or five generations of the K picked.
        network: "auto", the name of a reference network, a factory of modules without arguments, or one that is handed
            (shape of a sample, number of classes).
        epochs: T, of every training; by the number of samples when None, from 40 to 200.
        batch_size: by the number of samples when None, from 16 to 128.
        learning_rate: Adam's.
        method: one with a keep rate: coteaching, mentornet, coteaching+ or jocor.
        space: the family of schedules: s2e, coteaching, single-1 … single-4, rbf or mlp.
        sampler: how schedules are chosen: curve, newton, newton-curve, natural or gradient; or Optuna's random, tpe,
            gp, cmaes or hyperband.
        generation: K, schedules trained at a time, as one population; "auto" picks as many as a GPU trains in little
            more than the time of 6, a fifth of `n_trials` at most; on a CPU 6.
        restarts: fresh seeds of the final training; validation chooses among them.
        validation_share: of the samples to hold out without `X_val`; a tenth, or up to a fifth of few, when None.
        sparse_components: columns that a sparse `X` with more of them is reduced to (truncated SVD); None keeps all.
        device: "cpu", "cuda", …, or "auto".
        n_jobs: threads on a CPU; as torch is set when None, all cores when -1.
        random_state: decides everything that is drawn; pass an int for the same result each time.
        verbose: 1 to show progress.

    Attributes:
        classes_: (C,) the labels there are.
        n_features_in_: F.
        feature_names_in_: names of the columns, where `X` had some.
        schedule_: (T,) the keep rates that were found.
        validation_accuracy_: of the final classifier, mean over the last epochs; with "noisy" validation agreement with
            relabelled labels.
        validation_: "clean" with `X_val`, else "noisy".
        study_: all trials, an Optuna study; not in a classifier that was loaded.
        label_quality_: (N,) probability that the label given is right.
        suggested_labels_: (N,) the label given, or, where it is probably wrong, the likeliest other.
        label_issues_: indices of the labels that are probably wrong, the most doubtful first.
        noise_rate_: estimated share of wrong labels.
        transition_: (C, C) estimated probability that a sample of a class (row) was given a label (column).
        doubtful_classes_: classes that the networks have probably not learnt; these labels are not judged.

    Examples:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> clf = S2EClassifier(n_trials=6, epochs=40, random_state=0).fit(X, y)
        >>> clf.score(X, y) > 0.9
        True
    """

    def __init__(
        self,
        *,
        n_trials: int | None = None,
        network: str | Callable[..., Any] = "auto",
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float = 1e-3,
        method: str = "coteaching",
        space: str = "s2e",
        sampler: str = "curve",
        generation: Generation = 6,
        restarts: int = 3,
        validation_share: float | None = None,
        sparse_components: int | None = 256,
        device: str = "auto",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_trials = n_trials
        self.network = network
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.method = method
        self.space = space
        self.sampler = sampler
        self.generation = generation
        self.restarts = restarts
        self.validation_share = validation_share
        self.sparse_components = sparse_components
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.input_tags.three_d_array = True
        tags.non_deterministic = False
        return tags

    # Fitting

    def fit(self, X: Any, y: Any, *, X_val: Any = None, y_val: Any = None, **refused: Any) -> Self:
        """Search a schedule, train the classifier with it, judge the labels.

        Args:
            X: (N, F) numbers, dense or sparse, NaN where one is missing; a DataFrame, also with text and categories; or
                images, (N, H, W), (N, channels, H, W) or (N, H, W, channels), as uint8 or other numbers.
            y: (N,) labels of any type, some of them wrong.
            X_val: the same for samples with labels one can trust, if there are any.
            y_val: those labels.
            refused: nothing else is taken.
        """
        checks.refuse(refused)
        checks.parameters(self)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        samples = checks.samples(self, X)
        given = checks.labels(self, y, samples.shape[0])
        self.classes_, labels = np.unique(given, return_inverse=True)
        if len(self.classes_) < 2:
            raise InvalidInput(f"`y` must hold at least two classes, but got only one class, {self.classes_[0]!r}.")
        self._features = self._fitted_features(samples, labels, derive(seed, "features"))
        data = LabelledData(self._features.encode(samples), labels.astype(np.int64), _names(self.classes_))
        train, valid = self._parted(data, X_val, y_val, seed)
        with self._threads(), quiet_optuna(), self._watch() as watch:
            task = self._task(train, valid, seed)
            if self.validation_ == "noisy":
                watch.stage("relabelling validation", task.epochs)
                better = relabelled_validation(task, learning_rate=self.learning_rate, seed=seed, on_epoch=watch.epoch)
                task = with_validation_labels(task, better)
            found = self._search(task, seed, watch)
            final_seed = derive(seed, "final")
            watch.stage("final training", task.epochs)
            (final,) = train_restarts(
                replace(task, seed=derive(final_seed, "batches")),
                [FinalTraining("S2E", task.method, found, self.restarts)],
                learning_rate=self.learning_rate,
                seed=final_seed,
                on_epoch=watch.epoch,
            )
            records = records_of(
                final.task, final.trained, [final.chosen], valid if self.validation_ == "noisy" else None
            )
        self.schedule_ = found
        self.validation_accuracy_ = float(final.trained.curves.last(VALIDATION)[final.chosen])
        networks = final.trained.modules(task.network, final.chosen)
        self._classifier = Classifier(networks, data.class_names, data.sample_shape)
        self._index = X.index if isinstance(X, (pd.DataFrame, pd.Series)) else None
        self._given = labels.astype(np.int64)
        self._judge(audit(Evidence.from_records(records)), records["rows"])
        return self

    def _inputs(self, X: Any) -> NDArray[Any]:
        """Return later samples as inputs; dense or sparse ones, whichever were learnt from."""
        samples = checks.samples(self, X, learnt=self._features)
        if isinstance(self._features, SparseNumbers) and not sparse.issparse(samples):
            samples = sparse.csr_matrix(samples)
        elif isinstance(self._features, Numbers) and sparse.issparse(samples):
            samples = samples.toarray()
        return self._features.encode(samples)

    def _fitted_features(self, samples: Any, labels: NDArray[np.int64], seed: int) -> Features:
        if isinstance(samples, pd.DataFrame):
            return TableRows.fit(samples, labels)
        if sparse.issparse(samples):
            return SparseNumbers.fit(samples, self.sparse_components, seed % 2**32)
        return Numbers.fit(samples) if samples.ndim == 2 else Images.fit(samples)

    def _parted(self, data: LabelledData, X_val: Any, y_val: Any, seed: int) -> tuple[LabelledData, LabelledData]:
        """Return training and validation samples: those that were given, or a part held out."""
        if (X_val is None) != (y_val is None):
            raise InvalidInput("`X_val` and `y_val` must be given together, but got only one of them.")
        if X_val is None:
            self.validation_ = "noisy"
            share = default_share(len(data)) if self.validation_share is None else self.validation_share
            return hold_out(data, share, np.random.default_rng(derive(seed, "validation")))
        self.validation_ = "clean"
        inputs = self._inputs(X_val)
        trusted = checks.labels(self, y_val, len(inputs))
        unknown = np.setdiff1d(trusted, self.classes_)
        if len(unknown):
            raise InvalidInput(f"`y_val` must hold classes that are in `y`, but got others: {unknown[:5].tolist()}.")
        codes = np.searchsorted(self.classes_, trusted).astype(np.int64)
        return data, LabelledData(inputs, codes, data.class_names)

    def _task(self, train: LabelledData, valid: LabelledData, seed: int) -> Task:
        self.batch_size_ = self.batch_size or batch_size_for(len(train))
        self.epochs_ = self.epochs or epochs_for(len(train), self.batch_size_)
        return Task(
            train,
            factory_of(self.network, train.sample_shape, train.classes),
            method_of(self.method, default_network(train.sample_shape, train.classes)),
            {VALIDATION: valid},
            self.epochs_,
            self.batch_size_,
            derive(seed, "batches"),
            device_of(self.device),
            clean=valid if self.validation_ == "clean" else None,
        )

    def _search(self, task: Task, seed: int, watch: ProgressListener) -> NDArray[np.float64]:
        pick = picked_for(task, self.learning_rate)
        pace = paced(self.generation, self.n_trials, rounds=ROUNDS, pick=pick)
        self.n_trials_ = pace.trials
        plan = SearchPlan.named(
            self.space,
            self.sampler,
            epochs=task.epochs,
            trials=pace.trials,
            generation=min(pace.generation, pace.trials),
            learning_rate=self.learning_rate,
            seed=seed,
        )
        self.study_ = open_study(None, "search", {})
        watch.stage("search", epochs_left([StudiedSearch(plan, self.study_)], task.epochs))
        found = search_schedule(task, plan, self.study_, on_generation=watch.generation, on_epoch=watch.epoch)
        return found.schedule

    def _judge(self, found: LabelAudit, rows: NDArray[np.int64]) -> None:
        """Take the verdicts over, from the order of the records to that of the samples."""
        back = np.argsort(rows)
        self.label_quality_ = found.quality[back]
        self.suggested_labels_ = self.classes_[found.suggested[back]]
        self._suggested_probability = found.probability[back]
        self._is_issue = found.issues[back]
        order = np.argsort(self.label_quality_, kind="stable")
        self.label_issues_ = order[self._is_issue[order]]
        self.noise_rate_ = found.noise_rate
        self.transition_ = found.transition
        self.doubtful_classes_ = self.classes_[found.doubtful]

    # Using

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of every class, (N, C), mean over the networks."""
        check_is_fitted(self)
        inputs = self._inputs(X)
        with self._threads():
            probabilities = self._classifier.probabilities(inputs)  # (M, N, C)
        return np.asarray(probabilities.mean(axis=0, dtype=np.float64))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the likeliest class of every sample, (N,)."""
        likeliest = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[likeliest])

    def find_label_issues(self) -> pd.DataFrame:
        """Return the verdict on every label that `fit` was given, in the order of its samples.

        Columns, the first four as cleanlab's `CleanLearning` names them: `is_label_issue`, `label_quality` (probability
        that the label is right), `given_label`, `predicted_label` (the label given, or, for an issue, the likeliest
        other) and `probability` of that one. The index is that of `X` where it was a DataFrame.
        """
        check_is_fitted(self)
        return pd.DataFrame(
            {
                "is_label_issue": self._is_issue,
                "label_quality": self.label_quality_,
                "given_label": self.classes_[self._given],
                "predicted_label": self.suggested_labels_,
                "probability": self._suggested_probability,
            },
            index=self._index,
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted classifier to one file (safetensors, no pickle)."""
        from s2e.estimator.persistence import save

        check_is_fitted(self)
        save(self, path)

    @classmethod
    def load(cls, path: str | PathLike[str], *, network: Callable[..., Any] | None = None) -> Self:
        """Read what `save` wrote; give the factory again where `network` was one."""
        from s2e.estimator.persistence import load

        return load(cls, path, network)

    # Surroundings

    @contextmanager
    def _threads(self) -> Iterator[None]:
        """Use as many threads as `n_jobs` says, for a while."""
        if self.n_jobs is None:
            yield
            return
        before = torch.get_num_threads()
        torch.set_num_threads(effective_n_jobs(self.n_jobs))
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def _watch(self) -> Any:
        if not self.verbose:
            return nullcontext(SILENT)
        from rich.console import Console

        from s2e.workflows.progress import progress

        return progress(Console(stderr=True))


def _names(classes: NDArray[Any]) -> tuple[str, ...]:
    names = tuple(map(str, classes.tolist()))
    return names if len(set(names)) == len(names) else tuple(map(str, range(len(classes))))
