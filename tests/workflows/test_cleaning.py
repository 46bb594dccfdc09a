"""Cleanings of audited labels: a case by hand, and labels that are all correct."""

from __future__ import annotations

import numpy as np

from s2e.workflows.cleaning import CLEANINGS, AuditedLabels

AUDITED = AuditedLabels(np.array([0, 1, 2]), np.array([0.9, 0.2, 1.0]), np.array([0, 2, 2]), np.array([0.9, 0.7, 1.0]))


def test_each_cleaning_by_hand():
    found = {name: (labels.tolist(), weights.tolist()) for name, (labels, weights) in cleaned(AUDITED).items()}
    assert found == {
        "none": ([0, 1, 2], [1, 1, 1]),
        "weight": ([0, 1, 2], [0.9, 0.2, 1]),
        "drop": ([0, 1, 2], [1, 0, 1]),
        "relabel": ([0, 2, 2], [0.9, 0.7, 1]),
    }


def test_correct_labels_are_left_as_they_are():
    labels = np.arange(4)
    for found, weights in cleaned(AuditedLabels(labels, np.ones(4), labels, np.ones(4))).values():
        np.testing.assert_array_equal(found, labels)
        np.testing.assert_array_equal(weights, 1)


def test_rows_are_taken():
    np.testing.assert_array_equal(AUDITED.take(np.array([2, 0])).given, [2, 0])


def cleaned(audited):
    return {name: clean(audited) for name, clean in CLEANINGS.items()}
