"""`S2EClassifier`: the search, the final classifier and the label audit under scikit-learn's contract.

Letters: N samples, F columns, C classes, T epochs.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import fields, replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from joblib import effective_n_jobs
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import nn

from s2e.audit import Evidence, LabelAudit, audit
from s2e.callbacks import Callback, RunStarted, callbacks_of
from s2e.data import LabelledData, default_share, samples_and_labels
from s2e.data.column_values import value_text
from s2e.data.conversion import TEXT
from s2e.data.encoders import Encoder, column_uses
from s2e.data.image_encoding import ImageEncoder
from s2e.data.model_samples import ModelSamples
from s2e.data.reviewed import Decision, hold_out_with_decisions, matched, with_decisions
from s2e.data.samples import ColumnUse
from s2e.data.sparse_projection import SparseEncoder
from s2e.data.table_encoding import TableEncoder
from s2e.engine import VALIDATION, Augmentation, LearningRatePlan, Optimizer, export_onnx, score_of
from s2e.ensembles import NETWORKS, PooledModels, flat, take
from s2e.errors import InvalidInput, S2EWarning
from s2e.estimator import validation as checks
from s2e.estimator.final_estimator import FinalModel, check_final_estimator, choose_cleaning
from s2e.methods import Method
from s2e.schedules import Space
from s2e.seeds import derive
from s2e.specs import AUTO, LOCAL, NO_AUGMENTATION, Execution, GenerationSize, TrainingSpec
from s2e.studies import open_study, quiet_optuna
from s2e.workflows import (
    ARGUMENTS,
    SILENT,
    PipelineResult,
    RunInputs,
    Status,
    build_task,
    check_choices,
    notified,
    plan_for,
    search_and_train,
    sized,
    time_of_search,
    warns_in_python,
)
from s2e.workflows.cleaning import CLEANINGS, AuditedLabels

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from sklearn.utils import Tags
    from typing_extensions import Self

PARAMETERS = replace(ARGUMENTS, trials="`n_trials={}`")
"""How messages write the parameters that shorten `fit`."""


class S2EClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Classifier for noisy labels whose noise rate is unknown.

    `fit` searches the schedule of keep rates R(t) for the data, trains pairs of networks with it (Co-teaching), and
    estimates for every label the probability that it is correct. Samples with trusted labels can be given as
    `X_val, y_val`. Without them a part of the samples is held out and relabelled by networks trained on the others, and
    schedules are ranked by the agreement of their networks with these labels. Symmetric noise, which turns a label into
    every other class with the same probability, leaves this ranking unchanged; strong noise that favours certain wrong
    classes may not.

    Args:
        n_trials: schedules to try at most; five generations, 30 schedules, when None.
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
        precision: number format of products: "float32", "bfloat16", or "auto", float32 on a CPU and faster formats on a
            GPU, as accurate on MNIST with an MLP. Weights and losses are float32.
        method: one with a keep rate: coteaching, mentornet, coteaching+ or jocor, or an object with the interface
            `s2e.Method`; "auto" lets these four compete in the search. Where labels are imbalanced, the same share of
            every label is kept; "coteaching:by_class=true" or "…=false" decides it.
        space: the family of schedules: s2e, coteaching, single-1 … single-4, rbf or mlp, or an object with the
            interface `s2e.Space`.
        sampler: how schedules are chosen: curve, curve-dynamics, newton, newton-curve, natural or gradient; Optuna's
            random, tpe, gp, cmaes or hyperband; or any `optuna.samplers.BaseSampler`.
        generation_size: K, schedules trained at once, as one population; "auto": 6 on a CPU, on a GPU up to 32 if they
            take little longer than 6, at most a fifth of `n_trials`.
        time_budget: seconds, or a text such as "90s", "2m" or "1h", for the whole of `fit`: the search ends early
            enough for the final training. A time too short for one generation is refused after a short measurement.
        stop_early: end the search when no schedule is expected to be better by more than validation can tell.
        restarts: seeds of the final training, of which validation selects one.
        ensemble: members that vote together at most, chosen on validation among the restarts, fixed schedules and the
            best six trials; 1 for the selected restart alone.
        distil: whether to train one network on the probabilities of the ensemble, and to keep only that one.
        final_estimator: what predicts in the end. None for the networks; a classifier of scikit-learn, also a
            `Pipeline`, which is trained on the samples as they are given, with labels cleaned by the audit: rows
            weighted, dropped, relabelled, or left as they are, which of these by validation; "auto" for a vote of the
            networks and a few models (logistic regression, support vectors, extra trees, boosting, naive Bayes) on the
            encoded samples (sparse ones as they are). Their votes are chosen by the likelihood of the given labels,
            and the models are trained on the probabilities of the audit, which then uses all of them.
        scoring: what is maximised on validation: "accuracy", "balanced_accuracy" or "average_precision" (of the last of
            two classes, or mean over more).
        drop: columns of a table to leave out.
        text: columns of a table that are text; others are text where most values occur once and have three words or
            more on average. Models learn from the TF-IDF of words and of pieces of words, networks from projections.
        validation_share: share of the samples to hold out without `X_val`; a tenth, or up to a fifth of few, when None.
        sparse_components: columns that a sparse `X` with more of them is reduced to (truncated SVD); None keeps all.
        device: "cpu", "cuda", …, or "auto"; several separated by commas, as in "cuda:0,cuda:1", share the training.
        executor: "ray" to train on a Ray cluster: the one that this process has joined with `ray.init`, or a new one
            on this machine; this process when None.
        callbacks: objects of `s2e.Callback`, or names of ready ones: "tensorboard:DIR", "mlflow:URI", "wandb:PROJECT".
        n_jobs: threads on a CPU; the setting of PyTorch when None, all cores when -1.
        random_state: seed of everything that is drawn at random; pass an int for reproducible results.
        verbose: 1 to show progress.

    Attributes:
        classes_: (C,) the distinct labels.
        n_features_in_: F.
        feature_names_in_: names of the columns, where `X` has some.
        network_: name of the reference network, the chosen one with "auto"; None for a factory.
        schedule_: (T,) the keep rates found.
        method_: name of the method of the networks, the one found with "auto"; a loaded classifier has none.
        validation_accuracy_: accuracy, or what `scoring` names, of the selected restart, mean over the last epochs;
            with "noisy" validation the agreement with the relabelled samples.
        validation_: "clean" with `X_val`, else "noisy".
        study_: all trials, an Optuna study; a loaded classifier has none.
        status_: "complete", "stopped early" by `time_budget`, or "some members diverged"; a loaded classifier has none.
        label_quality_: (N,) probability that the given label is correct.
        suggested_labels_: (N,) the most probable labels.
        sample_weight_: (N,) weights of the samples for a model: those of the final estimator, or, without one, the
            probability that the label is correct.
        final_estimator_: the fitted final estimator, with labels 0 … C - 1; with "auto" a dictionary of the fitted
            models by name; None where the networks predict.
        final_name_, cleaning_: its name, and how the labels were cleaned: none, weight, drop, relabel or soft.
        label_issues_: indices of the labels that are probably wrong, the least probable first.
        noise_rate_: estimated share of wrong labels.
        noise_rate_interval_: (2,) ends of its 90% interval.
        transition_: (C, C) estimated probability that a sample of a class (row) has a label (column); empty, (0, 0),
            with more than 2,000 classes.
        transition_interval_: (2, C, C) ends of the 90% intervals of its entries; empty likewise.
        estimated_accuracy_: of the networks, or of networks and models, on correct labels, estimated from predictions
            for samples that they were not trained on; NaN if unknown. The command line does not print it.
        estimated_accuracy_interval_: (2,) ends of its 90% interval. It is not reliable: it held the test accuracy in
            62 of 75 fits (docs/results/own-data).
        audit_message_: says where the audit is not reliable; empty if there is nothing to say.
        annotators_: with labels of several annotators, a DataFrame with a row for each: `annotator`, `labels` (their
            number), `accuracy`, and the bounds of its 95% interval, `accuracy_low` and `accuracy_high`; else None.
            Arrays of N are then those of the samples that have a label.
        columns_: what became of every column of a table, a DataFrame: its name, its kind, how it is encoded, and its
            number of inputs.
        doubtful_classes_: classes that the networks have probably not learnt; none of their labels is an issue.

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
        time_budget: float | str | None = None,
        stop_early: bool = True,
        restarts: int = 3,
        ensemble: int = 6,
        distil: bool = False,
        final_estimator: Any = AUTO,
        scoring: str = "accuracy",
        validation_share: float | None = None,
        drop: Sequence[str] | None = None,
        text: Sequence[str] | None = None,
        sparse_components: int | None = 256,
        device: str = AUTO,
        executor: str | None = None,
        callbacks: Sequence[str | Callback] | None = None,
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
        self.time_budget = time_budget
        self.stop_early = stop_early
        self.restarts = restarts
        self.ensemble = ensemble
        self.distil = distil
        self.final_estimator = final_estimator
        self.scoring = scoring
        self.validation_share = validation_share
        self.drop = drop
        self.text = text
        self.sparse_components = sparse_components
        self.device = device
        self.executor = executor
        self.callbacks = callbacks
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

    @warns_in_python
    def fit(
        self, X: Any, y: Any = None, *, X_val: Any = None, y_val: Any = None, reviewed: Any = None, **refused: Any
    ) -> Self:
        """Search a schedule, train the classifier with it, audit the labels.

        Args:
            X: (N, F) numbers, dense or sparse, NaN where one is missing; a table of pandas, polars, pyarrow or
                `datasets` of Hugging Face, also with text, categories and dates; N texts; images, (N, H, W),
                (N, channels, H, W) or (N, H, W, channels), as uint8 or other numbers; or a map-style
                `torch.utils.data.Dataset`, which is read once, so that random transforms are drawn once for every
                sample.
            y: (N,) labels of any type, some of them wrong; or the name of the label column of a table. None for a
                dataset whose samples hold their labels: pairs, or dictionaries such as {"image": …, "label": …}. Or
                (N, annotators) labels of several annotators, with gaps (NaN, None, NA or -1): their consensus is
                trained on, and samples without any label are left out.
            X_val: samples with trusted labels, of the same kind as `X`.
            y_val: their labels.
            reviewed: correct labels of some samples, which replace those in `y` and are trusted: a dictionary or Series
                by position in `X`, from 0, or files of decisions, as the page of `s2e report` writes them.
            refused: no other argument is accepted.
        """
        began = time.monotonic()
        checks.refuse(refused)
        decisions = checks.decisions(reviewed)
        search, classifier = checks.search_spec(self), checks.classifier_spec(self)
        check_final_estimator(self.final_estimator)
        requested = self._training()
        execution = Execution(self.device, self.executor or LOCAL)
        check_choices(requested, self.method, execution, search)
        notify = callbacks_of(self.callbacks)
        seed = checks.seed(self.random_state)
        X, y = samples_and_labels(X, y)
        samples = checks.samples(self, X)
        crowd = checks.consensus(y, samples.shape[0])
        if crowd is not None:
            samples, y = checks.rows_of(samples, crowd.items), crowd.labels
        given = checks.labels(self, y, samples.shape[0])
        self.classes_, labels = np.unique(given, return_inverse=True)
        if len(self.classes_) < 2:
            raise InvalidInput(
                f"`y` must hold at least two classes, but got only one class, {self.classes_.tolist()[0]!r}."
            )
        self._encoder = self._fitted_encoder(samples, derive(seed, "features"))
        inputs = self._encoder.encode(samples)
        data = LabelledData(
            inputs,
            labels.astype(np.int64),
            _names(self.classes_),
            model_samples=self._sparse_or_text(samples, inputs),
        )
        if crowd is not None:
            data = replace(data, annotations=crowd.annotations_of(_texts(self.classes_)))
        decided = matched(decisions, data, None)
        train, valid = self._split(data, decided, X_val, y_val, seed)
        training = sized(requested, train)
        self.epochs_, self.batch_size_ = training.epochs, training.batch_size
        self.network_ = training.network if isinstance(training.network, str) else None
        with (
            self._threads(),
            quiet_optuna(),
            self._listener() as shown,
            notified(notify, self._started(), shown) as listener,
        ):
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
            plan = plan_for(task, search, training, seed, method=self.method)
            self.n_trials_, self.study_ = plan.trials, open_study(None, "search", {})
            final: dict[str, Any] = {"validation": self.validation_, "restarts": self.restarts}
            search_time = None
            if search.time_budget is not None or self.verbose:
                search_time = time_of_search(
                    task,
                    plan,
                    **final,
                    classifier=classifier,
                    budget=search.time_budget,
                    began=began,
                    advice=PARAMETERS,
                )
                search_time.check(self.epochs_)
            outcome = search_and_train(
                task,
                plan,
                self.study_,
                **final,
                classifier=classifier,
                search_time=search_time,
                listener=listener,
                stop_early=self.stop_early,
            )
            selected = outcome.selected[-1]
            diverged = bool(selected.trained.curves.diverged[selected.index])
            self.status_ = Status.of(stopped=outcome.stopped, diverged=diverged).value
            self.validation_accuracy_ = float(selected.trained.curves.last(VALIDATION)[selected.index])
            listener.metrics = {"validation_accuracy": self.validation_accuracy_, "trials": len(self.study_.trials)}
        self.schedule_, self.method_ = outcome.found.schedule, outcome.task.method.name
        self._classifier = outcome.ensemble.classifier(outcome.task)
        self._index = X.index if isinstance(X, (pd.DataFrame, pd.Series)) else None
        self.annotators_ = None if crowd is None else crowd.annotators
        if crowd is not None:
            self._index = crowd.items if self._index is None else self._index[crowd.items]
        self._given = with_decisions(data, decided).labels
        self._store_audit(audit(Evidence.from_records(outcome.records)), np.argsort(outcome.records["rows"]))
        with self._threads():
            model = outcome.models or self._fitted_model(X, X_val, samples, data, train, outcome)
        self._store_final(model)
        return self

    def _fitted_model(
        self,
        X: Any,
        X_val: Any,
        samples: Any,
        data: LabelledData,
        train: LabelledData,
        outcome: PipelineResult,
    ) -> FinalModel | None:
        """Return the final estimator of the caller, fitted; None where the networks predict."""
        if self.final_estimator is None or isinstance(self.final_estimator, str):
            return None
        score, valid = score_of(outcome.task.score), outcome.chosen_by
        own = self._model_samples(X, samples, data.inputs)
        if X_val is None:
            held = take(own, valid.rows)
        else:
            held = self._model_samples(X_val, checks.samples(self, X_val, encoder=self._encoder), valid.inputs)
        validation = held, valid.labels
        found = choose_cleaning(self.final_estimator, own, self._audited(), train.rows, validation, data.classes, score)
        if found is None:
            raise InvalidInput("`final_estimator` must have labels of two classes to train on, but got those of one.")
        return found

    def _store_final(self, model: FinalModel | PooledModels | None) -> None:
        self._model = model
        self.final_estimator_ = None if model is None else model.estimator
        self.final_name_ = NETWORKS if model is None else model.name
        self.cleaning_ = "none" if model is None else model.cleaning
        cleaning = model.cleaning if isinstance(model, FinalModel) else "weight"
        self.sample_weight_ = CLEANINGS[cleaning](self._audited()).weights

    def _audited(self) -> AuditedLabels:
        """Return the given labels and the result of their audit, in the order of the samples."""
        suggested = np.searchsorted(self.classes_, self.suggested_labels_).astype(np.int64)
        return AuditedLabels(self._given, self.label_quality_, suggested, self._confidence)

    def _model_samples(self, X: Any, samples: Any, inputs: NDArray[Any]) -> Any:
        """Return samples as the final estimator takes them.

        Args:
            X: as the caller gave them.
            samples: the same, checked.
            inputs: the same, encoded.
        """
        if isinstance(self.final_estimator, str):
            own = self._sparse_or_text(samples, inputs)
            return flat(inputs) if own is None else own
        return X if isinstance(X, pd.DataFrame) else flat(samples)

    def _sparse_or_text(self, samples: Any, inputs: NDArray[Any]) -> ModelSamples | None:
        """Return checked samples as models take them; None where these take the inputs."""
        if isinstance(self._encoder, TableEncoder):
            return self._encoder.model_samples(samples, inputs)
        return samples if sparse.issparse(samples) else None

    def _training(self) -> TrainingSpec:
        return TrainingSpec(
            self.network,
            self.epochs,
            self.batch_size,
            self.learning_rate,
            optimizer=self.optimizer,
            plan=self.plan,
            augment=self.augment,
            precision=self.precision,
        )

    def _inputs(self, X: Any) -> NDArray[Any]:
        """Encode samples as in training."""
        if isinstance(self._encoder, RunInputs):
            return self._encoder.encode(X)
        return self._encoder.encode(self._checked(samples_and_labels(X, None)[0]))

    def _checked(self, X: Any) -> Any:
        """Check samples as in training."""
        return checks.samples(self, X, encoder=self._encoder)

    def _fitted_encoder(self, samples: Any, seed: int) -> Encoder:
        if isinstance(samples, pd.DataFrame):
            is_only_text = list(samples.columns) == [TEXT] and samples[TEXT].dtype.kind not in "biufcmM"
            only_text = (TEXT,) if is_only_text else ()
            encoder = TableEncoder.fit(samples, drop=self.drop or (), text=self.text or only_text)
            if hasattr(self, "feature_names_in_"):  # columns of arrays have no names; see `columns_`
                encoder.log_left_out()
            return encoder
        if self.drop or self.text:
            raise InvalidInput(
                f"`drop` and `text` must be None unless `X` is a table, but got {self.drop or self.text}."
            )
        if sparse.issparse(samples):
            return SparseEncoder.fit(samples, self.sparse_components, seed % 2**32)
        return ImageEncoder.fit(samples)

    def _split(
        self, data: LabelledData, decided: Mapping[int, Decision], X_val: Any, y_val: Any, seed: int
    ) -> tuple[LabelledData, LabelledData]:
        """Return training and validation samples: the given ones, or a part held out."""
        X_val, y_val = samples_and_labels(X_val, y_val)
        if (X_val is None) != (y_val is None):
            raise InvalidInput("`X_val` and `y_val` must be given together, but got only one of them.")
        if X_val is None:
            self.validation_ = "noisy"
            share = default_share(len(data)) if self.validation_share is None else self.validation_share
            generator = np.random.default_rng(derive(seed, "split"))
            return hold_out_with_decisions(data, decided, share, generator)
        self.validation_ = "clean"
        samples = self._checked(X_val)
        inputs = self._encoder.encode(samples)
        trusted = checks.labels(self, y_val, len(inputs))
        unknown = np.setdiff1d(trusted, self.classes_)
        if len(unknown):
            raise InvalidInput(f"`y_val` must hold classes that are in `y`, but got others: {unknown[:5].tolist()}.")
        codes = np.searchsorted(self.classes_, trusted).astype(np.int64)
        own = self._sparse_or_text(samples, inputs)
        return with_decisions(data, decided), LabelledData(inputs, codes, data.class_names, model_samples=own)

    def _store_audit(self, found: LabelAudit, back: NDArray[np.int64]) -> None:
        """Store the result of the audit, reordered from the records to the samples by their positions `back`."""
        self.label_quality_ = found.quality[back]
        self.suggested_labels_ = self.classes_[found.suggested[back]]
        self._confidence = found.confidence[back]
        self._is_issue = found.issues[back]
        order = np.argsort(self.label_quality_, kind="stable")
        self.label_issues_ = order[self._is_issue[order]]
        self.noise_rate_ = found.noise_rate
        self.noise_rate_interval_ = np.array(found.noise_rate_interval)
        self.transition_, self.transition_interval_ = found.transition, found.transition_interval
        self.estimated_accuracy_ = found.accuracy
        self.estimated_accuracy_interval_ = np.array(found.accuracy_interval)
        self.audit_message_ = found.message
        self.doubtful_classes_ = self.classes_[found.doubtful]

    # Prediction

    @warns_in_python
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of every class, (N, C), of the vote of the networks or of the final estimator."""
        check_is_fitted(self)
        with self._threads():
            if isinstance(self._encoder, RunInputs):
                read = self._encoder.read(X)
                inputs = np.asarray(read.inputs)
                own = flat(inputs) if read.model_samples is None else read.model_samples
            else:
                X = samples_and_labels(X, None)[0]
                samples = self._checked(X)
                inputs = self._encoder.encode(samples)
                own = self._model_samples(X, samples, inputs)
            if self._model is None:
                return self._classifier.vote(inputs)
            return self._model.probabilities(own, lambda: self._classifier.vote(inputs))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of every sample, (N,)."""
        most_probable = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[most_probable])

    def find_label_issues(self) -> pd.DataFrame:
        """Return the result of the audit for every label, in the order of the samples.

        Columns as of `s2e.find_label_issues`: `is_label_issue`, `label_quality` (probability that the label is
        correct), `given_label`, `suggested_label` (the most probable label) and `confidence` (its probability). The
        index is that of `X` where it was a DataFrame.
        """
        check_is_fitted(self)
        return pd.DataFrame(
            {
                "is_label_issue": self._is_issue,
                "label_quality": self.label_quality_,
                "given_label": self.classes_[self._given],
                "suggested_label": self.suggested_labels_,
                "confidence": self._confidence,
            },
            index=self._index,
        )

    @property
    def columns_(self) -> pd.DataFrame:
        """What became of every column of a table: its name, its kind, how it is encoded, and its number of inputs."""
        check_is_fitted(self)
        return pd.DataFrame(column_uses(self._encoder), columns=[each.name for each in fields(ColumnUse)])

    @property
    def networks_(self) -> tuple[nn.Module, ...]:
        """The fitted modules, on the CPU in evaluation mode."""
        check_is_fitted(self)
        return self._classifier.networks

    def encode(self, X: Any) -> NDArray[Any]:
        """Return the inputs of the networks for samples, (N, ...), float32, or uint8 for pixels."""
        check_is_fitted(self)
        return self._inputs(X)

    def export_onnx(self, path: str | PathLike[str]) -> None:
        """Write the networks as an ONNX model from encoded samples to probabilities (`pip install 's2e[onnx]'`).

        Its input `features` is what `encode` returns, as float32, pixels divided by 255; its output `probabilities` is
        (N, C), the mean over the networks.
        """
        check_is_fitted(self)
        if isinstance(self._model, PooledModels):
            warnings.warn(f"the ONNX model holds the networks alone, not {self._model.name}", S2EWarning, stacklevel=2)
        export_onnx(self._classifier, path)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted classifier to one file (safetensors, no pickle)."""
        from s2e.estimator.persistence import save

        check_is_fitted(self)
        save(self, path)

    @classmethod
    def load(cls, path: str | PathLike[str], *, network: Callable[..., Any] | None = None) -> Self:
        """Read a file written by `save`, or the directory of a run of `s2e search` or `s2e train`.

        Args:
            path: the file or the directory. The classifier of a run takes samples as its data were read: a DataFrame
                with the columns of the table, an array, a sequence of images, or a path.
            network: the factory, if the classifier was fitted with one.
        """
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

    def _started(self) -> RunStarted:
        """Return the parameters for callbacks, with the chosen ones."""
        chosen = {"epochs": self.epochs_, "batch_size": self.batch_size_, "validation": self.validation_}
        given = {name: value for name, value in self.get_params(deep=False).items() if name != "callbacks"}
        plain = {
            name: value if isinstance(value, (str, int, float, type(None))) else repr(value)
            for name, value in given.items()
        }
        return RunStarted("fit", {**plain, **chosen})

    def _listener(self) -> Any:
        if not self.verbose:
            return nullcontext(SILENT)
        from rich.console import Console

        from s2e.workflows.progress import progress

        return progress(Console(stderr=True, highlight=False, soft_wrap=True))


def _texts(classes: NDArray[Any]) -> list[str]:
    return [value_text(value) for value in classes.tolist()]


def _names(classes: NDArray[Any]) -> tuple[str, ...]:
    names = tuple(map(str, classes.tolist()))
    return names if len(set(names)) == len(names) else tuple(map(str, range(len(classes))))
