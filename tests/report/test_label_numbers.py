"""Confusion, class balance and reliability of a label audit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import report_runs as runs
from s2e.audit.run_audit import AuditedRun, audit_run
from s2e.report.figures import reliability_figure
from s2e.report.label_numbers import MAX_CLASSES, balance, confusion, reliability
from s2e.runs.directory import Run


@pytest.fixture(scope="module")
def audited() -> AuditedRun:
    return audit_run(Run.open(runs.images()))


def with_labels(audited: AuditedRun, given: list[int], estimated: list[int], classes: int) -> AuditedRun:
    labels, suggested = np.array(given), np.array(estimated)
    quality = np.where(labels == suggested, 0.9, 0.1)
    found = replace(audited.audit, suggested=suggested, quality=quality, issues=quality < 0.5)
    names = tuple(f"class {index}" for index in range(classes))
    return replace(audited, labels=labels, audit=found, class_names=names, reviewed=np.zeros(len(labels), dtype=bool))


def test_confusion_and_balance_count_all_labels(audited):
    found = with_labels(audited, [0, 0, 0, 1, 2, 2], [0, 1, 1, 1, 2, 0], 3)
    assert confusion(found).rows == ((1, 2, 0), (0, 1, 0), (1, 0, 1))
    np.testing.assert_allclose(confusion(found).shares[0], [1 / 3, 2 / 3, 0])
    assert [(each.given, each.estimated) for each in balance(found).counts] == [(3, 2), (1, 3), (2, 1)]
    assert balance(found).largest == 3


def test_of_many_classes_those_with_the_most_errors_are_shown(audited):
    classes = MAX_CLASSES + 10
    given = [*range(classes), *range(10, classes)]
    estimated = [*range(classes), *(10 + (label - 9) % (classes - 10) for label in range(10, classes))]
    found = with_labels(audited, given, estimated, classes)
    shown = confusion(found)
    assert (shown.names, shown.total) == (found.class_names[10:], classes)
    assert np.sum(shown.rows) == 2 * (classes - 10)


def test_reliability_compares_qualities_with_true_labels(audited):
    found = with_labels(audited, [0, 0, 0, 1], [0, 1, 0, 0], 2)
    assert reliability(replace(found, true=None)) is None
    known = reliability(replace(found, true=np.array([0, 1, 1, 1])))
    np.testing.assert_allclose(known.quality, [0.1, 0.9])
    np.testing.assert_allclose(known.correct, [0.5, 0.5])
    assert known.counts.tolist() == [2, 2]
    reviewed = replace(found, true=np.array([0, 1, 1, 1]), reviewed=np.array([False, False, True, False]))
    np.testing.assert_allclose(reliability(reviewed).correct, [0.5, 1.0])
    assert reliability(replace(reviewed, reviewed=np.ones(4, dtype=bool))) is None


def test_the_figure_has_a_row_for_each_interval(audited):
    known = reliability(audited)
    figure = reliability_figure(known)
    assert sum(int(row[2]) for row in figure.rows) == len(audited.ids)
    assert len(figure.rows) == len(known.counts)
    assert "<svg" in figure.drawing
