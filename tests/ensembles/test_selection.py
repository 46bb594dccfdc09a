"""Greedy selection: degenerate inputs, brute force on tiny problems, and bags."""

from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np
import pytest
import torch

from s2e.engine.scores import SCORES, accuracy
from s2e.ensembles.selection import bagged_selection, greedy_selection, is_better_beyond_noise
from s2e.errors import InvalidInput


def drawn(candidates, samples, classes, seed, skill=1.0):
    generator = np.random.default_rng(seed)
    labels = generator.integers(classes, size=samples)
    logits = generator.normal(size=(candidates, samples, classes))
    logits[:, np.arange(samples), labels] += skill
    return torch.from_numpy(logits).softmax(dim=-1).numpy(), labels


def score_of_vote(probabilities, labels, counts, score):
    vote = np.tensordot(counts / counts.sum(), probabilities, axes=1)
    return float(score(torch.from_numpy(vote)[None], torch.from_numpy(labels))[0])


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("seed", range(5))
def test_vote_lies_between_the_best_candidate_and_brute_force(name, seed):
    score, additions = SCORES[name], 3
    probabilities, labels = drawn(4, 25, 3, seed)
    every = [
        np.bincount(chosen, minlength=4)
        for size in range(1, additions + 1)
        for chosen in combinations_with_replacement(range(4), size)
    ]
    best = max(score_of_vote(probabilities, labels, counts, score) for counts in every)
    single = max(score_of_vote(probabilities, labels, np.eye(4)[k], score) for k in range(4))
    found = score_of_vote(probabilities, labels, greedy_selection(probabilities, labels, score, additions), score)
    assert single <= found + 1e-9
    assert found <= best + 1e-9


def test_complementary_candidates_are_chosen_as_by_brute_force():
    labels = np.zeros(4, dtype=np.int64)
    right = np.array([[0.9, 0.9, 0.4, 0.4], [0.4, 0.4, 0.9, 0.9], [0.45, 0.45, 0.45, 0.45]])  # (K, N), of class 0
    probabilities = np.stack([right, 1 - right], axis=-1)
    assert greedy_selection(probabilities, labels, accuracy).tolist() == [1, 1, 0]


def test_one_candidate_takes_the_whole_vote():
    probabilities, labels = drawn(1, 10, 3, 0)
    assert greedy_selection(probabilities, labels, accuracy).tolist() == [1]
    weights = bagged_selection(probabilities, labels, accuracy, generator=np.random.default_rng(0), most=5)
    assert weights.tolist() == [1.0]


def test_perfect_candidate_is_chosen_alone():
    probabilities, labels = drawn(5, 30, 3, 1, skill=0.0)
    probabilities[3] = np.eye(3)[labels]
    assert greedy_selection(probabilities, labels, accuracy).tolist() == [0, 0, 0, 1, 0]


def test_equal_candidates_give_the_first():
    probabilities, labels = drawn(1, 20, 2, 2)
    assert greedy_selection(np.repeat(probabilities, 3, axis=0), labels, accuracy).tolist() == [1, 0, 0]


def test_without_bags_the_weights_are_the_greedy_counts():
    probabilities, labels = drawn(6, 40, 3, 3)
    counts = greedy_selection(probabilities, labels, accuracy)
    weights = bagged_selection(probabilities, labels, accuracy, generator=np.random.default_rng(0), most=6, bags=0)
    np.testing.assert_allclose(weights, counts / counts.sum())


@pytest.mark.parametrize("most", [1, 2, 6])
def test_at_most_the_given_number_of_candidates_has_a_weight(most):
    probabilities, labels = drawn(6, 40, 3, 4)
    weights = bagged_selection(probabilities, labels, accuracy, generator=np.random.default_rng(0), most=most)
    assert 1 <= (weights > 0).sum() <= most
    assert weights.sum() == pytest.approx(1)


def test_bags_are_determined_by_their_generator():
    probabilities, labels = drawn(6, 40, 3, 5)
    first, again, other = (
        bagged_selection(probabilities, labels, accuracy, generator=np.random.default_rng(seed), most=6)
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_bagged_vote_is_better_on_new_samples_than_the_best_candidate():
    gains = []
    for seed in range(10):
        probabilities, labels = drawn(9, 1060, 4, seed)
        weights = bagged_selection(
            probabilities[:, :60], labels[:60], accuracy, generator=np.random.default_rng(0), most=6
        )
        best = int((probabilities[:, :60].argmax(axis=2) == labels[:60]).mean(axis=1).argmax())
        new, truth = probabilities[:, 60:], labels[60:]
        vote = np.tensordot(weights, new, axes=1)
        gains.append((vote.argmax(axis=1) == truth).mean() - (new[best].argmax(axis=1) == truth).mean())
    assert min(gains) > 0


@pytest.mark.parametrize("shape", [(2, 3), (2, 4, 2), (0, 3, 2)])
def test_other_shapes_are_refused(shape):
    with pytest.raises(InvalidInput, match="`probabilities` must be"):
        greedy_selection(np.zeros(shape), np.zeros(3, dtype=np.int64), accuracy)


def test_differences_are_compared_with_their_standard_error():
    labels = np.zeros(100, dtype=np.int64)
    right, wrong = np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])
    other = np.concatenate([np.repeat(right, 50, axis=0), np.repeat(wrong, 50, axis=0)])
    better = np.concatenate([np.repeat(right, 54, axis=0), np.repeat(wrong, 46, axis=0)])
    # A difference of 0.04, standard deviation sqrt(0.04 * 0.96), hence a standard error of 0.0196.
    assert is_better_beyond_noise(better, other, labels, errors=2.0)
    assert not is_better_beyond_noise(better, other, labels, errors=2.1)
    assert not is_better_beyond_noise(other, better, labels)
    assert not is_better_beyond_noise(other, other, labels)
