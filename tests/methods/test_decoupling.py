"""Decoupling against a loop over members, networks and samples, and where it equals a simpler method."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from method_batches import B, C, P, drawn_batch, leaf, outcome, slow_gradient, slow_losses
from s2e.methods import Batch, Decoupling, Standard


def disagreeing(batch):
    """Return the batch with networks that never predict the same class."""
    first = batch.labels  # the first network predicts the label, the second another class
    classes = torch.stack([first, (first + 1) % C], dim=1)  # (P, 2, B)
    return batch._replace(logits=leaf(batch.logits + 20 * functional.one_hot(classes, C)))


def agreeing(batch, positions):
    """Return the batch with both networks confident of class 0 at some positions, of different classes elsewhere."""
    classes = torch.stack([torch.zeros(P, B, dtype=torch.int64), torch.ones(P, B, dtype=torch.int64)], dim=1)
    classes[:, :, positions] = 0
    return batch._replace(logits=leaf(batch.logits + 20 * functional.one_hot(classes, C)))


def test_gradient_descent_equals_a_loop_over_members_networks_and_samples():
    generator = np.random.default_rng(0)
    samples, features, steps, size = 320, 4, 10, 32
    inputs = generator.normal(size=(samples, features))
    labels = generator.integers(0, C, size=(P, samples))
    weights = generator.normal(size=(P, 2, features, C))  # of linear networks
    weights[1, 1] = weights[1, 0] + 0.05 * generator.normal(size=(features, C))  # a pair that sometimes disagrees
    weights[2, 1] = weights[2, 0]  # a pair that never does
    stacked = torch.tensor(weights, requires_grad=True)
    counts = set()
    for step in range(steps):
        index = np.arange(samples)[step * size : (step + 1) * size]
        logits = torch.einsum("bf,pmfc->pmbc", torch.from_numpy(inputs[index]), stacked)
        unused = torch.ones(P, dtype=torch.int64)
        batch = Batch(logits, torch.from_numpy(labels[:, index]), unused, unused.double(), torch.tensor(step))
        objective = Decoupling().objective(batch)
        (gradient,) = torch.autograd.grad(objective.loss.sum(), stacked)
        for member in range(P):
            own = [inputs[index] @ weights[member, network] for network in (0, 1)]
            differ = [k for k in range(size) if max(range(C), key=own[0][k].item) != max(range(C), key=own[1][k].item)]
            divisor = max(0.1 * size, len(differ))
            counts.add(len(differ))
            for network in (0, 1):
                row = slow_losses(own[network], labels[member, index])
                at = (member, network)
                assert objective.selected[at].nonzero().flatten().tolist() == differ
                np.testing.assert_allclose(objective.sample_losses[at], row, rtol=1e-10)
                np.testing.assert_allclose(objective.loss[at].item(), sum(row[k] for k in differ) / divisor, rtol=1e-10)
                mean = slow_gradient(inputs[index], own[network], labels[member, index], differ)
                expected = mean * len(differ) / divisor
                np.testing.assert_allclose(gradient[at], expected, rtol=1e-8, atol=1e-10)
                weights[at] -= 0.5 * expected
        with torch.no_grad():
            stacked -= 0.5 * gradient
        np.testing.assert_allclose(stacked.detach(), weights, rtol=1e-7, atol=1e-9)
    assert 0 in counts
    assert counts & {1, 2, 3}  # fewer than a tenth of the batch
    assert max(counts) > 16


def test_networks_that_always_disagree_are_standard_training():
    batch = disagreeing(drawn_batch(2))
    pair = outcome(Decoupling(), batch)
    assert pair["selected"].all()
    for network in (0, 1):
        single = outcome(Standard(), batch._replace(logits=leaf(batch.logits[:, network : network + 1])))
        for name, tensor in single.items():
            torch.testing.assert_close(pair[name][:, network], tensor[:, 0])


def test_equal_networks_are_not_trained():
    batch = drawn_batch(1)
    found = outcome(Decoupling(), batch._replace(logits=leaf(batch.logits.repeat(1, 2, 1, 1))))
    assert not found["selected"].any()
    assert found["loss"].tolist() == [[0.0, 0.0]] * P
    assert not found["gradient"].any()
    assert (found["sample_losses"] > 0).all()


def test_disagreement_depends_on_predictions_only():
    logits = torch.tensor(
        [
            [
                [[3.0, 1.0, 0.0], [0.0, 5.0, 4.9], [1.0, 0.0, 0.0], [2.0, 2.0, 0.0]],
                [[9.0, 8.9, 0.0], [0.0, 4.9, 5.0], [0.0, 0.0, 1.0], [3.0, 0.0, 0.0]],
            ]
        ]
    )
    for label in range(3):
        batch = drawn_batch(2, members=1, size=4, classes=3)
        batch = batch._replace(logits=logits, labels=torch.full((1, 4), label))
        # Of equal logits the first is the prediction.
        assert Decoupling().objective(batch).selected.tolist() == [[[False, True, True, False]] * 2]


@pytest.mark.parametrize(("differing", "divisor"), [(1, 2.0), (3, 3.0)])
def test_divisor_is_at_least_a_tenth_of_the_batch(differing, divisor):
    logits = torch.zeros(1, 2, 20, 4)
    logits[:, 0, :, 0] = 1.0
    logits[:, 1, :differing, 1] = 1.0
    logits[:, 1, differing:, 0] = 1.0
    batch = drawn_batch(2, members=1, size=20, classes=4)._replace(logits=logits, labels=torch.full((1, 20), 3))
    loss = math.log(3 + math.e)  # of every sample under either network
    torch.testing.assert_close(
        Decoupling().objective(batch).loss, torch.full((1, 2), differing * loss / divisor), rtol=1e-6, atol=0
    )


@pytest.mark.parametrize("cause", ["huge logits", "an impossible class"])
def test_unselected_infinite_loss_is_ignored(cause):
    batch = agreeing(drawn_batch(2), [3, 5])
    logits, labels = batch.logits.detach().clone(), batch.labels.clone()
    labels[:, 3] = 2
    if cause == "huge logits":
        logits[:, :, 3] = 3e38 * (1 - 2 * functional.one_hot(torch.tensor(2), C))
    else:
        logits[:, :, 3, 2] = -math.inf
    found = outcome(Decoupling(), batch._replace(logits=leaf(logits), labels=labels))
    expected = outcome(Decoupling(), batch._replace(labels=labels))
    assert found["sample_losses"][:, :, 3].isinf().all()
    for name in ("loss", "selected", "gradient"):
        torch.testing.assert_close(found[name], expected[name], rtol=0, atol=0)


@pytest.mark.parametrize(("value", "networks"), [(math.nan, [0]), (math.inf, [1]), (math.nan, [0, 1])])
def test_network_with_nan_loss_disagrees(value, networks):
    batch = agreeing(drawn_batch(2), [3])
    logits = batch.logits.detach().clone()
    logits[0, networks, 3, 0] = value  # where both are confident of class 0
    found = Decoupling().objective(batch._replace(logits=logits))
    assert found.selected[:, :, 3].tolist() == [[True, True], [False, False], [False, False]]
    assert found.loss.isnan().tolist() == [[network in networks for network in (0, 1)], [False] * 2, [False] * 2]
