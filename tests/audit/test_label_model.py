"""The label model against cases computed by hand, loops over its equations, and simulated data with known truth."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from s2e.audit.evidence import Evidence
from s2e.audit.label_model import audit
from s2e.errors import InvalidInput

PAIRS = np.array([[0.9, 0.1, 0, 0], [0, 0.8, 0.2, 0], [0, 0, 0.7, 0.3], [0.4, 0, 0, 0.6]])
MIXED = np.array([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.25, 0.15, 0.6]])


def evidence(labels, probabilities, kept, given):
    """Evidence of one network that gave the given label the probabilities `given`, (S, N), over the training."""
    with np.errstate(divide="ignore"):
        loss = -np.log(np.asarray(given, dtype=float))
    return Evidence(np.array(labels), np.array(probabilities, dtype=float)[None], np.array(kept, dtype=float), loss)


def random_evidence(samples=40, classes=4, networks=2, intervals=3, seed=0):
    """Evidence that is independent of any truth."""
    generator = np.random.default_rng(seed)
    return Evidence(
        generator.integers(classes, size=samples),
        generator.dirichlet(np.full(classes, 0.5), size=(networks, samples)),
        generator.random(samples),
        generator.exponential(size=(intervals, samples)),
    )


def simulated(transition, *, samples=8_000, trained_on=0.0, concentration=0.1, seed=0):
    """Calibrated beliefs, true classes drawn from them, given labels drawn from the true classes.

    For the share `trained_on` of the samples the networks were trained on the given label, and predict P(z | x, y) in
    place of P(z | x).
    """
    generator = np.random.default_rng(seed)
    classes, each = len(transition), np.arange(samples)
    from_input = generator.dirichlet(np.full(classes, concentration), size=samples)
    truth = (from_input.cumsum(axis=1) < generator.random((samples, 1))).sum(axis=1).clip(max=classes - 1)
    edges = np.array(transition)[truth].cumsum(axis=1)
    labels = (edges < generator.random((samples, 1))).sum(axis=1).clip(max=classes - 1)
    kept = (generator.random(samples) < trained_on).astype(float)
    with_label = from_input * np.array(transition).T[labels]
    belief = np.where(kept[:, None] == 1, with_label / with_label.sum(axis=1, keepdims=True), from_input)
    return evidence(labels, belief, kept, belief[None, each, labels]), truth


def as_arrays(found):
    return {name: np.asarray(getattr(found, name)) for name in found.__dataclass_fields__}


def assert_same(one, other):
    for name, value in as_arrays(one).items():
        np.testing.assert_allclose(value, as_arrays(other)[name], atol=1e-9, err_msg=name)


# ----------------------------------------------------------------------------------------------------- computed by hand


def test_odds_of_the_given_label_are_pooled_over_the_training():
    # Odds 9 and 1 pool to 3, 9 and 1/9 to 1, 4 and 1/64 to 1/4, 9 and 9 to 9; with κ = 1 the posterior is the belief.
    given = [[0.9, 0.9, 0.8, 0.9], [0.5, 0.1, 1 / 65, 0.9]]
    found = audit(evidence([0, 1, 0, 0], np.full((4, 2), 0.5), [1, 1, 1, 1], given), temperature=1)
    np.testing.assert_allclose(found.quality, [0.75, 0.5, 0.2, 0.9])
    np.testing.assert_array_equal(found.issues, [False, False, True, False])
    np.testing.assert_array_equal(found.suggested, [0, 1, 1, 0])
    np.testing.assert_allclose(found.probability, [0.75, 0.5, 0.8, 0.9])
    assert found.noise_rate == pytest.approx((0.25 + 0.5 + 0.8 + 0.1) / 4)
    # Class 0: .75 + .2 + .9 labelled 0, .5 labelled 1. Class 1: .25 + .8 + .1 labelled 0, .5 labelled 1. And one each.
    np.testing.assert_allclose(found.transition, [[2.85 / 3.35, 0.5 / 3.35], [1.15 / 2.65, 1.5 / 2.65]])
    assert not found.doubtful.any()


def test_labels_of_a_class_that_was_not_learnt_are_ranked_but_no_issues():
    # Two labels 0 with odds 3 and 1/4, one label 1 with even odds: expected counts .95 correct, 1.05 wrong.
    found = audit(evidence([0, 1, 0], np.full((3, 2), 0.5), [1, 1, 1], [[0.75, 0.5, 0.2]]), temperature=1)
    np.testing.assert_array_equal(found.doubtful, [True, False])
    np.testing.assert_allclose(found.quality, [0.875, 0.5, 0.6])
    assert not found.issues.any()
    np.testing.assert_array_equal(found.suggested, [0, 1, 0])
    assert found.noise_rate == pytest.approx(0.5), "of labels 1 only"


def test_label_is_an_issue_if_it_is_more_likely_wrong_than_correct():
    found = audit(evidence([0, 1, 0], np.full((3, 2), 0.5), [1, 1, 1], [[0.49, 0.5 + 1e-9, 0.51]]), temperature=1)
    np.testing.assert_array_equal(found.issues, [True, False, False])
    assert found.threshold == 0.5


def test_rest_is_distributed_as_by_the_trained_networks():
    confident = [0.9, 0.05, 0.05]
    found = audit(evidence([0, 0], [[0.2, 0.6, 0.2], confident], [1, 1], [[0.2, 0.9]]), temperature=1)  # .8 as 3 to 1
    assert (found.suggested[0], found.quality[0]) == (1, pytest.approx(0.2))
    assert found.probability[0] == pytest.approx(0.6)


def test_issue_never_suggests_the_given_label():
    found = audit(evidence([2], [[0.3, 0.3, 0.4]], [1], [[0.4]]), temperature=1)
    assert found.issues[0]
    assert found.suggested[0] == 0
    assert found.probability[0] == pytest.approx(0.3)
    many = audit(random_evidence(500, seed=3))
    np.testing.assert_array_equal(many.issues, many.suggested != random_evidence(500, seed=3).labels)
    np.testing.assert_array_equal(many.issues, many.quality < many.threshold)


def test_label_that_was_not_trained_on_is_independent_evidence():
    # Nine samples with certain labels, and one of class 0 or 1 at even odds with the label 0.
    probabilities = [[1, 0]] * 5 + [[0, 1]] * 4 + [[0.5, 0.5]]
    found = audit(evidence([0] * 5 + [1] * 4 + [0], probabilities, [0] * 10, [[1] * 9 + [0.5]]), temperature=1)
    # With r for the last: T_00 = 1 and T_10 = (1 − r)/(4 + 1 + 1 − r), so 1/r = 1 + T_10 and r = 1.
    assert found.quality[-1] == pytest.approx(1, abs=1e-5)
    trained_on = audit(
        evidence([0] * 5 + [1] * 4 + [0], probabilities, [0] * 9 + [1], [[1] * 9 + [0.5]]), temperature=1
    )
    assert trained_on.quality[-1] == pytest.approx(0.5)


# -------------------------------------------------------------------------------------------------------------- oracles


def test_result_solves_the_two_equations_written_as_loops():
    given = random_evidence()
    found, classes = audit(given, temperature=0.5), given.classes
    counts = np.eye(classes)
    for i, label in enumerate(given.labels):
        odds = [math.exp(-loss) / (1 - math.exp(-loss)) for loss in given.loss[:, i]]
        pooled = math.prod(odds) ** (1 / len(odds))
        mean = [sum(given.probabilities[m, i, j] for m in range(2)) / 2 for j in range(classes)]
        belief = [mean[j] / (sum(mean) - mean[label]) / (1 + pooled) for j in range(classes)]
        belief[label] = pooled / (1 + pooled)
        weight = [belief[j] ** 2 * found.transition[j, label] ** (1 - given.kept[i]) for j in range(classes)]
        posterior = [each / sum(weight) for each in weight]
        assert found.quality[i] == pytest.approx(posterior[label], abs=1e-4)
        assert found.probability[i] == pytest.approx(posterior[found.suggested[i]], abs=1e-4)
        for j in range(classes):
            counts[j, label] += posterior[j]
    np.testing.assert_allclose(found.transition, counts / counts.sum(axis=1, keepdims=True), atol=1e-4)
    np.testing.assert_allclose(found.transition.sum(axis=1), 1)


def test_without_training_on_the_samples_the_transition_matrix_has_maximum_likelihood():
    given, _ = simulated(MIXED, samples=2000)
    belief, estimate = given.probabilities[0], audit(given, temperature=1).transition

    def likelihood(transition):
        of_labels = (belief * transition.T[given.labels]).sum(axis=1)
        return np.log(of_labels).sum() + np.log(transition.diagonal()).sum()  # with the pseudo-samples

    generator = np.random.default_rng(0)
    for _ in range(50):
        other = estimate * np.exp(0.02 * generator.standard_normal(estimate.shape))
        assert likelihood(other / other.sum(axis=1, keepdims=True)) < likelihood(estimate)


# ------------------------------------------------------------------------------------------------------- simulated data


def assert_calibrated(found, given, truth, transition):
    """The noise is estimated correctly, and probabilities are calibrated."""
    wrong = given.labels != truth
    assert found.noise_rate == pytest.approx(wrong.mean(), abs=0.01)
    np.testing.assert_allclose(found.transition, transition, atol=0.03)
    for probability, correct in ((found.probability, found.suggested == truth), (found.quality, ~wrong)):
        for low in np.arange(0, 1, 0.1):
            within = (probability >= low) & (probability < low + 0.1)
            if within.sum() >= 100:  # the standard error of the share is then at most .05
                error = 0.5 / math.sqrt(within.sum())
                assert correct[within].mean() == pytest.approx(probability[within].mean(), abs=3 * error)
        assert correct.mean() == pytest.approx(probability.mean(), abs=0.01)
    assert wrong[found.issues].mean() > 0.5 > wrong[~found.issues].mean()
    assert not found.doubtful.any()


@pytest.mark.parametrize("transition", [PAIRS, MIXED])
def test_noise_is_estimated_and_probabilities_are_calibrated(transition):
    given, truth = simulated(transition, samples=10_000)
    found = audit(given)
    assert_calibrated(found, given, truth, transition)
    assert found.temperature == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(("transition", "share"), [(PAIRS, 0.5), (MIXED, 1.0)])
def test_label_the_networks_were_trained_on_does_not_count_twice(transition, share):
    given, truth = simulated(transition, trained_on=share)
    assert_calibrated(audit(given, temperature=1), given, truth, transition)


@pytest.mark.parametrize("factor", [0.25, 3])
def test_over_and_underconfident_networks_are_calibrated(factor):
    calibrated, truth = simulated(PAIRS)
    scaled = calibrated.probabilities[0] ** factor
    scaled /= scaled.sum(axis=1, keepdims=True)
    own = scaled[None, np.arange(len(truth)), calibrated.labels]
    given = evidence(calibrated.labels, scaled, calibrated.kept, own)
    found = audit(given)
    assert_calibrated(found, given, truth, PAIRS)
    assert found.temperature == pytest.approx(factor, rel=0.05)


def test_estimated_noise_rate_is_unbiased_where_counting_disagreement_is_not():
    given, truth = simulated(MIXED, concentration=0.5)
    counted = (given.probabilities[0].argmax(axis=1) != given.labels).mean()
    actual = (given.labels != truth).mean()
    assert abs(counted - actual) > 0.08
    assert audit(given).noise_rate == pytest.approx(actual, abs=0.01)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_correct_labels_are_no_issues(share):
    given, _ = simulated(np.eye(4), trained_on=share)
    found = audit(given)
    assert found.issues.mean() < 0.001
    assert found.noise_rate < 0.002
    np.testing.assert_allclose(found.transition, np.eye(4), atol=0.005)


# ---------------------------------------------------------------------------------------------------- degenerate cases


def test_class_that_does_not_occur_changes_nothing():
    given, _ = simulated(MIXED, samples=500, concentration=0.3)
    wider = np.concatenate([given.probabilities, np.zeros((1, 500, 1))], axis=2)
    found, without = audit(Evidence(given.labels, wider, given.kept, given.loss)), audit(given)
    np.testing.assert_allclose(found.quality, without.quality, atol=1e-4)  # the iteration starts from another T
    np.testing.assert_allclose(found.transition[:3, :3], without.transition, atol=1e-4)
    np.testing.assert_allclose(found.transition[3], [0, 0, 0, 1], atol=1e-9)
    assert not found.doubtful.any()


def test_class_the_networks_have_not_learnt_is_doubtful():
    # All samples labelled 1 are predicted as class 0, as if the training had converged to a wrong class.
    labels, probabilities = [0] * 10 + [1] * 10 + [2] * 10, [[0.98, 0.01, 0.01]] * 20 + [[0.01, 0.01, 0.98]] * 10
    found = audit(
        evidence(labels, probabilities, [1] * 10 + [0] * 10 + [1] * 10, [[0.98] * 10 + [0.01] * 10 + [0.98] * 10])
    )
    np.testing.assert_array_equal(found.doubtful, [False, True, False])


def test_one_network_equals_two_equal_ones():
    given = random_evidence(networks=1)
    twice = Evidence(given.labels, np.repeat(given.probabilities, 2, axis=0), given.kept, given.loss)
    assert_same(audit(given), audit(twice))


def test_probabilities_need_not_sum_to_1():
    given = random_evidence(networks=1)
    scaled = Evidence(given.labels, 0.5 * given.probabilities, given.kept, np.full_like(given.loss, np.nan))
    whole = Evidence(given.labels, given.probabilities, given.kept, np.full_like(given.loss, np.nan))
    assert_same(audit(whole), audit(scaled))


def test_one_sample_is_sufficient():
    found = audit(evidence([1], [[0.5, 0.5]], [0], [[0.9]]))
    assert found.quality[0] > 0.9
    assert found.transition.shape == (2, 2)


def test_interval_without_a_loss_does_not_count():
    given = random_evidence()
    gaps = np.concatenate([given.loss, np.full((1, 40), np.nan)])
    assert_same(audit(given), audit(Evidence(given.labels, given.probabilities, given.kept, gaps)))


def test_for_samples_without_a_loss_the_predictions_are_used():
    given = random_evidence()
    final = given.probabilities.mean(axis=0)[np.arange(40), given.labels]
    unknown, same = given.loss.copy(), given.loss.copy()
    unknown[:, 7], same[:, 7] = np.nan, -np.log(final[7])
    assert_same(*(audit(Evidence(given.labels, given.probabilities, given.kept, loss)) for loss in (unknown, same)))
    no_intervals, no_losses = np.empty((0, 40)), np.full((2, 40), np.nan)
    assert_same(
        *(audit(Evidence(given.labels, given.probabilities, given.kept, loss)) for loss in (no_intervals, no_losses))
    )


def test_certain_predictions_give_finite_results():
    probabilities = [[1, 0, 0], [1, 0, 0], [0, 0, 1], [0, 0, 1]]
    given = evidence([0, 1, 2, 0], probabilities, [1, 0, 1, 0], [[1, 0, 0, 1], [1, 0, 1e-200, 1]])
    found = audit(given)
    for name, value in as_arrays(found).items():
        assert np.isfinite(value).all(), name
    np.testing.assert_array_equal(found.doubtful, [False, True, True])
    np.testing.assert_allclose(found.quality, [1, 0.5, 0.5, 1], atol=1e-5)


def test_equal_evidence_gives_equal_results():
    found = audit(evidence([1] * 6, [[0.2, 0.5, 0.3]] * 6, [0.4] * 6, [[0.5] * 6]))
    assert np.ptp(found.quality) == 0
    assert np.ptp(found.probability) == 0
    uniform = audit(evidence([0, 1, 2] * 4, np.full((12, 3), 1 / 3), [1] * 12, np.full((2, 12), 1 / 3)))
    np.testing.assert_allclose(uniform.quality, 1 / 3)
    np.testing.assert_allclose(uniform.transition, (4 / 3 + np.eye(3)) / 5)


# --------------------------------------------------------------------------------------------------------- invariances


def test_result_does_not_depend_on_the_order_of_samples():
    given, order = random_evidence(), np.random.default_rng(1).permutation(40)
    mixed = Evidence(given.labels[order], given.probabilities[:, order], given.kept[order], given.loss[:, order])
    one, other = as_arrays(audit(given)), as_arrays(audit(mixed))
    for name in ("quality", "suggested", "probability", "issues"):
        np.testing.assert_allclose(one[name][order], other[name], atol=1e-9)
    for name in ("transition", "noise_rate", "doubtful"):
        np.testing.assert_allclose(one[name], other[name], atol=1e-9)


def test_result_does_not_depend_on_the_order_of_classes():
    given, order = random_evidence(), np.array([2, 0, 3, 1])  # new class k was class order[k]
    renamed = np.argsort(order)
    found = audit(Evidence(renamed[given.labels], given.probabilities[:, :, order], given.kept, given.loss))
    before = audit(given)
    np.testing.assert_allclose(found.quality, before.quality, atol=1e-9)
    np.testing.assert_array_equal(found.suggested, renamed[before.suggested])
    np.testing.assert_allclose(found.transition, before.transition[np.ix_(order, order)], atol=1e-9)
    np.testing.assert_array_equal(found.doubtful, before.doubtful[order])


def test_evidence_is_not_modified():
    given = random_evidence()
    before = given.probabilities.copy(), given.loss.copy()
    audit(given)
    np.testing.assert_array_equal(given.probabilities, before[0])
    np.testing.assert_array_equal(given.loss, before[1])


# ----------------------------------------------------------------------------------------------------------- bad input


def test_temperature_must_be_positive_and_finite():
    for temperature in (0, math.inf, math.nan):
        with pytest.raises(InvalidInput, match="`temperature` must be positive and finite"):
            audit(random_evidence(), temperature=temperature)


# Many classes


def many_classes(samples, classes, seed=0):
    """Confident predictions of the true classes, and labels of which a tenth is wrong."""
    generator = np.random.default_rng(seed)
    truth = np.arange(samples) % classes
    wrong = generator.random(samples) < 0.1
    labels = np.where(wrong, (truth + generator.integers(1, classes, samples)) % classes, truth)
    probabilities = generator.random((1, samples, classes)) / classes
    probabilities[0, np.arange(samples), truth] = 4.0
    return evidence(labels, probabilities[0], np.zeros(samples), np.full((1, samples), np.nan)), wrong, truth


def test_candidates_of_many_classes_find_what_all_classes_find(monkeypatch):
    given, wrong, truth = many_classes(1200, 150)
    few = audit(given, temperature=1.0)
    monkeypatch.setattr("s2e.audit.label_model.MAX_CLASSES_IN_FULL", 150)
    full = audit(given, temperature=1.0)
    np.testing.assert_array_equal(few.issues, full.issues)
    np.testing.assert_array_equal(few.suggested, full.suggested)
    np.testing.assert_allclose(few.quality, full.quality, atol=0.05)
    np.testing.assert_allclose(few.transition.sum(axis=1), 1)
    assert (few.issues == wrong).mean() > 0.95
    assert (few.suggested == truth).mean() > 0.95


@pytest.mark.slow
def test_ten_thousand_classes_need_no_matrix_of_classes():
    given, _, _ = many_classes(500, 10_000)
    tracemalloc.start()
    found = audit(given)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.transition.shape == (0, 0)
    assert np.isfinite(found.quality).all()
    assert peak < 400e6  # a matrix of classes has 800 MB


def test_reviewed_labels_are_correct_and_never_issues():
    given = random_evidence(samples=200)
    plain = audit(given)
    reviewed = np.arange(200) % 3 == 0
    found = audit(replace(given, reviewed=reviewed))
    assert plain.issues[reviewed].any()
    np.testing.assert_array_equal(found.quality[reviewed], 1.0)
    np.testing.assert_array_equal(found.suggested[reviewed], given.labels[reviewed])
    assert not found.issues[reviewed].any()
    assert (found.alternative != given.labels).all()


def test_no_reviewed_labels_change_nothing():
    given = random_evidence()
    assert_same(audit(given), audit(replace(given, reviewed=np.zeros(len(given.labels), dtype=bool))))
