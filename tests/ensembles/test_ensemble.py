"""Ensembles: the vote of the chosen members, the single member, and distillation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from s2e.engine import VALIDATION, predictions
from s2e.engine.scores import accuracy
from s2e.engine.training import train_population
from s2e.ensembles import choose_ensemble, distilled, single_member
from s2e.methods import Coteaching
from small_tasks import blobs, member, task

VALID, UNSEEN = blobs(96, seed=1), blobs(400, wrong=0.0, seed=2)


@pytest.fixture(scope="module")
def shared():
    return task(blobs(), Coteaching(), evaluate={VALIDATION: VALID}, epochs=10)


@pytest.fixture(scope="module")
def candidates(shared):
    trained = train_population(shared, [member(0.7, seed=seed, epochs=10, learning_rate=1e-2) for seed in range(5)])
    return [{name: tensor[trained.rows(index)] for name, tensor in trained.state.items()} for index in range(5)]


@pytest.fixture(scope="module")
def ensemble(shared, candidates):
    return choose_ensemble(shared, candidates, VALID, accuracy, most=4, seed=0)


def test_vote_is_the_weighted_mean_of_its_networks(shared, ensemble):
    assert 1 <= ensemble.members <= 4
    assert ensemble.networks == 2 * ensemble.members
    assert ensemble.weights.sum() == pytest.approx(1)
    each = predictions(shared, ensemble.state, UNSEEN.inputs)
    expected = sum(weight * own for weight, own in zip(ensemble.weights, each, strict=True))
    np.testing.assert_allclose(ensemble.probabilities(shared, UNSEEN.inputs), expected, rtol=1e-6)
    np.testing.assert_allclose(ensemble.classifier(shared).vote(UNSEEN.inputs), expected, rtol=1e-4, atol=1e-6)


def test_one_member_is_the_first_candidate(shared, candidates):
    one = choose_ensemble(shared, candidates, VALID, accuracy, most=1, seed=0)
    assert (one.members, one.networks) == (1, 2)
    assert all(torch.equal(one.state[name], candidates[0][name]) for name in one.state)
    np.testing.assert_array_equal(one.weights, [0.5, 0.5])


def test_candidates_that_are_not_finite_are_left_out(shared, candidates):
    broken = {name: torch.full_like(tensor, torch.nan) for name, tensor in candidates[0].items()}
    found = choose_ensemble(shared, [broken, *candidates], VALID, accuracy, most=4, seed=0)
    assert np.isfinite(found.probabilities(shared, UNSEEN.inputs)).all()


def test_many_classes_are_compared_on_every_nth_sample(shared, candidates, monkeypatch):
    monkeypatch.setattr("s2e.ensembles.ensemble.MOST_NUMBERS", len(candidates) * len(VALID) * VALID.classes // 3)
    found = choose_ensemble(shared, candidates, VALID, accuracy, most=4, seed=0)
    third = VALID.take(np.arange(0, len(VALID), 3))
    monkeypatch.undo()
    expected = choose_ensemble(shared, candidates, third, accuracy, most=4, seed=0)
    np.testing.assert_array_equal(found.weights, expected.weights)


def test_votes_of_many_classes_are_computed_in_parts(shared, ensemble, monkeypatch):
    inputs = UNSEEN.inputs
    whole, of_modules = ensemble.probabilities(shared, inputs), ensemble.classifier(shared).vote(inputs)
    monkeypatch.setattr("s2e.engine.inference.MOST_PROBABILITIES", 7 * ensemble.networks * UNSEEN.classes)
    np.testing.assert_allclose(ensemble.probabilities(shared, inputs), whole, rtol=1e-5)
    np.testing.assert_allclose(ensemble.classifier(shared).vote(inputs), of_modules, rtol=1e-5)
    assert ensemble.probabilities(shared, inputs[:0]).size == ensemble.classifier(shared).vote(inputs[:0]).size == 0


def test_a_distilled_network_agrees_with_its_ensemble(shared, ensemble):
    one = distilled(shared, ensemble, learning_rate=1e-2, seed=0)
    assert (one.members, one.networks) == (1, 1)
    own, whole = (each.probabilities(shared, UNSEEN.inputs).argmax(axis=1) for each in (one, ensemble))
    assert (own == whole).mean() > 0.9


def test_distillation_on_hard_labels_is_standard_training(shared):
    """Probabilities of 0 and 1 make the loss the cross-entropy of labels."""
    from s2e.engine import Member
    from s2e.ensembles import SoftLabels
    from s2e.methods import Standard

    labels, rows = shared.train.labels, np.arange(len(shared.train))
    soft = SoftLabels(torch.from_numpy(np.eye(4, dtype=np.float32)[labels]))
    ones = np.ones(shared.epochs)
    hard, same = (
        train_population(shared, [Member(ones, 3, 1e-2, own, method)])
        for own, method in ((None, Standard()), (rows, soft))
    )
    for name, tensor in hard.state.items():
        torch.testing.assert_close(same.state[name], tensor)


def test_single_member_has_equal_weights(candidates):
    np.testing.assert_array_equal(single_member(candidates[2]).weights, [0.5, 0.5])
