"""The label model against loops over its equations, its own objective, and simulated data with known truth."""

from __future__ import annotations

import math
import time
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from s2e.audit.anchors import correct_shares
from s2e.audit.evidence import Evidence
from s2e.audit.label_model import AMBIGUOUS, NOT_LEARNT, TRAINED_ON, UNNOTICED_ERRORS, WEAK, audit

PAIRS = np.array([[0.9, 0.1, 0, 0], [0, 0.8, 0.2, 0], [0, 0, 0.7, 0.3], [0.4, 0, 0, 0.6]])
MIXED = np.array([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.25, 0.15, 0.6]])
SYMMETRIC = np.full((5, 5), 0.05) + 0.75 * np.eye(5)


def unseen(labels, probabilities):
    """Evidence of one classifier for samples that it was not trained on."""
    labels = np.array(labels)
    return Evidence(
        labels, np.array(probabilities, dtype=float)[None], np.zeros(len(labels)), np.empty((0, len(labels)))
    )


def trained_on(labels, probabilities, kept, given):
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


def drawn(probabilities, generator):
    """Draw a class from each row of probabilities."""
    edges = probabilities.cumsum(axis=1)
    return (edges < generator.random((len(edges), 1))).sum(axis=1).clip(max=edges.shape[1] - 1)


def simulated(
    transition, *, samples=8_000, concentration=0.1, weights=None, scale=1.0, bias=None, unnoticed=0.0, seed=0
):
    """Beliefs, true classes drawn from them, given labels drawn from the true classes.

    The classifier's probabilities are the beliefs to the power of `scale`, times e to the power of `bias`. For a share
    of the samples, `unnoticed` times the share of inputs whose class is unknown, they are those of other samples.
    """
    generator = np.random.default_rng(seed)
    classes = len(transition)
    weights = np.ones(classes) if weights is None else np.array(weights)
    belief = generator.dirichlet(concentration * classes * weights / weights.sum(), size=samples)
    truth = drawn(belief, generator)
    labels = drawn(np.array(transition)[truth], generator)
    swapped = np.flatnonzero(generator.random(samples) < unnoticed * (1 - belief.max(axis=1)).mean())
    belief[swapped] = belief[np.roll(swapped, 1)]
    predicted = np.maximum(belief, 1e-12) ** scale * np.exp(np.zeros(classes) if bias is None else bias)
    return unseen(labels, predicted / predicted.sum(axis=1, keepdims=True)), truth


def as_arrays(found):
    values = {name: getattr(found, name) for name in found.__dataclass_fields__ if name != "message"}
    return {name: np.asarray(value) for name, value in values.items()}


def assert_same(one, other, tolerance=1e-9):
    assert one.message == other.message
    for name, value in as_arrays(one).items():
        np.testing.assert_allclose(value, as_arrays(other)[name], atol=tolerance, err_msg=name)


# -------------------------------------------------------------------------------------------------------------- oracles


def pooled_by_loops(given, i):
    """The probabilities of a sample before calibration, with odds of the given label pooled over the training."""
    networks, _, classes = given.probabilities.shape
    mean = [sum(given.probabilities[m, i, j] for m in range(networks)) / networks for j in range(classes)]
    if not len(given.loss):
        return mean
    label = given.labels[i]
    odds = math.prod(math.exp(-loss) / (1 - math.exp(-loss)) for loss in given.loss[:, i]) ** (1 / len(given.loss))
    belief = [mean[j] / (sum(mean) - mean[label]) / (1 + odds) for j in range(classes)]
    belief[label] = odds / (1 + odds)
    return belief


def transition_used(found, given, logs):
    """T of the posterior: for held-out samples its diagonal is that of the anchors, the rest expected counts."""
    if given.kept.any():
        return found.transition
    counts = np.zeros((given.classes, given.classes))
    for row, label in zip(found.posterior, given.labels, strict=True):
        counts[:, label] += row
    np.fill_diagonal(counts, 0)
    logs = np.array(logs)
    certainty, known = logs.max(axis=1), (logs == logs.max(axis=1, keepdims=True)).sum(axis=1) == 1
    shares = correct_shares(given.labels, logs.argmax(axis=1), certainty, known, given.classes)
    return np.diag(shares) + (1 - shares)[:, None] * counts / counts.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("in_training", [False, True])
def test_result_solves_its_equations_written_as_loops(in_training):
    given = random_evidence() if in_training else simulated(MIXED, samples=60, concentration=0.3)[0]
    found, classes = audit(given), given.classes
    logs = [[math.log(max(p, 1e-6)) for p in pooled_by_loops(given, i)] for i in range(len(given.labels))]
    scores = [[math.exp(row[j] / found.temperature + found.bias[j]) for j in range(classes)] for row in logs]
    softmax = [[score / sum(row) for score in row] for row in scores]
    unknown = sum(1 - max(row) for row in softmax) / len(softmax)
    mean = [sum(row[j] for row in softmax) / len(softmax) for j in range(classes)]
    gamma = UNNOTICED_ERRORS * unknown
    transition, counts = transition_used(found, given, logs), np.eye(classes)
    for i, label in enumerate(given.labels):
        belief = [(1 - gamma) * softmax[i][j] + gamma * mean[j] for j in range(classes)]
        weights = [belief[j] * transition[j, label] ** (1 - given.kept[i]) for j in range(classes)]
        posterior = [weight / sum(weights) for weight in weights]
        assert found.quality[i] == pytest.approx(posterior[label], abs=1e-3)
        assert found.confidence[i] == pytest.approx(max(posterior), abs=1e-3)
        for j in range(classes):
            counts[j, label] += posterior[j]
    np.testing.assert_allclose(found.transition, counts / counts.sum(axis=1, keepdims=True), atol=1e-3)
    np.testing.assert_allclose(found.transition.sum(axis=1), 1)


def test_temperature_bias_and_the_rest_of_the_transition_maximise_the_likelihood():
    given, _ = simulated(MIXED, samples=2000, scale=0.6, bias=np.array([0.5, 0.0, -0.5]))
    logs = np.log(np.maximum(given.probabilities[0], 1e-6))
    found = audit(given)

    def softmax(scale, bias):
        scores = np.exp(scale * logs + bias - (scale * logs + bias).max(axis=1, keepdims=True))
        return scores / scores.sum(axis=1, keepdims=True)

    best = softmax(1 / found.temperature, found.bias)
    gamma = UNNOTICED_ERRORS * (1 - best.max(axis=1)).mean()  # of the estimate: it does not depend on the perturbation

    def objective(scale, bias, transition):
        belief = (1 - gamma) * softmax(scale, bias) + gamma * best.mean(axis=0)
        likelihood = np.log((belief * transition.T[given.labels]).sum(axis=1)).sum()
        return likelihood + np.log(transition.diagonal()).sum() - (np.log(scale) ** 2 + (bias**2).sum()) / 2

    estimate = 1 / found.temperature, found.bias, transition_used(found, given, logs)
    correct = np.diag(estimate[2].diagonal())
    generator = np.random.default_rng(0)
    for _ in range(40):
        rest = (estimate[2] - correct) * np.exp(0.05 * generator.standard_normal((3, 3)))
        transition = correct + rest * (1 - estimate[2].diagonal())[:, None] / rest.sum(axis=1, keepdims=True)
        bias = estimate[1] + 0.1 * generator.standard_normal(3)
        other = estimate[0] * np.exp(0.05 * generator.standard_normal()), bias - bias.mean(), estimate[2]
        assert objective(*other) < objective(*estimate)
        assert objective(*estimate[:2], transition) < objective(*estimate)


def test_one_posterior_gives_quality_suggestion_and_issues():
    given, _ = simulated(PAIRS, samples=2000)
    found = audit(given)
    assert (found.confidence >= found.quality).all()
    np.testing.assert_array_equal(found.issues, found.suggested != given.labels)
    np.testing.assert_array_equal(found.confidence == found.quality, found.suggested == given.labels)
    assert (found.quality[found.issues] < found.threshold).all()
    assert found.noise_rate == pytest.approx((1 - found.quality).mean())


# ------------------------------------------------------------------------------------------------------- simulated data


def assert_calibrated(found, given, truth, transition):
    """The noise is estimated correctly, and probabilities are calibrated."""
    wrong = given.labels != truth
    assert found.noise_rate == pytest.approx(wrong.mean(), abs=0.02)
    np.testing.assert_allclose(found.transition, transition, atol=0.05)
    for probability, correct in ((found.confidence, found.suggested == truth), (found.quality, ~wrong)):
        for low in np.arange(0, 1, 0.1):
            within = (probability >= low) & (probability < low + 0.1)
            if within.sum() >= 100:  # the standard error of the share is then at most .05
                error = 0.5 / math.sqrt(within.sum())
                assert correct[within].mean() == pytest.approx(probability[within].mean(), abs=0.03 + 3 * error)
        assert correct.mean() == pytest.approx(probability.mean(), abs=0.02)
    assert wrong[found.issues].mean() > 0.5 > wrong[~found.issues].mean()
    assert not found.doubtful.any()
    assert found.message == ""


@pytest.mark.parametrize("transition", [PAIRS, MIXED])
def test_noise_is_estimated_and_probabilities_are_calibrated(transition):
    given, truth = simulated(transition)
    found = audit(given)
    assert_calibrated(found, given, truth, transition)
    assert found.temperature == pytest.approx(1, abs=0.25)  # errors without a sign of it are expected, and not there


@pytest.mark.parametrize("scale", [0.25, 3])
def test_over_and_underconfident_networks_are_calibrated(scale):
    given, truth = simulated(PAIRS, scale=scale)
    assert_calibrated(audit(given), given, truth, PAIRS)


def test_networks_that_favour_a_class_are_calibrated():
    given, truth = simulated(MIXED, bias=np.array([1.5, 0.0, -1.5]))
    found = audit(given)
    assert_calibrated(found, given, truth, MIXED)
    assert found.bias[0] < -1 < 1 < found.bias[2]


def test_labels_missing_from_a_rare_class_are_found():
    missing = np.array([[1.0, 0.0], [0.4, 0.6]])
    given, truth = simulated(missing, samples=3000, weights=[0.9, 0.1], scale=0.7, bias=np.array([1.0, -1.0]))
    found, wrong = audit(given), given.labels != truth
    assert (found.issues & wrong).sum() > 0.6 * wrong.sum()
    assert wrong[found.issues].mean() > 0.8
    assert found.noise_rate_interval.low <= wrong.mean() <= found.noise_rate_interval.high


def test_estimated_noise_rate_is_unbiased_where_counting_disagreement_is_not():
    given, truth = simulated(MIXED, concentration=0.2)
    counted = (given.probabilities[0].argmax(axis=1) != given.labels).mean()
    actual = (given.labels != truth).mean()
    assert abs(counted - actual) > 0.04
    assert audit(given).noise_rate == pytest.approx(actual, abs=0.02)


def test_correct_labels_are_no_issues():
    given, _ = simulated(np.eye(4), concentration=0.05)
    found = audit(given)
    assert found.issues.mean() < 0.01
    assert found.noise_rate < 0.01
    np.testing.assert_allclose(found.transition, np.eye(4), atol=0.02)


def predicted_labels(rate, *, clear=0.7, samples=4000, classes=4, seed=0):
    """Predictions of the given labels, whose noise depends on the sample: each has wrong labels of its own frequencies.

    The class of a share `clear` of the samples is certain; the others have two classes.
    """
    generator = np.random.default_rng(seed)
    each, first = np.arange(samples), generator.integers(classes, size=samples)
    belief = np.zeros((samples, classes))
    belief[each, first] = np.where(generator.random(samples) < clear, 1, 0.5 + 0.5 * generator.random(samples))
    belief[each, (first + generator.integers(1, classes, samples)) % classes] += 1 - belief.sum(axis=1)
    noise = generator.dirichlet(np.ones(classes), size=samples)
    noise[each, first] = 0
    noise /= noise.sum(axis=1, keepdims=True)
    truth = drawn(belief, generator)
    labels = np.where(generator.random(samples) < rate, drawn(noise, generator), truth)
    return unseen(labels, np.maximum((1 - rate) * belief + rate * noise, 1e-4)), truth


def test_predicted_noise_is_not_taken_for_overlapping_classes():
    given, truth = predicted_labels(0.3)
    found, wrong = audit(given), given.labels != truth
    assert found.noise_rate > 0.7 * wrong.mean()
    assert found.noise_rate_interval.low <= wrong.mean() <= found.noise_rate_interval.high
    assert (found.issues & wrong).sum() > 0.7 * wrong.sum()
    assert wrong[found.issues].mean() > 0.95


def test_overlapping_classes_without_noise_are_not_taken_for_noise():
    given, truth = predicted_labels(0.0)
    np.testing.assert_array_equal(given.labels, truth)
    found = audit(given)
    assert found.noise_rate < 0.02
    assert found.issues.mean() < 0.005


def test_class_of_which_most_labels_are_wrong_is_audited_if_it_is_predicted():
    given, truth = simulated([[0.6, 0.4], [0.0, 1.0]], weights=[0.85, 0.15], samples=3000)
    found, wrong = audit(given), given.labels != truth
    assert wrong[given.labels == 1].mean() > 0.6
    assert not found.doubtful.any()
    assert (found.issues & wrong).sum() > 0.9 * wrong.sum()


SETTINGS = [
    {"transition": transition, "concentration": concentration, "scale": scale, "weights": weights, "bias": bias}
    for transition in (PAIRS, MIXED, SYMMETRIC)
    for concentration in (0.05, 0.15, 0.4)
    for scale in (0.5, 2.0)
    for weights, bias in ((1, 0.0), (5, 0.7))
]


def test_intervals_hold_the_truth_in_at_least_90_percent_of_simulations():
    held: dict[str, list[float]] = {"noise rate": [], "accuracy": [], "transition": []}
    for seed, setting in enumerate(SETTINGS):
        classes = len(setting["transition"])
        weights = np.linspace(1, setting["weights"], classes)
        bias = np.linspace(-1, 1, classes) * setting["bias"]
        given, truth = simulated(**{**setting, "samples": 500, "weights": weights, "bias": bias, "seed": seed})
        found = audit(given)
        actual = np.zeros((classes, classes))
        np.add.at(actual, (truth, given.labels), 1)
        actual /= np.maximum(actual.sum(axis=1, keepdims=True), 1)
        wrong, accuracy = (given.labels != truth).mean(), (given.probabilities[0].argmax(axis=1) == truth).mean()
        held["noise rate"].append(found.noise_rate_interval.low <= wrong <= found.noise_rate_interval.high)
        held["accuracy"].append(found.accuracy_interval.low <= accuracy <= found.accuracy_interval.high)
        low, high = found.transition_interval
        held["transition"].append(((low <= actual) & (actual <= high)).mean())
    for name, each in held.items():
        assert np.mean(each) >= 0.9, name


def test_labels_flagged_with_90_percent_are_wrong_in_about_90_percent():
    confident, wrong = [], []
    for seed in range(6):
        setting = {"concentration": (0.1, 0.2)[seed % 2], "scale": (0.5, 1, 2)[seed % 3], "unnoticed": 0.2}
        given, truth = simulated(SYMMETRIC, samples=4000, seed=seed, **setting)
        found = audit(given)
        about = found.issues & (np.abs(1 - found.quality - 0.9) < 0.05)
        confident.append(found.quality[about])
        wrong.append((given.labels != truth)[about])
    assert 0.85 <= np.concatenate(wrong).mean() <= 0.95


# ----------------------------------------------------------------------------------------- where nothing can be told


def test_weak_networks_rank_labels_but_flag_none():
    given, truth = simulated(SYMMETRIC, samples=1500, concentration=2.0)
    found, wrong = audit(given), given.labels != truth
    assert found.message == WEAK
    assert not found.issues.any()
    assert (found.quality >= 0.5).all()
    np.testing.assert_array_equal(found.suggested, given.labels)
    assert found.quality[wrong].mean() < found.quality[~wrong].mean()
    assert found.noise_rate_interval.low <= wrong.mean() <= found.noise_rate_interval.high


def test_networks_that_never_predict_a_rare_class_are_weak():
    generator = np.random.default_rng(0)
    truth = (generator.random(2000) < 0.08).astype(int)
    labels = np.where(generator.random(2000) < 0.5, truth, 0)
    certain = np.repeat([[0.97, 0.03]], 2000, axis=0) + 0.01 * generator.random((2000, 2))
    found = audit(unseen(labels, certain))
    assert found.message == WEAK
    assert not found.issues.any()
    assert found.noise_rate_interval.high >= (labels != truth).mean() - 0.01


def test_predictions_without_information_are_weak():
    labels = np.arange(300) % 3
    found = audit(unseen(labels, np.full((300, 3), 1 / 3)))
    assert found.message == WEAK
    assert np.ptp(found.quality) < 1e-6


def test_labels_of_a_class_that_was_not_learnt_are_ranked_but_no_issues():
    labels = np.repeat([0, 1, 2], 100)
    probabilities = np.full((300, 3), 0.01)
    probabilities[np.arange(300), np.repeat([0, 0, 2], 100)] = 0.98  # class 1 is predicted as class 0
    found = audit(unseen(labels, probabilities))
    np.testing.assert_array_equal(found.doubtful, [False, True, False])
    assert not found.issues.any()
    assert (found.quality >= 0.5).all()
    low, high = found.noise_rate_interval
    assert high - low > 1 / 4, "whether a third of the labels is wrong is unknown"
    assert found.message == NOT_LEARNT


# ------------------------------------------------------------------------------------- networks trained on the labels


def test_networks_trained_on_the_labels_are_reported():
    found = audit(random_evidence())
    assert found.message == TRAINED_ON
    assert math.isnan(found.accuracy)


def test_odds_of_the_given_label_are_pooled_over_the_training():
    # The odds 9 and 1 pool to 3 in both cases, in any order; equal odds pool to themselves.
    probabilities, ones = np.full((6, 2), 0.5), [1] * 6
    one = audit(trained_on([0, 1] * 3, probabilities, ones, [[0.9] * 6, [0.5] * 6]))
    other = audit(trained_on([0, 1] * 3, probabilities, ones, [[0.5] * 6, [0.9] * 6]))
    pooled = audit(trained_on([0, 1] * 3, probabilities, ones, [[0.75] * 6]))
    assert_same(one, other)
    assert_same(one, pooled, 1e-6)


def test_interval_without_a_loss_does_not_count():
    given = random_evidence()
    gaps = np.concatenate([given.loss, np.full((1, 40), np.nan)])
    assert_same(audit(given), audit(replace(given, loss=gaps)))


def test_for_samples_without_a_loss_the_predictions_are_used():
    given = random_evidence()
    final = given.probabilities.mean(axis=0)[np.arange(40), given.labels]
    unknown, same = given.loss.copy(), given.loss.copy()
    unknown[:, 7], same[:, 7] = np.nan, -np.log(final[7])
    assert_same(*(audit(replace(given, loss=loss)) for loss in (unknown, same)), 1e-6)
    no_intervals, no_losses = np.empty((0, 40)), np.full((2, 40), np.nan)
    assert_same(*(audit(replace(given, loss=loss)) for loss in (no_intervals, no_losses)))


# ---------------------------------------------------------------------------------------------------- degenerate cases


def test_class_that_does_not_occur_changes_little():
    given, _ = simulated(MIXED, samples=1000)
    wider = np.concatenate([given.probabilities, np.zeros((1, 1000, 1))], axis=2)
    found, without = audit(replace(given, probabilities=wider)), audit(given)
    np.testing.assert_allclose(found.quality, without.quality, atol=0.02)
    np.testing.assert_allclose(found.transition[:3, :3], without.transition, atol=0.02)


def test_one_network_equals_two_equal_ones():
    given = random_evidence(networks=1)
    assert_same(audit(given), audit(replace(given, probabilities=np.repeat(given.probabilities, 2, axis=0))))


def test_probabilities_need_not_sum_to_1():
    given, _ = simulated(MIXED, samples=200)
    assert_same(audit(given), audit(replace(given, probabilities=0.5 * given.probabilities)))


def test_one_sample_is_sufficient():
    found = audit(unseen([1], [[0.5, 0.5]]))
    assert found.quality[0] > 0.5
    assert found.transition.shape == (2, 2)


def test_certain_predictions_give_finite_results():
    probabilities = [[1, 0, 0], [1, 0, 0], [0, 0, 1], [0, 0, 1]]
    for given in (
        unseen([0, 1, 2, 0], probabilities),
        trained_on([0, 1, 2, 0], probabilities, [1, 0, 1, 0], [[1, 0, 0, 1], [1, 0, 1e-200, 1]]),
    ):
        for name, value in as_arrays(audit(given)).items():
            assert np.isfinite(value).all() or "accuracy" in name, name


def test_equal_evidence_gives_equal_results():
    found = audit(trained_on([1] * 6, [[0.2, 0.5, 0.3]] * 6, [0.4] * 6, [[0.5] * 6]))
    assert np.ptp(found.quality) == 0
    assert np.ptp(found.confidence) == 0


# --------------------------------------------------------------------------------------------------------- invariances


def test_result_does_not_depend_on_the_order_of_samples():
    given, _ = simulated(MIXED, samples=300, concentration=0.2)
    order = np.random.default_rng(1).permutation(300)
    one, other = audit(given), audit(unseen(given.labels[order], given.probabilities[0, order]))
    np.testing.assert_allclose(one.quality[order], other.quality, atol=1e-3)
    np.testing.assert_array_equal(one.suggested[order], other.suggested)
    np.testing.assert_allclose(one.transition, other.transition, atol=1e-3)
    assert one.noise_rate == pytest.approx(other.noise_rate, abs=1e-3)


def test_result_does_not_depend_on_the_order_of_classes():
    given, _ = simulated(MIXED, samples=300, concentration=0.2)
    order = np.array([2, 0, 1])  # new class k was class order[k]
    renamed = np.argsort(order)
    found, before = audit(unseen(renamed[given.labels], given.probabilities[0][:, order])), audit(given)
    np.testing.assert_allclose(found.quality, before.quality, atol=1e-3)
    np.testing.assert_array_equal(found.suggested, renamed[before.suggested])
    np.testing.assert_allclose(found.transition, before.transition[np.ix_(order, order)], atol=1e-3)


def test_evidence_is_not_modified():
    given = random_evidence()
    before = given.probabilities.copy(), given.loss.copy()
    audit(given)
    np.testing.assert_array_equal(given.probabilities, before[0])
    np.testing.assert_array_equal(given.loss, before[1])


# Many classes


def many_classes(samples, classes, seed=0):
    """Confident predictions of the true classes, and labels of which a tenth is wrong."""
    generator = np.random.default_rng(seed)
    truth = np.arange(samples) % classes
    wrong = generator.random(samples) < 0.1
    labels = np.where(wrong, (truth + generator.integers(1, classes, samples)) % classes, truth)
    probabilities = generator.random((samples, classes)) / classes
    probabilities[np.arange(samples), truth] = 4.0
    return unseen(labels, probabilities), wrong, truth


def test_candidates_of_many_classes_find_what_all_classes_find(monkeypatch):
    given, wrong, truth = many_classes(1500, 150)
    few = audit(given)
    monkeypatch.setattr("s2e.audit.label_model.MAX_CLASSES_IN_FULL", 150)
    full = audit(given)
    assert (few.suggested == full.suggested).mean() > 0.98
    np.testing.assert_allclose(few.transition.sum(axis=1), 1)
    for found in (few, full):
        assert (found.issues == wrong).mean() > 0.95
        assert (found.suggested == truth).mean() > 0.95


def test_single_precision_of_large_evidence_changes_little(monkeypatch):
    given, _ = simulated(PAIRS, samples=1000)
    double = audit(given)
    monkeypatch.setattr("s2e.audit.label_model._LARGE", 1)
    single = audit(given)
    np.testing.assert_allclose(single.quality, double.quality, atol=0.05)
    assert single.noise_rate == pytest.approx(double.noise_rate, abs=2e-3)


@pytest.mark.slow
def test_ten_thousand_samples_of_a_hundred_classes_take_two_seconds():
    generator = np.random.default_rng(0)
    truth = generator.integers(100, size=10_000)
    labels = np.where(generator.random(10_000) < 0.3, generator.integers(100, size=10_000), truth)
    scores = generator.normal(size=(10_000, 100))
    scores[np.arange(10_000), truth] += 3.5
    probabilities = np.exp(1.5 * scores)
    began = time.process_time()
    found = audit(unseen(labels, probabilities))
    assert time.process_time() - began < 2
    assert found.noise_rate == pytest.approx((labels != truth).mean(), abs=0.03)


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


@pytest.mark.parametrize(("rate", "says_so"), [(0.3, False), (0.46, True)])
def test_classes_with_nearly_as_many_labels_of_another_one_are_said_to_be_ambiguous(rate, says_so):
    pair = (1 - rate) * np.eye(4) + rate * np.roll(np.eye(4), 1, axis=1)
    evidence, truth = simulated(pair, samples=4_000)
    assert (audit(evidence).message == AMBIGUOUS) is says_so
    assert audit(replace(evidence, trusted=30)).message == ""
    reviewed = np.arange(len(truth)) < 30
    labels = np.where(reviewed, truth, evidence.labels)
    assert audit(replace(evidence, labels=labels, reviewed=reviewed)).message == ""


def test_a_class_of_few_samples_is_not_ambiguous():
    evidence, _ = simulated(np.eye(3), samples=600, weights=[1, 1, 0.005])
    assert audit(evidence).message == ""
