"""`S2EClassifier`: the search, the final classifier and the label audit under scikit-learn's contract.

Letters: N samples, F columns, C classes, T epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
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

from s2e.audit import Evidence, LabelAudit, audit
from s2e.data import LabelledData, default_share, hold_out
from s2e.data.table_encoding import TableEncoder
from s2e.engine import VALIDATION, Augmentation, LearningRatePlan, Optimizer, score_of
from s2e.errors import InvalidInput
from s2e.estimator import validation as checks
from s2e.estimator.defaults import MOST_EPOCHS, batch_size_for, epochs_for
from s2e.estimator.features import Encoder, ImageEncoder, NumberEncoder, SparseEncoder
from s2e.estimator.final_estimator import (
    NETWORKS,
    FinalModel,
    check_final_estimator,
    choose_model,
    flat,
    models_for,
    out_of_fold,
    take,
)
from s2e.methods import Method
from s2e.schedules import Space
from s2e.seeds import derive
from s2e.specs import AUTO, LOCAL, NO_AUGMENTATION, Execution, GenerationSize, TrainingSpec
from s2e.studies import DEFAULT_GENERATIONS_OF_SHORT_SEARCHES, open_study, quiet_optuna
from s2e.workflows import SILENT, PipelineResult, build_task, check_choices, plan_for, search_and_train
from s2e.workflows.cleaning import CLEANINGS, AuditedLabels

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from sklearn.utils import Tags
    from typing_extensions import Self


class S2EClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Classifier for noisy labels whose noise rate is unknown.

    `fit` searches the schedule of keep rates R(t) for the data, trains pairs of networks with it (Co-teaching), and
    estimates for every label the probability that it is correct. Samples with trusted labels can be given as
    `X_val, y_val`. Without them a part of the samples is held out and relabelled by networks trained on the others, and
    schedules are ranked by the agreement of their networks with these labels. Symmetric noise, which turns a label into
    every other class with the same probability, leaves this ranking unchanged; strong noise that favours certain wrong
    classes may not.

    Args:
        n_trials: schedules to try. When None five generations, 30 schedules, or fewer: the search ends when no schedule
            is expected to be better by more than validation can tell.
        network: "auto", the name of a reference network, a factory of modules without arguments, or one that takes
            (shape of a sample, number of classes).
        epochs: T, epochs of every training; from 40 to 100 by the number of samples when None.
        batch_size: samples in a batch; from 16 to 128 by the number of samples when None.
        learning_rate: learning rate, which `plan` changes by epoch.
        optimizer: adam, adamw, sgd or rmsprop, with options as in "sgd:momentum=0.9,weight_decay=5e-4", or an object
            with the interface `s2e.Optimizer`, such as those in `s2e.engine.optimizers`.
        plan: the factor on the learning rate by epoch: constant, linear, cosine or step, with options as in
            "linear:start=0.4" or "cosine:warmup=5", or an object with the interface `s2e.LearningRatePlan`.
        augment: random changes of training images: "none", or a list such as "crop:padding=4,flip,cutout:size=8", also
            with "normalize"; or a sequence of such names and of objects with the interface `s2e.Augmentation`.
        precision: number format of products: "float32", "bfloat16", or "auto", what the device computes fastest without
            losing accuracy. Weights and losses are float32.
        method: one with a keep rate: coteaching, mentornet, coteaching+ or jocor, or an object with the interface
            `s2e.Method`. Where labels are imbalanced, the same share of every label is kept; "coteaching:by_class=true"
            or "…=false" decides it.
        space: the family of schedules: s2e, coteaching, single-1 … single-4, rbf or mlp, or an object with the
            interface `s2e.Space`.
        sampler: how schedules are chosen: curve, newton, newton-curve, natural or gradient; Optuna's random, tpe, gp,
            cmaes or hyperband; or any `optuna.samplers.BaseSampler`.
        generation_size: K, schedules trained at once, as one population; "auto": 6 on a CPU, on a GPU up to 32 if they
            take little longer than 6, at most a fifth of `n_trials`.
        restarts: seeds of the final training, of which validation selects one.
        ensemble: members that vote together at most, chosen on validation among the restarts, fixed schedules and the
            best six trials; 1 for the selected restart alone.
        distil: whether to train one network on the probabilities of the ensemble, and to keep only that one.
        final_estimator: what predicts in the end. None for the networks; a classifier of scikit-learn, also a
            `Pipeline`, which is trained on the samples as they are given, with labels cleaned by the audit; "auto" for
            what is best on validation: the networks, or one of a few models, trained on encoded samples (sparse ones as
            they are) with cleaned labels. Validation also chooses the cleaning: rows weighted, dropped, relabelled, or
            left as they are.
        scoring: what is maximised on validation: "accuracy", "balanced_accuracy" or "average_precision" (of the last of
            two classes, or mean over more).
        validation_share: share of the samples to hold out without `X_val`; a tenth, or up to a fifth of few, when None.
        sparse_components: columns that a sparse `X` with more of them is reduced to (truncated SVD); None keeps all.
        device: "cpu", "cuda", …, or "auto"; several separated by commas, as in "cuda:0,cuda:1", share the training.
        executor: "ray" to train on a Ray cluster: the one that this process has joined with `ray.init`, or a new one
            on this machine; this process when None.
        n_jobs: threads on a CPU; the setting of PyTorch when None, all cores when -1.
        random_state: seed of everything that is drawn at random; pass an int for reproducible results.
        verbose: 1 to show progress.

    Attributes:
        classes_: (C,) the distinct labels.
        n_features_in_: F.
        feature_names_in_: names of the columns, where `X` has some.
        schedule_: (T,) the keep rates found.
        validation_accuracy_: accuracy, or what `scoring` names, of the selected restart, mean over the last epochs;
            with "noisy" validation the agreement with the relabelled samples.
        validation_: "clean" with `X_val`, else "noisy".
        study_: all trials, an Optuna study; a loaded classifier has none.
        label_quality_: (N,) probability that the given label is correct.
        suggested_labels_: (N,) the given label, or the most probable other one where it is probably wrong.
        sample_weight_: (N,) weights of the samples for a model: those of the final estimator, or, without one, the
            probability that the label is correct.
        final_estimator_: the fitted final estimator, with labels 0 … C - 1; None where the networks predict.
        final_name_, cleaning_: its name, and how the labels were cleaned: none, weight, drop or relabel.
        label_issues_: indices of the labels that are probably wrong, the least probable first.
        noise_rate_: estimated share of wrong labels.
        transition_: (C, C) estimated probability that a sample of a class (row) has a label (column).
        doubtful_classes_: classes that the networks have probably not learnt; their labels are not audited.

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
        network: str | Callable[..., Any] = AUTO,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float = 1e-3,
        optimizer: str | Optimizer = "adam",
        plan: str | LearningRatePlan = "linear:start=0.4",
        augment: str | Augmentation | Sequence[str | Augmentation] = NO_AUGMENTATION,
        precision: str = AUTO,
        method: str | Method = "coteaching",
        space: str | Space = "s2e",
        sampler: str | BaseSampler = "curve",
        generation_size: GenerationSize = 6,
        restarts: int = 3,
        ensemble: int = 6,
        distil: bool = False,
        final_estimator: Any = AUTO,
        scoring: str = "accuracy",
        validation_share: float | None = None,
        sparse_components: int | None = 256,
        device: str = AUTO,
        executor: str | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_trials = n_trials
        self.network = network
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.optimizer = optimizer
        self.plan = plan
        self.augment = augment
        self.precision = precision
        self.method = method
        self.space = space
        self.sampler = sampler
        self.generation_size = generation_size
        self.restarts = restarts
        self.ensemble = ensemble
        self.distil = distil
        self.final_estimator = final_estimator
        self.scoring = scoring
        self.validation_share = validation_share
        self.sparse_components = sparse_components
        self.device = device
        self.executor = executor
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
        """Search a schedule, train the classifier with it, audit the labels.

        Args:
            X: (N, F) numbers, dense or sparse, NaN where one is missing; a DataFrame, also with text and categories; or
                images, (N, H, W), (N, channels, H, W) or (N, H, W, channels), as uint8 or other numbers.
            y: (N,) labels of any type, some of them wrong.
            X_val: samples with trusted labels, of the same kind as `X`.
            y_val: their labels.
            refused: no other argument is accepted.
        """
        checks.refuse(refused)
        search, classifier = checks.search_spec(self), checks.classifier_spec(self)
        check_final_estimator(self.final_estimator)
        longest = self._training(self.epochs or MOST_EPOCHS, self.batch_size or 1)
        execution = Execution(self.device, self.executor or LOCAL)
        check_choices(longest, self.method, execution, search)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        samples = checks.samples(self, X)
        given = checks.labels(self, y, samples.shape[0])
        self.classes_, labels = np.unique(given, return_inverse=True)
        if len(self.classes_) < 2:
            raise InvalidInput(
                f"`y` must hold at least two classes, but got only one class, {self.classes_.tolist()[0]!r}."
            )
        self._encoder = self._fitted_encoder(samples, derive(seed, "features"))
        data = LabelledData(self._encoder.encode(samples), labels.astype(np.int64), _names(self.classes_))
        train, valid = self._split(data, X_val, y_val, seed)
        self.batch_size_ = self.batch_size or batch_size_for(len(train))
        self.epochs_ = self.epochs or epochs_for(len(train), self.batch_size_)
        training = self._training(self.epochs_, self.batch_size_)
        with self._threads(), quiet_optuna(), self._listener() as listener:
            task = build_task(
                train,
                {VALIDATION: valid},
                training,
                self.method,
                seed=seed,
                execution=execution,
                clean=valid if self.validation_ == "clean" else None,
                score=classifier.score,
            )
            plan = plan_for(task, search, training, seed, generations=DEFAULT_GENERATIONS_OF_SHORT_SEARCHES)
            self.n_trials_, self.study_ = plan.trials, open_study(None, "search", {})
            outcome = search_and_train(
                task,
                plan,
                self.study_,
                validation=self.validation_,
                restarts=self.restarts,
                classifier=classifier,
                listener=listener,
                stop_early=self.n_trials is None,
            )
        selected = outcome.selected[-1]
        self.schedule_ = outcome.found.schedule
        self.validation_accuracy_ = float(selected.trained.curves.last(VALIDATION)[selected.index])
        self._classifier = outcome.ensemble.classifier(outcome.task)
        self._index = X.index if isinstance(X, (pd.DataFrame, pd.Series)) else None
        self._given = labels.astype(np.int64)
        evidence, rows = Evidence.from_records(outcome.records), outcome.records["rows"]
        if sparse.issparse(samples) and isinstance(self.final_estimator, str):
            evidence, rows = self._evidence_of_a_model(samples, seed), np.arange(len(self._given))
        self._store_audit(audit(evidence), rows)
        with self._threads():
            self._store_final(self._chosen_model(X, X_val, samples, data, train, outcome))
        return self

    def _evidence_of_a_model(self, samples: Any, seed: int) -> Evidence:
        """Return predictions of a linear model of all sparse columns, which suits them better than the networks do.

        No prediction is by a model that was trained on the sample.
        """
        model, classes = models_for(samples)["logistic-regression"], len(self.classes_)
        generator = np.random.default_rng(derive(seed, "folds"))
        predicted = out_of_fold(model, samples, self._given, classes, generator)
        count = len(self._given)
        return Evidence(self._given, predicted[None], np.zeros(count), np.full((1, count), np.nan))

    def _chosen_model(
        self,
        X: Any,
        X_val: Any,
        samples: Any,
        data: LabelledData,
        train: LabelledData,
        outcome: PipelineResult,
    ) -> FinalModel | None:
        """Return the final estimator, fitted; None where the networks predict."""
        if self.final_estimator is None:
            return None
        score, valid = score_of(outcome.task.score), outcome.chosen_by
        automatic = isinstance(self.final_estimator, str)
        own = self._model_samples(X, samples, data.inputs)
        if X_val is None:
            held = take(own, valid.rows)
        else:
            held = self._model_samples(X_val, checks.samples(self, X_val, encoder=self._encoder), valid.inputs)
        models = models_for(own) if automatic else {"": self.final_estimator}
        vote = self._classifier.vote(valid.inputs) if automatic else None
        audited = self._audited()
        found = choose_model(models, own, audited, train.rows, (held, valid.labels), data.classes, score, vote)
        if found is None and not automatic:
            raise InvalidInput("`final_estimator` must have labels of two classes to train on, but got those of one.")
        return found

    def _store_final(self, model: FinalModel | None) -> None:
        self._model = model
        self.final_estimator_ = None if model is None else model.estimator
        self.final_name_ = NETWORKS if model is None else model.name or type(model.estimator).__name__
        self.cleaning_ = "none" if model is None else model.cleaning
        self.sample_weight_ = CLEANINGS["weight" if model is None else model.cleaning](self._audited()).weights

    def _audited(self) -> AuditedLabels:
        """Return the given labels and the result of their audit, in the order of the samples."""
        suggested = np.searchsorted(self.classes_, self.suggested_labels_).astype(np.int64)
        return AuditedLabels(self._given, self.label_quality_, suggested, self._suggested_probability)

    def _model_samples(self, X: Any, samples: Any, inputs: NDArray[Any]) -> Any:
        """Return samples as the final estimator takes them.

        Args:
            X: as the caller gave them.
            samples: the same, checked.
            inputs: the same, encoded.
        """
        if isinstance(self.final_estimator, str):
            return samples if sparse.issparse(samples) else flat(inputs)
        return X if isinstance(X, pd.DataFrame) else flat(samples)

    def _training(self, epochs: int, batch_size: int) -> TrainingSpec:
        return TrainingSpec(
            self.network,
            epochs,
            batch_size,
            self.learning_rate,
            optimizer=self.optimizer,
            plan=self.plan,
            augment=self.augment,
            precision=self.precision,
        )

    def _inputs(self, X: Any) -> NDArray[Any]:
        """Encode samples as in training."""
        return self._encoder.encode(self._checked(X))

    def _checked(self, X: Any) -> Any:
        """Check samples as in training; dense ones are accepted after sparse ones, and sparse after dense."""
        samples = checks.samples(self, X, encoder=self._encoder)
        if isinstance(self._encoder, SparseEncoder) and not sparse.issparse(samples):
            samples = sparse.csr_matrix(samples)
        elif isinstance(self._encoder, NumberEncoder) and sparse.issparse(samples):
            samples = samples.toarray()
        return samples

    def _fitted_encoder(self, samples: Any, seed: int) -> Encoder:
        if isinstance(samples, pd.DataFrame):
            return TableEncoder.fit(samples)
        if sparse.issparse(samples):
            return SparseEncoder.fit(samples, self.sparse_components, seed % 2**32)
        return NumberEncoder.fit(samples) if samples.ndim == 2 else ImageEncoder.fit(samples)

    def _split(self, data: LabelledData, X_val: Any, y_val: Any, seed: int) -> tuple[LabelledData, LabelledData]:
        """Return training and validation samples: the given ones, or a part held out."""
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

    def _store_audit(self, found: LabelAudit, rows: NDArray[np.int64]) -> None:
        """Store the result of the audit, reordered from the records to the samples."""
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

    # Prediction

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of every class, (N, C), of the vote of the networks or of the final estimator."""
        check_is_fitted(self)
        samples = self._checked(X)
        with self._threads():
            if self._model is None:
                return self._classifier.vote(self._encoder.encode(samples))
            return self._model.probabilities(self._model_samples(X, samples, self._encoder.encode(samples)))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of every sample, (N,)."""
        most_probable = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[most_probable])

    def find_label_issues(self) -> pd.DataFrame:
        """Return the result of the audit for every label, in the order of the samples.

        Columns, the first four as in cleanlab's `CleanLearning`: `is_label_issue`, `label_quality` (probability that
        the label is correct), `given_label`, `predicted_label` (the given label, or the most probable other one for an
        issue) and the `probability` of that one. The index is that of `X` where it was a DataFrame.
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
        """Read a file written by `save`; pass `network` again if it was a factory."""
        from s2e.estimator.persistence import load

        return load(cls, path, network)

    # Context

    @contextmanager
    def _threads(self) -> Iterator[None]:
        """Use `n_jobs` threads in the body."""
        if self.n_jobs is None:
            yield
            return
        before = torch.get_num_threads()
        torch.set_num_threads(effective_n_jobs(self.n_jobs))
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def _listener(self) -> Any:
        if not self.verbose:
            return nullcontext(SILENT)
        from rich.console import Console

        from s2e.workflows.progress import progress

        return progress(Console(stderr=True))


def _names(classes: NDArray[Any]) -> tuple[str, ...]:
    names = tuple(map(str, classes.tolist()))
    return names if len(set(names)) == len(names) else tuple(map(str, range(len(classes))))
