"""The audit against cases worked by hand, slow loops over its two equations, and made-up data whose truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from s2e.audit.evidence import Evidence
from s2e.audit.label_model import audit
from s2e.engine.curves import Dynamics
from s2e.errors import InvalidInput

PAIRS = np.array([[0.9, 0.1, 0, 0], [0, 0.8, 0.2, 0], [0, 0, 0.7, 0.3], [0.4, 0, 0, 0.6]])
MIXED = np.array([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.25, 0.15, 0.6]])


def evidence(labels, probabilities, kept, given):
    """Evidence of one network that gave the given label the probabilities `given`, (S, N), over the training."""
    with np.errstate(divide="ignore"):
        loss = -np.log(np.asarray(given, dtype=float))
    return Evidence(np.array(labels), np.array(probabilities, dtype=float)[None], np.array(kept, dtype=float), loss)


def drawn(samples=40, classes=4, networks=2, stretches=3, seed=0):
    """Evidence without rhyme or reason."""
    generator = np.random.default_rng(seed)
    return Evidence(
        generator.integers(classes, size=samples),
        generator.dirichlet(np.full(classes, 0.5), size=(networks, samples)),
        generator.random(samples),
        generator.exponential(size=(stretches, samples)),
    )


def simulated(transition, *, samples=8_000, heard=0.0, sharpness=0.1, seed=0):
    """Calibrated beliefs, true classes drawn from them, given labels drawn from the true classes.

    The share `heard` of the samples were trained on: their networks know what the given label says, and say
    P(z | x, y) in place of P(z | x).
    """
    generator = np.random.default_rng(seed)
    classes, each = len(transition), np.arange(samples)
    from_input = generator.dirichlet(np.full(classes, sharpness), size=samples)
    truth = (from_input.cumsum(axis=1) < generator.random((samples, 1))).sum(axis=1).clip(max=classes - 1)
    edges = np.array(transition)[truth].cumsum(axis=1)
    labels = (edges < generator.random((samples, 1))).sum(axis=1).clip(max=classes - 1)
    kept = (generator.random(samples) < heard).astype(float)
    trained = from_input * np.array(transition).T[labels]
    believed = np.where(kept[:, None] == 1, trained / trained.sum(axis=1, keepdims=True), from_input)
    return evidence(labels, believed, kept, believed[None, each, labels]), truth


def as_arrays(found):
    return {name: np.asarray(getattr(found, name)) for name in found.__dataclass_fields__}


def assert_same(one, other):
    for name, value in as_arrays(one).items():
        np.testing.assert_allclose(value, as_arrays(other)[name], atol=1e-9, err_msg=name)


# ------------------------------------------------------------------------------------------------------ worked by hand


def test_dynamics_become_means_over_networks_and_epochs():
    dynamics = Dynamics(
        seen=np.array([[2, 1, 0], [2, 0, 0]]),
        kept=np.array([[6, 0, 0]], dtype=np.float32),
        agreed=np.zeros((1, 3), dtype=np.float32),
        loss=np.array([[[8, 3, 0], [2, 0, 0]]], dtype=np.float32),
    )
    own = {"seen": dynamics.seen, "kept": dynamics.kept[0], "loss": dynamics.loss[0]}
    found = Evidence.from_dynamics(**own, labels=np.array([0, 1, 1]), probabilities=np.full((2, 3, 2), 0.5))
    np.testing.assert_array_equal(found.loss, [[2, 1.5, np.nan], [0.5, np.nan, np.nan]])
    np.testing.assert_array_equal(found.kept, [0.75, 0, 0])
    assert found.labels.dtype == np.int64


def test_odds_of_the_given_label_are_pooled_over_the_training():
    # Odds 9 and 1 pool to 3, 9 and 1/9 to 1, 4 and 1/64 to 1/4, 9 and 9 to 9; trained on throughout, belief is verdict.
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


def test_labels_of_a_class_that_was_not_learnt_are_ranked_but_not_judged():
    # Two labels 0 with odds 3 and 1/4, one label 1 with even odds: .95 of label 0 is believed, 1.05 is not.
    found = audit(evidence([0, 1, 0], np.full((3, 2), 0.5), [1, 1, 1], [[0.75, 0.5, 0.2]]), temperature=1)
    np.testing.assert_array_equal(found.doubtful, [True, False])
    np.testing.assert_allclose(found.quality, [0.875, 0.5, 0.6])
    assert not found.issues.any()
    np.testing.assert_array_equal(found.suggested, [0, 1, 0])
    assert found.noise_rate == pytest.approx(0.5), "of the label that is judged"


def test_a_label_is_an_issue_where_it_is_more_likely_wrong_than_right():
    found = audit(evidence([0, 1, 0], np.full((3, 2), 0.5), [1, 1, 1], [[0.49, 0.5 + 1e-9, 0.51]]), temperature=1)
    np.testing.assert_array_equal(found.issues, [True, False, False])
    assert found.threshold == 0.5


def test_the_rest_is_shared_as_the_trained_networks_say():
    sure = [0.9, 0.05, 0.05]
    found = audit(evidence([0, 0], [[0.2, 0.6, 0.2], sure], [1, 1], [[0.2, 0.9]]), temperature=1)  # .8 as 3 to 1
    assert (found.suggested[0], found.quality[0]) == (1, pytest.approx(0.2))
    assert found.probability[0] == pytest.approx(0.6)


def test_an_issue_never_suggests_its_own_label():
    found = audit(evidence([2], [[0.3, 0.3, 0.4]], [1], [[0.4]]), temperature=1)
    assert found.issues[0]
    assert found.suggested[0] == 0
    assert found.probability[0] == pytest.approx(0.3)
    many = audit(drawn(500, seed=3))
    np.testing.assert_array_equal(many.issues, many.suggested != drawn(500, seed=3).labels)
    np.testing.assert_array_equal(many.issues, many.quality < many.threshold)


def test_a_label_nobody_was_trained_on_is_a_second_witness():
    # Nine samples whose labels are beyond doubt, and one of class 0 or 1 at even odds with the label 0.
    probabilities = [[1, 0]] * 5 + [[0, 1]] * 4 + [[0.5, 0.5]]
    found = audit(evidence([0] * 5 + [1] * 4 + [0], probabilities, [0] * 10, [[1] * 9 + [0.5]]), temperature=1)
    # With r for the last: T_00 = 1 and T_10 = (1 − r)/(4 + 1 + 1 − r), so 1/r = 1 + T_10 and r = 1.
    assert found.quality[-1] == pytest.approx(1, abs=1e-5)
    heard = audit(evidence([0] * 5 + [1] * 4 + [0], probabilities, [0] * 9 + [1], [[1] * 9 + [0.5]]), temperature=1)
    assert heard.quality[-1] == pytest.approx(0.5)


# -------------------------------------------------------------------------------------------------------- slow oracles


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_verdicts_solve_the_two_equations_written_as_loops(seed):
    given = drawn(seed=seed)
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


def test_without_training_on_the_samples_the_transition_matrix_is_the_likeliest():
    given, _ = simulated(MIXED, samples=2000)
    belief, at_best = given.probabilities[0], audit(given, temperature=1).transition

    def likelihood(transition):
        seen = (belief * transition.T[given.labels]).sum(axis=1)
        return np.log(seen).sum() + np.log(transition.diagonal()).sum()  # the imagined samples count too

    generator = np.random.default_rng(0)
    for _ in range(50):
        other = at_best * np.exp(0.02 * generator.standard_normal(at_best.shape))
        assert likelihood(other / other.sum(axis=1, keepdims=True)) < likelihood(at_best)


# --------------------------------------------------------------------------------- made-up data whose truth is known


def assert_true_to(found, given, truth, transition):
    """Noise is measured rightly, and probabilities are the shares they claim to be."""
    wrong = given.labels != truth
    assert found.noise_rate == pytest.approx(wrong.mean(), abs=0.01)
    np.testing.assert_allclose(found.transition, transition, atol=0.03)
    for claimed, right in ((found.probability, found.suggested == truth), (found.quality, ~wrong)):
        for low in np.arange(0, 1, 0.1):
            within = (claimed >= low) & (claimed < low + 0.1)
            if within.sum() >= 100:  # the share is then known to ±.05, one standard deviation, at worst
                spread = 0.5 / math.sqrt(within.sum())
                assert right[within].mean() == pytest.approx(claimed[within].mean(), abs=3 * spread)
        assert right.mean() == pytest.approx(claimed.mean(), abs=0.01)
    assert wrong[found.issues].mean() > 0.5 > wrong[~found.issues].mean()
    assert not found.doubtful.any()


@pytest.mark.parametrize("transition", [PAIRS, MIXED])
def test_noise_is_measured_and_probabilities_mean_what_they_say(transition):
    given, truth = simulated(transition, samples=20_000)
    found = audit(given)
    assert_true_to(found, given, truth, transition)
    assert found.temperature == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("heard", [0.5, 1.0])
@pytest.mark.parametrize("transition", [PAIRS, MIXED])
def test_a_label_the_networks_were_trained_on_is_not_heard_twice(transition, heard):
    given, truth = simulated(transition, heard=heard)
    assert_true_to(audit(given, temperature=1), given, truth, transition)


@pytest.mark.parametrize("factor", [0.25, 3])
def test_networks_that_are_too_sure_or_not_sure_enough_are_seen_through(factor):
    honest, truth = simulated(PAIRS)
    shown = honest.probabilities[0] ** factor
    shown /= shown.sum(axis=1, keepdims=True)
    given = evidence(honest.labels, shown, honest.kept, shown[None, np.arange(len(truth)), honest.labels])
    found = audit(given)
    assert_true_to(found, given, truth, PAIRS)
    assert found.temperature == pytest.approx(factor, rel=0.05)


def test_counting_disagreement_would_be_biased_where_the_audit_is_not():
    given, truth = simulated(MIXED, sharpness=0.5)
    counted = (given.probabilities[0].argmax(axis=1) != given.labels).mean()
    actual = (given.labels != truth).mean()
    assert abs(counted - actual) > 0.08
    assert audit(given).noise_rate == pytest.approx(actual, abs=0.01)


@pytest.mark.parametrize("heard", [0.0, 1.0])
def test_right_labels_are_left_alone(heard):
    given, _ = simulated(np.eye(4), heard=heard)
    found = audit(given)
    assert found.issues.mean() < 0.001
    assert found.noise_rate < 0.002
    np.testing.assert_allclose(found.transition, np.eye(4), atol=0.005)


# ---------------------------------------------------------------------------------------------------- degenerate cases


def test_a_class_that_does_not_occur_changes_nothing():
    given, _ = simulated(MIXED, samples=500, sharpness=0.3)
    wider = np.concatenate([given.probabilities, np.zeros((1, 500, 1))], axis=2)
    found, without = audit(Evidence(given.labels, wider, given.kept, given.loss)), audit(given)
    np.testing.assert_allclose(found.quality, without.quality, atol=1e-4)  # T begins elsewhere
    np.testing.assert_allclose(found.transition[:3, :3], without.transition, atol=1e-4)
    np.testing.assert_allclose(found.transition[3], [0, 0, 0, 1], atol=1e-9)
    assert not found.doubtful.any()


def test_a_class_the_networks_never_learnt_is_called_doubtful():
    # Samples labelled 1 are taken for class 0 throughout, as where training has locked onto a wrong class.
    labels, probabilities = [0] * 10 + [1] * 10 + [2] * 10, [[0.98, 0.01, 0.01]] * 20 + [[0.01, 0.01, 0.98]] * 10
    found = audit(
        evidence(labels, probabilities, [1] * 10 + [0] * 10 + [1] * 10, [[0.98] * 10 + [0.01] * 10 + [0.98] * 10])
    )
    np.testing.assert_array_equal(found.doubtful, [False, True, False])


def test_one_network_equals_two_of_the_same():
    given = drawn(networks=1)
    twice = Evidence(given.labels, np.repeat(given.probabilities, 2, axis=0), given.kept, given.loss)
    assert_same(audit(given), audit(twice))


def test_probabilities_need_not_sum_to_1():
    given = drawn(networks=1)
    scaled = Evidence(given.labels, 0.5 * given.probabilities, given.kept, np.full_like(given.loss, np.nan))
    whole = Evidence(given.labels, given.probabilities, given.kept, np.full_like(given.loss, np.nan))
    assert_same(audit(whole), audit(scaled))


def test_one_sample_is_enough():
    found = audit(evidence([1], [[0.5, 0.5]], [0], [[0.9]]))
    assert found.quality[0] > 0.9
    assert found.transition.shape == (2, 2)


def test_a_stretch_in_which_a_sample_was_not_seen_does_not_count():
    given = drawn()
    gaps = np.concatenate([given.loss, np.full((1, 40), np.nan)])
    assert_same(audit(given), audit(Evidence(given.labels, given.probabilities, given.kept, gaps)))


def test_for_samples_never_seen_the_trained_networks_speak():
    given = drawn()
    final = given.probabilities.mean(axis=0)[np.arange(40), given.labels]
    unseen, told = given.loss.copy(), given.loss.copy()
    unseen[:, 7], told[:, 7] = np.nan, -np.log(final[7])
    assert_same(*(audit(Evidence(given.labels, given.probabilities, given.kept, loss)) for loss in (unseen, told)))
    no_stretches = audit(Evidence(given.labels, given.probabilities, given.kept, np.empty((0, 40))))
    no_losses = audit(Evidence(given.labels, given.probabilities, given.kept, np.full((2, 40), np.nan)))
    assert_same(no_stretches, no_losses)


def test_certainty_either_way_stays_finite():
    probabilities = [[1, 0, 0], [1, 0, 0], [0, 0, 1], [0, 0, 1]]
    given = evidence([0, 1, 2, 0], probabilities, [1, 0, 1, 0], [[1, 0, 0, 1], [1, 0, 1e-200, 1]])
    found = audit(given)
    for name, value in as_arrays(found).items():
        assert np.isfinite(value).all(), name
    np.testing.assert_array_equal(found.doubtful, [False, True, True])
    np.testing.assert_allclose(found.quality, [1, 0.5, 0.5, 1], atol=1e-5)


def test_samples_with_the_same_evidence_get_the_same_verdict():
    found = audit(evidence([1] * 6, [[0.2, 0.5, 0.3]] * 6, [0.4] * 6, [[0.5] * 6]))
    assert np.ptp(found.quality) == 0
    assert np.ptp(found.probability) == 0
    uniform = audit(evidence([0, 1, 2] * 4, np.full((12, 3), 1 / 3), [1] * 12, np.full((2, 12), 1 / 3)))
    np.testing.assert_allclose(uniform.quality, 1 / 3)
    np.testing.assert_allclose(uniform.transition, (4 / 3 + np.eye(3)) / 5)


# --------------------------------------------------------------------------------------------------------- invariances


def test_the_order_of_the_samples_does_not_matter():
    given, order = drawn(), np.random.default_rng(1).permutation(40)
    mixed = Evidence(given.labels[order], given.probabilities[:, order], given.kept[order], given.loss[:, order])
    one, other = as_arrays(audit(given)), as_arrays(audit(mixed))
    for name in ("quality", "suggested", "probability", "issues"):
        np.testing.assert_allclose(one[name][order], other[name], atol=1e-9)
    for name in ("transition", "noise_rate", "doubtful"):
        np.testing.assert_allclose(one[name], other[name], atol=1e-9)


def test_the_names_of_the_classes_do_not_matter():
    given, order = drawn(), np.array([2, 0, 3, 1])  # new class k was class order[k]
    renamed = np.argsort(order)
    found = audit(Evidence(renamed[given.labels], given.probabilities[:, :, order], given.kept, given.loss))
    before = audit(given)
    np.testing.assert_allclose(found.quality, before.quality, atol=1e-9)
    np.testing.assert_array_equal(found.suggested, renamed[before.suggested])
    np.testing.assert_allclose(found.transition, before.transition[np.ix_(order, order)], atol=1e-9)
    np.testing.assert_array_equal(found.doubtful, before.doubtful[order])


def test_evidence_is_not_changed_by_the_audit():
    given = drawn()
    before = given.probabilities.copy(), given.loss.copy()
    audit(given)
    np.testing.assert_array_equal(given.probabilities, before[0])
    np.testing.assert_array_equal(given.loss, before[1])


# ----------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("temperature", [0, -1, math.inf, math.nan])
def test_a_temperature_must_be_positive_and_finite(temperature):
    with pytest.raises(InvalidInput, match="`temperature` must be positive and finite"):
        audit(drawn(), temperature=temperature)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"labels": np.zeros((2, 1), dtype=int)}, "`labels` must be"),
        ({"labels": np.zeros(0, dtype=int)}, "`labels` must be"),
        ({"labels": np.array([0, 2])}, "`labels` must be integers in 0..1, but got 0..2"),
        ({"labels": np.array([-1, 1])}, "but got -1..1"),
        ({"labels": np.array([0.0, 1.0])}, "of type float64"),
        ({"probabilities": np.ones((2, 2))}, r"`probabilities` must be \(M, 2, C\)"),
        ({"probabilities": np.ones((1, 3, 2))}, "`probabilities` must be"),
        ({"probabilities": np.ones((0, 2, 2))}, "`probabilities` must be"),
        ({"probabilities": np.ones((1, 2, 1))}, "`probabilities` must be"),
        ({"probabilities": np.full((1, 2, 2), np.nan)}, "diverged"),
        ({"probabilities": np.full((1, 2, 2), np.inf)}, "diverged"),
        ({"probabilities": np.zeros((1, 2, 2))}, "not all zero"),
        ({"probabilities": np.array([[[2.0, -1.0], [1.0, 0.0]]])}, "not negative"),
        ({"kept": np.zeros(3)}, "`kept` must be"),
        ({"kept": np.array([0, 1.5])}, r"`kept` must lie in \[0, 1\], but got 0..1.5"),
        ({"kept": np.array([0, np.nan])}, "`kept` must lie"),
        ({"kept": np.array([-0.5, 1])}, "`kept` must lie"),
        ({"loss": np.zeros(2)}, "`loss` must be"),
        ({"loss": np.zeros((4, 3))}, "`loss` must be"),
        ({"loss": np.array([[0.5, -0.25], [np.nan, 1]])}, "`loss` must not be negative, but got -0.25"),
        ({"kept": np.zeros(3), "loss": np.zeros(2)}, "`kept` must be.*`loss` must be"),
    ],
)
def test_evidence_that_does_not_fit_together_is_refused(changed, message):
    fitting = {
        "labels": np.array([0, 1]),
        "probabilities": np.full((1, 2, 2), 0.5),
        "kept": np.zeros(2),
        "loss": np.ones((3, 2)),
    }
    with pytest.raises(InvalidInput, match=message):
        Evidence(**{**fitting, **changed})
