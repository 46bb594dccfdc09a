"""JoCoR against a loop over members and samples, and where it equals a simpler method."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from method_batches import B, C, P, drawn_batch, leaf, outcome, slow_losses, slow_smallest, slow_softmax
from s2e.errors import InvalidInput
from s2e.methods import Batch, Coteaching, JoCoR, MentorNet, Standard


def slow_kl(one, other):
    """KL(one‖other) of two lists of probabilities."""
    return sum(p * math.log(p / q) for p, q in zip(one, other, strict=True))


def slow_joint(first, second, labels, agreement):
    """Joint loss of every sample: (B, C), (B, C), (B,) -> (B,)."""
    joint = []
    supervised = zip(slow_losses(first, labels), slow_losses(second, labels), strict=True)
    for row, other, fits in zip(first, second, supervised, strict=True):
        p, q = slow_softmax(row), slow_softmax(other)
        joint.append((1 - agreement) * sum(fits) + agreement * (slow_kl(p, q) + slow_kl(q, p)))
    return joint


def slow_joint_gradient(inputs, own, other, labels, selected, agreement):
    """Gradient of the mean joint loss over the selected samples, by the weights of one network, (F, C).

    For logits z = inputs @ weights, ∂CE/∂z_k = p_k − [k = y], ∂KL(p‖q)/∂z_k = p_k (ln p_k/q_k − KL(p‖q)) and
    ∂KL(q‖p)/∂z_k = p_k − q_k.
    """
    gradient = np.zeros((inputs.shape[1], own.shape[1]))
    for position in selected:
        p, q = slow_softmax(own[position]), slow_softmax(other[position])
        apart = slow_kl(p, q)
        for k in range(len(p)):
            fit = p[k] - (k == labels[position])
            agree = p[k] * (math.log(p[k] / q[k]) - apart) + p[k] - q[k]
            change = (1 - agreement) * fit + agreement * agree
            gradient[:, k] += inputs[position] * change / len(selected)
    return gradient


@pytest.mark.parametrize("agreement", [0.3, 1.0])
def test_gradient_descent_equals_a_loop_over_members_networks_and_samples(agreement):
    generator = np.random.default_rng(0)
    samples, features, steps, size = 256, 4, 8, 32
    inputs = generator.normal(size=(samples, features))
    labels = generator.integers(0, C, size=(P, samples))
    weights = generator.normal(size=(P, 2, features, C))  # of linear networks
    stacked = torch.tensor(weights, requires_grad=True)
    for step in range(steps):
        index = np.arange(samples)[step * size : (step + 1) * size]
        keep = torch.tensor([1, 12 + step, size])
        logits = torch.einsum("bf,pmfc->pmbc", torch.from_numpy(inputs[index]), stacked)
        batch = Batch(logits, torch.from_numpy(labels[:, index]), keep, keep.double() / size, torch.tensor(step))
        objective = JoCoR(agreement).objective(batch)
        (gradient,) = torch.autograd.grad(objective.loss.sum(), stacked)
        for member in range(P):
            own = [inputs[index] @ weights[member, network] for network in (0, 1)]
            joint = slow_joint(*own, labels[member, index], agreement)
            selected = slow_smallest(joint, int(keep[member]))
            mean = sum(joint[k] for k in selected) / len(selected)
            np.testing.assert_allclose(objective.loss[member].sum().item(), mean, rtol=1e-9)
            assert objective.loss[member, 0] == objective.loss[member, 1]
            for network in (0, 1):
                at = (member, network)
                assert objective.selected[at].nonzero().flatten().tolist() == selected
                own_losses = slow_losses(own[network], labels[member, index])
                np.testing.assert_allclose(objective.sample_losses[at], own_losses, rtol=1e-10)
                both = (own[network], own[1 - network])
                expected = slow_joint_gradient(inputs[index], *both, labels[member, index], selected, agreement)
                np.testing.assert_allclose(gradient[at], expected, rtol=1e-8, atol=1e-10)
                weights[at] -= 0.2 * expected
        with torch.no_grad():
            stacked -= 0.2 * gradient
        np.testing.assert_allclose(stacked.detach(), weights, rtol=1e-7, atol=1e-9)


def test_loss_of_one_sample_matches_hand_computation():
    first, second = [0.5, 0.5], [0.8, 0.2]
    logits = torch.tensor([[[first], [second]]]).log()
    batch = drawn_batch(2, members=1, size=1, classes=2)
    batch = batch._replace(logits=logits, labels=torch.zeros(1, 1, dtype=torch.int64), keep=torch.tensor([1]))
    fit = math.log(1 / 0.5) + math.log(1 / 0.8)
    apart = (
        0.5 * math.log(0.5 / 0.8) + 0.5 * math.log(0.5 / 0.2) + 0.8 * math.log(0.8 / 0.5) + 0.2 * math.log(0.2 / 0.5)
    )
    for agreement in (0.0, 0.25, 0.9, 1.0):
        joint = (1 - agreement) * fit + agreement * apart
        torch.testing.assert_close(JoCoR(agreement).objective(batch).loss, torch.full((1, 2), joint / 2))
    torch.testing.assert_close(JoCoR().objective(batch).loss.sum(), torch.tensor(0.1 * fit + 0.9 * apart))


def test_without_agreement_both_networks_train_on_the_smallest_summed_loss():
    batch = drawn_batch(2)
    found = outcome(JoCoR(agreement=0.0), batch)
    plain = outcome(Coteaching(), batch)
    torch.testing.assert_close(found["sample_losses"], plain["sample_losses"], rtol=0, atol=0)
    for member, summed in enumerate(plain["sample_losses"].sum(dim=1).tolist()):
        shared = slow_smallest(summed, int(batch.keep[member]))
        assert found["selected"][member].nonzero()[:, 1].tolist() == shared * 2
        logits, labels = leaf(batch.logits[member][:, shared]), batch.labels[member, shared]  # selected samples alone
        losses = [functional.cross_entropy(own, labels) for own in logits]
        torch.testing.assert_close(found["loss"][member].sum(), sum(losses))
        (gradient,) = torch.autograd.grad(sum(losses), logits)
        torch.testing.assert_close(found["gradient"][member][:, shared], gradient)


def test_without_agreement_keeping_the_whole_batch_is_standard_training():
    batch = drawn_batch(2)._replace(keep=torch.full((P,), B))
    found = outcome(JoCoR(agreement=0.0), batch)
    assert found["selected"].all()
    losses = []
    for network in (0, 1):
        single = outcome(Standard(), batch._replace(logits=leaf(batch.logits[:, network : network + 1])))
        torch.testing.assert_close(found["gradient"][:, network], single["gradient"][:, 0])
        losses.append(single["loss"][:, 0])
    torch.testing.assert_close(found["loss"].sum(dim=1), sum(losses))


def test_equal_networks_are_mentornet_scaled_by_the_weight_of_labels():
    batch, agreement = drawn_batch(1), 0.4
    pair = outcome(JoCoR(agreement), batch._replace(logits=leaf(batch.logits.repeat(1, 2, 1, 1))))
    single = outcome(MentorNet(), batch)
    for network in (0, 1):
        assert torch.equal(pair["selected"][:, network], single["selected"][:, 0])
        for name in ("loss", "gradient"):
            torch.testing.assert_close(pair[name][:, network], (1 - agreement) * single[name][:, 0])


def test_equal_networks_with_agreement_only_have_zero_loss():
    batch = drawn_batch(1)
    pair = outcome(JoCoR(agreement=1.0), batch._replace(logits=leaf(batch.logits.repeat(1, 2, 1, 1))))
    assert not pair["loss"].any()
    assert not pair["gradient"].any()
    counts = pair["selected"].sum(dim=-1)  # ties go to the lower positions
    assert counts.tolist() == [[count, count] for count in batch.keep.tolist()]
    assert all(pair["selected"][member, :, :count].all() for member, count in enumerate(batch.keep.tolist()))


def test_labels_are_ignored_with_agreement_only():
    batch = drawn_batch(2)
    found = outcome(JoCoR(agreement=1.0), batch)
    relabelled = outcome(JoCoR(agreement=1.0), batch._replace(labels=(batch.labels + 1) % C))
    for name in ("loss", "selected", "gradient"):
        torch.testing.assert_close(found[name], relabelled[name], rtol=0, atol=0)
    assert (found["gradient"].abs().sum(dim=(2, 3)) > 0).all()  # both networks are trained


def test_networks_are_interchangeable():
    batch = drawn_batch(2)
    found, swapped = outcome(JoCoR(), batch), outcome(JoCoR(), batch._replace(logits=leaf(batch.logits.flip(1))))
    for name, tensor in found.items():
        torch.testing.assert_close(swapped[name], tensor.flip(1), rtol=0, atol=0)


def test_keeping_one_sample_keeps_the_smallest_joint_loss():
    batch = drawn_batch(2)._replace(keep=torch.ones(P, dtype=torch.int64))
    objective = JoCoR().objective(batch)
    for member in range(P):
        joint = slow_joint(*batch.logits[member].tolist(), batch.labels[member].tolist(), 0.9)
        assert objective.selected[member].nonzero()[:, 1].tolist() == [joint.index(min(joint))] * 2
        assert objective.loss[member].sum().item() == pytest.approx(min(joint), rel=1e-5)


@pytest.mark.parametrize(
    ("value", "networks", "agreement"),
    [(math.nan, [0], 0.9), (math.inf, [0, 1], 1.0), (3e38, [1], 0.0), (3e38, [0, 1], 0.9)],
)
def test_unselected_sample_without_finite_loss_is_ignored(value, networks, agreement):
    batch = drawn_batch(2, members=1)
    labels = batch.labels.clone()
    labels[0, 3] = 2
    batch = batch._replace(labels=labels, keep=torch.tensor([4]))
    easier = batch.logits.detach().clone()
    easier[0, :, 3] = torch.tensor([[0.0, 0.0, -20.0, 0.0, 0.0], [20.0, 0.0, -20.0, 0.0, 0.0]])  # not selected either
    expected = outcome(JoCoR(agreement), batch._replace(logits=leaf(easier)))
    spoilt = easier.clone()
    spoilt[0, networks, 3] = torch.tensor([value, 0.0, -3e38, 0.0, 0.0])
    found = outcome(JoCoR(agreement), batch._replace(logits=leaf(spoilt)))
    assert not found["sample_losses"][0, networks, 3].isfinite().any()
    assert not found["selected"][0, :, 3].any()
    for name in ("loss", "selected", "gradient"):
        torch.testing.assert_close(found[name], expected[name], rtol=0, atol=0)


@pytest.mark.parametrize("logit", [-math.inf, -3e38])
def test_class_impossible_under_both_networks_is_ignored(logit):
    batch = drawn_batch(2)
    logits = torch.cat([batch.logits.detach(), torch.full((P, 2, B, 1), logit)], dim=-1)
    found, plain = outcome(JoCoR(), batch._replace(logits=leaf(logits))), outcome(JoCoR(), batch)
    for name in ("loss", "sample_losses", "selected"):
        torch.testing.assert_close(found[name], plain[name])
    torch.testing.assert_close(found["gradient"][..., :C], plain["gradient"])
    assert not found["gradient"][..., C].any()


def test_class_impossible_under_one_network_ranks_the_sample_last():
    batch = drawn_batch(2, members=1)
    logits = batch.logits.detach().clone()
    labels = batch.labels.clone()
    labels[0, 3] = 2
    logits[0, :, 3] = torch.tensor(
        [[0.0, -math.inf, 30.0, 0.0, 0.0], [0.0, 10.0, 30.0, 0.0, 0.0]]
    )  # fits the label very well
    batch = batch._replace(logits=logits, labels=labels)
    for agreement in (0.1, 0.9, 1.0):
        objective = JoCoR(agreement).objective(batch._replace(keep=torch.tensor([B - 1])))
        assert objective.selected.logical_not().nonzero().tolist() == [[0, 0, 3], [0, 1, 3]]
        assert objective.loss.isfinite().all()
    objective = JoCoR(agreement=0.0).objective(batch._replace(keep=torch.tensor([1])))  # only the fit counts
    assert objective.selected.nonzero().tolist() == [[0, 0, 3], [0, 1, 3]]


def test_opposite_certainties_have_finite_gradients_without_agreement():
    batch = drawn_batch(2, members=1)
    logits = batch.logits.detach().clone()
    labels = batch.labels.clone()
    labels[0, 3] = 2
    never = -math.inf
    logits[0, :, 3] = torch.tensor([[20.0, never, 0.0, never, never], [never, 20.0, 0.0, never, never]])
    found = outcome(JoCoR(agreement=0.0), batch._replace(logits=leaf(logits), labels=labels, keep=torch.tensor([B])))
    torch.testing.assert_close(found["loss"].sum(), functional.cross_entropy(logits[0].mT, labels.expand(2, B)) * 2)
    assert found["gradient"].isfinite().all()


@pytest.mark.parametrize("agreement", [-0.1, 1.0001, math.nan])
def test_agreement_outside_the_unit_interval_is_refused(agreement):
    with pytest.raises(InvalidInput, match=rf"^`agreement` must lie in \[0, 1\], but got {agreement}\.$"):
        JoCoR(agreement=agreement)
