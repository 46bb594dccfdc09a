"""`S2EClassifier.fit` with labels of several annotators."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import s2e
from crowds import confusion_of, labelled_by
from fitted_classifiers import POOL, fitted, three_blobs
from s2e import S2EClassifier
from s2e.errors import InvalidInput, S2EWarning

X, TRUTH = three_blobs(240)
LABELS = labelled_by(TRUTH, np.stack([confusion_of(each, 3) for each in (0.9, 0.65, 0.6)]), gaps=0.2)
LABELS = np.where((LABELS < 0).all(axis=1, keepdims=True), TRUTH[:, None], LABELS)


def test_the_consensus_is_trained_on_and_annotators_are_described():
    found = fitted(X, LABELS, epochs=40, learning_rate=1e-2, **POOL)
    expected = s2e.aggregate_labels(LABELS)
    np.testing.assert_array_equal(found.find_label_issues()["given_label"], expected.labels)
    pd.testing.assert_frame_equal(found.annotators_, expected.annotators)
    wrong = expected.labels != TRUTH
    assert wrong.mean() > 0.08
    assert (found.suggested_labels_ == TRUTH).mean() > 1 - wrong.mean() / 2
    assert found.predict(X).dtype == np.int64


@pytest.fixture(scope="module")
def expected():
    return fitted(X, LABELS)


@pytest.mark.parametrize("kind", ["float", "object", "frame", "text"])
def test_gaps_of_any_kind_give_the_same_classifier(kind, expected):
    gaps = LABELS < 0
    given = {
        "float": np.where(gaps, np.nan, LABELS),
        "object": np.where(gaps, None, LABELS),
        "frame": pd.DataFrame(LABELS).astype("Int64").mask(gaps),
        "text": np.where(gaps, None, np.array(["a", "b", "c"], dtype=object)[LABELS]),
    }[kind]
    found = fitted(X, given)
    np.testing.assert_array_equal(found.predict_proba(X), expected.predict_proba(X))
    np.testing.assert_array_equal(found.label_quality_, expected.label_quality_)
    assert found.classes_.tolist() == (["a", "b", "c"] if kind == "text" else [0, 1, 2])


@pytest.mark.parametrize(
    "made_of",
    [
        lambda rows: rows,
        sparse.csr_matrix,
        lambda rows: pd.DataFrame(rows, index=range(1000, 1240), columns=list("abcd")),
    ],
    ids=["array", "sparse", "frame"],
)
def test_samples_without_a_label_are_left_out_with_a_line(made_of):
    gaps = LABELS.copy()
    gaps[[3, 100]] = -1
    samples = made_of(X)
    with pytest.warns(S2EWarning, match="^2 of 240 items have no label of any annotator and are left out: 3, 100$"):
        found = fitted(samples, gaps)
    index = np.arange(240) if not isinstance(samples, pd.DataFrame) else samples.index.to_numpy()
    assert found.find_label_issues().index.tolist() == np.delete(index, [3, 100]).tolist()
    assert len(found.label_quality_) == 238
    assert len(found.predict(samples)) == 240


def test_one_label_for_each_sample_has_no_annotators():
    assert fitted(X, TRUTH).annotators_ is None


def test_annotators_are_saved(tmp_path, expected):
    expected.save(tmp_path / "saved")
    pd.testing.assert_frame_equal(S2EClassifier.load(tmp_path / "saved").annotators_, expected.annotators_)
    fitted(X, TRUTH).save(tmp_path / "plain")
    assert S2EClassifier.load(tmp_path / "plain").annotators_ is None


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.eye(3)[TRUTH], "one-hot rows; pass y.argmax"),
        (LABELS[:100], "labels for each of the 240 samples, but got 100 rows"),
        (np.where(np.arange(3) == 1, LABELS, -1), "`y` must hold labels of at least two annotators"),
    ],
    ids=["one-hot", "rows", "one annotator"],
)
def test_labels_that_cannot_be_aggregated_are_refused(y, message):
    with pytest.raises(InvalidInput) as caught:
        fitted(X, y)
    assert message in str(caught.value)
