"""`s2e.find_label_issues`: labels of any type, predictions of any classifier."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import s2e
from s2e.audit.evidence import Evidence
from s2e.audit.label_model import audit
from s2e.errors import InvalidInput

GENERATOR = np.random.default_rng(0)
TRUTH = np.arange(300) % 3
WRONG = GENERATOR.random(300) < 0.2
CODES = np.where(WRONG, (TRUTH + 1) % 3, TRUTH)
NAMES = np.array(["bird", "cat", "dog"])
PROBABILITIES = 0.1 + GENERATOR.random((300, 3)) / 10 + 0.8 * np.eye(3)[TRUTH]
COLUMNS = ["is_label_issue", "label_quality", "given_label", "suggested_label", "confidence"]


def test_wrong_labels_are_found_and_correct_ones_suggested():
    found = s2e.find_label_issues(NAMES[CODES], PROBABILITIES)
    assert list(found.columns) == COLUMNS
    np.testing.assert_array_equal(found["is_label_issue"], WRONG)
    np.testing.assert_array_equal(found["suggested_label"], NAMES[TRUTH])
    np.testing.assert_array_equal(found["given_label"], NAMES[CODES])
    low, high = found.attrs["noise_rate_interval"]
    assert low <= WRONG.mean() <= high
    assert found.attrs["message"] == ""
    assert found.attrs["class_names"] == NAMES.tolist()


def test_table_is_that_of_the_audit():
    found = s2e.find_label_issues(CODES, PROBABILITIES)
    expected = audit(Evidence(CODES, PROBABILITIES[None], np.zeros(300), np.empty((0, 300))))
    np.testing.assert_array_equal(found["label_quality"], expected.quality)
    np.testing.assert_array_equal(found["confidence"], expected.confidence)
    assert found.attrs["noise_rate"] == expected.noise_rate
    np.testing.assert_array_equal(found.attrs["transition_interval"], expected.transition_interval)
    assert json.loads(json.dumps(found.attrs)) == found.attrs


@pytest.mark.parametrize(
    "labels",
    [
        CODES.tolist(),
        CODES + 5,
        NAMES[CODES].tolist(),
        NAMES[CODES].astype(object),
        pd.Series(NAMES[CODES]),
        pd.Series(NAMES[CODES], dtype="category"),
        CODES / 2,
    ],
    ids=["list", "integers", "texts", "objects", "series", "categories", "floats"],
)
def test_labels_may_have_any_type(labels):
    found = s2e.find_label_issues(labels, PROBABILITIES)
    np.testing.assert_array_equal(found["is_label_issue"], WRONG)
    np.testing.assert_array_equal(found["given_label"], np.asarray(labels))


def test_index_of_a_series_is_kept():
    labels = pd.Series(NAMES[CODES], index=np.arange(300)[::-1])
    pd.testing.assert_index_equal(s2e.find_label_issues(labels, PROBABILITIES).index, labels.index)


def test_columns_may_have_any_order_with_class_names():
    order = [2, 0, 1]
    found = s2e.find_label_issues(NAMES[CODES], PROBABILITIES[:, order], class_names=NAMES[order])
    np.testing.assert_array_equal(found["suggested_label"], NAMES[TRUTH])


def test_class_without_labels_is_possible():
    wider = np.concatenate([PROBABILITIES, np.full((300, 1), 1e-3)], axis=1)
    for found in (
        s2e.find_label_issues(CODES, wider),
        s2e.find_label_issues(NAMES[CODES], wider, class_names=[*NAMES, "fish"]),
    ):
        assert (found["is_label_issue"] == WRONG).mean() > 0.98


def test_predictions_of_several_classifiers_are_averaged():
    several = np.stack([PROBABILITIES, PROBABILITIES])
    pd.testing.assert_frame_equal(
        s2e.find_label_issues(CODES, several), s2e.find_label_issues(CODES, PROBABILITIES), check_exact=False
    )


def test_wrong_arguments_are_refused():
    cases = [
        ((CODES[:-1], PROBABILITIES), {}, r"`pred_probs` must be \(N, C\) or \(M, N, C\).*\(300, 3\).*\(299,\)"),
        ((CODES, PROBABILITIES[:, 0]), {}, "`pred_probs` must be"),
        ((NAMES[CODES], PROBABILITIES[:, :2]), {}, "one distinct label for each of the 2 columns.*pass `class_names`"),
        ((NAMES[CODES], PROBABILITIES), {"class_names": ["cat", "dog"]}, "`class_names` must be 3 different labels"),
        ((NAMES[CODES], PROBABILITIES), {"class_names": ["cat", "dog", "fish"]}, r"but got \['bird'\] too"),
        ((CODES, np.full((300, 3), np.nan)), {}, "`probabilities` must be finite"),
    ]
    for arguments, named, message in cases:
        with pytest.raises(InvalidInput, match=message):
            s2e.find_label_issues(*arguments, **named)
