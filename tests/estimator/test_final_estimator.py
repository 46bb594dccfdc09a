"""Final estimators: trained on cleaned labels, chosen by validation, weights passed on, saved or refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from fitted_classifiers import fitted as classifier
from fitted_classifiers import three_blobs
from s2e import S2EClassifier
from s2e.engine.scores import accuracy
from s2e.errors import InvalidInput, InvalidType
from s2e.estimator.final_estimator import choose_cleaning, fitted, probabilities_of, weight_parameter
from s2e.workflows.cleaning import AuditedLabels


class Recorded(ClassifierMixin, BaseEstimator):
    """Records what it is fitted to, and predicts the first class."""

    def fit(self, X, y, sample_weight=None):
        self.classes_, self.fitted_to_ = np.unique(y), (X, y, sample_weight)
        return self

    def predict(self, X):
        return np.full(len(X), self.classes_[0])


def no_vote():
    raise AssertionError("the networks were asked")


def noisy_blobs(share=0.3):
    samples, truth = three_blobs()
    generator = np.random.default_rng(0)
    wrong = generator.random(len(truth)) < share
    return samples, np.where(wrong, (truth + 1) % 3, truth), truth


def perfect_audit(given, truth):
    right = given == truth
    return AuditedLabels(given, np.where(right, 1.0, 0.0), truth, np.ones(len(truth)))


def test_weights_reach_the_model_and_rows_without_one_are_left_out():
    samples, labels, weights = np.arange(8.0).reshape(4, 2), np.array([0, 1, 0, 1]), np.array([0.5, 1.0, 0.0, 0.2])
    X, y, given = fitted(Recorded(), samples, labels, weights).fitted_to_
    np.testing.assert_array_equal(X, samples[[0, 1, 3]])
    np.testing.assert_array_equal(y, [0, 1, 1])
    np.testing.assert_array_equal(given, [0.5, 1.0, 0.2])


def test_a_pipeline_passes_weights_to_its_last_step():
    pipeline = make_pipeline(StandardScaler(), make_pipeline(StandardScaler(), LogisticRegression()))
    assert weight_parameter(pipeline) == "pipeline__logisticregression__sample_weight"
    assert weight_parameter(make_pipeline(StandardScaler(), KNeighborsClassifier())) is None


def test_cleaned_labels_give_the_model_of_the_true_ones():
    samples, given, truth = noisy_blobs()
    rows = np.arange(len(given))
    train, held = rows[::2], rows[1::2]
    model = LogisticRegression()
    found = choose_cleaning(
        model, samples, perfect_audit(given, truth), train, (samples[held], truth[held]), 3, accuracy
    )
    assert found is not None
    assert found.cleaning != "none"
    best = (model.fit(samples, truth).predict(samples) == truth).mean()
    assert (found.probabilities(samples, no_vote).argmax(axis=1) == truth).mean() > best - 0.02


def test_classes_that_were_dropped_have_probability_zero():
    model = LogisticRegression().fit(np.eye(4), [0, 2, 0, 2])
    found = probabilities_of(model, np.eye(4), 3)
    np.testing.assert_array_equal(found[:, 1], 0)
    np.testing.assert_allclose(found.sum(axis=1), 1)


@pytest.mark.parametrize("classes", [2, 3])
def test_decisions_keep_their_order(classes):
    samples, labels = three_blobs()
    rows = labels < classes
    model = SVC(break_ties=True).fit(samples[rows], labels[rows])
    found = probabilities_of(model, samples, 3)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    np.testing.assert_array_equal(found.argmax(axis=1), model.predict(samples))


def test_without_two_classes_there_is_no_model():
    one = np.zeros(4, dtype=np.int64)
    audited = AuditedLabels(one, np.ones(4), one, np.ones(4))
    found = choose_cleaning(LogisticRegression(), np.eye(4), audited, np.arange(3), (np.eye(4), one), 2, accuracy)
    assert found is None


@pytest.mark.parametrize("model", [LogisticRegression(), make_pipeline(StandardScaler(), LogisticRegression())])
def test_a_model_that_is_passed_predicts(model):
    samples, given, truth = noisy_blobs()
    found = classifier(samples, given, final_estimator=model, epochs=8)
    assert found.final_name_ == type(model).__name__
    assert found.sample_weight_.shape == given.shape
    assert found.score(samples, truth) > 0.85
    np.testing.assert_allclose(found.predict_proba(samples).sum(axis=1), 1)


def test_a_model_receives_the_frame_that_was_given():
    samples, given, _ = noisy_blobs()
    frame = pd.DataFrame(samples).rename(columns=str).assign(kind=pd.Categorical(given % 2))
    found = classifier(frame, given, final_estimator=Recorded())
    assert isinstance(found.final_estimator_.fitted_to_[0], pd.DataFrame)
    assert found.predict(frame).tolist() == [0] * len(frame)


@pytest.mark.parametrize("as_sparse", [False, True])
def test_auto_is_saved_and_loaded(tmp_path, as_sparse):
    samples, given, _ = noisy_blobs()
    samples = sparse.csr_matrix(samples) if as_sparse else samples
    found = classifier(samples, given, final_estimator="auto")
    found.save(tmp_path / "saved")
    again = S2EClassifier.load(tmp_path / "saved")
    assert (again.final_name_, again.cleaning_) == (found.final_name_, found.cleaning_)
    np.testing.assert_allclose(again.predict_proba(samples), found.predict_proba(samples), rtol=1e-6)


def test_a_model_that_was_passed_is_not_saved(tmp_path):
    samples, given, _ = noisy_blobs()
    found = classifier(samples, given, final_estimator=LogisticRegression())
    with pytest.raises(InvalidInput, match="joblib or skops"):
        found.save(tmp_path / "saved")


@pytest.mark.parametrize("other", ["best", 3, LogisticRegression])
def test_other_objects_are_refused(other):
    with pytest.raises(InvalidType, match="`final_estimator` must be None"):
        S2EClassifier(final_estimator=other).fit(*three_blobs())
