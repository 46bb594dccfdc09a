"""Beliefs of networks and labels of several annotators, combined; the audit of such evidence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from crowds import confusion_of, labelled_by, triples_of
from s2e.audit.crowds import annotated_posterior
from s2e.audit.evidence import Evidence
from s2e.audit.label_model import audit
from s2e.data.dawid_skene import dawid_skene
from s2e.errors import InvalidInput

SAMPLES, CLASSES = 600, 3
GENERATOR = np.random.default_rng(5)
TRUTH = GENERATOR.integers(CLASSES, size=SAMPLES)
ALL = np.tile(np.arange(CLASSES), (SAMPLES, 1))


def beliefs(accuracy: float, *, power: float = 1.0) -> np.ndarray:
    """Calibrated beliefs of a classifier of about this accuracy, raised to a power."""
    strength = 2 * accuracy * GENERATOR.random((SAMPLES, 1)) * (np.arange(CLASSES) == TRUTH[:, None])
    logits = 4 * strength + GENERATOR.normal(size=(SAMPLES, CLASSES))
    belief = np.exp(logits * power)
    return belief / belief.sum(axis=1, keepdims=True)


def annotations(accuracies, gaps=0.0):
    table = labelled_by(TRUTH, np.stack([confusion_of(each, CLASSES) for each in accuracies]), gaps=gaps)
    return np.stack(triples_of(table), axis=1)


def combined(belief, labels, **options):
    return annotated_posterior(belief, ALL, labels, CLASSES, **options)


def accuracy(posterior):
    return (posterior.argmax(axis=1) == TRUTH).mean()


def test_both_kinds_of_evidence_are_better_than_each():
    belief, labels = beliefs(0.6), annotations((0.7, 0.6, 0.6))
    posterior, _ = combined(belief, labels)
    alone = dawid_skene(*labels.T, (SAMPLES, 3, CLASSES)).posterior
    assert accuracy(posterior) > max(accuracy(belief), accuracy(alone)) + 0.03
    np.testing.assert_allclose(posterior.sum(axis=1), 1)


def test_uniform_beliefs_leave_it_to_the_annotators():
    labels = annotations((0.8, 0.7, 0.6, 0.6))
    posterior, _ = combined(np.full((SAMPLES, CLASSES), 1 / CLASSES), labels, temperature=1.0)
    alone = dawid_skene(*labels.T, (SAMPLES, 4, CLASSES)).posterior
    assert (posterior.argmax(axis=1) == alone.argmax(axis=1)).mean() > 0.97


def test_certain_beliefs_decide():
    posterior, _ = combined(np.eye(CLASSES)[TRUTH], annotations((0.4, 0.4)), temperature=1.0)
    np.testing.assert_allclose(posterior, np.eye(CLASSES)[TRUTH])


def test_overconfident_beliefs_are_tempered():
    labels = annotations((0.75, 0.7, 0.65))
    belief = beliefs(0.6)
    sharp = belief**4 / (belief**4).sum(axis=1, keepdims=True)
    _, mild = combined(belief, labels)
    posterior, strong = combined(sharp, labels)
    assert strong == pytest.approx(4 * mild, rel=0.35)
    assert posterior.max(axis=1).mean() == pytest.approx(accuracy(posterior), abs=0.05)


def test_a_part_of_the_samples_gives_about_the_same_temperature(monkeypatch):
    belief, labels = beliefs(0.6), annotations((0.75, 0.7, 0.65))
    _, of_all = combined(belief, labels)
    monkeypatch.setattr("s2e.audit.crowds._ROUGH_SIZE", SAMPLES * CLASSES // 3)
    posterior, of_part = combined(belief, labels)
    assert of_part != of_all
    assert of_part == pytest.approx(of_all, rel=0.3)
    assert len(posterior) == SAMPLES


def test_single_labels_are_judged_by_the_beliefs():
    table = np.where(np.arange(4) == (np.arange(SAMPLES) % 4)[:, None], TRUTH[:, None], -1)
    wrong = np.arange(SAMPLES) % 8 == 1  # half of the labels of one annotator
    table[wrong] = np.where(table[wrong] >= 0, (table[wrong] + 1) % CLASSES, -1)
    labels = np.stack(triples_of(table), axis=1)
    posterior, _ = combined(beliefs(0.9), labels)
    assert accuracy(posterior) > 0.95


def test_classes_that_are_no_candidates_have_no_belief():
    belief, labels = beliefs(0.6), annotations((0.7, 0.6, 0.6))
    two = np.sort(np.argsort(belief, axis=1)[:, 1:], axis=1)
    shares = np.take_along_axis(belief, two, axis=1)
    shares /= shares.sum(axis=1, keepdims=True)
    posterior, _ = annotated_posterior(shares, two, labels, CLASSES, temperature=1.0)
    full = np.zeros((SAMPLES, CLASSES))
    np.put_along_axis(full, two, shares, axis=1)
    expected, _ = combined(full, labels, temperature=1.0)
    np.testing.assert_allclose(posterior, np.take_along_axis(expected, two, axis=1))


def test_numbers_of_annotators_may_be_any():
    belief, labels = beliefs(0.6), annotations((0.7, 0.6, 0.6))
    expected, _ = combined(belief, labels, temperature=1.0)
    found, _ = combined(belief, labels * [1, 2**60, 1], temperature=1.0)
    np.testing.assert_array_equal(found, expected)


# The audit


def evidence(labels):
    """Evidence of networks that were trained on no sample, whose given labels are the consensus of the annotators."""
    consensus = dawid_skene(*labels.T, (SAMPLES, labels[:, 1].max() + 1, CLASSES)).posterior.argmax(axis=1)
    return Evidence(consensus, beliefs(0.7)[None], np.zeros(SAMPLES), np.full((1, SAMPLES), np.nan), labels)


def test_an_audit_with_annotators_finds_more_than_one_with_their_consensus():
    given = evidence(annotations((0.75, 0.65, 0.55), gaps=0.2))
    wrong = given.labels != TRUTH
    found, without = audit(given), audit(replace(given, annotations=None))

    def f1(issues):
        return 2 * (issues & wrong).sum() / (issues.sum() + wrong.sum())

    assert f1(found.issues) > f1(without.issues) + 0.02
    assert (found.suggested == TRUTH).mean() > (given.labels == TRUTH).mean() + 0.05
    assert found.noise_rate == pytest.approx(wrong.mean(), abs=0.05)


@pytest.mark.parametrize(
    "labels",
    [
        np.zeros((0, 3), dtype=np.int64),
        np.zeros((4, 2), dtype=np.int64),
        np.array([[SAMPLES, 0, 0]]),
        np.array([[0, 0, 3]]),
    ],
    ids=["empty", "columns", "sample", "class"],
)
def test_annotations_that_do_not_fit_are_refused(labels):
    given = evidence(annotations((0.7, 0.7)))
    with pytest.raises(InvalidInput, match="`annotations` must"):
        replace(given, annotations=labels)
