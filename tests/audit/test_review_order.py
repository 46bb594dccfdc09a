"""The order of labels to review."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from s2e.audit.label_model import Interval, LabelAudit
from s2e.audit.review_order import LEAST_ENTROPY, entropy, order_by_doubt, order_by_value


def audit_of(quality: list[float], alternative: list[int], labels: list[int], probability: list[float]) -> LabelAudit:
    q, p = np.array(quality), np.array(probability)
    issues = q < 0.5
    return LabelAudit(
        quality=q,
        suggested=np.where(issues, alternative, labels),
        alternative=np.array(alternative),
        confidence=np.where(issues, p, q),
        threshold=0.5,
        issues=issues,
        noise_rate=float(1 - q.mean()),
        noise_rate_interval=Interval(0.0, 1.0),
        transition=np.eye(3),
        transition_interval=np.stack([np.zeros((3, 3)), np.ones((3, 3))]),
        doubtful=np.zeros(3, dtype=bool),
        temperature=1.0,
        bias=np.zeros(3),
        accuracy=0.5,
        accuracy_interval=Interval(0.0, 1.0),
        skill=1.0,
        message="",
        classes=np.tile(np.arange(3), (len(q), 1)),
        posterior=np.zeros((len(q), 3)),
        log_likelihood=0.0,
    )


def drawn(samples: int, seed: int) -> tuple[LabelAudit, np.ndarray]:
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 3, samples)
    quality = generator.beta(0.5, 0.5, samples)
    alternative = (labels + generator.integers(1, 3, samples)) % 3
    probability = (1 - quality) * generator.uniform(0.5, 1, samples)
    return audit_of(quality.tolist(), alternative.tolist(), labels.tolist(), probability.tolist()), labels


def value(found: LabelAudit, labels: np.ndarray, chosen: list[int]) -> float:
    """F(S), as in the module's documentation."""
    uncertainty, total = entropy(found), 0.0
    for pair in {(y, a) for y, a in zip(labels, found.alternative, strict=True)}:
        group = [i for i in range(len(labels)) if (labels[i], found.alternative[i]) == pair]
        told = sum(uncertainty[i] for i in group if i in chosen)
        total += sum(uncertainty[group]) * np.log1p(told)
    return total


def test_doubt_is_ordered_by_quality_then_confidence_then_training():
    found = audit_of([0.9, 0.0, 0.0, 0.0, 0.2], [1] * 5, [0] * 5, [0.1, 0.6, 0.9, 0.9, 0.7])
    kept = np.array([0.0, 0.0, 0.5, 0.1, 0.0])
    assert order_by_doubt(found, kept).tolist() == [3, 2, 1, 4, 0]


def test_entropy_is_that_of_the_posterior():
    found = audit_of([0.5, 0.2, 1.0, 0.0], [1] * 4, [0] * 4, [0.5, 0.5, 0.0, 1.0])
    expected = [np.log(2), -sum(p * np.log(p) for p in (0.2, 0.5, 0.3)), 0.0, 0.0]
    np.testing.assert_allclose(entropy(found), expected, atol=1e-12)


def test_with_one_pair_of_classes_the_most_uncertain_are_chosen():
    generator = np.random.default_rng(0)
    quality = generator.uniform(size=40)
    found = audit_of(quality.tolist(), [1] * 40, [0] * 40, (1 - quality).tolist())
    chosen = order_by_value(found, np.zeros(40, dtype=np.int64), 10)
    assert chosen.tolist() == np.argsort(-entropy(found), kind="stable")[:10].tolist()


def test_pairs_share_the_decisions_in_proportion_to_their_uncertainty():
    labels = [0] * 80 + [1] * 20
    found = audit_of([0.5] * 100, [1] * 80 + [2] * 20, labels, [0.5] * 100)
    chosen = order_by_value(found, np.array(labels), 50)
    assert len(set(chosen.tolist())) == 50
    assert abs(int((chosen < 80).sum()) - 40) <= 2
    assert order_by_value(found, np.array(labels), 5).tolist() == chosen[:5].tolist()


def test_certain_labels_are_never_chosen():
    found = audit_of([1.0, 0.0, 0.6, 0.9999], [1] * 4, [0] * 4, [0.0, 1.0, 0.0, 0.0])
    assert entropy(found)[3] < LEAST_ENTROPY
    assert order_by_value(found, np.zeros(4, dtype=np.int64), 50).tolist() == [2]


@pytest.mark.parametrize("seed", range(4))
def test_the_choice_is_greedy_and_close_to_the_best(seed):
    found, labels = drawn(9, seed)
    chosen = order_by_value(found, labels, 3).tolist()
    for count in range(3):
        gains = {i: value(found, labels, [*chosen[:count], i]) for i in range(9) if i not in chosen[:count]}
        assert gains[chosen[count]] == pytest.approx(max(gains.values()))
    best = max(value(found, labels, list(each)) for each in combinations(range(9), 3))
    assert value(found, labels, chosen) >= (1 - 1 / np.e) * best
