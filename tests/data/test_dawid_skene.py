"""True classes and annotators' confusion: a hand-worked iteration, votes, simulated and adversarial annotators."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from crowds import confusion_of, labelled_by, triples_of
from s2e.data.dawid_skene import annotator_accuracy, dawid_skene

TRUTH = np.random.default_rng(1).integers(3, size=400)


def estimated(table, classes=3, **options):
    return dawid_skene(*triples_of(table), (*table.shape, classes), **options)


def majority(table, classes=3):
    return np.stack([(table == label).sum(axis=1) for label in range(classes)], axis=1)


# The iteration


def test_one_iteration_is_that_worked_by_hand():
    # Three items, two annotators; the shares of labels are (1, 0), (1/2, 1/2), (0, 1).
    found = estimated(np.array([[0, 0], [0, 1], [1, 1]]), 2, shrinkage=0.0, max_iterations=1)
    # Annotator 0 labelled 0, 0, 1: of class 0 in 1 + 1/2 of 3/2, of class 1 in 1/2 and 1 of 3/2.
    np.testing.assert_allclose(found.confusion(0), [[1, 0], [1 / 3, 2 / 3]])
    np.testing.assert_allclose(found.confusion(1), [[2 / 3, 1 / 3], [0, 1]])
    # Both classes have the share 1/2. Item 1: 1 · 1/3 for class 0, 1/3 · 1 for class 1. Item 0: 1 · 2/3 and 1/3 · 0.
    np.testing.assert_allclose(found.posterior, [[1, 0], [0.5, 0.5], [0, 1]])
    assert found.log_likelihood == pytest.approx(np.log(1 / 3) + np.log(1 / 3) + np.log(1 / 3))
    assert (found.iterations, found.converged) == (1, False)


def plain_dawid_skene(table, classes, iterations):
    """The textbook's sums, one by one."""
    items, annotators = table.shape
    votes = majority(table, classes)
    posterior = votes / votes.sum(axis=1, keepdims=True)
    for _ in range(iterations):
        confusion = np.zeros((annotators, classes, classes))
        for i, a, j in product(range(items), range(annotators), range(classes)):
            if table[i, a] >= 0:
                confusion[a, j, table[i, a]] += posterior[i, j]
        confusion /= confusion.sum(axis=2, keepdims=True)
        shares = posterior.mean(axis=0)
        for i, j in product(range(items), range(classes)):
            given = [confusion[a, j, table[i, a]] for a in range(annotators) if table[i, a] >= 0]
            posterior[i, j] = shares[j] * np.prod(given)
        posterior /= posterior.sum(axis=1, keepdims=True)
    return posterior, confusion


def test_without_shrinkage_it_is_dawid_and_skenes():
    table = labelled_by(TRUTH[:60], np.stack([confusion_of(each, 3) for each in (0.9, 0.7, 0.6, 0.5)]), gaps=0.2)
    table = table[(table >= 0).any(axis=1)]
    posterior, confusion = plain_dawid_skene(table, 3, 7)
    found = estimated(table, shrinkage=0.0, tolerance=0.0, max_iterations=7)
    np.testing.assert_allclose(found.posterior, posterior, atol=1e-12)
    np.testing.assert_allclose([found.confusion(each) for each in range(4)], confusion, atol=1e-12)


def test_iterations_never_lower_the_likelihood_without_shrinkage():
    table = labelled_by(TRUTH, np.stack([confusion_of(each, 3) for each in (0.8, 0.6, 0.5)]))
    likelihoods = [estimated(table, shrinkage=0.0, max_iterations=each).log_likelihood for each in range(1, 12)]
    assert (np.diff(likelihoods) > -1e-9).all()


def test_the_end_of_the_iteration_is_reported():
    table = labelled_by(TRUTH, np.stack([confusion_of(0.7, 3)] * 3))
    assert not estimated(table, max_iterations=2).converged
    found = estimated(table)
    assert found.converged
    assert found.iterations < 200


# Degenerate cases


@pytest.mark.parametrize("classes", [2, 3])
def test_annotators_that_are_alike_are_outvoted_by_the_majority(classes):
    # All tables of three labels, more of those that agree: no annotator and no class differs from the others.
    rows = [row for row in product(range(classes), repeat=3) for _ in range({1: 9, 2: 2, 3: 1}[len(set(row))])]
    table = np.array(rows)
    votes = majority(table, classes)
    decided = votes.max(axis=1) >= 2
    for shrinkage in (0.0, 8.0):
        found = estimated(table, classes, shrinkage=shrinkage)
        np.testing.assert_array_equal(found.posterior.argmax(axis=1)[decided], votes.argmax(axis=1)[decided])
        np.testing.assert_allclose(found.confusion(0), found.confusion(2), atol=1e-9)


def test_one_label_for_each_item_is_its_class():
    labels = TRUTH[:40]
    table = np.full((40, 4), -1)
    table[np.arange(40), np.arange(40) % 4] = labels
    found = estimated(table)
    np.testing.assert_array_equal(found.posterior, np.eye(3)[labels])
    assert found.converged
    assert not found.compared.any()


def test_repeated_labels_of_one_annotator_are_not_compared():
    items, annotators, labels = np.array([0, 0, 1, 1]), np.array([0, 0, 0, 1]), np.array([0, 1, 0, 0])
    np.testing.assert_array_equal(dawid_skene(items, annotators, labels, (2, 2, 2)).compared, [False, True])


def test_items_without_labels_have_the_class_shares_or_the_belief():
    table = labelled_by(TRUTH, np.stack([confusion_of(0.8, 3)] * 3))
    table[7] = -1
    np.testing.assert_allclose(estimated(table).posterior[7], np.bincount(TRUTH) / 400, atol=0.06)
    belief = np.full((400, 3), 1 / 3)
    belief[7] = [0.2, 0.5, 0.3]
    np.testing.assert_allclose(estimated(table, belief=belief).posterior[7], belief[7])


def test_certain_beliefs_are_kept():
    table = labelled_by(TRUTH, np.stack([confusion_of(0.4, 3)] * 3))
    found = estimated(table, belief=np.eye(3)[TRUTH])
    np.testing.assert_allclose(found.posterior, np.eye(3)[TRUTH])


# Annotators


def test_confusion_matrices_of_simulated_annotators_are_recovered():
    generator = np.random.default_rng(2)
    truth = generator.integers(3, size=3000)
    confusion = 0.6 * np.eye(3) + 0.4 * generator.dirichlet(np.ones(3), size=(6, 3))
    found = estimated(labelled_by(truth, confusion, gaps=0.2))
    np.testing.assert_allclose([found.confusion(each) for each in range(6)], confusion, atol=0.06)
    np.testing.assert_allclose(found.confusion(0).sum(axis=1), 1)


def test_one_expert_among_guessers_beats_the_majority():
    confusion = np.stack([confusion_of(0.97, 3), *[confusion_of(0.42, 3)] * 5])
    table = labelled_by(TRUTH, confusion)
    by_vote = (majority(table).argmax(axis=1) == TRUTH).mean()
    found = (estimated(table).posterior.argmax(axis=1) == TRUTH).mean()
    assert by_vote < 0.75
    assert found > 0.93


def test_adversarial_and_constant_annotators_do_no_harm():
    adversarial = np.roll(np.eye(3), 1, axis=1)  # always the next class
    constant = np.tile([0.0, 0.0, 1.0], (3, 1))
    confusion = np.stack([*[confusion_of(0.8, 3)] * 4, adversarial, constant])
    table = labelled_by(TRUTH, confusion)
    found = estimated(table)
    assert (found.posterior.argmax(axis=1) == TRUTH).mean() > (majority(table).argmax(axis=1) == TRUTH).mean() + 0.03
    assert np.diag(found.confusion(4)).max() < 0.1
    assert found.confusion(5)[:, 2].min() > 0.85


def test_annotators_with_few_labels_are_shrunk_to_all_others():
    table = np.full((400, 7), -1)
    table[:, :5] = labelled_by(TRUTH, np.stack([confusion_of(0.7, 3)] * 5))
    table[np.flatnonzero(TRUTH == 0)[:2], 5] = 0  # two labels, both correct
    table[:100, 6] = TRUTH[:100]  # a hundred
    found = estimated(table)
    few, many = (np.diag(found.confusion(each)).mean() for each in (5, 6))
    assert 0.7 < few < 0.85 < many
    unseen = found.confusion(5)[1]  # of a class that it has not labelled
    assert unseen.max() > 0.6
    assert (unseen > 0).all()


def test_posteriors_are_calibrated_where_annotators_have_few_labels():
    generator = np.random.default_rng(4)
    truth = generator.integers(4, size=900)
    confusion = np.stack([confusion_of(each, 4) for each in generator.beta(4, 2, size=90)])
    table = labelled_by(truth, confusion, gaps=1 - 3 / 90)
    kept = (table >= 0).sum(axis=1) >= 2
    found = estimated(table[kept], 4)
    assert found.posterior.max(axis=1).mean() == pytest.approx(
        (found.posterior.argmax(axis=1) == truth[kept]).mean(), abs=0.06
    )


def test_large_chunks_and_small_ones_give_the_same(monkeypatch):
    table = labelled_by(TRUTH, np.stack([confusion_of(0.7, 3)] * 4))
    whole = estimated(table).posterior
    monkeypatch.setattr("s2e.data.dawid_skene._CHUNK", 30)
    np.testing.assert_allclose(estimated(table).posterior, whole, atol=1e-12)


# Accuracies


def test_intervals_of_known_labels_are_binomial():
    items, correct = np.arange(50), np.array([1.0] * 45 + [0.0] * 5)
    accuracy, low, high = annotator_accuracy(items, np.zeros(50, dtype=np.int64), correct, (50, 1, 2))
    assert accuracy[0] == 0.9
    assert 0.78 < low[0] < 0.82
    assert 0.95 < high[0] < 0.98


def test_intervals_without_information_are_wide():
    items, annotators = np.arange(500), np.zeros(500, dtype=np.int64)
    accuracy, low, high = annotator_accuracy(items, annotators, np.full(500, 0.7), (500, 1, 2))
    assert accuracy[0] == pytest.approx(0.7)
    assert low[0] < 0.01
    assert high[0] > 0.99


def simulated_intervals(accuracies, gaps, seed):
    truth = np.random.default_rng(seed).integers(3, size=300)
    table = labelled_by(truth, np.stack([confusion_of(each, 3) for each in accuracies]), gaps=gaps, seed=seed)
    items, annotators, labels = triples_of(table)
    found = dawid_skene(items, annotators, labels, (*table.shape, 3))
    return annotator_accuracy(items, annotators, found.posterior[items, labels], (*table.shape, 3))


def test_intervals_hold_the_accuracy_of_most_simulated_annotators():
    held = []
    for seed in range(8):
        accuracies = np.random.default_rng(seed).uniform(0.4, 0.95, size=12)
        _, low, high = simulated_intervals(accuracies, 0.6, seed)
        held += list((low <= accuracies) & (accuracies <= high))
    assert np.mean(held) >= 0.9


def test_intervals_of_two_annotators_are_wider_than_those_of_five():
    # Two labels agree or not; which of them is wrong remains unknown.
    widths = []
    for accuracies in (np.array([0.85, 0.75]), np.array([0.85, 0.75, 0.8, 0.8, 0.8])):
        found = [simulated_intervals(accuracies, 0.0, seed) for seed in range(6)]
        widths.append(np.mean([(high - low)[:2] for _, low, high in found]))
    assert widths[0] > 2 * widths[1]


def test_errors_of_very_many_annotators_are_taken_as_independent(monkeypatch):
    accuracies = np.linspace(0.5, 0.95, 12)
    together = simulated_intervals(accuracies, 0.5, 3)
    monkeypatch.setattr("s2e.data.dawid_skene._MOST_COMPARED", 5)
    np.testing.assert_allclose(simulated_intervals(accuracies, 0.5, 3), together, atol=0.05)
